/* SPDX-License-Identifier: Apache-2.0
 *
 * CUDA events, which are reused: each dev_comm keeps a list of spare ones.
 */
#include "event.h"

#include "group.h"

#include <stdlib.h>

struct event *event_new(const struct context *context)
{
    const struct cuda_api *cuda = &context->lib.cuda;
    struct event *e = calloc(1, sizeof *e);
    if (e && cuda->cudaEventCreateWithFlags(&e->handle, cudaEventDisableTiming) != cudaSuccess) {
        free(e);
        e = NULL;
    }
    return e;
}

void event_free_all(const struct context *context, struct event *list)
{
    while (list) {
        struct event *next = list->next;
        context->lib.cuda.cudaEventDestroy(list->handle);
        free(list);
        list = next;
    }
}

struct event *event_record(struct nccl_group *g, struct dev_comm *dev, cudaStream_t stream)
{
    const struct cuda_api *cuda = &g->context->lib.cuda;
    int before = device_enter(g->context, dev->ordinal);
    struct event *e = dev->spare_events;
    if (e)
        dev->spare_events = e->next;
    else
        e = event_new(g->context);
    cudaError_t error = e ? cuda->cudaEventRecord(e->handle, stream) : cuda->cudaGetLastError();
    device_leave(g->context, before);
    if (e && error == cudaSuccess)
        return e;
    event_release(dev, e);
    nccl_group_fail_cuda(g, dev, error, "record an event");
    return NULL;
}

void event_release(struct dev_comm *dev, struct event *event)
{
    if (!event)
        return;
    event->next = dev->spare_events;
    dev->spare_events = event;
}
