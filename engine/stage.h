/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls with buffers on a GPU, for a backend that reads host memory only: their buffers are copied
 * to pinned memory, the calls run on the copies, and what was received is copied back.
 */
#ifndef ENGINE_STAGE_H
#define ENGINE_STAGE_H

#include <collrun/types.h>

struct collrun_group;
struct stage;

/* Changes the buffers of checked and trimmed calls to copies of them, made after what the calls'
 * streams hold; waits for that. `n` calls, with their time-outs filled in. 0, or a status with its
 * cause stored. */
int stage_in(const struct collrun_group *g, struct collrun_call *calls, uint32_t n,
             struct stage **out);
/* The operation is over, with `status`: copies back what it received, frees. Returns the status
 * that counts. */
int stage_out(struct stage *stage, int status);

#endif
