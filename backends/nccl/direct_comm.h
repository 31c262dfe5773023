/* SPDX-License-Identifier: Apache-2.0
 *
 * The communicators of direct messages: one of two ranks for each direction, from one GPU of the
 * group to another. The sender is its rank 0, the receiver its rank 1.
 *
 * In each process that has one of the two GPUs, or both, it is a struct nccl_group without an
 * engine's handle, a *part* of the handle for messages (nccl_group.parts). So it is formed, aborted
 * and closed as the communicators of a handle are, and fails with its whole.
 */
#ifndef NCCL_DIRECT_COMM_H
#define NCCL_DIRECT_COMM_H

#include <stdint.h>

struct nccl_group;

/* The part for a direction; NULL: this process has not begun to form it. */
struct nccl_group *direct_comm_get(const struct nccl_group *whole, uint32_t from, uint32_t to);
/* Makes it, without a communicator. One thread at a time. NULL: the whole has failed; or none of
 * the two GPUs is of this process. */
struct nccl_group *direct_comm_new(struct nccl_group *whole, uint32_t from, uint32_t to);
/* The group's services end for all parts; see group_end_services. */
void direct_comm_end_services(struct nccl_group *whole);
/* Finalizes all, in the same order on all ranks, and frees them. */
void direct_comm_close_all(struct nccl_group *whole);

#endif
