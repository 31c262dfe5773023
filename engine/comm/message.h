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
#ifndef ENGINE_COMM_MESSAGE_H
#define ENGINE_COMM_MESSAGE_H

#include "comm/route.h"

/* Checked messages. On failure the error message is composed. */
int message_run(const struct route *route, struct collrun_call *calls, uint32_t ncalls);

#endif
