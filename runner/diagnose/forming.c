/* SPDX-License-Identifier: Apache-2.0 */
#include "diagnose/forming.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct forming_wait *rank_forming_find(const struct rank_forming *f,
                                             const struct forming_wait *like)
{
    for (uint32_t i = 0; i < f->n; i++) {
        const struct forming_wait *w = &f->items[i];
        if (w->split == like->split && strcmp(w->name, like->name) == 0 &&
            w->members.n == like->members.n &&
            memcmp(w->members.items, like->members.items, w->members.n * sizeof(uint32_t)) == 0)
            return w;
    }
    return NULL;
}

static void rank_forming_remove(struct rank_forming *f, const struct forming_wait *like)
{
    const struct forming_wait *found = rank_forming_find(f, like);
    if (!found)
        return;
    uint32_t at = (uint32_t)(found - f->items);
    free(f->items[at].members.items);
    f->items[at] = f->items[--f->n];
}

static bool rank_forming_add(struct rank_forming *f, struct forming_wait *w)
{
    struct forming_wait *grown = realloc(f->items, (f->n + 1) * sizeof *grown);
    if (!grown)
        return false;
    f->items = grown;
    f->items[f->n++] = *w;
    w->members.items = NULL; /* moved */
    return true;
}

bool rank_forming_read(struct rank_forming *f, const struct wire_frame *frame, uint64_t now_ns)
{
    struct reader r;
    struct forming_wait w = {0};
    size_t len;
    reader_init(&r, frame->payload, frame->len);
    bool waits = read_u8(&r);
    w.split = read_u8(&r);
    const char *name = read_blob(&r, &len);
    snprintf(w.name, sizeof w.name, "%.*s", (int)len, name ? name : "");
    uint64_t age = read_u64(&r);
    w.since_ns = age < now_ns ? now_ns - age : 1;
    uint32_t n = read_count(&r, sizeof(uint32_t));
    w.members.items = calloc(n + 1, sizeof(uint32_t));
    for (; w.members.items && w.members.n < n; w.members.n++)
        w.members.items[w.members.n] = read_u32(&r);
    bool good = reader_done(&r) && w.members.items;
    if (good && waits)
        good = rank_forming_add(f, &w);
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
    *f = (struct rank_forming){0};
}
