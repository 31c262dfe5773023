/* SPDX-License-Identifier: Apache-2.0
 *
 * struct dev_comm: one communicator rank, on one GPU, with its own stream. Device d of rank r is
 * communicator rank r * ndevs + d.
 */
#ifndef NCCL_COMM_H
#define NCCL_COMM_H

#include "cuda_api.h"
#include "nccl_api.h"

#include <stdbool.h>
#include <stdint.h>

struct device;
struct nccl_group;

enum { SCRATCH_LEN = 4 << 20, TOKEN_LEN = 256, MAX_DEVICES = 64 };

struct scratch { /* SCRATCH_LEN bytes each, allocated when first needed */
    void *device, *pinned;
};

struct dev_comm {
    struct device *device;
    int ordinal;
    ncclComm_t comm; /* NULL once it is gone */
    cudaStream_t stream;
    struct event *caller_evt; /* records what the caller's stream holds before an operation */
    struct event *spare_events;
    char *token; /* TOKEN_LEN bytes on the device: what barriers and the warm-up transfer */
    struct scratch scratch;
};

int dev_comm_init(struct nccl_group *g, struct dev_comm *dev, int ordinal);
void dev_comm_fini(const struct nccl_group *g, struct dev_comm *dev);

/* The options of the group that NCCL takes per communicator. `netName` is the group's. */
int comm_read_config(struct nccl_group *g);
/* Makes the nonblocking communicators of all of the group's GPUs in this process. Ends by the
 * deadline, or as soon as the job fails. */
int comm_init(struct nccl_group *g, const ncclUniqueId *id, uint64_t deadline_ns);
/* Waits until NCCL has accepted what was issued to a communicator. With the group's lock. */
int comm_await_ready(struct nccl_group *g, struct dev_comm *dev, uint64_t deadline_ns);
/* The same for all of them, without the group's lock, which it takes for each query. */
int comm_await_all(struct nccl_group *g, uint64_t deadline_ns);
/* ncclGroupEnd. Returns the first error: `result`, which was reported inside the group, or the
 * result of the end; ncclSuccess also while a nonblocking communicator is in progress. */
ncclResult_t comm_group_end(const struct nccl_group *g, ncclResult_t result);
/* Whether one of its streams holds something that has not ended. Unlike events, streams also show
 * what a launch that failed halfway has left there. */
bool comm_is_busy(const struct nccl_group *g);
/* Finalizes the communicators and waits for the peers, up to a limit; then destroys or aborts
 * them. */
void comm_close(struct nccl_group *g);

/* struct event: a CUDA event from the pool of one dev_comm. An event that is recorded on a stream
 * is complete when the GPU has finished what the stream held at that time. */

struct context;

struct event {
    cudaEvent_t handle;
    struct event *next; /* in the pool */
};

struct event *event_new(const struct context *context); /* on the current device; NULL: refused */
void event_free_all(const struct context *context, struct event *list);
/* Takes an event of `dev` and records it on `stream`. NULL: CUDA refused; the group has failed. */
struct event *event_record(struct nccl_group *g, struct dev_comm *dev, cudaStream_t stream);
void event_release(struct dev_comm *dev, struct event *event); /* NULL is OK */

/* cudaSuccess: complete; cudaErrorNotReady: not yet. */
static inline cudaError_t event_query(const struct cuda_api *cuda, const struct event *event)
{
    return cuda->cudaEventQuery(event->handle);
}

#endif
