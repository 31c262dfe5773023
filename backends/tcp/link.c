/* SPDX-License-Identifier: Apache-2.0
 *
 * The link over TCP: what the endpoint calls. See link.h and state.h.
 *
 * - Few open connections are read one by one, which takes one system call for each; of many, epoll
 *   names those that have something.
 * - Of those that are read one by one, and exchange packets longer than a segment, the kernel is
 *   asked to acknowledge input when it arrives; see link_ask_for_acks.
 * - A process that closes its link sends BYE on every connection, and waits until the peers' hosts
 *   have acknowledged all that it has sent: closing a socket that has unread data drops what is
 *   still on its way.
 */
#include "listener.h"
#include "peers.h"

#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LINK_FEW = 4, LINK_EVENTS = 32, LINK_SERVE_EVENTS = 64, LINK_CLOSE_MS = 2000 };

/* ---- life ---- */

/* Connections serve all groups: the largest number counts. */
void link_add_group(struct link *link, const struct collrun_services *options)
{
    const char *text = options->option(options->ctx, "sockets");
    const unsigned long n = text ? strtoul(text, NULL, 10) : 1;
    if (n > link->sockets)
        link->sockets = n < LINK_SOCKETS_MAX ? (uint32_t)n : LINK_SOCKETS_MAX;
}

static bool link_watch(int epoll_fd, int fd, void *what)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = what};
    return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

static bool link_open_descriptors(struct link *link)
{
    link->io.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    link->serve_fd = epoll_create1(EPOLL_CLOEXEC);
    link->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    link->rouse_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    return link->io.epoll_fd >= 0 && link->serve_fd >= 0 && link->wake_fd >= 0 &&
           link->rouse_fd >= 0 && link_watch(link->io.epoll_fd, link->wake_fd, NULL) &&
           link_watch(link->serve_fd, link->rouse_fd, &link->rouse);
}

static void link_free(struct link *link)
{
    const int fds[] = {link->io.epoll_fd, link->serve_fd, link->wake_fd, link->rouse_fd};
    listener_close(link);
    dial_free_all(link);
    peers_free(link);
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++) {
        if (fds[i] >= 0)
            close(fds[i]);
    }
    landing_table_fini(&link->io.landings);
    free(link->io.buffer);
    free(link);
}

int link_open(const struct link_config *config, struct link **out)
{
    const struct collrun_services *s = config->services;
    struct link *link = calloc(1, sizeof *link);
    char *buffer = aligned_alloc(CONN_ALIGN, CONN_BUFFER_LEN);
    if (!link || !buffer) {
        free(link);
        free(buffer);
        return s->fail(s->ctx, COLLRUN_ERR_NO_MEMORY, "out of memory for connections");
    }
    *link = (struct link){.services = s,
                          .world_rank = config->world_rank,
                          .io = {.epoll_fd = -1, .buffer = buffer, .upcalls = config->upcalls},
                          .sockets = 1,
                          .wake_fd = -1,
                          .serve_fd = -1,
                          .rouse_fd = -1,
                          .listen_fd = -1,
                          .spare_fd = -1,
                          .rouse = {SERVE_ROUSE},
                          .listener = {SERVE_LISTENER}};
    atomic_init(&link->serve_ms, -1);
    atomic_init(&link->waiters, 0);
    int status = COLLRUN_OK;
    if (!link_open_descriptors(link))
        status = s->fail(s->ctx, COLLRUN_ERR_SYSTEM, "epoll: %s", strerror(errno));
    if (status == COLLRUN_OK)
        status = listener_open(link, config);
    if (status != COLLRUN_OK) {
        link_free(link);
        return status;
    }
    *out = link;
    return COLLRUN_OK;
}

/* Bytes that the peer's host has not acknowledged. */
static bool link_has_unacknowledged(const struct link *link)
{
    bool any = false;
    for (uint32_t i = 0; i < link->nopen; i++) {
        int unsent = 0;
        const struct conn *conn = link->open[i];
        any |= !conn->mute &&
               (conn_is_pending(conn) || (ioctl(conn->fd, SIOCOUTQ, &unsent) == 0 && unsent > 0));
    }
    return any;
}

/* Packets that wait for a connection. */
static bool link_has_unsent(const struct link *link)
{
    bool any = false;
    for (const struct link_peer *p = link->peers; p; p = p->next)
        any |= (p->state == PEER_CONNECTING || p->state == PEER_AWAITED) &&
               !outbox_is_empty(&p->main.outbox);
    return any;
}

