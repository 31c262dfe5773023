/* SPDX-License-Identifier: Apache-2.0
 *
 * Blocking messages: collrun_send, _recv, _recv_any, _sendrecv, and collrun_run of messages.
 *
 * - On an idle queue that no other thread uses, the messages run in the caller's thread, which is
 *   directly inside the queue (progress_queue.h).
 * - When another thread needs the queue meanwhile, they go on as a request.
 * - Behind unfinished requests, or on a queue that several threads use, they become a request at
 *   once. So do those of a backend that matches and starts messages itself, since a thread that is
 *   inside such a backend cannot make room for another one.
 */
#ifndef ENGINE_OPS_MESSAGE_H
#define ENGINE_OPS_MESSAGE_H

#include "core/backend.h"
#include "group/route.h"

/* The most elements of a plain message: their bytes fit a size_t, whatever the type. */
#define MESSAGE_PLAIN_COUNT_MAX ((size_t)1 << 40)

/* True: call_check would find nothing, as for nearly all messages: from or to the host memory of
 * another rank, with tag 0. */
static inline bool message_is_plain(const struct collrun_group *g, const struct collrun_call *call)
{
    const void *buf = call->kind == COLLRUN_SEND ? call->send : call->recv;
    return (call->kind == COLLRUN_SEND || call->kind == COLLRUN_RECV) && !call->tag && buf &&
           !call->stream && !g->kinds.n && (uint32_t)call->peer < g->nranks &&
           (uint32_t)call->peer != g->rank && (size_t)call->dtype < COLLRUN_DTYPE_COUNT &&
           call->count <= MESSAGE_PLAIN_COUNT_MAX &&
           g->backends[0].backend->native[call->kind][call->dtype];
}

/* Checked messages. On failure the error message is composed. */
int message_run(const struct route *route, struct collrun_call *calls, uint32_t ncalls);

#endif
