/* SPDX-License-Identifier: Apache-2.0
 *
 * struct event: a CUDA event from the pool of one dev_comm. An event that is recorded on a stream
 * is complete when the GPU has finished what the stream held at that time.
 */
#ifndef NCCL_EVENT_H
#define NCCL_EVENT_H

#include "cuda_api.h"

struct context;
struct dev_comm;
struct nccl_group;

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
