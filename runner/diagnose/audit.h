/* SPDX-License-Identifier: Apache-2.0
 *
 * The audit: do the members of each group call the same collectives? A mark is a hash of all
 * collectives that a rank has called in a group up to a number, so marks of different members with
 * one number are equal, or their calls differ at or before it. The agents send some of the marks of
 * each rank (WIRE_AUDIT), and those with equal numbers are compared here.
 *
 * - Equal marks prove that all earlier calls were equal, whether their marks arrive or not.
 * - Counts that only pairs of ranks can compare (alltoallv, gatherv, scatterv) are in a second
 *   hash; the sum of those of all members is 0 if all pairs agree.
 * - Marks that are compared and equal also show which rank calls last (diagnose/straggler.h).
 * - Memory is bounded: of each group, 128 of the latest numbers, 64 multiples of 64 and 64
 *   multiples of 4096 are kept, and nothing of a group that all members have closed.
 *
 * A rank that is lost, or that has not called an operation, proves nothing: its marks are missing.
 */
#ifndef RUNNER_DIAGNOSE_AUDIT_H
#define RUNNER_DIAGNOSE_AUDIT_H

#include "base/wire.h"
#include "diagnose/straggler.h"

enum audit_difference {
    AUDIT_CALLS,    /* calls differ: kind, dtype, operator, root, count */
    AUDIT_COUNTS,   /* the calls are equal; what ranks send differs from what their peers expect */
    AUDIT_REPORTED, /* a call of `ranks` has returned MISMATCH; nothing else is known */
    AUDIT_EXTRA,    /* equal as far as they go, but some members have called more of them */
    /* The same, and those that called the fewest have closed the group. `ranks` are they and the
     * members that called more, with values 0 and 1. */
    AUDIT_DESTROYED
};

struct audit_finding_rank {
    uint32_t rank, class;
    uint64_t value; /* equal for members of one class */
};

struct audit_finding {
    enum audit_difference difference;
    const char *group, *scope; /* borrowed from the audit */
    /* The first operation that differs. If `after` + 1 is less than `number`, the audit only
     * knows that it is one of after + 1 ... number. */
    uint64_t number, after;
    bool completed; /* some member has completed operation `number`: its results may be wrong */
    /* The members whose marks are known, in the order of ranks. Those of one class, 0 to nclasses
     * - 1, have called the same. */
    const struct audit_finding_rank *ranks;
    uint32_t nranks, nclasses;
    uint32_t nmembers; /* of the group */
    uint32_t majority; /* a class that has more than half of nranks; UINT32_MAX: none has */
};

struct audit;

struct audit *audit_new(uint32_t nranks); /* of the job */
void audit_free(struct audit *a);
/* The payload of a WIRE_AUDIT frame. `ahead_ns`: how far the sender's clock is ahead of that which
 * all times are converted to; NULL: not known, so its times do not count. False: malformed. */
bool audit_take(struct audit *a, const struct wire_frame *f, const int64_t *ahead_ns);
/* True if calls differ; `out` has the earliest operation known so far of the group in which the
 * audit noticed it first. `out` is borrowed until the next call of any function here. `silent`:
 * groups do not count of which a rank got MISMATCH as the status of a call. */
bool audit_find(struct audit *a, bool silent, struct audit_finding *out);
/* True if calls of ranks have returned MISMATCH in a group without `check: strict`. */
bool audit_find_reported(struct audit *a, struct audit_finding *out);
/* The same for groups whose members have called all they ever will: some have called more. */
bool audit_find_extra(struct audit *a, struct audit_finding *out);

/* The same for groups that some members have closed after fewer calls than others have made, before
 * any member got an error. */
bool audit_find_destroyed(struct audit *a, struct audit_finding *out);

/* Finds the rank that came last most often in the open groups of this name. False: no operation
 * has been compared, or none was late. */
bool audit_last(const struct audit *a, const char *group, struct straggler_finding *out);
/* The groups that have compared operations. Only after the last audit_take. */
const struct straggler_list *audit_stragglers(struct audit *a);

/* ---- the text of a finding ----
 *
 * What an audit has found, for people:
 *   rank 1 and ranks 0, 2-3 differ in operation 501 of group train; ...
 */

/* Sets `d` to MISMATCH. */
void audit_text(const struct audit_finding *f, struct diag *d);

#endif
