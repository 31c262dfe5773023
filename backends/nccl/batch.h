/* SPDX-License-Identifier: Apache-2.0
 *
 * struct batch: which collectives of a batch are launched together, as one NCCL group. NCCL may
 * execute the calls of a group in any order, and at the same time, so a call that needs an earlier
 * one begins another group: there is a cut before it. All ranks must have the same groups, but only
 * a rank itself sees where its buffers overlap. So the coordinator joins the cuts of all ranks.
 */
#ifndef NCCL_BATCH_H
#define NCCL_BATCH_H

#include <stdbool.h>
#include <stdint.h>

struct nccl_group;
struct op;

enum { BATCH_WINDOW = 64 }; /* calls whose cuts are joined at once */

struct batch {
    uint32_t first; /* the call that bit 0 of `cuts` belongs to */
    uint64_t cuts;  /* of the calls from `first` on, BATCH_WINDOW at most */
    bool asked;     /* the coordinator has the cuts of this rank */
    bool joined;    /* `cuts` are those of all ranks */
};

/* True if the op is a batch: several collectives, on one GPU per process. */
bool batch_is(const struct op *op);
/* The sum of the calls' time-outs. */
uint64_t batch_timeout(const struct op *op);

/* Whether the cuts at the next call, op->next, are known. Does not block. OK; AGAIN: a rank has not
 * reported its own yet; or a failure, with its message stored. */
int batch_join_cuts(struct op *op);
/* The number of calls, from op->next on, that are one NCCL group. */
uint32_t batch_group_len(const struct op *op);

#endif
