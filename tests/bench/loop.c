/* SPDX-License-Identifier: Apache-2.0
 *
 * The measuring loop; see loop.h.
 *
 * - A sample is some calls in a row between two barriers; its time is that of the slowest rank, by
 *   call. A turn is as many samples as fit into turn_ms, and its result is their median.
 * - A row starts with one call whose results are compared with what they must be.
 * - The turn file holds one counter of the turns that ranks have finished. The order of the
 *   libraries changes with the round. A counter of TURNS_OVER or more ends all libraries: the
 *   script sets it when one of them has failed.
 */
#include "loop.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { ROWS_MAX = 512, SAMPLES_MIN = 3, SAMPLES_MAX = 401, CALLS_MIN = 4, CALLS_MAX = 400 };
#define SAMPLE_BYTES ((size_t)2 << 20) /* about what the calls of one sample move */
#define SAMPLE_US 2000.0               /* slow calls: about how long a sample takes */
#define TURNS_OVER 0x80000000u
#define PATIENCE_US 300e6 /* for the turns of the other libraries */
#define UNWRITTEN (-1.0f)

static const char *const names[LOOP_OPS] = {
    "barrier",  "allreduce", "broadcast", "reduce",   "allgather", "reduce_scatter",
    "alltoall", "gather",    "scatter",   "pingpong", "sendrecv",
};

struct row {
    enum loop_op op;
    bool started;
    size_t bytes;
    int calls; /* of a sample; 0: not chosen yet */
};

struct loop {
    struct loop_port *port;
    struct row rows[ROWS_MAX];
    unsigned nrows, rounds, library, libraries;
    double turn_us;
    char turns_path[512], results_path[512];
    _Atomic uint32_t *finished; /* turns */
    uint32_t turn;
    float *send, *recv;
    FILE *results;
};

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* ---- the plan ---- */

static int row_read(struct loop *l, const char *name, size_t bytes)
{
    struct row *row = &l->rows[l->nrows++];
    *row = (struct row){.started = strncmp(name, "start_", 6) == 0, .bytes = bytes};
    for (; row->op < LOOP_OPS; row->op++)
        if (strcmp(names[row->op], name + (row->started ? 6 : 0)) == 0)
            return 0;
    fprintf(stderr, "no operation \"%s\"\n", name);
    return -1;
}

static int plan_read(struct loop *l, FILE *plan)
{
    char key[32], value[512];
    size_t bytes;
    while (fscanf(plan, "%31s %511s", key, value) == 2) {
        if (strcmp(key, "turns") == 0)
            memcpy(l->turns_path, value, sizeof value);
        else if (strcmp(key, "results") == 0)
            memcpy(l->results_path, value, sizeof value);
        else if (strcmp(key, "libraries") == 0)
            l->libraries = (unsigned)atoi(value);
        else if (strcmp(key, "rounds") == 0)
            l->rounds = (unsigned)atoi(value);
        else if (strcmp(key, "turn_ms") == 0)
            l->turn_us = atof(value) * 1e3;
        else if (l->nrows == ROWS_MAX || fscanf(plan, "%zu", &bytes) != 1 ||
                 row_read(l, value, bytes) != 0)
            return -1;
    }
    return l->nrows > 0 && l->libraries > 0 ? 0 : -1;
}

/* ---- turns ---- */

static int turns_open(struct loop *l)
{
    const int fd = open(l->turns_path, O_RDWR | O_CLOEXEC);
    void *at = fd < 0 ? MAP_FAILED : mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) {
        perror(l->turns_path);
        return -1;
    }
    close(fd);
    l->finished = at;
    return 0;
}

static void turn_begin(struct loop *l)
{
    const uint32_t place = (l->library + l->turn) % l->libraries;
    const uint32_t due = (l->turn * l->libraries + place) * (uint32_t)l->port->nranks;
    const double patience = now_us() + PATIENCE_US;
    l->turn++;
    for (uint32_t seen; (seen = atomic_load(l->finished)) < due;) {
        if (now_us() > patience) {
            fprintf(stderr, "another library does not end its turn\n");
            exit(1);
        }
        const struct timespec nap = {1, 0};
        syscall(SYS_futex, l->finished, FUTEX_WAIT, seen, &nap, NULL, 0);
    }
    if (atomic_load(l->finished) >= TURNS_OVER)
        exit(1);
}

