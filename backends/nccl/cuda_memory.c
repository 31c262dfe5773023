/* SPDX-License-Identifier: Apache-2.0
 *
 * One stream per device, made when it is first used, carries the copies. A copy is waited for by
 * polling an event: spinning at first, then between other threads that are ready, then with naps,
 * to which the kernel adds 50 us.
 */
#include "cuda_memory.h"

#include "capture.h"
#include "context.h"
#include "library.h"
#include "memory.h"

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>

enum { MOST_DEVICES = 64, SPIN_NS = 20000, YIELD_NS = 1000000, LONGEST_NAP_NS = 200000 };

struct cuda_memory {
    const struct collrun_services *services;
    struct cuda_api cuda;
    pthread_mutex_t lock;               /* of `streams` */
    cudaStream_t streams[MOST_DEVICES]; /* never destroyed: the runtime is never unloaded */
};

int cuda_memory_open(const struct collrun_services *services, void **kind)
{
    char why[512];
    struct cuda_memory *m = calloc(1, sizeof *m);
    if (!m)
        return services->fail(services->ctx, COLLRUN_ERR_NO_MEMORY, "out of memory");
    if (library_load_cuda(&m->cuda, why, sizeof why) != 0) {
        free(m);
        return services->fail(services->ctx, COLLRUN_ERR_UNAVAILABLE, "%s", why);
    }
    m->services = services;
    pthread_mutex_init(&m->lock, NULL);
    *kind = m;
    return COLLRUN_OK;
}

void cuda_memory_close(void *kind)
{
    struct cuda_memory *m = kind;
    pthread_mutex_destroy(&m->lock);
    free(m);
}

static int cuda_memory_failed(const struct cuda_memory *m, cudaError_t error, const char *what)
{
    m->cuda.cudaGetLastError(); /* clears it: a later call would return it */
    return m->services->fail(m->services->ctx, COLLRUN_ERR_BACKEND, "%s: %s", what,
                             m->cuda.cudaGetErrorString(error));
}

/* ---- pointers ---- */

int cuda_memory_locate(void *kind, const void *ptr, int32_t *device)
{
    const struct cuda_memory *m = kind;
    struct cuda_pointer p = {0};
    if (m->cuda.cudaPointerGetAttributes((struct cudaPointerAttributes *)&p, ptr) != cudaSuccess) {
        m->cuda.cudaGetLastError();
        return 0;
    }
    *device = p.type == cudaMemoryTypeDevice ? p.device : -1;
    return p.type == cudaMemoryTypeDevice || p.type == cudaMemoryTypeManaged;
}

/* ---- copies ---- */

static cudaError_t cuda_memory_stream(struct cuda_memory *m, int device, cudaStream_t *out)
{
    cudaError_t error = cudaSuccess;
    pthread_mutex_lock(&m->lock);
    if (!m->streams[device])
        error = m->cuda.cudaStreamCreateWithFlags(&m->streams[device], cudaStreamNonBlocking);
    *out = m->streams[device];
    pthread_mutex_unlock(&m->lock);
    return error;
}

static int cuda_memory_await(const struct cuda_memory *m, cudaEvent_t event, uint64_t deadline_ns)
{
    uint64_t since = m->services->now_ns();
    for (;;) {
        cudaError_t error = m->cuda.cudaEventQuery(event);
        uint64_t now = m->services->now_ns(), waited = now - since;
        if (error == cudaSuccess)
            return COLLRUN_OK;
        if (error != cudaErrorNotReady)
            return cuda_memory_failed(m, error, "copy between GPU and host");
        if (now >= deadline_ns)
            return m->services->fail(m->services->ctx, COLLRUN_ERR_TIMEOUT, "the copy timed out");
        if (waited > YIELD_NS)
            context_sleep_ns(waited / 10 < LONGEST_NAP_NS ? waited / 10 : LONGEST_NAP_NS);
        else if (waited > SPIN_NS)
            sched_yield();
    }
}

static int cuda_memory_enter(const struct cuda_memory *m, int device)
{
    int before = device;
    m->cuda.cudaGetDevice(&before);
    if (before != device)
        m->cuda.cudaSetDevice(device);
    return before;
}

