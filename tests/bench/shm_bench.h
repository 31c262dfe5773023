/* SPDX-License-Identifier: Apache-2.0
 *
 * One measuring loop for several libraries: shm_bench_loop.c measures, shm_bench_mpi.c and
 * shm_bench_collrun.c carry out what it asks for. Compared are times of the same calls on the same
 * buffers, so whatever the loop does wrong, it does to all of them.
 */
#ifndef TESTS_BENCH_SHM_BENCH_H
#define TESTS_BENCH_SHM_BENCH_H

#include <stddef.h>

enum bench_op {
    BENCH_BARRIER,
    BENCH_ALLREDUCE,
    BENCH_REDUCE,
    BENCH_BROADCAST,
    BENCH_ALLGATHER,
    BENCH_REDUCE_SCATTER,
    BENCH_ALLTOALL,
    BENCH_GATHER,
    BENCH_SCATTER,
    BENCH_PINGPONG,
    BENCH_OPS
};

/* A library, seen from one rank. All buffers hold float32; reductions sum; the root is 0. */
struct bench_port {
    int rank, nranks;
    void *library;
    /* `bytes` is the length of the longer of the two buffers: a block of an allgather is bytes /
     * nranks. */
    void (*run)(struct bench_port *p, enum bench_op op, void *send, void *recv, size_t bytes);
    void *(*alloc)(struct bench_port *p, size_t bytes); /* NULL: plain memory */
    double (*slowest)(struct bench_port *p,
                      double us); /* the maximum over all ranks; also a barrier */
};

/* argv: [-l least bytes] [-m most bytes] [-f factor] [-t milliseconds per turn] [-r rounds]
 * [-T turn file -i library -c libraries] [operation...].
 * Each size of each operation is measured in as many turns as there are rounds. For each rank 0
 * prints "round operation bytes microseconds": the median, over repetitions, of the slowest rank.
 * With a turn file, of 4096 zeros, so many libraries take turns and all but one sleep. */
int bench_main(struct bench_port *p, int argc, char **argv);

#endif
