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

#include "ops/emulate_move.h"

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

/* Emulated reductions, with an operator of types.h or of the caller. Each returns a status; on
 * failure the cause is stored.
 *
 * - Operands are combined in rank order. A result is computed by one rank, so all ranks get the
 *   same bits.
 * - With an operator of types.h, half precision is rounded once. */

/* reduce_scatter and its v-form: `dst` gets the block of this rank, combined over all ranks. */
int emulate_reduce_block(struct emulation *e, const struct cut *from, void *dst);
/* allreduce and reduce. */
int emulate_reduce_all(struct emulation *e);

/* The dtype in which partial results of the call's operator are kept: float32 for half precision.
 */
enum collrun_dtype emulate_partial_dtype(const struct collrun_call *call);
/* right[i] = left[i] op right[i] for partial results of `count` elements. */
void emulate_combine(const struct collrun_call *call, const void *left, void *right, size_t count);

/* ---- scans ---- */

/* Emulated scan and exscan, with an operator of types.h or of the caller. */

/* On failure the cause is stored. */
int emulate_scan(struct emulation *e);

/* ---- several devices ---- */

/* Emulated reductions of processes with several devices: one call for each device of this process.
 * Scans, and any reduction with an operator of the caller. */

/* e->call is the first of e->ndevices calls. On failure the cause is stored. */
int emulate_devices(struct emulation *e);

#endif
