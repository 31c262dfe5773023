/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks that do not come, fail or disagree, and libraries that fail.
 */
#include "drill.h"

#include <time.h>

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* The last rank does not come. The others are told so, within the group's time-out, and go on with
 * their GPUs. */
void drill_late(struct drill *d)
{
    void *in = device_values(0, d->rank, COUNT, 14), *out = cuda_new(0, COUNT * 4);
    double begun = now_s();
    if (d->rank == d->size - 1) {
        struct timespec pause = {.tv_sec = 4};
        nanosleep(&pause, NULL);
        return;
    }
    int rc = collrun_allreduce(d->g, in, out, COUNT, COLLRUN_INT32, COLLRUN_SUM);
    if (rc != COLLRUN_ERR_TIMEOUT || now_s() - begun > 3.5)
        wrong(d, "after %.1f s: %d, %s", now_s() - begun, rc, collrun_error());
    if (collrun_barrier(d->g) == COLLRUN_OK)
        wrong(d, "the group works on after a time-out");
    cuda_must(cuda.free(in), "cudaFree"); /* waits for the GPU: nothing may be stuck on it */
    expect_given(d, 0, device_values(0, d->rank, 10, 15), 10, d->rank, 15, "the GPU afterwards");
}

static void sleep_long(void *data)
{
    (void)data;
    pause_ms(3500);
}

/* What a rank sends itself waits for its stream, and no longer than the group's time-out. */
void drill_self(struct drill *d)
{
    void *in = device_values(0, d->rank, COUNT, 23), *out = cuda_new(0, COUNT * 4);
    void *stream = cuda_new_stream(0);
    ok(d, collrun_sendrecv(d->g, in, COUNT, d->rank, out, COUNT, d->rank, COLLRUN_INT32),
       "sendrecv");
    expect_given(d, 0, out, COUNT, d->rank, 23, "to itself");
    ok(d, collrun_set_stream(d->g, 0, stream), "set_stream");
    cuda_must(cuda.launch_host(stream, sleep_long, NULL), "cudaLaunchHostFunc");
    double begun = now_s();
    for (int i = 0; i < 2; i++) { /* and then the group only fails */
        int rc = collrun_sendrecv(d->g, in, COUNT, d->rank, out, COUNT, d->rank, COLLRUN_INT32);
        if (rc != COLLRUN_ERR_TIMEOUT || now_s() - begun > 3)
            wrong(d, "after %.1f s: %d, %s", now_s() - begun, rc, collrun_error());
    }
    cuda_must(cuda.stream_synchronize(stream), "cudaStreamSynchronize");
}

/* One rank fails; the others are inside an operation. */
void drill_peer(struct drill *d)
{
    void *in = device_values(0, d->rank, COUNT, 16), *out = cuda_new(0, COUNT * 4);
    if (d->rank == d->size - 1) {
        struct timespec pause = {.tv_nsec = 300000000};
        nanosleep(&pause, NULL);
        collrun_fail(d->ctx, "drilled to fail");
        d->failures++;
        return;
    }
    int rc = collrun_allreduce(d->g, in, out, COUNT, COLLRUN_INT32, COLLRUN_SUM);
    if (rc != COLLRUN_ERR_PEER_FAILED && rc != COLLRUN_ERR_ABORTED)
        wrong(d, "%d, %s", rc, collrun_error());
    cuda_must(cuda.free(in), "cudaFree");
    printf("drill: survived: %s\n", collrun_error());
}

/* check: strict finds ranks that disagree, before anything moves. */
void drill_mismatch(struct drill *d)
{
    void *in = device_values(0, d->rank, COUNT, 18), *out = device_values(0, d->rank, COUNT, 19);
    size_t count = d->rank == 0 ? 10 : 11;
    if (!ok(d, collrun_barrier(d->g), "barrier"))
        return;
    int rc = collrun_allreduce(d->g, in, out, count, COLLRUN_INT32, COLLRUN_SUM);
    if (rc != COLLRUN_ERR_MISMATCH)
        wrong(d, "%d, %s", rc, collrun_error());
    expect_given(d, 0, out, COUNT, d->rank, 19, "the output");
}

/* The stand-in was told to fail. The error is the library's, in the sentence. */
void drill_fault(struct drill *d)
{
    void *in = device_values(0, d->rank, COUNT, 17), *out = cuda_new(0, COUNT * 4);
    int rc = COLLRUN_OK;
    for (int i = 0; i < 50 && rc == COLLRUN_OK; i++)
        rc = collrun_allreduce(d->g, in, out, COUNT, COLLRUN_INT32, COLLRUN_SUM);
    if (rc == COLLRUN_OK)
        wrong(d, "no operation failed");
    printf("drill: fault: %s\n", collrun_error());
}
