/* SPDX-License-Identifier: Apache-2.0
 *
 * A doorbell: the word of shared memory on which a rank sleeps until another rank wakes it (a
 * futex). transport/wait.h decides when a rank sleeps; every store that another rank may wait for
 * is followed by doorbell_notify.
 */
#ifndef SHM_TRANSPORT_DOORBELL_H
#define SHM_TRANSPORT_DOORBELL_H

#include "group.h"

/* Wakes all that sleep on the doorbell. */
void doorbell_wake(struct doorbell *doorbell);

/* Sleeps for at most `ns`, and not at all if the doorbell's `seq` has changed. */
void doorbell_sleep(struct doorbell *doorbell, uint32_t seq, uint64_t ns);

/* Where no rank sleeps, one load. */
static inline bool doorbell_has_sleepers(const struct shm_group *g, struct doorbell *doorbell)
{
    const uint32_t sleepers =
        g->wait.oversubscribed ? atomic_fetch_add(&doorbell->sleepers, 0) /* a fence that reads */
                               : atomic_load_explicit(&doorbell->sleepers, memory_order_relaxed);
    return sleepers != 0;
}

static inline void doorbell_notify(const struct shm_group *g, struct doorbell *doorbell)
{
    if (doorbell_has_sleepers(g, doorbell))
        doorbell_wake(doorbell);
}

#endif
