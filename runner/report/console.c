/* SPDX-License-Identifier: Apache-2.0
 *
 * The descriptors are shared with other programs, so their file descriptions are never made
 * non-blocking.
 * - A pipe, a terminal or /dev/null is opened again, which gives a separate file description for
 *   O_NONBLOCK.
 * - A socket is written with MSG_DONTWAIT.
 * - A regular file is written by a thread (file_writer.h), since its disk may stall.
 * - Any other descriptor is written only when poll reports room, and then at most PIPE_BUF bytes,
 *   which a ready pipe accepts at once.
 */
#include "report/console.h"

#include "base/arena.h"
#include "base/buf.h"
#include "report/file_writer.h"
#include "xalloc.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

struct sink { /* stdout, stderr, or both */
    struct console *console;
    int fd, own_fd; /* own_fd: the same file opened again, or the pipe of `writer`, or -1 */
    struct file_writer *writer; /* of a regular file; else NULL */
    uint64_t given;             /* bytes written to `writer` */
    bool socket, terminal, dead;
    bool open;      /* the last bytes that were queued are a part of a line */
    uint64_t lines; /* how often the bytes that were queued ended a line */
    struct buf queue;
    struct loop_fd watch;
};

struct console {
    struct sink sinks[2];
    struct sink *of[2]; /* the sink of stdout, and of stderr */
    struct loop *loop;
    bool raw; /* the terminals do not return at the end of a line */
    struct console_hooks hooks;
    FILE *stderr_stream;
};

/* ---- one sink ---- */

static void sink_on_room(struct loop_fd *w, uint32_t events)
{
    (void)events;
    struct sink *s = w->owner;
    console_push(s->console);
}

static void sink_init(struct sink *s, struct console *c, int fd)
{
    struct stat st;
    char path[32];
    *s = (struct sink){.console = c, .fd = fd, .own_fd = -1};
    s->watch = (struct loop_fd){.fd = -1, .ready = sink_on_room, .owner = s};
    if (fstat(fd, &st) < 0)
        return;
    s->socket = S_ISSOCK(st.st_mode);
    s->terminal = isatty(fd) == 1;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    /* A descriptor that was closed when collrun started is /dev/null for reading. */
    const bool null = S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3) &&
                      (fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDONLY;
    if (S_ISFIFO(st.st_mode) || s->terminal || null)
        s->own_fd = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (S_ISREG(st.st_mode) && (s->writer = file_writer_new(fd)))
        s->own_fd = file_writer_fd(s->writer);
}

static void sink_fini(struct sink *s)
{
    buf_fini(&s->queue);
    if (s->writer)
        file_writer_free(s->writer, s->given);
    else if (s->own_fd >= 0)
        close(s->own_fd);
}

static int sink_fd(const struct sink *s)
{
    return s->own_fd >= 0 ? s->own_fd : s->fd;
}

/* Bytes that the file has not accepted yet. */
static uint64_t sink_in_writer(const struct sink *s)
{
    uint64_t done = s->writer ? file_writer_done(s->writer) : 0;
    return s->given > done ? s->given - done : 0;
}

static bool sink_has_room(const struct sink *s)
{
    struct pollfd p = {.fd = sink_fd(s), .events = POLLOUT};
    return poll(&p, 1, 0) == 1;
}

