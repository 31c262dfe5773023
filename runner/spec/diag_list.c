/* SPDX-License-Identifier: Apache-2.0
 *
 * A growing array of diags with a limit: of thousands of errors, the first ones are kept.
 */
#include "spec/diag_list.h"

#include "spec/source.h"
#include "xalloc.h"

#include <stdlib.h>
#include <string.h>

enum { KEPT_MAX = 256 };

void diag_list_init(struct diag_list *list)
{
    *list = (struct diag_list){0};
}

void diag_list_fini(struct diag_list *list)
{
    free(list->items);
    diag_list_init(list);
}

void diag_list_add(struct diag_list *list, const struct diag *d)
{
    if (list->n == list->capacity && list->n < KEPT_MAX) {
        list->capacity = list->capacity ? list->capacity * 2 : 8;
        list->items = xrealloc(list->items, list->capacity, sizeof *list->items);
    }
    if (list->n == list->capacity) {
        list->dropped++;
        return;
    }
    list->items[list->n++] = *d;
}

void diag_list_warn(struct diag_list *list, struct diag *d)
{
    d->warning = true;
    uint32_t before = list->n;
    diag_list_add(list, d);
    list->warnings += list->n - before;
    list->dropped -= list->n == before; /* a warning without room is not an error */
}

uint32_t diag_list_count(const struct diag_list *list)
{
    return list->n - list->warnings + list->dropped;
}

static int diag_list_compare_u32(uint32_t a, uint32_t b)
{
    return a < b ? -1 : a > b;
}

/* Order of places: the files, then "--set #1" and the like, then errors without a place. */
static int diag_list_file_order(const struct diag_loc *loc)
{
    if (!loc->line)
        return 2;
    return source_is_option(loc->file);
}

static int diag_list_compare(const struct diag *a, const struct diag *b)
{
    int order = diag_list_file_order(&a->loc) - diag_list_file_order(&b->loc);
    if (!order && a->loc.line && b->loc.line)
        order = strcmp(a->loc.file ? a->loc.file : "", b->loc.file ? b->loc.file : "");
    if (!order)
        order = diag_list_compare_u32(a->loc.line, b->loc.line);
    return order ? order : diag_list_compare_u32(a->loc.column, b->loc.column);
}

/* Stable, unlike qsort; there are at most KEPT_MAX items. */
void diag_list_sort(struct diag_list *list)
{
    for (uint32_t i = 1; i < list->n; i++) {
        struct diag moving = list->items[i];
        uint32_t to = i;
        for (; to > 0 && diag_list_compare(&list->items[to - 1], &moving) > 0; to--)
            list->items[to] = list->items[to - 1];
        list->items[to] = moving;
    }
}
