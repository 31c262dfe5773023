/* SPDX-License-Identifier: Apache-2.0
 *
 * The keys of PMI: a hash table from key to value. The ranks of one MPI job on a host share one,
 * which has what their barriers have published; each rank has another one, with what it has put
 * since. A key that is set again gets the new value. Without memory, a key is not found.
 */
#ifndef RUNNER_AGENT_PMI_KEYS_H
#define RUNNER_AGENT_PMI_KEYS_H

#include <stddef.h>
#include <stdint.h>

struct pmi_key;

struct pmi_keys {           /* all zero: empty */
    struct pmi_key **slots; /* each a list */
    uint32_t room, n;
    uint32_t fences; /* of the shared table: how many of them it has */
};

const char *pmi_keys_find(const struct pmi_keys *t, const char *key); /* NULL: there is none */
void pmi_keys_set(struct pmi_keys *t, const char *key, const char *value, size_t len);
/* Moves all keys of `from`. */
void pmi_keys_take(struct pmi_keys *to, struct pmi_keys *from);
void pmi_keys_fini(struct pmi_keys *t);

#endif
