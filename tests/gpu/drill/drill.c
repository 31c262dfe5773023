/* SPDX-License-Identifier: Apache-2.0
 *
 * A workload for what GPUs add to the API: order by streams, several GPUs per process, messages
 * between GPUs, memory of the group, buffers on a GPU on backends for host memory, groups with a
 * backend for each sort of memory, and failures in the middle of it. `case` names one drill; a rank
 * prints "FAIL ..." for what is wrong and "drill: CASE done" at its end.
 */
#include "cuda.h"

#include <collrun/workload.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <time.h>

enum { COUNT = 5000, MOST = 16, BALLAST = 16 << 20 };

struct drill {
    struct collrun_ctx *ctx;
    struct collrun_group *g;
    int rank, size, devices, places; /* places: ranks of the communicator */
    int failures;
};

static void wrong(struct drill *d, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void wrong(struct drill *d, const char *format, ...)
{
    char text[600];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    d->failures++;
    printf("FAIL rank %d: %s\n", collrun_world_rank(d->ctx), text);
    fflush(stdout);
}

static bool ok(struct drill *d, int status, const char *what)
{
    if (status != COLLRUN_OK)
        wrong(d, "%s: %s", what, collrun_error());
    return status == COLLRUN_OK;
}

/* Element i of what a place contributes. */
static int32_t given(int place, size_t i, int salt)
{
    return (int32_t)(1000003u * (uint32_t)(place + 1) + 31u * (uint32_t)i + 7u * (uint32_t)salt);
}

static int32_t *host_values(int place, size_t count, int salt)
{
    int32_t *v = calloc(count, sizeof *v);
    for (size_t i = 0; i < count; i++)
        v[i] = given(place, i, salt);
    return v;
}

static void *device_values(int device, int place, size_t count, int salt)
{
    int32_t *v = host_values(place, count, salt);
    void *ptr = cuda_new(device, count * sizeof *v);
    cuda_copy(device, ptr, v, count * sizeof *v);
    free(v);
    return ptr;
}

static int32_t sum_at(int places, size_t i, int salt)
{
    uint32_t sum = 0;
    for (int p = 0; p < places; p++)
        sum += (uint32_t)given(p, i, salt);
    return (int32_t)sum;
}

static void expect_sum(struct drill *d, int device, const void *ptr, int salt, const char *what)
{
    int32_t got[COUNT];
    cuda_copy(device, got, ptr, sizeof got);
    for (size_t i = 0; i < COUNT; i++)
        if (got[i] != sum_at(d->places, i, salt)) {
            wrong(d, "%s: element %zu is %d, expected %d", what, i, got[i],
                  sum_at(d->places, i, salt));
            return;
        }
}

static void expect_given(struct drill *d, int device, const void *ptr, size_t count, int place,
                         int salt, const char *what)
{
    int32_t *got = calloc(count + 1, sizeof *got);
    cuda_copy(device, got, ptr, count * sizeof *got);
    for (size_t i = 0; i < count; i++)
        if (got[i] != given(place, i, salt)) {
            wrong(d, "%s: element %zu is %d, expected %d", what, i, got[i], given(place, i, salt));
            break;
        }
    free(got);
}

static struct collrun_call allreduce_call(const void *send, void *recv)
{
    struct collrun_call c = COLLRUN_CALL(COLLRUN_ALLREDUCE);
    c.send = send;
    c.recv = recv;
    c.count = COUNT;
    c.dtype = COLLRUN_INT32;
    c.op = COLLRUN_SUM;
    return c;
}

static int place_of(const struct drill *d, int rank, int device)
{
    return rank * (d->devices ? d->devices : 1) + device;
}

/* ---- streams ---- */

/* Keeps a stream busy for longer than it takes to ask for it. */
static void keep_busy(void *ballast, void *stream)
{
    for (int i = 0; i < 40; i++)
        cuda_must(cuda.memset_async(ballast, i, BALLAST, stream), "cudaMemsetAsync");
}

/* The input arrives late, on a stream; the output is read on another one that waits for the
 * operation, while the host does not. */
static void drill_streams(struct drill *d)
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

/* ---- several GPUs per process ---- */

static int run_all(struct drill *d, struct collrun_call *calls, int n)
{
    struct collrun_request *r;
    int rc = collrun_start_many(d->g, calls, n, &r);
    return rc == COLLRUN_OK ? collrun_wait(r) : rc;
}

static void drill_devices(struct drill *d)
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

/* ---- messages ---- */

/* Everybody's every GPU sends to every other one, all at once. */
static void drill_messages(struct drill *d)
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

/* Head to head: as requests of their own, and by sendrecv. */
static void drill_cross(struct drill *d)
{
    size_t count = 3000000;
    int peer = 1 - d->rank;
    struct collrun_call send = COLLRUN_CALL(COLLRUN_SEND), recv = COLLRUN_CALL(COLLRUN_RECV);
    struct collrun_request *r[2] = {NULL, NULL};
    void *out = device_values(0, d->rank, count, 4), *in = cuda_new(0, count * 4);
    if (d->rank > 1)
        return;
    send.send = out;
    recv.recv = in;
    send.count = recv.count = count;
    send.dtype = recv.dtype = COLLRUN_INT32;
    send.peer = recv.peer = peer;
    if (ok(d, collrun_start(d->g, &send, &r[0]), "start send") &&
        ok(d, collrun_start(d->g, &recv, &r[1]), "start recv") &&
        ok(d, collrun_wait_all(r, 2), "wait_all"))
        expect_given(d, 0, in, count, peer, 4, "head to head, started");
    void *stream = cuda_new_stream(0);
    int32_t *pinned;
    cuda_must(cuda.host_alloc((void **)&pinned, count * 4, 0), "cudaHostAlloc");
    if (ok(d, collrun_start(d->g, &recv, &r[1]), "start recv") &&
        ok(d, collrun_start(d->g, &send, &r[0]), "start send") &&
        ok(d, collrun_wait_stream(r[1], 0, stream), "wait_stream")) {
        cuda_must(cuda.memcpy_async(pinned, in, count * 4, CUDA_COPY, stream), "cudaMemcpyAsync");
        cuda_must(cuda.stream_synchronize(stream), "cudaStreamSynchronize");
        for (size_t i = 0; i < count && !d->failures; i++)
            if (pinned[i] != given(peer, i, 4))
                wrong(d, "a message that a stream waits for: element %zu is %d", i, pinned[i]);
        ok(d, collrun_wait_all(r, 2), "wait_all");
    }
    cuda_must(cuda.memset_async(in, 0, count * 4, stream), "cudaMemsetAsync");
    cuda_must(cuda.stream_synchronize(stream), "cudaStreamSynchronize");
    if (ok(d, collrun_sendrecv(d->g, out, count, peer, in, count, peer, COLLRUN_INT32), "sendrecv"))
        expect_given(d, 0, in, count, peer, 4, "head to head, sendrecv");
}

/* Both send, then receive: it must end, and say what to do. */
static void drill_deadlock(struct drill *d)
{
    size_t count = 3000000;
    void *out = device_values(0, d->rank, count, 5);
    int rc = collrun_send(d->g, out, count, COLLRUN_INT32, 1 - d->rank);
    if (rc == COLLRUN_OK || !strstr(collrun_error(), "collrun_sendrecv"))
        wrong(d, "a blocking cross pair: %d, %s", rc, collrun_error());
}

/* ---- messages that do not end ---- */

static struct collrun_call message_call(enum collrun_kind kind, void *buffer, int device, int peer)
{
    struct collrun_call c = COLLRUN_CALL(kind);
    c.send = c.recv = buffer;
    c.count = COUNT;
    c.dtype = COLLRUN_INT32;
    c.device = device;
    c.peer = peer;
    return c;
}

static void expect_words(struct drill *d, int rc, const char *first, const char *second)
{
    if (rc != COLLRUN_ERR_TIMEOUT || !strstr(collrun_error(), first) ||
        !strstr(collrun_error(), second))
        wrong(d, "%d, %s", rc, collrun_error());
}

/* Rank 1 does not come: both of its GPUs are named, and what each did not do. */
static void drill_unmet(struct drill *d)
{
    struct collrun_call calls[2] = {
        message_call(COLLRUN_SEND, cuda_new(0, COUNT * 4), 0, 1 - d->rank),
        message_call(COLLRUN_RECV, cuda_new(1, COUNT * 4), 1, 1 - d->rank)};
    calls[0].peer_device = 1;
    calls[1].tag = 7;
    if (d->rank == 0)
        expect_words(d, run_all(d, calls, 2), "GPU 1 of rank 1 did not receive",
                     "GPU 0 of rank 1 did not send with tag 7");
}

/* Rank 0 starts two collectives, then sends; rank 1 receives before it comes to them. */
static void drill_order(struct drill *d)
{
    void *in = device_values(0, d->rank, COUNT, 20), *out = cuda_new(0, COUNT * 4);
    struct collrun_call c = allreduce_call(in, out);
    struct collrun_call m =
        message_call(d->rank ? COLLRUN_RECV : COLLRUN_SEND, d->rank ? out : in, 0, 1 - d->rank);
    struct collrun_request *r[3] = {NULL};
    for (int i = 0; i < 100; i++) /* one thread only: collectives may now follow on each other */
        ok(d, collrun_allreduce(d->g, in, out, COUNT, COLLRUN_INT32, COLLRUN_SUM), "allreduce");
    c.timeout_ns = 5000000000u;
    for (int i = 0; d->rank == 0 && i < 2; i++)
        ok(d, collrun_start(d->g, &c, &r[i]), "start");
    if (ok(d, collrun_start(d->g, &m, &r[2]), "start"))
        expect_words(d, collrun_wait(r[2]), d->rank ? "rank 0 did not send" : "collectives",
                     d->rank ? "" : "had started before");
    for (int i = 0; d->rank == 0 && i < 2; i++)
        collrun_wait(r[i]);
}

/* All walk through one list: a message from rank 2 to 1, two collectives, a message from 0 to 1.
 * Rank 2 is late, and rank 1 must not be kept from its message by the one from rank 0, which cannot
 * begin there before the collectives. */
static void drill_walk(struct drill *d)
{
    void *in = device_values(0, d->rank, COUNT, 21), *out = cuda_new(0, COUNT * 4);
    void *early = cuda_new(0, COUNT * 4), *last = cuda_new(0, COUNT * 4);
    struct collrun_call c = allreduce_call(in, out);
    struct collrun_call first = message_call(COLLRUN_SEND, in, 0, 1), second = first;
    struct collrun_request *r[4] = {NULL};
    for (int i = 0; i < 100; i++)
        ok(d, collrun_allreduce(d->g, in, out, COUNT, COLLRUN_INT32, COLLRUN_SUM), "allreduce");
    if (d->rank == 1) {
        first = message_call(COLLRUN_RECV, early, 0, 2);
        second = message_call(COLLRUN_RECV, last, 0, 0);
    }
    if (d->rank == 2)
        nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
    if (d->rank != 0)
        ok(d, collrun_start(d->g, &first, &r[0]), "start");
    if (d->rank == 2)
        ok(d, collrun_wait_all(r, 1), "the first message");
    for (int i = 1; i < 3; i++)
        ok(d, collrun_start(d->g, &c, &r[i]), "start");
    if (d->rank != 2)
        ok(d, collrun_start(d->g, &second, &r[3]), "start");
    if (!ok(d, collrun_wait_all(r, 4), "wait_all"))
        return;
    expect_sum(d, 0, out, 21, "allreduce beside messages");
    if (d->rank == 1) {
        expect_given(d, 0, early, COUNT, 2, 21, "the message of rank 2");
        expect_given(d, 0, last, COUNT, 0, 21, "the message of rank 0");
    }
}

/* ---- memory ---- */

static void drill_memory(struct drill *d)
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

/* ---- buffers on a GPU, on a backend for host memory ---- */

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

static void drill_staged(struct drill *d)
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
    int right = (d->rank + 1) % d->size, left = (d->rank + d->size - 1) % d->size;
    void *mine = device_values(0, d->rank, COUNT, 9);
    if (ok(d, collrun_sendrecv(d->g, mine, COUNT, right, out, COUNT, left, COLLRUN_INT32),
           "sendrecv"))
        expect_given(d, 0, out, COUNT, left, 9, "staged sendrecv");
}

