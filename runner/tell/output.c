/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines and their way out. stdout and stderr are shared with other programs, so they are never made
 * non-blocking; instead they are written only when poll says so, and then PIPE_BUF bytes at a time,
 * which a ready pipe takes without blocking.
 */
#include "tell/output.h"

#include "base/template.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

struct sink { /* stdout or stderr */
    struct output *output;
    int fd;
    struct buf queue;
    struct loop_fd watch;
    bool dead;
};

struct source_stream {
    struct buf line; /* without its end so far */
};

struct tail { /* the last OUTPUT_TAIL bytes of a rank's stderr */
    char *ring;
    uint64_t len; /* ever written */
};

struct output {
    struct loop *loop;
    const struct desc *desc;
    struct output_hooks hooks;
    struct sink sinks[2];
    struct source_stream *streams; /* two per rank */
    struct tail *tails;            /* one per rank */
    const char **labels;           /* per rank; NULL: not shown */
    bool timestamps;
    uint32_t *owed; /* per host */
    struct arena arena;
};

/* ---- writing ---- */

static void refund(struct output *o)
{
    if (buf_pending(&o->sinks[0].queue) + buf_pending(&o->sinks[1].queue) > OUTPUT_QUEUE_MAX)
        return;
    for (uint32_t h = 0; h < o->desc->nhosts; h++) {
        if (!o->owed[h])
            continue;
        uint32_t bytes = o->owed[h];
        o->owed[h] = 0;
        o->hooks.credit(o->hooks.ctx, h, bytes);
    }
}

static void sink_die(struct sink *s, int err)
{
    s->dead = true;
    buf_clear(&s->queue);
    loop_unwatch(s->output->loop, &s->watch);
    s->output->hooks.broken(s->output->hooks.ctx, s->fd == STDOUT_FILENO ? "stdout" : "stderr",
                            err);
}

/* Writes while the descriptor takes more. */
static void sink_write(struct sink *s, int wait_ms)
{
    while (buf_pending(&s->queue)) {
        struct pollfd p = {.fd = s->fd, .events = POLLOUT};
        int ready = poll(&p, 1, wait_ms);
        if (ready == 0 || (ready < 0 && errno == EINTR))
            return;
        size_t len = buf_pending(&s->queue);
        s->output->hooks.writing(s->output->hooks.ctx);
        ssize_t n = write(s->fd, s->queue.data + s->queue.start, len < PIPE_BUF ? len : PIPE_BUF);
        if (n < 0 && errno == EAGAIN)
            return;
        if (n < 0 && errno != EINTR) {
            sink_die(s, errno);
            return;
        }
        if (n > 0)
            buf_consume(&s->queue, (size_t)n);
    }
}

static void sink_push(struct sink *s)
{
    sink_write(s, 0);
    if (!buf_pending(&s->queue))
        loop_unwatch(s->output->loop, &s->watch);
    else if (s->watch.fd < 0 && loop_watch(s->output->loop, &s->watch, s->fd, EPOLLOUT) < 0)
        sink_write(s, -1); /* a regular file: always ready */
}

static void on_sink(struct loop_fd *w, uint32_t events)
{
    (void)events;
    struct sink *s = w->owner;
    sink_push(s);
    refund(s->output);
}

/* ---- lines ---- */

static void put_line(struct output *o, uint32_t rank, uint8_t stream, uint64_t realtime_ns,
                     const void *text, size_t len)
{
    struct sink *s = &o->sinks[stream - 1];
    if (s->dead)
        return;
    if (o->timestamps) {
        char stamp[32];
        struct tm tm;
        time_t seconds = (time_t)(realtime_ns / 1000000000u);
        localtime_r(&seconds, &tm);
        size_t n = strftime(stamp, sizeof stamp, "%H:%M:%S", &tm);
        snprintf(stamp + n, sizeof stamp - n, ".%03u ", (unsigned)(realtime_ns / 1000000u % 1000u));
        buf_put(&s->queue, stamp, strlen(stamp));
    }
    buf_put(&s->queue, o->labels[rank], strlen(o->labels[rank]));
    buf_put(&s->queue, text, len);
    buf_put(&s->queue, "\n", 1);
}

static void keep_tail(struct tail *t, const char *bytes, size_t len)
{
    if (!t->ring)
        t->ring = malloc(OUTPUT_TAIL);
    for (size_t i = len > OUTPUT_TAIL ? len - OUTPUT_TAIL : 0; t->ring && i < len; i++)
        t->ring[(t->len + i) % OUTPUT_TAIL] = bytes[i];
    t->len += len;
}

void output_last_words(const struct output *o, uint32_t rank, unsigned lines, const char *prefix,
                       FILE *to)
{
    const struct tail *t = &o->tails[rank];
    uint64_t begin = t->len > OUTPUT_TAIL ? t->len - OUTPUT_TAIL : 0, at = t->len;
    unsigned found = 0;
    if (!t->ring || !t->len)
        return;
    while (at > begin) {
        if (t->ring[(at - 1) % OUTPUT_TAIL] == '\n' && at != t->len && ++found == lines)
            break;
        at--;
    }
    fputs(prefix, to);
    for (; at < t->len; at++) {
        char c = t->ring[at % OUTPUT_TAIL];
        fputc(c, to);
        if (c == '\n' && at + 1 < t->len)
            fputs(prefix, to);
    }
    if (t->ring[(t->len - 1) % OUTPUT_TAIL] != '\n')
        fputc('\n', to);
}

