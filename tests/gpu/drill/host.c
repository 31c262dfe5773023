/* SPDX-License-Identifier: Apache-2.0
 *
 * Buffers on a GPU, on backends for host memory, and groups with a backend for each sort of memory.
 */
#include "drill.h"

/* Blocks with gaps: what lies between them must stay. */
static void staged_gaps(struct drill *d)
{
    size_t counts[MOST], displs[MOST], total = 0;
    for (int p = 0; p < d->size; p++) {
        counts[p] = (size_t)(10 + p);
        displs[p] = total + 3;
        total += counts[p] + 5;
    }
    int32_t *got = calloc(total, 4);
    void *in = device_values(0, d->rank, counts[d->rank], 7), *out = cuda_new(0, total * 4);
    memset(got, 0x55, total * 4);
    cuda_copy(0, out, got, total * 4);
    if (!ok(d, collrun_allgatherv(d->g, in, counts[d->rank], out, counts, displs, COLLRUN_INT32),
            "allgatherv"))
        return;
    cuda_copy(0, got, out, total * 4);
    size_t at = 0;
    for (int p = 0; p < d->size; p++) {
        for (; at < displs[p]; at++)
            if (got[at] != 0x55555555)
                wrong(d, "allgatherv changed element %zu between the blocks", at);
        for (size_t i = 0; i < counts[p]; i++, at++)
            if (got[at] != given(p, i, 7))
                wrong(d, "allgatherv: element %zu is %d", at, got[at]);
    }
    free(got);
}

/* On each of the rank's GPUs, while another one is current. Ranks that are not the root give a
 * buffer, too, and it stays as it is. */
static void staged_everywhere(struct drill *d)
{
    int gpus = collrun_gpu_count(d->ctx), now = -1;
    for (int i = 0; i < gpus; i++) {
        void *in = device_values(i, d->rank, COUNT, 24), *out = device_values(i, 99, COUNT, 24);
        int other = (i + 1) % gpus;
        cuda_must(cuda.set_device(other), "cudaSetDevice");
        ok(d, collrun_gather(d->g, in, out, COUNT / (size_t)d->size, COLLRUN_INT32, 0), "gather");
        cuda_must(cuda.get_device(&now), "cudaGetDevice");
        if (now != other)
            wrong(d, "GPU %d was current, and now GPU %d", other, now);
        if (d->rank)
            expect_given(d, i, out, COUNT, 99, 24, "what a staged gather does not receive into");
        cuda_must(cuda.set_device(other), "cudaSetDevice");
        if (ok(d, collrun_allreduce(d->g, in, out, COUNT, COLLRUN_INT32, COLLRUN_SUM), "allreduce"))
            expect_sum(d, i, out, 24, "staged allreduce, another GPU being current");
    }
}

void drill_staged(struct drill *d)
{
    void *in = device_values(0, d->rank, COUNT, 8), *out = cuda_new(0, COUNT * 4);
    struct collrun_request *r;
    struct collrun_call c = allreduce_call(in, out);
    if (ok(d, collrun_allreduce(d->g, in, out, COUNT, COLLRUN_INT32, COLLRUN_SUM), "allreduce"))
        expect_sum(d, 0, out, 8, "staged allreduce");
    expect_given(d, 0, in, COUNT, d->rank, 8, "the input of a staged allreduce");
    cuda_must(cuda.memset_async(out, 0, COUNT * 4, NULL), "cudaMemsetAsync");
    if (ok(d, collrun_start(d->g, &c, &r), "start") &&
        ok(d, collrun_wait_stream(r, 0, NULL), "wait_stream") && ok(d, collrun_wait(r), "wait"))
        expect_sum(d, 0, out, 8, "staged allreduce, started");
    if (ok(d, collrun_broadcast(d->g, in, COUNT, COLLRUN_INT32, d->size - 1), "broadcast"))
        expect_given(d, 0, in, COUNT, d->size - 1, 8, "staged broadcast");
    staged_gaps(d);
    staged_everywhere(d);
    int right = (d->rank + 1) % d->size, left = (d->rank + d->size - 1) % d->size;
    void *mine = device_values(0, d->rank, COUNT, 9);
    if (ok(d, collrun_sendrecv(d->g, mine, COUNT, right, out, COUNT, left, COLLRUN_INT32),
           "sendrecv"))
        expect_given(d, 0, out, COUNT, left, 9, "staged sendrecv");
}

/* Host memory and GPU memory, alternately and at the same time. */
void drill_mixed(struct drill *d)
{
    struct collrun_request *r[2];
    int32_t *in = host_values(d->rank, COUNT, 10), out[COUNT];
    void *gpu_in = device_values(0, d->rank, COUNT, 11), *gpu_out = cuda_new(0, COUNT * 4);
    struct collrun_call host = allreduce_call(in, out), gpu = allreduce_call(gpu_in, gpu_out);
    d->places = d->size;
    for (int round = 0; round < 5 && !d->failures; round++) {
        if (!ok(d, collrun_start(d->g, &host, &r[0]), "start on the host") ||
            !ok(d, collrun_start(d->g, &gpu, &r[1]), "start on the GPU") ||
            !ok(d, collrun_wait_all(r, 2), "wait_all"))
            return;
        expect_sum(d, 0, gpu_out, 11, "allreduce on the GPU");
        for (size_t i = 0; i < COUNT && !d->failures; i++)
            if (out[i] != sum_at(d->size, i, 10))
                wrong(d, "allreduce on the host: element %zu is %d", i, out[i]);
    }
    ok(d, collrun_barrier(d->g), "barrier");
    if (collrun_allreduce(d->g, in, gpu_out, COUNT, COLLRUN_INT32, COLLRUN_SUM) !=
        COLLRUN_ERR_INVALID)
        wrong(d, "from host memory to a GPU is not refused");
    if (!strstr(collrun_group_backend(d->g), "cuda"))
        wrong(d, "its backend is \"%s\"", collrun_group_backend(d->g));
    free(in);
}
