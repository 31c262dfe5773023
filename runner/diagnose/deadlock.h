/* SPDX-License-Identifier: Apache-2.0
 *
 * Deadlock detection. The wait reports of all ranks (diagnose/wait_report.h) are compared:
 * - a call can complete if its counterpart is posted, is in progress, or can still be called by a
 *   rank that can make progress;
 * - a rank can make progress if one of its threads can;
 * - the remaining ranks can never make progress: they wait for each other or for a rank that has
 *   ended.
 *
 * A report may be old without making the result wrong. Suppose that some of the remaining ranks
 * made progress after they sent their reports, and consider the first of them. It depended on
 * another remaining rank. That rank did not make progress after its own report, because it would
 * have been the first; nor before it, because the report would show it.
 */
#ifndef RUNNER_DIAGNOSE_DEADLOCK_H
#define RUNNER_DIAGNOSE_DEADLOCK_H

#include "diagnose/graph.h"

/* Calls with a shorter time-out are not counted: their own error comes as soon as a proof does. */
#define DEADLOCK_MIN_TIMEOUT_NS 3000000000ull

/* Two collectives of a cycle that some ranks call in an order which more ranks contradict. */
struct deadlock_order {
    const struct wait_report_group *first, *later; /* of a wait report */
    uint64_t first_number, later_number;
    struct desc_ranks ranks; /* that have called the first one alone, ascending */
};

struct deadlock {
    struct diag diag;        /* names the ranks and the calls that block them */
    struct desc_ranks cycle; /* ranks that wait for each other, ascending; empty: there is no cycle,
                                and the waits end in ranks whose workloads have ended */
    struct deadlock_order minority; /* without ranks: no order has a majority */
    struct graph waits;             /* of all ranks that can never make progress */
    bool settled;                   /* every rank counts: later reports add nothing */
};

/* True: some ranks can never make progress. Only certain reports count. `explain` is for a job that
 * has failed by a time-out: uncertain reports and short time-outs count, too. The lists are in the
 * arena. */
bool deadlock_find(const struct desc *desc, const struct rank_state *ranks, bool explain,
                   struct arena *arena, struct deadlock *out);

#endif
