/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks that are late, fail or disagree, and libraries that fail.
 */
#include "workload.h"

#include <time.h>

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* The last rank makes no call. The others get TIMEOUT in time, and can still use their GPUs. */
void gpu_late(struct gpu_test *t)
{
    void *in = device_values(0, t->rank, COUNT, 14), *out = cuda_new(0, COUNT * 4);
    double begin = now_s();
    if (t->rank == t->size - 1) {
        pause_ms(8000);
        return;
    }
    int rc = collrun_allreduce(t->g, in, out, COUNT, COLLRUN_INT32, COLLRUN_SUM);
    if (rc != COLLRUN_ERR_TIMEOUT || now_s() - begin > 7.5)
        case_failed(t, "after %.1f s: %d, %s", now_s() - begin, rc, collrun_error());
    if (collrun_barrier(t->g) == COLLRUN_OK)
        case_failed(t, "the group is usable after a time-out");
    cuda_must(cuda.free(in), "cudaFree"); /* waits for the GPU: nothing may be stuck on it */
    expect_values(t, 0, device_values(0, t->rank, 10, 15), 10, t->rank, 15, "the GPU afterwards");
}

/* The last rank does not join a scan, which consists of messages of the engine. */
void gpu_late_scan(struct gpu_test *t)
{
    void *in = device_values(0, t->rank, COUNT, 25), *out = cuda_new(0, COUNT * 4);
    if (t->rank == t->size - 1) {
        pause_ms(4000);
        return;
    }
    int rc = collrun_scan(t->g, in, out, COUNT, COLLRUN_INT32, COLLRUN_SUM);
    if (t->rank == t->size - 2 && rc != COLLRUN_ERR_TIMEOUT)
        case_failed(t, "a scan without the last rank: %d, %s", rc, collrun_error());
    if (rc != COLLRUN_OK)
        printf("late_scan: %s\n", collrun_error());
}

static void sleep_long(void *data)
{
    (void)data;
    pause_ms(6500);
}

/* A message to the rank itself waits for its stream, but not past the group's time-out (2 s) and
 * the second that the GPU has to become idle. */
void gpu_self(struct gpu_test *t)
{
    void *in = device_values(0, t->rank, COUNT, 23), *out = cuda_new(0, COUNT * 4);
    void *stream = cuda_new_stream(0);
    ok(t, collrun_sendrecv(t->g, in, COUNT, t->rank, out, COUNT, t->rank, COLLRUN_INT32),
       "sendrecv");
    expect_values(t, 0, out, COUNT, t->rank, 23, "to itself");
    ok(t, collrun_set_stream(t->g, 0, stream), "set_stream");
    cuda_must(cuda.launch_host(stream, sleep_long, NULL), "cudaLaunchHostFunc");
    double begin = now_s();
    for (int i = 0; i < 2; i++) { /* the second call fails at once */
        int rc = collrun_sendrecv(t->g, in, COUNT, t->rank, out, COUNT, t->rank, COLLRUN_INT32);
        if (rc != COLLRUN_ERR_TIMEOUT || now_s() - begin > 5.5)
            case_failed(t, "after %.1f s: %d, %s", now_s() - begin, rc, collrun_error());
    }
    cuda_must(cuda.stream_synchronize(stream), "cudaStreamSynchronize");
}

/* One rank fails; the others are inside an operation. */
void gpu_peer(struct gpu_test *t)
{
    void *in = device_values(0, t->rank, COUNT, 16), *out = cuda_new(0, COUNT * 4);
    if (t->rank == t->size - 1) {
        struct timespec pause = {.tv_nsec = 300000000};
        nanosleep(&pause, NULL);
        collrun_fail(t->ctx, "fails on purpose");
        t->failures++;
        return;
    }
    int rc = collrun_allreduce(t->g, in, out, COUNT, COLLRUN_INT32, COLLRUN_SUM);
    if (rc != COLLRUN_ERR_PEER_FAILED && rc != COLLRUN_ERR_ABORTED)
        case_failed(t, "%d, %s", rc, collrun_error());
    cuda_must(cuda.free(in), "cudaFree");
    printf("gpu_test: survived: %s\n", collrun_error());
}

/* check: strict finds ranks that disagree before anything moves. */
void gpu_mismatch(struct gpu_test *t)
{
    void *in = device_values(0, t->rank, COUNT, 18), *out = device_values(0, t->rank, COUNT, 19);
    size_t count = t->rank == 0 ? 10 : 11;
    if (!ok(t, collrun_barrier(t->g), "barrier"))
        return;
    int rc = collrun_allreduce(t->g, in, out, count, COLLRUN_INT32, COLLRUN_SUM);
    if (rc != COLLRUN_ERR_MISMATCH)
        case_failed(t, "%d, %s", rc, collrun_error());
    expect_values(t, 0, out, COUNT, t->rank, 19, "the output");
}

/* The stand-in library is set to fail. The error message includes the library's. */
void gpu_fault(struct gpu_test *t)
{
    void *in = device_values(0, t->rank, COUNT, 17), *out = cuda_new(0, COUNT * 4);
    int rc = COLLRUN_OK;
    for (int i = 0; i < 50 && rc == COLLRUN_OK; i++)
        rc = collrun_allreduce(t->g, in, out, COUNT, COLLRUN_INT32, COLLRUN_SUM);
    if (rc == COLLRUN_OK)
        case_failed(t, "no operation failed");
    printf("gpu_test: fault: %s\n", collrun_error());
}
