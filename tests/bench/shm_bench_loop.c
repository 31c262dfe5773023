/* SPDX-License-Identifier: Apache-2.0
 *
 * The measuring loop; see shm_bench.h. A sample is a run of calls long enough for the clock; its
 * time is the slowest rank's, and a turn reports its median sample.
 *
 * The turn file holds one counter of the turns that ranks have finished. Turn number t of library l
 * begins when the counter reaches (t * libraries + l) * ranks; until then its ranks sleep, so that
 * only one library is awake at a time. A counter of TURNS_OVER or more ends all of them.
 */
#include "shm_bench.h"

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

#define MOST_SAMPLES 401
#define LEAST_SAMPLES 3
#define TURNS_OVER 0x80000000u
#define PATIENCE_US 120e6 /* for the other libraries' turns */

static const char *const names[BENCH_OPS] = {
    "barrier",        "allreduce", "reduce", "broadcast", "allgather",
    "reduce_scatter", "alltoall",  "gather", "scatter",   "pingpong",
};

struct bench {
    struct bench_port *port;
    size_t least, most, factor;
    double budget_us; /* of one turn */
    unsigned rounds;
    char *send, *recv;
    struct {
        _Atomic uint32_t *finished; /* NULL: alone */
        uint32_t library, libraries, turn;
    } turns;
};

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

/* ---- taking turns ---- */

static int turns_open(struct bench *b, const char *path)
{
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    void *at = fd < 0 ? MAP_FAILED : mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) {
        perror(path);
        return -1;
    }
    close(fd);
    b->turns.finished = at;
    return 0;
}

static void turn_begin(struct bench *b)
{
    if (!b->turns.finished)
        return;
    const uint32_t due =
        (b->turns.turn++ * b->turns.libraries + b->turns.library) * (uint32_t)b->port->nranks;
    const double patience = now_us() + PATIENCE_US;
    for (uint32_t seen; (seen = atomic_load(b->turns.finished)) < due;) {
        if (now_us() > patience) {
            fprintf(stderr, "another library does not end its turn\n");
            exit(1);
        }
        const struct timespec nap = {1, 0};
        syscall(SYS_futex, b->turns.finished, FUTEX_WAIT, seen, &nap, NULL, 0);
    }
    if (atomic_load(b->turns.finished) >= TURNS_OVER)
        exit(1);
}

static void turn_end(struct bench *b)
{
    if (!b->turns.finished)
        return;
    atomic_fetch_add(b->turns.finished, 1);
    syscall(SYS_futex, b->turns.finished, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

/* ---- measuring ---- */

/* Microseconds of one call, over `calls` calls, on the slowest rank. */
static double sample(const struct bench *b, enum bench_op op, size_t bytes, int calls)
{
    struct bench_port *p = b->port;
    p->slowest(p, 0);
    const double start = now_us();
    for (int i = 0; i < calls; i++)
        p->run(p, op, b->send, b->recv, bytes);
    return p->slowest(p, (now_us() - start) / calls);
}

/* One turn; *calls are those of a sample, chosen in the first. */
static double measure_turn(const struct bench *b, enum bench_op op, size_t bytes, int *calls)
{
    double samples[MOST_SAMPLES];
    sample(b, op, bytes, 1);
    const double warm = sample(b, op, bytes, *calls > 0 ? *calls : 4);
    if (*calls == 0)
        *calls = warm < 20 ? (int)(40 / (warm + 0.1)) + 1 : 1;
    int n = (int)(b->budget_us / ((warm + 1) * *calls));
    n = n < LEAST_SAMPLES ? LEAST_SAMPLES : n > MOST_SAMPLES ? MOST_SAMPLES : n;
    for (int i = 0; i < n; i++)
        samples[i] = sample(b, op, bytes, *calls);
    qsort(samples, (size_t)n, sizeof(*samples), by_value);
    return samples[n / 2];
}

static void measure(struct bench *b, enum bench_op op, size_t bytes)
{
    int calls = 0;
    for (unsigned round = 0; round < b->rounds; round++) {
        turn_begin(b);
        const double us = measure_turn(b, op, bytes, &calls);
        if (b->port->rank == 0)
            printf("%u %s %zu %.3f\n", round, names[op], bytes, us);
        turn_end(b);
    }
}

static void measure_sizes(struct bench *b, enum bench_op op)
{
    if (op == BENCH_BARRIER) {
        measure(b, op, 0);
        return;
    }
    for (size_t bytes = b->least; bytes <= b->most; bytes *= b->factor)
        measure(b, op, bytes);
}

static int is_asked_for(const char *name, int argc, char **argv)
{
    for (int i = optind; i < argc; i++)
        if (strcmp(argv[i], name) == 0)
            return 1;
    return optind == argc;
}

static int options_read(struct bench *b, int argc, char **argv)
{
    optind = 1;
    for (int c; (c = getopt(argc, argv, "l:m:f:t:r:T:i:c:")) != -1;) {
        const unsigned long value = optarg ? strtoul(optarg, NULL, 10) : 0;
        if (c == 'l')
            b->least = value;
        else if (c == 'm')
            b->most = value;
        else if (c == 'f')
            b->factor = value;
        else if (c == 't')
            b->budget_us = (double)value * 1e3;
        else if (c == 'r')
            b->rounds = (unsigned)value;
        else if (c == 'i')
            b->turns.library = (uint32_t)value;
        else if (c == 'c')
            b->turns.libraries = (uint32_t)value;
        else if (c != 'T' || turns_open(b, optarg) != 0)
            return -1;
    }
    return b->factor < 2 ? -1 : 0;
}

int bench_main(struct bench_port *p, int argc, char **argv)
{
    struct bench b = {
        .port = p, .least = 8, .most = 64u << 20, .factor = 4, .budget_us = 10000, .rounds = 9};
    if (options_read(&b, argc, argv) != 0)
        return 2;
    b.send = p->alloc ? p->alloc(p, b.most) : aligned_alloc(4096, b.most + 4096);
    b.recv = p->alloc ? p->alloc(p, b.most) : aligned_alloc(4096, b.most + 4096);
    if (!b.send || !b.recv)
        return 2;
    memset(b.send, 0, b.most);
    memset(b.recv, 0, b.most);
    for (int op = 0; op < BENCH_OPS; op++)
        if (is_asked_for(names[op], argc, argv))
            measure_sizes(&b, (enum bench_op)op);
    if (!p->alloc) {
        free(b.send);
        free(b.recv);
    }
    return 0;
}