/* Packets are not delivered any more, but read. */
static void link_drop_packet(void *ctx, void *cookie, const void *header, const void *data,
                             size_t len)
{
    (void)ctx, (void)cookie, (void)header, (void)data, (void)len;
}

static bool link_drop_long_packet(void *ctx, void *cookie, const void *header, size_t len,
                                  struct link_landing **landing)
{
    (void)ctx, (void)cookie, (void)header, (void)len;
    *landing = NULL;
    return true;
}

static void link_drop_loss(void *ctx, void *cookie, const struct link_loss *loss)
{
    (void)ctx, (void)cookie, (void)loss;
}

/* Peers whose connection has been opened since then get it, too. */
static void link_send_bye(struct link *link)
{
    for (struct link_peer *peer = link->peers; peer; peer = peer->next) {
        if (peer->sent_bye || (peer->state != PEER_UP && outbox_is_empty(&peer->main.outbox)))
            continue;
        peer->sent_bye = true;
        conn_send_bye(&peer->main);
        peers_list_pending(link, &peer->main);
    }
}

void link_close(struct link *link)
{
    const uint64_t until = link_now_ns(link) + LINK_CLOSE_MS * 1000000ull;
    link->io.upcalls = (struct link_upcalls){
        .packet = link_drop_packet, .long_packet = link_drop_long_packet, .lost = link_drop_loss};
    for (;;) {
        link_accept(link);
        link_send_bye(link);
        link_progress(link);
        if ((!link_has_unsent(link) && !link_has_unacknowledged(link)) || link_now_ns(link) > until)
            break;
        poll(NULL, 0, 1);
    }
    link_free(link);
}

size_t link_address(const struct link *link, void *address)
{
    memcpy(address, &link->self, sizeof link->self);
    return sizeof link->self;
}

/* ---- peers ---- */

int link_peer_open(struct link *link, const struct link_peer_config *config, struct link_peer **out)
{
    const struct collrun_services *s = link->services;
    struct link_peer *peer = calloc(1, sizeof *peer);
    if (!peer)
        return s->fail(s->ctx, COLLRUN_ERR_NO_MEMORY, "out of memory for %s", config->name);
    if (config->len != sizeof peer->address) {
        free(peer);
        return s->fail(s->ctx, COLLRUN_ERR_BACKEND, "%s has published an address of %zu bytes",
                       config->name, config->len);
    }
    memcpy(&peer->address, config->address, sizeof peer->address);
    peer->link = link;
    peer->world_rank = config->world_rank;
    peer->cookie = config->cookie;
    snprintf(peer->name, sizeof peer->name, "%s", config->name);
    peer->main = (struct conn){
        .io = &link->io, .peer = peer, .cookie = config->cookie, .puts = &peer->puts, .fd = -1};
    peer->next = link->peers;
    link->peers = peer;
    listener_adopt_parked(link, config->world_rank);
    *out = peer;
    return COLLRUN_OK;
}

void link_connect(struct link_peer *peer)
{
    if (peer->state == PEER_IDLE)
        dial_start(peer, 0);
}

bool link_is_connected(const struct link_peer *peer)
{
    return peer->state != PEER_IDLE && peer->state != PEER_LOST;
}

/* ---- data ---- */

void link_send(struct link_peer *peer, const void *header, const void *data, size_t len)
{
    link_connect(peer);
    if (peer->state == PEER_LOST)
        return;
    conn_send(&peer->main, header, data, len);
    peers_list_pending(peer->link, &peer->main);
}

enum link_sending link_send_long(struct link_peer *peer, const void *header, struct link_put *put)
{
    if (peer->state != PEER_UP)
        return LINK_BUSY;
    const enum link_sending sending = conn_send_long(&peer->main, header, put);
    if (sending == LINK_BEGUN)
        peers_list_pending(peer->link, &peer->main);
    return sending;
}

void link_take(struct link_peer *peer, struct link_landing *landing)
{
    conn_take(&peer->main, landing);
    peer->link->has_ahead |= peer->main.nahead > 0;
    if (peer->main.nahead > 0 && atomic_load(&peer->link->waiters) > 0)
        link_wake(peer->link);
}

