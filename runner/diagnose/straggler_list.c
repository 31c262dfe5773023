/* SPDX-License-Identifier: Apache-2.0 */
#include "diagnose/straggler_list.h"

#include "xalloc.h"

#include <stdlib.h>
#include <string.h>

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
    free(own->sorted); /* nothing more is compared */
    own->sorted = NULL;
    *s = (struct straggler_sums){.group = xstrdup(group), .sums = *own};
    *own = (struct straggler_group){0};
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
