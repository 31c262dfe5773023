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

/* One process's part of a communicator: several devices, one rank each. */
struct clique {
    int first, n, nranks; /* first rank here */
    struct ncclComm *comm[CLIQUE_DEVICES];
    struct CUstream_st *stream[CLIQUE_DEVICES];
    char *send[CLIQUE_DEVICES], *recv[CLIQUE_DEVICES]; /* device memory, bytes each */
    size_t bytes;
};

/* Runs `body` in so many processes, cliques having so many devices of each; 0: it ended well. */
int clique_run(int nprocs, int ndevices, void (*body)(struct procs *, int));
/* Whether such a run, of one device each, ended well and somebody said `words`. */
bool clique_runs_and_says(int nprocs, void (*body)(struct procs *, int), const char *words);
/* Before a test: nothing of the environment changes what the library does. */
int clique_setup(void **state);

/* In a body. `id` is one of procs->ids; `bytes` is the size of each buffer. */
void clique_open(struct procs *procs, int rank, int id, size_t bytes, struct clique *c);
void clique_close(struct clique *c);
int clique_ranks(const struct procs *procs);

#endif
