/* SPDX-License-Identifier: Apache-2.0
 *
 * Incoming connections are in link->inbounds, oldest first; see listener.h.
 */
#include "listener.h"

#include "peers.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
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

/* ---- the socket ---- */

static socklen_t listener_address(const char *text, struct sockaddr_storage *out)
{
    struct sockaddr_in *four = (void *)out;
    struct sockaddr_in6 *six = (void *)out;
    memset(out, 0, sizeof *out);
    if (inet_pton(AF_INET, text, &four->sin_addr) == 1) {
        four->sin_family = AF_INET;
        return sizeof *four;
    }
    if (inet_pton(AF_INET6, text, &six->sin6_addr) == 1) {
        six->sin6_family = AF_INET6;
        return sizeof *six;
    }
    return 0;
}

static void listener_set_port(struct sockaddr_storage *address, uint16_t port)
{
    if (address->ss_family == AF_INET)
        ((struct sockaddr_in *)(void *)address)->sin_port = htons(port);
    else
        ((struct sockaddr_in6 *)(void *)address)->sin6_port = htons(port);
}

static int listener_fail(const struct link_config *config)
{
    const struct collrun_services *s = config->services;
    if (errno == EADDRINUSE && config->first_port)
        return s->fail(s->ctx, COLLRUN_ERR_SYSTEM,
                       "cannot listen on %s for the other ranks: no port of network.ports (%u-%u) "
                       "is free; each rank needs one",
                       config->address, config->first_port, config->last_port);
    return s->fail(s->ctx, COLLRUN_ERR_SYSTEM, "cannot listen on %s for the other ranks: %s%s",
                   config->address, strerror(errno),
                   errno == EADDRNOTAVAIL ? " (its interface is down)" : "");
}

/* False: errno. */
static bool listener_listen(struct link *link, uint16_t port, bool reuse)
{
    struct handshake_address *self = &link->self;
    listener_set_port(&self->socket, port);
    link->listen_fd = socket(self->socket.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (link->listen_fd < 0)
        return false;
    setsockopt(link->listen_fd, SOL_SOCKET, SO_REUSEADDR, &(int){reuse}, sizeof(int));
    /* A connection comes with its first bytes. So ranks, whose HELLO is one segment, do not push
     * out each other where many of them connect at the same time. */
    setsockopt(link->listen_fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, &(int){LINK_HANDSHAKE_MS / 1000},
               sizeof(int));
    /* Connections inherit the option; closed ones then hold no port from others that set it. */
    if (bind(link->listen_fd, (void *)&self->socket, self->len) == 0 &&
        setsockopt(link->listen_fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)) == 0 &&
        listen(link->listen_fd, SOMAXCONN) == 0)
        return true;
    const int error = errno;
    close(link->listen_fd);
    link->listen_fd = -1;
    errno = error;
    return false;
}

/* Takes the first free port of the range; then one that only closed connections of an earlier job
 * hold, but not the last one, which is MASTER_PORT. False: errno. */
static bool listener_find_port(struct link *link, const struct link_config *config)
{
    for (uint32_t reuse = 0; reuse < 2; reuse++) {
        for (uint32_t port = config->first_port; port + reuse <= config->last_port; port++) {
            if (listener_listen(link, (uint16_t)port, reuse))
                return true;
            if (errno != EADDRINUSE)
                return false;
        }
    }
    return false;
}

int listener_open(struct link *link, const struct link_config *config)
{
    const struct collrun_services *s = config->services;
    struct handshake_address *self = &link->self;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = &link->listener};
    link->inbounds_end = &link->inbounds;
    self->len = config->address ? listener_address(config->address, &self->socket) : 0;
    if (self->len == 0)
        return s->fail(s->ctx, COLLRUN_ERR_INVALID, "\"%s\" is not a numeric address",
                       config->address ? config->address : "");
    link->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    socklen_t len = sizeof self->socket;
    if (link->spare_fd < 0 || !listener_find_port(link, config) ||
        getsockname(link->listen_fd, (void *)&self->socket, &len) != 0 ||
        epoll_ctl(link->serve_fd, EPOLL_CTL_ADD, link->listen_fd, &event) != 0)
        return listener_fail(config);
    if (!handshake_make_keys(self))
        return s->fail(s->ctx, COLLRUN_ERR_SYSTEM, "cannot create a secret: %s", strerror(errno));
    char where[PEERS_WHERE];
    COLLRUN_DEBUG(s, LINK, "listens on %s (network.ports: %u-%u)", peers_where(self, where),
                  config->first_port, config->last_port);
    return COLLRUN_OK;
}

/* ---- incoming connections ---- */

static void listener_watch(struct link *link, bool watch)
{
    struct epoll_event event = {.events = watch ? EPOLLIN : 0, .data.ptr = &link->listener};
    link->listener_pauses = !watch;
    epoll_ctl(link->serve_fd, EPOLL_CTL_MOD, link->listen_fd, &event);
}

/* There may be a descriptor again. */
static void listener_resume(struct link *link)
{
    if (link->spare_fd < 0)
        link->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (link->listener_pauses)
        listener_watch(link, true);
}

