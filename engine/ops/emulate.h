/* SPDX-License-Identifier: Apache-2.0
 *
 * Emulation of operations that a backend does not have. Operations that only move data use uint8 if
 * the backend does not support the dtype. All others consist of SEND and RECV, in batches that
 * progress together, and of the engine's reduction kernels. A reduction combines the members'
 * vectors in rank order: half precision is rounded once, and every rank gets the same bits. An
 * operator of the caller is always emulated.
 */
#ifndef ENGINE_OPS_EMULATE_H
#define ENGINE_OPS_EMULATE_H

#include <collrun/types.h>

struct group_backend;
struct progress_queue;

/* Executes one checked call of any kind, or several messages, natively if possible; blocks. On
 * failure the cause is stored. */
int emulate_exec(const struct group_backend *gb, struct progress_queue *pq,
                 const struct collrun_call *calls, uint32_t ncalls);
/* A collective has failed on this rank; the cause is stored. The other members, which may be in it,
 * get PEER_FAILED with that cause (TIMEOUT after a time-out), unless the failure was that of a
 * message, of which they know. By the owner of the queue. */
void emulate_give_up(const struct group_backend *gb, struct progress_queue *pq, int status);

#endif
