/* SPDX-License-Identifier: Apache-2.0
 *
 * The call that a process makes for an operation of a trace, which one or several of its ranks
 * have made.
 *
 * - Ranks become processes: as peer, as root, and in the order of the group.
 * - In a group in which a process plays several ranks, allgather, gather, scatter, reduce_scatter
 *   and alltoall become their v-forms: the block of a process is that of all of its ranks. The
 *   counts of an alltoallv are sums. A barrier, broadcast, reduce or allreduce is what it was.
 * - scan and exscan, which have another result for each rank, cannot be folded.
 * - Tags are changed where a process plays several ranks, so that messages between different ranks
 *   of two processes do not match.
 */
#ifndef REPLAY_FOLD_H
#define REPLAY_FOLD_H

#include "cast.h"

/* Describes the call of the trace's rank, but for its buffers. counts: room for a send and a
 * receive count of each process; zeroed; borrowed by the call. */
void fold_call(const struct cast *c, const struct cast_group *g, int rank, const struct op *op,
               size_t *counts, struct collrun_call *call);
/* Adds the counts of one rank's alltoallv. */
void fold_blocks(const struct cast_group *g, const struct trace *t, const struct op *op,
                 size_t *counts);
/* Whether all operations of the trace can be folded; 0, or an exit code with the error reported. */
int fold_check(const struct cast *c, int trace);
#endif