void output_take(struct output *o, uint32_t rank, uint8_t stream, uint64_t realtime_ns,
                 const void *bytes, size_t len)
{
    struct buf *line = &o->streams[rank * 2 + stream - 1].line;
    const char *p = bytes, *end = p + len;
    o->owed[o->desc->ranks[rank].host] += (uint32_t)len;
    if (stream == 2)
        keep_tail(&o->tails[rank], bytes, len);
    while (o->labels[rank] && p < end) {
        const char *newline = memchr(p, '\n', (size_t)(end - p));
        size_t n = (size_t)((newline ? newline : end) - p), pending = buf_pending(line);
        bool cut = pending + n > OUTPUT_LINE_MAX;
        if (cut)
            n = OUTPUT_LINE_MAX - pending;
        if (pending || (!newline && !cut))
            buf_put(line, p, n);
        if (newline || cut) {
            put_line(o, rank, stream, realtime_ns,
                     pending ? (const char *)line->data + line->start : p,
                     pending ? buf_pending(line) : n);
            buf_clear(line);
        }
        p += n + (newline && !cut);
    }
    sink_push(&o->sinks[stream - 1]);
    refund(o);
}

void output_say(struct output *o, const char *format, ...)
{
    struct sink *s = &o->sinks[1];
    char *line = NULL;
    va_list args;
    va_start(args, format);
    int len = vasprintf(&line, format, args);
    va_end(args);
    if (len >= 0 && !s->dead) {
        buf_put(&s->queue, line, (size_t)len);
        buf_put(&s->queue, "\n", 1);
        sink_push(s);
    }
    free(len >= 0 ? line : NULL);
}

void output_end_rank(struct output *o, uint32_t rank)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    for (uint8_t stream = 1; stream <= 2; stream++) {
        struct buf *line = &o->streams[rank * 2 + stream - 1u].line;
        if (!buf_pending(line))
            continue;
        put_line(o, rank, stream, (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec,
                 line->data + line->start, buf_pending(line));
        buf_clear(line);
        sink_push(&o->sinks[stream - 1]);
    }
}

void output_give_up(struct output *o)
{
    for (int i = 0; i < 2; i++) {
        struct sink *s = &o->sinks[i];
        if (!buf_pending(&s->queue))
            continue;
        s->dead = true;
        buf_clear(&s->queue);
        loop_unwatch(o->loop, &s->watch);
    }
    refund(o);
}

bool output_drain(struct output *o, uint64_t deadline_ns)
{
    bool all = true;
    for (int i = 0; i < 2; i++) {
        struct sink *s = &o->sinks[i];
        while (!s->dead && buf_pending(&s->queue) && now_ns() < deadline_ns)
            sink_write(s, 50);
        all = all && !buf_pending(&s->queue);
    }
    return all;
}

/* ---- making it ---- */

static int make_label(struct output *o, const struct job_console *console, uint32_t rank)
{
    const struct desc_rank *r = &o->desc->ranks[rank];
    struct template_values values = {.rank = rank,
                                     .local_rank = r->local_rank,
                                     .attempt = o->desc->attempt,
                                     .host = o->desc->hosts[r->host].name,
                                     .run_id = o->desc->run_id};
    const char *label;
    if (!job_ranks_has(&console->ranks, rank))
        return COLLRUN_OK;
    int rc = template_expand(console->label.v, &values, &o->arena, &label, NULL);
    if (rc == COLLRUN_OK)
        o->labels[rank] = label[0] ? arena_printf(&o->arena, "%s ", label) : "";
    return rc;
}

struct output *output_new(struct loop *loop, const struct job *job, const struct desc *desc,
                          struct output_hooks hooks)
{
    struct output *o = calloc(1, sizeof *o);
    if (!o)
        return NULL;
    arena_init(&o->arena);
    o->loop = loop;
    o->desc = desc;
    o->hooks = hooks;
    o->timestamps = job->logging.console.timestamps.v;
    o->streams = arena_calloc(&o->arena, desc->nranks * 2, sizeof *o->streams);
    o->tails = arena_calloc(&o->arena, desc->nranks, sizeof *o->tails);
    o->labels = arena_calloc(&o->arena, desc->nranks, sizeof *o->labels);
    o->owed = arena_calloc(&o->arena, desc->nhosts, sizeof *o->owed);
    for (int i = 0; i < 2; i++) {
        o->sinks[i] = (struct sink){.output = o, .fd = i + 1};
        o->sinks[i].watch = (struct loop_fd){.fd = -1, .ready = on_sink, .owner = &o->sinks[i]};
    }
    int rc = arena_failed(&o->arena) ? COLLRUN_ERR_NO_MEMORY : COLLRUN_OK;
    for (uint32_t r = 0; rc == COLLRUN_OK && r < desc->nranks; r++)
        rc = make_label(o, &job->logging.console, r);
    if (rc != COLLRUN_OK) {
        output_free(o);
        return NULL;
    }
    return o;
}

void output_free(struct output *o)
{
    if (!o)
        return;
    for (uint32_t i = 0; o->streams && i < o->desc->nranks * 2; i++)
        buf_fini(&o->streams[i].line);
    for (uint32_t i = 0; o->tails && i < o->desc->nranks; i++)
        free(o->tails[i].ring);
    for (int i = 0; i < 2; i++) {
        loop_unwatch(o->loop, &o->sinks[i].watch);
        buf_fini(&o->sinks[i].queue);
    }
    arena_fini(&o->arena);
    free(o);
}
