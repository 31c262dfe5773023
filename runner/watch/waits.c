/* SPDX-License-Identifier: Apache-2.0
 *
 * Decoding WAITS frames.
 */
#include "watch/waits.h"

#include <string.h>

enum { WAIT_LEN = 44, GROUP_LEN = 29, POSTED_LEN = 9, TRAFFIC_LEN = 24 };

static void read_wait(struct reader *r, struct arena *a, struct wait *w)
{
    w->thread = read_u32(r);
    w->scope = read_str(r, a);
    w->number = read_u64(r);
    w->timeout_ns = read_u64(r);
    w->kind = read_u8(r);
    w->dtype = read_u8(r);
    w->op = read_u8(r);
    w->eager = read_u8(r);
    w->count = read_u64(r);
    w->peer = read_u32(r);
    w->tag = read_u32(r);
}

static void read_members(struct reader *r, struct arena *a, struct wait_group *g)
{
    g->nmembers = read_count(r, sizeof(uint32_t));
    g->members = arena_calloc(a, g->nmembers, sizeof *g->members);
    for (uint32_t i = 0; g->members && i < g->nmembers; i++)
        g->members[i] = read_u32(r);
}

static void read_posted(struct reader *r, struct arena *a, struct wait_group *g)
{
    g->nposted = read_count(r, POSTED_LEN);
    g->posted = arena_calloc(a, g->nposted, sizeof *g->posted);
    for (uint32_t i = 0; g->posted && i < g->nposted; i++) {
        g->posted[i].kind = read_u8(r);
        g->posted[i].peer = read_u32(r);
        g->posted[i].tag = read_u32(r);
    }
}

static void read_traffic(struct reader *r, struct arena *a, struct wait_group *g)
{
    g->lost = read_u8(r);
    g->ntraffic = read_count(r, TRAFFIC_LEN);
    g->traffic = arena_calloc(a, g->ntraffic, sizeof *g->traffic);
    for (uint32_t i = 0; g->traffic && i < g->ntraffic; i++) {
        g->traffic[i].peer = read_u32(r);
        g->traffic[i].tag = read_u32(r);
        g->traffic[i].sent = read_u64(r);
        g->traffic[i].received = read_u64(r);
    }
}

static void read_group(struct reader *r, struct arena *a, struct wait_group *g)
{
    g->scope = read_str(r, a);
    g->name = read_str(r, a);
    g->collectives = read_u64(r);
    read_members(r, a, g);
    read_posted(r, a, g);
    read_traffic(r, a, g);
}

static bool read_all(struct waits *w, struct reader *r)
{
    struct arena *a = &w->arena;
    w->sure = read_u8(r);
    w->nitems = read_count(r, WAIT_LEN);
    w->items = arena_calloc(a, w->nitems, sizeof *w->items);
    for (uint32_t i = 0; w->items && i < w->nitems; i++)
        read_wait(r, a, &w->items[i]);
    w->ngroups = read_count(r, GROUP_LEN);
    w->groups = arena_calloc(a, w->ngroups, sizeof *w->groups);
    for (uint32_t i = 0; w->groups && i < w->ngroups; i++)
        read_group(r, a, &w->groups[i]);
    return reader_done(r) && !arena_failed(a);
}

bool waits_read(struct waits *w, const struct wire_frame *f)
{
    struct reader r;
    waits_fini(w);
    arena_init(&w->arena);
    reader_init(&r, f->payload, f->len);
    w->told = read_all(w, &r);
    return w->told;
}

void waits_fini(struct waits *w)
{
    arena_fini(&w->arena);
    memset(w, 0, sizeof *w);
}

const struct wait_group *waits_group(const struct waits *w, const char *scope)
{
    for (uint32_t i = 0; i < w->ngroups; i++) {
        if (strcmp(w->groups[i].scope, scope) == 0)
            return &w->groups[i];
    }
    return NULL;
}
