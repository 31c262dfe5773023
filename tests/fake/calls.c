/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory, streams and events as the runtime exports them. Copies follow the real rules: pinned
 * memory is read and written when the stream reaches the copy; pageable memory is read and written
 * before the call returns. cudaFree and cudaFreeHost wait for the device, and other calls for them,
 * so memory must not be freed while a collective is stuck on it.
 */
#include "cudart.h"

#include "capture.h"

#include <stdlib.h>
#include <string.h>

/* ---- memory ---- */

int cudaMalloc(void **ptr, size_t len)
{
    int code = cuda_enter("cudaMalloc");
    return cuda_return(code ? code : memory_alloc(fake_current(), len, ptr));
}

int cudaFree(void *ptr)
{
    int code = cuda_enter("cudaFree");
    if (code || !ptr)
        return cuda_return(code);
    struct fake_place place = fake_find(ptr);
    if (place.type == cudaMemoryTypeDevice && place.base == ptr)
        fake_drain_alone(place.device);
    return cuda_return(memory_free(ptr));
}

int cudaMallocAsync(void **ptr, size_t len, struct CUstream_st *stream)
{
    int code = cuda_enter("cudaMallocAsync"), device = fake_stream_device(stream);
    if (!code && device < 0)
        code = cudaErrorInvalidResourceHandle;
    return cuda_return(code ? code : memory_alloc(device, len, ptr));
}

static void run_free(void *ptr)
{
    memory_free(ptr);
}

int cudaFreeAsync(void *ptr, struct CUstream_st *stream)
{
    int code = cuda_enter("cudaFreeAsync");
    if (code || !ptr)
        return cuda_return(code);
    if (fake_find(ptr).base != ptr)
        return cuda_return(cudaErrorInvalidValue);
    return cuda_return(fake_launch(stream, fake_stream_device(stream), run_free, ptr));
}

int cudaHostAlloc(void **ptr, size_t len, unsigned flags)
{
    int code = cuda_enter("cudaHostAlloc");
    if (!code && flags > 7)
        code = cudaErrorInvalidValue;
    void *made = NULL;
    if (!code && len)
        code = memory_pin(fake_current(), &made, len);
    if (!code)
        *ptr = made;
    return cuda_return(code);
}

int cudaMallocHost(void **ptr, size_t len)
{
    return cudaHostAlloc(ptr, len, 0);
}

int cudaFreeHost(void *ptr)
{
    int code = cuda_enter("cudaFreeHost");
    if (code || !ptr)
        return cuda_return(code);
    fake_drain_alone(fake_current());
    return cuda_return(memory_unpin(ptr, true));
}

int cudaHostRegister(void *ptr, size_t len, unsigned flags)
{
    (void)flags;
    int code = cuda_enter("cudaHostRegister");
    if (!code && (!ptr || !len))
        code = cudaErrorInvalidValue;
    return cuda_return(code ? code : memory_pin(fake_current(), &ptr, len));
}

int cudaHostUnregister(void *ptr)
{
    int code = cuda_enter("cudaHostUnregister");
    return cuda_return(code ? code : memory_unpin(ptr, false));
}

int cudaHostGetDevicePointer(void **device, void *host, unsigned flags)
{
    int code = cuda_enter("cudaHostGetDevicePointer");
    if (!code && (flags || fake_find(host).type != cudaMemoryTypeHost))
        code = cudaErrorInvalidValue;
    if (!code)
        *device = host;
    return cuda_return(code);
}

int cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *ptr)
{
    int code = cuda_enter("cudaPointerGetAttributes");
    if (code)
        return cuda_return(code);
    struct fake_place place = fake_find(ptr);
    if (!place.bytes) /* in a gap between allocations */
        place.type = cudaMemoryTypeUnregistered, place.device = -2;
    memset(attributes, 0, sizeof *attributes);
    attributes->type = place.type;
    attributes->device = place.device;
    if (place.type != cudaMemoryTypeUnregistered)
        attributes->devicePointer = (void *)ptr;
    if (place.type != cudaMemoryTypeDevice)
        attributes->hostPointer = (void *)ptr;
    return cudaSuccess;
}

