/* SPDX-License-Identifier: Apache-2.0
 *
 * struct landing_table: the landings of a link, by token. A token is the place in the table, and
 * how many landings that place had before; so a token of a landing that is gone finds nothing. It
 * also tells the sender how the landing is aligned.
 *
 *     bits 63 to 32   landings that the place had, with this one
 *     bits 31 to 26   its address modulo LANDING_ALIGN
 *     bits 25 to 0    the place + 1
 */
#ifndef TCP_LANDING_H
#define TCP_LANDING_H

#include "link.h"

#define LANDING_ALIGN LINK_MEMORY_ALIGN
#define LANDING_INDEX_BITS 26

struct landing_slot {
    struct link_landing *landing; /* NULL: free */
    uint32_t uses;
    uint32_t next_free; /* index + 1; 0: none */
};

struct landing_table {
    struct landing_slot *slots;
    uint32_t nslots, nused;
    uint32_t first_free; /* index + 1; 0: none */
};

/* Writes landing->token. False: out of memory. */
bool landing_add(struct landing_table *table, struct link_landing *landing);
void landing_remove(struct landing_table *table, const struct link_landing *landing);
/* NULL: none. */
struct link_landing *landing_find(const struct landing_table *table, uint64_t token);
/* The address of a landing, of this process or another one, modulo LANDING_ALIGN. */
static inline uint32_t landing_alignment(uint64_t token)
{
    return (uint32_t)token >> LANDING_INDEX_BITS;
}
void landing_table_fini(struct landing_table *table);

#endif
