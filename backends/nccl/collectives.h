/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives on the GPUs of a group: those that NCCL does itself (native), and those that it lacks
 * (emulate).
 */
#ifndef NCCL_COLLECTIVES_H
#define NCCL_COLLECTIVES_H

#include "nccl_api.h"

#include <collrun/backend.h>
#include <stdbool.h>

struct dev_comm;
struct message;
struct nccl_group;

/* With nothing to move, the forms with equal counts still synchronize all ranks; NCCL's do not. */
static inline bool native_is_barrier(const struct collrun_call *call)
{
    const unsigned short counts = COLLRUN_IS_VECTOR | COLLRUN_IS_MESSAGE;
    return call->kind == COLLRUN_BARRIER ||
           (call->count == 0 && !(collrun_kind_row(call->kind).flags & counts));
}

/* NCCL's type and operator for a reduction; false: NCCL has none. */
bool native_reduction(enum collrun_dtype dtype, enum collrun_op op, ncclDataType_t *type,
                      ncclRedOp_t *native);

/* All but native_direct belong between ncclGroupStart and ncclGroupEnd, and issue to the stream of
 * one GPU. */
ncclResult_t native_collective(struct nccl_group *g, const struct collrun_call *call);
/* A message whose other end, m->peer_rank, is known. */
ncclResult_t native_message(struct nccl_group *g, const struct message *m);
/* A direct message, on a GPU of the part. */
ncclResult_t native_direct(struct nccl_group *part, struct dev_comm *dev, const struct message *m);
/* Synchronizes all communicator ranks. */
ncclResult_t native_barrier(struct nccl_group *g, uint32_t dev);

/* Collectives that NCCL lacks. Each takes several kernels of NCCL; a call here issues the next one.
 */

struct op;

bool emulate_is_needed(const struct collrun_call *call);
/* The next kernel of op->next. With the devices locked. Updates op->kernels. OK, or a status with
 * its message stored. */
int emulate_collective(struct nccl_group *g, struct op *op);

#endif