int cudaMemGetInfo(size_t *available, size_t *total)
{
    int code = cuda_enter("cudaMemGetInfo");
    if (!code)
        memory_info(fake_current(), available, total);
    return cuda_return(code);
}

/* ---- copies ---- */

struct copy {
    char *to;
    const char *from; /* NULL: fill with `value` */
    size_t len;
    int value;
    char snapshot[]; /* the content of pageable memory */
};

static void run_copy(void *arg)
{
    struct copy *copy = arg;
    if (copy->from)
        memmove(copy->to, copy->from, copy->len);
    else
        memset(copy->to, copy->value, copy->len);
    free(copy);
}

/* Which ends of a copy are on a device, according to `kind`. */
static bool kind_allows(int kind, bool from_device, bool to_device)
{
    if (kind == cudaMemcpyDefault)
        return true;
    return (kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice) == from_device &&
           (kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice) == to_device;
}

/* The bytes of one end of a copy; false if it is on a device and not inside one allocation. */
static bool resolve(const void *ptr, size_t len, struct fake_place *place)
{
    *place = fake_find(ptr);
    if (place->type == cudaMemoryTypeUnregistered)
        place->bytes = (char *)ptr;
    else if (!place->bytes || place->left < len) {
        fake_log("libcudart", "%p + %zu is not inside an allocation of device %d", ptr, len,
                 place->device);
        return false;
    }
    return true;
}

static int copy(void *to, const void *from, size_t len, int kind, struct CUstream_st *stream,
                bool wait)
{
    struct fake_place out, in;
    struct CUstream_st *s = stream_get(stream);
    if (!s)
        return cudaErrorInvalidResourceHandle;
    int broken = capture_check_work(s);
    if (broken)
        return broken;
    if (!len)
        return cudaSuccess;
    if (!to || !from || kind < 0 || kind > cudaMemcpyDefault || !resolve(to, len, &out) ||
        !resolve(from, len, &in) ||
        !kind_allows(kind, in.type == cudaMemoryTypeDevice, out.type == cudaMemoryTypeDevice))
        return cudaErrorInvalidValue;
    bool pageable = in.type == cudaMemoryTypeUnregistered;
    struct copy *copy = malloc(sizeof *copy + (pageable ? len : 0));
    if (!copy)
        return cudaErrorMemoryAllocation;
    *copy =
        (struct copy){.to = out.bytes, .from = pageable ? copy->snapshot : in.bytes, .len = len};
    if (pageable)
        memcpy(copy->snapshot, from, len);
    uint64_t number = stream_push(s, run_copy, copy);
    if (!number) {
        free(copy);
        return cudaErrorMemoryAllocation;
    }
    if (wait || out.type == cudaMemoryTypeUnregistered)
        stream_wait(s, number);
    return fake_broken(stream_device(s));
}

int cudaMemcpy(void *to, const void *from, size_t len, int kind)
{
    int code = cuda_enter("cudaMemcpy");
    return cuda_return(code ? code : copy(to, from, len, kind, NULL, true));
}

int cudaMemcpyAsync(void *to, const void *from, size_t len, int kind, struct CUstream_st *stream)
{
    int code = cuda_enter("cudaMemcpyAsync");
    return cuda_return(code ? code : copy(to, from, len, kind, stream, false));
}

static int fill(void *ptr, int value, size_t len, struct CUstream_st *stream)
{
    struct fake_place place;
    struct CUstream_st *s = stream_get(stream);
    if (!s)
        return cudaErrorInvalidResourceHandle;
    int broken = capture_check_work(s);
    if (broken)
        return broken;
    if (!len)
        return cudaSuccess;
    if (!resolve(ptr, len, &place) || place.type == cudaMemoryTypeUnregistered)
        return cudaErrorInvalidValue;
    struct copy *copy = malloc(sizeof *copy);
    if (!copy)
        return cudaErrorMemoryAllocation;
    *copy = (struct copy){.to = place.bytes, .len = len, .value = value};
    if (stream_push(s, run_copy, copy))
        return cudaSuccess;
    free(copy);
    return cudaErrorMemoryAllocation;
}