static void turn_end(struct loop *l)
{
    atomic_fetch_add(l->finished, 1);
    syscall(SYS_futex, l->finished, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

/* ---- one row ---- */

static struct loop_call call_of(const struct loop *l, const struct row *row)
{
    const struct loop_port *p = l->port;
    const bool whole = row->op == LOOP_ALLREDUCE || row->op == LOOP_REDUCE ||
                       row->op == LOOP_BROADCAST || row->op >= LOOP_PINGPONG;
    const size_t count = row->bytes / sizeof(float) / (whole ? 1 : (size_t)p->nranks);
    return (struct loop_call){.op = row->op,
                              .started = row->started,
                              .peer = (p->rank ^ 1) < p->nranks ? p->rank ^ 1 : -1,
                              .send = l->send,
                              .recv = l->recv,
                              .count = count > 0 ? count : 1};
}

/* What rank `rank` sends at `index`. Sums of it are exact. */
static float input(size_t index, int rank)
{
    return (float)(index % 17) + (float)rank;
}

/* Elements that this rank receives. */
static size_t result_count(const struct loop_port *p, const struct loop_call *c)
{
    const size_t n = (size_t)p->nranks;
    switch (c->op) {
    case LOOP_BARRIER:
        return 0;
    case LOOP_REDUCE:
        return p->rank == 0 ? c->count : 0;
    case LOOP_BROADCAST:
        return p->rank == 0 ? 0 : c->count;
    case LOOP_GATHER:
        return p->rank == 0 ? n * c->count : 0;
    case LOOP_ALLGATHER:
    case LOOP_ALLTOALL:
        return n * c->count;
    case LOOP_PINGPONG:
    case LOOP_SENDRECV:
        return c->peer >= 0 ? c->count : 0;
    default:
        return c->count;
    }
}

static float expected(const struct loop_port *p, const struct loop_call *c, size_t i)
{
    const float n = (float)p->nranks, ranks = n * (n - 1) / 2;
    const size_t mine = (size_t)p->rank * c->count; /* this rank's block in each sender's buffer */
    switch (c->op) {
    case LOOP_ALLREDUCE:
    case LOOP_REDUCE:
        return n * input(i, 0) + ranks;
    case LOOP_REDUCE_SCATTER:
        return n * input(mine + i, 0) + ranks;
    case LOOP_ALLGATHER:
    case LOOP_GATHER:
        return input(i % c->count, (int)(i / c->count));
    case LOOP_ALLTOALL:
        return input(mine + i % c->count, (int)(i / c->count));
    case LOOP_SCATTER:
        return input(mine + i, 0);
    case LOOP_BROADCAST:
        return input(i, 0);
    default:
        return input(i, c->peer);
    }
}

static void compare(struct loop *l, const struct loop_call *call)
{
    struct loop_port *p = l->port;
    const size_t n = result_count(p, call);
    for (size_t i = 0; i < n; i++)
        l->recv[i] = UNWRITTEN;
    p->slowest(p, 0);
    p->run(p, call);
    for (size_t i = 0; i < n; i++) {
        if (l->recv[i] == expected(p, call, i))
            continue;
        fprintf(stderr, "%s, rank %d: element %zu of %zu is %g, not %g\n", names[call->op], p->rank,
                i, n, (double)l->recv[i], (double)expected(p, call, i));
        exit(1);
    }
    p->slowest(p, 0);
}

/* The same on all ranks. */
static double sample(const struct loop *l, const struct loop_call *call, int calls)
{
    struct loop_port *p = l->port;
    p->slowest(p, 0);
    const double start = now_us();
    for (int i = 0; i < calls; i++)
        p->run(p, call);
    return p->slowest(p, (now_us() - start) / calls);
}

static int clamp(double value, int least, int most)
{
    return value < least ? least : value > most ? most : (int)value;
}

/* Fewer for slow calls, also of ranks that share cores. */
static int calls_of(const struct loop *l, const struct row *row, const struct loop_call *call)
{
    const int by_size =
        clamp((double)SAMPLE_BYTES / (double)(row->bytes + 1), CALLS_MIN, CALLS_MAX);
    return clamp(SAMPLE_US / sample(l, call, CALLS_MIN), CALLS_MIN, by_size);
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

static double measure(struct loop *l, struct row *row)
{
    const struct loop_call call = call_of(l, row);
    double samples[SAMPLES_MAX];
    if (row->calls == 0) {
        compare(l, &call);
        row->calls = calls_of(l, row, &call);
    }
    const double warm_up = sample(l, &call, row->calls);
    const int n = clamp(l->turn_us / ((warm_up + 0.1) * row->calls), SAMPLES_MIN, SAMPLES_MAX);
    for (int i = 0; i < n; i++)
        samples[i] = sample(l, &call, row->calls);
    qsort(samples, (size_t)n, sizeof *samples, by_value);
    return samples[n / 2];
}

/* ---- the run ---- */

static void measure_all(struct loop *l)
{
    for (unsigned r = 0; r < l->nrows; r++) {
        struct row *row = &l->rows[r];
        const bool supported = !l->port->supports || l->port->supports(row->op, row->started);
        for (unsigned round = 0; round < l->rounds; round++) {
            turn_begin(l);
            const double us = supported ? measure(l, row) : 0;
            if (supported && l->results)
                fprintf(l->results, "%u %u %.4f\n", round, r, us);
            turn_end(l);
        }
    }
}

static int buffers_new(struct loop *l)
{
    size_t bytes = 64 * (size_t)l->port->nranks;
    for (unsigned r = 0; r < l->nrows; r++)
        bytes = l->rows[r].bytes > bytes ? l->rows[r].bytes : bytes;
    l->send = l->port->alloc ? l->port->alloc(l->port, bytes) : malloc(bytes);
    l->recv = l->port->alloc ? l->port->alloc(l->port, bytes) : malloc(bytes);
    if (!l->send || !l->recv)
        return -1;
    for (size_t i = 0; i < bytes / sizeof(float); i++)
        l->send[i] = input(i, l->port->rank);
    memset(l->recv, 0, bytes);
    return 0;
}

int loop_main(struct loop_port *p, const char *plan, unsigned library)
{
    struct loop *l = calloc(1, sizeof *l);
    FILE *file = fopen(plan, "re");
    if (!l || !file || plan_read(l, file) != 0 ||
        (l->port = p, l->library = library, turns_open(l)) || buffers_new(l) != 0) {
        fprintf(stderr, "%s: cannot be carried out\n", plan);
        return 1;
    }
    fclose(file);
    if (p->rank == 0) {
        char path[540];
        snprintf(path, sizeof path, "%s.%u", l->results_path, library);
        l->results = fopen(path, "we");
    }
    measure_all(l);
    if (l->results && fclose(l->results) != 0)
        return 1;
    if (!p->alloc) {
        free(l->send);
        free(l->recv);
    }
    munmap((void *)l->finished, 4096);
    free(l);
    return 0;
}
