/* SPDX-License-Identifier: Apache-2.0
 *
 * GPU memory, as far as the engine has to know of it: whether a pointer is one, and copies between
 * it and pinned host memory. The CUDA runtime is found with dlopen when a rank that owns GPUs first
 * asks; where there is none, all memory is the host's.
 */
#ifndef ENGINE_GPU_H
#define ENGINE_GPU_H

#include <collrun/backend.h>

/* *device (may be NULL): the CUDA device that has it; -1 = none, or whichever touches it. */
enum collrun_memory gpu_memory_kind(const void *ptr, int *device);

/* dst and src may be anywhere. Waits until it is done or `deadline_ns` (CLOCK_MONOTONIC) passes. 0,
 * or a status with its cause stored. */
int gpu_copy(void *dst, const void *src, size_t len, uint64_t deadline_ns);
/* The same, after what `stream` of the device that has the memory holds now, which is waited for
 * even if len is 0. */
int gpu_copy_after(void *stream, void *dst, const void *src, size_t len, uint64_t deadline_ns);

/* Host memory that a GPU copies from and to at full speed. Blocks are kept for reuse. NULL: none
 * left. */
void *gpu_pinned_take(size_t len);
void gpu_pinned_give(void *ptr, size_t len);

#endif
