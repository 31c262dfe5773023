/* SPDX-License-Identifier: Apache-2.0
 *
 * The stand-ins for libcudart and libnvidia-ml enforce CUDA's rules: each rule in
 * tests/fake/README.md is broken here once, and followed once.
 */
#include "fake_procs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>

/* The result of the body is the result of the test. */
static int run(void (*body)(struct procs *, int rank))
{
    struct procs *procs;
    int status = procs_run(&procs, 1, "", body);
    procs_free(procs);
    return status;
}

static void clear_environment(void)
{
    static const char *const names[] = {"FAKE_CUDA_DEVICES",   "CUDA_VISIBLE_DEVICES",
                                        "FAKE_CUDA_NO_DRIVER", "FAKE_CUDA_DELAY_US",
                                        "FAKE_CUDA_FAULT",     "FAKE_NVML_XID"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        unsetenv(names[i]);
}

static int setup(void **state)
{
    (void)state;
    clear_environment();
    return 0;
}

/* ---- devices ---- */

static void sees_none(struct procs *procs, int rank)
{
    int n = 7;
    (void)procs, (void)rank;
    MUST_BE(fake.cudaGetDeviceCount(&n), cudaErrorNoDevice);
    MUST_BE(n, 0);
    MUST_BE(fake.cudaGetLastError(), cudaErrorNoDevice);
    MUST_BE(fake.cudaGetLastError(), cudaSuccess);
}

static void sees_no_driver(struct procs *procs, int rank)
{
    int n;
    (void)procs, (void)rank;
    MUST_BE(fake.cudaGetDeviceCount(&n), cudaErrorInsufficientDriver);
    MUST_BE(fake.nvmlInit_v2(), NVML_ERROR_DRIVER_NOT_LOADED);
}

static void sees_three(struct procs *procs, int rank)
{
    int n;
    char id[32];
    (void)procs, (void)rank;
    MUST_BE(fake.cudaGetDeviceCount(&n), cudaSuccess);
    MUST_BE(n, 3);
    const char *wanted[] = {"0000:15:00.0", "0000:11:00.0", "0000:13:00.0"};
    for (int device = 0; device < 3; device++) {
        MUST_BE(fake.cudaDeviceGetPCIBusId(id, sizeof id, device), cudaSuccess);
        MUST(!strcmp(id, wanted[device]));
    }
    MUST_BE(fake.cudaSetDevice(3), cudaErrorInvalidDevice);
    MUST_BE(fake.cudaPeekAtLastError(), cudaErrorInvalidDevice);
}

static void the_mask_selects_devices(void **state)
{
    (void)state;
    setenv("FAKE_CUDA_DEVICES", "0", 1);
    assert_int_equal(run(sees_none), 0);
    setenv("FAKE_CUDA_NO_DRIVER", "1", 1);
    assert_int_equal(run(sees_no_driver), 0);
    clear_environment();
    setenv("CUDA_VISIBLE_DEVICES",
           "5,GPU-fa4e0000-0000-4000-8000-000000000001,GPU-fa4e0000-0000-4000-8000-000000000003,"
           "99,0",
           1);
    assert_int_equal(run(sees_three), 0);
}

/* ---- memory ---- */

static void reads_device_memory(struct procs *procs, int rank)
{
    void *ptr;
    (void)procs, (void)rank;
    MUST_BE(fake.cudaMalloc(&ptr, 100), cudaSuccess);
    MUST(*(volatile char *)ptr == 0);
}

static void keeps_to_allocations(struct procs *procs, int rank)
{
    char *a, *b, host[256], *pinned;
    size_t available, total, before;
    struct cudaPointerAttributes attributes;
    (void)procs, (void)rank;
    MUST_BE(fake.cudaMemGetInfo(&before, &total), cudaSuccess);
    MUST_BE(fake.cudaSetDevice(2), cudaSuccess);
    MUST_BE(fake.cudaMalloc((void **)&a, 100), cudaSuccess);
    MUST_BE(fake.cudaMalloc((void **)&b, 100), cudaSuccess);
    MUST_BE(fake.cudaMemcpy(host, a, 101, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
    MUST_BE(fake.cudaMemcpy(a + 512, host, 1, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    MUST_BE(fake.cudaMemcpy(a + 1, host, 99, cudaMemcpyHostToDevice), cudaSuccess);
    MUST_BE(fake.cudaMemcpy(b, a, 100, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    MUST_BE(fake.cudaMemcpy(b, a, 100, cudaMemcpyDefault), cudaSuccess);
    MUST_BE(fake.cudaPointerGetAttributes(&attributes, b + 99), cudaSuccess);
    MUST_BE(attributes.type, cudaMemoryTypeDevice);
    MUST_BE(attributes.device, 2);
    MUST_BE(fake.cudaHostAlloc((void **)&pinned, 100, 0), cudaSuccess);
    pinned[99] = 1; /* the host has access */
    MUST_BE(fake.cudaPointerGetAttributes(&attributes, pinned), cudaSuccess);
    MUST_BE(attributes.type, cudaMemoryTypeHost);
    MUST_BE(fake.cudaPointerGetAttributes(&attributes, host), cudaSuccess);
    MUST_BE(attributes.type, cudaMemoryTypeUnregistered);
    MUST_BE(fake.cudaFree(a + 1), cudaErrorInvalidValue);
    MUST_BE(fake.cudaFree(a), cudaSuccess);
    MUST_BE(fake.cudaFree(a), cudaErrorInvalidValue);
    MUST_BE(fake.cudaMemcpy(host, a, 1, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
    MUST_BE(fake.cudaFree(b), cudaSuccess);
    MUST_BE(fake.cudaFreeHost(pinned), cudaSuccess);
    MUST_BE(fake.cudaMemGetInfo(&available, &total), cudaSuccess);
    MUST_BE((long)available, (long)before);
    MUST_BE(fake.cudaMalloc((void **)&a, total + 1), cudaErrorMemoryAllocation);
}

static void new_memory_is_garbage(struct procs *procs, int rank)
{
    unsigned char *ptr, host[64];
    (void)procs, (void)rank;
    MUST_BE(fake.cudaMalloc((void **)&ptr, sizeof host), cudaSuccess);
    MUST_BE(fake.cudaMemcpy(host, ptr, sizeof host, cudaMemcpyDeviceToHost), cudaSuccess);
    for (size_t i = 0; i < sizeof host; i++)
        MUST(host[i] != 0);
}

static void device_memory_is_out_of_reach(void **state)
{
    (void)state;
    int status = run(reads_device_memory);
    /* a sanitizer turns the signal into an exit */
    assert_true((WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV) ||
                (WIFEXITED(status) && WEXITSTATUS(status) != 0));
    assert_int_equal(run(keeps_to_allocations), 0);
    assert_int_equal(run(new_memory_is_garbage), 0);
}

/* ---- streams and events ---- */

enum { TRIES = 150 };

struct two_streams {
    struct CUstream_st *writer, *reader;
    struct CUevent_st *event;
    int *device, *pinned;
};

static void open_streams(struct two_streams *t, unsigned flags)
{
    MUST_BE(fake.cudaStreamCreateWithFlags(&t->writer, flags), cudaSuccess);
    MUST_BE(fake.cudaStreamCreateWithFlags(&t->reader, flags), cudaSuccess);
    MUST_BE(fake.cudaEventCreateWithFlags(&t->event, cudaEventDisableTiming), cudaSuccess);
    MUST_BE(fake.cudaMalloc((void **)&t->device, sizeof(int)), cudaSuccess);
    MUST_BE(fake.cudaHostAlloc((void **)&t->pinned, 2 * sizeof(int), 0), cudaSuccess);
}

/* How often the second stream does not read what the first one writes. */
static int count_stale(const struct two_streams *t, bool with_event)
{
    int stale = 0;
    for (int i = 1; i <= TRIES; i++) {
        t->pinned[0] = i;
        t->pinned[1] = -1;
        MUST_BE(fake.cudaMemcpyAsync(t->device, t->pinned, sizeof(int), cudaMemcpyHostToDevice,
                                     t->writer),
                cudaSuccess);
        if (with_event) {
            MUST_BE(fake.cudaEventRecord(t->event, t->writer), cudaSuccess);
            MUST_BE(fake.cudaStreamWaitEvent(t->reader, t->event, 0), cudaSuccess);
        }
        MUST_BE(fake.cudaMemcpyAsync(t->pinned + 1, t->device, sizeof(int), cudaMemcpyDeviceToHost,
                                     t->reader),
                cudaSuccess);
        MUST_BE(fake.cudaStreamSynchronize(t->writer), cudaSuccess);
        MUST_BE(fake.cudaStreamSynchronize(t->reader), cudaSuccess);
        stale += t->pinned[1] != i;
    }
    return stale;
}

static void orders_by_events(struct procs *procs, int rank)
{
    struct two_streams t;
    (void)procs, (void)rank;
    open_streams(&t, cudaStreamNonBlocking);
    MUST(!PROCS_MAY_RACE || count_stale(&t, false) > 0);
    MUST_BE(count_stale(&t, true), 0);
    t.writer = NULL; /* the default stream does not wait for nonblocking ones, nor they for it */
    MUST(!PROCS_MAY_RACE || count_stale(&t, false) > 0);
}

static void default_stream_orders(struct procs *procs, int rank)
{
    struct two_streams t;
    (void)procs, (void)rank;
    open_streams(&t, 0);
    MUST(!PROCS_MAY_RACE || count_stale(&t, false) > 0);
    struct CUstream_st *own = t.writer;
    t.writer = NULL;
    MUST_BE(count_stale(&t, false), 0);
    t.writer = own;
    t.reader = NULL;
    MUST_BE(count_stale(&t, false), 0);
}

static void pinned_is_read_late(struct procs *procs, int rank)
{
    struct two_streams t;
    int late = 0, pageable, got;
    (void)procs, (void)rank;
    open_streams(&t, cudaStreamNonBlocking);
    for (int i = 0; i < TRIES; i++) {
        pageable = i;
        MUST_BE(fake.cudaMemcpyAsync(t.device, &pageable, sizeof(int), cudaMemcpyHostToDevice,
                                     t.writer),
                cudaSuccess);
        pageable = -1;
        MUST_BE(fake.cudaMemcpyAsync(&got, t.device, sizeof(int), cudaMemcpyDeviceToHost, t.writer),
                cudaSuccess);
        MUST_BE(got, i); /* read before the call returns, and written before it returns */
        *t.pinned = i;
        MUST_BE(
            fake.cudaMemcpyAsync(t.device, t.pinned, sizeof(int), cudaMemcpyHostToDevice, t.writer),
            cudaSuccess);
        *t.pinned = -1;
        MUST_BE(fake.cudaStreamSynchronize(t.writer), cudaSuccess);
        MUST_BE(fake.cudaMemcpy(&got, t.device, sizeof(int), cudaMemcpyDeviceToHost), cudaSuccess);
        late += got != i;
    }
    MUST(late > 0);
}

static void streams_are_ordered_by_events_alone(void **state)
{
    (void)state;
    setenv("FAKE_CUDA_DELAY_US", "200", 1);
    assert_int_equal(run(orders_by_events), 0);
    assert_int_equal(run(default_stream_orders), 0);
    if (PROCS_MAY_RACE)
        assert_int_equal(run(pinned_is_read_late), 0);
}

static void refuses_wrong_handles(struct procs *procs, int rank)
{
    struct CUstream_st *s;
    struct CUevent_st *e;
    float ms;
    (void)procs, (void)rank;
    MUST_BE(fake.cudaSetDevice(1), cudaSuccess);
    MUST_BE(fake.cudaStreamCreateWithFlags(&s, 0), cudaSuccess);
    MUST_BE(fake.cudaSetDevice(0), cudaSuccess);
    MUST_BE(fake.cudaEventCreateWithFlags(&e, 0), cudaSuccess);
    MUST_BE(fake.cudaEventRecord(e, s), cudaErrorInvalidResourceHandle); /* two devices */
    MUST_BE(fake.cudaEventQuery(e), cudaSuccess);                        /* never recorded */
    MUST_BE(fake.cudaStreamWaitEvent(s, e, 0), cudaSuccess);             /* across devices */
    MUST_BE(fake.cudaEventElapsedTime(&ms, e, e), cudaErrorInvalidResourceHandle);
    MUST_BE(fake.cudaEventRecord(e, NULL), cudaSuccess);
    MUST_BE(fake.cudaEventSynchronize(e), cudaSuccess);
    MUST_BE(fake.cudaEventElapsedTime(&ms, e, e), cudaSuccess);
    MUST_BE(fake.cudaEventDestroy(e), cudaSuccess);
    MUST_BE(fake.cudaEventDestroy(e), cudaErrorInvalidResourceHandle);
    MUST_BE(fake.cudaStreamDestroy(s), cudaSuccess);
    MUST_BE(fake.cudaStreamQuery(s), cudaErrorInvalidResourceHandle);
    MUST_BE(fake.cudaStreamDestroy(NULL), cudaErrorInvalidResourceHandle);
}

static void wrong_handles_are_refused(void **state)
{
    (void)state;
    assert_int_equal(run(refuses_wrong_handles), 0);
}

/* ---- calls that wait, calls that are forbidden ---- */

static void call_cuda(void *arg)
{
    procs_pause_ms(30);
    *(int *)arg = fake.cudaGetDevice(&(int){0});
}

static void free_waits(struct procs *procs, int rank)
{
    void *ptr;
    int inside = -1;
    struct CUstream_st *s;
    (void)procs, (void)rank;
    MUST_BE(fake.cudaMalloc(&ptr, 8), cudaSuccess);
    MUST_BE(fake.cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), cudaSuccess);
    MUST_BE(fake.cudaLaunchHostFunc(s, call_cuda, &inside), cudaSuccess);
    MUST_BE(fake.cudaStreamQuery(s), cudaErrorNotReady);
    MUST_BE(fake.cudaFree(ptr), cudaSuccess);
    MUST_BE(inside, cudaErrorNotPermitted); /* so it has run */
    MUST_BE(fake.cudaPeekAtLastError(), cudaSuccess);
}

static void fails_when_asked(struct procs *procs, int rank)
{
    void *ptr;
    (void)procs, (void)rank;
    MUST_BE(fake.cudaMalloc(&ptr, 8), cudaSuccess);
    MUST_BE(fake.cudaMalloc(&ptr, 8), cudaErrorMemoryAllocation);
    MUST_BE(fake.cudaMalloc(&ptr, 8), cudaSuccess);
    MUST(!strcmp(fake.cudaGetErrorName(fake.cudaGetLastError()), "cudaErrorMemoryAllocation"));
}

static void calls_fail_when_asked_to(void **state)
{
    (void)state;
    assert_int_equal(run(free_waits), 0);
    setenv("FAKE_CUDA_FAULT", "cudaFree:1:1,cudaMalloc:2:2", 1);
    assert_int_equal(run(fails_when_asked), 0);
}

/* Creating and destroying handles many times does not accumulate threads or memory. */
static void recycles(struct procs *procs, int rank)
{
    struct CUstream_st *s;
    struct CUevent_st *e;
    (void)procs, (void)rank;
    for (int i = 0; i < 2000; i++) {
        MUST_BE(fake.cudaStreamCreateWithFlags(&s, 0), cudaSuccess);
        MUST_BE(fake.cudaEventCreateWithFlags(&e, 0), cudaSuccess);
        MUST_BE(fake.cudaEventRecord(e, s), cudaSuccess);
        MUST_BE(fake.cudaStreamDestroy(s), cudaSuccess);
        MUST_BE(fake.cudaEventSynchronize(e), cudaSuccess);
        MUST_BE(fake.cudaEventDestroy(e), cudaSuccess);
    }
    FILE *f = fopen("/proc/self/status", "re");
    char line[128];
    long threads = 0;
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, "Threads:", 8))
            threads = strtol(line + 8, NULL, 10);
    MUST(threads > 0 && threads < 64);
}

static void memory_is_recycled(void **state)
{
    (void)state;
    setenv("FAKE_CUDA_DELAY_US", "0", 1);
    assert_int_equal(run(recycles), 0);
}

/* ---- NVML ---- */

static void lists_gpus(struct procs *procs, int rank)
{
    unsigned n;
    struct nvmlDevice_st *device, *same;
    struct nvmlPciInfo pci;
    struct nvmlEventSet_st *set;
    struct nvmlEventData event;
    char uuid[96];
    unsigned long cpus[4];
    (void)procs, (void)rank;
    MUST_BE(fake.nvmlDeviceGetCount_v2(&n), NVML_ERROR_UNINITIALIZED);
    MUST_BE(fake.nvmlInit_v2(), NVML_SUCCESS);
    MUST_BE(fake.nvmlDeviceGetCount_v2(&n), NVML_SUCCESS);
    MUST_BE(n, 4); /* regardless of CUDA_VISIBLE_DEVICES */
    MUST_BE(fake.nvmlDeviceGetHandleByIndex_v2(4, &device), NVML_ERROR_INVALID_ARGUMENT);
    MUST_BE(fake.nvmlDeviceGetHandleByIndex_v2(2, &device), NVML_SUCCESS);
    MUST_BE(fake.nvmlDeviceGetUUID(device, uuid, sizeof uuid), NVML_SUCCESS);
    MUST(!strcmp(uuid, "GPU-fa4e0000-0000-4000-8000-000000000002"));
    MUST_BE(fake.nvmlDeviceGetPciInfo_v3(device, &pci), NVML_SUCCESS);
    MUST(!strcmp(pci.busId, "00000000:12:00.0"));
    MUST_BE(fake.nvmlDeviceGetHandleByPciBusId_v2("0000:12:00.0", &same), NVML_SUCCESS);
    MUST(same == device);
    MUST_BE(fake.nvmlDeviceGetCpuAffinity(device, 4, cpus), NVML_SUCCESS);
    MUST(cpus[0] != 0);
    MUST_BE(fake.nvmlEventSetCreate(&set), NVML_SUCCESS);
    MUST_BE(fake.nvmlEventSetWait_v2(set, &event, 1), NVML_ERROR_TIMEOUT); /* not registered */
    MUST_BE(fake.nvmlDeviceRegisterEvents(device, nvmlEventTypeXidCriticalError, set),
            NVML_SUCCESS);
    MUST_BE(fake.nvmlEventSetWait_v2(set, &event, 10000), NVML_SUCCESS);
    MUST(event.device == device && event.eventData == 79);
    MUST_BE(fake.nvmlEventSetWait_v2(set, &event, 1), NVML_ERROR_TIMEOUT);
    MUST_BE(fake.nvmlEventSetFree(set), NVML_SUCCESS);
}

static void nvml_lists_gpus(void **state)
{
    (void)state;
    setenv("FAKE_CUDA_DEVICES", "4", 1);
    setenv("CUDA_VISIBLE_DEVICES", "1", 1);
    setenv("FAKE_NVML_XID", "2:79:50", 1);
    assert_int_equal(run(lists_gpus), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_mask_selects_devices, setup),
        cmocka_unit_test_setup(device_memory_is_out_of_reach, setup),
        cmocka_unit_test_setup(streams_are_ordered_by_events_alone, setup),
        cmocka_unit_test_setup(wrong_handles_are_refused, setup),
        cmocka_unit_test_setup(calls_fail_when_asked_to, setup),
        cmocka_unit_test_setup(memory_is_recycled, setup),
        cmocka_unit_test_setup(nvml_lists_gpus, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
