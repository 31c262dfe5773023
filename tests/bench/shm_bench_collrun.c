/* SPDX-License-Identifier: Apache-2.0
 *
 * The measuring loop's calls, by a collrun backend straight through its table: argv[1] is the .so,
 * argv[2] the number of ranks, argv[3] "plain" or "heap" (buffers from the backend's alloc). What
 * the engine adds to a call, its argument checks and its record, is not in these figures; it is the
 * same few tens of nanoseconds for every size.
 */
#include "shm_bench.h"

#include "backend_rig.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct library {
    struct rig_rank *r;
    struct collrun_call call;
};

static void exec(const struct library *l, const struct collrun_call *call)
{
    const struct rig_group *g = l->r->group;
    if (g->backend->exec(g->handle, call, 1) != COLLRUN_OK) {
        fprintf(stderr, "rank %u: %s\n", l->r->rank, rig_error());
        exit(1);
    }
}

static void pingpong(struct bench_port *p, struct collrun_call *call)
{
    for (int turn = 0; turn < 2; turn++) {
        call->kind = p->rank == turn ? COLLRUN_SEND : COLLRUN_RECV;
        call->peer = 1 - p->rank;
        if (p->rank < 2)
            exec(p->library, call);
    }
}

static void run(struct bench_port *p, enum bench_op op, void *send, void *recv, size_t bytes)
{
    static const enum collrun_kind kinds[BENCH_OPS] = {
        COLLRUN_BARRIER,   COLLRUN_ALLREDUCE,      COLLRUN_REDUCE,   COLLRUN_BROADCAST,
        COLLRUN_ALLGATHER, COLLRUN_REDUCE_SCATTER, COLLRUN_ALLTOALL, COLLRUN_GATHER,
        COLLRUN_SCATTER,   COLLRUN_SEND,
    };
    struct library *l = p->library;
    struct collrun_call call = l->call;
    const bool whole = op == BENCH_ALLREDUCE || op == BENCH_REDUCE || op == BENCH_BROADCAST ||
                       op == BENCH_PINGPONG;
    call.kind = kinds[op];
    call.send = send;
    call.recv = recv;
    call.count = bytes / sizeof(float) / (whole ? 1 : (size_t)p->nranks);
    if (op == BENCH_PINGPONG)
        pingpong(p, &call);
    else
        exec(l, &call);
}

static double slowest(struct bench_port *p, double us)
{
    struct library *l = p->library;
    struct collrun_call call = l->call;
    double most = 0;
    call.kind = COLLRUN_ALLREDUCE;
    call.op = COLLRUN_MAX;
    call.dtype = COLLRUN_FLOAT64;
    call.send = &us;
    call.recv = &most;
    call.count = 1;
    exec(l, &call);
    return most;
}

static void *alloc_shared(struct bench_port *p, size_t bytes)
{
    const struct rig_group *g = ((struct library *)p->library)->r->group;
    void *memory = NULL;
    return g->backend->alloc(g->handle, bytes, &memory) == COLLRUN_OK ? memory : NULL;
}

struct arguments {
    int argc;
    char **argv;
};

/* One core per rank, if there are enough: what mpirun does by itself, and `bind: core` in a job
 * file. */
static void bind_to_core(const struct rig_rank *r)
{
    cpu_set_t cores;
    cpu_set_t mine;
    if (sched_getaffinity(0, sizeof(cores), &cores) != 0 || CPU_COUNT(&cores) < (int)r->nranks)
        return;
    CPU_ZERO(&mine);
    for (int cpu = 0, seen = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &cores) && seen++ == (int)r->rank)
            CPU_SET(cpu, &mine);
    sched_setaffinity(0, sizeof(mine), &mine);
}

static int measure(struct rig_rank *r)
{
    bind_to_core(r);
    const struct arguments *a = r->arg;
    struct library l = {.r = r, .call = COLLRUN_CALL(COLLRUN_BARRIER)};
    struct bench_port port = {.rank = (int)r->rank,
                              .nranks = (int)r->nranks,
                              .library = &l,
                              .run = run,
                              .slowest = slowest};
    l.call.dtype = COLLRUN_FLOAT32;
    l.call.timeout_ns = 60000000000u;
    if (strcmp(a->argv[3], "heap") == 0)
        port.alloc = alloc_shared;
    return bench_main(&port, a->argc - 3, a->argv + 3);
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        fprintf(stderr, "usage: %s BACKEND.so RANKS plain|heap [loop options]\n", argv[0]);
        return 2;
    }
    struct arguments a = {argc, argv};
    const struct rig_options options = {.path = argv[1],
                                        .nranks = (uint32_t)strtoul(argv[2], NULL, 10),
                                        .limit_s = 3600,
                                        .arg = &a};
    return rig_run(&options, measure);
}
