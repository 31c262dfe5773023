/* SPDX-License-Identifier: Apache-2.0
 *
 * Waiting for other ranks: spin, then yield the core, then sleep on a doorbell.
 *
 *     struct wait w = WAIT_FOR(g, doorbell);
 *     while (!arrived()) {
 *         const int status = wait_more(&w, is_missing, context);
 *         if (status != COLLRUN_OK)
 *             return status;
 *     }
 *     wait_end(&w);
 *
 * - The lengths of spinning and yielding adapt: they shrink while other threads want the core, that
 *   of spinning only while these are ranks of the group.
 * - Ranks that have a core each and are found on one core move apart (spread.h).
 * - A rank of an oversubscribed group (more ranks than cores) does not spin. It yields for a
 *   fraction of a millisecond before it sleeps, or sleeps at once: transport/policy.h.
 * - Publishing stays one plain store while no rank sleeps: the publisher reads `sleepers` without a
 *   fence. It may thus miss a rank that has just announced that it sleeps. Its sleeps are
 *   therefore limited to a fraction of a millisecond, until it has looked once more so long after
 *   that: by then `sleepers` is visible to all, and no later publisher can miss it.
 * - In oversubscribed groups ranks sleep all the time, so their publishers do use a fence.
 *
 * wait_more returns now and then, at the latest when the doorbell rings. It fails when the group
 * has failed, and fails the group when the call's time-out has expired.
 */
#ifndef SHM_TRANSPORT_WAIT_H
#define SHM_TRANSPORT_WAIT_H

#include "group.h"
#include "transport/doorbell.h"

#define SPINS_WITHOUT_PAUSE 12u /* about as long as a cache line takes to arrive */

struct wait {
    struct shm_group *g;
    struct doorbell *doorbell;
    uint32_t polls;
    uint32_t seq;            /* of the doorbell, read before the last check for what is awaited */
    uint64_t announced_ns;   /* when it was counted in doorbell->sleepers */
    uint64_t yield_until_ns; /* when to stop yielding */
    uint64_t yielded_ns;     /* when this wait last yielded */
    uint64_t idle_ns;        /* of yields that found no other thread to run */
    uint64_t lost_ns;        /* of yields that ran a thread that computes (oversubscribed) */
    bool sleeping;           /* counted in doorbell->sleepers, */
    bool visible;            /* and every rank knew that when `seq` was read */
};
#define WAIT_FOR(group, bell)                                                                      \
    {                                                                                              \
        .g = (group), .doorbell = (bell)                                                           \
    }

/* True if the caller waits for `rank`. Called for every rank when the wait times out. */
typedef bool missing_fn(const struct shm_group *g, const void *context, uint32_t rank);

/* Chooses how the group waits. */
void wait_init(struct shm_group *g, enum wait_mode mode);

/* Chooses whether the waits of the call that begins now yield, in an oversubscribed group. */
void wait_begin_oversubscribed(struct shm_group *g);

/* Sets the time-out of the call that begins now. */
static inline void wait_set_timeout(struct shm_group *g, uint64_t timeout_ns)
{
    g->wait.timeout_ns = timeout_ns;
    g->wait.deadline_ns = 0;
    if (g->wait.oversubscribed && timeout_ns > 0)
        wait_begin_oversubscribed(g);
}

/* Between two polls of a short wait: the CPU rests, unless a cache line may be about to arrive. */
static inline void wait_pause(uint32_t polls)
{
    if (polls <= SPINS_WITHOUT_PAUSE)
        return;
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#endif
}

/* Spins, yields or sleeps for a while. With is_missing NULL, the end of the time-out is AGAIN and
 * the group does not fail. */
int wait_more(struct wait *w, missing_fn *is_missing, const void *context);
void wait_end(struct wait *w);

#endif
