/* SPDX-License-Identifier: Apache-2.0 */
#include "core/rdv_pairs.h"

#include <stdlib.h>
#include <string.h>

const struct rdv_pair *rdv_pairs_find(const struct rdv_pairs *pairs, const char *key)
{
    for (size_t i = 0; i < pairs->n; i++) {
        if (strcmp(pairs->items[i].key, key) == 0)
            return &pairs->items[i];
    }
    return NULL;
}

bool rdv_pairs_add(struct rdv_pairs *pairs, const char *key, const void *value, size_t len)
{
    if ((pairs->n & (pairs->n - 1)) == 0) { /* grown in powers of two */
        struct rdv_pair *grown =
            realloc(pairs->items, (pairs->n ? pairs->n * 2 : 1) * sizeof *grown);
        if (!grown)
            return false;
        pairs->items = grown;
    }
    struct rdv_pair p = {.key = strdup(key), .value = malloc(len ? len : 1), .len = len};
    if (!p.key || !p.value) {
        free(p.key);
        free(p.value);
        return false;
    }
    if (len)
        memcpy(p.value, value, len);
    pairs->items[pairs->n++] = p;
    return true;
}

void rdv_pairs_free(struct rdv_pairs *pairs)
{
    for (size_t i = 0; i < pairs->n; i++) {
        free(pairs->items[i].key);
        free(pairs->items[i].value);
    }
    free(pairs->items);
    *pairs = (struct rdv_pairs){0};
}
