/* SPDX-License-Identifier: Apache-2.0
 *
 * Times the Gloo backend and Gloo's own operations in the same processes, on the same buffers:
 * Gloo's algorithms over collrun's transport, and over Gloo's own. A measure is some calls in a
 * row, by the slowest rank's clock. A round is three of them in random order: Gloo, the backend,
 * and Gloo again, which shows what the measurement itself is worth. A row has rounds until it is
 * clear (paired.h) whether the backend needs more than LIMIT times Gloo's time, or until there are
 * no more rounds to have. The results of both are compared once per row.
 * usage: gloo_bench BACKEND.so RANKS MAX_ROUNDS SECONDS MIN_BYTES MAX_BYTES [OPERATION...]
 */
#include "gloo_bench.h"

#include "backend_harness.h"
#include "paired.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define LIMIT 1.02
#define MEASURE_US 1500 /* how long Gloo's calls of one measure should take */
#define MOST_CALLS 200u
#define MOST_ROUNDS 10687
#define MOST_RANKS 16
#define MOST_ROWS 256

struct operation {
    const char *name;
    enum collrun_kind kind;
    bool per_rank; /* the size is that of one rank's block times the ranks */
};

static const struct operation operations[] = {
    {"barrier", COLLRUN_BARRIER, false},      {"allreduce", COLLRUN_ALLREDUCE, false},
    {"broadcast", COLLRUN_BROADCAST, false},  {"reduce", COLLRUN_REDUCE, false},
    {"allgather", COLLRUN_ALLGATHER, true},   {"gather", COLLRUN_GATHER, true},
    {"scatter", COLLRUN_SCATTER, true},       {"alltoall", COLLRUN_ALLTOALL, true},
    {"allgatherv", COLLRUN_ALLGATHERV, true}, {"alltoallv", COLLRUN_ALLTOALLV, true},
    {"sendrecv", COLLRUN_SEND, false},
};

/* Rounds after which to look (paired.h). */
static const unsigned looks[] = {9, 25, 75, 227, 395, 1187, 3563, MOST_ROUNDS};

struct wish {
    unsigned rounds;
    double row_us; /* how long a row should take at most, about */
    size_t min_bytes, max_bytes;
    char **names;
    int nnames;
};

/* In the scratch memory that all ranks share. */
struct board {
    double us[MOST_RANKS];  /* of the last measure */
    double cpu[MOST_RANKS]; /* the processor time in it */
};

struct bench {
    struct harness_rank *r;
    struct raw_gloo *gloo;
    struct board *board;
    float *send, *recv, *check;
    size_t elements; /* of each */
    unsigned rows, within, above;
    double noise[MOST_ROWS]; /* of each row: how far the interval of Gloo against Gloo reaches from
                                1 */
};

/* What the backend is to do: a message each way, or one collective. */
struct task {
    const struct operation *op;
    struct collrun_call calls[2];
    uint32_t ncalls;
    size_t by_rank[MOST_RANKS], by_distance[MOST_RANKS];
    size_t block; /* elements */
    unsigned times;
};

/* Three measures per round; the last array is scratch for sorting. */
struct samples {
    double own[MOST_ROUNDS], raw[MOST_ROUNDS], ratio[MOST_ROUNDS], same[MOST_ROUNDS],
        cpu[MOST_ROUNDS];
    double sorted[MOST_ROUNDS];
};

static bool wanted(const struct wish *w, const char *name)
{
    for (int i = 0; i < w->nnames; i++)
        if (strcmp(w->names[i], name) == 0)
            return true;
    return w->nnames == 0;
}

/* ---- one measure ---- */

/* What one call costs: its time on the slowest rank, and the processor time of all ranks. */
struct cost {
    double us, cpu;
};

/* The same on all ranks. */
static struct cost total(struct bench *b, struct cost mine)
{
    struct cost all = {0, 0};
    b->board->us[b->r->rank] = mine.us;
    b->board->cpu[b->r->rank] = mine.cpu;
    harness_sync(b->r);
    for (uint32_t i = 0; i < b->r->nranks; i++) {
        all.us = b->board->us[i] > all.us ? b->board->us[i] : all.us;
        all.cpu += b->board->cpu[i];
    }
    harness_sync(b->r);
    return all;
}

