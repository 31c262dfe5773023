/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading takes at most 256 KiB a round, so that a busy peer does not starve the others. A write is
 * tried at once, and the loop finishes it. An error on either side closes the whole stream after
 * the frames that had already arrived. Text is decoded where it was read, and encoded piece by
 * piece when it is written.
 */
#include "base/conn.h"

#include "base/quote.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { READ_LEN = 65536, READS_PER_ROUND = 4, TEXT_PIECE = 65536 };

static void conn_on_readable(struct loop_fd *w, uint32_t events);
static void conn_on_writable(struct loop_fd *w, uint32_t events);

static int conn_watch(struct conn *c, struct loop_fd *w, int fd, uint32_t events, struct diag *d)
{
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    int rc = loop_watch(c->loop, w, fd, events);
    return rc < 0 ? diag_sys(d, -rc, "watch a control stream") : COLLRUN_OK;
}

static void conn_closed_by(struct conn *c, const struct diag *why)
{
    conn_close(c);
    c->on_closed(c, why);
}

static void conn_on_broken(struct loop_timer *t)
{
    struct diag why;
    diag_init(&why);
    diag_set(&why, COLLRUN_ERR_NO_MEMORY, "out of memory for a control message");
    conn_closed_by(t->owner, &why);
}

/* A buffer had no room: the rest of the stream would make no sense. */
static void conn_break(struct conn *c)
{
    if (!c->broken.at_ns)
        loop_timer_set(c->loop, &c->broken, 0);
}

int conn_open(struct conn *c, struct loop *loop, int read_fd, int write_fd, struct diag *d)
{
    c->loop = loop;
    c->peer = c->peer ? c->peer : "?";
    buf_init(&c->in);
    buf_init(&c->out);
    buf_init(&c->lines);
    c->decoder = (struct base64_decoder){0};
    c->written = 0;
    c->closed = c->in_frame = false;
    c->broken = (struct loop_timer){.fired = conn_on_broken, .owner = c};
    c->reader = (struct loop_fd){.fd = -1, .ready = conn_on_readable, .owner = c};
    c->writer = (struct loop_fd){.fd = -1, .ready = conn_on_writable, .owner = c};
    c->read_fd = read_fd;
    c->write_fd = read_fd == write_fd ? fcntl(read_fd, F_DUPFD_CLOEXEC, 0) : write_fd;
    int rc = c->write_fd < 0 ? diag_sys(d, errno, "duplicate a control stream") : COLLRUN_OK;
    if (rc == COLLRUN_OK)
        rc = conn_watch(c, &c->reader, c->read_fd, EPOLLIN, d);
    if (rc == COLLRUN_OK)
        fcntl(c->write_fd, F_SETFL, fcntl(c->write_fd, F_GETFL) | O_NONBLOCK);
    if (rc != COLLRUN_OK)
        conn_close(c);
    return rc;
}

bool conn_is_open(const struct conn *c)
{
    return c->loop && !c->closed;
}

void conn_close(struct conn *c)
{
    if (!conn_is_open(c))
        return;
    c->closed = true;
    loop_timer_clear(c->loop, &c->broken);
    loop_unwatch(c->loop, &c->reader);
    loop_unwatch(c->loop, &c->writer);
    close(c->read_fd);
    if (c->write_fd >= 0)
        close(c->write_fd);
    if (!c->in_frame)
        buf_fini(&c->in);
    buf_fini(&c->out);
    buf_fini(&c->lines);
}

/* Delivers the frames that have arrived. False: the conn is closed now. */
static bool conn_deliver(struct conn *c)
{
    struct diag d;
    struct wire_frame f;
    int rc;
    diag_init(&d);
    while ((rc = wire_next(&c->in, &f, &d)) > 0) {
        c->in_frame = true;
        c->received++;
        wire_debug_received(c->peer, &f);
        errno = 0; /* see wire_malformed */
        c->frame(c, &f);
        c->in_frame = false;
        if (c->closed) {
            buf_fini(&c->in);
            return false;
        }
        wire_next_done(&c->in, &f);
    }
    if (rc < 0)
        conn_closed_by(c, &d);
    return rc == 0;
}

/* Takes bytes that were read to the end of `in`. False: they are no text, and the conn is closed.
 */
static bool conn_commit(struct conn *c, unsigned char *bytes, size_t len)
{
    struct diag why;
    size_t bad = 0;
    const ssize_t n = c->reads_text ? base64_decode(&c->decoder, bytes, len, &bad) : (ssize_t)len;
    if (n >= 0) {
        buf_commit(&c->in, (size_t)n);
        return true;
    }
    char text[41];
    snprintf(text, sizeof text, "%.*s", (int)(len - bad), (const char *)bytes + bad);
    diag_init(&why);
    diag_set(&why, COLLRUN_ERR_INVALID, "its output is not base64: %s",
             quote(text, (char[QUOTE_SIZE]){0}));
    if (conn_deliver(c))
        conn_closed_by(c, &why);
    return false;
}

