/* SPDX-License-Identifier: Apache-2.0
 *
 * A dial is in link->dials until its connection is open, or was given up. See dial.h.
 */
#include "dial.h"

#include "peers.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

/* Its socket is closed unless it has become a connection. */
static void dial_free(struct dial *dial)
{
    if (dial->fd >= 0)
        close(dial->fd);
    free(dial);
}

static void dial_end(struct dial *dial)
{
    struct dial **link = &dial->peer->link->dials;
    while (*link != dial)
        link = &(*link)->next;
    *link = dial->next;
    dial_free(dial);
}

/* The kernel resets connections that a process which ends has not accepted. */
static bool dial_is_gone(int error)
{
    return error == ECONNREFUSED || error == ECONNRESET || error == EPIPE || error == 0;
}

/* `error`: an errno, or that of the peer, negative; 0: the peer has closed the connection. A
 * further socket that cannot be opened is no failure: the others are used. */
static void dial_fail(struct dial *dial, int error)
{
    char host[NI_MAXHOST] = "?", port[NI_MAXSERV] = "?", what[sizeof host + sizeof port + 32];
    struct link_peer *peer = dial->peer;
    const bool matters = dial->channel == 0 && peer->state == PEER_CONNECTING;
    dial_end(dial);
    if (!matters)
        return;
    getnameinfo((const void *)&peer->address.socket, peer->address.len, host, sizeof host, port,
                sizeof port, NI_NUMERICHOST | NI_NUMERICSERV);
    snprintf(what, sizeof what, "cannot connect to %s port %s", host, port);
    if (dial_is_gone(error))
        peers_lose(
            peer, LINK_LOSS_GONE,
            "%s: nothing listens there; its process has ended, or a firewall refuses connections",
            what);
    else if (error == EPROTO)
        peers_lose(peer, LINK_LOSS_UNREACHABLE, "%s: it is another program that listens there",
                   what);
    else if (error < 0)
        peers_lose(peer, LINK_LOSS_UNREACHABLE,
                   "%s: it answers: %s; each rank needs a descriptor for every peer "
                   "(ulimit -n there)",
                   what, strerror(-error));
    else
        peers_lose_by_errno(peer, what, error);
}

static bool dial_watch(const struct link *link, struct dial *dial, int how, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = dial};
    return epoll_ctl(link->serve_fd, how, dial->fd, &event) == 0;
}

void dial_start(struct link_peer *peer, uint32_t channel)
{
    struct link *link = peer->link;
    struct dial *dial = calloc(1, sizeof *dial);
    if (channel == 0)
        peer->state = PEER_CONNECTING;
    if (!dial) {
        if (channel == 0)
            peers_lose_by_errno(peer, "cannot connect", ENOMEM);
        return;
    }
    *dial =
        (struct dial){.item = {SERVE_DIAL}, .peer = peer, .channel = channel, .next = link->dials};
    dial->deadline_ns = link_now_ns(link) + LINK_CONNECT_MS * 1000000ull;
    dial->fd =
        socket(peer->address.socket.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    link->dials = dial;
    if (dial->fd < 0) {
        dial_fail(dial, errno);
        return;
    }
    peers_configure(dial->fd);
    const int rc = connect(dial->fd, (const void *)&peer->address.socket, peer->address.len);
    if ((rc != 0 && errno != EINPROGRESS) || !dial_watch(link, dial, EPOLL_CTL_ADD, EPOLLOUT))
        dial_fail(dial, errno);
    eventfd_write(link->rouse_fd, 1); /* the service thread looks at the clock from now on */
}

static void dial_send_hello(struct link *link, struct dial *dial)
{
    int error = 0;
    socklen_t len = sizeof error;
    if (getsockopt(dial->fd, SOL_SOCKET, SO_ERROR, &error, &len) != 0)
        error = errno;
    dial->hello = (struct handshake_hello){
        .from = link->world_rank, .to = dial->peer->world_rank, .channel = dial->channel};
    /* It fits into the buffer of a new socket. */
    if (!error && (!handshake_hello_seal(&dial->hello, &dial->peer->address) ||
                   send(dial->fd, &dial->hello, sizeof dial->hello, MSG_NOSIGNAL) !=
                       (ssize_t)sizeof dial->hello ||
                   !dial_watch(link, dial, EPOLL_CTL_MOD, EPOLLIN)))
        error = errno;
    dial->connected = true;
    if (error)
        dial_fail(dial, error);
}

static void dial_open(struct link *link, struct dial *dial)
{
    struct link_peer *peer = dial->peer;
    epoll_ctl(link->serve_fd, EPOLL_CTL_DEL, dial->fd, NULL);
    if (peer->state == PEER_LOST) { /* by what it has sent on another socket */
        dial_end(dial);
        return;
    }
    if (!peers_adopt(peer, dial->fd, dial->channel, false)) {
        dial_fail(dial, errno);
        return;
    }
    dial->fd = -1;
    dial_end(dial);
}

static void dial_handle_answer(struct link *link, struct dial *dial)
{
    const struct handshake_answer *answer = &dial->answer;
    struct link_peer *peer = dial->peer;
    if (answer->verdict == HANDSHAKE_NO) {
        dial_fail(dial, answer->error > 0 ? -answer->error : EPROTO);
    } else if (!handshake_answer_is_valid(answer, &dial->hello, &peer->address)) {
        dial_fail(dial, EPROTO);
    } else if (answer->verdict == HANDSHAKE_YES) {
        dial_open(link, dial);
    } else {
        if (dial->channel == 0 && peer->state == PEER_CONNECTING) {
            peer->state = PEER_AWAITED;
            peer->deadline_ns = link_now_ns(link) + LINK_CONNECT_MS * 1000000ull;
        }
        dial_end(dial);
    }
}

void dial_advance(struct link *link, struct dial *dial)
{
    if (!dial->connected) {
        dial_send_hello(link, dial);
        return;
    }
    const ssize_t n =
        recv(dial->fd, (char *)&dial->answer + dial->got, sizeof dial->answer - dial->got, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        dial_fail(dial, n == 0 ? 0 : errno);
        return;
    }
    dial->got += (size_t)n;
    if (dial->got == sizeof dial->answer)
        dial_handle_answer(link, dial);
}

void dial_cancel(struct link_peer *peer)
{
    for (struct dial *d = peer->link->dials, *next; d; d = next) {
        next = d->next;
        if (d->peer == peer && d->channel == 0)
            dial_end(d);
    }
}

/* Its host is alive; if it dies later, the socket has an error. */
static bool dial_is_acknowledged(const struct dial *dial)
{
    struct tcp_info info;
    socklen_t len = sizeof info;
    return dial->connected && getsockopt(dial->fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0 &&
           info.tcpi_state == TCP_ESTABLISHED && info.tcpi_unacked == 0;
}

void dial_check_deadlines(struct link *link, uint64_t now_ns)
{
    for (struct dial *d = link->dials, *next; d; d = next) {
        next = d->next;
        if (now_ns > d->deadline_ns && !dial_is_acknowledged(d))
            dial_fail(d, ETIMEDOUT);
    }
    for (struct link_peer *p = link->peers; p; p = p->next) {
        if (p->state == PEER_AWAITED && now_ns > p->deadline_ns)
            dial_start(p, 0);
    }
}

void dial_free_all(struct link *link)
{
    for (struct dial *d = link->dials, *next; d; d = next) {
        next = d->next;
        dial_free(d);
    }
    link->dials = NULL;
}