/* Makes `stream`, of the device that is current, wait for the work that the copy's stream holds. */
static cudaError_t cuda_memory_order(const struct cuda_memory *m, int device, cudaStream_t stream,
                                     const struct collrun_memory_copy *c)
{
    const struct cuda_api *cuda = &m->cuda;
    cudaEvent_t event = NULL;
    int before = cuda_memory_enter(m, c->stream_device >= 0 ? c->stream_device : device);
    cudaError_t error = cuda->cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    if (error == cudaSuccess)
        error = cuda->cudaEventRecord(event, c->stream);
    cuda_memory_enter(m, before);
    if (error == cudaSuccess)
        error = cuda->cudaStreamWaitEvent(stream, event, 0);
    if (event)
        cuda->cudaEventDestroy(event);
    return error;
}

/* On the device that is current. */
static int cuda_memory_copy_here(struct cuda_memory *m, int device,
                                 const struct collrun_memory_copy *c)
{
    const struct cuda_api *cuda = &m->cuda;
    cudaStream_t stream = NULL;
    cudaEvent_t event = NULL;
    cudaError_t error = cuda->cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    if (error != cudaSuccess)
        return cuda_memory_failed(m, error, "copy between GPU and host");
    error = cuda_memory_stream(m, device, &stream);
    if (error == cudaSuccess && c->ordered)
        error = cuda_memory_order(m, device, stream, c);
    if (error == cudaSuccess)
        error = cuda->cudaMemcpyAsync(c->dst, c->src, c->len, cudaMemcpyDefault, stream);
    if (error == cudaSuccess)
        error = cuda->cudaEventRecord(event, stream);
    int status = error == cudaSuccess ? cuda_memory_await(m, event, c->deadline_ns)
                                      : cuda_memory_failed(m, error, "copy between GPU and host");
    cuda->cudaEventDestroy(event);
    return status;
}

int cuda_memory_copy(void *kind, const struct collrun_memory_copy *copy)
{
    struct cuda_memory *m = kind;
    struct collrun_memory_copy c;
    struct cuda_pointer p = {0};
    COLLRUN_COPY(&c, copy);
    int32_t ignored;
    const void *on_gpu = cuda_memory_locate(m, c.dst, &ignored) ? c.dst : c.src;
    cudaError_t error =
        m->cuda.cudaPointerGetAttributes((struct cudaPointerAttributes *)&p, on_gpu);
    if (error != cudaSuccess)
        return cuda_memory_failed(m, error, "copy between GPU and host");
    if (p.device < 0 || p.device >= MOST_DEVICES)
        return m->services->fail(m->services->ctx, COLLRUN_ERR_UNSUPPORTED, "GPU %d: more than %d",
                                 p.device, MOST_DEVICES);
    const enum cudaStreamCaptureMode mode = capture_relax(&m->cuda);
    int before = cuda_memory_enter(m, p.device);
    int status = cuda_memory_copy_here(m, p.device, &c);
    cuda_memory_enter(m, before);
    capture_restore(&m->cuda, mode);
    return status;
}

/* ---- memory ---- */

static int cuda_memory_current(const struct cuda_memory *m)
{
    int device = 0;
    m->cuda.cudaGetDevice(&device);
    return device;
}

int cuda_memory_host_alloc(void *kind, size_t len, void **ptr)
{
    const struct cuda_memory *m = kind;
    const enum cudaStreamCaptureMode mode = capture_relax(&m->cuda);
    cudaError_t error = m->cuda.cudaHostAlloc(ptr, len, cudaHostAllocPortable);
    if (error == cudaErrorMemoryAllocation && frees_all())
        error = m->cuda.cudaHostAlloc(ptr, len, cudaHostAllocPortable);
    capture_restore(&m->cuda, mode);
    return error == cudaSuccess ? COLLRUN_OK : cuda_memory_failed(m, error, "cudaHostAlloc");
}

void cuda_memory_host_free(void *kind, void *ptr, size_t len)
{
    const struct cuda_memory *m = kind;
    (void)len;
    const enum cudaStreamCaptureMode mode = capture_relax(&m->cuda);
    frees_add(FREE_HOST, ptr, cuda_memory_current(m), &m->cuda, NULL);
    capture_restore(&m->cuda, mode);
}