static double cpu_us(void)
{
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1e6 +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

/* What a round measures. */
enum which { FIRST_GLOO, BACKEND, SECOND_GLOO, WHICH_ALL };

/* Messages go through the engine's half, as in a job. */
static int run_backend(struct bench *b, const struct task *t)
{
    struct harness_group *g = b->r->group;
    return t->op->kind == COLLRUN_SEND ? harness_exec(g, t->calls, t->ncalls)
                                       : g->backend->exec(g->handle, t->calls, t->ncalls);
}

static void run_once(struct bench *b, const struct task *t, enum which which)
{
    if (which != BACKEND) {
        raw_gloo_run(b->gloo);
    } else if (run_backend(b, t) != COLLRUN_OK) {
        fprintf(stderr, "%s\n", harness_error());
        exit(1);
    }
}

/* A first call is not timed, unless calls are so long that it would tell nothing. */
static struct cost measure(struct bench *b, const struct task *t, enum which which)
{
    if (t->times > 1)
        run_once(b, t, which);
    harness_sync(b->r);
    const double cpu = cpu_us();
    const uint64_t start = harness_now_ns();
    for (unsigned i = 0; i < t->times; i++)
        run_once(b, t, which);
    const double us = (double)(harness_now_ns() - start) / 1e3;
    return total(b, (struct cost){us / t->times, (cpu_us() - cpu) / t->times});
}

/* ---- one row ---- */

static void prepare(struct bench *b, struct task *t, const struct operation *o, size_t bytes)
{
    const uint32_t n = b->r->nranks, self = b->r->rank;
    const size_t block = bytes / 4 / (o->per_rank ? n : 1);
    *t = (struct task){.op = o, .ncalls = 1, .block = block > 0 ? block : 1, .times = 1};
    for (uint32_t i = 0; i < n; i++) {
        t->by_rank[i] = uneven_count(t->block, i);
        t->by_distance[i] = uneven_count(t->block, self + i);
    }
    struct collrun_call call = COLLRUN_CALL(o->kind);
    call.size = sizeof(call);
    call.timeout_ns = b->r->group->timeout_ns;
    call.send = b->send;
    call.recv = b->recv;
    call.count = o->kind == COLLRUN_ALLGATHERV ? t->by_rank[self] : t->block;
    call.dtype = COLLRUN_FLOAT32;
    call.sendcounts = t->by_distance;
    call.recvcounts = o->kind == COLLRUN_ALLTOALLV ? t->by_distance : t->by_rank;
    call.peer = (int)((self + 1) % n);
    t->calls[0] = call;
    if (o->kind == COLLRUN_SEND) {
        call.kind = COLLRUN_RECV;
        call.peer = (int)((self + n - 1) % n);
        t->calls[t->ncalls++] = call;
    }
    raw_gloo_prepare(b->gloo, o->name, b->send, b->recv, t->block);
}

/* Elements of the result on this rank. */
static size_t result_of(const struct bench *b, const struct task *t)
{
    const size_t all = t->block * b->r->nranks;
    size_t sum = 0;
    switch (t->op->kind) {
    case COLLRUN_BARRIER:
        return 0;
    case COLLRUN_REDUCE:
        return b->r->rank == 0 ? t->block : 0;
    case COLLRUN_GATHER:
        return b->r->rank == 0 ? all : 0;
    case COLLRUN_ALLGATHER:
    case COLLRUN_ALLTOALL:
        return all;
    case COLLRUN_ALLGATHERV:
    case COLLRUN_ALLTOALLV:
        for (uint32_t i = 0; i < b->r->nranks; i++)
            sum += t->calls[0].recvcounts[i];
        return sum;
    default:
        return t->block;
    }
}

/* How many ranks got something else from the backend than from Gloo. */
static unsigned compare(struct bench *b, const struct task *t)
{
    const size_t len = b->elements * sizeof(float);
    memcpy(b->recv, b->send, len);
    run_once(b, t, BACKEND);
    memcpy(b->check, b->recv, len);
    memcpy(b->recv, b->send, len);
    run_once(b, t, FIRST_GLOO);
    const bool differs = memcmp(b->check, b->recv, result_of(b, t) * sizeof(float)) != 0;
    return total(b, (struct cost){.us = differs}).us > 0;
}

static struct interval interval_of(struct samples *s, const double *values, unsigned n)
{
    memcpy(s->sorted, values, n * sizeof(*values));
    return paired_interval(s->sorted, n);
}

/* The same on all ranks. */
static unsigned random_order(unsigned round)
{
    uint64_t x = (round + 1) * 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
    return (unsigned)(x >> 40) % 6;
}

/* The first of Gloo's two measures is compared, so that chance alone gives a ratio of 1. */
static void measure_round(struct bench *b, const struct task *t, struct samples *s, unsigned i)
{
    static const enum which orders[6][WHICH_ALL] = {
        {FIRST_GLOO, BACKEND, SECOND_GLOO}, {FIRST_GLOO, SECOND_GLOO, BACKEND},
        {BACKEND, FIRST_GLOO, SECOND_GLOO}, {BACKEND, SECOND_GLOO, FIRST_GLOO},
        {SECOND_GLOO, FIRST_GLOO, BACKEND}, {SECOND_GLOO, BACKEND, FIRST_GLOO}};
    const enum which *order = orders[random_order(i)];
    struct cost c[WHICH_ALL];
    for (unsigned k = 0; k < WHICH_ALL; k++)
        c[order[k]] = measure(b, t, order[k]);
    s->raw[i] = c[FIRST_GLOO].us;
    s->own[i] = c[BACKEND].us;
    s->ratio[i] = s->own[i] / s->raw[i];
    s->same[i] = c[SECOND_GLOO].us / s->raw[i];
    s->cpu[i] = (c[BACKEND].cpu + 0.01) / (c[FIRST_GLOO].cpu + 0.01);
}

/* The number of rounds that it took. */
static unsigned measure_row(struct bench *b, const struct task *t, struct samples *s, unsigned most)
{
    unsigned n = 0;
    for (size_t look = 0; look < sizeof(looks) / sizeof(looks[0]) && n < most; look++) {
        while (n < looks[look] && n < most)
            measure_round(b, t, s, n++);
        const struct interval ratio = interval_of(s, s->ratio, n);
        if (ratio.high <= LIMIT || ratio.low > LIMIT)
            break;
    }
    return n;
}

/* How far an interval reaches from 1. */
static double reach(struct interval i)
{
    return i.high - 1 > 1 - i.low ? i.high - 1 : 1 - i.low;
}

static void print_row(struct bench *b, const struct task *t, struct samples *s, unsigned n)
{
    const struct interval ratio = interval_of(s, s->ratio, n);
    const double noise = reach(interval_of(s, s->same, n));
    const char *verdict = ratio.high <= LIMIT ? "within" : ratio.low > LIMIT ? "ABOVE" : "open";
    const size_t bytes = t->block * 4 * (t->op->per_rank ? b->r->nranks : 1);
    printf("%-14s %9zu %11.1f %11.1f %7.3f %6.3f %6.3f %7.3f %7.1f %4u  %s\n", t->op->name, bytes,
           interval_of(s, s->raw, n).median, interval_of(s, s->own, n).median, ratio.median,
           ratio.low, ratio.high, interval_of(s, s->cpu, n).median, noise * 100, n, verdict);
    fflush(stdout);
    b->within += verdict[0] == 'w';
    b->above += verdict[0] == 'A';
    b->noise[b->rows++ % MOST_ROWS] = noise;
}

static void bench_row(struct bench *b, const struct operation *o, size_t bytes,
                      const struct wish *w)
{
    struct task t;
    static struct samples s;
    prepare(b, &t, o, bytes);
    const bool differs = compare(b, &t);
    const double us = measure(b, &t, FIRST_GLOO).us + 1, calls = MEASURE_US / us;
    t.times = calls < 1 ? 1 : calls > MOST_CALLS ? MOST_CALLS : (unsigned)calls;
    const double fit = looks[0] + w->row_us / (3 * us * (t.times + (t.times > 1)));
    const unsigned n = measure_row(b, &t, &s, fit < w->rounds ? (unsigned)fit : w->rounds);
    if (b->r->rank != 0)
        return;
    print_row(b, &t, &s, n);
    if (differs)
        printf("# %s of %zu bytes: results differ\n", o->name, bytes);
}

/* ---- the run ---- */

/* The scratch memory holds what the ranks have for each other, before it is the board. */
static struct raw_gloo *connect_gloo(struct harness_rank *r)
{
    char(*addresses)[MOST_RANKS][RAW_ADDRESS_BYTES] = r->scratch; /* of rank, for rank */
    char mine[MOST_RANKS][RAW_ADDRESS_BYTES] = {{0}};
    struct raw_gloo *gloo = raw_gloo_new((int)r->rank, (int)r->nranks, addresses[r->rank][0]);
    harness_sync(r);
    for (uint32_t i = 0; i < r->nranks; i++)
        memcpy(mine[i], addresses[i][r->rank], sizeof mine[i]);
    raw_gloo_connect(gloo, mine[0]);
    harness_sync(r);
    if (r->rank == 0)
        memset(r->scratch, 0, sizeof(struct board));
    harness_sync(r);
    return gloo;
}

/* Steps of 8, and the largest; 0 after that. */
static size_t next_size(const struct wish *w, size_t bytes)
{
    if (bytes == w->max_bytes)
        return 0;
    return bytes * 8 < w->max_bytes ? bytes * 8 : w->max_bytes;
}

static void print_end(struct bench *b)
{
    printf("# %u rows: %u within %.2f, %u above, %u open; noise: %.1f %% in the median row\n",
           b->rows, b->within, LIMIT, b->above, b->rows - b->within - b->above,
           paired_interval(b->noise, b->rows).median * 100);
}

static int bench_rank(struct harness_rank *r)
{
    const struct wish *w = r->arg;
    struct bench b = {.r = r, .board = r->scratch, .elements = w->max_bytes / 4 + w->max_bytes / 8};
    b.send = malloc(b.elements * sizeof(float));
    b.recv = malloc(b.elements * sizeof(float));
    b.check = malloc(b.elements * sizeof(float));
    HARNESS_CHECK(r, b.send && b.recv && b.check);
    for (size_t i = 0; i < b.elements; i++)
        b.send[i] = (float)(i % 1000 + r->rank);
    b.gloo = connect_gloo(r);
    if (r->rank == 0)
        printf("%-14s %9s %11s %11s %7s %6s %6s %7s %7s %4s\n", "operation", "bytes", "gloo us",
               "collrun us", "ratio", "from", "to", "cpu", "noise %", "n");
    for (size_t k = 0; k < sizeof(operations) / sizeof(operations[0]); k++) {
        if (!wanted(w, operations[k].name))
            continue;
        for (size_t bytes = w->min_bytes; bytes != 0; bytes = next_size(w, bytes)) {
            bench_row(&b, &operations[k], bytes, w);
            if (operations[k].kind == COLLRUN_BARRIER)
                break;
        }
    }
    if (r->rank == 0 && b.rows > 0)
        print_end(&b);
    harness_sync(r);
    raw_gloo_free(b.gloo);
    free(b.send);
    free(b.recv);
    free(b.check);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc < 7)
        return fprintf(stderr,
                       "usage: %s BACKEND.so RANKS MAX_ROUNDS SECONDS MIN_BYTES MAX_BYTES "
                       "[OPERATION...]\n",
                       argv[0]) > 0;
    struct wish w = {.rounds = (unsigned)atoi(argv[3]), .names = argv + 7, .nnames = argc - 7};
    w.row_us = atof(argv[4]) * 1e6;
    w.min_bytes = (size_t)atoll(argv[5]);
    w.max_bytes = (size_t)atoll(argv[6]);
    if (w.min_bytes < 8 || w.rounds < 1 || w.rounds > MOST_ROUNDS || atoi(argv[2]) < 2 ||
        atoi(argv[2]) > MOST_RANKS)
        return fprintf(stderr, "2 to %d ranks, 1 to %d rounds\n", MOST_RANKS, MOST_ROUNDS) > 0;
    const struct harness_options options = {.path = argv[1],
                                            .nranks = (uint32_t)atoi(argv[2]),
                                            .limit_s = 1200,
                                            .timeout_ns = 60000000000u,
                                            .arg = &w};
    return harness_run(&options, bench_rank);
}
