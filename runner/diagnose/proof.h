/* SPDX-License-Identifier: Apache-2.0
 *
 * struct proof: which threads of a job can never return from the calls that they are in, by cuts of
 * all ranks (base/record_cut.h), which are of any times. Pure: no clock, no I/O.
 *
 * - A thread returns when its call can complete: a receive needs a message that is on the way, or a
 *   rank that can still send one; a collective needs each of certain members to have called it, or
 *   to be able to call it. A rank can act if one of its threads can. A thread that sleeps needs
 *   another thread of its process that can act.
 * - All threads that are in calls or asleep are BLOCKED at first. Threads that are not blocked make
 *   ranks act, which lets others return: these become FREE. What remains BLOCKED is the proof.
 *
 * Why it holds however old the cuts are: suppose a thread of the result returned after its cut, and
 * take the first one that did. None of the others had moved since its own cut. So what the thread
 * needed was there already, and its cut and theirs show it: it would not be in the result.
 *
 * What is counted makes this sound, kind by kind:
 * - A message is counted as sent before the library is called, and as taken after it has returned.
 *   So sent - taken is never too small, and is at least 1 while a message of the channel is on the
 *   way. Receives of the same thread for exactly this channel, posted before, get theirs first.
 * - A send is matched after all earlier ones of its thread on its channel. It cannot be, while the
 *   receiver has neither taken nor asked for that many messages, by any receive that fits.
 * - A probe sees a message that another thread may take while the probe returns: it is blocked only
 *   while the process has taken none since it began.
 * - A member that has closed the group, or that may have forgotten it, is satisfied.
 * - Sends that may be buffered, calls that a time-out ends soon, and whatever is not known return.
 */
#ifndef RUNNER_DIAGNOSE_PROOF_H
#define RUNNER_DIAGNOSE_PROOF_H

#include "base/diag.h"
#include "base/record_cut.h"
#include "diagnose/stacks.h"

struct rank_state;

/* A call with a shorter time-out ends by an error as soon as a proof would be found. */
#define PROOF_MIN_TIMEOUT_NS UINT64_C(3000000000)

enum proof_state { PROOF_BLOCKED, PROOF_FREE };

/* What lets operations complete: all, or one, of some ranks act. Operations that need the same
 * share one node. */
struct proof_node {
    uint32_t first, nranks; /* proof.ranks */
    uint32_t needed;        /* how many of them have to act yet; 0: it is met */
    bool any;               /* one is enough */
    uint32_t items;         /* head of a list of items + 1 */
    uint64_t group;         /* what the node is about, to find it again */
    uint64_t key;
};

/* One operation that a thread waits for. */
struct proof_item {
    const struct record_cut_op *op;
    uint32_t thread, node, next;
    bool met;
};

struct proof_thread {
    const struct record_cut_thread *cut;
    enum proof_state state;
    uint32_t rank;
    uint32_t first, nitems; /* proof.items */
    uint32_t unmet;
};

struct proof_rank {
    const struct record_cut *cut; /* NULL: nothing is known */
    uint32_t first, nthreads;     /* proof.threads: those that are in calls or asleep */
    uint32_t awake;               /* threads that are not blocked; they can wake others */
    bool acts;                    /* a thread that is not blocked may call */
    bool ended;
};

struct proof {
    struct arena *arena;
    const struct rank_state *places; /* by rank, whose STACKS the text takes; NULL: no places */
    uint32_t nranks, nthreads, nitems, nnodes, nlinks;
    struct proof_rank *ranks;
    struct proof_thread *threads;
    struct proof_item *items;
    struct proof_node *nodes;
    uint32_t *links;   /* ranks, by node */
    uint32_t nblocked; /* threads in calls that are BLOCKED */
};

/* Solves it: `cuts` has one of each rank, NULL where there is none. What `out` points to is in the
 * arena, or in the cuts. False: out of memory. */
bool proof_solve(const struct record_cut *const *cuts, uint32_t nranks, struct arena *arena,
                 struct proof *out);

/* True if the thread of this tid can never return from its call. */
bool proof_has(const struct proof *p, uint32_t rank, uint32_t tid);

/* ---- why, in few ranks (proof_core.c) ----
 *
 * A cycle of ranks that wait for each other, a small set of them where operations can be completed
 * by several ranks, or a rank that has ended. The others wait for these, directly or not. */

enum { PROOF_CALLS = 6 }; /* in one text */

enum proof_shape {
    PROOF_CYCLE,  /* each rank waits for the next one, and the last one for the first */
    PROOF_SET,    /* each rank waits for ranks of the set alone */
    PROOF_MISSING /* they wait for a rank that has ended, or whose threads all sleep */
};

struct proof_core {
    enum proof_shape shape;
    uint32_t *ranks; /* of a cycle in its order, else ascending; in the proof's arena */
    uint32_t n;
    uint32_t missing; /* MISSING: the rank that has ended or sleeps */
    uint32_t behind;  /* further ranks with threads in the proof */
};

/* `out->n` is 0 if the proof has no blocked threads. False: out of memory. */
bool proof_explain(const struct proof *p, struct proof_core *out);

/* "rank 0 waits in barrier world#3 for rank 1; ranks 1-3 wait in ... for rank 0; 12 more ranks wait
 * behind them": appends to the text of the error. */
void proof_core_text(const struct proof *p, const struct proof_core *core, struct diag *d);
/* The calls of MPI that the text names, at most PROOF_CALLS. Returns how many have an address. */
uint32_t proof_core_calls(const struct proof *p, const struct proof_core *core,
                          struct stacks_call calls[PROOF_CALLS]);

#endif
