/* SPDX-License-Identifier: Apache-2.0
 *
 * Evidence that consists of records alone, such as those of a trace: what each rank does, and what
 * it waits for, is derived from its record (base/record.h), as if the rank had reported it.
 * - A rank waits in every operation that is posted or started.
 * - The members of a group are the ranks that have a slot of its scope.
 */
#ifndef RUNNER_DIAGNOSE_FROM_RECORDS_H
#define RUNNER_DIAGNOSE_FROM_RECORDS_H

#include "diagnose/evidence.h"

/* Completes `desc` if it has no groups, and each rank that has a record and no STATUS. If no rank
 * has failed, `job` becomes a time-out: something kept the ranks from ending. */
void from_records_complete(struct desc *desc, struct rank_state *ranks, struct job_failure *job,
                           struct arena *arena);

#endif
