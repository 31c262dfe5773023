/* SPDX-License-Identifier: Apache-2.0
 *
 * Batches of collectives: the values, and how many kernels of NCCL each batch takes. The stand-in
 * library counts them; a real one does not.
 */
#include "workload.h"

#include <dlfcn.h>

enum { MANY = 70 };

/* The kernels that the communicator has launched; -1: not known. */
static int kernels(struct gpu_test *t)
{
    void *nccl = dlopen("libnccl.so.2", RTLD_LAZY | RTLD_NOLOAD);
    int (*count)(void *) = NULL;
    if (nccl)
        *(void **)&count = dlsym(nccl, "fake_nccl_kernels");
    return count ? count(collrun_group_native(t->g, "nccl_comm", 0)) : -1;
}

static bool batch(struct gpu_test *t, struct collrun_call *calls, int n, int launches,
                  const char *what)
{
    int before = kernels(t);
    if (!ok(t, run_all(t, calls, n), what))
        return false;
    int launched = kernels(t) - before;
    if (before >= 0 && launched != launches)
        case_failed(t, "%s: %d kernels were launched, not %d", what, launched, launches);
    return true;
}

static struct collrun_call call_of(enum collrun_kind kind, const void *send, void *recv, int root)
{
    struct collrun_call c = allreduce_call(send, recv);
    c.kind = kind;
    c.root = root;
    return c;
}

/* Different kinds that need nothing of each other. */
static void independent(struct gpu_test *t)
{
    void *in = device_values(0, t->rank, COUNT, 30), *sum = cuda_new(0, COUNT * 4);
    void *all = cuda_new(0, (size_t)t->size * COUNT * 4), *same = cuda_new(0, COUNT * 4);
    void *sent = device_values(0, t->rank, COUNT, 31);
    int last = t->size - 1;
    struct collrun_call calls[] = {
        call_of(COLLRUN_ALLREDUCE, in, sum, 0), call_of(COLLRUN_BROADCAST, NULL, sent, last),
        COLLRUN_CALL(COLLRUN_BARRIER), call_of(COLLRUN_ALLGATHER, in, all, 0),
        call_of(COLLRUN_REDUCE, in, same, last)};
    if (!batch(t, calls, 5, 1, "a batch whose calls are independent"))
        return;
    expect_sum(t, 0, sum, 30, "allreduce in a batch");
    expect_values(t, 0, sent, COUNT, last, 31, "broadcast in a batch");
    for (int r = 0; r < t->size; r++)
        expect_values(t, 0, (int32_t *)all + (size_t)r * COUNT, COUNT, r, 30,
                      "allgather in a batch");
    if (t->rank == last)
        expect_sum(t, 0, same, 30, "reduce in a batch");
}

/* Each call reads what the one before has written. */
static void chain(struct gpu_test *t)
{
    void *in = device_values(0, t->rank, COUNT, 32), *sum = cuda_new(0, COUNT * 4);
    void *all = cuda_new(0, (size_t)t->size * COUNT * 4);
    struct collrun_call calls[] = {call_of(COLLRUN_ALLREDUCE, in, sum, 0),
                                   call_of(COLLRUN_ALLGATHER, sum, all, 0),
                                   call_of(COLLRUN_BROADCAST, NULL, in, 0)};
    if (!batch(t, calls, 3, 2,
               "a batch whose calls depend on each other")) /* the last two do not */
        return;
    for (int r = 0; r < t->size; r++)
        expect_sum(t, 0, (int32_t *)all + (size_t)r * COUNT, 32, "allgather of an allreduce");
    expect_values(t, 0, in, COUNT, 0, 32, "broadcast over what an allreduce has read");
}

/* Only the root sees that the second call needs the first. */
static void chain_at_root(struct gpu_test *t)
{
    void *in = device_values(0, t->rank, COUNT, 33);
    void *all = cuda_new(0, (size_t)t->size * COUNT * 4);
    struct collrun_call calls[] = {call_of(COLLRUN_GATHER, in, t->rank ? NULL : all, 0),
                                   call_of(COLLRUN_BROADCAST, NULL, all, 0)};
    calls[1].count = (size_t)t->size * COUNT;
    if (!batch(t, calls, 2, 2, "a batch that depends at the root"))
        return;
    for (int r = 0; r < t->size; r++)
        expect_values(t, 0, (int32_t *)all + (size_t)r * COUNT, COUNT, r, 33,
                      "broadcast of what the root has gathered");
}

/* More than fit into one kernel, one of which NCCL does not have; each after a stream that is
 * late. */
static void many(struct gpu_test *t)
{
    struct collrun_call calls[MANY];
    void *in = device_values(0, t->rank, COUNT, 34), *late = cuda_new(0, COUNT * 4);
    void *out = cuda_new(0, (size_t)MANY * COUNT * 4), *ballast = cuda_new(0, BALLAST);
    void *streams[2] = {cuda_new_stream(0), cuda_new_stream(0)};
    for (int i = 0; i < 20; i++)
        cuda_must(cuda.memset_async(ballast, i, BALLAST, streams[1]), "cudaMemsetAsync");
    cuda_must(cuda.memcpy_async(late, in, COUNT * 4, CUDA_COPY, streams[1]), "cudaMemcpyAsync");
    for (int i = 0; i < MANY; i++) {
        calls[i] = allreduce_call(i % 2 ? late : in, (int32_t *)out + (size_t)i * COUNT);
        calls[i].stream = streams[i % 2];
    }
    calls[20].op = COLLRUN_BOR;
    if (!batch(t, calls, MANY, 4, "a long batch with a call that NCCL lacks"))
        return;
    for (int i = 0; i < MANY && !t->failures; i++)
        if (i != 20)
            expect_sum(t, 0, (int32_t *)out + (size_t)i * COUNT, 34, "allreduce in a long batch");
}

void gpu_batches(struct gpu_test *t)
{
    for (int round = 0; round < 5 && !t->failures; round++) {
        independent(t);
        chain(t);
        chain_at_root(t);
        many(t);
    }
}
