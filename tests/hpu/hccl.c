/* SPDX-License-Identifier: Apache-2.0
 *
 * The backend: messages.c has messages; collectives have a TCP socket between every two ranks.
 * Device memory is read and written where the device sees it (hpuView), never at its address.
 *
 *   - A collective is one exchange: what this rank has for each peer leaves, while what each peer
 *     has for it arrives. Sums are made by the engine's `reduce`.
 *   - The rest the engine builds.
 * Failure modes: a connection is lost, memory is exhausted, collrun aborts the group, a rank does
 * not call in time.
 */
#include "hccl.h"

#include "hpu.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static int lost(const struct hccl_group *g, uint32_t rank, int error)
{
    const struct collrun_services *s = g->services;
    if (g->aborted)
        return s->fail(s->ctx, COLLRUN_ERR_ABORTED, "the group was aborted");
    return s->fail(s->ctx, COLLRUN_ERR_PEER_FAILED, "lost the connection to rank %u: %s", rank,
                   error ? strerror(error) : "it has left the group");
}

static int out_of_memory(const struct hccl_group *g)
{
    return g->services->fail(g->services->ctx, COLLRUN_ERR_NO_MEMORY, "out of memory");
}

static bool try_again(ssize_t n)
{
    return n < 0 && (errno == EAGAIN || errno == EINTR);
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- collectives ---- */

struct part { /* of one peer */
    const char *out;
    char *in;
    size_t out_len, in_len; /* what is left */
};

static int expired(const struct hccl_group *g, const struct part *parts, uint64_t waited_ns)
{
    const struct collrun_services *s = g->services;
    uint32_t missing[64], n = 0;
    for (uint32_t i = 0; i < g->nranks && n < 64; i++)
        if (parts[i].in_len)
            missing[n++] = i;
    return s->fail_timeout(s->ctx, g->rank, missing, n, waited_ns);
}

static int exchange_with(struct hccl_group *g, uint32_t rank, struct part *p, short events)
{
    int fd = g->fds[rank];
    ssize_t n = 0;
    if (events & POLLOUT && p->out_len) {
        n = send(fd, p->out, p->out_len, MSG_NOSIGNAL);
        if (n < 0 && !try_again(n))
            return lost(g, rank, errno);
        p->out += n > 0 ? n : 0;
        p->out_len -= n > 0 ? (size_t)n : 0;
    }
    if (events & ~POLLOUT && p->in_len) {
        n = recv(fd, p->in, p->in_len, 0);
        if (n == 0 || (n < 0 && !try_again(n)))
            return lost(g, rank, n ? errno : 0);
        p->in += n > 0 ? n : 0;
        p->in_len -= n > 0 ? (size_t)n : 0;
    }
    return COLLRUN_OK;
}

static int exchange(struct hccl_group *g, struct part *parts, uint64_t timeout_ns)
{
    uint64_t began = now_ns();
    for (int rc = COLLRUN_OK, busy = 1; busy;) {
        busy = 0;
        for (uint32_t i = 0; i < g->nranks; i++) {
            int events = (parts[i].out_len ? POLLOUT : 0) | (parts[i].in_len ? POLLIN : 0);
            g->polled[i] = (struct pollfd){events ? g->fds[i] : -1, (short)events, 0};
            busy |= events;
        }
        if (!busy)
            break;
        poll(g->polled, g->nranks, 10);
        if (g->aborted)
            return lost(g, g->rank, 0);
        if (now_ns() - began > timeout_ns)
            return expired(g, parts, timeout_ns);
        for (uint32_t i = 0; rc == COLLRUN_OK && i < g->nranks; i++)
            rc = exchange_with(g, i, &parts[i], g->polled[i].revents);
        if (rc != COLLRUN_OK)
            return rc;
    }
    return COLLRUN_OK;
}

/* Each rank's `len` bytes at `own` to all; those of rank i to into + i * len. */
static int gather_all(struct hccl_group *g, const char *own, char *into, size_t len,
                      uint64_t timeout_ns)
{
    struct part *parts = calloc(g->nranks, sizeof *parts);
    if (!parts)
        return out_of_memory(g);
    for (uint32_t i = 0; i < g->nranks; i++)
        if (i != g->rank)
            parts[i] = (struct part){own, into + i * len, len, len};
        else if (len && into + i * len != own)
            memmove(into + i * len, own, len);
    int rc = exchange(g, parts, timeout_ns);
    free(parts);
    return rc;
}

static int broadcast(struct hccl_group *g, const struct collrun_call *call, size_t len)
{
    char *buf = hpuView(call->recv), token = 0;
    struct part *parts = calloc(g->nranks, sizeof *parts);
    if (!parts)
        return out_of_memory(g);
    bool root = (uint32_t)call->root == g->rank;
    for (uint32_t i = 0; len == 0 && i < g->nranks; i++) /* it still synchronises */
        parts[i] = (struct part){&token, &token, i != g->rank, i != g->rank};
    for (uint32_t i = 0; len && root && i < g->nranks; i++)
        parts[i] = (struct part){.out = buf, .out_len = i != g->rank ? len : 0};
    if (len && !root)
        parts[call->root] = (struct part){.in = buf, .in_len = len};
    int rc = exchange(g, parts, call->timeout_ns);
    free(parts);
    return rc;
}

/* All vectors to all ranks, which combine them in rank order. */
static int allreduce(struct hccl_group *g, const struct collrun_call *call, size_t len)
{
    char *all = malloc(g->nranks * len + 1);
    const void **vectors = calloc(g->nranks, sizeof *vectors);
    int rc = all && vectors ? gather_all(g, hpuView(call->send), all, len, call->timeout_ns)
                            : out_of_memory(g);
    for (uint32_t i = 0; rc == COLLRUN_OK && i < g->nranks; i++)
        vectors[i] = all + i * len;
    if (rc == COLLRUN_OK && len)
        g->services->reduce(hpuView(call->recv), vectors, g->nranks, call->count, call->dtype,
                            call->op, call->op == COLLRUN_AVG ? g->nranks : 0);
    free(vectors);
    free(all);
    return rc;
}

static int barrier(struct hccl_group *g, uint64_t timeout_ns)
{
    char *tokens = calloc(g->nranks + 1, 1);
    int rc = tokens ? gather_all(g, tokens + g->nranks, tokens, 1, timeout_ns) : out_of_memory(g);
    free(tokens);
    return rc;
}

/* One collective; messages are the transport's. */
static int exec(void *group, const struct collrun_call *calls, uint32_t ncalls)
{
    struct hccl_group *g = group;
    const struct collrun_services *s = g->services;
    struct collrun_call call = calls[0];
    size_t len = call.count * s->dtype_size(call.dtype);
    (void)ncalls;
    hpuSetDevice(g->device);
    if (hpuStreamSynchronize(call.stream) != 0)
        return s->fail(s->ctx, COLLRUN_ERR_BACKEND, "the stream cannot be waited for");
    switch (call.kind) {
    case COLLRUN_BARRIER:
        return barrier(g, call.timeout_ns);
    case COLLRUN_BROADCAST:
        return broadcast(g, &call, len);
    case COLLRUN_ALLREDUCE:
        return len ? allreduce(g, &call, len) : barrier(g, call.timeout_ns);
    case COLLRUN_ALLGATHER:
        return len ? gather_all(g, hpuView(call.send), hpuView(call.recv), len, call.timeout_ns)
                   : barrier(g, call.timeout_ns);
    default:
        return COLLRUN_ERR_UNSUPPORTED;
    }
}

/* ---- life ---- */

static int probe(const struct collrun_services *services, char *why, size_t len)
{
    int n = 0;
    (void)services;
    hpuGetDeviceCount(&n);
    snprintf(why, len, n ? "%d HPU%s" : "no HPU: HPU_COUNT is not set", n, n == 1 ? "" : "s");
    return n ? COLLRUN_OK : COLLRUN_ERR_UNAVAILABLE;
}

static void group_close(void *group)
{
    struct hccl_group *g = group;
    if (g->messages)
        hccl_messages.group_close(g->messages);
    for (uint32_t i = 0; i < g->nranks; i++) {
        if (g->fds[i] < 0)
            continue;
        recv(g->fds[i], NULL, INT_MAX, MSG_TRUNC); /* unread bytes would reset the connection */
        close(g->fds[i]);
    }
    free(g);
}

static int group_open(void *backend, const struct collrun_group_desc *theirs, void **out)
{
    struct collrun_group_desc desc;
    COLLRUN_COPY(&desc, theirs); /* it may be of another version */
    const struct collrun_services *s = desc.services;
    if (desc.ndevices != 1)
        return s->fail(s->ctx, COLLRUN_ERR_UNSUPPORTED, "one HPU per process, not %u",
                       desc.ndevices);
    const size_t fds = (desc.nranks + 1) / 2 * 2; /* `polled` stays aligned */
    struct hccl_group *g =
        calloc(1, sizeof *g + fds * sizeof *g->fds + desc.nranks * sizeof *g->polled);
    if (!g)
        return s->fail(s->ctx, COLLRUN_ERR_NO_MEMORY, "out of memory");
    g->services = s;
    g->rank = desc.rank;
    g->nranks = desc.nranks;
    g->device = desc.devices[0];
    g->polled = (struct pollfd *)(void *)(g->fds + fds);
    for (uint32_t i = 0; i < g->nranks; i++)
        g->fds[i] = -1;
    int rc = hccl_messages.group_open(backend, theirs, &g->messages);
    if (rc == COLLRUN_OK)
        rc = desc.rendezvous->connect_all(desc.rendezvous->ctx, g->fds);
    if (rc == COLLRUN_OK)
        *out = g;
    else
        group_close(g);
    return rc;
}

/* From any thread, at any time: wakes the polls and ends every later call. */
static void group_abort(void *group)
{
    struct hccl_group *g = group;
    g->aborted = true;
    hccl_messages.group_abort(g->messages);
    for (uint32_t i = 0; i < g->nranks; i++)
        if (i != g->rank)
            shutdown(g->fds[i], SHUT_RDWR);
}

static const struct collrun_capability native[] = {
    {COLLRUN_BARRIER, COLLRUN_MEMORY_DEVICE, 0, 0},
    COLLRUN_REDUCES(COLLRUN_ALLREDUCE, COLLRUN_MEMORY_DEVICE),
    COLLRUN_MOVES(COLLRUN_BROADCAST, COLLRUN_MEMORY_DEVICE),
    COLLRUN_MOVES(COLLRUN_ALLGATHER, COLLRUN_MEMORY_DEVICE),
    COLLRUN_MOVES(COLLRUN_SEND, COLLRUN_MEMORY_DEVICE),
    COLLRUN_MOVES(COLLRUN_RECV, COLLRUN_MEMORY_DEVICE),
    COLLRUN_MOVES(COLLRUN_RECV_ANY, COLLRUN_MEMORY_DEVICE),
    {0},
};

static const struct collrun_param options[] = {{0}}; /* none */

const struct collrun_backend collrun_backend_v1 = {
    COLLRUN_BACKEND_HEAD,
    .name = "hccl",
    .version = "1.0",
    .flags = COLLRUN_BACKEND_NEEDS_DEVICE,
    .eager_limit = UINT64_MAX,
    .native = native,
    .options = options,
    .probe = probe,
    .group_open = group_open,
    .group_abort = group_abort,
    .group_close = group_close,
    .exec = exec,
    .transport = &hccl_transport,
    .memory_kind = &hccl_kind,
};
