/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading goes through recvmsg, for descriptors arrive with the first byte of a frame: the kernel
 * never merges bytes across such a border, so the n-th descriptor belongs to the n-th frame that
 * announces one. Writing blocks, for at most SEND_LIMIT_S: an agent that reads nothing for that
 * long is as good as gone.
 */
#include "control.h"

#include "base/arena.h"
#include "base/loop.h"
#include "base/prompt.h"
#include "threads.h"

#include <collrun/collrun.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

enum { READ_LEN = 65536, MAX_FDS = 16, LINGER_MS = 1000, SEND_LIMIT_S = 30, EXIT_LOST = 125 };

/* ---- sending ---- */

/* Nobody can be told any more that this rank is alive, done or stuck. */
static void stream_is_taken(const struct control *c)
{
    dprintf(STDERR_FILENO,
            "collrun-engine: rank %u: its connection to collrun, descriptor %d, was closed from "
            "within; a workload may close only what it has opened\n",
            c->rank, c->fd);
    _exit(EXIT_LOST);
}

static void write_out(struct control *c)
{
    while (buf_pending(&c->out) && !c->broken) {
        ssize_t n = send(c->fd, c->out.data + c->out.start, buf_pending(&c->out), MSG_NOSIGNAL);
        if (n > 0)
            buf_consume(&c->out, (size_t)n);
        else if (errno == EBADF || errno == ENOTSOCK)
            stream_is_taken(c);
        else if (errno != EINTR)
            c->broken = true;
    }
    buf_clear(&c->out);
}

struct buf *control_begin(struct control *c, uint16_t type, size_t *mark)
{
    pthread_mutex_lock(&c->send_lock);
    *mark = wire_begin(&c->out, type, c->rank, c->attempt);
    return &c->out;
}

void control_end(struct control *c, size_t mark)
{
    wire_end(&c->out, mark);
    if (c->out.failed)
        buf_clear(&c->out);
    write_out(c);
    pthread_mutex_unlock(&c->send_lock);
}

void control_send(struct control *c, uint16_t type)
{
    size_t mark;
    control_begin(c, type, &mark);
    control_end(c, mark);
}

void control_log(struct control *c, enum collrun_log_level level, const char *text)
{
    size_t mark;
    struct buf *out = control_begin(c, WIRE_LOG, &mark);
    buf_put_u8(out, (uint8_t)level);
    buf_put_str(out, text);
    control_end(c, mark);
}

/* ---- state and waiting ---- */

void control_lock(struct control *c)
{
    pthread_mutex_lock(&c->lock);
}

void control_unlock(struct control *c)
{
    pthread_mutex_unlock(&c->lock);
}

void control_notify(struct control *c)
{
    pthread_cond_broadcast(&c->changed);
}

void control_wait_change(struct control *c, uint64_t deadline_ns)
{
    if (deadline_ns == UINT64_MAX) {
        pthread_cond_wait(&c->changed, &c->lock);
        return;
    }
    struct timespec at = {.tv_sec = (time_t)(deadline_ns / 1000000000u),
                          .tv_nsec = (long)(deadline_ns % 1000000000u)};
    pthread_cond_timedwait(&c->changed, &c->lock, &at);
}

bool control_wait(struct control *c, unsigned events, uint64_t deadline_ns)
{
    control_lock(c);
    while (!control_has(c, events) && now_ns() < deadline_ns)
        control_wait_change(c, deadline_ns);
    control_unlock(c);
    return control_has(c, events);
}

static void set_event(struct control *c, unsigned event)
{
    control_lock(c);
    atomic_fetch_or_explicit(&c->events, event, memory_order_release);
    control_notify(c);
    control_unlock(c);
}

/* The first reason counts. */
static void set_abort(struct control *c, const struct diag *why)
{
    control_lock(c);
    bool first = !control_has(c, CONTROL_ABORT);
    if (first) {
        c->abort_reason = *why;
        atomic_fetch_or_explicit(&c->events, CONTROL_ABORT, memory_order_release);
        control_notify(c);
    }
    control_unlock(c);
    if (first)
        c->hooks.abort(c->hooks.ctx);
}

