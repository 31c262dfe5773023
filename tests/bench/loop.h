/* SPDX-License-Identifier: Apache-2.0
 *
 * One measuring loop for several libraries, each with a port: loop_collrun.c (a workload on the
 * public API), loop_mpi.c (built with each MPI), loop_gloo.c (Gloo's own operations) and
 * loop_socket.c (send and recv on a TCP socket). Every library runs the same calls on the same
 * sizes, and vs_mpi.sh prints the times side by side.
 *
 * The plan is a text file: "turns FILE", "results PREFIX", "libraries N", "rounds N", "turn_ms N",
 * then "row OPERATION BYTES" for each row. All libraries run at once and take turns: in each round
 * every library measures the row once, while the ranks of all others sleep. Rank 0 of library L
 * writes "ROUND ROW MICROSECONDS" to PREFIX.L.
 */
#ifndef TESTS_BENCH_LOOP_H
#define TESTS_BENCH_LOOP_H

#include <stdbool.h>
#include <stddef.h>

enum loop_op {
    LOOP_BARRIER,
    LOOP_ALLREDUCE,
    LOOP_BROADCAST,
    LOOP_REDUCE,
    LOOP_ALLGATHER,
    LOOP_REDUCE_SCATTER,
    LOOP_ALLTOALL,
    LOOP_GATHER,
    LOOP_SCATTER,
    LOOP_PINGPONG, /* to the peer and back */
    LOOP_SENDRECV, /* to the peer and from the peer at the same time */
    LOOP_OPS
};

/* Elements are float32, reductions sum, the root is rank 0. */
struct loop_call {
    enum loop_op op;
    bool started; /* as a request, which is waited for at once */
    int peer;     /* the rank to exchange messages with; -1: none */
    float *send, *recv;
    size_t count; /* elements of one block: what one rank sends to one other rank, or all ranks
                     reduce */
};

/* A library, seen from one rank. `run` ends the process if a call fails. */
struct loop_port {
    int rank, nranks;
    void *state;
    bool (*supports)(enum loop_op op, bool started); /* NULL: everything */
    void (*run)(struct loop_port *p, const struct loop_call *call);
    void *(*alloc)(struct loop_port *p, size_t bytes); /* NULL: malloc */
    /* The maximum over all ranks; also a barrier. */
    double (*slowest)(struct loop_port *p, double us);
};

/* True for a rank that sends first: of each pair, the lower one. */
static inline bool loop_is_first(const struct loop_port *p, const struct loop_call *c)
{
    return p->rank < c->peer;
}

/* 0, or 1 after a message on stderr. */
int loop_main(struct loop_port *p, const char *plan, unsigned library);

#endif
