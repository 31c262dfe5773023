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
/* A spare that was taken becomes the request of its call with this number; it is recorded. */
void request_renew(const struct route *route, struct collrun_request *r, uint64_t number);
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
/* Waits, frees, restores the error message. */
int request_wait(struct collrun_request *r);
/* Logs a warning if a workload has never tested or waited for a request of this group. */
void request_report_uncollected(struct collrun_group *g);

#endif
