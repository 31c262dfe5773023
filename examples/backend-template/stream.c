/* SPDX-License-Identifier: Apache-2.0
 *
 * stream: a complete backend in one file, to copy and change. It moves messages between ranks on
 * any hosts. collrun matches them with receives and builds all other operations from them.
 *
 * A TCP socket connects every two ranks. A message is a frame: a head, then its data.
 *   - The sender writes what the socket has room for; transport_progress writes the rest.
 *   - The receiver reads a whole frame into a buffer and reports it with `arrived`. As soon as a
 *     receive matches, collrun calls transport_recv, which copies the data.
 * So every message is eager. A backend that avoids the buffer for long messages sends the envelope
 * alone (RTS); its transport_recv requests the data (CTS), with the message's id in the packet.
 *
 * Failure modes: a connection is lost (PEER_FAILED), memory is exhausted (NO_MEMORY), collrun
 * aborts the group (ABORTED).
 */
#define _GNU_SOURCE /* ppoll */
#include <collrun/backend.h>

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

struct head {
    uint64_t len; /* bytes of data */
    struct collrun_envelope envelope;
};

struct message {
    struct collrun_message shared; /* collrun's part */
    struct head head;
    size_t sent; /* bytes of head and data */
    struct message *next;
};

struct peer {
    struct message *first, **end; /* queue of messages to write */
    struct head head;             /* of the frame that arrives */
    char *data;                   /* of that frame; NULL until its head is complete */
    size_t received;              /* bytes of both */
};

struct group {
    const struct collrun_services *services;
    const struct collrun_p2p *p2p;
    uint32_t rank, nranks;
    atomic_bool aborted;
    int *fds;              /* of each peer; of this rank: an eventfd, which ends ppoll */
    struct pollfd *polled; /* of each of them; fd -1: a peer that has left */
    struct peer peers[];   /* nranks; the two arrays follow */
};

/* A call on a peer's socket has failed with an errno, or 0 at the end of its stream. */
static int lost(const struct group *g, uint32_t rank, int error)
{
    const struct collrun_services *s = g->services;
    if (g->aborted)
        return s->fail(s->ctx, COLLRUN_ERR_ABORTED, "the group was aborted");
    return s->fail(s->ctx, COLLRUN_ERR_PEER_FAILED, "lost the connection to rank %u: %s", rank,
                   error ? strerror(error) : "it has left the group");
}

/* Writes as many messages as the socket has room for. */
static int write_messages(struct group *g, uint32_t to)
{
    struct peer *peer = &g->peers[to];
    const size_t head = sizeof peer->head;
    for (struct message *m; (m = peer->first);) {
        const char *data = m->shared.data;
        ssize_t n = m->sent < head
                        ? send(g->fds[to], (char *)&m->head + m->sent, head - m->sent, MSG_NOSIGNAL)
                        : send(g->fds[to], data + (m->sent - head), head + m->head.len - m->sent,
                               MSG_NOSIGNAL);
        if (n < 0)
            return errno == EAGAIN || errno == EINTR ? COLLRUN_OK : lost(g, to, errno);
        m->sent += (size_t)n;
        if (m->sent < head + m->head.len)
            continue;
        peer->first = m->next;
        g->p2p->done(g->p2p->ctx, &m->shared);
    }
    peer->end = &peer->first;
    return COLLRUN_OK;
}

