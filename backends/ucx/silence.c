/* SPDX-License-Identifier: Apache-2.0
 *
 * Silent connections: see silence.h. UCX closes a socket that has failed, so what the kernel
 * knows of it is written down before, for all peers of that host.
 */
#include "silence.h"

#include "state.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    SILENCE_LIMIT_MS = 12000,
    /* Until a connection has come up: on a busy machine the peer may begin half a minute later. The
     * kernel sends SYN after 1, 3, 7, 15 and 31 s, so the fifth repetition has no answer either. */
    SILENCE_OPENING_MS = 30000,
    SILENCE_DEPTH = 3 /* of descriptors that contain others */
};

/* How long a connection has been opening, at least: the kernel sends SYN again after waits of a
 * second first, tcp_syn_linear_timeouts of them, and then after twice the last wait. */
static uint32_t silence_opening_ms(const struct tcp_info *info)
{
    uint32_t ms = info->tcpi_retransmits * 1000u;
    for (uint32_t wait_ms = 2000; wait_ms <= info->tcpi_rto / 1000; wait_ms *= 2)
        ms += wait_ms / 2 - 1000;
    return ms;
}

/* As base/network.h of the engine writes it, which the runner reads. */
static void silence_note(struct link *link, int fd, const struct tcp_info *info)
{
    struct sockaddr_storage to;
    socklen_t len = sizeof to;
    char host[NI_MAXHOST], port[NI_MAXSERV], what[128];
    int bytes = 0;
    /* SO_PEERNAME works also while a connection is opened, and wants the exact length. */
    if (getsockname(fd, (void *)&to, &len) != 0 ||
        getsockopt(fd, SOL_SOCKET, SO_PEERNAME, &to, &len) != 0 ||
        getnameinfo((void *)&to, len, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        return;
    ioctl(fd, TIOCOUTQ, &bytes);
    const bool opening = info->tcpi_state == TCP_SYN_SENT;
    if (opening)
        snprintf(what, sizeof what, "has not come up (%u attempts)", info->tcpi_retransmits + 1u);
    else
        snprintf(what, sizeof what, "for %.1f s (%u retransmission%s, %d bytes unacknowledged)",
                 info->tcpi_last_ack_recv / 1e3, info->tcpi_retransmits,
                 info->tcpi_retransmits == 1 ? "" : "s", bytes);
    for (struct link_peer *p = link->peers; p; p = p->next) {
        if (strcmp(p->host, host) == 0)
            snprintf(p->silent, sizeof p->silent, "%s %s port %s %s",
                     opening ? "the connection to" : "no answer from", p->host, port, what);
    }
}

static void silence_check_socket(struct link *link, int fd)
{
    struct tcp_info info;
    socklen_t len = sizeof info;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) != 0 || info.tcpi_unacked == 0 ||
        info.tcpi_retransmits == 0)
        return;
    const bool opening = info.tcpi_state == TCP_SYN_SENT;
    const uint32_t silent_ms = opening ? silence_opening_ms(&info) : info.tcpi_last_ack_recv;
    silence_note(link, fd, &info);
    if (silent_ms > (opening ? SILENCE_OPENING_MS : SILENCE_LIMIT_MS))
        shutdown(fd, SHUT_RDWR);
}

/* The descriptors that an epoll descriptor watches, and theirs. */
static void silence_check_watched(struct link *link, int epoll_fd, int depth)
{
    char path[64], line[256];
    int fd;
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", epoll_fd);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f)) {
        if (sscanf(line, "tfd: %d", &fd) != 1)
            continue;
        silence_check_socket(link, fd);
        if (depth > 1)
            silence_check_watched(link, fd, depth - 1);
    }
    if (f)
        fclose(f);
}

bool silence_check(struct link *link)
{
    const uint64_t now_ms = link->services->now_ns() / 1000000;
    if (now_ms < link->next_check_ms)
        return false;
    link->next_check_ms = now_ms + SILENCE_TICK_MS;
    for (struct link_peer *p = link->peers; p; p = p->next)
        p->silent[0] = '\0';
    silence_check_watched(link, link->worker_fd, SILENCE_DEPTH);
    return true;
}

/* Without a connection, the kernel's routes may tell: connect() of UDP sends nothing. */
static int silence_route_error(const char *host)
{
    struct addrinfo *to;
    const struct addrinfo numeric = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
                                     .ai_socktype = SOCK_DGRAM};
    if (getaddrinfo(host, "9", &numeric, &to) != 0)
        return 0;
    const int fd = socket(to->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const int error = fd >= 0 && connect(fd, to->ai_addr, to->ai_addrlen) != 0 ? errno : 0;
    if (fd >= 0)
        close(fd);
    freeaddrinfo(to);
    return error;
}

void silence_explain(struct link_peer *peer, ucs_status_t status)
{
    int error;
    if (status == UCS_ERR_UNREACHABLE && (error = silence_route_error(peer->host)) != 0)
        snprintf(peer->silent, sizeof peer->silent, "cannot connect to %s: %s", peer->host,
                 strerror(error));
    else if (status != UCS_ERR_UNREACHABLE && status != UCS_ERR_ENDPOINT_TIMEOUT)
        peer->silent[0] = '\0';
}