static void listener_remove(struct link *link, const struct inbound *inbound)
{
    struct inbound **at = &link->inbounds;
    while (*at != inbound)
        at = &(*at)->next;
    *at = inbound->next;
    if (link->inbounds_end == &inbound->next)
        link->inbounds_end = at;
    link->ninbounds -= !inbound->parked;
}

static void listener_drop(struct link *link, struct inbound *inbound)
{
    listener_remove(link, inbound);
    close(inbound->fd);
    if (inbound->refused)
        listener_resume(link);
    free(inbound);
}

void listener_close(struct link *link)
{
    while (link->inbounds)
        listener_drop(link, link->inbounds);
    free(link->nonces);
    link->nonces = NULL;
    link->nnonces = link->nonces_capacity = 0;
    if (link->listen_fd >= 0)
        close(link->listen_fd);
    if (link->spare_fd >= 0)
        close(link->spare_fd);
    link->listen_fd = link->spare_fd = -1;
}

static void listener_report_unknown(struct link *link, const struct inbound *inbound)
{
    struct sockaddr_storage from;
    socklen_t len = sizeof from;
    char host[NI_MAXHOST] = "?", port[NI_MAXSERV] = "?";
    const struct collrun_services *s = link->services;
    if (link->reported_unknown || getpeername(inbound->fd, (void *)&from, &len) != 0)
        return;
    link->reported_unknown = true;
    getnameinfo((void *)&from, len, host, sizeof host, port, sizeof port,
                NI_NUMERICHOST | NI_NUMERICSERV);
    s->log(s->ctx, COLLRUN_LOG_INFO,
           "closed a connection from %s port %s that is not from a rank of this job; later ones "
           "are not reported",
           host, port);
}

/* The oldest one that has not sent its HELLO. */
static void listener_make_room(struct link *link)
{
    struct inbound *oldest = link->inbounds;
    while (oldest && oldest->parked)
        oldest = oldest->next;
    if (oldest && link->ninbounds > LINK_UNKNOWN_MAX) {
        listener_report_unknown(link, oldest);
        listener_drop(link, oldest);
    }
}

static void listener_add(struct link *link, int fd, bool refused)
{
    struct inbound *inbound = calloc(1, sizeof *inbound);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = inbound};
    if (!inbound || epoll_ctl(link->serve_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
        close(fd);
        free(inbound);
        return;
    }
    *inbound = (struct inbound){.item = {SERVE_INBOUND}, .fd = fd, .refused = refused};
    inbound->deadline_ns = link_now_ns(link) + LINK_HANDSHAKE_MS * 1000000ull;
    *link->inbounds_end = inbound;
    link->inbounds_end = &inbound->next;
    link->ninbounds++;
    listener_make_room(link);
}

