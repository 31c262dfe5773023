/* SPDX-License-Identifier: Apache-2.0
 *
 * Open connections are in link->open; see peers.h.
 *
 * A silent cut is seen in two ways. While nothing is on its way, by keepalive. Else by
 * peers_check_silence: data is not acknowledged, and nothing else has arrived. TCP_USER_TIMEOUT
 * would also end connections to a process that is stopped, whose host acknowledges.
 */
#include "peers.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>

enum { PEERS_KEEPALIVE_IDLE_S = 5, PEERS_KEEPALIVE_INTERVAL_S = 2, PEERS_KEEPALIVE_PROBES = 3 };

struct link_peer *peers_find(const struct link *link, uint32_t world_rank)
{
    struct link_peer *p = link->peers;
    while (p && p->world_rank != world_rank)
        p = p->next;
    return p;
}

static const char *peers_print_address(const struct sockaddr_storage *address, socklen_t len,
                                       char *out)
{
    char host[NI_MAXHOST] = "?", port[NI_MAXSERV] = "?";
    getnameinfo((const void *)address, len, host, sizeof host, port, sizeof port,
                NI_NUMERICHOST | NI_NUMERICSERV);
    snprintf(out, PEERS_WHERE, "%.90s port %s", host, port);
    return out;
}

const char *peers_where(const struct handshake_address *address, char *out)
{
    return peers_print_address(&address->socket, address->len, out);
}

const char *peers_where_from(int fd, char *out)
{
    struct sockaddr_storage from = {.ss_family = AF_UNSPEC};
    socklen_t len = sizeof from;
    getpeername(fd, (void *)&from, &len);
    return peers_print_address(&from, len, out);
}

/* ---- open connections ---- */

static bool peers_room(struct link *link)
{
    if (link->nopen < link->capacity)
        return true;
    const uint32_t capacity = link->capacity ? 2 * link->capacity : 8;
    struct conn **open = realloc(link->open, capacity * sizeof *open);
    if (!open)
        return false;
    link->open = open;
    struct conn **pending = realloc(link->pending, capacity * sizeof *pending);
    if (!pending)
        return false;
    link->pending = pending;
    link->capacity = capacity;
    return true;
}

void peers_list_pending(struct link *link, struct conn *conn)
{
    if (conn->listed || !conn_is_pending(conn))
        return;
    conn->listed = true;
    link->pending[link->npending++] = conn;
}

/* The peer has the address of this process: what is between them is the memory of one host. */
static bool peers_share_host(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
    const struct sockaddr_in *a4 = (const void *)a, *b4 = (const void *)b;
    const struct sockaddr_in6 *a6 = (const void *)a, *b6 = (const void *)b;
    if (a->ss_family != b->ss_family)
        return false;
    return a->ss_family == AF_INET ? a4->sin_addr.s_addr == b4->sin_addr.s_addr
                                   : memcmp(&a6->sin6_addr, &b6->sin6_addr, 16) == 0;
}

/* Inside a host there is no network to be shared with others, and an algorithm that paces what
 * leaves, such as bbr, costs a quarter of the speed. reno, which every kernel has, does not pace.
 */
static bool peers_unpace(const struct link_peer *peer, int fd)
{
    char name[16] = "bbr";
    socklen_t len = sizeof name;
    if (peers_share_host(&peer->address.socket, &peer->link->self.socket))
        setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
    getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &len);
    return strncmp(name, "bbr", 3) != 0;
}

void peers_configure(int fd)
{
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &(int){1}, sizeof(int));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &(int){PEERS_KEEPALIVE_IDLE_S}, sizeof(int));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &(int){PEERS_KEEPALIVE_INTERVAL_S}, sizeof(int));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &(int){PEERS_KEEPALIVE_PROBES}, sizeof(int));
}

