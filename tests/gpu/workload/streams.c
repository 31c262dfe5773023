/* SPDX-License-Identifier: Apache-2.0
 *
 * Order by streams: before an operation, and after it. Starting never waits for a stream.
 */
#include "workload.h"

#include <stdatomic.h>

/* Keeps a stream busy for longer than this call takes. */
static void keep_busy(void *ballast, void *stream)
{
    for (int i = 0; i < 40; i++)
        cuda_must(cuda.memset_async(ballast, i, BALLAST, stream), "cudaMemsetAsync");
}

/* The input arrives late, on a stream; the output is read on another one that waits for the
 * operation, while the host does not. */
void gpu_streams(struct gpu_test *t)
{
    void *in = cuda_new(0, COUNT * 4), *out = cuda_new(0, COUNT * 4);
    void *ballast = cuda_new(0, BALLAST), *before = cuda_new_stream(0), *after = cuda_new_stream(0),
         *pinned, *result;
    cuda_must(cuda.host_alloc(&pinned, COUNT * 4, 0), "cudaHostAlloc");
    cuda_must(cuda.host_alloc(&result, COUNT * 4, 0), "cudaHostAlloc");
    for (int round = 0; round < 6 && !t->failures; round++) {
        struct collrun_request *r;
        int32_t *v = pinned;
        cuda_must(cuda.memset_async(out, 0x7f, COUNT * 4, after), "cudaMemsetAsync");
        cuda_must(cuda.stream_synchronize(after), "cudaStreamSynchronize");
        for (size_t i = 0; i < COUNT; i++)
            v[i] = value_at(t->rank, i, round);
        cuda_must(cuda.memset_async(in, 0, COUNT * 4, before), "cudaMemsetAsync");
        keep_busy(ballast, before);
        cuda_must(cuda.memcpy_async(in, v, COUNT * 4, CUDA_COPY, before), "cudaMemcpyAsync");
        struct collrun_call c = allreduce_call(in, out);
        c.stream = before;
        if (!ok(t, collrun_start(t->g, &c, &r), "start") ||
            !ok(t, collrun_wait_stream(r, 0, after), "wait_stream"))
            return;
        cuda_must(cuda.memcpy_async(result, out, COUNT * 4, CUDA_COPY, after), "cudaMemcpyAsync");
        cuda_must(cuda.stream_synchronize(after), "cudaStreamSynchronize");
        if (collrun_wait_stream(r, t->devices, after) != COLLRUN_ERR_INVALID)
            case_failed(t, "a stream of a GPU that does not exist is accepted");
        ok(t, collrun_wait(r), "wait");
        for (size_t i = 0; i < COUNT && !t->failures; i++)
            if (((int32_t *)result)[i] != sum_at(t->comm_size, i, round))
                case_failed(t, "round %d: element %zu read after the operation is %d, expected %d",
                            round, i, ((int32_t *)result)[i], sum_at(t->comm_size, i, round));
    }
    /* The blocking form runs after what the group's stream holds. */
    ok(t, collrun_set_stream(t->g, 0, before), "set_stream");
    for (size_t i = 0; i < COUNT; i++)
        ((int32_t *)pinned)[i] = value_at(t->rank, i, 99);
    keep_busy(ballast, before);
    cuda_must(cuda.memcpy_async(in, pinned, COUNT * 4, CUDA_COPY, before), "cudaMemcpyAsync");
    if (ok(t, collrun_allreduce(t->g, in, out, COUNT, COLLRUN_INT32, COLLRUN_SUM), "allreduce"))
        expect_sum(t, 0, out, 99, "allreduce after set_stream");
}

/* In a stream: waits for the flag, 10 s at most. */
static void await_flag(void *flag)
{
    for (int ms = 0; !atomic_load((atomic_bool *)flag) && ms < 10000; ms++)
        pause_ms(1);
}

/* The stream is held up while a scan, which NCCL does not have, is started, and again until it has
 * ended. (A later call of a batch begins after all that its stream holds when its turn comes.) */
static void held_up(struct gpu_test *t, int n, int salt)
{
    static atomic_bool before, after; /* static: a late host function may still read them */
    void *in = device_values(0, 99, COUNT, salt), *out = cuda_new(0, (size_t)n * COUNT * 4);
    void *stream = cuda_new_stream(0), *pinned;
    struct collrun_call calls[2];
    struct collrun_request *r;
    atomic_store(&before, false);
    atomic_store(&after, false);
    cuda_must(cuda.host_alloc(&pinned, COUNT * 4, 0), "cudaHostAlloc");
    for (size_t i = 0; i < COUNT; i++)
        ((int32_t *)pinned)[i] = value_at(t->rank, i, salt);
    cuda_must(cuda.launch_host(stream, await_flag, &before), "cudaLaunchHostFunc");
    cuda_must(cuda.memcpy_async(in, pinned, COUNT * 4, CUDA_COPY, stream), "cudaMemcpyAsync");
    for (int i = 0; i < n; i++) {
        calls[i] = allreduce_call(in, (int32_t *)out + (size_t)i * COUNT);
        calls[i].kind = i ? COLLRUN_ALLREDUCE : COLLRUN_SCAN;
        calls[i].stream = stream;
    }
    if (!ok(t, collrun_start_many(t->g, calls, n, &r), "start"))
        return;
    if (n == 1)
        cuda_must(cuda.launch_host(stream, await_flag, &after), "cudaLaunchHostFunc");
    if (collrun_poll(r) != COLLRUN_AGAIN)
        case_failed(t, "a scan has ended before its stream has brought the data");
    atomic_store(&before, true);
    bool good = ok(t, collrun_wait(r), "wait");
    atomic_store(&after, true);
    cuda_must(cuda.stream_synchronize(stream), "cudaStreamSynchronize");
    int32_t *got = calloc(COUNT, 4);
    cuda_copy(0, got, out, COUNT * 4);
    for (size_t i = 0; good && i < COUNT && !t->failures; i++)
        if (got[i] != sum_at(t->rank + 1, i, salt))
            case_failed(t, "scan: element %zu is %d", i, got[i]);
    free(got);
    if (good && n > 1)
        expect_sum(t, 0, (int32_t *)out + COUNT, salt, "allreduce behind a scan");
}

void gpu_held_up(struct gpu_test *t)
{
    for (int round = 0; round < 3 && !t->failures; round++)
        for (int n = 1; n <= 2; n++)
            held_up(t, n, 40 + round);
}
