/* SPDX-License-Identifier: Apache-2.0
 *
 * What the engine itself uses of the CUDA runtime: telling whose memory a pointer is, and copying
 * between the two. Declared here so that nothing of CUDA is needed to build; tests/gpu/check_api.c
 * holds the list against the real header where that is installed.
 *
 *     X(result, name, parameters)
 */
#ifndef ENGINE_GPU_API_H
#define ENGINE_GPU_API_H

#include <stddef.h>

#define GPU_CONSTANTS(X)                                                                           \
    X(cudaSuccess, 0)                                                                              \
    X(cudaErrorNotReady, 600)                                                                      \
    X(cudaMemoryTypeDevice, 2)                                                                     \
    X(cudaMemoryTypeManaged, 3)                                                                    \
    X(cudaStreamNonBlocking, 1)                                                                    \
    X(cudaEventDisableTiming, 2)                                                                   \
    X(cudaHostAllocPortable, 1)                                                                    \
    X(cudaMemcpyDefault, 4)

struct gpu_pointer { /* struct cudaPointerAttributes of CUDA 11 and later */
    int type, device;
    void *device_pointer, *host_pointer;
    long reserved[8]; /* of CUDA 13 */
};

#ifndef CUDA_API_IS_REAL
typedef int cudaError_t; /* an enum there, of the same size */
typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;
#define cudaPointerAttributes gpu_pointer
#define GPU_CONSTANT(name, value) name = (value),
enum { GPU_CONSTANTS(GPU_CONSTANT) };
#undef GPU_CONSTANT
enum cudaMemcpyKind { CUDA_MEMCPY_DEFAULT = cudaMemcpyDefault };
#endif

#define GPU_FUNCTIONS(X)                                                                           \
    X(const char *, cudaGetErrorString, (cudaError_t error))                                       \
    X(cudaError_t, cudaGetLastError, (void))                                                       \
    X(cudaError_t, cudaGetDevice, (int *device))                                                   \
    X(cudaError_t, cudaSetDevice, (int device))                                                    \
    X(cudaError_t, cudaPointerGetAttributes,                                                       \
      (struct cudaPointerAttributes * attributes, const void *ptr))                                \
    X(cudaError_t, cudaStreamCreateWithFlags, (cudaStream_t * stream, unsigned int flags))         \
    X(cudaError_t, cudaStreamWaitEvent,                                                            \
      (cudaStream_t stream, cudaEvent_t event, unsigned int flags))                                \
    X(cudaError_t, cudaEventCreateWithFlags, (cudaEvent_t * event, unsigned int flags))            \
    X(cudaError_t, cudaEventRecord, (cudaEvent_t event, cudaStream_t stream))                      \
    X(cudaError_t, cudaEventQuery, (cudaEvent_t event))                                            \
    X(cudaError_t, cudaEventDestroy, (cudaEvent_t event))                                          \
    X(cudaError_t, cudaMemcpyAsync,                                                                \
      (void *dst, const void *src, size_t len, enum cudaMemcpyKind kind, cudaStream_t stream))     \
    X(cudaError_t, cudaHostAlloc, (void **ptr, size_t len, unsigned int flags))                    \
    X(cudaError_t, cudaFreeHost, (void *ptr))

#endif
