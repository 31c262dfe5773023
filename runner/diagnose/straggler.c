/* SPDX-License-Identifier: Apache-2.0 */
#include "diagnose/straggler.h"

#include "xalloc.h"

#include <collrun/types.h>
#include <stdlib.h>
#include <string.h>

void straggler_init(struct straggler_group *g, uint32_t nranks)
{
    *g = (struct straggler_group){.nranks = nranks};
    g->ranks = xcalloc(nranks, sizeof *g->ranks);
    g->sorted = xcalloc(nranks, sizeof *g->sorted);
}

void straggler_fini(struct straggler_group *g)
{
    free(g->ranks);
    free(g->sorted);
    *g = (struct straggler_group){0};
}

static int straggler_compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void straggler_count(struct straggler_group *g, uint32_t last, const uint64_t *called_ns)
{
    memcpy(g->sorted, called_ns, g->nranks * sizeof *g->sorted);
    qsort(g->sorted, g->nranks, sizeof *g->sorted, straggler_compare);
    g->compared++;
    g->ranks[last].last++;
    g->ranks[last].late_ns += called_ns[last] - g->sorted[(g->nranks - 1) / 2];
}

void straggler_add(struct straggler_group *g, uint64_t number, const uint64_t *called_ns)
{
    uint32_t last = 0;
    if (!g->nranks || (g->lowest && number <= g->lowest))
        return;
    for (uint32_t i = 1; i < g->nranks; i++)
        last = called_ns[i] > called_ns[last] ? i : last;
    if (!g->lowest) {
        g->lowest = g->highest = number;
        g->end_ns = called_ns[last];
        return;
    }
    straggler_count(g, last, called_ns);
    if (number <= g->highest || called_ns[last] <= g->end_ns)
        return;
    g->operations += number - g->highest;
    g->time_ns += called_ns[last] - g->end_ns;
    g->highest = number;
    g->end_ns = called_ns[last];
}

/* Adds what another formation of the group has compared. Both list the same members in
 * the same order. */
static void straggler_merge(struct straggler_group *g, const struct straggler_group *other)
{
    g->compared += other->compared;
    g->operations += other->operations;
    g->time_ns += other->time_ns;
    for (uint32_t i = 0; i < g->nranks && i < other->nranks; i++) {
        g->ranks[i].last += other->ranks[i].last;
        g->ranks[i].late_ns += other->ranks[i].late_ns;
    }
}

double straggler_cost(const struct straggler_group *g, uint32_t i)
{
    if (!g->compared || !g->time_ns)
        return 0;
    double late = (double)g->ranks[i].late_ns / (double)g->compared;
    double share = late * (double)g->operations / (double)g->time_ns;
    return share < 1 ? share : 1;
}

/* True if member `most` is last far more often than each rank would be by chance: the difference is
 * more than 4 standard deviations of the binomial distribution. */
static bool straggler_is_no_chance(const struct straggler_group *g, uint32_t most)
{
    double n = (double)g->compared, p = 1 / (double)g->nranks;
    double more = (double)g->ranks[most].last - n * p;
    return more > 0 && more * more > 16 * n * p * (1 - p);
}

/* More often than all others together, and twice as often as any other. */
static bool straggler_is_most(const struct straggler_group *g, uint32_t most)
{
    uint64_t second = 0;
    for (uint32_t i = 0; i < g->nranks; i++)
        second = i != most && g->ranks[i].last > second ? g->ranks[i].last : second;
    return g->ranks[most].last * 2 > g->compared && g->ranks[most].last >= 2 * second;
}

bool straggler_find(const struct straggler_group *g, struct straggler_finding *out)
{
    uint32_t most = 0;
    for (uint32_t i = 1; i < g->nranks; i++)
        most = g->ranks[i].last > g->ranks[most].last ? i : most;
    if (g->nranks < 2 || g->compared < STRAGGLER_MIN_COMPARED ||
        g->ranks[most].late_ns < STRAGGLER_MIN_LATE_NS || !straggler_is_most(g, most) ||
        !straggler_is_no_chance(g, most) || straggler_cost(g, most) <= 0.1)
        return false;
    *out = (struct straggler_finding){.rank = g->ranks[most].rank,
                                      .last = g->ranks[most].last,
                                      .compared = g->compared,
                                      .late_ms = (double)g->ranks[most].late_ns / 1e6 /
                                                 (double)g->ranks[most].last,
                                      .cost = straggler_cost(g, most)};
    return true;
}

/* ---- of all groups ---- */

static void straggler_sums_fini(struct straggler_sums *s)
{
    free(s->group);
    straggler_fini(&s->sums);
}

void straggler_list_fini(struct straggler_list *list)
{
    for (uint32_t i = 0; i < list->n; i++)
        straggler_sums_fini(&list->items[i]);
    free(list->items);
    *list = (struct straggler_list){0};
}

static int straggler_list_compare(const void *a, const void *b)
{
    uint32_t x = ((const struct straggler_rank *)a)->rank;
    uint32_t y = ((const struct straggler_rank *)b)->rank;
    return (x > y) - (x < y);
}

static bool straggler_list_same_ranks(const struct straggler_group *a,
                                      const struct straggler_group *b)
{
    bool same = a->nranks == b->nranks;
    for (uint32_t i = 0; same && i < a->nranks; i++)
        same = a->ranks[i].rank == b->ranks[i].rank;
    return same;
}

static struct straggler_sums *straggler_list_find(struct straggler_list *list, const char *group,
                                                  const struct straggler_group *own)
{
    for (uint32_t i = 0; i < list->n; i++) {
        struct straggler_sums *s = &list->items[i];
        if (strcmp(s->group, group) == 0 && straggler_list_same_ranks(&s->sums, own))
            return s;
    }
    return NULL;
}

/* Makes room for a group. */
static void straggler_list_grow(struct straggler_list *list)
{
    uint32_t oldest = 0;
    if (list->n < STRAGGLER_LIST_MAX) {
        list->items = xrealloc(list->items, list->n + 1, sizeof *list->items);
        return;
    }
    for (uint32_t i = 1; i < list->n; i++)
        oldest = list->items[i].ended < list->items[oldest].ended ? i : oldest;
    straggler_sums_fini(&list->items[oldest]);
    list->n--;
    memmove(&list->items[oldest], &list->items[oldest + 1],
            (list->n - oldest) * sizeof *list->items);
    list->left_out++;
}

static struct straggler_sums *straggler_list_add(struct straggler_list *list, const char *group,
                                                 struct straggler_group *own)
{
    straggler_list_grow(list);
    struct straggler_sums *s = &list->items[list->n++];
    *s = (struct straggler_sums){.group = xstrdup(group), .sums = *own};
    own->ranks = NULL;
    s->sums.sorted = NULL; /* that of `own`: nothing more is compared */
    return s;
}

void straggler_list_take(struct straggler_list *list, const char *group,
                         struct straggler_group *own)
{
    if (own->compared) {
        qsort(own->ranks, own->nranks, sizeof *own->ranks, straggler_list_compare);
        struct straggler_sums *s = straggler_list_find(list, group, own);
        if (s)
            straggler_merge(&s->sums, own);
        else
            s = straggler_list_add(list, group, own);
        s->ended = ++list->ended;
    }
    straggler_fini(own);
}
