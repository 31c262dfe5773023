/* SPDX-License-Identifier: Apache-2.0
 *
 * RECORDS: a copy of the flight recorder of each rank, which outlives the rank.
 * - The job fails: all operations that are recorded, up to a limit for the whole job.
 * - The ranks of this host have ended well: the last ones. The final audit may find that these were
 *   wrong when no agent is left to ask.
 */
#ifndef RUNNER_AGENT_RECORDS_H
#define RUNNER_AGENT_RECORDS_H

#include <stdbool.h>

struct agent;

/* Only the first call has an effect. */
void records_send(struct agent *a, bool failed);

#endif
