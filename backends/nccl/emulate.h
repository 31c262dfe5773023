/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives that NCCL lacks. Each takes several kernels of NCCL; a call here issues the next one.
 */
#ifndef NCCL_EMULATE_H
#define NCCL_EMULATE_H

#include <collrun/backend.h>
#include <stdbool.h>

struct nccl_group;
struct op;

bool emulate_is_needed(const struct collrun_call *call);
/* The next kernel of op->next. With the devices locked. Updates op->kernels. OK, or a status with
 * its message stored. */
int emulate_collective(struct nccl_group *g, struct op *op);

#endif
