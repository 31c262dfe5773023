/* SPDX-License-Identifier: Apache-2.0
 *
 * Buffers on a GPU on backends for host memory, and groups with a backend per kind of memory.
 */
#include "workload.h"

/* Blocks with gaps: the gaps must not change. */
static void staged_gaps(struct gpu_test *t)
{
    size_t counts[MAX_BLOCKS], displs[MAX_BLOCKS], total = 0;
    for (int p = 0; p < t->size; p++) {
        counts[p] = (size_t)(10 + p);
        displs[p] = total + 3;
        total += counts[p] + 5;
    }
    int32_t *got = calloc(total, 4);
    void *in = device_values(0, t->rank, counts[t->rank], 7), *out = cuda_new(0, total * 4);
    memset(got, 0x55, total * 4);
    cuda_copy(0, out, got, total * 4);
    if (!ok(t, collrun_allgatherv(t->g, in, counts[t->rank], out, counts, displs, COLLRUN_INT32),
            "allgatherv"))
        return;
    cuda_copy(0, got, out, total * 4);
    size_t at = 0;
    for (int p = 0; p < t->size; p++) {
        for (; at < displs[p]; at++)
            if (got[at] != 0x55555555)
                case_failed(t, "allgatherv changed element %zu between the blocks", at);
        for (size_t i = 0; i < counts[p]; i++, at++)
            if (got[at] != value_at(p, i, 7))
                case_failed(t, "allgatherv: element %zu is %d", at, got[at]);
    }
    free(got);
}

/* On each of the rank's GPUs, while another one is current. Ranks other than the root pass a
 * receive buffer, too, which must not change. */
static void staged_everywhere(struct gpu_test *t)
{
    int gpus = collrun_gpu_count(t->ctx), now = -1;
    for (int i = 0; i < gpus; i++) {
        void *in = device_values(i, t->rank, COUNT, 24), *out = device_values(i, 99, COUNT, 24);
        int other = (i + 1) % gpus;
        cuda_must(cuda.set_device(other), "cudaSetDevice");
        ok(t, collrun_gather(t->g, in, out, COUNT / (size_t)t->size, COLLRUN_INT32, 0), "gather");
        cuda_must(cuda.get_device(&now), "cudaGetDevice");
        if (now != other)
            case_failed(t, "the current GPU changed from %d to %d", other, now);
        if (t->rank)
            expect_values(t, i, out, COUNT, 99, 24, "what a staged gather does not receive into");
        cuda_must(cuda.set_device(other), "cudaSetDevice");
        if (ok(t, collrun_allreduce(t->g, in, out, COUNT, COLLRUN_INT32, COLLRUN_SUM), "allreduce"))
            expect_sum(t, i, out, 24, "staged allreduce, another GPU being current");
    }
}

/* The buffers lie on one GPU, and the data comes late on a stream of any. */
static void staged_stream(struct gpu_test *t, int memory, int device, bool starts)
{
    void *in = device_values(memory, 99, COUNT, 26), *out = cuda_new(memory, COUNT * 4), *pinned;
    void *stream = cuda_new_stream(device), *ballast = cuda_new(device, BALLAST);
    struct collrun_call c = allreduce_call(in, out);
    struct collrun_request *r = NULL;
    c.device = device;
    cuda_must(cuda.host_alloc(&pinned, COUNT * 4, 0), "cudaHostAlloc");
    for (size_t i = 0; i < COUNT; i++)
        ((int32_t *)pinned)[i] = value_at(t->rank, i, 26);
    for (int i = 0; i < 20; i++)
        cuda_must(cuda.memset_async(ballast, i, BALLAST, stream), "cudaMemsetAsync");
    cuda_must(cuda.memcpy_async(in, pinned, COUNT * 4, CUDA_COPY, stream), "cudaMemcpyAsync");
    ok(t, collrun_set_stream(t->g, device, stream), "set_stream");
    int status = starts ? collrun_start(t->g, &c, &r) : collrun_run(t->g, &c, 1);
    if (ok(t, status == COLLRUN_OK && r ? collrun_wait(r) : status, "allreduce behind a stream"))
        expect_sum(t, memory, out, 26, "staged allreduce behind a stream of another GPU");
    ok(t, collrun_set_stream(t->g, device, NULL), "set_stream");
}

