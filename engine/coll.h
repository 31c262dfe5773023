/* SPDX-License-Identifier: Apache-2.0
 *
 * The one path that every operation takes: check, enter (one thread at a time), number, time-out,
 * through the lane, and on failure a sentence. The blocking functions of collrun.h fill in a struct
 * collrun_call and come here.
 */
#ifndef ENGINE_COLL_H
#define ENGINE_COLL_H

#include "route.h"

/* INVALID, with both workloads' names, if another thread is inside. */
int group_enter(struct collrun_group *g, const char *what);

/* Inside: nobody enters any more, and is told that the group was destroyed. */
void group_seal(struct collrun_group *g);
bool group_is_sealed(const struct collrun_group *g);

static inline void group_leave(struct collrun_group *g)
{
    atomic_store_explicit(&g->driver, NULL, memory_order_release);
}

/* Messages of a dtype that the backend does not know travel as bytes. */
void call_as_bytes(const struct group_side *side, struct collrun_call *call);

/* Checked calls, already inside: blocks. More than one are messages. */
int coll_run(struct collrun_group *g, const struct route *route, struct collrun_call *calls,
             uint32_t ncalls);

/* Fills in what a call leaves to the group: its time-out, the stream that it comes after. */
void call_complete(const struct collrun_group *g, struct collrun_call *call);

/* A request for copies of checked calls; NULL: out of memory. Holds a reference to the group. */
struct collrun_request *request_new(struct collrun_group *g, const struct group_side *side,
                                    const struct collrun_call *calls, uint32_t ncalls,
                                    uint64_t number);
/* Waits, frees, restores the sentence. */
int request_wait(struct collrun_request *r);
void request_free(struct collrun_request *r);

#endif
