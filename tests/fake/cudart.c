/* SPDX-License-Identifier: Apache-2.0
 *
 * A stand-in for libcudart.so.13, without a GPU or NVIDIA code: devices and errors; calls.c has the
 * rest of the interface. Errors behave as in the real runtime: every function stores its result,
 * cudaGetLastError clears it, and an error that breaks a device persists.
 */
#include "cudart.h"

#include "capture.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { RUNTIME = 13000, MULTIPROCESSORS = 132, LEAST_PRIORITY = 0, GREATEST_PRIORITY = -5 };

static _Thread_local int current, last_error;
static _Atomic int broken[FAKE_GPUS_MAX];
static pthread_once_t counted = PTHREAD_ONCE_INIT;
static int ngpus, gpus[FAKE_GPUS_MAX];

static void count(void)
{
    ngpus = fake_visible(gpus);
}

int fake_current(void)
{
    return current;
}

int fake_gpu_of(int device)
{
    pthread_once(&counted, count);
    return device >= 0 && device < ngpus ? gpus[device] : -1;
}

void fake_break(int device, int code)
{
    int none = 0;
    if (atomic_compare_exchange_strong(&broken[device], &none, code))
        fake_log("libcudart", "device %d is broken: %s", device, cudaGetErrorName(code));
}

int fake_broken(int device)
{
    return atomic_load(&broken[device]);
}

int cuda_return(int code)
{
    if (code != cudaSuccess && code != cudaErrorNotReady)
        last_error = code;
    return code;
}

static bool is_query(const char *function)
{
    static const char *const names[] = {"cudaEventQuery", "cudaStreamQuery", "cudaGetDevice",
                                        "cudaSetDevice"};
    bool is = false;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        is = is || strcmp(function, names[i]) == 0;
    return is;
}

/* Conditions that stop every call: no driver, no device, an injected fault, a broken device, a host
 * function, a graph capture that the call would break.
 */
int cuda_enter(const char *function)
{
    int code;
    pthread_once(&counted, count);
    if (fake_setting("FAKE_CUDA_NO_DRIVER", 0))
        return cudaErrorInsufficientDriver;
    if (ngpus == 0)
        return cudaErrorNoDevice;
    if (stream_in_host_function) {
        fake_log("libcudart", "%s is called inside a host function", function);
        return cudaErrorNotPermitted;
    }
    if (fake_fault("FAKE_CUDA_FAULT", function, -1, &code))
        return code;
    if (!is_query(function))
        fake_await_frees();
    code = capture_check_call(function);
    return code ? code : atomic_load(&broken[current]);
}

/* ---- devices ---- */

int cudaGetDeviceCount(int *out)
{
    int code = cuda_enter("cudaGetDeviceCount");
    *out = code == cudaSuccess ? ngpus : 0;
    return cuda_return(code);
}

int cudaSetDevice(int device)
{
    int code = cuda_enter("cudaSetDevice");
    if (code == cudaSuccess && (device < 0 || device >= ngpus))
        code = cudaErrorInvalidDevice;
    if (code == cudaSuccess)
        current = device;
    return cuda_return(code);
}

int cudaInitDevice(int device, unsigned deviceFlags, unsigned flags)
{
    (void)deviceFlags, (void)flags;
    int code = cuda_enter("cudaInitDevice");
    return cuda_return(code ? code : fake_gpu_of(device) < 0 ? cudaErrorInvalidDevice : 0);
}

int cudaGetDevice(int *device)
{
    int code = cuda_enter("cudaGetDevice");
    *device = current;
    return cuda_return(code);
}

