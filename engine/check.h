/* SPDX-License-Identifier: Apache-2.0
 *
 * What can be known to be wrong with a call before anything is sent: enum values, counts and their
 * products, roots and peers, missing and overlapping buffers, operators on element types that they
 * have no meaning for, and what the backend cannot do at all. A refused call leaves the group as it
 * was.
 */
#ifndef ENGINE_CHECK_H
#define ENGINE_CHECK_H

#include <collrun/types.h>

struct collrun_group;
struct group_side;
struct route;

/* OK, INVALID or UNSUPPORTED; on failure collrun_error() holds the sentence. `call` is complete
 * (see call_import). *route is where it goes. */
int call_check(struct collrun_group *g, const struct collrun_call *call, struct route *route);
/* The same for the calls of one request: several messages, or one collective with a call for each
 * device that this process drives in the group. */
int call_check_all(struct collrun_group *g, const struct collrun_call *calls, uint32_t n,
                   struct route *route);
/* Of the two checked calls of a sendrecv: INVALID if their buffers overlap. */
int call_check_apart(const struct collrun_group *g, const struct collrun_call *send,
                     const struct collrun_call *recv);
/* Copies a caller's struct, of whatever age, into a complete one. INVALID if its size is none. */
int call_import(const struct collrun_group *g, const struct collrun_call *theirs,
                struct collrun_call *out);

/* Of a checked call: arrays that this kind, or this rank in it, does not use become NULL, so that
 * nobody reads them. */
void call_trim(const struct group_side *side, struct collrun_call *call);

/* Calls that a workload may mark with a tag use less than this; what the engine sends by itself has
 * it. */
#define TAG_ENGINE (1u << 31)

#endif
