/* SPDX-License-Identifier: Apache-2.0 */
#include "report/stragglers.h"

#include "report/json_value.h"
#include "xalloc.h"

#include <stdlib.h>

static int stragglers_compare(const void *a, const void *b)
{
    const struct straggler_rank *x = *(const struct straggler_rank *const *)a;
    const struct straggler_rank *y = *(const struct straggler_rank *const *)b;
    if (x->last != y->last)
        return x->last < y->last ? 1 : -1;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

static json_t *stragglers_rank(const struct straggler_group *g, const struct straggler_rank *r)
{
    return json_pack("{s:I, s:I, s:f, s:f}", "rank", (json_int_t)r->rank, "last",
                     (json_int_t)r->last, "late_ms", (double)r->late_ns / 1e6 / (double)r->last,
                     "cost", straggler_cost(g, (uint32_t)(r - g->ranks)));
}

static json_t *stragglers_ranks(const struct straggler_group *g)
{
    const struct straggler_rank **order = xcalloc(g->nranks + 1, sizeof(void *));
    json_t *list = json_array();
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->nranks; i++) {
        if (g->ranks[i].last)
            order[n++] = &g->ranks[i];
    }
    qsort((void *)order, n, sizeof(void *), stragglers_compare);
    for (uint32_t i = 0; i < n; i++)
        json_array_append_new(list, stragglers_rank(g, order[i]));
    free((void *)order);
    return list;
}

json_t *stragglers_json(const struct straggler_list *list)
{
    json_t *groups = json_array(), *o = json_pack("{s:o}", "stragglers", groups);
    for (uint32_t i = 0; i < list->n; i++) {
        const struct straggler_sums *s = &list->items[i];
        json_array_append_new(
            groups, json_pack("{s:o, s:I, s:o}", "group", json_value_text(s->group), "compared",
                              (json_int_t)s->sums.compared, "ranks", stragglers_ranks(&s->sums)));
    }
    if (list->left_out)
        json_object_set_new(o, "stragglers_left_out", json_integer((json_int_t)list->left_out));
    return o;
}

void stragglers_print(const struct straggler_list *list, FILE *out)
{
    struct straggler_finding f;
    for (uint32_t i = 0; i < list->n; i++) {
        if (straggler_find(&list->items[i].sums, &f))
            fprintf(out,
                    "collrun: rank %u was last in %.0f %% of the operations of group %s, %.1f ms "
                    "late on average; that cost %.0f %% of the time\n",
                    f.rank, 100.0 * (double)f.last / (double)f.compared, list->items[i].group,
                    f.late_ms, 100.0 * f.cost);
    }
}
