/* SPDX-License-Identifier: Apache-2.0
 *
 * A started send that is done when collrun_start returns: short, on a queue without other
 * requests. All of them have the same request, which is finished, belongs to no group and is never
 * freed. What cannot be sent at once takes the usual way.
 */
#ifndef ENGINE_OPS_REQUEST_SHORT_H
#define ENGINE_OPS_REQUEST_SHORT_H

#include "ops/request.h"

/* By the thread that is directly inside. True: the send has left, and is recorded with this number
 * (0: the next one), which its receiver did not wait for. False: nothing has happened. */
bool request_send_now(const struct route *route, const struct progress_queue *pq,
                      const struct collrun_call *call, uint64_t number);

/* The finished request of a complete call; or of a caller's, which is none of those that need a
 * check, and gets the next number. NULL: nothing has happened. */
struct collrun_request *request_send_short(const struct route *route,
                                           const struct collrun_call *call, uint64_t number);
struct collrun_request *request_send_plain(struct collrun_group *g,
                                           const struct collrun_call *given, uint64_t site);

#endif
