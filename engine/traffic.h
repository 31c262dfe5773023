/* SPDX-License-Identifier: Apache-2.0
 *
 * How many messages have gone to each member and come from it, by tag. One thread at a time counts
 * (whoever has the lane to itself); another may read meanwhile.
 */
#ifndef ENGINE_TRAFFIC_H
#define ENGINE_TRAFFIC_H

#include <collrun/types.h>

#include <stdatomic.h>

/* Beyond so many pairs of member and tag, counting ends for good. */
enum { TRAFFIC_FEW = 64, TRAFFIC_MOST = 4096 };

struct traffic_entry {
    _Atomic uint64_t key; /* 1 + (member << 32 | tag); 0: free */
    _Atomic uint64_t sent, received;
};

struct traffic_table {
    uint32_t size, used;
    struct traffic_entry entries[];
};

struct traffic {
    _Atomic(struct traffic_table *) table; /* NULL: no message yet */
    struct traffic_table *outgrown;        /* a reader may be in it */
    atomic_bool lost;                      /* too many tags, or no memory: it says nothing */
};

void traffic_count(struct traffic *t, const struct collrun_call *message); /* that ended well */
void traffic_fini(struct traffic *t);

static inline uint32_t traffic_member(const struct traffic_entry *e)
{
    return (uint32_t)((e->key - 1) >> 32);
}

static inline uint32_t traffic_tag(const struct traffic_entry *e)
{
    return (uint32_t)(e->key - 1);
}

#endif
