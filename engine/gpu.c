/* SPDX-License-Identifier: Apache-2.0
 *
 * The CUDA runtime, loaded once per process and never unloaded.
 */
#include "gpu.h"

#include "base/loop.h"
#include "error.h"
#include "gpu_api.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_DEVICES = 64, SPIN_NS = 20000, LONGEST_NAP_NS = 200000 };

#define GPU_MEMBER(result, name, parameters) result(*name) parameters;
struct runtime {
    bool found;
    GPU_FUNCTIONS(GPU_MEMBER)
    pthread_mutex_t lock;               /* of what follows */
    cudaStream_t streams[MOST_DEVICES]; /* made when first used */
};

static struct runtime *runtime(void);

/* ---- finding it ---- */

#define GPU_ROW(result, name, parameters) {#name, offsetof(struct runtime, name)},
static const struct {
    const char *name;
    size_t offset;
} symbols[] = {GPU_FUNCTIONS(GPU_ROW)};

static void *open_library(void)
{
    static const char *const names[] = {"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0",
                                        "libcudart.so", "/usr/local/cuda/lib64/libcudart.so"};
    const char *named = getenv("COLLRUN_LIBCUDART");
    if (named && *named)
        return dlopen(named, RTLD_NOW | RTLD_LOCAL);
    void *object = NULL;
    for (size_t i = 0; !object && i < sizeof names / sizeof *names; i++)
        object = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    return object;
}

static struct runtime the_runtime = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void find(void)
{
    struct runtime *r = &the_runtime;
    void *object = open_library();
    bool all = object != NULL;
    for (size_t i = 0; all && i < sizeof symbols / sizeof *symbols; i++) {
        void *address = dlsym(object, symbols[i].name);
        memcpy((char *)r + symbols[i].offset, &address, sizeof address);
        all = address != NULL;
    }
    r->found = all;
}

/* NULL: there is none here. */
static struct runtime *runtime(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find);
    return the_runtime.found ? &the_runtime : NULL;
}

/* ---- pointers ---- */

/* Whether it is memory of a GPU, or managed by CUDA. */
static bool find_pointer(struct runtime *r, const void *ptr, struct gpu_pointer *out)
{
    if (r->cudaPointerGetAttributes(out, ptr) != cudaSuccess) {
        r->cudaGetLastError();
        return false;
    }
    return out->type == cudaMemoryTypeDevice || out->type == cudaMemoryTypeManaged;
}

static bool is_on_gpu(struct runtime *r, const void *ptr, int *device)
{
    struct gpu_pointer p = {0};
    bool known = find_pointer(r, ptr, &p);
    *device = known ? p.device : *device;
    return known;
}

enum collrun_memory gpu_memory_kind(const void *ptr, int *device)
{
    struct runtime *r = runtime();
    struct gpu_pointer p = {0};
    bool known = r && ptr && find_pointer(r, ptr, &p);
    if (device)
        *device = known && p.type == cudaMemoryTypeDevice ? p.device : -1;
    return known ? COLLRUN_MEMORY_CUDA : COLLRUN_MEMORY_HOST;
}

/* ---- copies ---- */

static int failed(struct runtime *r, cudaError_t error)
{
    r->cudaGetLastError();
    return error_cause(COLLRUN_ERR_BACKEND, "copy between GPU and host: %s",
                       r->cudaGetErrorString(error));
}

static cudaError_t own_stream(struct runtime *r, int device, cudaStream_t *out)
{
    cudaError_t error = cudaSuccess;
    pthread_mutex_lock(&r->lock);
    if (!r->streams[device])
        error = r->cudaStreamCreateWithFlags(&r->streams[device], cudaStreamNonBlocking);
    *out = r->streams[device];
    pthread_mutex_unlock(&r->lock);
    return error;
}

static int await_event(struct runtime *r, cudaEvent_t event, uint64_t deadline_ns)
{
    uint64_t since = now_ns();
    for (;;) {
        cudaError_t error = r->cudaEventQuery(event);
        uint64_t now = now_ns(), waited = now - since;
        if (error == cudaSuccess)
            return COLLRUN_OK;
        if (error != cudaErrorNotReady)
            return failed(r, error);
        if (now >= deadline_ns)
            return error_cause(COLLRUN_ERR_TIMEOUT, "the GPU did not get to it in time");
        uint64_t nap = waited / 10 < LONGEST_NAP_NS ? waited / 10 : LONGEST_NAP_NS;
        if (waited > SPIN_NS)
            nanosleep(&(struct timespec){.tv_nsec = (long)nap}, NULL);
    }
}