static ssize_t sink_write(const struct sink *s, const void *bytes, size_t len)
{
    if (s->socket)
        return send(s->fd, bytes, len, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (s->own_fd >= 0)
        return write(s->own_fd, bytes, len);
    if (!sink_has_room(s)) {
        errno = EAGAIN;
        return -1;
    }
    return write(s->fd, bytes, len < PIPE_BUF ? len : PIPE_BUF);
}

static void sink_unwatch(struct sink *s)
{
    if (s->console->loop)
        loop_unwatch(s->console->loop, &s->watch);
}

static void sink_die(struct sink *s, int err)
{
    const struct console_hooks *hooks = &s->console->hooks;
    s->dead = true;
    buf_clear(&s->queue);
    sink_unwatch(s);
    if (hooks->broken)
        hooks->broken(hooks->ctx, s->fd == STDOUT_FILENO ? "stdout" : "stderr", err);
}

/* Writes while the descriptor accepts more. True: some bytes were written. */
static bool sink_push(struct sink *s)
{
    bool took = false;
    int err = s->writer ? file_writer_take_error(s->writer) : 0;
    if (err) {
        sink_die(s, err);
        return true;
    }
    while (buf_pending(&s->queue)) {
        ssize_t n = sink_write(s, s->queue.data + s->queue.start, buf_pending(&s->queue));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN) {
            sink_die(s, errno);
            return true;
        }
        if (n <= 0)
            break;
        buf_consume(&s->queue, (size_t)n);
        s->given += s->writer ? (uint64_t)n : 0;
        took = true;
    }
    if (!buf_pending(&s->queue))
        sink_unwatch(s);
    else if (s->watch.fd < 0 && s->console->loop)
        loop_watch(s->console->loop, &s->watch, sink_fd(s), EPOLLOUT);
    return took;
}

/* ---- both ---- */

static ssize_t console_stderr_write(void *cookie, const char *bytes, size_t len)
{
    console_put(cookie, STDERR_FILENO, bytes, len);
    console_push(cookie);
    return (ssize_t)len;
}

struct console *console_new(void)
{
    struct console *c = xcalloc(1, sizeof *c);
    struct stat out, err;
    for (int i = 0; i < 2; i++) {
        sink_init(&c->sinks[i], c, i + 1);
        c->of[i] = &c->sinks[i];
    }
    bool both = fstat(STDOUT_FILENO, &out) == 0 && fstat(STDERR_FILENO, &err) == 0;
    if (both && out.st_dev == err.st_dev && out.st_ino == err.st_ino)
        c->of[1] = &c->sinks[0];
    c->stderr_stream = fopencookie(c, "w", (cookie_io_functions_t){.write = console_stderr_write});
    if (!c->stderr_stream)
        memory_lacking();
    setvbuf(c->stderr_stream, NULL, _IOLBF, BUFSIZ);
    return c;
}

void console_free(struct console *c)
{
    if (!c)
        return;
    if (c->stderr_stream)
        fclose(c->stderr_stream);
    for (int i = 0; i < 2; i++)
        sink_fini(&c->sinks[i]);
    free(c);
}

void console_attach(struct console *c, struct loop *loop, const struct console_hooks *hooks)
{
    for (int i = 0; i < 2; i++) {
        sink_unwatch(&c->sinks[i]);
        c->sinks[i].dead = false;
    }
    c->loop = loop;
    c->hooks = *hooks;
    console_push(c);
}

static void sink_put(struct sink *s, const void *bytes, size_t len)
{
    buf_put(&s->queue, bytes, len);
    s->lines += len && ((const char *)bytes)[len - 1] == '\n';
}

static void sink_end_part(struct sink *s)
{
    const bool raw = s->console->raw && s->terminal;
    if (s->open && !s->dead)
        sink_put(s, raw ? "\r\n" : "\n", raw ? 2 : 1);
    s->open = false;
}

void console_put_as_is(struct console *c, int stream, const void *bytes, size_t len)
{
    struct sink *s = c->of[stream - 1];
    if (s->dead)
        return;
    if (c->hooks.writing)
        c->hooks.writing(c->hooks.ctx);
    sink_end_part(s);
    sink_put(s, bytes, len);
}

void console_put_part(struct console *c, int stream, const char *label, size_t label_len,
                      const char *text, size_t len)
{
    struct sink *s = c->of[stream - 1];
    if (s->dead)
        return;
    if (c->hooks.writing)
        c->hooks.writing(c->hooks.ctx);
    if (!s->open)
        sink_put(s, label, label_len);
    sink_put(s, text, len);
    s->open = true;
}

void console_end_part(struct console *c, int stream)
{
    sink_end_part(c->of[stream - 1]);
}

