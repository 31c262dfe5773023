/* SPDX-License-Identifier: Apache-2.0
 *
 * Times the Gloo backend and Gloo's own collectives in the same processes, in turn, after a call
 * that is not timed. A round is a number of calls in a row; its time is that of the slowest rank.
 * Printed are the medians over the rounds, the median of the rounds' ratios, and the backend's
 * result is compared with Gloo's once per size. usage: gloo_bench BACKEND.so RANKS ROUNDS MIN_BYTES
 * MAX_BYTES [OPERATION...]
 */
#include "gloo_bench.h"

#include "backend_rig.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ROUNDS 99

struct operation {
    const char *name;
    enum collrun_kind kind;
    bool per_rank; /* the size is that of one rank's block */
};

static const struct operation operations[] = {
    {"barrier", COLLRUN_BARRIER, false},     {"allreduce", COLLRUN_ALLREDUCE, false},
    {"broadcast", COLLRUN_BROADCAST, false}, {"reduce", COLLRUN_REDUCE, false},
    {"allgather", COLLRUN_ALLGATHER, true},  {"reduce_scatter", COLLRUN_REDUCE_SCATTER, true},
};

struct wish {
    unsigned rounds;
    size_t min_bytes, max_bytes;
    char **names;
    int nnames;
};

/* In the scratch memory that all ranks share. */
struct board {
    char addresses[16][16][RAW_ADDRESS_BYTES]; /* of rank, for rank */
    double us[16];
};

struct bench {
    struct rig_rank *r;
    struct raw_gloo *raw;
    struct board *board;
    float *send, *recv, *check;
};

static bool wanted(const struct wish *w, const char *name)
{
    for (int i = 0; i < w->nnames; i++)
        if (strcmp(w->names[i], name) == 0)
            return true;
    return w->nnames == 0;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, unsigned n)
{
    qsort(v, n, sizeof(*v), by_value);
    return v[n / 2];
}

/* The time of one call, on the slowest rank. */
static double slowest(struct bench *b, double us)
{
    b->board->us[b->r->rank] = us;
    rig_sync(b->r);
    double most = 0;
    for (uint32_t i = 0; i < b->r->nranks; i++)
        most = b->board->us[i] > most ? b->board->us[i] : most;
    rig_sync(b->r);
    return most;
}

static double time_raw(struct bench *b, unsigned calls)
{
    raw_gloo_run(b->raw);
    rig_sync(b->r);
    const uint64_t start = rig_now_ns();
    for (unsigned i = 0; i < calls; i++)
        raw_gloo_run(b->raw);
    return slowest(b, (double)(rig_now_ns() - start) / 1e3 / calls);
}

static double time_backend(struct bench *b, const struct collrun_call *call, unsigned calls)
{
    int status = rig_exec(b->r->group, call, 1);
    rig_sync(b->r);
    const uint64_t start = rig_now_ns();
    for (unsigned i = 0; i < calls; i++)
        status |= rig_exec(b->r->group, call, 1);
    const double us = (double)(rig_now_ns() - start) / 1e3 / calls;
    if (status != COLLRUN_OK)
        exit(fprintf(stderr, "%s\n", rig_error()) != 0);
    return slowest(b, us);
}

/* Steps of 8, and the largest; 0 after that. */
static size_t next_size(const struct wish *w, size_t bytes)
{
    if (bytes == w->max_bytes)
        return 0;
    return bytes * 8 < w->max_bytes ? bytes * 8 : w->max_bytes;
}

static unsigned calls_for(size_t bytes)
{
    const size_t calls = (8u << 20) / (bytes + 8192);
    return calls < 1 ? 1 : calls > 200 ? 200 : (unsigned)calls;
}

