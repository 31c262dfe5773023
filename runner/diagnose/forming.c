/* SPDX-License-Identifier: Apache-2.0 */
#include "diagnose/forming.h"

#include "xalloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *forming_text(enum wire_forming kind, const char *name, char *out, size_t size)
{
    static const char *const texts[] = {[WIRE_FORMING_CREATE] = "the creation of group ",
                                        [WIRE_FORMING_SPLIT] = "the split of group ",
                                        [WIRE_FORMING_SHRINK] = "the shrink of group ",
                                        [WIRE_FORMING_FINALIZE] = "collrun_finalize"};
    snprintf(out, size, "%s%s", texts[kind], kind == WIRE_FORMING_FINALIZE ? "" : name);
    return out;
}

bool forming_is_same(const struct forming_wait *a, const struct forming_wait *b)
{
    return a->kind == b->kind && strcmp(a->name, b->name) == 0 && a->members.n == b->members.n &&
           memcmp(a->members.items, b->members.items, a->members.n * sizeof(uint32_t)) == 0;
}

const struct forming_wait *rank_forming_find(const struct rank_forming *f,
                                             const struct forming_wait *like)
{
    for (uint32_t i = 0; i < f->n; i++) {
        if (forming_is_same(&f->items[i], like))
            return &f->items[i];
    }
    return NULL;
}

static void rank_forming_remove(struct rank_forming *f, const struct forming_wait *like)
{
    const struct forming_wait *found = rank_forming_find(f, like);
    if (!found)
        return;
    uint32_t at = (uint32_t)(found - f->items);
    free(f->last.members.items);
    f->last = f->items[at];
    f->items[at] = f->items[--f->n];
}

void rank_forming_add(struct rank_forming *f, const struct forming_wait *w)
{
    const size_t len = w->members.n * sizeof(uint32_t);
    uint32_t *members = xmalloc(len);
    f->items = xrealloc(f->items, f->n + 1, sizeof *f->items);
    if (len)
        memcpy(members, w->members.items, len);
    f->items[f->n] = *w;
    f->items[f->n++].members.items = members;
}

bool rank_forming_read(struct rank_forming *f, const struct wire_frame *frame, uint64_t now_ns)
{
    struct reader r;
    struct forming_wait w = {0};
    size_t len;
    reader_init(&r, frame->payload, frame->len);
    bool waits = read_u8(&r);
    const uint8_t kind = read_u8(&r);
    w.kind = (enum wire_forming)kind;
    const char *name = read_blob(&r, &len);
    snprintf(w.name, sizeof w.name, "%.*s", (int)len, name ? name : "");
    uint64_t age = read_u64(&r);
    w.since_ns = age < now_ns ? now_ns - age : 1;
    uint32_t n = read_count(&r, sizeof(uint32_t));
    w.members.items = xcalloc(n, sizeof(uint32_t));
    for (; w.members.n < n; w.members.n++)
        w.members.items[w.members.n] = read_u32(&r);
    bool good = reader_done(&r) && kind < WIRE_FORMING_KINDS;
    if (good && waits)
        rank_forming_add(f, &w);
    else if (good)
        rank_forming_remove(f, &w);
    free(w.members.items);
    return good;
}

void rank_forming_fini(struct rank_forming *f)
{
    for (uint32_t i = 0; i < f->n; i++)
        free(f->items[i].members.items);
    free(f->items);
    free(f->last.members.items);
    *f = (struct rank_forming){0};
}
