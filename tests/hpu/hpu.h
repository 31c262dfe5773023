/* SPDX-License-Identifier: Apache-2.0
 *
 * libhpu: the runtime of HPUs, accelerators that do not exist. Its functions are CUDA's of the same
 * name, as far as a test needs them; all return 0, or a number for hpuGetErrorString.
 *
 *   - Memory of an HPU is a range of addresses that the host can neither read nor write. A second
 *     mapping of the same size, which hpuView gives, is what the "device" reads.
 *   - A stream is a thread that executes copies and fills in order, HPU_LAG microseconds late (0).
 *   - A host has HPU_COUNT HPUs (0), "hpu-0", "hpu-1", ... A process sees those that
 *     HPU_VISIBLE_DEVICES lists by number or name, else all.
 */
#ifndef TESTS_HPU_H
#define TESTS_HPU_H

#include <stddef.h>

enum { HPU_MAX = 16, HPU_OUT_OF_MEMORY = 1, HPU_INVALID = 2, HPU_NO_THREAD = 3 };

#pragma GCC visibility push(default)

int hpuHostCount(void);            /* of this host */
int hpuGetDeviceCount(int *count); /* that this process sees */
int hpuSetDevice(int device);      /* of the calling thread; 0 at first */
const char *hpuGetErrorString(int code);

int hpuMalloc(void **ptr, size_t len); /* on the device of the thread */
int hpuFree(void *ptr);                /* after all work on its device; NULL is OK */
int hpuPointerDevice(const void *ptr); /* -1: no memory of an HPU */
void *hpuView(const void *ptr);        /* where the device reads it; memory of the host: itself */

/* A stream of NULL is the default one of the thread's device. `kind` is ignored. As in CUDA, a copy
 * from memory of the host has read it when the function returns, and one to it is complete. */
int hpuStreamCreateWithFlags(void **stream, unsigned flags);
int hpuMemcpyAsync(void *to, const void *from, size_t len, int kind, void *stream);
int hpuMemsetAsync(void *ptr, int value, size_t len, void *stream);
int hpuStreamSynchronize(void *stream);
int hpuDeviceSynchronize(void);

#pragma GCC visibility pop

#endif
