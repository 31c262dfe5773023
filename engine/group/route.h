/* SPDX-License-Identifier: Apache-2.0
 *
 * Selects the backend of a group that works on the memory of a call's buffers, and the rank of the
 * call in the communicator of that backend. Says which calls of one request are a batch.
 */
#ifndef ENGINE_GROUP_ROUTE_H
#define ENGINE_GROUP_ROUTE_H

#include "core/fingerprint.h"
#include "group/group.h"

struct route {
    struct group_backend *gb;
    bool bounced; /* it runs on copies of its buffers in host memory (bounce.h) */
    bool foreign; /* a buffer is in memory of another kind than that of the group's devices */
    bool waits;   /* a transport moves device memory: it begins after the calls' streams */
    bool plain;   /* one call of the backend is all that it takes: consistency_is_plain */
    bool settled; /* the work that the calls' streams held has ended */
    const struct memory_kind *kind; /* of the buffers; NULL: host memory, or no buffers */
    /* In v-forms, the call that has these hashes. Another call of the request has its own. */
    const struct collrun_call *hashed;
    struct fingerprint_hashes hashes;
    uint64_t site; /* the caller of the function of collrun.h, for the record; set by that one */
};

/* For a call of a valid kind. OK; INVALID for buffers in two kinds of memory; UNSUPPORTED for
 * memory that no backend of the group works on. On failure the cause is stored. */
int route_find(struct collrun_group *g, const struct collrun_call *call, struct route *out);

/* Whether the call can begin after its stream, or that of the group which call_complete gives it;
 * `kind` as in the route. UNSUPPORTED: the stream only records its work; the cause is stored. */
int route_check_stream(const struct collrun_group *g, const struct collrun_call *call,
                       const struct memory_kind *kind);

/* UNSUPPORTED: options of the group exclude such a receive, or, with `probes`, such a probe; the
 * cause is stored. */
int route_check_receive(const struct group_backend *gb, const struct collrun_call *call,
                        bool probes);
/* What concerns buffers or streams of devices, and receives from them: both of the above. */
int route_check(const struct collrun_group *g, const struct collrun_call *call,
                const struct route *route);

/* Joins the routes of two calls of one request. */
static inline void route_join(struct route *route, const struct route *other)
{
    route->bounced = route->bounced || other->bounced;
    route->foreign = route->foreign || other->foreign;
    route->waits = route->waits || other->waits;
}

/* True for a request of several collectives; a collective with one call per device is none. */
static inline bool batch_is(const struct group_backend *gb, const struct collrun_call *calls,
                            uint32_t ncalls)
{
    return ncalls > 1 && !collrun_kind_is_message(calls->kind) && group_devices(gb) == 1;
}

/* How many numbers of its queue a request takes: the calls of a batch have one each. */
static inline uint32_t batch_numbers(const struct group_backend *gb,
                                     const struct collrun_call *calls, uint32_t ncalls)
{
    return batch_is(gb, calls, ncalls) ? ncalls : 1;
}

/* The communicator ranks of the call and of its root. */
static inline uint32_t route_comm_rank(const struct group_backend *s,
                                       const struct collrun_call *call)
{
    return s->first_comm_rank + (s->ndevices ? (uint32_t)call->device : 0);
}

static inline uint32_t route_root(const struct group_backend *s, const struct collrun_call *call)
{
    return (uint32_t)call->root * group_devices(s) +
           (s->ndevices ? (uint32_t)call->peer_device : 0);
}

#endif
