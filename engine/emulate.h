/* SPDX-License-Identifier: Apache-2.0
 *
 * What a backend lacks, built from what it has. Operations that only move bytes move them as uint8
 * when the backend does not know the dtype; everything else is made of SEND and RECV, exchanged in
 * batches that progress together, and of the engine's own reduction kernels. Sums combine the
 * members' vectors in rank order, once, so every rank gets the same bits and half precision is
 * rounded once.
 */
#ifndef ENGINE_EMULATE_H
#define ENGINE_EMULATE_H

#include <collrun/types.h>

struct lane;

/* One checked call of any kind, or several messages, done natively or not; blocks. The cause of a
 * failure is in the thread's record. */
int emulate_exec(struct lane *lane, const struct collrun_call *calls, uint32_t ncalls);

#endif
