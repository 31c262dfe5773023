/* SPDX-License-Identifier: Apache-2.0
 *
 * The measuring loop's calls, by MPI. Built once with each MPI. usage: loop_mpi PLAN LIBRARY
 */
#include "loop.h"

#include <mpi.h>
#include <stdlib.h>

static const MPI_Comm *world(const struct loop_port *p)
{
    return p->state;
}

static void run_pingpong(struct loop_port *p, const struct loop_call *c)
{
    const int count = (int)c->count;
    MPI_Request request;
    for (int leg = 0; leg < 2; leg++) {
        const bool sends = loop_is_first(p, c) == (leg == 0);
        if (c->started && sends)
            MPI_Isend(c->send, count, MPI_FLOAT, c->peer, 0, *world(p), &request);
        else if (c->started)
            MPI_Irecv(c->recv, count, MPI_FLOAT, c->peer, 0, *world(p), &request);
        else if (sends)
            MPI_Send(c->send, count, MPI_FLOAT, c->peer, 0, *world(p));
        else
            MPI_Recv(c->recv, count, MPI_FLOAT, c->peer, 0, *world(p), MPI_STATUS_IGNORE);
        if (c->started)
            MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
}

static void run_sendrecv(struct loop_port *p, const struct loop_call *c)
{
    const int count = (int)c->count;
    MPI_Request requests[2];
    if (!c->started) {
        MPI_Sendrecv(c->send, count, MPI_FLOAT, c->peer, 0, c->recv, count, MPI_FLOAT, c->peer, 0,
                     *world(p), MPI_STATUS_IGNORE);
        return;
    }
    MPI_Irecv(c->recv, count, MPI_FLOAT, c->peer, 0, *world(p), &requests[0]);
    MPI_Isend(c->send, count, MPI_FLOAT, c->peer, 0, *world(p), &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
}

static void run_blocking(struct loop_port *p, const struct loop_call *c)
{
    const MPI_Comm w = *world(p);
    const MPI_Datatype f = MPI_FLOAT;
    const int k = (int)c->count;
    float *s = c->send, *r = c->recv;
    switch (c->op) {
    case LOOP_BARRIER:
        MPI_Barrier(w);
        break;
    case LOOP_ALLREDUCE:
        MPI_Allreduce(s, r, k, f, MPI_SUM, w);
        break;
    case LOOP_BROADCAST:
        MPI_Bcast(p->rank == 0 ? s : r, k, f, 0, w);
        break;
    case LOOP_REDUCE:
        MPI_Reduce(s, r, k, f, MPI_SUM, 0, w);
        break;
    case LOOP_ALLGATHER:
        MPI_Allgather(s, k, f, r, k, f, w);
        break;
    case LOOP_REDUCE_SCATTER:
        MPI_Reduce_scatter_block(s, r, k, f, MPI_SUM, w);
        break;
    case LOOP_ALLTOALL:
        MPI_Alltoall(s, k, f, r, k, f, w);
        break;
    case LOOP_GATHER:
        MPI_Gather(s, k, f, r, k, f, 0, w);
        break;
    default:
        MPI_Scatter(s, k, f, r, k, f, 0, w);
    }
}

static void run_started(struct loop_port *p, const struct loop_call *c)
{
    const MPI_Comm w = *world(p);
    const MPI_Datatype f = MPI_FLOAT;
    const int k = (int)c->count;
    float *s = c->send, *r = c->recv;
    MPI_Request request;
    switch (c->op) {
    case LOOP_BARRIER:
        MPI_Ibarrier(w, &request);
        break;
    case LOOP_ALLREDUCE:
        MPI_Iallreduce(s, r, k, f, MPI_SUM, w, &request);
        break;
    case LOOP_BROADCAST:
        MPI_Ibcast(p->rank == 0 ? s : r, k, f, 0, w, &request);
        break;
    case LOOP_REDUCE:
        MPI_Ireduce(s, r, k, f, MPI_SUM, 0, w, &request);
        break;
    case LOOP_ALLGATHER:
        MPI_Iallgather(s, k, f, r, k, f, w, &request);
        break;
    case LOOP_REDUCE_SCATTER:
        MPI_Ireduce_scatter_block(s, r, k, f, MPI_SUM, w, &request);
        break;
    case LOOP_ALLTOALL:
        MPI_Ialltoall(s, k, f, r, k, f, w, &request);
        break;
    case LOOP_GATHER:
        MPI_Igather(s, k, f, r, k, f, 0, w, &request);
        break;
    default:
        MPI_Iscatter(s, k, f, r, k, f, 0, w, &request);
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

/* A call that fails ends the job: MPI_ERRORS_ARE_FATAL is the default. */
static void run_call(struct loop_port *p, const struct loop_call *c)
{
    if (c->op >= LOOP_PINGPONG && c->peer < 0)
        return;
    if (c->op == LOOP_PINGPONG)
        run_pingpong(p, c);
    else if (c->op == LOOP_SENDRECV)
        run_sendrecv(p, c);
    else if (c->started)
        run_started(p, c);
    else
        run_blocking(p, c);
}

static double slowest(struct loop_port *p, double us)
{
    double most;
    MPI_Allreduce(&us, &most, 1, MPI_DOUBLE, MPI_MAX, *world(p));
    return most;
}

int main(int argc, char **argv)
{
    MPI_Comm comm = MPI_COMM_WORLD;
    struct loop_port port = {.state = &comm, .run = run_call, .slowest = slowest};
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(comm, &port.rank);
    MPI_Comm_size(comm, &port.nranks);
    const int failed = argc < 3 || loop_main(&port, argv[1], (unsigned)atoi(argv[2])) != 0;
    if (failed)
        MPI_Abort(comm, 1);
    MPI_Finalize();
    return 0;
}