int link_land(struct link *link, struct link_landing *landing)
{
    landing->announced = 0;
    landing->received = 0;
    return landing_add(&link->io.landings, landing) ? COLLRUN_OK : COLLRUN_ERR_NO_MEMORY;
}

void link_unland(struct link *link, struct link_landing *landing)
{
    struct link_peer *peer = landing->peer;
    if (landing->token)
        landing_remove(&link->io.landings, landing);
    conn_forget_landing(&peer->main, landing);
    for (uint32_t c = 1; c < LINK_SOCKETS_MAX; c++) {
        if (peer->incoming[c])
            conn_forget_landing(peer->incoming[c], landing);
    }
}

/* Several sockets share the puts of a peer. */
static void link_list_outgoing(struct link_peer *peer)
{
    peers_list_pending(peer->link, &peer->main);
    for (uint32_t c = 1; c < peer->link->sockets; c++) {
        if (peer->outgoing[c])
            peers_list_pending(peer->link, peer->outgoing[c]);
    }
}

void link_put(struct link *link, struct link_put *put)
{
    struct link_peer *peer = put->peer;
    put->moved = 0;
    put->finished = 0;
    if (peer->state != PEER_UP)
        return;
    for (; put->len > CONN_FRAGMENT_LEN && peer->sockets < link->sockets; peer->sockets++) {
        if (peer->sockets > 0)
            dial_start(peer, peer->sockets);
    }
    peer->puts.shared |= peer->sockets > 1;
    conn_puts_add(&peer->puts, put);
    link_list_outgoing(peer);
}

void link_unput(struct link *link, struct link_put *put)
{
    struct link_peer *peer = put->peer;
    conn_puts_remove(&peer->puts, put);
    conn_forget_put(&peer->main, put);
    for (uint32_t c = 1; c < link->sockets; c++) {
        if (peer->outgoing[c])
            conn_forget_put(peer->outgoing[c], put);
    }
}

/* ---- progress ---- */

/* TCP acknowledges every second segment. Linux does so when they arrive, on the core of a sender
 * that is on the same machine, or the one of the interrupt, unless the window would not move by as
 * much; then recv does it, before it returns to a receiver that waits for that: 2 us. Which of both
 * happens depends on how the kernel has rounded the window. What is less than SO_RCVLOWAT is
 * acknowledged when it arrives, in any case, but epoll does not report it. Not where data goes one
 * way: the core of the sender has enough to do there. */
static void link_ask_for_acks(struct conn *conn, bool ask)
{
    const int len = ask ? CONN_BUFFER_LEN : 1;
    if (conn->asks_for_acks == ask)
        return;
    conn->asks_for_acks = ask;
    conn->peer->link->asks_for_acks |= ask;
    setsockopt(conn->fd, SOL_SOCKET, SO_RCVLOWAT, &len, sizeof len);
}

/* From now on epoll reports all input. */
static void link_ask_for_reports(struct link *link)
{
    for (uint32_t i = 0; i < link->nopen && link->asks_for_acks; i++)
        link_ask_for_acks(link->open[i], false);
    link->asks_for_acks = false;
}

static bool link_pull(struct conn *conn)
{
    struct link *link = conn->peer->link;
    if (conn->fd < 0)
        return false;
    const size_t n = conn_pull(conn);
    if (conn->ended) {
        peers_conn_ended(conn);
        return true;
    }
    if (n > 0 && conn->exchanges != conn->asks_for_acks) {
        const bool polled = link->nopen <= LINK_FEW && atomic_load(&link->waiters) == 0;
        link_ask_for_acks(conn, conn->exchanges && polled);
    }
    return n > 0;
}

/* Input that epoll does not report, because it has been read. */
static bool link_pull_ahead(struct link *link)
{
    bool moved = false;
    for (uint32_t i = link->nopen; i-- > 0;)
        moved |= i < link->nopen && link->open[i]->nahead > 0 && link_pull(link->open[i]);
    return moved;
}

static bool link_pull_all(struct link *link)
{
    struct epoll_event events[LINK_EVENTS];
    bool moved = false;
    const bool has_ahead = link->has_ahead;
    link->has_ahead = false;
    if (link->nopen <= LINK_FEW) {
        for (uint32_t i = link->nopen; i-- > 0;)
            moved |= i < link->nopen && link_pull(link->open[i]);
        return moved;
    }
    link_ask_for_reports(link);
    if (has_ahead)
        moved |= link_pull_ahead(link);
    const int n = epoll_wait(link->io.epoll_fd, events, LINK_EVENTS, 0);
    for (int i = 0; i < n; i++) {
        if (events[i].data.ptr && (events[i].events & ~(uint32_t)EPOLLOUT))
            moved |= link_pull(events[i].data.ptr);
    }
    return moved;
}