int cudaMemset(void *ptr, int value, size_t len)
{
    int code = cuda_enter("cudaMemset");
    return cuda_return(code ? code : fill(ptr, value, len, NULL));
}

int cudaMemsetAsync(void *ptr, int value, size_t len, struct CUstream_st *stream)
{
    int code = cuda_enter("cudaMemsetAsync");
    return cuda_return(code ? code : fill(ptr, value, len, stream));
}

/* ---- streams ---- */

int cudaStreamCreateWithPriority(struct CUstream_st **stream, unsigned flags, int priority)
{
    int code = cuda_enter("cudaStreamCreateWithPriority");
    if (!code && flags > cudaStreamNonBlocking)
        code = cudaErrorInvalidValue;
    struct CUstream_st *made = code ? NULL : stream_new(fake_current(), flags, priority);
    if (!code && !made)
        code = cudaErrorMemoryAllocation;
    if (!code)
        *stream = made;
    return cuda_return(code);
}

int cudaStreamCreateWithFlags(struct CUstream_st **stream, unsigned flags)
{
    return cudaStreamCreateWithPriority(stream, flags, 0);
}

int cudaStreamCreate(struct CUstream_st **stream)
{
    return cudaStreamCreateWithPriority(stream, 0, 0);
}

/* The stream, or the error in *code. */
static struct CUstream_st *enter_stream(const char *function, struct CUstream_st *stream, int *code)
{
    struct CUstream_st *s = NULL;
    *code = cuda_enter(function);
    if (!*code && !(s = stream_get(stream)))
        *code = cudaErrorInvalidResourceHandle;
    if (s && !*code)
        *code = fake_broken(stream_device(s));
    return s;
}

int cudaStreamDestroy(struct CUstream_st *stream)
{
    int code;
    struct CUstream_st *s = enter_stream("cudaStreamDestroy", stream, &code);
    if (s && s != stream)
        return cuda_return(cudaErrorInvalidResourceHandle);
    if (s)
        stream_destroy(s);
    return cuda_return(code);
}

int cudaStreamSynchronize(struct CUstream_st *stream)
{
    int code;
    struct CUstream_st *s = enter_stream("cudaStreamSynchronize", stream, &code);
    if (!code) {
        stream_wait(s, stream_last(s));
        code = fake_broken(stream_device(s));
    }
    return cuda_return(code);
}

int cudaStreamQuery(struct CUstream_st *stream)
{
    int code;
    struct CUstream_st *s = enter_stream("cudaStreamQuery", stream, &code);
    if (!code && !stream_done(s, stream_last(s)))
        code = cudaErrorNotReady;
    return cuda_return(code);
}

int cudaStreamWaitEvent(struct CUstream_st *stream, struct CUevent_st *event, unsigned flags)
{
    int code;
    struct CUstream_st *s = enter_stream("cudaStreamWaitEvent", stream, &code);
    if (!code && flags > 1)
        code = cudaErrorInvalidValue;
    if (!code && !event_valid(event))
        code = cudaErrorInvalidResourceHandle;
    if (!code)
        code = capture_check_work(s);
    if (!code && !event_order(s, event))
        code = cudaErrorMemoryAllocation;
    return cuda_return(code);
}

int cudaStreamGetPriority(struct CUstream_st *stream, int *priority)
{
    int code;
    struct CUstream_st *s = enter_stream("cudaStreamGetPriority", stream, &code);
    if (!code)
        *priority = stream_priority(s);
    return cuda_return(code);
}

int cudaStreamGetFlags(struct CUstream_st *stream, unsigned *flags)
{
    int code;
    struct CUstream_st *s = enter_stream("cudaStreamGetFlags", stream, &code);
    if (!code)
        *flags = stream_flags(s);
    return cuda_return(code);
}

