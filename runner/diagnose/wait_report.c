/* SPDX-License-Identifier: Apache-2.0
 *
 * Decoding WAIT_REPORT frames.
 */
#include "diagnose/wait_report.h"

#include <string.h>

enum { CALL_LEN = 52, GROUP_LEN = 37, POSTED_LEN = 21, COUNT_LEN = 24, CREATED_LEN = 16 };

static void wait_report_read_call(struct reader *r, struct arena *a, struct wait_report_call *w)
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
    w->order = read_u64(r);
}

static void wait_report_read_members(struct reader *r, struct arena *a, struct wait_report_group *g)
{
    g->nmembers = read_count(r, sizeof(uint32_t));
    g->members = arena_calloc(a, g->nmembers, sizeof *g->members);
    for (uint32_t i = 0; i < g->nmembers; i++)
        g->members[i] = read_u32(r);
}

static void wait_report_read_posted(struct reader *r, struct arena *a, struct wait_report_group *g)
{
    g->nposted = read_count(r, POSTED_LEN);
    g->posted = arena_calloc(a, g->nposted, sizeof *g->posted);
    for (uint32_t i = 0; i < g->nposted; i++) {
        g->posted[i].kind = read_u8(r);
        g->posted[i].peer = read_u32(r);
        g->posted[i].tag = read_u32(r);
        g->posted[i].thread = read_u32(r);
        g->posted[i].order = read_u64(r);
    }
}

static void wait_report_read_counts(struct reader *r, struct arena *a, struct wait_report_group *g)
{
    g->lost = read_u8(r);
    g->ncounts = read_count(r, COUNT_LEN);
    g->counts = arena_calloc(a, g->ncounts, sizeof *g->counts);
    for (uint32_t i = 0; i < g->ncounts; i++) {
        g->counts[i].peer = read_u32(r);
        g->counts[i].tag = read_u32(r);
        g->counts[i].sent = read_u64(r);
        g->counts[i].received = read_u64(r);
    }
}

static void wait_report_read_group(struct reader *r, struct arena *a, struct wait_report_group *g)
{
    g->scope = read_str(r, a);
    g->name = read_str(r, a);
    g->collectives = read_u64(r);
    g->splits = read_u64(r);
    wait_report_read_members(r, a, g);
    wait_report_read_posted(r, a, g);
    wait_report_read_counts(r, a, g);
}

static bool wait_report_read_all(struct wait_report *w, struct reader *r)
{
    struct arena *a = &w->arena;
    w->certain = read_u8(r);
    w->caller_free = read_u8(r);
    w->nitems = read_count(r, CALL_LEN);
    w->items = arena_calloc(a, w->nitems, sizeof *w->items);
    for (uint32_t i = 0; i < w->nitems; i++)
        wait_report_read_call(r, a, &w->items[i]);
    w->ngroups = read_count(r, GROUP_LEN);
    w->groups = arena_calloc(a, w->ngroups, sizeof *w->groups);
    for (uint32_t i = 0; i < w->ngroups; i++)
        wait_report_read_group(r, a, &w->groups[i]);
    w->created_lost = read_u8(r);
    w->ncreated = read_count(r, CREATED_LEN);
    w->created = arena_calloc(a, w->ncreated, sizeof *w->created);
    for (uint32_t i = 0; i < w->ncreated; i++) {
        w->created[i].id = read_u64(r);
        w->created[i].times = read_u64(r);
    }
    return reader_done(r);
}

bool wait_report_read(struct wait_report *w, const struct wire_frame *f)
{
    struct reader r;
    wait_report_fini(w);
    arena_init(&w->arena);
    reader_init(&r, f->payload, f->len);
    w->received = wait_report_read_all(w, &r);
    return w->received;
}

void wait_report_fini(struct wait_report *w)
{
    arena_fini(&w->arena);
    memset(w, 0, sizeof *w);
}

const struct wait_report_group *wait_report_group(const struct wait_report *w, const char *scope)
{
    for (uint32_t i = 0; i < w->ngroups; i++) {
        if (strcmp(w->groups[i].scope, scope) == 0)
            return &w->groups[i];
    }
    return NULL;
}

uint64_t wait_report_times(const struct wait_report *w, uint64_t id)
{
    for (uint32_t i = 0; i < w->ncreated; i++) {
        if (w->created[i].id == id)
            return w->created[i].times;
    }
    return 0;
}
