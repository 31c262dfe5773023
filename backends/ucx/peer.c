/* SPDX-License-Identifier: Apache-2.0
 *
 * Peers: see peer.h. What link_address publishes is the secret of the process, the address of its
 * host, then that of its worker.
 */
#include "peer.h"

#include "state.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- silence ----
 *
 * Silent connections. UCX closes a socket that has failed, so what the kernel
 * knows of it is written down before, for all peers of that host.
 */

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
    if (silent_ms <= (opening ? SILENCE_OPENING_MS : SILENCE_LIMIT_MS))
        return;
    COLLRUN_DEBUG(link->services, LINK,
                  "socket %d is silent for %u ms (%u retransmissions): shut "
                  "down",
                  fd, silent_ms, info.tcpi_retransmits);
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

/* A peer is lost, with this status: peer->silent is what explains it, or "". */
static void silence_explain(struct link_peer *peer, ucs_status_t status)
{
    int error;
    if (status == UCS_ERR_UNREACHABLE && (error = silence_route_error(peer->host)) != 0)
        snprintf(peer->silent, sizeof peer->silent, "cannot connect to %s: %s", peer->host,
                 strerror(error));
    else if (status != UCS_ERR_UNREACHABLE && status != UCS_ERR_ENDPOINT_TIMEOUT)
        peer->silent[0] = '\0';
}

/* ---- peers ---- */

/* The peer with this rank in the job, made if it is not known; NULL: out of memory. */
static struct link_peer *peer_get(struct link *link, uint32_t world_rank)
{
    for (struct link_peer *p = link->peers; p; p = p->next)
        if (p->world_rank == world_rank)
            return p;
    struct link_peer *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->link = link;
    p->world_rank = world_rank;
    p->next = link->peers;
    link->peers = p;
    return p;
}

size_t link_address(const struct link *link, void *address)
{
    memcpy(address, link->secret, UCX_SECRET_LEN);
    memcpy((char *)address + UCX_SECRET_LEN, link->host, sizeof link->host);
    memcpy((char *)address + UCX_CARD_LEN, link->address, link->address_len);
    return UCX_CARD_LEN + link->address_len;
}

int link_peer_open(struct link *link, const struct link_peer_config *config,
                   struct link_peer **peer)
{
    const struct collrun_services *s = link->services;
    if (config->len <= UCX_CARD_LEN)
        return s->fail(s->ctx, COLLRUN_ERR_BACKEND, "%s has published no address of UCX",
                       config->name);
    struct link_peer *p = peer_get(link, config->world_rank);
    void *address = malloc(config->len - UCX_CARD_LEN);
    if (!p || !address) {
        free(address);
        return s->fail(s->ctx, COLLRUN_ERR_NO_MEMORY, "out of memory for %s", config->name);
    }
    memcpy(p->secret, config->address, UCX_SECRET_LEN);
    snprintf(p->host, sizeof p->host, "%.*s", (int)sizeof p->host - 1,
             (const char *)config->address + UCX_SECRET_LEN);
    memcpy(address, (const char *)config->address + UCX_CARD_LEN, config->len - UCX_CARD_LEN);
    p->address = address;
    p->cookie = config->cookie;
    snprintf(p->name, sizeof p->name, "%s", config->name);
    p->opened = true;
    COLLRUN_DEBUG(s, LINK, "%s is at %s, with an address of UCX of %zu bytes", p->name, p->host,
                  config->len - UCX_CARD_LEN);
    *peer = p;
    return COLLRUN_OK;
}

static enum link_loss_reason peer_reason(ucs_status_t status)
{
    switch (status) {
    case UCS_ERR_UNREACHABLE:
    case UCS_ERR_NO_DEVICE:
    case UCS_ERR_REJECTED:
    case UCS_ERR_INVALID_ADDR:
        return LINK_LOSS_UNREACHABLE;
    case UCS_ERR_NO_MEMORY:
    case UCS_ERR_NO_RESOURCE:
    case UCS_ERR_EXCEEDS_LIMIT:
        return LINK_LOSS_LOCAL;
    default:
        return LINK_LOSS_BROKEN;
    }
}