/* ---- answers ---- */

void control_request_add(struct control *c, struct control_request *q)
{
    buf_init(&q->value);
    diag_init(&q->failure);
    q->fd = -1;
    q->done = false;
    control_lock(c);
    q->next = c->requests;
    c->requests = q;
    control_unlock(c);
}

int control_request_wait(struct control *c, struct control_request *q, uint64_t deadline_ns,
                         struct diag *d)
{
    control_lock(c);
    while (!q->done && !control_has(c, CONTROL_ABORT) && now_ns() < deadline_ns)
        control_wait_change(c, deadline_ns);
    if (q->done)
        *d = q->failure;
    else if (control_has(c, CONTROL_ABORT))
        *d = c->abort_reason;
    else
        diag_set(d, COLLRUN_ERR_TIMEOUT, "the runner did not answer in time");
    control_unlock(c);
    return d->code;
}

void control_request_fini(struct control *c, struct control_request *q)
{
    control_lock(c);
    struct control_request **p = &c->requests;
    while (*p && *p != q)
        p = &(*p)->next;
    if (*p)
        *p = q->next;
    control_unlock(c);
    buf_fini(&q->value);
    if (q->fd >= 0)
        close(q->fd);
    q->fd = -1;
}

static bool answers(const struct control_request *q, uint16_t type, const char *scope,
                    const char *key, uint32_t number)
{
    return !q->done && q->answer_type == type && strcmp(q->scope, scope) == 0 &&
           (type == WIRE_FENCED ? q->number == number : strcmp(q->key, key) == 0);
}

/* One descriptor of those that came along, for a frame that announces one. */
static int claim_fd(struct control *c)
{
    if (!c->nfds)
        return -1;
    int fd = c->fds[0];
    memmove(c->fds, c->fds + 1, --c->nfds * sizeof *c->fds);
    return fd;
}

/* With the lock, which keeps the arena too. */
static void fill_answer(struct control *c, struct control_request *q, struct reader *r, int status,
                        int fd)
{
    if (status != COLLRUN_OK)
        wire_read_diag(r, &c->arena, &q->failure);
    else if (q->answer_type == WIRE_SEGMENT_FD && fd < 0)
        diag_set(&q->failure, COLLRUN_ERR_SYSTEM, "the agent's descriptor did not arrive");
    else
        buf_put(&q->value, r->data + r->pos, r->len - r->pos);
    if (q->value.failed)
        diag_set(&q->failure, COLLRUN_ERR_NO_MEMORY, "out of memory for an answer of the runner");
    q->fd = fd;
    q->done = true;
}

/* An answer that nobody waits for any more is dropped. */
static int on_answer(struct control *c, const struct wire_frame *f, struct diag *d)
{
    struct arena arena;
    struct reader r;
    arena_init(&arena);
    reader_init(&r, f->payload, f->len);
    const char *scope = read_str(&r, &arena);
    const char *key = f->type == WIRE_FENCED ? "" : read_str(&r, &arena);
    uint32_t number = f->type == WIRE_FENCED ? read_u32(&r) : 0;
    int status = (int)read_u32(&r);
    int fd = f->type == WIRE_SEGMENT_FD && status == COLLRUN_OK ? claim_fd(c) : -1;
    bool taken = false;
    control_lock(c);
    for (struct control_request *q = c->requests; q && !r.bad && !taken; q = q->next) {
        if (answers(q, f->type, scope, key, number)) {
            fill_answer(c, q, &r, status, fd);
            taken = true;
        }
    }
    control_notify(c);
    control_unlock(c);
    if (!taken && fd >= 0)
        close(fd);
    arena_fini(&arena);
    return r.bad ? diag_set(d, COLLRUN_ERR_INVALID, "a %s that cannot be read",
                            wire_type_name(f->type))
                 : COLLRUN_OK;
}

