/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions of the kind of memory "cuda": the memory of a pointer, copies between GPU and host,
 * pinned host memory, plain GPU memory. They need the CUDA runtime, not NCCL, and no group.
 */
#ifndef NCCL_CUDA_MEMORY_H
#define NCCL_CUDA_MEMORY_H

#include <collrun/backend.h>

int cuda_memory_open(const struct collrun_services *services, void **kind);
void cuda_memory_close(void *kind);
/* Memory that CUDA manages counts as a GPU's, and as that of no device. */
int cuda_memory_locate(void *kind, const void *ptr, int32_t *device);
int cuda_memory_copy(void *kind, const struct collrun_memory_copy *copy);
int cuda_memory_host_alloc(void *kind, size_t len, void **ptr);
void cuda_memory_host_free(void *kind, void *ptr, size_t len);
int cuda_memory_alloc(void *kind, int32_t device, size_t len, void **ptr);
int cuda_memory_free(void *kind, void *ptr);
int cuda_memory_synchronize(void *kind, int32_t device);
int cuda_memory_event_record(void *kind, int32_t device, void *stream, void **event);
int cuda_memory_event_query(void *kind, void *event);
void cuda_memory_event_free(void *kind, void *event);
/* UNSUPPORTED if the stream captures a graph. */
int cuda_memory_stream_check(void *kind, int32_t device, void *stream);

#endif
