/* SPDX-License-Identifier: Apache-2.0 */
#include "run/status_request.h"

#include "base/parse.h"
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

#define ANSWER_NS 200000000ull /* how long the agents have to answer */

static void status_request_rank_text(const struct status_request *s, uint32_t rank, char *out,
                                     size_t size)
{
    const struct rank_state *r = &s->run->ranks[rank];
    if (r->end == RANK_EXITED && s->stop->step == STOP_NONE)
        snprintf(out, size, "exited");
    else if (r->phase == PHASE_RUNNING && r->command && r->part == PART_OUTSIDE &&
             !r->snapshot.n) /* nor does its record have a group, of a library that writes it */
        snprintf(out, size, "running a program that has not called collrun_init%s",
                 r->snapshot.state == 'T' ? ", stopped by a signal" : "");
    else if (r->phase == PHASE_RUNNING && r->snapshot.known)
        rank_describe(r, out, size);
    else
        snprintf(out, size, "%s%s", rank_phase_text(r, r->phase),
                 r->snapshot.state == 'T' ? ", stopped by a signal" : "");
}

/* ", for 3.2 s", or how long ago the last call was; of the rank for which it is longest. */
static void status_request_print_age(const struct status_request *s, const uint32_t *list,
                                     uint32_t n, FILE *out)
{
    const uint64_t now = now_ns();
    uint64_t most = 0, age;
    bool inside = false;
    for (uint32_t i = 0; i < n; i++) {
        const struct rank_state *r = &s->run->ranks[list[i]];
        if (r->end == RANK_EXITED || r->phase != PHASE_RUNNING || !rank_age(r, now, &age, &inside))
            continue;
        most = age > most ? age : most;
    }
    if (most)
        fprintf(out, inside ? ", for %.1f s" : ", last called %.1f s ago", (double)most / 1e9);
}

/* "; node1: pids 4711, 4712; node2: pid 4713" */
static void status_request_print_pids(const struct status_request *s, const uint32_t *list,
                                      uint32_t n, FILE *out)
{
    enum { PIDS_MAX = 16 };
    const struct desc *desc = s->run->desc;
    uint32_t host = UINT32_MAX;
    for (uint32_t i = 0; i < n && i < PIDS_MAX; i++) {
        uint32_t on = desc->ranks[list[i]].host;
        bool more = i + 1 < n && desc->ranks[list[i + 1]].host == on;
        if (on != host)
            fprintf(out, "; %s: pid%s ", desc->hosts[on].name, more ? "s" : "");
        fprintf(out, "%s%d", on == host ? ", " : "", (int)s->run->ranks[list[i]].pid);
        host = on;
    }
    if (n > PIDS_MAX)
        fprintf(out, ", ...");
}

struct status_line { /* what a rank is doing */
    uint32_t rank;
    const char *text;
    uint32_t first; /* the first rank that does the same */
};

static int status_request_by_text(const void *a, const void *b)
{
    const struct status_line *x = a, *y = b;
    const int order = strcmp(x->text, y->text);
    return order ? order : (x->rank > y->rank) - (x->rank < y->rank);
}

static int status_request_by_first(const void *a, const void *b)
{
    const struct status_line *x = a, *y = b;
    if (x->first != y->first)
        return x->first < y->first ? -1 : 1;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

/* Ranks that do the same follow each other, the first ones in front. The text of each rank is made
 * once: the loop of the runner waits for this. */
static struct status_line *status_request_sort(const struct status_request *s, struct arena *arena)
{
    const uint32_t nranks = s->run->desc->nranks;
    struct status_line *lines = arena_calloc(arena, nranks, sizeof *lines);
    char doing[320];
    for (uint32_t i = 0; i < nranks; i++) {
        status_request_rank_text(s, i, doing, sizeof doing);
        lines[i] = (struct status_line){.rank = i, .text = arena_strdup(arena, doing)};
    }
    qsort(lines, nranks, sizeof *lines, status_request_by_text);
    for (uint32_t i = 0; i < nranks; i++) {
        const bool same = i > 0 && strcmp(lines[i].text, lines[i - 1].text) == 0;
        lines[i].first = same ? lines[i - 1].first : lines[i].rank;
    }
    qsort(lines, nranks, sizeof *lines, status_request_by_first);
    return lines;
}

static void status_request_print_lines(const struct status_request *s, bool details, FILE *out)
{
    const uint32_t nranks = s->run->desc->nranks;
    char missing[256];
    struct arena arena;
    arena_init(&arena);
    const struct status_line *lines = status_request_sort(s, &arena);
    uint32_t *list = arena_calloc(&arena, nranks, sizeof *list);
    for (uint32_t i = 0, n; i < nranks; i += n) {
        char ranks[256];
        for (n = 0; i + n < nranks && lines[i + n].first == lines[i].first; n++)
            list[n] = lines[i + n].rank;
        rank_list_format(ranks, sizeof ranks, list, n);
        fprintf(out, "collrun: rank%s %s: %s", n == 1 ? "" : "s", ranks, lines[i].text);
        if (details) {
            status_request_print_age(s, list, n, out);
            status_request_print_pids(s, list, n, out);
        }
        fputc('\n', out);
    }
    arena_fini(&arena);
    bring_up_missing_text(s->bring_up, missing, sizeof missing);
    if (missing[0])
        fprintf(out, "collrun: no answer yet from host %s\n", missing);
}

void status_request_print(const struct status_request *s, FILE *out)
{
    status_request_print_lines(s, false, out);
}

static void status_request_on_timer(struct loop_timer *t)
{
    struct status_request *s = t->owner;
    if (console_full(s->console))
        return;
    status_request_print_lines(s, true, s->run->options->report->out);
    stall_monitor_request(s->stalls);
}

void status_request_send(struct status_request *s)
{
    if (s->timer.at_ns) /* an answer is on its way */
        return;
    s->timer = (struct loop_timer){.fired = status_request_on_timer, .owner = s};
    hosts_send_all(s->run, WIRE_QUERY, NULL);
    loop_timer_set(s->run->loop, &s->timer, ANSWER_NS);
}

/* ---- top server ---- */

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
