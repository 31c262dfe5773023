/* SPDX-License-Identifier: Apache-2.0 */
#include "run/top_server.h"

#include "run/run_state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define TOP_SERVER_NAME "top.sock"
#define TOP_SERVER_BOUND ".top.sock"
#define TOP_SERVER_NS 200000000ull
#define TOP_SERVER_SHARE 10 /* a state is made in a tenth of the time, at most */

static void top_server_log(const struct top_server *s, const char *what)
{
    char text[128];
    snprintf(text, sizeof text, "%s: %s: collrun top cannot be used", what, strerror(errno));
    run_state_log(s->run, text);
}

/* ---- clients ---- */

static void top_client_close(struct top_client *c)
{
    if (c->fd < 0)
        return;
    loop_unwatch(c->server->run->loop, &c->watch);
    close(c->fd);
    c->fd = -1;
    buf_clear(&c->out);
}

static void top_client_write(struct top_client *c)
{
    while (buf_pending(&c->out)) {
        ssize_t n = send(c->fd, c->out.data + c->out.start, buf_pending(&c->out),
                         MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        if (n <= 0) {
            top_client_close(c);
            return;
        }
        buf_consume(&c->out, (size_t)n);
    }
    loop_change(c->server->run->loop, &c->watch,
                buf_pending(&c->out) ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

/* A client that sends something, or that is gone, is closed. */
static void top_client_on_ready(struct loop_fd *w, uint32_t events)
{
    struct top_client *c = w->owner;
    if (events & ~(uint32_t)EPOLLOUT)
        top_client_close(c);
    else
        top_client_write(c);
}

static uint32_t top_server_clients(const struct top_server *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < TOP_SERVER_CLIENTS; i++)
        n += s->clients[i].fd >= 0;
    return n;
}

/* The next state follows in TOP_SERVER_NS, or later: states, which list all ranks, may take a share
 * of the time of the loop. That holds for clients that come one after the other, too. */
static void top_server_measure(struct top_server *s)
{
    const uint64_t now = now_ns();
    const uint64_t wait = s->earliest_ns > now ? s->earliest_ns - now : 0;
    hosts_send_all(s->run, WIRE_QUERY, NULL);
    hosts_send_all(s->run, WIRE_MEASURE, NULL);
    loop_timer_set(s->run->loop, &s->timer, wait > TOP_SERVER_NS ? wait : TOP_SERVER_NS);
}

static void top_server_on_connect(struct loop_fd *w, uint32_t events)
{
    struct top_server *s = w->owner;
    (void)events;
    int fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    struct top_client *c = s->clients;
    while (c < s->clients + TOP_SERVER_CLIENTS && c->fd >= 0)
        c++;
    if (fd < 0)
        return;
    if (c == s->clients + TOP_SERVER_CLIENTS ||
        loop_watch(s->run->loop, &c->watch, fd, EPOLLIN) != 0) {
        close(fd);
        return;
    }
    c->fd = fd;
    s->live->watched = true;
    if (top_server_clients(s) == 1) {
        top_server_measure(s);
        stall_monitor_watch(s->stalls);
    }
}

/* ---- states ---- */

static void top_server_send(struct top_server *s)
{
    const struct top_state state = {
        .desc = s->run->desc, .ranks = s->run->ranks, .live = s->live, .audit = *s->audit};
    json_t *json = top_json(&state, now_ns());
    char *text = json_dumps(json, JSON_COMPACT);
    json_decref(json);
    for (struct top_client *c = s->clients; text && c < s->clients + TOP_SERVER_CLIENTS; c++) {
        if (c->fd < 0 || buf_pending(&c->out))
            continue;
        buf_put(&c->out, text, strlen(text));
        buf_put(&c->out, "\n", 1);
        top_client_write(c);
    }
    free(text);
}

static void top_server_on_timer(struct loop_timer *t)
{
    struct top_server *s = t->owner;
    const uint64_t begin_ns = now_ns();
    if (top_server_clients(s) > 0)
        top_server_send(s);
    const uint64_t end_ns = now_ns();
    s->earliest_ns = end_ns + (end_ns - begin_ns) * TOP_SERVER_SHARE;
    s->live->watched = top_server_clients(s) > 0;
    if (s->live->watched)
        top_server_measure(s);
}

/* ---- the socket ---- */

/* The path is short whatever the name of the run directory is: sockets have names of 107 bytes at
 * most. */
static int top_server_listen(struct top_server *s)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    s->dir_fd = open(s->run->desc->run_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    s->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s->dir_fd < 0 || s->fd < 0)
        return -1;
    snprintf(at.sun_path, sizeof at.sun_path, "/proc/self/fd/%d/" TOP_SERVER_BOUND, s->dir_fd);
    unlinkat(s->dir_fd, TOP_SERVER_BOUND, 0);
    /* bind gives the file the mode of the socket. umask would also be that of the disk thread. */
    if (fchmod(s->fd, 0600) < 0 || bind(s->fd, (const struct sockaddr *)&at, sizeof at) < 0)
        return -1;
    if (listen(s->fd, TOP_SERVER_CLIENTS) < 0)
        return -1;
    /* It has its name once it listens: `collrun top` removes a socket that refuses connections. */
    return renameat(s->dir_fd, TOP_SERVER_BOUND, s->dir_fd, TOP_SERVER_NAME);
}

void top_server_start(struct top_server *s)
{
    s->dir_fd = s->fd = -1;
    s->watch = (struct loop_fd){.fd = -1, .ready = top_server_on_connect, .owner = s};
    s->timer = (struct loop_timer){.fired = top_server_on_timer, .owner = s};
    for (struct top_client *c = s->clients; c < s->clients + TOP_SERVER_CLIENTS; c++) {
        *c = (struct top_client){.server = s, .fd = -1};
        c->watch = (struct loop_fd){.fd = -1, .ready = top_client_on_ready, .owner = c};
        buf_init(&c->out);
    }
    if (!s->run->rundir)
        return;
    if (top_server_listen(s) < 0)
        top_server_log(s, TOP_SERVER_NAME);
    else
        loop_watch(s->run->loop, &s->watch, s->fd, EPOLLIN);
}

void top_server_stop(struct top_server *s)
{
    if (!s->timer.owner) /* not started */
        return;
    loop_timer_clear(s->run->loop, &s->timer);
    for (struct top_client *c = s->clients; c < s->clients + TOP_SERVER_CLIENTS; c++) {
        top_client_close(c);
        buf_fini(&c->out);
    }
    loop_unwatch(s->run->loop, &s->watch);
    if (s->fd >= 0) {
        close(s->fd);
        unlinkat(s->dir_fd, TOP_SERVER_NAME, 0);
    }
    if (s->dir_fd >= 0)
        close(s->dir_fd);
}