/* Host memory and GPU memory, alternately and at the same time. */
static void drill_mixed(struct drill *d)
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

/* ---- several groups at once ---- */

struct driver {
    struct drill *d;
    struct collrun_group *g;
    int salt, failures;
};

static void *drive(void *arg)
{
    struct driver *v = arg;
    struct drill d = *v->d;
    d.failures = 0;
    d.g = v->g;
    d.rank = collrun_rank(v->g);
    d.places = collrun_size(v->g);
    void *in = device_values(0, d.rank, COUNT, v->salt), *out = cuda_new(0, COUNT * 4);
    for (int i = 0; i < 30 && !d.failures; i++)
        if (ok(&d, collrun_allreduce(v->g, in, out, COUNT, COLLRUN_INT32, COLLRUN_SUM),
               "allreduce"))
            expect_sum(&d, 0, out, v->salt, "allreduce beside another group");
    v->failures = d.failures;
    return NULL;
}

/* Two collectives of a group, started from a thread of their own and not waited for. */
struct pair {
    struct drill *d;
    struct collrun_group *g;
    void *in, *out;
    struct collrun_request *r[2];
};

static void *start_pair(void *arg)
{
    struct pair *p = arg;
    struct collrun_call c = allreduce_call(p->in, p->out);
    for (int i = 0; i < 2; i++)
        ok(p->d, collrun_start(p->g, &c, &p->r[i]), "start");
    return NULL;
}

