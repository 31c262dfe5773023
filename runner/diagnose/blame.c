/* SPDX-License-Identifier: Apache-2.0 */
#include "diagnose/blame.h"

#include "base/names.h"
#include "base/parse.h"

#include <stdio.h>
#include <string.h>

struct desc_ranks blame_new_list(const struct evidence *e, struct arena *arena)
{
    return (struct desc_ranks){arena_calloc(arena, e->desc->nranks, sizeof(uint32_t)), 0};
}

bool blame_has(const struct desc_ranks *list, uint32_t rank)
{
    for (uint32_t i = 0; i < list->n; i++) {
        if (list->items[i] == rank)
            return true;
    }
    return false;
}

/* Finds the kind of operation in an error message, which begins with "requests[2]: " if it is
 * about one of several requests. */
enum collrun_kind blame_kind_of(const char *text)
{
    const char *behind = strncmp(text, "requests[", 9) == 0 ? strstr(text, "]: ") : NULL;
    text = behind ? behind + 3 : text;
    for (int i = 0; i < COLLRUN_KIND_COUNT; i++) {
        const char *name = kind_name((enum collrun_kind)i);
        size_t len = strlen(name);
        if (strncmp(text, name, len) == 0 && text[len] == ' ')
            return (enum collrun_kind)i;
    }
    return COLLRUN_KIND_COUNT;
}

void blame_append(struct diag *d, const char *text)
{
    size_t len = strlen(d->text);
    if (!len && strncmp(text, "; ", 2) == 0)
        text += 2;
    snprintf(d->text + len, sizeof d->text - len, "%s", text);
}

const char *blame_ranks_text(const struct desc_ranks *ranks, char *out, size_t size)
{
    char list[160];
    rank_list_format(list, sizeof list, ranks->items, ranks->n);
    snprintf(out, size, "rank%s %s", ranks->n == 1 ? "" : "s", list);
    return out;
}