static int on_abort_frame(struct control *c, const struct wire_frame *f, struct diag *d)
{
    struct arena arena;
    struct reader r;
    struct diag why;
    diag_init(&why);
    arena_init(&arena);
    reader_init(&r, f->payload, f->len);
    int status = (int)read_u32(&r);
    uint32_t culprit = read_u32(&r);
    const char *text = read_str(&r, &arena);
    bool good = reader_done(&r);
    if (good) {
        diag_set(&why, status < 0 ? status : COLLRUN_ERR_ABORTED, "%s", text);
        why.rank = culprit == WIRE_HOST ? -1 : (int)culprit;
        set_abort(c, &why);
    }
    arena_fini(&arena);
    return good ? COLLRUN_OK : diag_set(d, COLLRUN_ERR_INVALID, "an ABORT that cannot be read");
}

static int on_lost_frame(struct control *c, const struct wire_frame *f, struct diag *d)
{
    struct arena arena;
    struct reader r;
    arena_init(&arena);
    reader_init(&r, f->payload, f->len);
    uint32_t rank = read_u32(&r);
    const char *text = read_str(&r, &arena);
    bool good = reader_done(&r);
    if (good)
        c->hooks.lost(c->hooks.ctx, rank, text);
    arena_fini(&arena);
    return good ? COLLRUN_OK : diag_set(d, COLLRUN_ERR_INVALID, "a LOST that cannot be read");
}

static int on_frame(struct control *c, const struct wire_frame *f, struct diag *d)
{
    switch (f->type) {
    case WIRE_GO:
        set_event(c, CONTROL_GO);
        return COLLRUN_OK;
    case WIRE_STOP_BACKGROUND:
        set_event(c, CONTROL_STOP_BACKGROUND);
        return COLLRUN_OK;
    case WIRE_FINISH:
        set_event(c, CONTROL_FINISH);
        return COLLRUN_OK;
    case WIRE_LOST:
        return on_lost_frame(c, f, d);
    case WIRE_ABORT:
        return on_abort_frame(c, f, d);
    case WIRE_REPLY:
    case WIRE_FENCED:
    case WIRE_SEGMENT_FD:
        return on_answer(c, f, d);
    default:
        return diag_set(d, COLLRUN_ERR_INVALID, "the agent sent a frame that is not for a rank: %s",
                        wire_type_name(f->type));
    }
}

/* ---- the reading side ---- */

static void keep_fds(struct control *c, struct msghdr *m)
{
    for (struct cmsghdr *h = CMSG_FIRSTHDR(m); h; h = CMSG_NXTHDR(m, h)) {
        if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
            continue;
        size_t n = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        int *grown = realloc(c->fds, (c->nfds + n) * sizeof *grown);
        c->fds = grown ? grown : c->fds;
        for (size_t i = 0; i < n; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(h) + i * sizeof fd, sizeof fd);
            if (grown)
                c->fds[c->nfds++] = fd;
            else
                close(fd);
        }
    }
}

/* 1 = bytes came, 0 = the end of the stream, negative = an error in d. */
static int read_more(struct control *c, int flags, struct diag *d)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(MAX_FDS * sizeof(int))];
    } space;
    void *to = buf_reserve(&c->in, READ_LEN);
    if (!to)
        return diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory for a control message");
    struct iovec part = {.iov_base = to, .iov_len = READ_LEN};
    struct msghdr m = {.msg_iov = &part,
                       .msg_iovlen = 1,
                       .msg_control = &space,
                       .msg_controllen = sizeof space.room};
    ssize_t n = recvmsg(c->fd, &m, MSG_CMSG_CLOEXEC | flags);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return 1;
    if (n < 0 && errno != ECONNRESET)
        return diag_sys(d, errno, "read the control stream");
    if (n <= 0)
        return 0;
    keep_fds(c, &m);
    buf_commit(&c->in, (size_t)n);
    return 1;
}

static int deliver(struct control *c, struct diag *d)
{
    struct wire_frame f;
    int rc;
    while ((rc = wire_next(&c->in, &f, d)) > 0) {
        if (on_frame(c, &f, d) != COLLRUN_OK)
            return d->code;
        wire_next_done(&c->in, &f);
    }
    return rc;
}

