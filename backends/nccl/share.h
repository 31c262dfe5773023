/* SPDX-License-Identifier: Apache-2.0
 *
 * The option `share`: the communicators of a group are split from those of its parent, and share
 * their resources.
 */
#ifndef NCCL_SHARE_H
#define NCCL_SHARE_H

#include <stdint.h>

struct nccl_group;

/* Enters the family of the parent, a handle for collectives of the same GPUs. Refuses, with the
 * message stored, what cannot share: an old NCCL, other GPUs, or other options of connections. */
int share_join(struct nccl_group *g, struct nccl_group *parent);
/* Makes the group's communicators, as comm_init does, from those of its parent. All ranks of the
 * parent call; nothing is on its communicators. */
int share_split(struct nccl_group *g, uint64_t deadline_ns);

#endif
