/* SPDX-License-Identifier: Apache-2.0
 *
 * The inside of the stand-in libcudart that its own files and the stand-in libnccl share: where the
 * bytes behind a pointer are, and work on streams. libnccl finds these functions in libcudart.so.13
 * because it is linked against it, as the real one is against the driver.
 *
 * Device memory: a device pointer lies in a range without any access rights, so that a host that
 * reads through it crashes; the bytes are at a fixed distance from it. Allocations have gaps
 * between them; what is not inside one is an invalid address.
 *
 * Streams: a queue with a thread each. Work starts when it is first in the queue and a random
 * moment has passed; so what an event does not order comes in any order.
 */
#ifndef FAKE_DEVICE_H
#define FAKE_DEVICE_H

#include "cudart_abi.h"
#include "host.h"

#include <stdint.h>

#pragma GCC visibility push(default)

struct fake_place {
    int type;    /* cudaMemoryType... */
    int device;  /* ordinal in this process; that which was current, for pinned memory */
    char *bytes; /* where the host of this stand-in may touch them; NULL if unregistered */
    char *base;  /* of the allocation, as the program knows it */
    size_t left; /* bytes from the pointer to the end of the allocation */
};
struct fake_place fake_find(const void *ptr);

/* The ordinal that the calling thread has set; the GPU of the machine behind an ordinal. */
int fake_current(void);
int fake_gpu_of(int device);
/* The device of a stream (NULL: the default stream, of the current device); -1: no stream. */
int fake_stream_device(struct CUstream_st *stream);
/* Adds work. The device must be the stream's, as for a kernel; cuda error codes. */
int fake_launch(struct CUstream_st *stream, int device, void (*run)(void *arg), void *arg);
/* Makes later work of `stream` wait for what `other` has now. */
int fake_order(struct CUstream_st *stream, struct CUstream_st *other);
/* Waits for all streams of the device. */
void fake_drain(int device);
/* The device is broken from here on, as after an illegal address; every call on it says so. */
void fake_break(int device, int code);
int fake_broken(int device);

#pragma GCC visibility pop
#endif