static void run_pair(struct pair *p)
{
    pthread_t thread;
    pthread_create(&thread, NULL, start_pair, p);
    pthread_join(thread, NULL);
}

/* Each rank starts on another group first, as threads may. */
static void drill_threads(struct drill *d)
{
    struct pair pairs[2];
    for (int i = 0; i < 2; i++)
        pairs[i] = (struct pair){.d = d,
                                 .g = d->g,
                                 .in = device_values(0, d->rank, COUNT, 22),
                                 .out = cuda_new(0, COUNT * 4)};
    if (!ok(d, collrun_group_get(d->ctx, "second", &pairs[1].g), "the second group"))
        return;
    for (int i = 0; i < 2; i++) { /* until then nobody knows that there are several threads */
        run_pair(&pairs[i]);
        ok(d, collrun_wait_all(pairs[i].r, 2), "wait_all");
    }
    for (int round = 0; round < 50 && !d->failures; round++) {
        for (int i = 0; i < 2; i++)
            run_pair(&pairs[(d->rank + i) % 2]);
        for (int i = 0; i < 2; i++)
            ok(d, collrun_wait_all(pairs[i].r, 2), "wait_all");
    }
    for (int i = 0; i < 2; i++)
        expect_sum(d, 0, pairs[i].out, 22, "allreduce from a thread");
}

