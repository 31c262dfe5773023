/* SPDX-License-Identifier: Apache-2.0
 *
 * The kind of memory "hpu", by the functions of its runtime.
 */
#include "hccl.h"

#include "hpu.h"

#include <stdio.h>
#include <stdlib.h>

static int kind_failed(const struct collrun_services *s, int code, const char *what)
{
    return s->fail(s->ctx, code == HPU_OUT_OF_MEMORY ? COLLRUN_ERR_NO_MEMORY : COLLRUN_ERR_BACKEND,
                   "%s: %s", what, hpuGetErrorString(code));
}

static int kind_devices(const struct collrun_services *services, struct collrun_device *out,
                        uint32_t max, char *why, size_t len)
{
    int n = hpuHostCount();
    (void)services;
    for (uint32_t i = 0; i < max && i < (uint32_t)n; i++) {
        out[i] = (struct collrun_device){.model = "Pretend HPU"};
        snprintf(out[i].id, sizeof out[i].id, "hpu-%u", i);
        snprintf(out[i].cpus, sizeof out[i].cpus, "0");
    }
    if (n == 0)
        snprintf(why, len, "HPU_COUNT is not set");
    return n;
}

static int kind_open(const struct collrun_services *services, void **kind)
{
    int n = 0;
    hpuGetDeviceCount(&n);
    if (n == 0)
        return services->fail(services->ctx, COLLRUN_ERR_UNAVAILABLE, "this process sees no HPU");
    *kind = (void *)(uintptr_t)services;
    return COLLRUN_OK;
}

static int kind_locate(void *kind, const void *ptr, int32_t *device)
{
    (void)kind;
    *device = hpuPointerDevice(ptr);
    return *device >= 0;
}

/* On a stream of the copy's own. A deadline needs no care: copies of an HPU always end. */
static int kind_copy(void *kind, const struct collrun_memory_copy *copy)
{
    static _Thread_local void *stream;
    struct collrun_memory_copy c;
    COLLRUN_COPY(&c, copy);
    int device = hpuPointerDevice(c.dst);
    device = device >= 0 ? device : hpuPointerDevice(c.src);
    hpuSetDevice(c.stream_device >= 0 ? c.stream_device : device);
    int code = c.ordered ? hpuStreamSynchronize(c.stream) : 0;
    hpuSetDevice(device);
    if (code == 0 && !stream)
        code = hpuStreamCreateWithFlags(&stream, 0);
    if (code == 0)
        code = hpuMemcpyAsync(c.dst, c.src, c.len, 0, stream);
    if (code == 0)
        code = hpuStreamSynchronize(stream);
    return code == 0 ? COLLRUN_OK : kind_failed(kind, code, "copy");
}

/* An HPU reaches all memory of the host, as long as nothing moves it; plain memory does not. */
static int kind_host_alloc(void *kind, size_t len, void **ptr)
{
    *ptr = malloc(len);
    return *ptr ? COLLRUN_OK : kind_failed(kind, HPU_OUT_OF_MEMORY, "host memory");
}

static void kind_host_free(void *kind, void *ptr, size_t len)
{
    (void)kind;
    (void)len;
    free(ptr);
}

static int kind_alloc(void *kind, int32_t device, size_t len, void **ptr)
{
    int code = hpuSetDevice(device);
    code = code ? code : hpuMalloc(ptr, len);
    return code == 0 ? COLLRUN_OK : kind_failed(kind, code, "hpuMalloc");
}

static int kind_free(void *kind, void *ptr)
{
    int code = hpuFree(ptr);
    return code == 0 ? COLLRUN_OK : kind_failed(kind, code, "hpuFree");
}

static int kind_synchronize(void *kind, int32_t device)
{
    int code = hpuSetDevice(device);
    code = code ? code : hpuDeviceSynchronize();
    return code == 0 ? COLLRUN_OK : kind_failed(kind, code, "hpuDeviceSynchronize");
}

const struct collrun_memory_kind hccl_kind = {
    .size = sizeof hccl_kind,
    .name = "hpu",
    .title = "HPU",
    .mask = "HPU_VISIBLE_DEVICES",
    .devices = kind_devices,
    .open = kind_open,
    .locate = kind_locate,
    .copy = kind_copy,
    .host_alloc = kind_host_alloc,
    .host_free = kind_host_free,
    .alloc = kind_alloc,
    .free = kind_free,
    .synchronize = kind_synchronize,
};
