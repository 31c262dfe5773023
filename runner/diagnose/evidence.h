/* SPDX-License-Identifier: Apache-2.0
 *
 * All that a verdict depends on: what the job was, what each rank did, and a failure of the job
 * that is not the end of a rank.
 */
#ifndef RUNNER_DIAGNOSE_EVIDENCE_H
#define RUNNER_DIAGNOSE_EVIDENCE_H

#include "base/desc.h"
#include "diagnose/cause.h"

struct cuts_proof;

struct job_failure {
    enum cause_class class; /* CAUSE_NONE: none */
    int exit_code;
    struct diag diag;
    uint64_t ns;       /* when it was detected */
    uint64_t limit_ns; /* of a time limit, how long the workloads could run; 0: they could not */
    /* CAUSE_MISMATCH: what the audit knows, where records do not reach. */
    const char *group; /* NULL: nothing */
    uint64_t number;   /* of the first operation that is known to differ */
    bool extra;        /* some have called `number`, and the others have ended without it */
    struct desc_ranks culprits, suspects;
    const struct cuts_proof *proof; /* CAUSE_DEADLOCK, by the cuts of ranks; NULL: not by these */
};

struct evidence {
    const struct desc *desc;
    const struct rank_state *ranks; /* desc->nranks */
    struct job_failure job;
};

#endif
