/* SPDX-License-Identifier: Apache-2.0
 *
 * struct op: one operation from start to end.
 */
#ifndef NCCL_REQUEST_H
#define NCCL_REQUEST_H

#include "issue.h"
#include "scheduler.h"

#include <collrun/backend.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct event;
struct message;
struct nccl_group;

/* The next kernel of a collective that takes several. */
struct op_kernels {
    bool more;     /* there is one */
    bool begun;    /* one was launched */
    uint32_t part; /* of a reduction: whose result it contributes to */
    size_t offset; /* what is done of the part (elements), or of every block (bytes) */
};

struct op {
    struct nccl_group *group;
    const struct collrun_call *calls; /* the engine's, until the op ends */
    uint32_t ncalls;
    uint64_t deadline_ns, timeout_ns;
    uint64_t stopped_ns; /* how long the process had stood still at the last look at the clock */
    bool looked;         /* there was one */
    uint64_t polls;
    int status;         /* 0, or how it failed; then it only waits until the streams are idle */
    uint64_t failed_ns; /* when `status` was set */

    /* A collective. */
    struct sched_op sched;
    struct op_kernels kernels;
    const struct collrun_call *next; /* what the next kernel executes; of a batch it advances */
    struct batch batch;
    /* For each call, what the callers' streams held, if it was not launched at once. NULL: the same
     * as the one before. */
    struct event **before_evts;
    atomic_bool events_final; /* after_evts are set and stay: released after them, and acquired by
                                 threads that poll for another group */

    /* Messages. */
    struct message *messages; /* ncalls, behind after_evts; NULL for a collective */
    uint32_t nopen;           /* messages that are not done */

    struct event *after_evts[]; /* ndevs: behind the collective; NULL = GPU not involved */
};

/* The operations of the backend's table. */
int nccl_exec(void *group, const struct collrun_call *calls, uint32_t ncalls);
int nccl_start(void *group, const struct collrun_call *calls, uint32_t ncalls, void **request);
int nccl_test(void *group, void *request);
int nccl_withdraw(void *group, void *request);
int nccl_order(void *group, void *request, uint32_t device, void *stream);

/* An op without calls, of class SCHED_NONE; NULL: out of memory. */
struct op *op_new(struct nccl_group *g, uint64_t timeout_ns, uint32_t nmessages);
int op_wait(struct op *op); /* waits until it ends, and frees it */

#endif
