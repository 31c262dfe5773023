/* SPDX-License-Identifier: Apache-2.0
 *
 * Opens and closes communicators, and runs bodies in processes.
 */
#include "fake_clique.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int devices_each = 1; /* per process; set before a run */

int clique_ranks(const struct procs *procs)
{
    return procs->nprocs * devices_each;
}

void clique_open(struct procs *procs, int rank, int id, size_t bytes, struct clique *c)
{
    *c = (struct clique){.first = rank * devices_each,
                         .n = devices_each,
                         .nranks = clique_ranks(procs),
                         .bytes = bytes};
    if (rank == 0)
        MUST_BE(fake.ncclGetUniqueId(&procs->ids[id]), ncclSuccess);
    procs_barrier(procs);
    MUST_BE(fake.ncclGroupStart(), ncclSuccess);
    for (int d = 0; d < c->n; d++) {
        MUST_BE(fake.cudaSetDevice(c->first + d), cudaSuccess);
        MUST_BE(fake.ncclCommInitRank(&c->comm[d], c->nranks, procs->ids[id], c->first + d),
                ncclSuccess);
        MUST_BE(fake.cudaStreamCreateWithFlags(&c->stream[d], cudaStreamNonBlocking), cudaSuccess);
        MUST_BE(fake.cudaMalloc((void **)&c->send[d], bytes), cudaSuccess);
        MUST_BE(fake.cudaMalloc((void **)&c->recv[d], bytes), cudaSuccess);
    }
    MUST_BE(fake.ncclGroupEnd(), ncclSuccess);
}

void clique_close(struct clique *c)
{
    MUST_BE(fake.ncclGroupStart(), ncclSuccess);
    for (int d = 0; d < c->n; d++)
        MUST_BE(fake.ncclCommFinalize(c->comm[d]), ncclSuccess);
    MUST_BE(fake.ncclGroupEnd(), ncclSuccess);
    for (int d = 0; d < c->n; d++)
        MUST_BE(fake.ncclCommDestroy(c->comm[d]), ncclSuccess);
}

int clique_run(int nprocs, int ndevices, void (*body)(struct procs *, int))
{
    struct procs *procs;
    devices_each = ndevices;
    int status = procs_run(&procs, nprocs, "", body);
    procs_free(procs);
    return status;
}

bool clique_runs_and_prints(int nprocs, void (*body)(struct procs *, int), const char *text)
{
    struct procs *procs;
    devices_each = 1;
    int status = procs_run(&procs, nprocs, "", body);
    bool printed = strstr(procs->printed, text) != NULL;
    if (status == 0 && !printed)
        print_message("# \"%s\" is not in: %s\n", text, procs->printed);
    procs_free(procs);
    return status == 0 && printed;
}

int clique_setup(void **state)
{
    static const char *const names[] = {"NCCL_HOSTID",           "NCCL_LAUNCH_ORDER_IMPLICIT",
                                        "FAKE_NCCL_CONCURRENCY", "FAKE_NCCL_FAULT",
                                        "FAKE_NCCL_STALL_MS",    "FAKE_CUDA_DELAY_US"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        unsetenv(names[i]);
    return 0;
}
