/* SPDX-License-Identifier: Apache-2.0
 *
 * Waiting for other ranks, and failing together with them.
 *
 * A waiter first spins, then yields its core, then sleeps on a bell. Where there are more ranks
 * than cores it sleeps at once; where others turn out to want the core, it learns to. So that
 * posting stays one plain store while nobody sleeps, a poster looks at the bell without a fence;
 * the rare sleeper whose announcement that look missed wakes by itself after a fraction of a
 * millisecond, and from then on nobody can have missed it. Crowded groups sleep all the time, so
 * their posters do use a fence.
 *
 *     struct wait w = WAIT_FOR(g, bell);
 *     while (!there()) {
 *         const int status = wait_more(&w, who_is_missing, context);
 *         if (status != COLLRUN_OK)
 *             return status;
 *     }
 *     wait_end(&w);
 *
 * wait_more returns now and then, at the latest when the bell rings; it fails when the group has
 * failed or the call's time is over. A failure of one member is the group's: its sentence goes into
 * the segment, and every call of every member, now and later, returns it.
 */
#ifndef SHM_WAIT_H
#define SHM_WAIT_H

#include "group.h"

struct wait {
    struct shm_group *g;
    struct bell *bell;
    uint32_t polls;
    uint32_t seq; /* of the bell, read before the last look at what is awaited */
    uint32_t naps;
    uint64_t yield_until_ns, yielded_ns; /* when to stop yielding; when it last gave way */
    bool sleeping;
};
#define WAIT_FOR(group, b)                                                                         \
    {                                                                                              \
        .g = (group), .bell = (b)                                                                  \
    }

/* Writes the ranks that are being waited for, e.g. "3,5". */
typedef void missing_fn(struct shm_group *g, const void *context, char *out, size_t len);

/* Chooses how the group waits, once `crowded` is known. */
void wait_init(struct shm_group *g);

int wait_more(struct wait *w, missing_fn *missing, const void *context);
void wait_end(struct wait *w);
/* For those who look by themselves: fails the group once g->timeout_ns have passed since the first
 * look (*deadline_ns = 0). */
int wait_expired(struct shm_group *g, uint64_t *deadline_ns, missing_fn *missing,
                 const void *context);

/* Wakes whoever sleeps on the bell; to be called after every store that somebody may wait for. */
void bell_wake(struct bell *bell);
static inline void bell_ring(const struct shm_group *g, struct bell *bell)
{
    const uint32_t sleepers = g->crowded
                                  ? atomic_fetch_add(&bell->sleepers, 0) /* a fence that reads */
                                  : atomic_load_explicit(&bell->sleepers, memory_order_relaxed);
    if (sleepers != 0)
        bell_wake(bell);
}

/* Whether the group has failed. */
static inline bool group_failed(const struct shm_group *g)
{
    return atomic_load_explicit(&g->failure->state, memory_order_relaxed) != FAILURE_NONE;
}

/* Stores the group's first failure as this thread's sentence and returns its status. */
int group_failure(struct shm_group *g);

/* Makes this the group's failure unless there is one already; wakes everybody; returns the first
 * one's status. */
int group_fail(struct shm_group *g, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The same without a sentence of this thread, from any thread. */
void group_poison(struct shm_group *g, int status, const char *text);

/* Appends rank numbers to a list such as "3,5"; marks the end of a list that is too long with
 * "...". */
void rank_list_add(char *list, size_t len, uint32_t rank);

#endif
