/* SPDX-License-Identifier: Apache-2.0
 *
 * The exports of the stand-in for libcudart.so.13, written from NVIDIA's documentation of the
 * CUDA 13 runtime API. Error codes and enumerators are plain ints, as in the binary interface; the
 * names are CUDA's.
 */
#ifndef FAKE_CUDART_ABI_H
#define FAKE_CUDART_ABI_H

#include <stddef.h>

struct CUstream_st;
struct CUevent_st;

enum {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInsufficientDriver = 35,
    cudaErrorNoDevice = 100,
    cudaErrorInvalidDevice = 101,
    cudaErrorInvalidResourceHandle = 400,
    cudaErrorIllegalState = 401,
    cudaErrorNotReady = 600,
    cudaErrorIllegalAddress = 700,
    cudaErrorHostMemoryAlreadyRegistered = 712,
    cudaErrorHostMemoryNotRegistered = 713,
    cudaErrorMisalignedAddress = 716,
    cudaErrorLaunchFailure = 719,
    cudaErrorNotPermitted = 800,
    cudaErrorNotSupported = 801,
    cudaErrorStreamCaptureUnsupported = 900,
    cudaErrorStreamCaptureInvalidated = 901,
    cudaErrorStreamCaptureImplicit = 906,
    cudaErrorUnknown = 999
};

enum { cudaMemcpyHostToHost, cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost };
enum { cudaMemcpyDeviceToDevice = 3, cudaMemcpyDefault = 4 };
enum { cudaStreamNonBlocking = 1, cudaEventBlockingSync = 1, cudaEventDisableTiming = 2 };
enum { cudaStreamCaptureStatusNone, cudaStreamCaptureStatusActive };
enum { cudaStreamCaptureStatusInvalidated = 2 };
enum { cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal };
enum { cudaStreamCaptureModeRelaxed = 2 };
enum { cudaMemoryTypeUnregistered, cudaMemoryTypeHost, cudaMemoryTypeDevice };
enum {
    cudaDevAttrMultiProcessorCount = 16,
    cudaDevAttrPciBusId = 33,
    cudaDevAttrPciDeviceId = 34,
    cudaDevAttrUnifiedAddressing = 41,
    cudaDevAttrPciDomainId = 50,
    cudaDevAttrComputeCapabilityMajor = 75,
    cudaDevAttrComputeCapabilityMinor = 76,
    cudaDevAttrStreamPrioritiesSupported = 78,
    cudaDevAttrCanUseHostPointerForRegisteredMem = 91,
    cudaDevAttrHostNumaId = 134
};

struct cudaPointerAttributes {
    int type, device;
    void *devicePointer, *hostPointer;
    long reserved[8];
};

#pragma GCC visibility push(default)

int cudaGetDeviceCount(int *count);
int cudaSetDevice(int device);
int cudaGetDevice(int *device);
int cudaInitDevice(int device, unsigned deviceFlags, unsigned flags);
int cudaDeviceGetAttribute(int *value, int attribute, int device);
int cudaDeviceGetPCIBusId(char *id, int len, int device);
int cudaDeviceGetStreamPriorityRange(int *least, int *greatest);
int cudaDeviceSynchronize(void);
int cudaDeviceCanAccessPeer(int *can, int device, int peer);
int cudaDeviceEnablePeerAccess(int peer, unsigned flags);
int cudaMemGetInfo(size_t *available, size_t *total);
int cudaRuntimeGetVersion(int *version);
int cudaDriverGetVersion(int *version);

int cudaGetLastError(void);
int cudaPeekAtLastError(void);
const char *cudaGetErrorName(int code);
const char *cudaGetErrorString(int code);

int cudaMalloc(void **ptr, size_t len);
int cudaFree(void *ptr);
int cudaMallocAsync(void **ptr, size_t len, struct CUstream_st *stream);
int cudaFreeAsync(void *ptr, struct CUstream_st *stream);
int cudaHostAlloc(void **ptr, size_t len, unsigned flags);
int cudaMallocHost(void **ptr, size_t len);
int cudaFreeHost(void *ptr);
int cudaHostRegister(void *ptr, size_t len, unsigned flags);
int cudaHostUnregister(void *ptr);
int cudaHostGetDevicePointer(void **device, void *host, unsigned flags);
int cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *ptr);

int cudaMemcpy(void *to, const void *from, size_t len, int kind);
int cudaMemcpyAsync(void *to, const void *from, size_t len, int kind, struct CUstream_st *stream);
int cudaMemset(void *ptr, int value, size_t len);
int cudaMemsetAsync(void *ptr, int value, size_t len, struct CUstream_st *stream);

int cudaStreamCreate(struct CUstream_st **stream);
int cudaStreamCreateWithFlags(struct CUstream_st **stream, unsigned flags);
int cudaStreamCreateWithPriority(struct CUstream_st **stream, unsigned flags, int priority);
int cudaStreamDestroy(struct CUstream_st *stream);
int cudaStreamSynchronize(struct CUstream_st *stream);
int cudaStreamQuery(struct CUstream_st *stream);
int cudaStreamWaitEvent(struct CUstream_st *stream, struct CUevent_st *event, unsigned flags);
int cudaStreamGetPriority(struct CUstream_st *stream, int *priority);
int cudaStreamGetFlags(struct CUstream_st *stream, unsigned *flags);
int cudaStreamGetDevice(struct CUstream_st *stream, int *device);
int cudaStreamBeginCapture(struct CUstream_st *stream, int mode);
int cudaStreamEndCapture(struct CUstream_st *stream, void **graph);
int cudaStreamIsCapturing(struct CUstream_st *stream, int *status);
int cudaThreadExchangeStreamCaptureMode(int *mode);
int cudaLaunchHostFunc(struct CUstream_st *stream, void (*run)(void *), void *arg);

int cudaEventCreate(struct CUevent_st **event);
int cudaEventCreateWithFlags(struct CUevent_st **event, unsigned flags);
int cudaEventRecord(struct CUevent_st *event, struct CUstream_st *stream);
int cudaEventRecordWithFlags(struct CUevent_st *event, struct CUstream_st *stream, unsigned flags);
int cudaEventQuery(struct CUevent_st *event);
int cudaEventSynchronize(struct CUevent_st *event);
int cudaEventElapsedTime(float *ms, struct CUevent_st *start, struct CUevent_st *end);
int cudaEventDestroy(struct CUevent_st *event);

#pragma GCC visibility pop
#endif
