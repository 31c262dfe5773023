/* SPDX-License-Identifier: Apache-2.0
 *
 * struct p2p: the messages of a group, matched by the coordinator and launched in epochs. Only the
 * handle for messages has one.
 */
#ifndef NCCL_P2P_H
#define NCCL_P2P_H

#include "message.h"
#include "nccl_api.h"

#include <collrun/backend.h>
#include <stdbool.h>

struct coord_client;

int nccl_p2p_new(struct nccl_group *g, struct coord_client *coord);
void nccl_p2p_close(struct nccl_group *g); /* gives the events back */
void nccl_p2p_free(struct nccl_group *g);

/* Enters the messages of an op. Without the group's lock: a direct message waits for its GPU, whose
 * holder may be about to connect the handle for messages (on_demand.c). */
int nccl_p2p_submit(struct nccl_group *g, struct op *op);
/* Requests matches, takes replies, launches epochs, completes messages. An error fails the group.
 */
void nccl_p2p_progress(struct nccl_group *g);
/* Waits at most `ns` nanoseconds, less if the coordinator replies. */
void nccl_p2p_wait(struct nccl_group *g, uint64_t ns);
uint64_t nccl_p2p_launches(const struct nccl_group *g); /* how often messages were launched */
bool nccl_p2p_is_direct(const struct nccl_group *g);    /* some are launched at their call */
/* True if a message of a failed group is still on a GPU. */
bool nccl_p2p_is_busy(const struct nccl_group *g);
/* The group has failed, and none of its messages is awaited any more: gives the events back. */
void nccl_p2p_give_up(struct nccl_group *g);
void nccl_p2p_forget(struct op *op); /* takes the op's messages out of all queues and frees them */

/* The functions of the backend's table. */
int nccl_probe_message(void *group, uint32_t source, uint32_t tag,
                       struct collrun_envelope *envelope, uint32_t *from);
int nccl_check_receive(void *group, const struct collrun_call *call, int probes);
/* Withdraws the receives of an op, which can then be freed: OK; AGAIN, one of them is matched; or
 * the failure of the group. */
int nccl_p2p_withdraw(struct op *op);

/* Writes the error message of an op that timed out. */
void nccl_p2p_timeout_text(const struct op *op, char *out, size_t len);
/* As nccl_order, with the device entered; *error is CUDA's result. */
int nccl_p2p_order(const struct op *op, uint32_t device, cudaStream_t stream, cudaError_t *error);

#endif