static void staged_streams(struct gpu_test *t)
{
    int gpus = collrun_gpu_count(t->ctx);
    for (int i = 0; i < 2 * gpus * gpus && !t->failures; i++)
        staged_stream(t, i / 2 / gpus, i / 2 % gpus, i % 2);
}

void gpu_staged(struct gpu_test *t)
{
    void *in = device_values(0, t->rank, COUNT, 8), *out = cuda_new(0, COUNT * 4);
    struct collrun_request *r;
    struct collrun_call c = allreduce_call(in, out);
    if (ok(t, collrun_allreduce(t->g, in, out, COUNT, COLLRUN_INT32, COLLRUN_SUM), "allreduce"))
        expect_sum(t, 0, out, 8, "staged allreduce");
    expect_values(t, 0, in, COUNT, t->rank, 8, "the input of a staged allreduce");
    cuda_must(cuda.memset_async(out, 0, COUNT * 4, NULL), "cudaMemsetAsync");
    if (ok(t, collrun_start(t->g, &c, &r), "start") &&
        ok(t, collrun_wait_stream(r, 0, NULL), "wait_stream") && ok(t, collrun_wait(r), "wait"))
        expect_sum(t, 0, out, 8, "staged allreduce, started");
    if (ok(t, collrun_broadcast(t->g, in, COUNT, COLLRUN_INT32, t->size - 1), "broadcast"))
        expect_values(t, 0, in, COUNT, t->size - 1, 8, "staged broadcast");
    staged_gaps(t);
    staged_everywhere(t);
    staged_streams(t);
    int right = (t->rank + 1) % t->size, left = (t->rank + t->size - 1) % t->size;
    void *mine = device_values(0, t->rank, COUNT, 9);
    if (ok(t, collrun_sendrecv(t->g, mine, COUNT, right, out, COUNT, left, COLLRUN_INT32),
           "sendrecv"))
        expect_values(t, 0, out, COUNT, left, 9, "staged sendrecv");
}

/* Host memory and GPU memory, alternately and at the same time. */
void gpu_mixed(struct gpu_test *t)
{
    struct collrun_request *r[2];
    int32_t *in = host_values(t->rank, COUNT, 10), out[COUNT];
    void *gpu_in = device_values(0, t->rank, COUNT, 11), *gpu_out = cuda_new(0, COUNT * 4);
    struct collrun_call host = allreduce_call(in, out), gpu = allreduce_call(gpu_in, gpu_out);
    t->comm_size = t->size;
    for (int round = 0; round < 5 && !t->failures; round++) {
        if (!ok(t, collrun_start(t->g, &host, &r[0]), "start on the host") ||
            !ok(t, collrun_start(t->g, &gpu, &r[1]), "start on the GPU") ||
            !ok(t, collrun_wait_all(r, 2), "wait_all"))
            return;
        expect_sum(t, 0, gpu_out, 11, "allreduce on the GPU");
        for (size_t i = 0; i < COUNT && !t->failures; i++)
            if (out[i] != sum_at(t->size, i, 10))
                case_failed(t, "allreduce on the host: element %zu is %d", i, out[i]);
    }
    ok(t, collrun_barrier(t->g), "barrier");
    if (collrun_allreduce(t->g, in, gpu_out, COUNT, COLLRUN_INT32, COLLRUN_SUM) !=
        COLLRUN_ERR_INVALID)
        case_failed(t, "a call from host memory to a GPU is not refused");
    if (!strstr(collrun_group_backend(t->g), "cuda"))
        case_failed(t, "its backend is \"%s\"", collrun_group_backend(t->g));
    free(in);
}
