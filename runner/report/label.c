/* SPDX-License-Identifier: Apache-2.0 */
#include "report/label.h"

#include "base/buf.h"
#include "base/template.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int label_compare(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

/* Sorts the numbers, and keeps one of each. */
static uint32_t label_unique(uint32_t *numbers, uint32_t n)
{
    uint32_t kept = 0;
    qsort(numbers, n, sizeof *numbers, label_compare);
    for (uint32_t i = 0; i < n; i++) {
        if (!kept || numbers[kept - 1] != numbers[i])
            numbers[kept++] = numbers[i];
    }
    return kept;
}

static const char *label_take(struct buf *text, struct arena *arena)
{
    const char *copy = arena_strndup(arena, text->data ? (char *)text->data : "", text->len);
    buf_fini(text);
    return copy;
}

/* "0-3,6": a rank set as in job.yaml */
static const char *label_set(const uint32_t *numbers, uint32_t n, struct arena *arena)
{
    struct buf text;
    buf_init(&text);
    for (uint32_t i = 0, last; i < n; i = last + 1) {
        char range[32];
        last = i;
        while (last + 1 < n && numbers[last + 1] == numbers[last] + 1)
            last++;
        int len = snprintf(range, sizeof range, last > i ? "%s%u-%u" : "%s%u", i ? "," : "",
                           numbers[i], numbers[last]);
        buf_put(&text, range, (size_t)len);
    }
    return label_take(&text, arena);
}

static const char *label_hosts(const struct desc *desc, const uint32_t *hosts, uint32_t n,
                               struct arena *arena)
{
    struct buf text;
    if (n > LABEL_HOSTS_MAX)
        return arena_printf(arena, "%u hosts", n);
    buf_init(&text);
    for (uint32_t i = 0; i < n; i++) {
        const char *name = desc->hosts[hosts[i]].name;
        buf_put(&text, ",", i > 0);
        buf_put(&text, name, strlen(name));
    }
    return label_take(&text, arena);
}

/* The sets of several ranks, in place of the numbers of one. */
static void label_put_sets(const struct desc *desc, const uint32_t *ranks, uint32_t n,
                           struct arena *arena, struct template_values *values)
{
    uint32_t *numbers = arena_calloc(arena, n, sizeof *numbers);
    values->ranks = label_set(ranks, n, arena);
    for (uint32_t i = 0; i < n; i++)
        numbers[i] = desc->ranks[ranks[i]].local_rank;
    values->local_ranks = label_set(numbers, label_unique(numbers, n), arena);
    for (uint32_t i = 0; i < n; i++)
        numbers[i] = desc->ranks[ranks[i]].host;
    values->host = label_hosts(desc, numbers, label_unique(numbers, n), arena);
}

int label_make(const struct desc *desc, const char *template, const uint32_t *ranks, uint32_t n,
               struct arena *arena, const char **out)
{
    const struct desc_rank *first = &desc->ranks[ranks[0]];
    struct template_values values = {.rank = ranks[0],
                                     .local_rank = first->local_rank,
                                     .attempt = desc->attempt,
                                     .host = desc->hosts[first->host].name,
                                     .run_id = desc->run_id};
    const char *label;
    if (n > 1)
        label_put_sets(desc, ranks, n, arena, &values);
    int rc = template_expand(template, &values, arena, &label, NULL);
    if (rc != COLLRUN_OK)
        return rc;
    *out = label[0] ? arena_printf(arena, "%s ", label) : "";
    return COLLRUN_OK;
}
