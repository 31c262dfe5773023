/* SPDX-License-Identifier: Apache-2.0
 *
 * hccl: a backend for HPUs (hpu.h), as one outside of this tree would be: a copy of the template
 * (examples/backend-template), which moves messages, with collectives added. It includes
 * <collrun/...> and its own runtime, and declares the kind of memory "hpu".
 */
#ifndef TESTS_HCCL_H
#define TESTS_HCCL_H

#include <collrun/backend.h>

#include <poll.h>
#include <stdatomic.h>

struct hccl_group {
    const struct collrun_services *services;
    void *messages; /* the template's group */
    uint32_t rank, nranks;
    int device; /* number in this process */
    atomic_bool aborted;
    struct pollfd *polled;
    int fds[]; /* of collectives: nranks; -1: this rank; then `polled` */
};

extern const struct collrun_backend hccl_messages; /* the template */
extern const struct collrun_transport hccl_transport;
extern const struct collrun_memory_kind hccl_kind;

#endif
