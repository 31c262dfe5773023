/* SPDX-License-Identifier: Apache-2.0
 *
 * struct rdv_pairs: the keys and values of a rendezvous that this process knows.
 */
#ifndef ENGINE_CORE_RDV_PAIRS_H
#define ENGINE_CORE_RDV_PAIRS_H

#include <stdbool.h>
#include <stddef.h>

struct rdv_pair {
    char *key;
    void *value;
    size_t len;
};

struct rdv_pairs { /* zeroed: empty */
    struct rdv_pair *items;
    size_t n;
};

/* NULL: unknown. Valid until the next rdv_pairs_add. */
const struct rdv_pair *rdv_pairs_find(const struct rdv_pairs *pairs, const char *key);
/* Copies both. False: out of memory. */
bool rdv_pairs_add(struct rdv_pairs *pairs, const char *key, const void *value, size_t len);
void rdv_pairs_free(struct rdv_pairs *pairs); /* empty afterwards */

#endif
