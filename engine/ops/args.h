/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of a call before data is sent: enum values, counts and their products, roots and peers,
 * missing and overlapping buffers, operators that are not defined for the element type, and
 * operations that the backend does not support. A rejected call leaves the group unchanged.
 */
#ifndef ENGINE_OPS_ARGS_H
#define ENGINE_OPS_ARGS_H

#include "core/match.h"

#include <collrun/types.h>

struct collrun_group;
struct route;

/* OK, INVALID or UNSUPPORTED; on failure collrun_error() returns the message. `call` is complete
 * (see call_import). *route: the backend that executes it. */
int call_check(struct collrun_group *g, const struct collrun_call *call, struct route *route);
/* The same for the calls of one request: several messages, or one collective with a call for each
 * device of this process in the group. */
int call_check_all(struct collrun_group *g, const struct collrun_call *calls, uint32_t n,
                   struct route *route);
/* For the two checked calls of a sendrecv: INVALID if their buffers overlap. */
int call_check_apart(const struct collrun_group *g, const struct collrun_call *send,
                     const struct collrun_call *recv);
/* Copies a caller's struct, of any version, into a complete one. INVALID if its size is wrong. */
int call_import(const struct collrun_group *g, const struct collrun_call *theirs,
                struct collrun_call *out);

/* The tag of messages that the engine sends. Tags of workloads are smaller. */
#define TAG_ENGINE MATCH_ENGINE_TAG

#endif
