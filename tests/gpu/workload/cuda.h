/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions of the CUDA runtime that this workload calls, loaded by dlopen: it is built without
 * CUDA, and runs on the stand-in library or on a real one.
 */
#ifndef GPU_CUDA_H
#define GPU_CUDA_H

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CUDA_COPY = 4 /* cudaMemcpyDefault */, CUDA_NON_BLOCKING = 1, CUDA_CAPTURE_GLOBAL = 0 };

struct cuda {
    int (*set_device)(int device);
    int (*get_device)(int *device);
    int (*malloc)(void **ptr, size_t len);
    int (*free)(void *ptr);
    int (*host_alloc)(void **ptr, size_t len, unsigned flags);
    int (*memcpy_async)(void *dst, const void *src, size_t len, int kind, void *stream);
    int (*memset_async)(void *ptr, int value, size_t len, void *stream);
    int (*stream_create)(void **stream, unsigned flags);
    int (*stream_synchronize)(void *stream);
    int (*launch_host)(void *stream, void (*function)(void *data), void *data);
    int (*mem_get_info)(size_t *available, size_t *total);
    const char *(*error_string)(int error);
    int (*begin_capture)(void *stream, int mode);
    int (*end_capture)(void *stream, void **graph);
};

extern struct cuda cuda;

int cuda_load(void);
/* Ends the rank if the call failed. */
void cuda_must(int error, const char *what);
void *cuda_new(int device, size_t len);
void *cuda_new_stream(int device);
/* On a separate stream; waits. */
void cuda_copy(int device, void *dst, const void *src, size_t len);

#endif
