/* SPDX-License-Identifier: Apache-2.0
 *
 * A batch: several collectives as one request. They are executed in the order of the array, as if
 * they had been called one by one: each has a number, and `check: strict` compares each. The first
 * failure ends the batch and is its result.
 */
#ifndef ENGINE_OPS_BATCH_H
#define ENGINE_OPS_BATCH_H

#include "group/route.h"

/* The time-out of the request: that of its call, or the sum of those of a batch. */
uint64_t batch_timeout(const struct group_backend *gb, const struct collrun_call *calls,
                       uint32_t ncalls);

/* True if the backend executes the whole batch in one call. */
bool batch_is_native(const struct route *route, const struct collrun_call *calls, uint32_t ncalls);

/* Executes the calls of any request; blocks. `settled` as in struct route. On failure the cause is
 * stored; that of a batch begins with the index and the text of the call. */
int batch_exec(const struct group_backend *gb, struct collrun_request *r, bool settled);

#endif