void listener_accept(struct link *link)
{
    bool refused = false;
    int fd = accept4(link->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0 && (errno == EMFILE || errno == ENFILE)) {
        if (link->spare_fd >= 0)
            close(link->spare_fd);
        link->spare_fd = -1;
        fd = accept4(link->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        refused = true;
    }
    if (fd >= 0)
        listener_add(link, fd, refused);
    else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
        listener_watch(link, false); /* it would be reported again and again */
    char where[PEERS_WHERE];
    if (fd >= 0)
        COLLRUN_DEBUG(link->services, LINK, "accepted a connection from %s%s",
                      peers_where_from(fd, where),
                      refused ? ", to refuse it: no descriptor is left" : "");
    else
        COLLRUN_DEBUG(link->services, LINK, "cannot accept a connection: %s", strerror(errno));
}

/* ---- HELLO ---- */

static enum handshake_verdict listener_decide(struct link *link, const struct link_peer *peer,
                                              const struct inbound *inbound)
{
    const struct handshake_hello *hello = &inbound->hello;
    const bool lower = peer->world_rank < link->world_rank;
    if (inbound->refused)
        return HANDSHAKE_NO;
    if (hello->channel > 0)
        return HANDSHAKE_YES;
    if (peer->state == PEER_UP || (peer->state == PEER_CONNECTING && !lower))
        return HANDSHAKE_WAIT;
    return HANDSHAKE_YES;
}

static void listener_answer(struct link *link, struct inbound *inbound, struct link_peer *peer)
{
    struct handshake_answer answer = {.verdict = listener_decide(link, peer, inbound)};
    const int fd = inbound->fd;
    if (answer.verdict == HANDSHAKE_NO)
        answer.error = EMFILE;
    COLLRUN_DEBUG(link->services, LINK, "HELLO of %s for connection %u, answer: %s", peer->name,
                  inbound->hello.channel,
                  answer.verdict == HANDSHAKE_YES    ? "yes"
                  : answer.verdict == HANDSHAKE_WAIT ? "wait, for this rank has a connection to it"
                                                     : "no, for no descriptor is left");
    handshake_answer_seal(&answer, &inbound->hello, &link->self);
    /* It fits into the buffer of a new socket. */
    const bool sent = send(fd, &answer, sizeof answer, MSG_NOSIGNAL) == (ssize_t)sizeof answer;
    if (sent && answer.verdict == HANDSHAKE_YES) {
        if (inbound->hello.channel == 0)
            dial_cancel(peer);
        if (peers_adopt(peer, fd, inbound->hello.channel, true)) {
            listener_remove(link, inbound);
            free(inbound);
            return;
        }
        if (inbound->hello.channel == 0)
            peers_lose_by_errno(peer, "cannot use its connection", errno);
    }
    listener_drop(link, inbound);
}

/* False: a HELLO with this nonce has come before, or there is no memory to know it again. */
static bool listener_is_new(struct link *link, uint64_t nonce)
{
    for (uint32_t i = 0; i < link->nnonces; i++) {
        if (link->nonces[i] == nonce)
            return false;
    }
    if (link->nnonces == link->nonces_capacity) {
        const uint32_t capacity = link->nonces_capacity ? 2 * link->nonces_capacity : 64;
        uint64_t *more = realloc(link->nonces, capacity * sizeof *more);
        if (!more)
            return false;
        link->nonces = more;
        link->nonces_capacity = capacity;
    }
    link->nonces[link->nnonces++] = nonce;
    return true;
}

static void listener_handle_hello(struct link *link, struct inbound *inbound)
{
    const struct handshake_hello *hello = &inbound->hello;
    epoll_ctl(link->serve_fd, EPOLL_CTL_DEL, inbound->fd, NULL);
    if (!handshake_hello_is_valid(hello, &link->self) || hello->to != link->world_rank ||
        hello->channel >= LINK_SOCKETS_MAX || !listener_is_new(link, hello->nonce)) {
        COLLRUN_DEBUG(link->services, LINK,
                      "HELLO that is malformed, replayed or not for this "
                      "rank: the connection is closed");
        listener_report_unknown(link, inbound);
        listener_drop(link, inbound);
        return;
    }
    struct link_peer *peer = peers_find(link, hello->from);
    if (!peer) {
        COLLRUN_DEBUG(link->services, LINK,
                      "HELLO of rank %u, whose address is not known yet, "
                      "waits",
                      hello->from);
        inbound->parked = true;
        link->ninbounds--;
    } else if (peer->state == PEER_LOST) {
        listener_drop(link, inbound);
    } else {
        listener_answer(link, inbound, peer);
    }
}

void listener_advance(struct link *link, struct inbound *inbound)
{
    const ssize_t n = recv(inbound->fd, (char *)&inbound->hello + inbound->got,
                           sizeof inbound->hello - inbound->got, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        listener_report_unknown(link, inbound);
        listener_drop(link, inbound);
        return;
    }
    inbound->got += (size_t)n;
    if (inbound->got == sizeof inbound->hello)
        listener_handle_hello(link, inbound);
}

void listener_adopt_parked(struct link *link, uint32_t world_rank)
{
    struct link_peer *peer = peers_find(link, world_rank);
    for (struct inbound *i = link->inbounds, *next; i; i = next) {
        next = i->next;
        if (!i->parked || i->hello.from != world_rank)
            continue;
        i->parked = false;
        link->ninbounds++;
        listener_answer(link, i, peer);
    }
}

void listener_check_deadlines(struct link *link, uint64_t now_ns)
{
    listener_resume(link);
    for (struct inbound *i = link->inbounds, *next; i; i = next) {
        next = i->next;
        if (i->parked || now_ns <= i->deadline_ns)
            continue;
        COLLRUN_DEBUG(link->services, LINK, "no HELLO within %d ms: the connection is closed",
                      LINK_HANDSHAKE_MS);
        listener_report_unknown(link, i);
        listener_drop(link, i);
    }
}

/* ---- outgoing connections ----
 *
 * A dial is in link->dials until its connection is open, or was given up.
 */

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
    COLLRUN_DEBUG(peer->link->services, LINK, "dial of %s for connection %u has failed: %s%s%s",
                  peer->name, dial->channel, error < 0 ? "it answers: " : "",
                  error == 0        ? "it has closed the connection"
                  : error == EPROTO ? "another program listens there"
                                    : strerror(error < 0 ? -error : error),
                  matters ? "" : "; it does not matter");
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
    char where[PEERS_WHERE];
    COLLRUN_DEBUG(link->services, LINK, "dial %s for connection %u to %s",
                  peers_where(&peer->address, where), channel, peer->name);
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

/* The answer is WAIT. */
static void dial_await(const struct link *link, struct link_peer *peer)
{
    COLLRUN_DEBUG(link->services, LINK, "%s opens the connection itself", peer->name);
    peer->state = PEER_AWAITED;
    peer->deadline_ns = link_now_ns(link) + LINK_CONNECT_MS * 1000000ull;
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
        if (dial->channel == 0 && peer->state == PEER_CONNECTING)
            dial_await(link, peer);
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
        if (p->state != PEER_AWAITED || now_ns <= p->deadline_ns)
            continue;
        COLLRUN_DEBUG(link->services, LINK, "%s has not opened its connection: retry", p->name);
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
