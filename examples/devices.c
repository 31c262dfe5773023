/* SPDX-License-Identifier: Apache-2.0
 *
 * Devices: every process drives several GPUs of one group. GPU d of D of process r is rank r * D +
 * d of the group's collectives and messages.
 *
 * - An allreduce is one request with a call for each GPU.
 * - A ring shift is one request with a send and a receive for each GPU; the neighbour may be
 * another GPU of the same process.
 *
 * Buffers are filled and checked through the host, so that the workload needs no code for GPUs.
 */
#include <collrun/workload.h>

#include <stdio.h>
#include <stdlib.h>

enum { MAX_GPUS = 16 };

static const struct collrun_param params[] = {
    {.name = "group",
     .type = COLLRUN_PARAM_STRING,
     .def = "",
     .help = "the group to use; default: the first one"},
    {.name = "count",
     .type = COLLRUN_PARAM_INT,
     .def = "1000",
     .min = "1",
     .max = "1000000",
     .help = "elements of each buffer"},
    {0},
};

struct ring {
    struct collrun_ctx *ctx;
    struct collrun_group *group;
    int gpus, first, size; /* first: the rank of this process's GPU 0; size: of all ranks */
    size_t count;
    int32_t *host;
    void *in[MAX_GPUS], *out[MAX_GPUS];
};

static int32_t value(int rank, size_t i)
{
    return rank + 1 + (int32_t)(i % 100);
}

static struct collrun_call call_of(const struct ring *r, enum collrun_kind kind, int gpu)
{
    struct collrun_call c = COLLRUN_CALL(kind);
    c.send = r->in[gpu];
    c.recv = r->out[gpu];
    c.count = r->count;
    c.dtype = COLLRUN_INT32;
    c.op = COLLRUN_SUM;
    c.device = gpu;
    return c;
}

static int allreduce(const struct ring *r)
{
    struct collrun_call calls[MAX_GPUS];
    for (int d = 0; d < r->gpus; d++)
        calls[d] = call_of(r, COLLRUN_ALLREDUCE, d);
    return collrun_run(r->group, calls, r->gpus);
}

/* Every GPU sends to the next one. */
static int shift(const struct ring *r)
{
    struct collrun_call calls[2 * MAX_GPUS];
    for (int d = 0; d < r->gpus; d++) {
        int next = (r->first + d + 1) % r->size, before = (r->first + d + r->size - 1) % r->size;
        struct collrun_call *send = &calls[2 * d], *recv = send + 1;
        *send = call_of(r, COLLRUN_SEND, d);
        send->peer = next / r->gpus;
        send->peer_device = next % r->gpus;
        *recv = call_of(r, COLLRUN_RECV, d);
        recv->peer = before / r->gpus;
        recv->peer_device = before % r->gpus;
    }
    return collrun_run(r->group, calls, 2 * r->gpus);
}

/* The sum of all inputs, or the input of one rank. */
static int check(const struct ring *r, int gpu, int rank)
{
    int rc = collrun_copy(r->group, r->host, r->out[gpu], r->count * sizeof *r->host);
    for (size_t i = 0; !rc && i < r->count; i++) {
        int32_t sum = r->size * value(0, i) + r->size * (r->size - 1) / 2;
        int32_t want = rank < 0 ? sum : value(rank, i);
        if (r->host[i] != want)
            rc = collrun_fail(r->ctx, "GPU %d: element %zu is %d, expected %d", gpu, i, r->host[i],
                              want);
    }
    return rc;
}

static int prepare(struct ring *r)
{
    size_t bytes = r->count * sizeof *r->host;
    int rc = 0;
    for (int d = 0; !rc && d < r->gpus; d++) {
        for (size_t i = 0; i < r->count; i++)
            r->host[i] = value(r->first + d, i);
        rc = collrun_alloc_device(r->group, d, bytes, &r->in[d]);
        if (!rc)
            rc = collrun_alloc_device(r->group, d, bytes, &r->out[d]);
        if (!rc)
            rc = collrun_copy(r->group, r->in[d], r->host, bytes);
    }
    return rc;
}

static int use(struct ring *r)
{
    int rc = prepare(r);
    if (!rc)
        rc = allreduce(r);
    for (int d = 0; !rc && d < r->gpus; d++)
        rc = check(r, d, -1);
    if (!rc)
        rc = shift(r);
    for (int d = 0; !rc && d < r->gpus; d++)
        rc = check(r, d, (r->first + d + r->size - 1) % r->size);
    for (int d = 0; d < r->gpus; d++) {
        collrun_free(r->group, r->in[d]);
        collrun_free(r->group, r->out[d]);
    }
    return rc;
}

static int run(struct collrun_ctx *ctx, void *state)
{
    (void)state;
    struct ring r = {.ctx = ctx, .count = (size_t)collrun_param_int(ctx, "count")};
    int rc = collrun_group_get(ctx, collrun_param_string(ctx, "group"), &r.group);
    if (rc)
        return rc;
    r.gpus = collrun_devices(r.group);
    r.first = collrun_rank(r.group) * r.gpus;
    r.size = collrun_size(r.group) * r.gpus;
    if (r.gpus == 0 || r.gpus > MAX_GPUS)
        return collrun_fail(ctx, "group %s has %d GPUs per process; this workload takes 1 to %d",
                            collrun_group_name(r.group), r.gpus, MAX_GPUS);
    r.host = malloc(r.count * sizeof *r.host);
    if (!r.host)
        return collrun_fail(ctx, "out of memory");
    rc = use(&r);
    free(r.host);
    if (!rc)
        printf("process %d of %d: %d GPUs, ranks %d to %d of %d: allreduce and ring shift are "
               "right\n",
               collrun_rank(r.group), collrun_size(r.group), r.gpus, r.first, r.first + r.gpus - 1,
               r.size);
    return rc;
}

COLLRUN_WORKLOAD(.name = "devices", .summary = "every process drives several GPUs of one group",
                 .params = params, .run = run);
