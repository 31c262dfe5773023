/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of the CUDA runtime that the backend uses, declared here so that the build does not need
 * CUDA. The lists are complete: a function that is not in CUDA_FUNCTIONS is not called. library.c
 * fills struct cuda_api from them, tests/gpu/check_api.c compares them with the real headers where
 * those are installed, and the stand-in libraries under tests/fake provide the same functions.
 *
 *     X(need, result, name, parameters)    need: MUST, or MAY: absent from older libraries
 */
#ifndef NCCL_CUDA_API_H
#define NCCL_CUDA_API_H

#include <stddef.h>

#define CUDA_CONSTANTS(X)                                                                          \
    X(cudaSuccess, 0)                                                                              \
    X(cudaErrorMemoryAllocation, 2)                                                                \
    X(cudaErrorNotReady, 600)                                                                      \
    X(cudaErrorNoDevice, 100)                                                                      \
    X(cudaErrorInsufficientDriver, 35)                                                             \
    X(cudaErrorStreamCaptureImplicit, 906)                                                         \
    X(cudaStreamNonBlocking, 1)                                                                    \
    X(cudaEventDisableTiming, 2)                                                                   \
    X(cudaHostAllocPortable, 1)                                                                    \
    X(cudaMemoryTypeDevice, 2)                                                                     \
    X(cudaMemoryTypeManaged, 3)

#define CUDA_COPY_KINDS(X)                                                                         \
    X(cudaMemcpyHostToDevice, 1)                                                                   \
    X(cudaMemcpyDeviceToHost, 2)                                                                   \
    X(cudaMemcpyDeviceToDevice, 3)                                                                 \
    X(cudaMemcpyDefault, 4)

#define CUDA_CAPTURE_STATUSES(X) X(cudaStreamCaptureStatusNone, 0)
#define CUDA_CAPTURE_MODES(X) X(cudaStreamCaptureModeRelaxed, 2)

struct cuda_pointer { /* struct cudaPointerAttributes of CUDA 11 and later */
    int type, device;
    void *device_pointer, *host_pointer;
    long reserved[8]; /* of CUDA 13 */
};

#ifndef CUDA_API_IS_REAL /* the real headers declare these */
typedef int cudaError_t; /* in CUDA an enum of the same size */
typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;
typedef void (*cudaHostFn_t)(void *data);
#define CUDA_CONSTANT(name, value) name = (value),
enum { CUDA_CONSTANTS(CUDA_CONSTANT) };
enum cudaMemcpyKind { CUDA_COPY_KINDS(CUDA_CONSTANT) };
enum cudaStreamCaptureStatus { CUDA_CAPTURE_STATUSES(CUDA_CONSTANT) };
enum cudaStreamCaptureMode { CUDA_CAPTURE_MODES(CUDA_CONSTANT) };
#undef CUDA_CONSTANT
#define cudaPointerAttributes cuda_pointer
#endif

#define CUDA_FUNCTIONS(X)                                                                          \
    X(MUST, cudaError_t, cudaRuntimeGetVersion, (int *version))                                    \
    X(MUST, cudaError_t, cudaDriverGetVersion, (int *version))                                     \
    X(MUST, const char *, cudaGetErrorString, (cudaError_t error))                                 \
    X(MUST, cudaError_t, cudaGetLastError, (void))                                                 \
    X(MUST, cudaError_t, cudaGetDeviceCount, (int *count))                                         \
    X(MUST, cudaError_t, cudaGetDevice, (int *device))                                             \
    X(MUST, cudaError_t, cudaSetDevice, (int device))                                              \
    X(MUST, cudaError_t, cudaDeviceSynchronize, (void))                                            \
    X(MUST, cudaError_t, cudaPointerGetAttributes,                                                 \
      (struct cudaPointerAttributes * attributes, const void *ptr))                                \
    X(MUST, cudaError_t, cudaDeviceGetPCIBusId, (char *id, int len, int device))                   \
    X(MUST, cudaError_t, cudaDeviceGetStreamPriorityRange, (int *least, int *greatest))            \
    X(MUST, cudaError_t, cudaStreamCreateWithFlags, (cudaStream_t * stream, unsigned int flags))   \
    X(MUST, cudaError_t, cudaStreamCreateWithPriority,                                             \
      (cudaStream_t * stream, unsigned int flags, int priority))                                   \
    X(MUST, cudaError_t, cudaStreamDestroy, (cudaStream_t stream))                                 \
    X(MUST, cudaError_t, cudaStreamIsCapturing,                                                    \
      (cudaStream_t stream, enum cudaStreamCaptureStatus * status))                                \
    X(MUST, cudaError_t, cudaThreadExchangeStreamCaptureMode, (enum cudaStreamCaptureMode * mode)) \
    X(MUST, cudaError_t, cudaStreamQuery, (cudaStream_t stream))                                   \
    X(MUST, cudaError_t, cudaStreamWaitEvent,                                                      \
      (cudaStream_t stream, cudaEvent_t event, unsigned int flags))                                \
    X(MUST, cudaError_t, cudaEventCreateWithFlags, (cudaEvent_t * event, unsigned int flags))      \
    X(MUST, cudaError_t, cudaEventRecord, (cudaEvent_t event, cudaStream_t stream))                \
    X(MUST, cudaError_t, cudaEventQuery, (cudaEvent_t event))                                      \
    X(MUST, cudaError_t, cudaEventDestroy, (cudaEvent_t event))                                    \
    X(MUST, cudaError_t, cudaMalloc, (void **ptr, size_t len))                                     \
    X(MUST, cudaError_t, cudaFree, (void *ptr))                                                    \
    X(MUST, cudaError_t, cudaHostAlloc, (void **ptr, size_t len, unsigned int flags))              \
    X(MUST, cudaError_t, cudaFreeHost, (void *ptr))                                                \
    X(MUST, cudaError_t, cudaMemcpyAsync,                                                          \
      (void *dst, const void *src, size_t len, enum cudaMemcpyKind kind, cudaStream_t stream))     \
    X(MUST, cudaError_t, cudaMemsetAsync, (void *ptr, int value, size_t len, cudaStream_t stream)) \
    X(MUST, cudaError_t, cudaLaunchHostFunc, (cudaStream_t stream, cudaHostFn_t fn, void *data))

#define CUDA_MEMBER(need, result, name, parameters) result(*name) parameters;
struct cuda_api {
    CUDA_FUNCTIONS(CUDA_MEMBER)
};
#undef CUDA_MEMBER

#endif
