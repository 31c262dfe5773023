/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading takes at most 256 KiB a round, so that one loud peer does not starve the others. Writing
 * is attempted at once and finished by the loop. An error on either side closes the whole stream
 * after the frames that had already arrived.
 */
#include "base/conn.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum { READ_LEN = 65536, READS_PER_ROUND = 4 };

static void on_readable(struct loop_fd *w, uint32_t events);
static void on_writable(struct loop_fd *w, uint32_t events);

static int watch(struct conn *c, struct loop_fd *w, int fd, uint32_t events, struct diag *d)
{
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    int rc = loop_watch(c->loop, w, fd, events);
    return rc < 0 ? diag_sys(d, -rc, "watch a control stream") : COLLRUN_OK;
}

int conn_open(struct conn *c, struct loop *loop, int read_fd, int write_fd, struct diag *d)
{
    c->loop = loop;
    buf_init(&c->in);
    buf_init(&c->out);
    c->written = 0;
    c->fds = NULL;
    c->nfds = 0;
    c->closed = c->in_frame = false;
    c->reader = (struct loop_fd){.fd = -1, .ready = on_readable, .owner = c};
    c->writer = (struct loop_fd){.fd = -1, .ready = on_writable, .owner = c};
    c->read_fd = read_fd;
    c->write_fd = read_fd == write_fd ? fcntl(read_fd, F_DUPFD_CLOEXEC, 0) : write_fd;
    int rc = c->write_fd < 0 ? diag_sys(d, errno, "duplicate a control stream") : COLLRUN_OK;
    if (rc == COLLRUN_OK)
        rc = watch(c, &c->reader, c->read_fd, EPOLLIN, d);
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
    loop_unwatch(c->loop, &c->reader);
    loop_unwatch(c->loop, &c->writer);
    close(c->read_fd);
    if (c->write_fd >= 0)
        close(c->write_fd);
    for (size_t i = 0; i < c->nfds; i++)
        close(c->fds[i].fd);
    free(c->fds);
    c->fds = NULL;
    c->nfds = 0;
    if (!c->in_frame)
        buf_fini(&c->in);
    buf_fini(&c->out);
}

static void closed_by(struct conn *c, const struct diag *why)
{
    conn_close(c);
    c->on_closed(c, why);
}

/* Hands out what has arrived. False: the conn is closed now. */
static bool deliver(struct conn *c)
{
    struct diag d;
    struct wire_frame f;
    int rc;
    diag_init(&d);
    while ((rc = wire_next(&c->in, &f, &d)) > 0) {
        c->in_frame = true;
        c->received++;
        c->frame(c, &f);
        c->in_frame = false;
        if (c->closed) {
            buf_fini(&c->in);
            return false;
        }
        wire_next_done(&c->in, &f);
    }
    if (rc < 0)
        closed_by(c, &d);
    return rc == 0;
}

static void on_readable(struct loop_fd *w, uint32_t events)
{
    (void)events;
    struct conn *c = w->owner;
    struct diag why;
    diag_init(&why);
    for (int i = 0; i < READS_PER_ROUND; i++) {
        void *to = buf_reserve(&c->in, READ_LEN);
        if (!to) {
            diag_set(&why, COLLRUN_ERR_NO_MEMORY, "out of memory for a control message");
            closed_by(c, &why);
            return;
        }
        ssize_t n = read(c->read_fd, to, READ_LEN);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            break;
        if (n < 0 && errno != ECONNRESET)
            diag_sys(&why, errno, "read a control stream");
        if (n <= 0) {
            if (deliver(c))
                closed_by(c, &why);
            return;
        }
        buf_commit(&c->in, (size_t)n);
        if (n < READ_LEN)
            break;
    }
    deliver(c);
}

void conn_feed(struct conn *c, const void *bytes, size_t len)
{
    if (!conn_is_open(c))
        return;
    buf_put(&c->in, bytes, len);
    deliver(c);
}

/* One write, up to the next byte that carries a descriptor, or from it. */
static ssize_t write_some(struct conn *c)
{
    size_t len = buf_pending(&c->out);
    const unsigned char *from = c->out.data + c->out.start;
    if (c->nfds && c->fds[0].at > c->written && c->fds[0].at - c->written < len)
        len = c->fds[0].at - c->written;
    if (!c->nfds || c->fds[0].at > c->written)
        return write(c->write_fd, from, len);
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec part = {.iov_base = (void *)(uintptr_t)from,
                         .iov_len = c->nfds > 1 && c->fds[1].at - c->written < len
                                        ? c->fds[1].at - c->written
                                        : len};
    struct msghdr m = {.msg_iov = &part,
                       .msg_iovlen = 1,
                       .msg_control = &control,
                       .msg_controllen = sizeof control.room};
    struct cmsghdr *head = CMSG_FIRSTHDR(&m);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(head), &c->fds[0].fd, sizeof(int));
    ssize_t n = sendmsg(c->write_fd, &m, MSG_NOSIGNAL);
    if (n > 0) {
        close(c->fds[0].fd);
        memmove(c->fds, c->fds + 1, --c->nfds * sizeof *c->fds);
    }
    return n;
}

/* Writes what the descriptor takes. 0, or the errno of a stream that takes nothing any more. */
static int push(struct conn *c)
{
    while (buf_pending(&c->out)) {
        ssize_t n = write_some(c);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN ? 0 : errno;
        c->written += (uint64_t)n;
        buf_consume(&c->out, (size_t)n);
    }
    return 0;
}

static void on_writable(struct loop_fd *w, uint32_t events)
{
    (void)events;
    conn_flush(w->owner);
}

/* A failed write is not reported here: the reading side sees the end of the stream, after the
 * frames that the peer sent before it went, and those say more. */
void conn_flush(struct conn *c)
{
    if (!conn_is_open(c))
        return;
    c->sends++;
    if (push(c) != 0 || c->out.failed)
        buf_clear(&c->out);
    /* Watched only while something waits: an idle descriptor would report its hang-up over and
     * over. */
    if (!buf_pending(&c->out))
        loop_unwatch(c->loop, &c->writer);
    else if (c->writer.fd < 0)
        loop_watch(c->loop, &c->writer, c->write_fd, EPOLLOUT);
}

struct buf *conn_out(struct conn *c)
{
    return &c->out;
}

void conn_send(struct conn *c, uint16_t type, uint32_t rank, uint32_t attempt, const void *payload,
               size_t len)
{
    if (!conn_is_open(c))
        return;
    wire_put(&c->out, type, rank, attempt, payload, len);
    conn_flush(c);
}

void conn_attach_fd(struct conn *c, int fd)
{
    struct conn_fd *grown = conn_is_open(c) ? realloc(c->fds, (c->nfds + 1) * sizeof *grown) : NULL;
    if (!grown) {
        close(fd);
        return;
    }
    c->fds = grown;
    c->fds[c->nfds++] = (struct conn_fd){.at = c->written + buf_pending(&c->out), .fd = fd};
}

void conn_drain(struct conn *c, uint64_t deadline_ns)
{
    while (conn_is_open(c) && buf_pending(&c->out)) {
        uint64_t now = now_ns();
        struct pollfd p = {.fd = c->write_fd, .events = POLLOUT};
        if (now >= deadline_ns || poll(&p, 1, (int)((deadline_ns - now) / 1000000 + 1)) <= 0)
            return;
        if (push(c) != 0)
            return;
    }
}