/* The connection for a channel; NULL: out of memory, or there is one already. */
static struct conn *peers_conn_for(struct link_peer *peer, uint32_t channel, bool incoming)
{
    static struct conn_puts none; /* connections of the peer send nothing; never written */
    struct conn **place = incoming ? &peer->incoming[channel] : &peer->outgoing[channel];
    if (channel == 0)
        return peer->main.fd < 0 ? &peer->main : NULL;
    if (*place)
        return NULL;
    struct conn *conn = calloc(1, sizeof *conn);
    if (!conn)
        return NULL;
    *conn = (struct conn){.io = &peer->link->io,
                          .peer = peer,
                          .cookie = peer->cookie,
                          .puts = incoming ? &none : &peer->puts,
                          .only_data = true,
                          .fd = -1};
    *place = conn;
    return conn;
}

bool peers_adopt(struct link_peer *peer, int fd, uint32_t channel, bool incoming)
{
    struct link *link = peer->link;
    errno = ENOMEM;
    struct conn *conn = peers_room(link) ? peers_conn_for(peer, channel, incoming) : NULL;
    if (!conn || !conn_begin(conn, fd))
        return false;
    peers_configure(fd);
    conn->unpaced = peers_unpace(peer, fd);
    link->open[link->nopen++] = conn;
    COLLRUN_DEBUG(link->services, LINK, "%s has connection %u, %s, %s", peer->name, channel,
                  incoming ? "which it has opened" : "which this rank has opened",
                  conn->unpaced ? "not paced" : "paced by the kernel");
    if (channel == 0)
        peer->state = PEER_UP;
    peers_list_pending(link, conn);
    return true;
}

static void peers_close_conn(struct conn *conn)
{
    struct link *link = conn->peer->link;
    for (uint32_t i = 0; i < link->nopen; i++) {
        if (link->open[i] == conn)
            link->open[i--] = link->open[--link->nopen];
    }
    for (uint32_t i = 0; i < link->npending; i++) {
        if (link->pending[i] == conn)
            link->pending[i--] = link->pending[--link->npending];
    }
    conn->listed = false;
    conn_fini(conn);
}

/* ---- losses ---- */

void peers_lose(struct link_peer *peer, enum link_loss_reason reason, const char *format, ...)
{
    struct link *link = peer->link;
    va_list args;
    if (peer->state == PEER_LOST)
        return;
    va_start(args, format);
    vsnprintf(peer->loss_text, sizeof peer->loss_text, format, args);
    va_end(args);
    COLLRUN_DEBUG(link->services, LINK, "%s is lost (reason %d, state %d): %s", peer->name,
                  (int)reason, (int)peer->state, peer->loss_text);
    peer->loss = reason;
    peer->state = PEER_LOST;
    peers_close_conn(&peer->main);
    for (uint32_t c = 0; c < LINK_SOCKETS_MAX; c++) {
        if (peer->outgoing[c])
            peers_close_conn(peer->outgoing[c]);
        if (peer->incoming[c])
            peers_close_conn(peer->incoming[c]);
    }
    peer->next_lost = link->lost;
    link->lost = peer;
}

void peers_lose_by_errno(struct link_peer *peer, const char *what, int error)
{
    struct rlimit limit = {0};
    if ((error == EMFILE || error == ENFILE) && getrlimit(RLIMIT_NOFILE, &limit) == 0)
        peers_lose(peer, LINK_LOSS_LOCAL,
                   "%s: %s; each rank needs a descriptor for every other rank that it exchanges "
                   "data with, the limit is %llu (ulimit -n)",
                   what, strerror(error), (unsigned long long)limit.rlim_cur);
    else
        peers_lose(peer, error == ENOMEM ? LINK_LOSS_LOCAL : LINK_LOSS_UNREACHABLE, "%s: %s", what,
                   strerror(error));
}

bool peers_report_losses(struct link *link)
{
    const struct link_upcalls *up = &link->io.upcalls;
    bool any = false;
    for (struct link_peer *peer; (peer = link->lost); any = true) {
        const struct link_loss loss = {.reason = peer->loss, .text = peer->loss_text};
        link->lost = peer->next_lost;
        up->lost(up->ctx, peer->cookie, &loss);
    }
    return any;
}

/* What the peer has sent on its other sockets before it left. */
static void peers_drain(const struct link_peer *peer)
{
    for (uint32_t c = 0; c < LINK_SOCKETS_MAX; c++) {
        while (peer->incoming[c] && !peer->incoming[c]->ended && conn_pull(peer->incoming[c]))
            ;
    }
}

