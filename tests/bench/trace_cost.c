/* SPDX-License-Identifier: Apache-2.0
 *
 * What a trace costs (trace_cost.sh): a fixed number of small allreduces with a fixed amount of
 * computing between them, so that whatever takes the CPU from the ranks makes them slower. Rank 0
 * prints the time of the whole in ns, and the CPU time that agent and runner took meanwhile.
 *
 * The amount of computing is found by param `period_ns`: about so long is one period. Every job
 * must do the same amount: `spins` overrides it, and rank 0 prints what it was.
 */
#include <collrun/workload.h>

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static const struct collrun_param params[] = {
    {.name = "period_ns", .type = COLLRUN_PARAM_INT, .help = "of an operation", .def = "10000"},
    {.name = "operations", .type = COLLRUN_PARAM_INT, .help = "of each rank", .def = "100000"},
    {.name = "spins", .type = COLLRUN_PARAM_INT, .help = "per period; 0: find it", .def = "0"},
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

static void cost_compute(long long spins)
{
    volatile uint64_t x = 1;
    for (long long i = 0; i < spins; i++)
        x = x * 6364136223846793005u + 1442695040888963407u;
}

/* How many spins take the time of a period: the fastest of some tries. */
static long long cost_find(long long period_ns)
{
    uint64_t best = UINT64_MAX;
    const long long spins = 100000;
    for (int i = 0; i < 50; i++) {
        uint64_t begin = cost_now_ns();
        cost_compute(spins);
        uint64_t took = cost_now_ns() - begin;
        best = took < best ? took : best;
    }
    return spins * period_ns / (long long)best;
}

static int run(struct collrun_ctx *ctx, void *state)
{
    struct collrun_group *g;
    long long operations = collrun_param_int(ctx, "operations");
    long long spins = collrun_param_int(ctx, "spins");
    pid_t agent = getppid(), runner = cost_parent(agent);
    float in = 1, out;
    (void)state;
    int rc = collrun_group_get(ctx, "world", &g);
    if (!spins)
        spins = cost_find(collrun_param_int(ctx, "period_ns"));
    rc = rc ? rc : collrun_barrier(g);
    uint64_t cpu = cost_cpu_ns(agent) + cost_cpu_ns(runner), begin = cost_now_ns();
    for (long long i = 0; !rc && i < operations; i++) {
        cost_compute(spins);
        rc = collrun_allreduce(g, &in, &out, 1, COLLRUN_FLOAT32, COLLRUN_SUM);
    }
    uint64_t took = cost_now_ns() - begin;
    cpu = cost_cpu_ns(agent) + cost_cpu_ns(runner) - cpu;
    if (!rc && collrun_rank(g) == 0)
        printf("%llu %llu %lld\n", (unsigned long long)took, (unsigned long long)cpu, spins);
    return rc;
}

COLLRUN_WORKLOAD(.name = "trace_cost", .summary = "what a trace costs", .params = params,
                 .run = run);