static bool link_push_all(struct link *link)
{
    bool moved = false;
    for (uint32_t i = link->npending; i-- > 0;) {
        struct conn *conn = link->pending[i];
        moved |= conn_push(conn);
        if (conn_is_pending(conn))
            continue;
        conn->listed = false;
        link->pending[i] = link->pending[--link->npending];
    }
    return moved;
}

bool link_progress(struct link *link)
{
    bool moved = link_pull_all(link);
    if (link->npending)
        moved |= link_push_all(link);
    if (link->lost)
        moved |= peers_report_losses(link);
    return moved;
}

bool link_pending(const struct link *link)
{
    return link->npending > 0;
}

void link_prepare_wait(struct link *link)
{
    atomic_fetch_add(&link->waiters, 1);
    link_ask_for_reports(link);
    if (link->has_ahead)
        link_wake(link);
}

void link_wait(struct link *link, uint64_t timeout_ns)
{
    struct epoll_event events[LINK_EVENTS];
    eventfd_t wakes;
    const uint64_t ms = timeout_ns / 1000000;
    const int n = epoll_wait(link->io.epoll_fd, events, LINK_EVENTS,
                             timeout_ns == 0 ? 0
                             : ms == 0       ? 1
                             : ms > 3600000  ? 3600000
                                             : (int)ms);
    atomic_fetch_sub(&link->waiters, 1);
    for (int i = 0; i < n; i++) {
        if (!events[i].data.ptr)
            eventfd_read(link->wake_fd, &wakes);
    }
}

void link_wake(struct link *link)
{
    eventfd_write(link->wake_fd, 1); /* it cannot overflow */
}

/* ---- the service thread ---- */

static void link_serve_item(struct link *link, struct serve_item *item)
{
    eventfd_t rouses;
    switch (item->kind) {
    case SERVE_ROUSE:
        eventfd_read(link->rouse_fd, &rouses);
        return;
    case SERVE_LISTENER:
        listener_accept(link);
        return;
    case SERVE_INBOUND:
        listener_advance(link, (struct inbound *)(void *)item);
        return;
    case SERVE_DIAL:
        dial_advance(link, (struct dial *)(void *)item);
        return;
    }
}

static bool link_tick(struct link *link)
{
    const uint64_t now = link_now_ns(link);
    if (now < link->next_tick_ns)
        return false;
    link->next_tick_ns = now + LINK_TICK_MS * 1000000ull;
    listener_check_deadlines(link, now);
    dial_check_deadlines(link, now);
    peers_check_silence(link);
    return true;
}

/* A wake that found no thread in link_wait, or the service thread, is not left: link_serve would
 * return at once until some thread waits. */
static void link_drop_wakes(struct link *link)
{
    eventfd_t wakes;
    if (atomic_load(&link->waiters) == 0)
        eventfd_read(link->wake_fd, &wakes);
}

/* One event at a time, because it may end the connection of another one. */
bool link_accept(struct link *link)
{
    struct epoll_event event;
    int left = LINK_SERVE_EVENTS;
    while (left-- > 0 && epoll_wait(link->serve_fd, &event, 1, 0) == 1)
        link_serve_item(link, event.data.ptr);
    link_drop_wakes(link);
    const bool ticked = link_tick(link);
    if (link->npending)
        link_push_all(link);
    if (link->lost)
        peers_report_losses(link);
    const bool ticks = link->nopen || link->dials || link->inbounds || link->listener_pauses;
    atomic_store(&link->serve_ms, ticks ? LINK_TICK_MS : -1);
    return ticked;
}

void link_serve(struct link *link, bool output)
{
    struct pollfd fds[2] = {{.fd = link->serve_fd, .events = POLLIN},
                            {.fd = link->io.epoll_fd, .events = POLLIN}};
    poll(fds, output ? 2 : 1, atomic_load(&link->serve_ms));
    if (output)
        atomic_fetch_sub(&link->waiters, 1);
}

void link_rouse(struct link *link)
{
    eventfd_write(link->rouse_fd, 1);
}