/* Two groups over the same GPUs, each from its own thread. */
static void drill_groups(struct drill *d)
{
    struct driver drivers[2] = {{.d = d, .salt = 12}, {.d = d, .salt = 13}};
    pthread_t threads[2];
    drivers[0].g = d->g;
    if (!ok(d, collrun_group_get(d->ctx, "second", &drivers[1].g), "the second group"))
        return;
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, drive, &drivers[i]);
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        d->failures += drivers[i].failures;
    }
}

/* ---- failures ---- */

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* The last rank does not come. The others are told so, within the group's time-out, and go on with
 * their GPUs. */
static void drill_late(struct drill *d)
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

/* One rank fails; the others are inside an operation. */
static void drill_peer(struct drill *d)
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
static void drill_mismatch(struct drill *d)
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
static void drill_fault(struct drill *d)
{
    void *in = device_values(0, d->rank, COUNT, 17), *out = cuda_new(0, COUNT * 4);
    int rc = COLLRUN_OK;
    for (int i = 0; i < 50 && rc == COLLRUN_OK; i++)
        rc = collrun_allreduce(d->g, in, out, COUNT, COLLRUN_INT32, COLLRUN_SUM);
    if (rc == COLLRUN_OK)
        wrong(d, "no operation failed");
    printf("drill: fault: %s\n", collrun_error());
}

/* ---- the frame ---- */

static const struct {
    const char *name;
    void (*run)(struct drill *d);
} drills[] = {
    {"streams", drill_streams}, {"devices", drill_devices},   {"messages", drill_messages},
    {"cross", drill_cross},     {"deadlock", drill_deadlock}, {"memory", drill_memory},
    {"staged", drill_staged},   {"mixed", drill_mixed},       {"groups", drill_groups},
    {"late", drill_late},       {"peer", drill_peer},         {"mismatch", drill_mismatch},
    {"fault", drill_fault},     {"unmet", drill_unmet},       {"order", drill_order},
    {"walk", drill_walk},       {"threads", drill_threads}};

static int run(struct collrun_ctx *ctx, void *state)
{
    (void)state;
    const char *name = collrun_param_string(ctx, "case");
    struct drill d = {.ctx = ctx};
    if (cuda_load() != 0)
        return collrun_fail(ctx, "libcudart.so.13 (or .12) does not load");
    int rc = collrun_group_get(ctx, collrun_param_string(ctx, "group"), &d.g);
    if (rc != COLLRUN_OK)
        return rc;
    d.rank = collrun_rank(d.g);
    d.size = collrun_size(d.g);
    d.devices = collrun_devices(d.g);
    d.places = d.size * (d.devices ? d.devices : 1);
    for (size_t i = 0; i < sizeof drills / sizeof *drills; i++)
        if (strcmp(drills[i].name, name) == 0) {
            drills[i].run(&d);
            printf("drill: %s done\n", name);
            fflush(stdout);
            return d.failures ? 1 : 0;
        }
    return collrun_fail(ctx, "no drill \"%s\"", name);
}

static const struct collrun_param params[] = {
    {.name = "case", .type = COLLRUN_PARAM_STRING, .help = "which drill"},
    {.name = "group", .type = COLLRUN_PARAM_STRING, .def = "world", .help = "on which group"},
    {0},
};

COLLRUN_WORKLOAD(.name = "drill", .summary = "what GPUs add to the API", .params = params,
                 .run = run);
