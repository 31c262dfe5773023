/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of the stand-in libcudart: device allocations and pinned host memory, registered by
 * address range. Functions return CUDA error codes.
 */
#ifndef FAKE_MEMORY_H
#define FAKE_MEMORY_H

#include "device.h"

/* len 0 gives NULL, as in CUDA. New memory is filled with garbage. */
int memory_alloc(int device, size_t len, void **ptr);
int memory_free(void *ptr);
/* The free and the total memory of a device. */
void memory_info(int device, size_t *available, size_t *total);

/* Registers pinned host memory; allocates it if *ptr is NULL. */
int memory_pin(int device, void **ptr, size_t len);
/* Unregisters it. `made`: memory_pin allocated it, and it is freed; must be correct. */
int memory_unpin(void *ptr, bool made);

#endif
