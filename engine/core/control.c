/* SPDX-License-Identifier: Apache-2.0
 *
 * The service thread reads. A write blocks for at most SEND_LIMIT_S: an agent that reads nothing
 * for that long is treated as lost.
 */
#include "core/control.h"

#include "base/arena.h"
#include "base/debug.h"
#include "base/exit_codes.h"
#include "base/loop.h"
#include "base/standstill.h"
#include "base/thread.h"
#include "base/wire_fields.h"
#include "core/threads.h"

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

enum { READ_LEN = 65536, LINGER_MS = 1000, SEND_LIMIT_S = 30 };

/* ---- sending ---- */

/* The descriptor is closed or another file now, so this rank cannot report anything: it exits. A
 * program is not ours to end. */
static void control_stream_lost(struct control *c)
{
    debug_log(DEBUG_LIVENESS, "descriptor %d, the connection to the agent, was closed here", c->fd);
    if (c->hooks.closed)
        c->hooks.closed(c->hooks.ctx);
    if (c->hooks.in_program) {
        c->broken = true;
        return;
    }
    dprintf(STDERR_FILENO,
            "collrun-engine: rank %u: its connection to collrun, descriptor %d, was closed by "
            "a workload, which may close only what it has opened\n",
            c->rank, c->fd);
    _exit(EXIT_INTERNAL);
}