bool console_part_is_open(const struct console *c, int stream)
{
    return c->of[stream - 1]->open;
}

bool console_is_terminal(const struct console *c, int stream)
{
    return c->of[stream - 1]->terminal;
}

void console_put(struct console *c, int stream, const void *bytes, size_t len)
{
    const char *p = bytes, *newline;
    while (c->raw && c->of[stream - 1]->terminal && len && (newline = memchr(p, '\n', len))) {
        const size_t n = (size_t)(newline - p);
        console_put_as_is(c, stream, p, n);
        console_put_as_is(c, stream, "\r\n", 2);
        p += n + 1;
        len -= n + 1;
    }
    if (len)
        console_put_as_is(c, stream, p, len);
}

/* One line. Its parts are queued together, since lines may be short and many. */
static void sink_put_line(struct sink *s, const char *label, size_t label_len, const char *text,
                          size_t len, bool raw)
{
    const size_t end_len = raw ? 2 : 1;
    const char *end = raw ? "\r\n" : "\n";
    unsigned char *to = buf_reserve(&s->queue, label_len + len + end_len);
    if (label_len)
        memcpy(to, label, label_len);
    if (len)
        memcpy(to + label_len, text, len);
    memcpy(to + label_len + len, end, end_len);
    buf_commit(&s->queue, label_len + len + end_len);
}

uint64_t console_put_lines(struct console *c, int stream, const char *label, size_t label_len,
                           const char *text, size_t len)
{
    struct sink *s = c->of[stream - 1];
    const bool raw = c->raw && s->terminal;
    uint64_t n = 0;
    if (c->hooks.writing)
        c->hooks.writing(c->hooks.ctx);
    sink_end_part(s);
    for (const char *end = text + len; text; n++) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        if (!s->dead)
            sink_put_line(s, label, label_len, text, (size_t)((newline ? newline : end) - text),
                          raw);
        text = newline ? newline + 1 : NULL;
    }
    s->lines += n;
    return n;
}

void console_set_raw(struct console *c, bool raw)
{
    c->raw = raw;
}

void console_push(struct console *c)
{
    bool out = sink_push(&c->sinks[0]), err = sink_push(&c->sinks[1]);
    if ((out || err) && c->hooks.written)
        c->hooks.written(c->hooks.ctx);
}

FILE *console_stderr(struct console *c)
{
    return c->stderr_stream;
}

uint64_t console_lines(const struct console *c)
{
    return c->of[1]->lines;
}

size_t console_pending(const struct console *c)
{
    size_t n = 0;
    for (int i = 0; i < 2; i++)
        n += buf_pending(&c->sinks[i].queue) + sink_in_writer(&c->sinks[i]);
    return n;
}

bool console_full(const struct console *c)
{
    return console_pending(c) > CONSOLE_QUEUE_MAX;
}

bool console_ready(const struct console *c)
{
    return !console_pending(c) && !c->of[1]->dead && sink_has_room(c->of[1]);
}

void console_forget(struct console *c)
{
    for (int i = 0; i < 2; i++) {
        struct buf *q = &c->sinks[i].queue;
        const unsigned char *end =
            buf_pending(q) ? memchr(q->data + q->start, '\n', buf_pending(q)) : NULL;
        if (end)
            q->len = (size_t)(end - q->data) + 1;
    }
    if (c->hooks.written)
        c->hooks.written(c->hooks.ctx);
}

nfds_t console_poll(const struct console *c, struct pollfd p[2])
{
    nfds_t n = 0;
    for (int i = 0; i < 2; i++) {
        const struct sink *s = &c->sinks[i];
        if (s->writer)
            file_writer_acknowledge(s->writer); /* before the look at what it has done */
        if (buf_pending(&s->queue))
            p[n++] = (struct pollfd){.fd = sink_fd(s), .events = POLLOUT};
        else if (sink_in_writer(s))
            p[n++] = (struct pollfd){.fd = file_writer_event(s->writer), .events = POLLIN};
    }
    return n;
}