static void conn_on_readable(struct loop_fd *w, uint32_t events)
{
    (void)events;
    struct conn *c = w->owner;
    struct diag why;
    diag_init(&why);
    for (int i = 0; i < READS_PER_ROUND; i++) {
        void *to = buf_reserve(&c->in, READ_LEN);
        if (!to) {
            conn_on_broken(&c->broken);
            return;
        }
        ssize_t n = read(c->read_fd, to, READ_LEN);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            break;
        if (n < 0 && errno != ECONNRESET && errno != EIO) /* EIO: a terminal was closed */
            diag_sys(&why, errno, "read a control stream");
        if (n <= 0) {
            if (conn_deliver(c))
                conn_closed_by(c, &why);
            return;
        }
        if (!conn_commit(c, to, (size_t)n))
            return;
        if (n < READ_LEN)
            break;
    }
    conn_deliver(c);
}

void conn_feed(struct conn *c, const void *bytes, size_t len)
{
    if (!conn_is_open(c))
        return;
    unsigned char *to = buf_reserve(&c->in, len);
    if (!to) {
        conn_break(c);
        return;
    }
    memcpy(to, bytes, len);
    if (conn_commit(c, to, len))
        conn_deliver(c);
}

void conn_pause(struct conn *c)
{
    if (conn_is_open(c))
        loop_unwatch(c->loop, &c->reader);
}

void conn_resume(struct conn *c)
{
    if (conn_is_open(c) && c->reader.fd < 0)
        loop_watch(c->loop, &c->reader, c->read_fd, EPOLLIN);
}

static size_t conn_pending(const struct conn *c)
{
    return buf_pending(&c->out) + buf_pending(&c->lines);
}

/* What is written next, where something is pending. */
static struct buf *conn_next_piece(struct conn *c)
{
    if (!c->writes_text)
        return &c->out;
    if (!buf_pending(&c->lines)) {
        const size_t len = buf_pending(&c->out) < TEXT_PIECE ? buf_pending(&c->out) : TEXT_PIECE;
        base64_put_lines(&c->lines, c->out.data + c->out.start, len);
        buf_consume(&c->out, len);
    }
    return &c->lines;
}

/* Writes as much as the descriptor accepts. 0, or the errno of a broken stream. */
static int conn_push(struct conn *c)
{
    while (conn_pending(c)) {
        struct buf *const piece = conn_next_piece(c);
        if (piece->failed) {
            conn_break(c);
            return ENOMEM;
        }
        ssize_t n = write(c->write_fd, piece->data + piece->start, buf_pending(piece));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN ? 0 : errno;
        c->written += (uint64_t)n;
        buf_consume(piece, (size_t)n);
    }
    return 0;
}

static void conn_on_writable(struct loop_fd *w, uint32_t events)
{
    (void)events;
    conn_flush(w->owner);
}

/* A failed write is not reported here: the reading side sees the end of the stream after the
 * last frames of the peer, which explain more. */
void conn_flush(struct conn *c)
{
    if (!conn_is_open(c))
        return;
    c->sends++;
    if (c->out.failed)
        conn_break(c);
    const bool lost = c->broken.at_ns != 0; /* what followed would look like a whole stream */
    if (lost || conn_push(c) != 0) {
        buf_clear(&c->out);
        buf_clear(&c->lines);
    }
    /* The writer is watched only while bytes are pending: an idle descriptor would report its
     * hang-up in every round. */
    const bool waited = c->writer.fd >= 0;
    if (!conn_pending(c))
        loop_unwatch(c->loop, &c->writer);
    else if (!waited)
        loop_watch(c->loop, &c->writer, c->write_fd, EPOLLOUT);
    /* The caller learns it even if a new message found the room before the loop did. */
    if (waited && !conn_pending(c) && c->drained)
        c->drained(c);
}

struct buf *conn_out(struct conn *c)
{
    return &c->out;
}

void conn_end(struct conn *c, size_t mark)
{
    wire_end(&c->out, mark);
    wire_debug_sent(c->peer, &c->out, mark);
}

void conn_send(struct conn *c, uint16_t type, uint32_t rank, uint32_t attempt, const void *payload,
               size_t len)
{
    if (!conn_is_open(c))
        return;
    const size_t mark = wire_begin(&c->out, type, rank, attempt);
    buf_put(&c->out, payload, len);
    conn_end(c, mark);
    conn_flush(c);
}

void conn_put_buf(struct conn *c, uint16_t type, uint32_t rank, uint32_t attempt,
                  const struct buf *payload)
{
    if (!conn_is_open(c))
        return;
    size_t mark = wire_begin(&c->out, type, rank, attempt);
    buf_put_buf(&c->out, payload);
    conn_end(c, mark);
}

void conn_send_buf(struct conn *c, uint16_t type, uint32_t rank, uint32_t attempt,
                   const struct buf *payload)
{
    conn_put_buf(c, type, rank, attempt, payload);
    conn_flush(c);
}

void conn_drain(struct conn *c, uint64_t deadline_ns)
{
    while (conn_is_open(c) && conn_pending(c)) {
        uint64_t now = now_ns();
        struct pollfd p = {.fd = c->write_fd, .events = POLLOUT};
        if (now >= deadline_ns || poll(&p, 1, (int)((deadline_ns - now) / 1000000 + 1)) <= 0)
            return;
        if (conn_push(c) != 0)
            return;
    }
}
