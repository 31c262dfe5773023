/* SPDX-License-Identifier: Apache-2.0
 *
 * struct nccl_fixture: the nccl backend on the stand-in libraries (tests/fake), without an engine,
 * and groups of this process alone with two GPUs. A test may replace functions of the libraries in
 * `context->lib` before it opens a group, or while nothing uses them.
 */
#ifndef TESTS_UNIT_NCCL_PAIR_H
#define TESTS_UNIT_NCCL_PAIR_H

#include "../../backends/nccl/group.h"
#include "harness_services.h"

enum { PAIR_GPUS = 2, PAIR_COUNT = 64, PAIR_KEYS = 8, PAIR_VALUE_LEN = 256 };

struct nccl_pair_value { /* that a group has put */
    char key[32], value[PAIR_VALUE_LEN];
    size_t len;
};

struct nccl_fixture {
    struct harness_options options;
    struct harness_rank rank; /* whose services they are */
    struct collrun_services services;
    struct collrun_rendezvous rendezvous;
    struct nccl_pair_value values[PAIR_KEYS];
    uint32_t nvalues;
    const struct collrun_backend *backend;
    struct context *context;
    struct libraries real; /* the stand-ins' functions */
    cudaStream_t stream[PAIR_GPUS];
    void *buffer[PAIR_GPUS]; /* 2 * PAIR_COUNT integers */
};

/* Opens the backend, with `messages: direct`. 0, or -1. It may be opened again after it was closed.
 */
int nccl_fixture_open(struct nccl_fixture *f);
void nccl_fixture_close(struct nccl_fixture *f);

struct nccl_pair { /* both handles of a group of two GPUs */
    struct nccl_group *collectives, *messages;
};

struct nccl_pair nccl_pair_open(struct nccl_fixture *f, const char *name);
void nccl_pair_close(const struct nccl_fixture *f, struct nccl_pair *p);
/* The communicator of direct messages from that GPU to the other one, which has been formed. */
struct nccl_group *nccl_pair_part(const struct nccl_pair *p, uint32_t from);

#endif