int cudaDeviceGetAttribute(int *value, int attribute, int device)
{
    int code = cuda_enter("cudaDeviceGetAttribute");
    if (code == cudaSuccess && fake_gpu_of(device) < 0)
        code = cudaErrorInvalidDevice;
    if (code != cudaSuccess)
        return cuda_return(code);
    switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
        *value = MULTIPROCESSORS;
        break;
    case cudaDevAttrPciBusId:
        *value = 0x10 + fake_gpu_of(device);
        break;
    case cudaDevAttrPciDeviceId:
    case cudaDevAttrPciDomainId:
    case cudaDevAttrComputeCapabilityMinor:
        *value = 0;
        break;
    case cudaDevAttrComputeCapabilityMajor:
        *value = 9;
        break;
    case cudaDevAttrHostNumaId:
        *value = -1;
        break;
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrStreamPrioritiesSupported:
    case cudaDevAttrCanUseHostPointerForRegisteredMem:
        *value = 1;
        break;
    default:
        fake_log("libcudart", "cudaDeviceGetAttribute: attribute %d is not implemented", attribute);
        code = cudaErrorInvalidValue;
    }
    return cuda_return(code);
}

int cudaDeviceGetPCIBusId(char *id, int len, int device)
{
    int code = cuda_enter("cudaDeviceGetPCIBusId");
    if (code == cudaSuccess && fake_gpu_of(device) < 0)
        code = cudaErrorInvalidDevice;
    if (code == cudaSuccess && len < 13)
        code = cudaErrorInvalidValue;
    if (code == cudaSuccess)
        fake_gpu_bus_id(fake_gpu_of(device), 4, id, (size_t)len);
    return cuda_return(code);
}

int cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    int code = cuda_enter("cudaDeviceGetStreamPriorityRange");
    if (least)
        *least = LEAST_PRIORITY;
    if (greatest)
        *greatest = GREATEST_PRIORITY;
    return cuda_return(code);
}

int cudaDeviceSynchronize(void)
{
    int code = cuda_enter("cudaDeviceSynchronize");
    if (code == cudaSuccess) {
        fake_drain(current);
        code = fake_broken(current);
    }
    return cuda_return(code);
}

int cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    int code = cuda_enter("cudaDeviceCanAccessPeer");
    if (code == cudaSuccess && (fake_gpu_of(device) < 0 || fake_gpu_of(peer) < 0))
        code = cudaErrorInvalidDevice;
    *can = code == cudaSuccess && device != peer;
    return cuda_return(code);
}

int cudaDeviceEnablePeerAccess(int peer, unsigned flags)
{
    int code = cuda_enter("cudaDeviceEnablePeerAccess");
    if (code == cudaSuccess && (fake_gpu_of(peer) < 0 || peer == current))
        code = cudaErrorInvalidDevice;
    return cuda_return(code == cudaSuccess && flags ? cudaErrorInvalidValue : code);
}

int cudaRuntimeGetVersion(int *version)
{
    *version = RUNTIME;
    return cudaSuccess;
}

int cudaDriverGetVersion(int *version)
{
    *version = fake_setting("FAKE_CUDA_NO_DRIVER", 0) ? 0 : RUNTIME;
    return cudaSuccess;
}

/* ---- errors ---- */

int cudaGetLastError(void)
{
    int code = last_error;
    last_error = cudaSuccess;
    return code;
}

int cudaPeekAtLastError(void)
{
    return last_error;
}

static const struct {
    int code;
    const char *name, *text;
} errors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorIllegalState, "cudaErrorIllegalState",
     "the operation cannot be performed in the present state"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress",
     "an illegal memory access was encountered"},
    {cudaErrorHostMemoryAlreadyRegistered, "cudaErrorHostMemoryAlreadyRegistered",
     "part or all of the requested memory range is already mapped"},
    {cudaErrorHostMemoryNotRegistered, "cudaErrorHostMemoryNotRegistered",
     "pointer does not correspond to a registered memory region"},
    {cudaErrorMisalignedAddress, "cudaErrorMisalignedAddress", "misaligned address"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorNotPermitted, "cudaErrorNotPermitted", "operation not permitted"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureImplicit, "cudaErrorStreamCaptureImplicit",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};

const char *cudaGetErrorName(int code)
{
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
        if (errors[i].code == code)
            return errors[i].name;
    return "unrecognized error code";
}

const char *cudaGetErrorString(int code)
{
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
        if (errors[i].code == code)
            return errors[i].text;
    return "unrecognized error code";
}
