/* SPDX-License-Identifier: Apache-2.0
 *
 * Decoding SEEN frames, and putting an operation into words.
 */
#include "watch/seen.h"

#include "base/names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void read_group(struct reader *r, struct seen_group *g)
{
    size_t len;
    const char *name = read_blob(r, &len);
    snprintf(g->name, sizeof g->name, "%.*s", (int)len, name ? name : "");
    g->started = read_u64(r);
    g->done = read_u64(r);
    g->bytes = read_u64(r);
    g->age_ns = read_u64(r);
    g->count = read_u64(r);
    g->root_or_peer = (int)read_u32(r);
    g->kind = read_u8(r);
    g->dtype = read_u8(r);
    g->op = read_u8(r);
}

bool seen_read(struct seen *seen, const struct wire_frame *f)
{
    struct reader r;
    struct seen fresh;
    reader_init(&r, f->payload, f->len);
    fresh = (struct seen){.looked = true};
    fresh.state = (char)read_u8(&r);
    fresh.n = read_count(&r, 51);
    fresh.groups = calloc(fresh.n ? fresh.n : 1, sizeof *fresh.groups);
    for (uint32_t i = 0; fresh.groups && i < fresh.n; i++)
        read_group(&r, &fresh.groups[i]);
    if (!fresh.groups || !reader_done(&r)) {
        free(fresh.groups);
        return false;
    }
    if (!fresh.state)
        fresh.state = seen->state; /* it has ended since */
    seen_fini(seen);
    *seen = fresh;
    return true;
}

void seen_fini(struct seen *seen)
{
    free(seen->groups);
    *seen = (struct seen){0};
}

bool seen_member(const struct seen *seen, const char *group)
{
    for (uint32_t i = 0; i < seen->n; i++) {
        if (strcmp(seen->groups[i].name, group) == 0)
            return true;
    }
    return false;
}

bool seen_called(const struct seen *seen, const char *group, uint64_t number)
{
    for (uint32_t i = 0; i < seen->n; i++) {
        const struct seen_group *g = &seen->groups[i];
        if (strcmp(g->name, group) == 0 && g->kind < COLLRUN_SEND && g->started >= number)
            return true;
    }
    return false;
}

uint64_t seen_total(const struct seen *seen, const char *group, uint64_t *bytes)
{
    uint64_t operations = 0;
    for (uint32_t i = 0; i < seen->n; i++) {
        if (strcmp(seen->groups[i].name, group) != 0)
            continue;
        operations += seen->groups[i].done;
        *bytes += seen->groups[i].bytes;
    }
    return operations;
}

static void describe_call(const struct seen_group *g, char *out, size_t size)
{
    const char *kind = kind_name(g->kind), *dtype = dtype_name(g->dtype), *op = op_name(g->op);
    int n = snprintf(out, size, "%s %s#%llu", kind ? kind : "an operation", g->name,
                     (unsigned long long)g->started);
    if (g->kind == COLLRUN_BARRIER || n < 0 || (size_t)n >= size)
        return;
    char rest[64] = "";
    bool reduces = g->kind == COLLRUN_ALLREDUCE || g->kind == COLLRUN_REDUCE ||
                   g->kind == COLLRUN_REDUCE_SCATTER || g->kind == COLLRUN_REDUCE_SCATTERV;
    if (reduces)
        snprintf(rest, sizeof rest, ", %s", op ? op : "?");
    else if (g->kind == COLLRUN_SEND || g->kind == COLLRUN_RECV)
        snprintf(rest, sizeof rest, ", %s %d", g->kind == COLLRUN_SEND ? "to" : "from",
                 g->root_or_peer);
    snprintf(out + n, size - (size_t)n, " (%llu x %s%s)", (unsigned long long)g->count,
             dtype ? dtype : "?", rest);
}

bool seen_inside(const struct seen *seen, char *out, size_t size)
{
    const struct seen_group *oldest = NULL;
    for (uint32_t i = 0; i < seen->n; i++) {
        const struct seen_group *g = &seen->groups[i];
        if (g->started > g->done && (!oldest || g->age_ns > oldest->age_ns))
            oldest = g;
    }
    if (oldest)
        describe_call(oldest, out, size);
    return oldest != NULL;
}

bool seen_after(const struct seen *seen, char *out, size_t size)
{
    const struct seen_group *most = NULL;
    for (uint32_t i = 0; i < seen->n; i++) {
        if (seen->groups[i].done && (!most || seen->groups[i].done > most->done))
            most = &seen->groups[i];
    }
    if (most)
        snprintf(out, size, "after %s#%llu", most->name, (unsigned long long)most->done);
    return most != NULL;
}

void seen_describe(const struct seen *seen, char *out, size_t size)
{
    char inside[192];
    const char *state = seen->state == 'T'   ? ", stopped by a signal"
                        : seen->state == 'D' ? ", waiting for the kernel"
                                             : "";
    if (seen_inside(seen, inside, sizeof inside))
        snprintf(out, size, "in %s%s", inside, state);
    else
        snprintf(out, size, "outside any collective%s", state);
}
