/* SPDX-License-Identifier: Apache-2.0
 *
 * The measuring loop; see shm_bench.h. A sample is a run of calls long enough for the clock; its
 * time is the slowest rank's, and what is reported is the median sample.
 */
#include "shm_bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MOST_SAMPLES 401

static const char *const names[BENCH_OPS] = {
    "barrier",        "allreduce", "reduce", "broadcast", "allgather",
    "reduce_scatter", "alltoall",  "gather", "scatter",   "pingpong",
};

struct bench {
    struct bench_port *port;
    size_t least, most, factor;
    double budget_us; /* of one operation and size */
    char *send, *recv;
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

static void measure(const struct bench *b, enum bench_op op, size_t bytes)
{
    double samples[MOST_SAMPLES];
    double first = sample(b, op, bytes, 1);
    first = sample(b, op, bytes, 4); /* warm */
    const int calls = first < 20 ? (int)(40 / (first + 0.1)) + 1 : 1;
    int n = (int)(b->budget_us / ((first + 1) * calls));
    n = n < 9 ? 9 : n > MOST_SAMPLES ? MOST_SAMPLES : n;
    for (int i = 0; i < n; i++)
        samples[i] = sample(b, op, bytes, calls);
    qsort(samples, (size_t)n, sizeof(*samples), by_value);
    if (b->port->rank == 0)
        printf("%s %zu %.3f\n", names[op], bytes, samples[n / 2]);
}

static void measure_sizes(const struct bench *b, enum bench_op op)
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

int bench_main(struct bench_port *p, int argc, char **argv)
{
    struct bench b = {.port = p, .least = 8, .most = 64u << 20, .factor = 4, .budget_us = 100000};
    optind = 1;
    for (int c; (c = getopt(argc, argv, "l:m:f:t:")) != -1;) {
        const unsigned long value = optarg ? strtoul(optarg, NULL, 10) : 0;
        if (c == 'l')
            b.least = value;
        else if (c == 'm')
            b.most = value;
        else if (c == 'f')
            b.factor = value;
        else if (c == 't')
            b.budget_us = (double)value * 1e3;
        else
            return 2;
    }
    b.send = p->alloc ? p->alloc(p, b.most) : aligned_alloc(4096, b.most + 4096);
    b.recv = p->alloc ? p->alloc(p, b.most) : aligned_alloc(4096, b.most + 4096);
    if (!b.send || !b.recv || b.factor < 2)
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