struct copy {
    void *dst;
    const void *src;
    size_t len;
    bool ordered;
    void *stream; /* after which, if it is ordered */
    uint64_t deadline_ns;
};

/* On the device that is current. */
static int copy_here(struct runtime *r, int device, const struct copy *c)
{
    cudaStream_t stream = NULL;
    cudaEvent_t event = NULL;
    cudaError_t error = r->cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    if (error != cudaSuccess)
        return failed(r, error);
    error = own_stream(r, device, &stream);
    if (error == cudaSuccess && c->ordered)
        error = r->cudaEventRecord(event, c->stream);
    if (error == cudaSuccess && c->ordered)
        error = r->cudaStreamWaitEvent(stream, event, 0);
    if (error == cudaSuccess)
        error = r->cudaMemcpyAsync(c->dst, c->src, c->len, CUDA_MEMCPY_DEFAULT, stream);
    if (error == cudaSuccess)
        error = r->cudaEventRecord(event, stream);
    int rc = error == cudaSuccess ? await_event(r, event, c->deadline_ns) : failed(r, error);
    r->cudaEventDestroy(event);
    return rc;
}

static int copy(const struct copy *c)
{
    struct runtime *r = runtime();
    int device = 0, before = 0;
    if ((!c->len && !c->ordered) || c->dst == c->src)
        return COLLRUN_OK;
    if (!r || (!is_on_gpu(r, c->dst, &device) && !is_on_gpu(r, c->src, &device))) {
        memmove(c->dst, c->src, c->len);
        return COLLRUN_OK;
    }
    if (device < 0 || device >= MOST_DEVICES)
        return error_cause(COLLRUN_ERR_UNSUPPORTED, "GPU %d: more than %d", device, MOST_DEVICES);
    r->cudaGetDevice(&before);
    r->cudaSetDevice(device);
    int rc = copy_here(r, device, c);
    r->cudaSetDevice(before);
    return rc;
}

int gpu_copy(void *dst, const void *src, size_t len, uint64_t deadline_ns)
{
    return copy(&(struct copy){.dst = dst, .src = src, .len = len, .deadline_ns = deadline_ns});
}

int gpu_copy_after(void *stream, void *dst, const void *src, size_t len, uint64_t deadline_ns)
{
    return copy(&(struct copy){.dst = dst,
                               .src = src,
                               .len = len,
                               .ordered = true,
                               .stream = stream,
                               .deadline_ns = deadline_ns});
}

/* ---- pinned memory ---- */

/* Blocks of powers of two; what is given back is kept, up to a limit. Pinning takes milliseconds.
 */
#define LARGEST_KEPT ((size_t)64 << 20)
enum { SMALLEST_SHIFT = 12, SHIFTS = 64 };

struct block {
    struct block *next;
};

static struct {
    pthread_mutex_t lock;
    struct block *blocks[SHIFTS];
    size_t kept; /* bytes */
} pinned = {.lock = PTHREAD_MUTEX_INITIALIZER};

static unsigned shift_of(size_t len)
{
    unsigned shift = SMALLEST_SHIFT;
    while (shift < SHIFTS - 1 && (size_t)1 << shift < len)
        shift++;
    return shift;
}

void *gpu_pinned_take(size_t len)
{
    struct runtime *r = runtime();
    unsigned shift = shift_of(len);
    pthread_mutex_lock(&pinned.lock);
    void *block = pinned.blocks[shift];
    if (block) {
        pinned.blocks[shift] = pinned.blocks[shift]->next;
        pinned.kept -= (size_t)1 << shift;
    }
    pthread_mutex_unlock(&pinned.lock);
    if (!block && r &&
        r->cudaHostAlloc(&block, (size_t)1 << shift, cudaHostAllocPortable) != cudaSuccess) {
        r->cudaGetLastError();
        block = NULL;
    }
    return block;
}

void gpu_pinned_give(void *ptr, size_t len)
{
    size_t size = (size_t)1 << shift_of(len);
    if (!ptr)
        return;
    pthread_mutex_lock(&pinned.lock);
    bool keep = pinned.kept + size <= LARGEST_KEPT;
    if (keep) {
        struct block *block = ptr;
        block->next = pinned.blocks[shift_of(len)];
        pinned.blocks[shift_of(len)] = block;
        pinned.kept += size;
    }
    pthread_mutex_unlock(&pinned.lock);
    if (!keep)
        the_runtime.cudaFreeHost(ptr);
}