/* Nobody is there to be told, and nobody would end this process. */
static void on_lost(struct control *c, struct diag *why)
{
    if (why->code == COLLRUN_OK)
        diag_set(why, COLLRUN_ERR_ABORTED, "the agent of this host is gone");
    else
        dprintf(STDERR_FILENO, "collrun-engine: rank %u: %s\n", c->rank, why->text);
    why->code = COLLRUN_ERR_ABORTED;
    set_abort(c, why);
    struct pollfd p = {.fd = c->wake_fd, .events = POLLIN};
    if (poll(&p, 1, LINGER_MS) == 0)
        _exit(EXIT_LOST);
}

static void *serve(void *arg)
{
    struct control *c = arg;
    struct diag d;
    diag_init(&d);
    prompt_thread();
    thread_name("service");
    int rc = deliver(c, &d);
    while (rc >= 0) {
        struct pollfd p[2] = {{.fd = c->fd, .events = POLLIN},
                              {.fd = c->wake_fd, .events = POLLIN}};
        int n = poll(p, 2, c->hooks.look_ms);
        if (n < 0 && errno != EINTR)
            rc = diag_sys(&d, errno, "wait for the control stream");
        else if (n == 0)
            c->hooks.look(c->hooks.ctx);
        else if (p[1].revents)
            return NULL;
        else if (p[0].revents)
            rc = read_more(c, MSG_DONTWAIT, &d);
        if (p[0].revents && rc == 0)
            break;
        if (rc > 0)
            rc = deliver(c, &d);
    }
    on_lost(c, &d);
    return NULL;
}

/* ---- life ---- */

static void init_locks(struct control *c)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&c->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&c->lock, NULL);
    pthread_mutex_init(&c->send_lock, NULL);
}

int control_open(struct control *c, int fd, uint16_t type, struct wire_frame *first, struct diag *d)
{
    *c = (struct control){.fd = fd, .wake_fd = eventfd(0, EFD_CLOEXEC)};
    init_locks(c);
    arena_init(&c->arena);
    diag_init(&c->abort_reason);
    struct timeval limit = {.tv_sec = SEND_LIMIT_S};
    int flags = fcntl(fd, F_GETFD);
    if (flags < 0 || fcntl(fd, F_SETFD, flags | FD_CLOEXEC) < 0 || c->wake_fd < 0 ||
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) < 0)
        return diag_sys(d, errno, "the control stream on descriptor %d", fd);
    int rc;
    while ((rc = wire_next(&c->in, first, d)) == 0) {
        rc = read_more(c, 0, d);
        if (rc == 0)
            return diag_set(d, COLLRUN_ERR_ABORTED,
                            "the agent closed the control stream before it said %s",
                            wire_type_name(type));
        if (rc < 0)
            return rc;
    }
    if (rc < 0)
        return rc;
    if (first->type != type)
        return diag_set(d, COLLRUN_ERR_INVALID, "the agent's first word is %s, not %s",
                        wire_type_name(first->type), wire_type_name(type));
    c->rank = first->rank;
    c->attempt = first->attempt;
    return COLLRUN_OK;
}

int control_start(struct control *c, struct control_hooks hooks, struct diag *d)
{
    struct wire_frame first;
    if (wire_next(&c->in, &first, d) > 0)
        wire_next_done(&c->in, &first);
    c->hooks = hooks;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&c->thread, NULL, serve, c);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc != 0)
        return diag_sys(d, rc, "start the service thread");
    c->running = true;
    return COLLRUN_OK;
}

void control_close(struct control *c)
{
    uint64_t one = 1;
    if (c->running && write(c->wake_fd, &one, sizeof one) == sizeof one)
        pthread_join(c->thread, NULL);
    c->running = false;
    for (size_t i = 0; i < c->nfds; i++)
        close(c->fds[i]);
    free(c->fds);
    buf_fini(&c->in);
    buf_fini(&c->out);
    arena_fini(&c->arena);
    if (c->wake_fd >= 0)
        close(c->wake_fd);
    close(c->fd);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    pthread_mutex_destroy(&c->send_lock);
}
