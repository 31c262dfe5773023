/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs of Open MPI: they start by PMIx, which collrun does not serve. MPI_Init then succeeds,
 * and each rank is rank 0 of 1, without a word. This watch finds such ranks, and MPI(SINGLETON)
 * tells the runner.
 *
 *  - A process of a rank has libmpi.so.40 in its memory, and the state of the library there
 *    (ompi_mpi_state) says that MPI_Init has been called. A program that is only linked with the
 *    library is none.
 *  - Its environment has nothing of PMIx nor of mpirun: a program that the rank starts by its own
 *    mpirun is none.
 *  - Not watched: a rank that is the only one of its workload, a member of collrun's groups, ranks
 *    of MPICH and Intel MPI, and processes with PyTorch, which use MPI beside something else.
 *
 * The watch looks 40 times a second at first, less often later, and uses 2 % of a CPU at most. A
 * process that calls MPI_Init and ends between two looks is missed.
 */
#ifndef RUNNER_AGENT_OPEN_MPI_H
#define RUNNER_AGENT_OPEN_MPI_H

#include "base/loop.h"

struct agent;

struct open_mpi {
    struct agent *agent;
    struct loop_timer timer;
    uint64_t begin_ns;
    char library[256];  /* the last one that was found, and where its state lies in it */
    uint64_t state_at;  /* 0: it has none */
    uint64_t search_ns; /* for which this look has searched a library, which is done once */
};

/* The ranks have been started. */
void open_mpi_start(struct open_mpi *w, struct agent *a);
void open_mpi_stop(struct open_mpi *w);

/* The value of a symbol in the dynamic table of a shared object; 0: there is none. */
uint64_t open_mpi_find_symbol(const char *file, const char *name);

#endif
