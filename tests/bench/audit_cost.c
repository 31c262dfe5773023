/* SPDX-License-Identifier: Apache-2.0
 *
 * What the audit of collectives costs at a rate of operations, as a share of the time: a workload
 * of two groups with the same ranks, "off" (check: off) and "async". Windows of half a second on
 * each take turns in one job: an allreduce in every period of the rate. A pause follows each
 * window, so that what is sent about a window falls into it.
 *
 * - agent, runner: their CPU time (schedstat of all threads), from the begin of a window to the end
 *   of its pause.
 * - a rank: the time inside of a call, in the fastest hundredth of all batches of 50 calls.
 *
 * Rank 0 prints the medians, and for the differences of neighbouring windows the median and its
 * confidence interval of 99.5 %, in per cent of the time: of that which the operations of the
 * window took, and of the time from one operation to the next one. On a machine with other work the
 * rate may be lower than it was to be; it is printed.
 */
#include <collrun/workload.h>

#include "paired.h"

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PAUSE_MS = 300, BATCH = 50, MOST_BATCHES = 10000 };

enum cost_part { AGENT, RUNNER, RANK, PARTS, WALL = PARTS };

struct cost {
    struct collrun_group *groups[2]; /* off, async */
    long long rate, window_ms;
    pid_t agent, runner;
};

static const struct collrun_param params[] = {
    {.name = "rate", .type = COLLRUN_PARAM_INT, .help = "operations/s", .def = "100000"},
    {.name = "pairs", .type = COLLRUN_PARAM_INT, .help = "of windows", .def = "15", .min = "9"},
    {.name = "window_ms", .type = COLLRUN_PARAM_INT, .help = "its length", .def = "500"},
    {0}};

static uint64_t cost_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static pid_t cost_parent(pid_t pid)
{
    char path[64];
    int parent = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "re");
    if (f) {
        if (fscanf(f, "%*d (%*[^)]) %*c %d", &parent) != 1)
            parent = 0;
        fclose(f);
    }
    return parent;
}

/* What all threads of a process have run, in ns. */
static uint64_t cost_cpu_ns(pid_t pid)
{
    char path[320];
    uint64_t sum = 0;
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *dir = opendir(path);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        unsigned long long ns = 0;
        snprintf(path, sizeof path, "/proc/%d/task/%s/schedstat", (int)pid, e->d_name);
        FILE *f = e->d_name[0] == '.' ? NULL : fopen(path, "re");
        if (!f)
            continue;
        sum += fscanf(f, "%llu", &ns) == 1 ? ns : 0;
        fclose(f);
    }
    if (dir)
        closedir(dir);
    return sum;
}

/* Operations at the rate: the time that they took, and that of one call. */
static int cost_operations(const struct cost *c, struct collrun_group *g, double *ns)
{
    static double means[MOST_BATCHES];
    unsigned n = 0;
    int rc = collrun_barrier(g);
    const uint64_t period = 1000000000u / (uint64_t)c->rate, begin = cost_now_ns();
    const uint64_t ops = (uint64_t)(c->rate * c->window_ms / 1000);
    uint64_t inside = 0;
    float in = 1, out;
    for (uint64_t i = 0; !rc && i < ops; i++) {
        uint64_t at;
        while ((at = cost_now_ns()) < begin + i * period)
            ;
        rc = collrun_allreduce(g, &in, &out, 1, COLLRUN_FLOAT32, COLLRUN_SUM);
        inside += cost_now_ns() - at;
        if (i % BATCH != BATCH - 1)
            continue;
        if (n < MOST_BATCHES)
            means[n++] = (double)inside / BATCH;
        inside = 0;
    }
    ns[WALL] = (double)(cost_now_ns() - begin);
    qsort(means, n, sizeof means[0], paired_by_value);
    ns[RANK] = n ? means[n / 100] : 0;
    return rc;
}

/* One window; what each part took, in ns: of CPU time, of a call. */
static int cost_window(const struct cost *c, struct collrun_group *g, double *ns)
{
    int rc = collrun_barrier(g);
    uint64_t agent = cost_cpu_ns(c->agent), runner = cost_cpu_ns(c->runner);
    rc = rc ? rc : cost_operations(c, g, ns);
    usleep(PAUSE_MS * 1000);
    ns[AGENT] = (double)(cost_cpu_ns(c->agent) - agent);
    ns[RUNNER] = (double)(cost_cpu_ns(c->runner) - runner);
    return rc;
}

static void cost_print(const struct cost *c, double (*ns)[2][PAIRED_MOST], unsigned pairs)
{
    static const char *const names[PARTS] = {"agent, CPU us per window",
                                             "runner, CPU us per window", "rank, ns per call"};
    const double ops = (double)(c->rate * c->window_ms / 1000);
    double all[PAIRED_MOST] = {0}, more[PAIRED_MOST];
    printf("%-28s %10s %10s   %s\n", "", "off", "async", "per cent of the time");
    for (int p = 0; p < PARTS; p++) {
        const double unit = p == RANK ? 1 : 1e3;
        for (unsigned i = 0; i < pairs; i++) {
            double time = ns[WALL][1][i] / (p == RANK ? ops : 1);
            more[i] = 100 * (ns[p][1][i] - ns[p][0][i]) / time;
            all[i] += more[i];
        }
        struct interval x = paired_interval(more, pairs);
        printf("%-28s %10.1f %10.1f   %.4f [%.4f, %.4f]\n", names[p],
               paired_interval(ns[p][0], pairs).median / unit,
               paired_interval(ns[p][1], pairs).median / unit, x.median, x.low, x.high);
    }
    struct interval x = paired_interval(all, pairs);
    printf("%-28s %10s %10s   %.4f [%.4f, %.4f]\n", "all", "", "", x.median, x.low, x.high);
    printf("%-28s %10.0f %10.0f\n", "operations/s",
           ops / paired_interval(ns[WALL][0], pairs).median * 1e9,
           ops / paired_interval(ns[WALL][1], pairs).median * 1e9);
}

static int run(struct collrun_ctx *ctx, void *state)
{
    static double ns[PARTS + 1][2][PAIRED_MOST];
    struct cost c = {.rate = collrun_param_int(ctx, "rate"),
                     .window_ms = collrun_param_int(ctx, "window_ms"),
                     .agent = getppid()};
    unsigned pairs = (unsigned)collrun_param_int(ctx, "pairs");
    int rc = collrun_group_get(ctx, "off", &c.groups[0]);
    (void)state;
    c.runner = cost_parent(c.agent);
    pairs = pairs < PAIRED_MOST ? pairs : PAIRED_MOST;
    if (!rc)
        rc = collrun_group_get(ctx, "async", &c.groups[1]);
    for (unsigned i = 0; !rc && i < 2 * pairs; i++) {
        unsigned which = (i + i / 2) % 2; /* neither is always first */
        double window[PARTS + 1];
        rc = cost_window(&c, c.groups[which], window);
        for (int p = 0; p <= PARTS; p++)
            ns[p][which][i / 2] = window[p];
    }
    if (!rc && collrun_rank(c.groups[0]) == 0)
        cost_print(&c, ns, pairs);
    return rc;
}

COLLRUN_WORKLOAD(.name = "audit_cost", .summary = "what the audit costs", .params = params,
                 .run = run);
