/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory for collrun_alloc, and memory that is given back.
 */
#ifndef NCCL_MEMORY_H
#define NCCL_MEMORY_H

#include "library.h"

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

/* Memory that the program, or the engine, gives back. cudaFree, cudaFreeHost and ncclMemFree wait
 * for all kernels of the GPU, and meanwhile the driver lets no thread launch, allocate or record an
 * event. If one of these kernels waits for a rank, and that rank for a launch of this one, none of
 * them ends. So memory is kept until no operation is in flight in this process, and freed while
 * none can be launched. */

struct context;

enum free_kind { FREE_DEVICE, FREE_HOST };

/* The operations in flight are those of these contexts. Without any, memory is freed at once. */
void frees_watch(struct context *context);
void frees_unwatch(struct context *context);
/* Frees the memory now or later. `ordinal`: the CUDA device. `nccl`: it is of ncclMemAlloc; else
 * NULL. */
void frees_add(enum free_kind kind, void *ptr, int ordinal, const struct cuda_api *cuda,
               const struct nccl_api *nccl);
/* An operation has ended: frees what is kept, if it can be. */
void frees_sweep(void);
/* There is no memory: frees what is kept, and waits for the GPUs. False: there is nothing. */
bool frees_all(void);

#endif
