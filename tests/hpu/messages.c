/* SPDX-License-Identifier: Apache-2.0
 *
 * The messages of hccl: the template's backend under another name, with the memory of HPUs.
 */
#undef _GNU_SOURCE /* stream.c defines it */
#define collrun_backend_v1 hccl_messages
#include "stream.c"
#undef collrun_backend_v1

#include "hccl.h"
#include "hpu.h"

static int hccl_send(void *group, struct collrun_message *message)
{
    struct hccl_group *g = group;
    message->data = hpuView(message->data);
    return transport_send(g->messages, message);
}

static int hccl_recv(void *group, struct collrun_message *message, const void *packet, size_t len)
{
    struct hccl_group *g = group;
    message->data = hpuView(message->data);
    return transport_recv(g->messages, message, packet, len);
}

static int hccl_progress(void *group, uint64_t wait_ns)
{
    struct hccl_group *g = group;
    return transport_progress(g->messages, wait_ns);
}

static void hccl_wake(void *group)
{
    struct hccl_group *g = group;
    transport_wake(g->messages);
}

const struct collrun_transport hccl_transport = {
    .size = (uint32_t)sizeof(struct collrun_transport),
    .message_size = (uint32_t)sizeof(struct message),
    .send = hccl_send,
    .recv = hccl_recv,
    .progress = hccl_progress,
    .wake = hccl_wake,
};