static void control_write_out(struct control *c)
{
    while (buf_pending(&c->out) && !c->broken) {
        ssize_t n = send(c->fd, c->out.data + c->out.start, buf_pending(&c->out), MSG_NOSIGNAL);
        if (n > 0)
            buf_consume(&c->out, (size_t)n);
        else if (errno == EBADF || errno == ENOTSOCK)
            control_stream_lost(c);
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
    wire_debug_sent("agent", &c->out, mark);
    if (c->out.failed)
        buf_clear(&c->out);
    control_write_out(c);
    pthread_mutex_unlock(&c->send_lock);
}

void control_send(struct control *c, uint16_t type)
{
    size_t mark;
    control_begin(c, type, &mark);
    control_end(c, mark);
}

static void control_send_log(struct control *c, uint8_t level, const char *text)
{
    size_t mark;
    struct buf *out = control_begin(c, WIRE_LOG, &mark);
    wire_put_log(out, &(struct wire_log){level, text});
    control_end(c, mark);
}

void control_log(struct control *c, enum collrun_log_level level, const char *text)
{
    control_send_log(c, (uint8_t)level, text);
}

void control_warn(struct control *c, enum collrun_log_level level, const char *text)
{
    control_send_log(c, (uint8_t)level | WIRE_LOG_IN_VERDICT, text);
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

bool control_aborted(struct control *c, struct diag *why)
{
    if (!control_has(c, CONTROL_ABORT))
        return false;
    control_lock(c);
    *why = c->abort_reason;
    control_unlock(c);
    return true;
}

static void control_set_event(struct control *c, unsigned event)
{
    control_lock(c);
    atomic_fetch_or_explicit(&c->events, event, memory_order_release);
    control_notify(c);
    control_unlock(c);
}

void control_abort(struct control *c, const struct diag *why)
{
    control_lock(c);
    bool first = !control_has(c, CONTROL_ABORT);
    if (first) {
        c->abort_reason = *why;
        if (why->code == COLLRUN_ERR_PEER_FAILED && why->rank >= 0)
            c->hooks.culprit(c->hooks.ctx, (uint32_t)why->rank);
        atomic_fetch_or_explicit(&c->events, CONTROL_ABORT, memory_order_release);
        control_notify(c);
    }
    control_unlock(c);
    if (first) {
        debug_log(DEBUG_STOP, "every group is aborted, status %d, culprit %d: %s", why->code,
                  why->rank, why->text);
        c->hooks.abort(c->hooks.ctx);
    }
}

/* ---- answers ---- */

void control_request_add(struct control *c, struct control_request *q)
{
    buf_init(&q->value);
    diag_init(&q->failure);
    q->done = false;
    control_lock(c);
    q->next = c->requests;
    c->requests = q;
    control_unlock(c);
}

int control_request_wait(struct control *c, struct control_request *q, uint64_t deadline_ns,
                         struct diag *d)
{
    uint64_t stopped = standstill_total(now_ns());
    control_lock(c);
    while (!q->done && !control_has(c, CONTROL_ABORT) &&
           !standstill_expired(now_ns(), &stopped, &deadline_ns))
        control_wait_change(c, deadline_ns);
    if (q->done)
        *d = q->failure;
    else if (control_has(c, CONTROL_ABORT))
        *d = c->abort_reason;
    else
        diag_set(d, COLLRUN_ERR_TIMEOUT, "the runner did not answer in time");
    control_unlock(c);
    if (d->code != COLLRUN_OK)
        debug_log(DEBUG_RDV, "%s: no answer of the store: status %d: %s", q->scope, d->code,
                  d->text);
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
}

/* What REPLY and FENCED have in common. */
struct control_answer {
    const char *scope, *key; /* key "": FENCED */
    uint32_t number;         /* FENCED */
    struct wire_answer *answer;
};

static bool control_answers(const struct control_request *q, uint16_t type,
                            const struct control_answer *a)
{
    return !q->done && q->answer_type == type && strcmp(q->scope, a->scope) == 0 &&
           (type == WIRE_FENCED ? q->number == a->number : strcmp(q->key, a->key) == 0);
}

static const char *control_keep_file(struct control *c, const char *file)
{
    return file ? arena_strdup(&c->arena, file) : NULL;
}

/* The caller holds the lock, which also protects the arena. */
static void control_fill_answer(struct control *c, struct control_request *q,
                                const struct wire_answer *answer)
{
    q->failure = answer->failure;
    q->failure.loc.file = control_keep_file(c, q->failure.loc.file);
    q->failure.loc2.file = control_keep_file(c, q->failure.loc2.file);
    if (q->failure.code == COLLRUN_OK)
        buf_put(&q->value, answer->bytes.data, answer->bytes.len);
    if (q->value.failed)
        diag_set(&q->failure, COLLRUN_ERR_NO_MEMORY, "out of memory for an answer of the runner");
    q->done = true;
}

/* An answer that no thread waits for is dropped. */
static void control_deliver_answer(struct control *c, uint16_t type, const struct control_answer *a)
{
    bool taken = false;
    control_lock(c);
    for (struct control_request *q = c->requests; q && !taken; q = q->next) {
        if (control_answers(q, type, a)) {
            control_fill_answer(c, q, a->answer);
            taken = true;
        }
    }
    control_notify(c);
    control_unlock(c);
}

static int control_on_answer(struct control *c, const struct wire_frame *f, struct diag *d)
{
    struct arena arena;
    struct wire_reply reply;
    struct wire_fenced fenced;
    bool good;
    arena_init(&arena);
    if (f->type == WIRE_REPLY) {
        good = wire_read_reply(f, &arena, &reply);
        if (good)
            control_deliver_answer(
                c, f->type, &(struct control_answer){reply.scope, reply.key, 0, &reply.answer});
    } else {
        good = wire_read_fenced(f, &arena, &fenced);
        if (good)
            control_deliver_answer(
                c, f->type,
                &(struct control_answer){fenced.scope, "", fenced.number, &fenced.answer});
    }
    arena_fini(&arena);
    return good ? COLLRUN_OK : wire_malformed(d, "%s frame", wire_type_name(f->type));
}

static int control_on_abort_frame(struct control *c, const struct wire_frame *f, struct diag *d)
{
    struct arena arena;
    struct wire_abort a;
    struct diag why;
    diag_init(&why);
    arena_init(&arena);
    const bool good = wire_read_abort(f, &arena, &a);
    if (good) {
        diag_set(&why, a.status < 0 ? a.status : COLLRUN_ERR_ABORTED, "%s", a.text);
        why.rank = a.culprit == WIRE_HOST ? -1 : (int)a.culprit;
        control_abort(c, &why);
    }
    arena_fini(&arena);
    return good ? COLLRUN_OK : wire_malformed(d, "%s frame", wire_type_name(f->type));
}

static int control_on_lost_frame(struct control *c, const struct wire_frame *f, struct diag *d)
{
    struct arena arena;
    struct wire_rank_lost lost;
    arena_init(&arena);
    const bool good = wire_read_rank_lost(f, &arena, &lost);
    if (good)
        c->hooks.lost(c->hooks.ctx, lost.rank, lost.text);
    arena_fini(&arena);
    return good ? COLLRUN_OK : wire_malformed(d, "%s frame", wire_type_name(f->type));
}

static int control_on_frame(struct control *c, const struct wire_frame *f, struct diag *d)
{
    switch (f->type) {
    case WIRE_GO:
        control_set_event(c, CONTROL_GO);
        return COLLRUN_OK;
    case WIRE_STOP_BACKGROUND:
        control_set_event(c, CONTROL_STOP_BACKGROUND);
        return COLLRUN_OK;
    case WIRE_FINISH:
        control_set_event(c, CONTROL_FINISH);
        return COLLRUN_OK;
    case WIRE_RANK_LOST:
        return control_on_lost_frame(c, f, d);
    case WIRE_ABORT:
        return control_on_abort_frame(c, f, d);
    case WIRE_REPLY:
    case WIRE_FENCED:
        return control_on_answer(c, f, d);
    default:
        return diag_set(d, COLLRUN_ERR_INVALID, "unexpected frame from the agent: %s",
                        wire_type_name(f->type));
    }
}

/* ---- the reading side ---- */

/* 1 = bytes arrived, 0 = the end of the stream, negative = an error in d. */
static int control_read_more(struct control *c, int flags, struct diag *d)
{
    void *to = buf_reserve(&c->in, READ_LEN);
    if (!to)
        return diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory for a control message");
    ssize_t n = recv(c->fd, to, READ_LEN, flags);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return 1;
    if (n < 0 && (errno == EBADF || errno == ENOTSOCK)) {
        control_stream_lost(c);
        c->fd_lost = true;
        return diag_set(d, COLLRUN_ERR_ABORTED,
                        "the connection to collrun, descriptor %d, was closed by the program",
                        c->fd);
    }
    if (n < 0 && errno != ECONNRESET)
        return diag_sys(d, errno, "read the control stream");
    if (n <= 0)
        return 0;
    buf_commit(&c->in, (size_t)n);
    return 1;
}

static int control_deliver(struct control *c, struct diag *d)
{
    struct wire_frame f;
    int rc;
    while ((rc = wire_next(&c->in, &f, d)) > 0) {
        wire_debug_received("agent", &f);
        if (control_on_frame(c, &f, d) != COLLRUN_OK)
            return d->code;
        wire_next_done(&c->in, &f);
    }
    return rc;
}

/* The agent has ended: no process can be notified, and none would kill this one, so it exits. */
static void control_on_lost(struct control *c, struct diag *why)
{
    if (why->code == COLLRUN_OK)
        diag_set(why, COLLRUN_ERR_ABORTED, "the agent of this host is gone");
    else if (!c->hooks.in_program)
        dprintf(STDERR_FILENO, "collrun-engine: rank %u: %s\n", c->rank, why->text);
    why->code = COLLRUN_ERR_ABORTED;
    debug_log(DEBUG_LIVENESS, "the connection to the agent has ended: %s", why->text);
    control_abort(c, why);
    struct pollfd p = {.fd = c->wake_fd, .events = POLLIN};
    if (!c->fd_lost && poll(&p, 1, LINGER_MS) == 0)
        _exit(EXIT_INTERNAL);
}

static void *control_serve(void *arg)
{
    struct control *c = arg;
    struct diag d;
    diag_init(&d);
    sched_slice_shorten();
    thread_name("service");
    standstill_tick();
    int rc = control_deliver(c, &d);
    while (rc >= 0) {
        struct pollfd p[2] = {{.fd = c->fd, .events = POLLIN},
                              {.fd = c->wake_fd, .events = POLLIN}};
        int n = poll(p, 2, c->hooks.tick_ms);
        standstill_tick();
        if (n < 0 && errno != EINTR)
            rc = diag_sys(&d, errno, "wait for the control stream");
        else if (n == 0)
            c->hooks.tick(c->hooks.ctx);
        else if (p[1].revents && !(p[0].revents & POLLNVAL)) /* both are closed by close_range */
            return NULL;
        else if (p[0].revents)
            rc = control_read_more(c, MSG_DONTWAIT, &d);
        if (p[0].revents && rc == 0)
            break;
        if (rc > 0)
            rc = control_deliver(c, &d);
    }
    control_on_lost(c, &d);
    return NULL;
}

/* ---- life ---- */

static void control_init_locks(struct control *c)
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
    control_init_locks(c);
    arena_init(&c->arena);
    diag_init(&c->abort_reason);
    struct timeval limit = {.tv_sec = SEND_LIMIT_S};
    int flags = fcntl(fd, F_GETFD);
    if (flags < 0 || fcntl(fd, F_SETFD, flags | FD_CLOEXEC) < 0 || c->wake_fd < 0 ||
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) < 0)
        return diag_sys(d, errno, "the control stream on descriptor %d", fd);
    int rc;
    while ((rc = wire_next(&c->in, first, d)) == 0) {
        rc = control_read_more(c, 0, d);
        if (rc == 0)
            return diag_set(d, COLLRUN_ERR_ABORTED,
                            "the agent closed the control connection before it sent %s",
                            wire_type_name(type));
        if (rc < 0)
            return rc;
    }
    if (rc < 0)
        return rc;
    if (first->type != type)
        return diag_set(d, COLLRUN_ERR_INVALID, "the first frame of the agent is %s, not %s",
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
    int rc = thread_start(&c->thread, 0, control_serve, c);
    if (rc != 0) {
        diag_sys(d, rc, "start the service thread");
        return diag_hint_processes(d);
    }
    c->running = true;
    return COLLRUN_OK;
}

static void control_close_fds(struct control *c)
{
    if (c->wake_fd >= 0)
        close(c->wake_fd);
    if (c->fd >= 0 && !c->fd_lost)
        close(c->fd);
    c->fd = c->wake_fd = -1;
}

void control_stop(struct control *c)
{
    uint64_t one = 1;
    if (c->running && write(c->wake_fd, &one, sizeof one) == sizeof one)
        pthread_join(c->thread, NULL);
    c->running = false;
    pthread_mutex_lock(&c->send_lock);
    c->broken = true;
    control_close_fds(c);
    pthread_mutex_unlock(&c->send_lock);
}

void control_abandon(struct control *c)
{
    control_init_locks(c);
    buf_init(&c->out);
    c->requests = NULL;
    c->running = false;
    c->broken = true;
    control_close_fds(c);
}

void control_close(struct control *c)
{
    control_stop(c);
    buf_fini(&c->in);
    buf_fini(&c->out);
    arena_fini(&c->arena);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    pthread_mutex_destroy(&c->send_lock);
}
