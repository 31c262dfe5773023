/* SPDX-License-Identifier: Apache-2.0
 *
 * Incoming connections are in link->inbounds, oldest first; see listener.h.
 */
#include "listener.h"

#include "dial.h"
#include "peers.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
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
        listener_report_unknown(link, inbound);
        listener_drop(link, inbound);
        return;
    }
    struct link_peer *peer = peers_find(link, hello->from);
    if (!peer) {
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
        listener_report_unknown(link, i);
        listener_drop(link, i);
    }
}
