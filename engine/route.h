/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a call goes: to the side of its group that works on the memory its buffers are in; and as
 * which rank of that side's communicator it speaks there.
 */
#ifndef ENGINE_ROUTE_H
#define ENGINE_ROUTE_H

#include "group.h"

struct route {
    struct group_side *side;
    bool staged; /* its buffers are on a GPU, and the side reads host memory (stage.h) */
};

/* Of a call whose kind is known. OK; INVALID for buffers in two sorts of memory; UNSUPPORTED for
 * memory that the group has no way for. The cause is stored. */
int route_find(struct collrun_group *g, const struct collrun_call *call, struct route *out);

/* Ranks of the side's communicator: this call's own, and its root. */
static inline uint32_t route_place(const struct group_side *s, const struct collrun_call *call)
{
    return s->first_place + (s->ndevices ? (uint32_t)call->device : 0);
}

static inline uint32_t route_root(const struct group_side *s, const struct collrun_call *call)
{
    return (uint32_t)call->root * group_devices(s) +
           (s->ndevices ? (uint32_t)call->peer_device : 0);
}

#endif
