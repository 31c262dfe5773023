/* SPDX-License-Identifier: Apache-2.0
 *
 * A communicator of the stand-in for libnccl, opened by all processes of a run (fake_procs.h), each
 * with one or several devices.
 */
#ifndef TESTS_UNIT_FAKE_CLIQUE_H
#define TESTS_UNIT_FAKE_CLIQUE_H

#include "fake_procs.h"

#include <stddef.h>

enum { CLIQUE_DEVICES = 4 };

/* The part of a communicator in one process: several devices, one rank each. */
struct clique {
    int first, n, nranks; /* `first`: the first rank of this process */
    struct ncclComm *comm[CLIQUE_DEVICES];
    struct CUstream_st *stream[CLIQUE_DEVICES];
    char *send[CLIQUE_DEVICES], *recv[CLIQUE_DEVICES]; /* device memory, bytes each */
    size_t bytes;
};

/* Runs `body` in `nprocs` processes with `ndevices` devices each. Returns 0 if all succeed. */
int clique_run(int nprocs, int ndevices, void (*body)(struct procs *, int));
/* True if a run with one device each succeeds and the library prints `text` on stderr. */
bool clique_runs_and_prints(int nprocs, void (*body)(struct procs *, int), const char *text);
/* A cmocka setup function: unsets the environment variables that the library reads. */
int clique_setup(void **state);

/* For a body. `id` is an index of procs->ids; `bytes` is the size of each buffer. */
void clique_open(struct procs *procs, int rank, int id, size_t bytes, struct clique *c);
void clique_close(struct clique *c);
int clique_ranks(const struct procs *procs);

#endif
