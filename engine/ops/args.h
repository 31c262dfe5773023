/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of a call before data is sent: enum values, counts and their products, roots and peers,
 * missing and overlapping buffers, operators that are not defined for the element type, and
 * operations that the backend does not support. A rejected call leaves the group unchanged.
 */
#ifndef ENGINE_OPS_ARGS_H
#define ENGINE_OPS_ARGS_H

#include "core/backend.h"
#include "core/match.h"
#include "core/reduce.h"
#include "group/group.h"
#include "group/route.h"

#include <collrun/types.h>
#include <string.h>

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

/* ---- completing a checked call ---- */

/* COLLRUN_CALL(kind), in two halves that compilers write with vector stores; they set the whole
 * struct with a slow string instruction. */
static inline void call_init(struct collrun_call *call, enum collrun_kind kind)
{
    enum { HALF = (sizeof *call / 2 + 15) / 16 * 16 };
    memset(call, 0, HALF);
    memset((char *)call + HALF, 0, sizeof *call - HALF);
    call->size = (uint32_t)sizeof *call;
    call->kind = kind;
}

/* With the arguments that most operations have. */
static inline void call_init_data(struct collrun_call *call, enum collrun_kind kind,
                                  const void *send, void *recv, size_t count,
                                  enum collrun_dtype dtype)
{
    call_init(call, kind);
    call->send = send;
    call->recv = recv;
    call->count = count;
    call->dtype = dtype;
}

/* The group's streams are of its devices: a call on memory of another kind has none of them. */
static inline bool call_has_stream(const struct route *route, const struct collrun_call *call)
{
    const struct collrun_group *g = route->gb->group;
    if (!route->foreign)
        return true;
    const struct memory_kind *kind =
        memory_kind_of(&g->kinds, call->send ? call->send : call->recv, NULL);
    return !kind || kind == group_device_kind(g);
}

/* Fills in the defaults of the group: the time-out, the stream that the call runs after. */
static inline void call_complete(const struct route *route, struct collrun_call *call)
{
    const struct collrun_group *g = route->gb->group;
    call->timeout_ns = call->timeout_ns ? call->timeout_ns : g->timeout_ns;
    if (!call->stream && g->kinds.n && call->device >= 0 && call->device < GROUP_MOST_DEVICES &&
        call_has_stream(route, call))
        call->stream = g->calls.streams[call->device];
}

/* In a checked call, sets arrays that this kind, or this rank in it, does not use to NULL, so that
 * they are not read; and an operator that the kind does not use to 0. */
static inline void call_trim(const struct group_backend *gb, struct collrun_call *call)
{
    if (!collrun_kind_reduces(call->kind))
        call->op = (enum collrun_op)0;
    bool at_root = route_root(gb, call) == route_comm_rank(gb, call);
    const struct collrun_kind_info info = collrun_kind_row(call->kind);
    bool sends = collrun_kind_sends(call->kind, at_root);
    bool receives = collrun_kind_receives(call->kind, at_root, false);
    if (!sends || info.send != COLLRUN_SENDCOUNTS_BLOCKS)
        call->sendcounts = call->senddispls = NULL;
    if (!receives || info.recv != COLLRUN_RECVCOUNTS_BLOCKS)
        call->recvdispls = NULL;
    if (!receives ||
        (info.recv != COLLRUN_RECVCOUNTS_BLOCKS && info.recv != COLLRUN_RECVCOUNTS_OWN))
        call->recvcounts = NULL;
}

/* A message of a dtype that the backend does not support is sent as bytes. A transport does not
 * look at types. */
static inline void call_as_bytes(const struct group_backend *gb, struct collrun_call *call)
{
    if (gb->backend->has_transport || gb->backend->native[call->kind][call->dtype])
        return;
    call->count *= dtype_size(call->dtype);
    call->dtype = COLLRUN_UINT8;
}

#endif
