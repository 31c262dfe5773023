/* SPDX-License-Identifier: Apache-2.0
 *
 * Putting operations onto the streams of the group's GPUs. Callers hold the group's lock; all
 * functions return OK, or a status with its message stored.
 */
#ifndef NCCL_ISSUE_H
#define NCCL_ISSUE_H

#include <collrun/backend.h>
#include <stdbool.h>
#include <stdint.h>

struct dev_comm;
struct event;
struct message;
struct nccl_group;
struct op;

/* A collective, or its next kernel: ordered after what the callers' streams hold (what they held
 * when the call was made, if the op has before_evts), and followed by an event per GPU. */
int issue_collective(struct nccl_group *g, struct op *op);
/* A list of messages whose other ends are launched, too. Sets after_evts (ndevs; NULL = GPU not
 * involved). */
int issue_messages(struct nccl_group *g, const struct message *list, struct event **after_evts);

/* A list of direct messages of one end, on the GPU `dev` of the part `g`. Sets *after_evt; NULL:
 * none of them has elements. */
int issue_direct(struct nccl_group *g, struct dev_comm *dev, const struct message *list,
                 struct event **after_evt);

/* Locks the group's GPUs, on which the caller alone then issues work, and unlocks them. False: one
 * of them is locked. */
bool issue_try_lock(struct nccl_group *g);
void issue_unlock(struct nccl_group *g);
/* Has each GPU of this process exchange a message with each GPU of the group, which connects them;
 * those of a part in their one direction. With the GPUs locked. */
int issue_connect(struct nccl_group *g);

/* While the group is formed. The warm-up connects this rank to every other one, so that no
 * operation has to connect later, when it could wait for a peer that is busy elsewhere; the
 * confirmation ends once all ranks have done so. */
int issue_warm_up(struct nccl_group *g, struct op *op);
int issue_confirm(struct nccl_group *g, struct op *op);

/* struct batch: which collectives of a batch are launched together, as one NCCL group. NCCL may
 * execute the calls of a group in any order, and at the same time, so a call that needs an earlier
 * one begins another group: there is a cut before it. All ranks must have the same groups, but only
 * a rank itself sees where its buffers overlap. So the coordinator joins the cuts of all ranks. */

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
