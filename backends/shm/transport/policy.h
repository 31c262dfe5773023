/* SPDX-License-Identifier: Apache-2.0
 *
 * Choices that a rank makes by what it measures: how it copies, how it receives long messages, and
 * how it waits where ranks share cores.
 */
#ifndef SHM_TRANSPORT_POLICY_H
#define SHM_TRANSPORT_POLICY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether copies that another core reads are plain or streaming ones.
 *
 * - If the two cores share a cache, plain stores are three times faster than streaming ones, of
 *   which the reader finds nothing in its cache. If they do not, every plain store has to fetch the
 *   line's ownership from another cache, and is four to ten times slower. Which case holds depends
 *   on where the ranks run, and changes: virtual machines do not report it, and are moved.
 * - So plain copies are measured, some together, since one of them may find cold lines. The
 *   streaming ones would prove nothing: they are fast for the sender in both cases.
 * - While plain copies are slow, copies stream. Then plain ones get a trial, which says little
 *   before a lap over the memory that is written: until then, lines that were streamed are in no
 *   cache. Each trial that is lost doubles the time until the next one. */

/* Zeroed at the start. */
struct copy_policy {
    bool streams;    /* how to copy now */
    bool trial;      /* of plain copies */
    size_t left;     /* bytes until that ends, streaming or a trial */
    size_t streamed; /* bytes that streamed before this trial, or do now */
    uint32_t slow;   /* windows of plain copies in a row that were slow */
    uint32_t brief;  /* copies that were too short to be measured one by one */
    size_t len;      /* bytes of plain copies in this window, */
    uint64_t cycles; /* and the cycles of the time stamp counter that they took */
};

/* A copy of `len` bytes has taken `cycles`. */
void copy_policy_measured(struct copy_policy *p, size_t len, uint64_t cycles);

/* The choice of a receiver for each long message of a peer: to read it from the sender's memory
 * (cma.h: one copy, made by one core), or to let the sender copy it through blocks (two copies, on
 * two cores at the same time). Which one is faster depends on the machine, on the core that the
 * peer has, and on whether the peer waits for its send. So the receiver measures both, prefers the
 * faster one, and tries the other one now and then. */

enum remote_way { REMOTE_READ, REMOTE_BLOCKS };

enum {
    REMOTE_FIRST_TRIALS = 4, /* messages at the start that take turns */
    REMOTE_TRIAL_EVERY = 64  /* later, one of so many messages takes the slower way */
};

struct remote_policy {
    uint64_t ns_per_mib[2]; /* by enum remote_way; 0: not measured */
    uint32_t messages;
};

/* To be called once for each message. */
enum remote_way remote_policy_choose(struct remote_policy *p);

/* A message of `len` bytes, at least 1 MiB, has taken `ns`. */
void remote_policy_measured(struct remote_policy *p, enum remote_way way, size_t len, uint64_t ns);

/* How the ranks of an oversubscribed group (more ranks than cores) wait: whether they yield the
 * core before they sleep, or sleep at once. A yield runs another rank of the core within a
 * microsecond or two, while waking a rank that sleeps takes tens of them. But where other threads
 * compute on the same cores, a yield lets one of them run for a time slice of milliseconds; and on
 * an idle core, a rank that waits for long yields in vain.
 *
 * - So each rank counts the time that its yields lose. Ranks yield while that stays below
 *   YIELD_LOSS_NS for each call, about what a sleep and a wake-up take.
 * - If one of them loses more, all sleep at once: a rank that sleeps delays those that yield. Some
 *   time later their leader lets them yield again, to find out whether it still loses time: soon,
 *   since one slice of anything makes them sleep, and after twice the time whenever it does. */

/* Numbers of calls over which the loss is counted, the first time and later. */
enum { YIELD_TRIAL = 32, YIELD_BLOCK = 512 };
#define YIELD_LOSS_NS 30000u
#define YIELD_RETRY_NS 1000000u /* at first, and at most: */
#define YIELD_RETRY_MOST_NS 200000000u

struct yield_policy {
    bool yielding;     /* at the last call */
    uint32_t calls;    /* since ranks began to yield */
    uint64_t lost_ns;  /* in this trial or block; the owner adds to it */
    uint64_t since_ns; /* when ranks began to sleep at once, */
    uint64_t retry_ns; /* and how long they do; 0: they have not yet */
};

/* To be called at each call of the group. True if its waits yield. *yields, 0 at first, is shared
 * by the ranks that wait alike; one of them leads. It is relaxed: a rank that misses a change waits
 * once more as before, which is right, too. `now_ns` is called while ranks sleep at once. */
bool yield_policy_begin(struct yield_policy *c, bool leads, uint64_t (*now_ns)(void),
                        _Atomic uint32_t *yields);

#endif
