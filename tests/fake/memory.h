/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of the stand-in libcudart: device allocations and pinned host memory, each known by its
 * range. Functions return cuda error codes.
 */
#ifndef FAKE_MEMORY_H
#define FAKE_MEMORY_H

#include "device.h"

/* len 0 gives NULL, as CUDA does. New memory holds garbage on purpose. */
int memory_alloc(int device, size_t len, void **ptr);
int memory_free(void *ptr);
/* How much of a device is not allocated; how much it has. */
void memory_info(int device, size_t *available, size_t *total);

/* Pinned host memory: `ptr` NULL makes some. */
int memory_pin(int device, void **ptr, size_t len);
/* Forgets it; what memory_pin made is given back if `made`, which must be true of it. */
int memory_unpin(void *ptr, bool made);

#endif
