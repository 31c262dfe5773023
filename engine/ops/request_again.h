/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs start the same few collectives again and again, and soon wait for each. Such a request
 * is a spare (request_spare.h) and is deferred (progress_deferred.h); and where it is plain, the
 * thread that waits only calls the backend. Here are the steps of request.c for it in one piece,
 * without those that it cannot need.
 */
#ifndef ENGINE_OPS_REQUEST_AGAIN_H
#define ENGINE_OPS_REQUEST_AGAIN_H

#include "group/route.h"

/* A spare that was taken is as described, and nothing is in the way. Inside the group, as is
 * request_again_start. */
static inline bool request_again_may(const struct collrun_request *r)
{
    return r->plain && !r->queued && !group_has_failed(r->group);
}

/* Starts it. On failure the request is freed, and the error message is composed. */
int request_again_start(struct collrun_request *r, uint64_t site);

/* True: this thread has executed the request with success, and the group has it again. False: it
 * is not as described, or it has failed; the caller waits for it as for any other. */
bool request_again_wait(struct collrun_request *r);

#endif