void peer_lose(struct link_peer *peer, ucs_status_t status)
{
    if (peer->lost)
        return;
    peer->lost = true;
    peer->reason = peer->left ? LINK_LOSS_LEFT : peer_reason(status);
    silence_explain(peer, status);
    snprintf(peer->reason_text, sizeof peer->reason_text, "UCX: %s%s%s",
             peer->link->ucx.ucs_status_string(status), peer->silent[0] ? "; " : "", peer->silent);
    COLLRUN_DEBUG(peer->link->services, LINK, "%s is lost (reason %d): %s", peer->name,
                  (int)peer->reason, peer->reason_text);
}

static void peer_on_error(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    (void)ep;
    peer_lose(arg, status);
}

ucp_ep_h peer_ep(struct link_peer *peer)
{
    if (peer->ep || peer->lost || !peer->opened)
        return peer->lost ? NULL : peer->ep;
    const ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address = peer->address,
        .err_mode = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {.cb = peer_on_error, .arg = peer},
    };
    const ucs_status_t status =
        peer->link->ucx.ucp_ep_create(peer->link->worker, &params, &peer->ep);
    COLLRUN_DEBUG(peer->link->services, LINK, "an endpoint to %s at %s: %s", peer->name, peer->host,
                  peer->link->ucx.ucs_status_string(status));
    if (status == UCS_OK)
        return peer->ep;
    peer->ep = NULL;
    peer_lose(peer, status == UCS_ERR_NO_MEMORY ? status : UCS_ERR_UNREACHABLE);
    return NULL;
}

void link_connect(struct link_peer *peer)
{
    peer_ep(peer);
}

/* Or the peer is connected to this process, which has sent nothing. */
bool link_is_connected(const struct link_peer *peer)
{
    return (peer->ep || peer->delivered > 0) && !peer->lost;
}

struct ucx_head peer_head(const struct link_peer *peer)
{
    struct ucx_head head = {.from = peer->link->world_rank};
    memcpy(head.secret, peer->secret, sizeof head.secret);
    return head;
}

/* Takes the same time wherever the secrets differ. */
static bool peer_is_secret(const uint8_t *a, const uint8_t *b)
{
    uint8_t differ = 0;
    for (size_t i = 0; i < UCX_SECRET_LEN; i++)
        differ |= (uint8_t)(a[i] ^ b[i]);
    return differ == 0;
}

bool peer_of_head(struct link *link, const void *bytes, size_t len, struct ucx_head *head,
                  struct link_peer **peer)
{
    if (len != sizeof *head)
        return false;
    memcpy(head, bytes, sizeof *head);
    if (!peer_is_secret(head->secret, link->secret))
        return false;
    *peer = peer_get(link, head->from);
    return true;
}

void *peer_close_ep(struct link_peer *peer, uint32_t flags)
{
    const ucp_request_param_t params = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = flags};
    void *request = peer->link->ucx.ucp_ep_close_nbx(peer->ep, &params);
    peer->ep = NULL;
    return UCS_PTR_IS_PTR(request) ? request : NULL;
}

uint64_t peer_now_ns(const struct link *link)
{
    return link->services->now_ns();
}

void peer_end(struct link *link, void *request, uint64_t until_ns)
{
    while (request && link->ucx.ucp_request_check_status(request) == UCS_INPROGRESS &&
           peer_now_ns(link) < until_ns)
        link->ucx.ucp_worker_progress(link->worker);
    if (request)
        link->ucx.ucp_request_free(request);
}

void peer_cut(struct link_peer *peer)
{
    if (peer->ep)
        peer_end(peer->link, peer_close_ep(peer, UCP_EP_CLOSE_FLAG_FORCE),
                 peer_now_ns(peer->link) + 1000000000u);
}

bool peer_report_losses(struct link *link)
{
    bool any = false;
    for (struct link_peer *p = link->peers; p; p = p->next) {
        if (!p->lost || p->loss_reported || !p->opened)
            continue;
        p->loss_reported = any = true;
        peer_cut(p);
        link->upcalls.lost(link->upcalls.ctx, p->cookie,
                           &(struct link_loss){p->reason, p->reason_text});
    }
    return any;
}
