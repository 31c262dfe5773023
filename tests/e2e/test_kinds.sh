#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Two kinds of devices in one job and one group: the stand-in GPUs of tests/fake (nccl) and the pretend accelerator of tests/hpu (hccl),
# beside host memory (shm, gloo). The memory of the buffers selects the backend of every call.
. "$(dirname "$0")/lib.sh"
build=${BUILD:-$top/build/release}
hccl=$build/tests/hpu/libcollrun_hccl.so
export HPU_COUNT=4 LIBHPU=$build/tests/hpu/libhpu.so LD_LIBRARY_PATH=$build/tests/fake${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

cat >kinds.c <<'END'
#include <collrun/workload.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 3000, HOST = 0, HPU = 1, CUDA = 2, KINDS = 3 };
static const char *const names[KINDS] = {"host", "hpu", "cuda"};

struct runtime {
    int (*malloc)(void **ptr, size_t len);
    int (*stream_create)(void **stream, unsigned flags);
    int (*copy)(void *to, const void *from, size_t len, int kind, void *stream);
    int (*stream_wait)(void *stream);
};

struct state {
    struct collrun_ctx *ctx;
    struct collrun_group *g;
    struct runtime runtime[KINDS];
    void *stream[KINDS];
    int32_t *in[KINDS], *out[KINDS]; /* of each kind */
    int rank, size, failures;
};

static void failed(struct state *s, const char *what, int kind)
{
    printf("FAIL rank %d: %s, %s: %s\n", s->rank, what, names[kind], collrun_error());
    s->failures++;
}

static bool load(struct runtime *r, const char *file, const char *prefix)
{
    static const char *const functions[] = {"Malloc", "StreamCreateWithFlags", "MemcpyAsync", "StreamSynchronize"};
    void *library = dlopen(file, RTLD_NOW), **at = (void **)r;
    char name[64];
    for (int i = 0; library && i < 4; i++) {
        snprintf(name, sizeof name, "%s%s", prefix, functions[i]);
        if (!(at[i] = dlsym(library, name)))
            return false;
    }
    return library;
}

static int32_t value(int rank, int kind, int i)
{
    return (rank + 1) * 1000 + kind * 100 + i % 7;
}

static void fill(struct state *s)
{
    int32_t data[N];
    for (int k = 0; k < KINDS; k++) {
        for (int i = 0; i < N; i++)
            data[i] = value(s->rank, k, i);
        if (collrun_copy(s->g, s->in[k], data, sizeof data) != COLLRUN_OK)
            failed(s, "copy to", k);
        memset(data, 0, sizeof data);
        if (collrun_copy(s->g, s->out[k], data, sizeof data) != COLLRUN_OK)
            failed(s, "copy to", k);
    }
}

/* The sum of what ranks 0 to `last` have sent, or, from >= 0, what one rank has. */
static void expect(struct state *s, int kind, int last, int from, const char *what)
{
    int32_t got[N], wanted;
    if (collrun_copy(s->g, got, s->out[kind], sizeof got) != COLLRUN_OK)
        failed(s, "copy from", kind);
    for (int i = 0; i < N; i++) {
        wanted = 0;
        for (int r = 0; r <= last && from < 0; r++)
            wanted += value(r, kind, i);
        if (from >= 0)
            wanted = value(from, kind, i);
        if (got[i] != wanted) {
            printf("FAIL rank %d: %s, %s: element %d is %d, not %d\n", s->rank, what, names[kind], i, got[i], wanted);
            s->failures++;
            return;
        }
    }
}

static struct collrun_call call_of(struct state *s, enum collrun_kind kind, int k)
{
    struct collrun_call c = COLLRUN_CALL(kind);
    c.send = s->in[k], c.recv = s->out[k], c.count = N, c.dtype = COLLRUN_INT32, c.op = COLLRUN_SUM;
    c.stream = s->stream[k];
    return c;
}

static void blocking(struct state *s)
{
    int right = (s->rank + 1) % s->size, left = (s->rank + s->size - 1) % s->size;
    for (int k = 0; k < KINDS; k++) {
        if (collrun_allreduce(s->g, s->in[k], s->out[k], N, COLLRUN_INT32, COLLRUN_SUM) != COLLRUN_OK)
            failed(s, "allreduce", k);
        expect(s, k, s->size - 1, -1, "allreduce");
        if (collrun_scan(s->g, s->in[k], s->out[k], N, COLLRUN_INT32, COLLRUN_SUM) != COLLRUN_OK)
            failed(s, "scan", k);
        expect(s, k, s->rank, -1, "scan");
        if (collrun_sendrecv(s->g, s->in[k], N, right, s->out[k], N, left, COLLRUN_INT32) != COLLRUN_OK)
            failed(s, "sendrecv", k);
        expect(s, k, 0, left, "sendrecv");
    }
}

/* One request of each kind at a time, waited for in another order on each rank. */
static void started(struct state *s, enum collrun_kind kind)
{
    struct collrun_request *requests[KINDS];
    for (int i = 0; i < KINDS; i++) {
        struct collrun_call c = call_of(s, kind, i);
        if (collrun_start(s->g, &c, &requests[i]) != COLLRUN_OK) {
            failed(s, "start", i);
            return;
        }
    }
    for (int i = 0; i < KINDS; i++) {
        int k = (i + s->rank) % KINDS;
        if (collrun_wait(requests[k]) != COLLRUN_OK)
            failed(s, "wait", k);
    }
    for (int k = 0; k < KINDS; k++)
        expect(s, k, kind == COLLRUN_SCAN ? s->rank : s->size - 1, -1, "a request");
}

/* Late data: the copy is queued on the stream that the call names. */
static void streams(struct state *s)
{
    int32_t data[KINDS][N];
    struct collrun_request *requests[KINDS] = {NULL};
    for (int k = HPU; k < KINDS; k++) {
        for (int i = 0; i < N; i++)
            data[k][i] = value(s->rank, k, i);
        for (int i = 0; i < 20; i++)
            s->runtime[k].copy(s->in[k], s->out[k], sizeof data[k], 4, s->stream[k]);
        s->runtime[k].copy(s->in[k], data[k], sizeof data[k], 4, s->stream[k]);
        struct collrun_call c = call_of(s, COLLRUN_ALLREDUCE, k);
        if (collrun_start(s->g, &c, &requests[k]) != COLLRUN_OK)
            failed(s, "start", k);
    }
    if (collrun_wait_all(requests, KINDS) != COLLRUN_OK)
        failed(s, "wait_all", 0);
    for (int k = HPU; k < KINDS; k++)
        expect(s, k, s->size - 1, -1, "allreduce behind a stream");
}

/* Buffers in two kinds of memory are refused; copies between them are made. */
static void across(struct state *s)
{
    for (int k = 0; k < KINDS; k++) {
        int other = (k + 1) % KINDS;
        if (collrun_allreduce(s->g, s->in[k], s->out[other], N, COLLRUN_INT32, COLLRUN_SUM) != COLLRUN_ERR_INVALID)
            failed(s, "two kinds of memory are accepted", k);
        if (s->rank == 0)
            printf("refused: %s\n", collrun_error());
        if (collrun_copy(s->g, s->out[other], s->in[k], N * sizeof(int32_t)) != COLLRUN_OK)
            failed(s, "copy to another kind", k);
        int32_t got[N];
        if (collrun_copy(s->g, got, s->out[other], sizeof got) != COLLRUN_OK || got[N - 1] != value(s->rank, k, N - 1))
            failed(s, "copied to another kind", k);
    }
}

static int run(struct collrun_ctx *ctx, void *state)
{
    (void)state;
    struct state s = {.ctx = ctx};
    if (!load(&s.runtime[HPU], getenv("LIBHPU"), "hpu") || !load(&s.runtime[CUDA], "libcudart.so.13", "cuda"))
        return collrun_fail(ctx, "no runtime: %s", dlerror());
    if (collrun_group_get(ctx, "world", &s.g) != COLLRUN_OK)
        return 1;
    s.rank = collrun_rank(s.g), s.size = collrun_size(s.g);
    for (int k = 0; k < KINDS; k++) {
        void **ends[2] = {(void **)&s.in[k], (void **)&s.out[k]};
        for (int i = 0; i < 2; i++)
            if (k == HOST ? !(*ends[i] = malloc(N * 4)) : s.runtime[k].malloc(ends[i], N * 4) != 0)
                return collrun_fail(ctx, "no memory of kind %s", names[k]);
        if (k != HOST)
            s.runtime[k].stream_create(&s.stream[k], 1);
    }
    for (int round = 0; round < 5 && !s.failures; round++) {
        fill(&s);
        blocking(&s);
        started(&s, COLLRUN_ALLREDUCE);
        started(&s, COLLRUN_SCAN);
        across(&s);
        streams(&s);
    }
    free(s.in[HOST]);
    free(s.out[HOST]);
    printf("rank %d: done, %d devices, on %s\n", s.rank, collrun_devices(s.g), collrun_group_backend(s.g));
    return s.failures != 0;
}
COLLRUN_WORKLOAD(.name = "kinds", .run = run);
END
plugin kinds.c kinds.so -ldl || exit 1

# kinds BACKEND: runs the workload with three ranks that own an HPU and a GPU each.
kinds() {
    job kinds <<END
version: 1
processes: {count: 3, devices: {hpu: 1}, gpus_per_process: 1}
env: {set: {NCCL_HOSTID: "{rank}"}}
backends: {hccl: {path: $hccl}}
groups: {world: {backend: $1, timeout: 5s, check: ${2:-async}}}
network: {interface: lo}
timeouts: {run: 30s}
workloads: [{plugin: ./kinds.so}]
END
    run run kinds.yaml
}

for host in shm tcp gloo; do
    kinds "{host: $host, hpu: hccl, cuda: nccl}"
    is "$host, hccl and nccl in one group" "$code, $(grep -c ': done, ' out) done, $(grep FAIL out | head -n 3)" "0, 3 done, "
done
like "a call with buffers in two kinds of memory is refused" "$(out)" \
    'refused: allreduce world.*: the send buffer is in HPU memory, but the receive buffer in GPU memory$'
kinds "{host: shm, cuda: nccl, hpu: hccl}"
is "the order of the kinds does not matter" "$code, $(grep -c ': done, ' out) done, $(grep FAIL out | head -n 3)" "0, 3 done, "
kinds "{host: shm, hpu: hccl, cuda: nccl}" strict
is "check: strict" "$code, $(grep -c ': done, ' out) done, $(grep FAIL out | head -n 3)" "0, 3 done, "
kinds shm
is "shm alone copies both" "$code, $(grep -c ': done, ' out) done, $(grep FAIL out | head -n 3)" "0, 3 done, "
kinds "{host: shm, hpu: hccl}"
is "hccl, and copies of GPU memory" "$code, $(grep -c ': done, ' out) done, $(grep FAIL out | head -n 3)" "0, 3 done, "
run plan kinds.yaml
like "plan: a column for each kind" "$(out)" '^0 .* +0 +0 +world +kinds$'
done_testing