int cudaStreamGetDevice(struct CUstream_st *stream, int *device)
{
    int code;
    struct CUstream_st *s = enter_stream("cudaStreamGetDevice", stream, &code);
    if (!code)
        *device = stream_device(s);
    return cuda_return(code);
}

struct host_function {
    void (*run)(void *arg);
    void *arg;
};

static void run_host_function(void *arg)
{
    struct host_function *f = arg;
    stream_in_host_function = true;
    f->run(f->arg);
    stream_in_host_function = false;
    free(f);
}

int cudaLaunchHostFunc(struct CUstream_st *stream, void (*run)(void *), void *arg)
{
    int code;
    struct CUstream_st *s = enter_stream("cudaLaunchHostFunc", stream, &code);
    if (!code)
        code = capture_check_work(s);
    struct host_function *f = code ? NULL : malloc(sizeof *f);
    if (code)
        return cuda_return(code);
    if (f)
        *f = (struct host_function){run, arg};
    if (!f || !stream_push(s, run_host_function, f)) {
        free(f);
        code = cudaErrorMemoryAllocation;
    }
    return cuda_return(code);
}

/* ---- events ---- */

int cudaEventCreateWithFlags(struct CUevent_st **event, unsigned flags)
{
    int code = cuda_enter("cudaEventCreateWithFlags");
    if (!code && flags > (cudaEventBlockingSync | cudaEventDisableTiming))
        code = cudaErrorInvalidValue;
    struct CUevent_st *made = code ? NULL : event_new(fake_current(), flags);
    if (!code && !made)
        code = cudaErrorMemoryAllocation;
    if (!code)
        *event = made;
    return cuda_return(code);
}

int cudaEventCreate(struct CUevent_st **event)
{
    return cudaEventCreateWithFlags(event, 0);
}

static int enter_event(const char *function, const struct CUevent_st *event)
{
    int code = cuda_enter(function);
    return code ? code : event_valid(event) ? cudaSuccess : cudaErrorInvalidResourceHandle;
}

int cudaEventRecord(struct CUevent_st *event, struct CUstream_st *stream)
{
    int code = enter_event("cudaEventRecord", event);
    struct CUstream_st *s = code ? NULL : stream_get(stream);
    if (!code && (!s || stream_device(s) != event_device(event)))
        code = cudaErrorInvalidResourceHandle;
    if (!code)
        code = capture_check_work(s);
    if (!code && !event_record(event, s))
        code = cudaErrorMemoryAllocation;
    return cuda_return(code);
}

int cudaEventRecordWithFlags(struct CUevent_st *event, struct CUstream_st *stream, unsigned flags)
{
    return flags > 1 ? cuda_return(cudaErrorInvalidValue) : cudaEventRecord(event, stream);
}

int cudaEventQuery(struct CUevent_st *event)
{
    int code = enter_event("cudaEventQuery", event);
    if (!code && !(code = fake_broken(event_device(event))) && !event_done(event))
        code = cudaErrorNotReady;
    return cuda_return(code);
}

int cudaEventSynchronize(struct CUevent_st *event)
{
    int code = enter_event("cudaEventSynchronize", event);
    if (!code) {
        event_wait(event);
        code = fake_broken(event_device(event));
    }
    return cuda_return(code);
}

int cudaEventElapsedTime(float *ms, struct CUevent_st *start, struct CUevent_st *end)
{
    int code = enter_event("cudaEventElapsedTime", start);
    if (!code && (!event_valid(end) || !event_timed(start) || !event_timed(end) ||
                  event_time(start) == 0 || event_time(end) == 0))
        code = cudaErrorInvalidResourceHandle;
    if (!code && (!event_done(start) || !event_done(end)))
        code = cudaErrorNotReady;
    if (!code)
        *ms = (float)((event_time(end) - event_time(start)) * 1000);
    return cuda_return(code);
}

int cudaEventDestroy(struct CUevent_st *event)
{
    int code = enter_event("cudaEventDestroy", event);
    if (!code)
        event_destroy(event);
    return cuda_return(code);
}
