/* SPDX-License-Identifier: Apache-2.0
 *
 * The measuring loop's calls, by Gloo's own operations (gloo_bench_raw.cc) over the loopback. The
 * program forks one process per rank. usage: loop_gloo PLAN LIBRARY RANKS
 */
#include "gloo_bench.h"
#include "loop.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { RANKS_MAX = 16 };

/* In memory that all ranks share. */
struct board {
    char addresses[RANKS_MAX][RANKS_MAX][RAW_ADDRESS_BYTES]; /* of rank, for rank */
    atomic_uint arrived;
};

struct rank {
    struct raw_gloo *gloo;
    struct loop_call prepared;
    bool is_prepared;
    float us[2]; /* of this rank, of all */
};

static const char *const names[LOOP_OPS] = {
    "barrier",  "allreduce", "broadcast", "reduce",   "allgather", "reduce_scatter",
    "alltoall", "gather",    "scatter",   "pingpong", "exchange",
};

/* Gloo has no reduce_scatter that takes any context. */
static bool supports(enum loop_op op, bool started)
{
    return !started && op != LOOP_REDUCE_SCATTER;
}

static void prepare(struct rank *r, const struct loop_call *c)
{
    if (r->is_prepared && memcmp(&r->prepared, c, sizeof *c) == 0)
        return;
    memcpy(&r->prepared, c, sizeof *c);
    r->is_prepared = true;
    raw_gloo_prepare(r->gloo, names[c->op], c->send, c->recv, c->count);
}

/* Gloo broadcasts from the output. The root's is the input, as that of the other libraries. */
static void run_call(struct loop_port *p, const struct loop_call *c)
{
    struct loop_call call;
    memcpy(&call, c, sizeof call);
    if (c->op >= LOOP_PINGPONG && c->peer < 0)
        return;
    if (c->op == LOOP_BROADCAST && p->rank == 0)
        call.recv = c->send;
    prepare(p->state, &call);
    raw_gloo_run(((struct rank *)p->state)->gloo);
}

/* Gloo here has sums of float32 alone: one element per rank, of which all but one are 0. */
static double slowest(struct loop_port *p, double us)
{
    float mine[RANKS_MAX] = {0}, all[RANKS_MAX], most = 0;
    mine[p->rank] = (float)us;
    struct rank *r = p->state;
    r->is_prepared = false;
    raw_gloo_prepare(r->gloo, "allreduce", mine, all, (size_t)p->nranks);
    raw_gloo_run(r->gloo);
    for (int i = 0; i < p->nranks; i++)
        most = all[i] > most ? all[i] : most;
    return (double)most;
}

static int rank_main(struct board *b, int rank, int nranks, char **argv)
{
    struct rank r = {.gloo = raw_gloo_new(rank, nranks, b->addresses[rank][0])};
    struct loop_port port = {.rank = rank,
                             .nranks = nranks,
                             .state = &r,
                             .supports = supports,
                             .run = run_call,
                             .slowest = slowest};
    char theirs[RANKS_MAX][RAW_ADDRESS_BYTES];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGPIPE, SIG_IGN);
    atomic_fetch_add(&b->arrived, 1);
    while (atomic_load(&b->arrived) < (unsigned)nranks)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    for (int i = 0; i < nranks; i++)
        memcpy(theirs[i], b->addresses[i][rank], RAW_ADDRESS_BYTES);
    raw_gloo_connect(r.gloo, theirs[0]);
    const int failed = loop_main(&port, argv[1], (unsigned)atoi(argv[2]));
    if (!failed)
        slowest(&port, 0);
    raw_gloo_free(r.gloo);
    return failed;
}

int main(int argc, char **argv)
{
    const int nranks = argc == 4 ? atoi(argv[3]) : 0;
    struct board *b =
        mmap(NULL, sizeof *b, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (nranks < 2 || nranks > RANKS_MAX || b == MAP_FAILED)
        return fprintf(stderr, "usage: %s PLAN LIBRARY RANKS\n", argv[0]) > 0;
    for (int rank = 0; rank < nranks; rank++)
        if (fork() == 0)
            _exit(rank_main(b, rank, nranks, argv));
    int failed = 0, status;
    for (int rank = 0; rank < nranks; rank++)
        if (wait(&status) < 0 || status != 0)
            failed = 1;
    return failed;
}
