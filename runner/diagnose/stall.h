/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks that wait in a group in which nothing moves, and the ranks that they wait for. The input
 * are the STATUS frames (diagnose/snapshot.h), so that a stall is found without a proof: with
 * background workloads, with requests that are polled, and with threads that the engine does not
 * know.
 *
 * - A STATUS lists the operations of a rank that have not ended. A message counts from the last
 *   call of its thread: a request that a thread has posted before it went on to other operations
 *   does not keep it waiting.
 * - Of a rank that records no operations (record.entries: 0), only the current operation of each
 *   group is known. stall_watch_update compares each STATUS with the one before, and remembers
 *   since when it has been pending.
 * - stall_find lists the operations that have been pending for a while, and for each of them the
 *   members that have not called it. Ranks that others wait for and that wait for no rank are the
 *   culprits.
 *
 * Before the workloads run, ranks that have reached a phase wait for those that have not.
 *
 * While the job is stopped (Ctrl-Z), nothing can move: waits count from when it went on.
 *
 * A stall is not an error. A rank may compute for an hour, and a transfer may take as long.
 */
#ifndef RUNNER_DIAGNOSE_STALL_H
#define RUNNER_DIAGNOSE_STALL_H

#include "base/desc.h"
#include "diagnose/ranks.h"

#include <stdbool.h>
#include <stdint.h>

/* ---- what is remembered between STATUS frames ---- */

struct stall_slot { /* the operations of one kind, collectives or messages, in one group */
    char scope[64];
    bool messages;
    uint64_t pending;  /* the number of the oldest pending operation; 0: none */
    uint64_t since_ns; /* when it was called */
};

struct stall_rank {
    struct stall_slot *slots; /* in the order of the rank's snapshot */
    uint32_t n;
    uint64_t at_ns; /* when the snapshot arrived */
};

struct stall_watch {
    const struct desc *desc;
    uint64_t phases, phases_ns; /* the sum of the phases of all ranks; when it last changed */
    uint64_t resumed_ns;        /* when the job last went on after Ctrl-Z: waits count from then */
    struct stall_rank *ranks;   /* desc->nranks */
};

void stall_watch_init(struct stall_watch *w, const struct desc *desc);
void stall_watch_fini(struct stall_watch *w); /* safe on a zeroed one */
/* A STATUS of the rank has arrived; `snapshot` is its content. */
void stall_watch_update(struct stall_watch *w, uint32_t rank, const struct rank_snapshot *snapshot,
                        uint64_t now_ns);
/* Called a few times within the least time of a stall: notices that a rank has reached a phase. */
void stall_watch_phases(struct stall_watch *w, const struct rank_state *ranks, uint64_t now_ns);

/* ---- what waits at one moment ---- */

enum { STALL_LISTED = 12 };

struct stall_wait {           /* ranks that wait in one operation */
    struct group_snapshot op; /* op.started: its number */
    uint32_t tag;
    bool described;         /* count, dtype, operator and root of `op` are known */
    bool forming;           /* not an operation: op.name is a group that is formed */
    enum wire_forming kind; /* or another call that waits for its members */
    bool start;             /* not an operation: ranks that are further wait for all to be ready */
    bool joining;           /* a start: programs in collrun_init wait for those that are not */
    bool any;               /* one of `missing` is enough: a receive from any rank */
    bool peer_unknown;      /* a message of a group whose members the runner does not know */
    uint64_t since_ns;      /* when the first of `waiting` called it */
    uint64_t site;          /* the address in which rank `site_rank` called it; 0: not known */
    uint32_t site_rank;
    uint32_t *waiting, *missing; /* world ranks, ascending */
    uint32_t nwaiting, nmissing; /* nothing is missing: all members have called it */
    /* If `any`: all members, for all waits of the group. `missing` lists the others, in the first
     * STALL_LISTED waits alone: it would take memory that is quadratic in the ranks. */
    struct stall_senders *senders;
};

struct stall {
    struct arena arena;       /* owns all that follows */
    struct stall_wait *waits; /* the oldest first */
    uint32_t nwaits;
    uint32_t
        *culprits; /* they are waited for, and wait for no rank; or a signal has stopped them */
    uint32_t nculprits;
    uint32_t *suspects; /* without culprits: they wait for each other */
    uint32_t nsuspects;
};

/* Lists the operations that have been pending for `least_ns` or longer. `out` is overwritten; the
 * caller frees it with stall_fini. False: nothing waits so long. */
bool stall_find(const struct stall_watch *w, const struct rank_state *ranks, uint64_t now_ns,
                uint64_t least_ns, struct stall *out);
void stall_fini(struct stall *s);

/* The wait in which others miss `rank`, the oldest; NULL: none. */
const struct stall_wait *stall_wait_for(const struct stall *s, uint32_t rank);
bool stall_has(const uint32_t *ranks, uint32_t n, uint32_t rank);

/* ---- episodes ----
 *
 * What is remembered about the stalls of each group: whether it waits now, and how many stalls have
 * passed. A job may form any number of groups under new names: of more than STALL_EPISODES_MAX,
 * those that have not waited for the longest time are forgotten.
 */

enum { STALL_EPISODES_MAX = 1024 };

struct json_t;

struct stall_episode { /* of the oldest wait of one kind in one group */
    struct stall_episode *next;
    char scope[64];
    bool messages;
    uint64_t number; /* of the operation; 0: nothing waits */
    uint64_t since_ns;
    uint64_t report_ns;    /* the age at which it is reported next */
    unsigned passed;       /* stalls of this group that were reported and have passed */
    struct json_t *report; /* of the last block; NULL: not reported. The caller frees it. */
    bool present;
};

struct stall_episodes { /* all zero: none */
    struct stall_episode *first;
    uint32_t n;
    uint64_t left_out; /* groups that were forgotten */
};

/* Returns the episode of a group, a new one if it has none. `scope` has 64 bytes. */
struct stall_episode *stall_episodes_get(struct stall_episodes *e, const char *scope,
                                         bool messages);
/* Frees all; reports must have been freed. */
void stall_episodes_fini(struct stall_episodes *e);

#endif
