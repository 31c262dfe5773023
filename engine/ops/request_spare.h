/* SPDX-License-Identifier: Apache-2.0
 *
 * A finished request is kept for the next start of the same call, since programs start the same few
 * calls again and again. A spare has its copy of the call, which was checked, and its reference to
 * the group: to start it again, nothing has to be checked, copied, allocated or counted.
 *
 * - Spares hold one call each, of an even form, on host memory, without a caller's operator. A
 *   group on device memory has none: the kind of an address may change.
 * - A group keeps at most REQUEST_SPARES of them, by a hash of the call, from its first request
 *   until it is closed.
 */
#ifndef ENGINE_OPS_REQUEST_SPARE_H
#define ENGINE_OPS_REQUEST_SPARE_H

#include "group/route.h"

/* Takes the spare of this call of a caller out of the group; NULL: there is none. It is not
 * recorded or numbered, and its status is that of its last use. Any thread. */
struct collrun_request *request_spare_take(struct collrun_group *g,
                                           const struct collrun_call *call);

/* A new request of one checked call, which its caller gave as `given`, becomes a spare when it has
 * succeeded, if it may. */
void request_spare_prepare(struct collrun_request *r, const struct collrun_call *given);

/* Of a finished request, or a spare that was taken and not used: the group has it, or it is freed.
 * Any thread. */
void request_spare_keep_or_free(struct collrun_request *r);
/* The same for one that has succeeded, is in no list, and was no spare for another call since. */
void request_spare_keep_succeeded(struct collrun_request *r);

/* A spare of a call that needed no request: `call` complete, `given` as the caller gave it. */
void request_spare_add(const struct route *route, const struct collrun_call *call,
                       const struct collrun_call *given);

/* No request becomes a spare any more. Frees those that are. */
void request_spare_close(struct collrun_group *g);

#endif
