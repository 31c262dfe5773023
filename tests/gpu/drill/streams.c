/* SPDX-License-Identifier: Apache-2.0
 *
 * Order by streams: what comes before an operation, and what comes after it.
 */
#include "drill.h"

/* Keeps a stream busy for longer than it takes to ask for it. */
static void keep_busy(void *ballast, void *stream)
{
    for (int i = 0; i < 40; i++)
        cuda_must(cuda.memset_async(ballast, i, BALLAST, stream), "cudaMemsetAsync");
}

/* The input arrives late, on a stream; the output is read on another one that waits for the
 * operation, while the host does not. */
void drill_streams(struct drill *d)
{
    void *in = cuda_new(0, COUNT * 4), *out = cuda_new(0, COUNT * 4);
    void *ballast = cuda_new(0, BALLAST), *before = cuda_new_stream(0), *after = cuda_new_stream(0),
         *pinned, *result;
    cuda_must(cuda.host_alloc(&pinned, COUNT * 4, 0), "cudaHostAlloc");
    cuda_must(cuda.host_alloc(&result, COUNT * 4, 0), "cudaHostAlloc");
    for (int round = 0; round < 6 && !d->failures; round++) {
        struct collrun_request *r;
        int32_t *v = pinned;
        cuda_must(cuda.memset_async(out, 0x7f, COUNT * 4, after), "cudaMemsetAsync");
        cuda_must(cuda.stream_synchronize(after), "cudaStreamSynchronize");
        for (size_t i = 0; i < COUNT; i++)
            v[i] = given(d->rank, i, round);
        cuda_must(cuda.memset_async(in, 0, COUNT * 4, before), "cudaMemsetAsync");
        keep_busy(ballast, before);
        cuda_must(cuda.memcpy_async(in, v, COUNT * 4, CUDA_COPY, before), "cudaMemcpyAsync");
        struct collrun_call c = allreduce_call(in, out);
        c.stream = before;
        if (!ok(d, collrun_start(d->g, &c, &r), "start") ||
            !ok(d, collrun_wait_stream(r, 0, after), "wait_stream"))
            return;
        cuda_must(cuda.memcpy_async(result, out, COUNT * 4, CUDA_COPY, after), "cudaMemcpyAsync");
        cuda_must(cuda.stream_synchronize(after), "cudaStreamSynchronize");
        if (collrun_wait_stream(r, d->devices, after) != COLLRUN_ERR_INVALID)
            wrong(d, "a stream of a GPU that there is not");
        ok(d, collrun_wait(r), "wait");
        for (size_t i = 0; i < COUNT && !d->failures; i++)
            if (((int32_t *)result)[i] != sum_at(d->places, i, round))
                wrong(d, "round %d: element %zu read after the operation is %d, expected %d", round,
                      i, ((int32_t *)result)[i], sum_at(d->places, i, round));
    }
    /* The blocking form comes after the group's stream. */
    ok(d, collrun_set_stream(d->g, 0, before), "set_stream");
    for (size_t i = 0; i < COUNT; i++)
        ((int32_t *)pinned)[i] = given(d->rank, i, 99);
    keep_busy(ballast, before);
    cuda_must(cuda.memcpy_async(in, pinned, COUNT * 4, CUDA_COPY, before), "cudaMemcpyAsync");
    if (ok(d, collrun_allreduce(d->g, in, out, COUNT, COLLRUN_INT32, COLLRUN_SUM), "allreduce"))
        expect_sum(d, 0, out, 99, "allreduce after set_stream");
}
