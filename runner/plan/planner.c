/* SPDX-License-Identifier: Apache-2.0
 *
 * Helpers that the passes of the plan share: reporting an error, expanding a rank set, copying
 * pairs.
 */
#include "plan/planner.h"

/* The largest number of members that a job description holds and still fits into one frame. */
enum { MEMBERS_MAX = 8 << 20 };

void planner_add_error(struct planner *pl, const struct diag *d)
{
    diag_list_add(pl->diags, d);
}

/* True if `n` more members fit; the first set that does not fit is reported. */
static bool planner_count_members(struct planner *pl, uint64_t n)
{
    bool before = pl->members <= MEMBERS_MAX;
    pl->members += n;
    if (pl->members <= MEMBERS_MAX)
        return true;
    if (before) {
        struct diag d;
        diag_at(&d, pl->job->processes.count.loc,
                "groups and workloads have more than %d members in total", MEMBERS_MAX);
        planner_add_error(pl, &d);
    }
    return false;
}

static void planner_add_rank(struct planner *pl, uint64_t rank, struct desc_ranks *out)
{
    if (pl->last_set[rank] == pl->sets)
        return;
    pl->last_set[rank] = pl->sets;
    out->items[out->n++] = (uint32_t)rank;
}

void planner_ranks(struct planner *pl, const struct job_ranks *ranks, struct desc_ranks *out)
{
    uint32_t count = pl->desc->nranks;
    uint64_t most = ranks->all ? count : 0, visited = 0;
    for (uint32_t i = 0; i < ranks->n; i++)
        most += parse_range_count(&ranks->parts[i].range);
    most = most < count ? most : count;
    *out = (struct desc_ranks){0};
    if (!pl->last_set)
        pl->last_set = arena_calloc(pl->arena, count, sizeof *pl->last_set);
    out->items =
        planner_count_members(pl, most) ? arena_calloc(pl->arena, most, sizeof *out->items) : NULL;
    if (!out->items)
        return;
    pl->sets++;
    for (uint32_t rank = 0; ranks->all && rank < count; rank++)
        planner_add_rank(pl, rank, out);
    /* A set of more ranks than there are lists one twice, which has been reported. */
    for (uint32_t i = 0; i < ranks->n && visited < count; i++) {
        const struct parse_range *range = &ranks->parts[i].range;
        for (uint64_t rank = range->first; rank <= range->last && rank < count;
             rank += range->step, visited++)
            planner_add_rank(pl, rank, out);
    }
}

static void planner_pair(struct planner *pl, const struct job_pair *from, struct desc_kv *to)
{
    *to = (struct desc_kv){
        .key = from->key, .value = from->value, .loc = from->loc, .is_list = from->is_list};
    to->items = arena_calloc(pl->arena, from->list.n, sizeof *to->items);
    to->nitems = from->list.n;
    for (uint32_t i = 0; i < to->nitems; i++)
        to->items[i] = (struct desc_item){from->list.items[i].v, from->list.items[i].loc};
}

void planner_pairs(struct planner *pl, const struct job_pairs *from, struct desc_kvs *to)
{
    to->items = arena_calloc(pl->arena, from->n, sizeof *to->items);
    to->n = from->n;
    for (uint32_t i = 0; i < to->n; i++)
        planner_pair(pl, &from->items[i], &to->items[i]);
}
