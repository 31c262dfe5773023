/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests of a group. A request is one allocation: itself, copies of its calls, copies of their
 * count arrays. It holds a reference to its group, so it may be waited for after the group was
 * destroyed.
 */
#ifndef ENGINE_OPS_REQUEST_H
#define ENGINE_OPS_REQUEST_H

#include "group/group.h"
#include "group/route.h"
#include "observe/call_record.h"

/* The callbacks of the queues of a group. The ctx of a queue is its struct group_backend.
 */
extern const struct pq_ops request_pq_ops;
extern const struct group_ops request_group_ops;

/* Copies n structs of a caller, of any version, to `own`, checks them, and finds their backend. On
 * failure the error message is composed. */
int request_import_all(struct collrun_group *g, const struct collrun_call *calls, uint32_t n,
                       struct collrun_call *own, struct route *route);
/* A request of copies of checked calls, with their numbers and a reference to the group; nothing is
 * recorded. NULL: out of memory. */
struct collrun_request *request_alloc(const struct route *route, const struct collrun_call *calls,
                                      uint32_t ncalls, uint64_t number);
/* The places of a receive from any rank, or with any tag, are those of `op` from now on. */
void request_op_attach_wild(struct request_op *op, struct collrun_call *call);
/* It has ended with `status`: the caller gets what it wants to know. */
void request_op_deliver_wild(const struct request_op *op, const struct collrun_call *call,
                             int status);

static inline bool request_op_is_wild(const struct collrun_call *call)
{
    return call->kind == COLLRUN_RECV_ANY ||
           (call->kind == COLLRUN_RECV && call->tag == COLLRUN_ANY_TAG);
}

static inline void request_op_attach(struct request_op *op, struct collrun_call *call)
{
    if (request_op_is_wild(call))
        request_op_attach_wild(op, call);
}

static inline void request_op_deliver(const struct request_op *op, const struct collrun_call *call,
                                      int status)
{
    if (request_op_is_wild(call))
        request_op_deliver_wild(op, call, status);
}

/* Its time-out begins now. */
void request_set_deadline(struct collrun_request *r);
/* The workload must collect it by test or wait. */
void request_list_add(struct collrun_request *r);
void request_list_remove(struct collrun_request *r); /* if it is in the list */
void request_free(struct collrun_request *r);
/* A request for copies of checked calls; NULL: out of memory. Takes `bounce`, which may be NULL, in
 * either case. */
struct collrun_request *request_new(const struct route *route, const struct collrun_call *calls,
                                    uint32_t ncalls, uint64_t number, struct bounce *bounce);
/* Records its calls as posted; returns the first entry. */
static inline uint64_t request_record(const struct route *route, const struct collrun_request *r)
{
    return kind_is_collective(r->calls->kind)
               ? call_record_collectives(route, r->calls, r->ncalls, r->number, RECORD_POSTED)
               : call_record_messages(route, r->calls, r->ncalls, r->number, RECORD_POSTED);
}
/* Calls of these numbers fail before they begin; the cause is stored. Returns the status that the
 * caller gets. */
int request_refuse(const struct route *route, const struct collrun_call *calls, uint32_t ncalls,
                   uint64_t number, int status);
/* A blocking call behind other requests: a request that is waited for. Takes `bounce`. */
int request_run(const struct route *route, const struct collrun_call *calls, uint32_t ncalls,
                uint64_t number, struct bounce *bounce);
/* Messages of a thread that is directly inside, which have begun: see pq_adopt. Waits for their end
 * and restores the error message. Everything but the queue's part of `r` is set; it stays the
 * caller's. */
int request_run_adopted(struct progress_queue *pq, struct collrun_request *r);
/* Submits it to its queue. On failure it is freed and the error message is composed. */
int request_submit(struct collrun_request *r);
/* Logs a warning if a workload has never tested or waited for a request of this group. */
void request_report_uncollected(struct collrun_group *g);

/* ---- spares ---- */

/* A finished request is kept for the next start of the same call, since programs start the same few
 * calls again and again. A spare has its copy of the call, which was checked, and its reference to
 * the group: to start it again, nothing has to be checked, copied, allocated or counted.
 *
 * - Spares hold one call each, of an even form, on host memory, without a caller's operator. A
 *   group on device memory has none: the kind of an address may change.
 * - A group keeps at most REQUEST_SPARES of them, by a hash of the call, from its first request
 *   until it is closed. */

/* Takes the spare of this call of a caller out of the group; NULL: there is none. It is not
 * recorded or numbered, and its status is that of its last use. Any thread. */
struct collrun_request *request_spare_take(struct collrun_group *g,
                                           const struct collrun_call *call);

/* A new request of one checked call, which its caller gave as `given`, becomes a spare when it has
 * succeeded, if it may. */
void request_spare_prepare(struct collrun_request *r, const struct collrun_call *given);

/* Gives a finished request, or a spare that was taken and not used, back to the group, or frees it.
 * Any thread may call it. */
void request_spare_keep_or_free(struct collrun_request *r);

/* A spare of a call that needed no request: `call` complete, `given` as the caller gave it. */
void request_spare_add(const struct route *route, const struct collrun_call *call,
                       const struct collrun_call *given);

/* No request becomes a spare any more. Frees those that are. */
void request_spare_close(struct collrun_group *g);

/* ---- sends that are done at once ---- */

/* A started send that is done when collrun_start returns: short, on a queue without other
 * requests. All of them have the same request, which is finished, belongs to no group and is never
 * freed. What cannot be sent at once takes the usual way. */

/* Called by the thread that is directly inside. True: the send has left, and is recorded with this
 * number (0: the next one), which its receiver did not wait for. False: nothing has happened. */
bool request_send_now(const struct route *route, const struct progress_queue *pq,
                      const struct collrun_call *call, uint64_t number);

/* The finished request of a complete call; or of a caller's, which is none of those that need a
 * check, and gets the next number. NULL: nothing has happened. */
struct collrun_request *request_send_short(const struct route *route,
                                           const struct collrun_call *call, uint64_t number);
struct collrun_request *request_send_plain(struct collrun_group *g,
                                           const struct collrun_call *given, uint64_t site);

/* ---- groups that are created as requests (group_start.c) ---- */

/* When the workloads of this rank have ended: ends the creations that were never waited for, with a
 * warning. Without any it has no effect. */
void group_start_end_all(struct group_table *t);

#endif
