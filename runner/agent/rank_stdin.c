/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/rank_stdin.h"

#include "agent/agent.h"
#include "agent/rank.h"
#include "base/wire_fields.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

bool rank_stdin_is_wanted(const struct rank_proc *p)
{
    const struct desc_ranks *ranks = &p->agent->desc.with_stdin;
    for (uint32_t i = 0; i < ranks->n; i++) {
        if (ranks->items[i] == p->rank)
            return true;
    }
    return false;
}

static void rank_stdin_send_taken(struct rank_stdin *in, size_t bytes)
{
    struct agent *a = in->rank->agent;
    struct buf b;
    buf_init(&b);
    wire_put_stdin_taken(&b, &(struct wire_stdin_taken){(uint32_t)bytes, in->fd < 0});
    conn_send_buf(&a->runner, WIRE_STDIN_TAKEN, in->rank->rank, a->desc.attempt, &b);
    buf_fini(&b);
}

void rank_stdin_close(struct rank_stdin *in)
{
    if (in->fd < 0)
        return;
    loop_unwatch(in->rank->agent->loop, &in->watch);
    close(in->fd);
    in->fd = -1;
    buf_fini(&in->pending);
    buf_init(&in->pending);
}

/* Writes what the pipe takes. */
static void rank_stdin_push(struct rank_stdin *in)
{
    struct loop *loop = in->rank->agent->loop;
    size_t taken = 0;
    ssize_t n = 1;
    while (n > 0 && buf_pending(&in->pending)) {
        n = write(in->fd, in->pending.data + in->pending.start, buf_pending(&in->pending));
        if (n > 0) {
            buf_consume(&in->pending, (size_t)n);
            taken += (size_t)n;
        }
    }
    const size_t left = buf_pending(&in->pending);
    if (left < in->control) { /* the runner does not know them */
        taken -= in->control - left;
        in->control = (uint32_t)left;
    }
    if (n < 0 && errno != EAGAIN && errno != EINTR)
        rank_stdin_close(in); /* the rank has closed it */
    else if (!buf_pending(&in->pending) && in->ended)
        rank_stdin_close(in);
    else if (buf_pending(&in->pending) && in->watch.fd < 0)
        loop_watch(loop, &in->watch, in->fd, EPOLLOUT);
    else if (!buf_pending(&in->pending) && in->watch.fd >= 0)
        loop_unwatch(loop, &in->watch);
    if (taken || in->fd < 0)
        rank_stdin_send_taken(in, taken);
}

static void rank_stdin_on_writable(struct loop_fd *w, uint32_t events)
{
    (void)events;
    rank_stdin_push(w->owner);
}

void rank_stdin_open(struct rank_stdin *in, struct rank_proc *p, int fd)
{
    *in = (struct rank_stdin){.rank = p, .fd = fd};
    in->watch = (struct loop_fd){.fd = -1, .ready = rank_stdin_on_writable, .owner = in};
    buf_init(&in->pending);
    if (fd >= 0)
        fcntl(fd, F_SETFL, O_NONBLOCK);
}

void rank_stdin_on_frame(struct rank_stdin *in, const struct wire_frame *f)
{
    struct wire_stdin_bytes got;
    if (in->fd < 0 || !wire_read_stdin_bytes(f, NULL, &got))
        return;
    const size_t len = got.bytes.len;
    const unsigned char *bytes = got.bytes.data;
    if (!len && !in->ended && rank_terminal_is_wanted(in->rank)) {
        in->control = in->in_line ? 2 : 1; /* inside of a line, the first one ends the line */
        buf_put(&in->pending, "\x04\x04", in->control);
    }
    in->ended = in->ended || !len;
    if (len && buf_pending(&in->pending) + len <= WIRE_STDIN_WINDOW) {
        buf_put(&in->pending, bytes, len);
        in->in_line = bytes[len - 1] != '\n' && bytes[len - 1] != '\r';
    }
    rank_stdin_push(in);
}

/* ---- the terminal of a rank ---- */

bool rank_terminal_is_wanted(const struct rank_proc *p)
{
    return desc_has_terminal(&p->agent->desc, p->rank);
}

static void rank_terminal_set_size(int fd, uint16_t rows, uint16_t columns)
{
    const struct winsize size = {.ws_row = rows, .ws_col = columns};
    ioctl(fd, TIOCSWINSZ, &size);
}

static int rank_terminal_copy(int fd)
{
    return fcntl(fd, F_DUPFD_CLOEXEC, 0);
}

int rank_terminal_open(const struct desc_terminal *t, int out[2], int err[2], int in[2])
{
    char name[64];
    out[0] = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (out[0] < 0 || grantpt(out[0]) < 0 || unlockpt(out[0]) < 0 ||
        ptsname_r(out[0], name, sizeof name) != 0)
        return -1;
    rank_terminal_set_size(out[0], t->rows, t->columns);
    out[1] = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (out[1] < 0 || pipe2(err, O_CLOEXEC) < 0)
        return -1;
    close(err[1]);
    err[1] = rank_terminal_copy(out[1]);
    in[0] = rank_terminal_copy(out[1]);
    in[1] = rank_terminal_copy(out[0]);
    return err[1] < 0 || in[0] < 0 || in[1] < 0 ? -1 : 0;
}

void rank_terminal_enter(const struct rank_proc *p)
{
    ioctl(STDIN_FILENO, TIOCSCTTY, 0);
    if (p->agent->desc.terminal.type[0])
        setenv("TERM", p->agent->desc.terminal.type, 1);
}

void rank_terminal_resize(const struct rank_proc *p, const struct wire_frame *f)
{
    struct wire_window w;
    if (wire_read_window(f, NULL, &w) && rank_terminal_is_wanted(p) && p->out.fd >= 0)
        rank_terminal_set_size(p->out.fd, w.rows, w.columns);
}