int cuda_memory_alloc(void *kind, int32_t device, size_t len, void **ptr)
{
    const struct cuda_memory *m = kind;
    const enum cudaStreamCaptureMode mode = capture_relax(&m->cuda);
    int before = cuda_memory_enter(m, device);
    cudaError_t error = m->cuda.cudaMalloc(ptr, len);
    if (error == cudaErrorMemoryAllocation && frees_all())
        error = m->cuda.cudaMalloc(ptr, len);
    capture_restore(&m->cuda, mode);
    int status = COLLRUN_OK;
    if (error == cudaErrorMemoryAllocation) {
        m->cuda.cudaGetLastError();
        status = m->services->fail(m->services->ctx, COLLRUN_ERR_NO_MEMORY,
                                   "out of memory on GPU %d: no %zu bytes are free", device, len);
    } else if (error != cudaSuccess) {
        status = cuda_memory_failed(m, error, "cudaMalloc");
    }
    cuda_memory_enter(m, before);
    return status;
}

int cuda_memory_free(void *kind, void *ptr)
{
    const struct cuda_memory *m = kind;
    const enum cudaStreamCaptureMode mode = capture_relax(&m->cuda);
    frees_add(FREE_DEVICE, ptr, cuda_memory_current(m), &m->cuda, NULL);
    capture_restore(&m->cuda, mode);
    return COLLRUN_OK;
}

int cuda_memory_synchronize(void *kind, int32_t device)
{
    const struct cuda_memory *m = kind;
    int before = cuda_memory_enter(m, device);
    cudaError_t error = m->cuda.cudaDeviceSynchronize();
    int status =
        error == cudaSuccess ? COLLRUN_OK : cuda_memory_failed(m, error, "cudaDeviceSynchronize");
    cuda_memory_enter(m, before);
    return status;
}

/* ---- events ---- */

int cuda_memory_event_record(void *kind, int32_t device, void *stream, void **event)
{
    const struct cuda_memory *m = kind;
    cudaEvent_t made = NULL;
    int before = cuda_memory_enter(m, device);
    cudaError_t error = m->cuda.cudaEventCreateWithFlags(&made, cudaEventDisableTiming);
    if (error == cudaSuccess)
        error = m->cuda.cudaEventRecord(made, stream);
    cuda_memory_enter(m, before);
    if (error == cudaSuccess) {
        *event = made;
        return COLLRUN_OK;
    }
    if (made)
        m->cuda.cudaEventDestroy(made);
    return cuda_memory_failed(m, error, "order after the caller's stream");
}

int cuda_memory_event_query(void *kind, void *event)
{
    const struct cuda_memory *m = kind;
    const enum cudaStreamCaptureMode mode = capture_relax(&m->cuda);
    cudaError_t error = m->cuda.cudaEventQuery(event);
    capture_restore(&m->cuda, mode);
    if (error == cudaErrorNotReady)
        return COLLRUN_AGAIN;
    return error == cudaSuccess ? COLLRUN_OK
                                : cuda_memory_failed(m, error, "order after the caller's stream");
}

void cuda_memory_event_free(void *kind, void *event)
{
    const struct cuda_memory *m = kind;
    m->cuda.cudaEventDestroy(event);
}

/* ---- capture ---- */

/* CUDA tells whether a stream captures that waits for the default stream. */
int cuda_memory_stream_check(void *kind, int32_t device, void *stream)
{
    const struct cuda_memory *m = kind;
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    const bool enters = !stream && device >= 0;
    int before = enters ? cuda_memory_enter(m, device) : 0;
    cudaError_t error = m->cuda.cudaStreamIsCapturing(stream, &status);
    if (enters)
        cuda_memory_enter(m, before);
    if (error == cudaSuccess && status == cudaStreamCaptureStatusNone)
        return COLLRUN_OK;
    if (error == cudaSuccess || error == cudaErrorStreamCaptureImplicit) {
        m->cuda.cudaGetLastError();
        return m->services->fail(m->services->ctx, COLLRUN_ERR_UNSUPPORTED,
                                 "%s captures a CUDA graph, and operations of collrun cannot be "
                                 "captured: the host takes part in each. Call it outside of the "
                                 "capture, between the graphs",
                                 stream ? "the stream"
                                        : "a stream that the default stream waits for");
    }
    return cuda_memory_failed(m, error, "order after the caller's stream");
}
