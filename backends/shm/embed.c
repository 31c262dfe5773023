/* SPDX-License-Identifier: Apache-2.0
 *
 * Sleeping elsewhere; see embed.h.
 */
#include "embed.h"

#include "transport/transfer.h"

_Static_assert(sizeof(struct transfer) <= EMBED_MESSAGE_BYTES, "others have room for a message");
_Static_assert(EAGER_BYTES <= EMBED_EAGER_BYTES, "others know how much leaves early");

/* Bounds the harm of a missed wake-up, and how long all others may take to see `elsewhere`. */
#define EMBED_SHORT_NS 200000u
#define EMBED_MAX_NS 500000000u

void embed_set(void *group, const struct embedder *embedder)
{
    struct shm_group *g = group;
    g->embedder = embedder;
}

/* A rank that wakes this one takes `elsewhere` back. */
uint64_t embed_begin(void *group)
{
    struct shm_group *g = group;
    struct doorbell *own = &g->seg.doorbells[g->rank];
    const uint64_t now = shm_group_now_ns(g);
    const bool again = atomic_load(&own->elsewhere) != 0;
    if (!again) {
        atomic_store(&own->elsewhere, 1);
        g->wait.elsewhere_ns = now;
    }
    if (!g->wait.is_elsewhere)
        atomic_fetch_add(&own->sleepers, 1);
    g->wait.is_elsewhere = true;
    return again && now - g->wait.elsewhere_ns >= EMBED_SHORT_NS ? EMBED_MAX_NS : EMBED_SHORT_NS;
}

void embed_end(void *group)
{
    struct shm_group *g = group;
    struct doorbell *own = &g->seg.doorbells[g->rank];
    if (g->wait.is_elsewhere)
        atomic_fetch_sub(&own->sleepers, 1);
    g->wait.is_elsewhere = false;
    atomic_store(&own->elsewhere, 0);
}
