/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory for collrun_alloc.
 */
#ifndef NCCL_MEMORY_H
#define NCCL_MEMORY_H

#include <stddef.h>
#include <stdint.h>

struct nccl_group;

/* The operations of the backend's table. */
int nccl_alloc(void *group, size_t len, void **ptr);
int nccl_alloc_on(void *group, uint32_t device, size_t len, void **ptr);
int nccl_free(void *group, void *ptr);

/* Registers what was allocated before the group had communicators. With the group's lock. */
void memory_register_all(struct nccl_group *g);
/* Frees what the workload has not freed. */
void memory_fini(struct nccl_group *g);

#endif
