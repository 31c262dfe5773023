/* SPDX-License-Identifier: Apache-2.0
 *
 * Internals of the stand-in libcudart that the stand-in libnccl uses as well: the bytes behind a
 * pointer, and work on streams. libnccl is linked against libcudart.so.13, as the real one is
 * against the driver.
 *
 *   - Device memory: a device pointer is in an address range without access rights, so a host that
 *     reads through it crashes; the bytes are at a fixed distance. There are gaps between
 *     allocations; an address in a gap is invalid.
 *   - Streams: each is a queue with a thread. Work starts when it is first in the queue and a
 *     random delay has passed, so work that no event orders runs in any order.
 */
#ifndef FAKE_DEVICE_H
#define FAKE_DEVICE_H

#include "cudart_abi.h"
#include "host.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)

struct fake_place {
    int type;    /* cudaMemoryType... */
    int device;  /* ordinal in this process; for pinned memory the one that was current */
    char *bytes; /* host-accessible; NULL if unregistered */
    char *base;  /* of the allocation, as the program sees it */
    size_t left; /* bytes from the pointer to the end of the allocation */
};
struct fake_place fake_find(const void *ptr);

/* The ordinal that the calling thread has set; the GPU of the machine that an ordinal means. */
int fake_current(void);
int fake_gpu_of(int device);
/* The device of a stream (NULL: the default stream of the current device); -1: not a stream. */
int fake_stream_device(struct CUstream_st *stream);
/* Adds work. The device must be the stream's, as for a kernel. Returns CUDA error codes. */
int fake_launch(struct CUstream_st *stream, int device, void (*run)(void *arg), void *arg);
/* Makes later work of `stream` wait for the work that `other` has now. */
int fake_order(struct CUstream_st *stream, struct CUstream_st *other);
/* Waits for all streams of the device. */
void fake_drain(int device);
/* The same before memory is freed: calls that do more than query wait meanwhile. */
void fake_drain_alone(int device);
void fake_await_frees(void);
/* Memory of a device that the library takes for its own use; false: there is not enough. Release
 * takes NULL, and does not wait for the device. */
bool fake_reserve(int device, size_t len, void **ptr);
void fake_release(void *ptr);
/* Breaks the device, as an illegal address does: every later call on it fails. */
void fake_break(int device, int code);
int fake_broken(int device);

#pragma GCC visibility pop
#endif
