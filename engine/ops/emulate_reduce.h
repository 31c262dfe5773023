/* SPDX-License-Identifier: Apache-2.0
 *
 * Emulated reductions, with an operator of types.h or of the caller. Each returns a status; on
 * failure the cause is stored.
 *
 * - Operands are combined in rank order. A result is computed by one rank, so all ranks get the
 *   same bits.
 * - With an operator of types.h, half precision is rounded once.
 */
#ifndef ENGINE_OPS_EMULATE_REDUCE_H
#define ENGINE_OPS_EMULATE_REDUCE_H

#include "ops/emulate_move.h"

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
