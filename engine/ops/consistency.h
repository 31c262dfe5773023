/* SPDX-License-Identifier: Apache-2.0
 *
 * `check: strict`: before a collective moves data, its members exchange fingerprints of their calls
 * and compare them (core/fingerprint.h). All members compare the same fingerprints, so either all
 * continue or all return MISMATCH, and the error message shows two of the calls. The cost is one
 * small allgather per operation; it works on any backend.
 *
 * A backend that compares calls itself (COLLRUN_BACKEND_INLINE_CHECK) does not see emulated
 * reductions. They are compared here, without `check: strict`, too.
 *
 * Messages are not checked here: the receiver always compares their count and dtype.
 */
#ifndef ENGINE_OPS_CONSISTENCY_H
#define ENGINE_OPS_CONSISTENCY_H

#include "group/route.h"

#include <collrun/types.h>
#include <stdbool.h>
#include <stdint.h>

struct group_backend;
struct progress_queue;

/* True if the collective, which the owner of the queue executes while nothing is in flight, takes
 * one call of the backend and nothing else. Any thread may ask. */
bool consistency_is_plain(const struct group_backend *gb, const struct progress_queue *pq,
                          const struct collrun_call *calls, uint32_t ncalls);
/* As emulate_exec, after the check if the group has one, which reduces the time-out by its
 * duration.
 */
int consistency_exec(const struct group_backend *gb, struct progress_queue *pq,
                     const struct collrun_call *calls, uint32_t ncalls, uint64_t number);

/* ---- batches ---- */

/* A batch: several collectives as one request. They are executed in the order of the array, as if
 * they had been called one by one: each has a number, and `check: strict` compares each. The first
 * failure ends the batch and is its result. */

/* The time-out of the request: that of its call, or the sum of those of a batch. */
uint64_t batch_timeout(const struct group_backend *gb, const struct collrun_call *calls,
                       uint32_t ncalls);

/* True if the backend executes the whole batch in one call. */
bool batch_is_native(const struct route *route, const struct collrun_call *calls, uint32_t ncalls);

/* Executes the calls of any request; blocks. `settled` as in struct route. On failure the cause is
 * stored; that of a batch begins with the index and the text of the call. */
int batch_exec(const struct group_backend *gb, struct collrun_request *r, bool settled);

#endif
