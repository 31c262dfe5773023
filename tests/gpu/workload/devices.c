/* SPDX-License-Identifier: Apache-2.0
 *
 * Several GPUs per process: collectives, messages, memory.
 */
#include "workload.h"

#include <dlfcn.h>

/* ncclCommCount and ncclCommUserRank of each GPU's communicator. */
static void native_comms(struct gpu_test *t)
{
    void *nccl = dlopen("libnccl.so.2", RTLD_LAZY | RTLD_NOLOAD);
    int (*count)(void *, int *) = NULL, (*rank)(void *, int *) = NULL;
    if (nccl) {
        *(void **)&count = dlsym(nccl, "ncclCommCount");
        *(void **)&rank = dlsym(nccl, "ncclCommUserRank");
    }
    for (int i = 0; i < t->devices; i++) {
        void *comm = collrun_group_native(t->g, "nccl_comm", i);
        int n = -1, me = -1;
        if (!comm || !count || !rank || count(comm, &n) || rank(comm, &me) || n != t->comm_size ||
            me != comm_rank_of(t, t->rank, i))
            case_failed(t, "GPU %d: the native communicator is %p, rank %d of %d", i, comm, me, n);
    }
    if (collrun_group_native(t->g, "nccl_comm", t->devices) ||
        collrun_group_native(t->g, "nccl_com", 0) || collrun_group_native(t->g, "nccl_comm", -1))
        case_failed(t, "there is a native communicator that should not be");
}

void gpu_devices(struct gpu_test *t)
{
    struct collrun_call calls[MAX_BLOCKS] = {{0}};
    void *in[MAX_BLOCKS], *out[MAX_BLOCKS];
    int n = t->devices;
    for (int i = 0; i < n; i++) {
        in[i] = device_values(i, comm_rank_of(t, t->rank, i), COUNT, 1);
        out[i] = cuda_new(i, (size_t)t->comm_size * COUNT * 4);
        calls[i] = allreduce_call(in[i], out[i]);
        calls[i].device = i;
    }
    if (ok(t, run_all(t, calls, n), "allreduce"))
        for (int i = 0; i < n; i++)
            expect_sum(t, i, out[i], 1, "allreduce on several GPUs");
    for (int i = 0; i < n; i++)
        calls[i].kind = COLLRUN_ALLGATHER;
    if (ok(t, run_all(t, calls, n), "allgather"))
        for (int i = 0; i < n; i++)
            for (int p = 0; p < t->comm_size; p++)
                expect_values(t, i, (char *)out[i] + (size_t)p * COUNT * 4, COUNT, p, 1,
                              "allgather");
    int root = t->comm_size - 1; /* the last GPU of the last rank */
    for (int i = 0; i < n; i++) {
        calls[i].kind = COLLRUN_BROADCAST;
        calls[i].recv = in[i];
        calls[i].root = root / n;
        calls[i].peer_device = root % n;
    }
    if (ok(t, run_all(t, calls, n), "broadcast"))
        for (int i = 0; i < n; i++)
            expect_values(t, i, in[i], COUNT, root, 1, "broadcast from the last GPU");
    ok(t, collrun_barrier(t->g), "barrier");
    native_comms(t);
    if (n > 1 && collrun_allreduce(t->g, in[0], out[0], COUNT, COLLRUN_INT32, COLLRUN_SUM) !=
                     COLLRUN_ERR_INVALID)
        case_failed(t, "a blocking collective on one of several GPUs is not refused");
}

/* Every GPU of every rank sends to all others, in one request. */
void gpu_messages(struct gpu_test *t)
{
    static struct collrun_call calls[2 * MAX_BLOCKS * MAX_BLOCKS];
    int n = t->devices, k = 0;
    void *in[MAX_BLOCKS], *out[MAX_BLOCKS][MAX_BLOCKS] = {{0}};
    for (int i = 0; i < n; i++)
        in[i] = device_values(i, comm_rank_of(t, t->rank, i), COUNT, 3);
    for (int i = 0; i < n; i++)
        for (int p = 0; p < t->comm_size; p++) {
            if (p == comm_rank_of(t, t->rank, i))
                continue;
            out[i][p] = cuda_new(i, COUNT * 4);
            calls[k] = (struct collrun_call)COLLRUN_CALL(COLLRUN_SEND);
            calls[k].send = in[i];
            calls[k + 1] = (struct collrun_call)COLLRUN_CALL(COLLRUN_RECV);
            calls[k + 1].recv = out[i][p];
            for (int m = 0; m < 2; m++, k++) {
                calls[k].count = COUNT;
                calls[k].dtype = COLLRUN_INT32;
                calls[k].device = i;
                calls[k].peer = p / n;
                calls[k].peer_device = p % n;
            }
        }
    if (k && ok(t, run_all(t, calls, k), "start_many"))
        for (int i = 0; i < n; i++)
            for (int p = 0; p < t->comm_size; p++)
                if (out[i][p])
                    expect_values(t, i, out[i][p], COUNT, p, 3, "a message");
}

void gpu_memory(struct gpu_test *t)
{
    void *ptr[MAX_BLOCKS];
    for (int i = 0; i < t->devices; i++)
        if (!ok(t, collrun_alloc_device(t->g, i, COUNT * 4, &ptr[i]), "alloc_device"))
            return;
    void *most;
    if (collrun_alloc_device(t->g, 0, (size_t)1 << 46, &most) != COLLRUN_ERR_NO_MEMORY)
        case_failed(t, "more memory than any GPU has: %s", collrun_error());
    struct collrun_call calls[MAX_BLOCKS] = {{0}};
    for (int i = 0; i < t->devices; i++) {
        int32_t *v = host_values(comm_rank_of(t, t->rank, i), COUNT, 6);
        cuda_copy(i, ptr[i], v, COUNT * 4);
        free(v);
        calls[i] = allreduce_call(ptr[i], ptr[i]);
        calls[i].device = i;
    }
    if (ok(t, run_all(t, calls, t->devices), "allreduce in the memory of the group"))
        for (int i = 0; i < t->devices; i++)
            expect_sum(t, i, ptr[i], 6, "allreduce in the group's memory");
    for (int i = 0; i < t->devices; i++)
        ok(t, collrun_free(t->g, ptr[i]), "free");
    if (collrun_alloc_device(t->g, t->devices, 4, &ptr[0]) != COLLRUN_ERR_INVALID)
        case_failed(t, "memory of a GPU that does not exist is accepted");
    int32_t host[4] = {0};
    if (collrun_allreduce(t->g, host, host, 4, COLLRUN_INT32, COLLRUN_SUM) == COLLRUN_OK)
        case_failed(t, "host memory on a backend for GPUs is not refused");
}