static void bench_size(struct bench *b, const struct operation *o, size_t bytes, unsigned rounds)
{
    double raw[MAX_ROUNDS];
    double own[MAX_ROUNDS];
    double ratio[MAX_ROUNDS];
    const size_t block = o->per_rank ? bytes / 4 / b->r->nranks : bytes / 4;
    struct collrun_call call = COLLRUN_CALL(o->kind);
    call.send = b->send;
    call.recv = b->recv;
    call.count = block;
    call.dtype = COLLRUN_FLOAT32;
    if (block == 0 || raw_gloo_prepare(b->raw, o->name, b->send, b->check, block) != 0)
        return;
    const unsigned calls = calls_for(bytes);
    for (unsigned i = 0; i < rounds; i++) { /* each goes first in every other round */
        if (i % 2 == 0)
            raw[i] = time_raw(b, calls);
        own[i] = time_backend(b, &call, calls);
        if (i % 2 == 1)
            raw[i] = time_raw(b, calls);
        ratio[i] = raw[i] / own[i];
    }
    if (b->r->rank != 0)
        return;
    const double r = median(ratio, rounds);
    printf("%-15s %10zu %12.1f %12.1f %8.2f\n", o->name, bytes, median(raw, rounds),
           median(own, rounds), r);
    const size_t len = o->kind == COLLRUN_ALLGATHER ? bytes : block * 4;
    if (o->kind != COLLRUN_BARRIER && memcmp(b->recv, b->check, len) != 0)
        printf("# %s of %zu bytes: results differ\n", o->name, bytes);
    fflush(stdout);
}

static void open_raw(struct bench *b)
{
    struct rig_rank *r = b->r;
    b->raw = raw_gloo_new((int)r->rank, (int)r->nranks, b->board->addresses[r->rank][0]);
    rig_sync(r);
    char theirs[16][RAW_ADDRESS_BYTES];
    for (uint32_t i = 0; i < r->nranks; i++)
        memcpy(theirs[i], b->board->addresses[i][r->rank], RAW_ADDRESS_BYTES);
    raw_gloo_connect(b->raw, theirs[0]);
}

static int bench_rank(struct rig_rank *r)
{
    const struct wish *w = r->arg;
    struct bench b = {.r = r, .board = r->scratch};
    const size_t elements = w->max_bytes / 4;
    signal(SIGPIPE, SIG_IGN);
    b.send = malloc(w->max_bytes);
    b.recv = calloc(1, w->max_bytes);
    b.check = calloc(1, w->max_bytes);
    RIG_CHECK(r, b.send && b.recv && b.check);
    for (size_t i = 0; i < elements; i++)
        b.send[i] = (float)(i % 1000 + r->rank);
    memcpy(b.recv, b.send, w->max_bytes);
    memcpy(b.check, b.send, w->max_bytes);
    open_raw(&b);
    if (r->rank == 0)
        printf("%-15s %10s %12s %12s %8s\n", "operation", "bytes", "gloo (us)", "collrun (us)",
               "ratio");
    for (size_t k = 0; k < sizeof(operations) / sizeof(operations[0]); k++) {
        if (!wanted(w, operations[k].name))
            continue;
        for (size_t bytes = w->min_bytes; bytes != 0; bytes = next_size(w, bytes)) {
            bench_size(&b, &operations[k], bytes, w->rounds);
            if (operations[k].kind == COLLRUN_BARRIER)
                break;
        }
    }
    rig_sync(r);
    raw_gloo_free(b.raw);
    free(b.send);
    free(b.recv);
    free(b.check);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc < 6)
        return fprintf(stderr,
                       "usage: %s BACKEND.so RANKS ROUNDS MIN_BYTES MAX_BYTES [OPERATION...]\n",
                       argv[0]) > 0;
    struct wish w = {.rounds = (unsigned)atoi(argv[3]), .names = argv + 6, .nnames = argc - 6};
    w.min_bytes = (size_t)atoll(argv[4]);
    w.max_bytes = (size_t)atoll(argv[5]);
    if (w.min_bytes < 8 || w.rounds < 1 || w.rounds > MAX_ROUNDS || atoi(argv[2]) < 2 ||
        atoi(argv[2]) > 16)
        return fprintf(stderr, "2 to 16 ranks, 1 to %d rounds\n", MAX_ROUNDS) > 0;
    const struct rig_options options = {.path = argv[1],
                                        .nranks = (uint32_t)atoi(argv[2]),
                                        .limit_s = 1200,
                                        .timeout_ns = 60000000000u,
                                        .arg = &w};
    return rig_run(&options, bench_rank);
}