/* The text is that of base/network.h of the engine, which the runner reads. SO_PEERNAME, which
 * wants the exact length, also works when the kernel has given up the connection. */
static void peers_lose_silent(struct conn *conn, const struct tcp_info *info)
{
    struct sockaddr_storage to;
    socklen_t len = sizeof to;
    char host[NI_MAXHOST] = "?", port[NI_MAXSERV] = "?", tries[64];
    int bytes = 0;
    if (getsockname(conn->fd, (void *)&to, &len) == 0 &&
        getsockopt(conn->fd, SOL_SOCKET, SO_PEERNAME, &to, &len) == 0)
        getnameinfo((void *)&to, len, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV);
    ioctl(conn->fd, TIOCOUTQ, &bytes);
    if (info->tcpi_retransmits == 0 && info->tcpi_probes > 0)
        snprintf(tries, sizeof tries, "%u keepalive probe%s", info->tcpi_probes,
                 info->tcpi_probes == 1 ? "" : "s");
    else
        snprintf(tries, sizeof tries, "%u retransmission%s, %d bytes unacknowledged",
                 info->tcpi_retransmits, info->tcpi_retransmits == 1 ? "" : "s", bytes);
    peers_lose(conn->peer, LINK_LOSS_BROKEN, "no answer from %s port %s for %.1f s (%s)", host,
               port, info->tcpi_last_ack_recv / 1e3, tries);
}

/* The kernel has given up a connection whose other end did not answer: the host of the peer, or the
 * network, not the peer itself. */
static bool peers_was_silent(const struct conn *conn, struct tcp_info *info)
{
    socklen_t len = sizeof *info;
    return (conn->error == ETIMEDOUT || conn->error == EHOSTUNREACH ||
            conn->error == ENETUNREACH) &&
           getsockopt(conn->fd, IPPROTO_TCP, TCP_INFO, info, &len) == 0 &&
           (info->tcpi_retransmits || info->tcpi_probes);
}

void peers_conn_ended(struct conn *conn)
{
    struct link_peer *peer = conn->peer;
    struct tcp_info info;
    if (conn != &peer->main && !conn->put && !conn->data_left && conn->error == 0) {
        peers_close_conn(conn);
        return;
    }
    if (conn->bye || conn->error == 0)
        peers_drain(peer);
    if (conn->bye)
        peers_lose(peer, LINK_LOSS_LEFT, "it has closed its connection");
    else if (conn->error == 0)
        peers_lose(peer, LINK_LOSS_BROKEN, "connection closed by the peer");
    else if (peers_was_silent(conn, &info))
        peers_lose_silent(conn, &info);
    else
        peers_lose(peer, conn->error == ENOMEM ? LINK_LOSS_LOCAL : LINK_LOSS_BROKEN, "%s",
                   conn->error == EPROTO ? "malformed data" : strerror(conn->error));
}

void peers_check_silence(struct link *link)
{
    for (uint32_t i = link->nopen; i-- > 0;) {
        struct tcp_info info;
        socklen_t len = sizeof info;
        if (i >= link->nopen || /* the peer had several */
            getsockopt(link->open[i]->fd, IPPROTO_TCP, TCP_INFO, &info, &len) != 0)
            continue;
        if (info.tcpi_unacked > 0 && info.tcpi_retransmits > 0 &&
            info.tcpi_last_ack_recv > LINK_SILENCE_MS)
            peers_lose_silent(link->open[i], &info);
    }
}

void peers_free(struct link *link)
{
    for (struct link_peer *peer; (peer = link->peers);) {
        link->peers = peer->next;
        conn_fini(&peer->main);
        for (uint32_t c = 0; c < LINK_SOCKETS_MAX; c++) {
            if (peer->outgoing[c])
                conn_fini(peer->outgoing[c]);
            if (peer->incoming[c])
                conn_fini(peer->incoming[c]);
            free(peer->outgoing[c]);
            free(peer->incoming[c]);
        }
        free(peer);
    }
    free(link->open);
    free(link->pending);
}
