/* SPDX-License-Identifier: Apache-2.0
 *
 * The measuring loop's calls, by MPI. Built once with each MPI's compiler.
 */
#include "shm_bench.h"

#include <mpi.h>

static void pingpong(const struct bench_port *p, void *send, void *recv, int count)
{
    for (int turn = 0; turn < 2; turn++) {
        if (p->rank == turn)
            MPI_Send(send, count, MPI_FLOAT, 1 - turn, 0, MPI_COMM_WORLD);
        else if (p->rank == 1 - turn)
            MPI_Recv(recv, count, MPI_FLOAT, turn, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
}

static void run(struct bench_port *p, enum bench_op op, void *send, void *recv, size_t bytes)
{
    const int all = (int)(bytes / sizeof(float));
    const int block = all / p->nranks;
    const MPI_Comm world = MPI_COMM_WORLD;
    switch (op) {
    case BENCH_BARRIER:
        MPI_Barrier(world);
        break;
    case BENCH_ALLREDUCE:
        MPI_Allreduce(send, recv, all, MPI_FLOAT, MPI_SUM, world);
        break;
    case BENCH_REDUCE:
        MPI_Reduce(send, recv, all, MPI_FLOAT, MPI_SUM, 0, world);
        break;
    case BENCH_BROADCAST:
        MPI_Bcast(recv, all, MPI_FLOAT, 0, world);
        break;
    case BENCH_ALLGATHER:
        MPI_Allgather(send, block, MPI_FLOAT, recv, block, MPI_FLOAT, world);
        break;
    case BENCH_REDUCE_SCATTER:
        MPI_Reduce_scatter_block(send, recv, block, MPI_FLOAT, MPI_SUM, world);
        break;
    case BENCH_ALLTOALL:
        MPI_Alltoall(send, block, MPI_FLOAT, recv, block, MPI_FLOAT, world);
        break;
    case BENCH_GATHER:
        MPI_Gather(send, block, MPI_FLOAT, recv, block, MPI_FLOAT, 0, world);
        break;
    case BENCH_SCATTER:
        MPI_Scatter(send, block, MPI_FLOAT, recv, block, MPI_FLOAT, 0, world);
        break;
    default:
        pingpong(p, send, recv, all);
    }
}

static double slowest(struct bench_port *p, double us)
{
    double most = 0;
    (void)p;
    MPI_Allreduce(&us, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return most;
}

int main(int argc, char **argv)
{
    struct bench_port port = {.run = run, .slowest = slowest};
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &port.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &port.nranks);
    const int result = bench_main(&port, argc, argv);
    MPI_Finalize();
    return result;
}