/* Reads once: a part of a head, or a part of its data. */
static int read_frame(struct group *g, uint32_t from)
{
    const struct collrun_services *s = g->services;
    struct peer *peer = &g->peers[from];
    const size_t head = sizeof peer->head, frame = head + (peer->data ? peer->head.len : 0);
    char *at =
        peer->data ? peer->data + (peer->received - head) : (char *)&peer->head + peer->received;
    ssize_t n = recv(g->fds[from], at, frame - peer->received, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return COLLRUN_OK;
    if (n == 0 && peer->received == 0 && !peer->first && !g->aborted) {
        g->polled[from].fd = -1; /* between frames, a peer may leave */
        return COLLRUN_OK;
    }
    if (n <= 0)
        return lost(g, from, n < 0 ? errno : 0);
    peer->received += (size_t)n;
    if (peer->received == head && !(peer->data = malloc(peer->head.len + 1)))
        return s->fail(s->ctx, COLLRUN_ERR_NO_MEMORY, "out of memory");
    if (!peer->data || peer->received < head + peer->head.len)
        return COLLRUN_OK;
    int rc = g->p2p->arrived(g->p2p->ctx, from, &peer->head.envelope, peer->data, peer->head.len);
    free(peer->data);
    peer->data = NULL;
    peer->received = 0;
    return rc;
}

static int transport_send(void *group, struct collrun_message *message)
{
    struct group *g = group;
    struct peer *peer = &g->peers[message->peer];
    struct message *m = (struct message *)message;
    m->head = (struct head){message->len, message->envelope};
    m->sent = 0;
    m->next = NULL;
    *peer->end = m;
    peer->end = &m->next;
    return peer->first == m ? write_messages(g, message->peer) : COLLRUN_OK;
}

static int transport_recv(void *group, struct collrun_message *message, const void *packet,
                          size_t len)
{
    struct group *g = group;
    if (len > 0)
        memcpy(message->data, packet, len);
    g->p2p->done(g->p2p->ctx, message);
    return COLLRUN_OK;
}

static int transport_progress(void *group, uint64_t wait_ns)
{
    struct group *g = group;
    struct timespec t = {(time_t)(wait_ns / 1000000000u), (long)(wait_ns % 1000000000u)};
    for (uint32_t i = 0; i < g->nranks; i++)
        g->polled[i].events = g->peers[i].first ? POLLIN | POLLOUT : POLLIN;
    int n = ppoll(g->polled, g->nranks, &t, NULL);
    int rc = g->aborted ? lost(g, g->rank, 0) : COLLRUN_OK;
    for (uint32_t i = 0; n > 0 && rc == COLLRUN_OK && i < g->nranks; i++) {
        short events = g->polled[i].revents;
        if (i == g->rank && events) {
            eventfd_t count;
            eventfd_read(g->fds[i], &count);
            n--; /* nothing has moved */
            continue;
        }
        if (events & ~POLLOUT)
            rc = read_frame(g, i);
        if (events & POLLOUT && rc == COLLRUN_OK)
            rc = write_messages(g, i);
    }
    return rc == COLLRUN_OK && n > 0 ? COLLRUN_AGAIN : rc;
}

/* From any thread: another one needs the group. */
static void transport_wake(void *group)
{
    struct group *g = group;
    eventfd_write(g->fds[g->rank], 1);
}

static int group_open(void *backend, const struct collrun_group_desc *theirs, void **out)
{
    (void)backend;
    struct collrun_group_desc desc;
    COLLRUN_COPY(&desc, theirs); /* it may be of another version */
    const size_t each = sizeof(struct peer) + sizeof(struct pollfd) + sizeof(int);
    struct group *g = calloc(1, sizeof *g + desc.nranks * each);
    if (!g)
        return desc.services->fail(desc.services->ctx, COLLRUN_ERR_NO_MEMORY, "out of memory");
    g->services = desc.services;
    g->p2p = desc.p2p;
    g->rank = desc.rank;
    g->nranks = desc.nranks;
    g->polled = (struct pollfd *)(g->peers + desc.nranks);
    g->fds = (int *)(g->polled + desc.nranks);
    int wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    int rc = wake < 0 ? desc.services->fail(desc.services->ctx, COLLRUN_ERR_SYSTEM, "eventfd: %s",
                                            strerror(errno))
                      : desc.rendezvous->connect_all(desc.rendezvous->ctx, g->fds);
    g->fds[g->rank] = wake;
    for (uint32_t i = 0; rc == COLLRUN_OK && i < g->nranks; i++) {
        g->polled[i].fd = g->fds[i];
        g->peers[i].end = &g->peers[i].first;
    }
    if (rc == COLLRUN_OK)
        *out = g;
    else
        free(g);
    if (rc != COLLRUN_OK && wake >= 0)
        close(wake);
    return rc;
}

/* From any thread, at any time: wakes ppoll and ends every later call. The socket of a peer that
 * has left is not polled, so shutdown alone would not wake. */
static void group_abort(void *group)
{
    struct group *g = group;
    g->aborted = true;
    for (uint32_t i = 0; i < g->nranks; i++)
        if (i != g->rank)
            shutdown(g->fds[i], SHUT_RDWR);
    transport_wake(group);
}

static void group_close(void *group)
{
    struct group *g = group;
    for (uint32_t i = 0; i < g->nranks; i++) {
        free(g->peers[i].data);
        if (i != g->rank)
            recv(g->fds[i], NULL, INT_MAX, MSG_TRUNC); /* what is unread would reset the stream */
        close(g->fds[i]);
    }
    free(g);
}

static const struct collrun_capability native[] = {
    {COLLRUN_SEND, COLLRUN_MEMORY_HOST, ~0ull, 0},
    {COLLRUN_RECV, COLLRUN_MEMORY_HOST, ~0ull, 0},
    {COLLRUN_RECV_ANY, COLLRUN_MEMORY_HOST, ~0ull, 0},
    {0},
};

static const struct collrun_param options[] = {{0}}; /* none: `collrun check` refuses any */

static const struct collrun_transport transport = {
    .size = (uint32_t)sizeof(struct collrun_transport),
    .message_size = (uint32_t)sizeof(struct message),
    .send = transport_send,
    .recv = transport_recv,
    .progress = transport_progress,
    .wake = transport_wake,
};

const struct collrun_backend collrun_backend_v1 = {
    COLLRUN_BACKEND_HEAD,       .name = "stream",           .version = "1.0",
    .eager_limit = UINT64_MAX,  .native = native,           .group_open = group_open,
    .group_abort = group_abort, .group_close = group_close, .transport = &transport,
    .options = options,
};
