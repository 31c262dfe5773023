/* SPDX-License-Identifier: Apache-2.0
 *
 * struct direct: the direct messages of a group, which are launched at their call. Only the handle
 * for messages of a group with the option `messages: direct` has one.
 */
#ifndef NCCL_DIRECT_H
#define NCCL_DIRECT_H

#include "message.h"
#include "nccl_api.h"

#include <collrun/backend.h>
#include <stdbool.h>
#include <stdint.h>

struct coord_client;
struct coord_match_rep;
struct direct;

/* *out stays NULL if the group's messages are matched. */
int direct_new(struct nccl_group *g, struct coord_client *coord, struct direct **out);
void direct_free(struct direct *d); /* NULL is OK */

/* Both ends of a message answer alike: it has tag 0, a named peer, and joins two GPUs. */
bool direct_takes(const struct nccl_group *g, const struct collrun_call *c);
/* Queues a message. A status with its message stored. */
int direct_enter(struct direct *d, struct nccl_group *g, struct message *m);
/* Launches queued messages, as far as they may be. */
void direct_launch(struct direct *d, struct nccl_group *g);

/* Launches and completes messages. */
void direct_progress(struct direct *d, struct nccl_group *g);
/* Queues reports to the coordinator about messages that were launched. Returns how many. */
uint32_t direct_report(struct direct *d, const struct nccl_group *g);
/* A report was answered: the other end is launched, too. */
void direct_on_match(struct direct *d, struct nccl_group *g, const struct coord_match_rep *rep);
/* Reports that have not been answered. */
uint64_t direct_unanswered(const struct direct *d);
/* A communicator was asked for since the last call: that should leave at once. */
bool direct_take_wanted(struct direct *d);
uint64_t direct_launches(const struct direct *d);
/* Whether the coordinator has reported the other end of a message. */
bool direct_is_matched(const struct message *m);
/* NULL: the communicator of the message is not formed. */
struct nccl_group *direct_part(const struct message *m);

/* True if a message of a failed group, in any direction, is still on its GPU. */
bool direct_is_busy(const struct direct *d);
void direct_forget(struct nccl_group *g, const struct op *op); /* as nccl_p2p_forget */
/* Has `stream` wait for the message, which is in flight; *error is CUDA's result. AGAIN: it cannot
 * yet. */
int direct_order(struct nccl_group *g, struct message *m, cudaStream_t stream, cudaError_t *error);

/* ---- the communicators of directions ---- */

/* The part for a direction; NULL: this process has not begun to form it. */
struct nccl_group *direct_comm_get(const struct nccl_group *whole, uint32_t from, uint32_t to);
/* Makes it, without a communicator. One thread at a time. NULL: the whole has failed; or none of
 * the two GPUs is of this process. */
struct nccl_group *direct_comm_new(struct nccl_group *whole, uint32_t from, uint32_t to);
/* The group's services end for all parts; see nccl_group_end_services. */
void direct_comm_end_services(struct nccl_group *whole);
/* Finalizes all, in the same order on all ranks, and frees them. */
void direct_comm_close_all(struct nccl_group *whole);

#endif
