/* SPDX-License-Identifier: Apache-2.0
 *
 * Several GPUs per process: collectives, messages, memory.
 */
#include "drill.h"

void drill_devices(struct drill *d)
{
    struct collrun_call calls[MOST] = {{0}};
    void *in[MOST], *out[MOST];
    int n = d->devices;
    for (int i = 0; i < n; i++) {
        in[i] = device_values(i, place_of(d, d->rank, i), COUNT, 1);
        out[i] = cuda_new(i, (size_t)d->places * COUNT * 4);
        calls[i] = allreduce_call(in[i], out[i]);
        calls[i].device = i;
    }
    if (ok(d, run_all(d, calls, n), "allreduce"))
        for (int i = 0; i < n; i++)
            expect_sum(d, i, out[i], 1, "allreduce on several GPUs");
    for (int i = 0; i < n; i++)
        calls[i].kind = COLLRUN_ALLGATHER;
    if (ok(d, run_all(d, calls, n), "allgather"))
        for (int i = 0; i < n; i++)
            for (int p = 0; p < d->places; p++)
                expect_given(d, i, (char *)out[i] + (size_t)p * COUNT * 4, COUNT, p, 1,
                             "allgather");
    int root = d->places - 1; /* the last GPU of the last rank */
    for (int i = 0; i < n; i++) {
        calls[i].kind = COLLRUN_BROADCAST;
        calls[i].recv = in[i];
        calls[i].root = root / n;
        calls[i].peer_device = root % n;
    }
    if (ok(d, run_all(d, calls, n), "broadcast"))
        for (int i = 0; i < n; i++)
            expect_given(d, i, in[i], COUNT, root, 1, "broadcast from the last GPU");
    ok(d, collrun_barrier(d->g), "barrier");
    if (n > 1 && collrun_allreduce(d->g, in[0], out[0], COUNT, COLLRUN_INT32, COLLRUN_SUM) !=
                     COLLRUN_ERR_INVALID)
        wrong(d, "a blocking collective on one of several GPUs is not refused");
}

/* Everybody's every GPU sends to every other one, all at once. */
void drill_messages(struct drill *d)
{
    static struct collrun_call calls[2 * MOST * MOST];
    int n = d->devices, k = 0;
    void *in[MOST], *out[MOST][MOST] = {{0}};
    for (int i = 0; i < n; i++)
        in[i] = device_values(i, place_of(d, d->rank, i), COUNT, 3);
    for (int i = 0; i < n; i++)
        for (int p = 0; p < d->places; p++) {
            if (p == place_of(d, d->rank, i))
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
    if (k && ok(d, run_all(d, calls, k), "start_many"))
        for (int i = 0; i < n; i++)
            for (int p = 0; p < d->places; p++)
                if (out[i][p])
                    expect_given(d, i, out[i][p], COUNT, p, 3, "a message");
}

void drill_memory(struct drill *d)
{
    void *ptr[MOST];
    for (int i = 0; i < d->devices; i++)
        if (!ok(d, collrun_alloc_device(d->g, i, COUNT * 4, &ptr[i]), "alloc_device"))
            return;
    void *most;
    if (collrun_alloc_device(d->g, 0, (size_t)1 << 46, &most) != COLLRUN_ERR_NO_MEMORY)
        wrong(d, "more memory than any GPU has: %s", collrun_error());
    struct collrun_call calls[MOST] = {{0}};
    for (int i = 0; i < d->devices; i++) {
        int32_t *v = host_values(place_of(d, d->rank, i), COUNT, 6);
        cuda_copy(i, ptr[i], v, COUNT * 4);
        free(v);
        calls[i] = allreduce_call(ptr[i], ptr[i]);
        calls[i].device = i;
    }
    if (ok(d, run_all(d, calls, d->devices), "allreduce in place"))
        for (int i = 0; i < d->devices; i++)
            expect_sum(d, i, ptr[i], 6, "allreduce in the group's memory");
    for (int i = 0; i < d->devices; i++)
        ok(d, collrun_free(d->g, ptr[i]), "free");
    if (collrun_alloc_device(d->g, d->devices, 4, &ptr[0]) != COLLRUN_ERR_INVALID)
        wrong(d, "memory of a GPU that there is not");
    int32_t host[4] = {0};
    if (collrun_allreduce(d->g, host, host, 4, COLLRUN_INT32, COLLRUN_SUM) == COLLRUN_OK)
        wrong(d, "host memory on a backend for GPUs is not refused");
}
