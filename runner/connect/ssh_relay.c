/* SPDX-License-Identifier: Apache-2.0
 *
 * Bytes between the channel of a remote shell and the socketpair whose other end is the stream. One
 * chunk is buffered in each direction, so that a side that does not read blocks the other.
 *
 *  - The runner closes its end: the remote side has a moment to finish.
 *  - The remote side ends: its exit status and the end of its stderr give the reason.
 */
#include "connect/ssh_link.h"

#include "base/debug.h"
#include "base/loop.h"
#include "xalloc.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#define SECOND_NS 1000000000ull
enum { CHUNK = 65536, LINGER_MS = 1000, STATUS_S = 6 };

struct ssh_relay {
    char up[CHUNK], down[CHUNK]; /* to the runner, to the host */
    size_t up_at, up_len, down_at, down_len;
    bool runner_closed; /* the runner has closed its end */
    uint64_t until;     /* if runner_closed: when the relay stops waiting for the remote side */
};

static void ssh_relay_read_stderr(struct ssh_link *l)
{
    char bytes[1024];
    int n;
    while ((n = ssh_channel_read_nonblocking(l->channel, bytes, sizeof bytes, 1)) > 0) {
        size_t len = (size_t)n, keep = sizeof l->err - 1;
        const char *from = len > keep ? bytes + len - keep : bytes;
        len = len > keep ? keep : len;
        size_t drop = l->err_len + len > keep ? l->err_len + len - keep : 0;
        memmove(l->err, l->err + drop, l->err_len - drop);
        l->err_len -= drop;
        memcpy(l->err + l->err_len, from, len);
        l->err_len += len;
        l->err[l->err_len] = '\0';
    }
}

/* From the channel to the runner. 1: bytes were moved, 0: none, -1: end of file or error. */
static int ssh_relay_up(struct ssh_link *l, struct ssh_relay *r)
{
    int moved = 0;
    ssh_relay_read_stderr(l);
    if (!r->up_len) {
        int n = ssh_channel_read_nonblocking(l->channel, r->up, sizeof r->up, 0);
        if (n == SSH_ERROR || n == SSH_EOF || (n == 0 && ssh_channel_is_eof(l->channel)))
            return -1;
        r->up_at = 0;
        r->up_len = n > 0 ? (size_t)n : 0;
    }
    while (r->up_len && !r->runner_closed) {
        ssize_t n = send(l->fd, r->up + r->up_at, r->up_len, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN)
            return moved;
        if (n < 0)
            break;
        r->up_at += (size_t)n;
        r->up_len -= (size_t)n;
        moved = 1;
    }
    if (r->runner_closed)
        r->up_len = 0;
    return moved;
}

/* From the runner to the channel, within the window of the channel. */
static int ssh_relay_down(struct ssh_link *l, struct ssh_relay *r)
{
    if (!r->down_len && !r->runner_closed) {
        l->relaying = true;
        ssize_t n = recv(l->fd, r->down, sizeof r->down, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
            r->runner_closed = true;
            r->until = now_ns() + LINGER_MS * 1000000ull;
            ssh_channel_send_eof(l->channel);
            return 1;
        }
        r->down_at = 0;
        r->down_len = n > 0 ? (size_t)n : 0;
    }
    uint32_t room = ssh_channel_window_size(l->channel);
    if (!r->down_len || !room)
        return 0;
    int n = ssh_channel_write(l->channel, r->down + r->down_at,
                              r->down_len < room ? (uint32_t)r->down_len : room);
    if (n < 0)
        return -1;
    r->down_at += (size_t)n;
    r->down_len -= (size_t)n;
    return n > 0;
}

static void ssh_relay_wait(struct ssh_link *l, const struct ssh_relay *r)
{
    int flags = ssh_get_poll_flags(l->session);
    struct pollfd p[3] = {{.fd = ssh_get_fd(l->session), .events = POLLIN},
                          {.fd = l->fd},
                          {.fd = l->pool->cancel_fd, .events = POLLIN}};
    if (flags & SSH_WRITE_PENDING)
        p[0].events |= POLLOUT;
    if (r->up_len)
        p[0].events =
            POLLOUT & p[0].events; /* no more until the runner has read what is buffered */
    p[1].events =
        (short)((r->up_len ? POLLOUT : 0) | (!r->down_len && !r->runner_closed ? POLLIN : 0));
    if (r->runner_closed)
        p[1].fd = -1;
    poll(p, 3, r->runner_closed ? 50 : -1);
}

/* The exit status of the shell may arrive after its end of file: that of a killed agent once its
 * guard has ended what the ranks left. Reading does not process packets any more then; an event
 * loop does. */
static void ssh_relay_wait_for_status(struct ssh_link *l)
{
    uint64_t until = now_ns() + STATUS_S * SECOND_NS;
    ssh_event event = ssh_event_new();
    if (event && ssh_event_add_session(event, l->session) == SSH_OK) {
        while (l->exit_status < 0 && !l->signal[0] && ssh_is_connected(l->session) &&
               !ssh_channel_is_closed(l->channel) && now_ns() < until &&
               ssh_event_dopoll(event, 20) != SSH_ERROR)
            continue;
        ssh_event_remove_session(event, l->session);
    }
    ssh_event_free(event);
    ssh_relay_read_stderr(l);
}

static const char *ssh_relay_last_line(struct ssh_link *l)
{
    char *end = l->err + l->err_len;
    while (end > l->err && (end[-1] == '\n' || end[-1] == '\r'))
        *--end = '\0';
    const char *line = strrchr(l->err, '\n');
    return line ? line + 1 : l->err;
}

static void ssh_relay_end_text(struct ssh_link *l, struct diag *d)
{
    const char *colon = l->err[0] ? ": " : "", *line = ssh_relay_last_line(l);
    if (l->signal[0])
        diag_set(d, COLLRUN_ERR_UNAVAILABLE, "its shell or collrun-agent was killed by SIG%s%s%s",
                 l->signal, colon, line);
    else if (l->exit_status >= 0)
        diag_set(d, COLLRUN_ERR_UNAVAILABLE, "its shell or collrun-agent exited with code %d%s%s",
                 l->exit_status, colon, line);
    else if (!ssh_is_connected(l->session))
        diag_set(d, COLLRUN_ERR_UNAVAILABLE, "the SSH connection broke: %s",
                 ssh_get_error(l->session));
    else
        diag_set(d, COLLRUN_ERR_UNAVAILABLE, "its sshd closed the channel%s%s", colon, line);
}

bool ssh_relay_is_idle(struct ssh_link *l)
{
    int unread = 0;
    /* In this order: the thread sets `relaying` before it reads. */
    return ioctl(l->fd, FIONREAD, &unread) < 0 || (!unread && !l->relaying);
}

void ssh_relay_run(struct ssh_link *l, struct diag *d)
{
    struct ssh_relay *r = xcalloc(1, sizeof *r);
    ssh_set_blocking(l->session, 0);
    ssh_link_set_state(l, NULL);
    while (!ssh_link_is_ending(l)) {
        int up = ssh_relay_up(l, r);
        int down = up < 0 ? -1 : ssh_relay_down(l, r);
        l->relaying = r->down_len || (ssh_get_poll_flags(l->session) & SSH_WRITE_PENDING);
        if (up < 0 || down < 0)
            break;
        if (r->runner_closed && now_ns() > r->until)
            break;
        if (!up && !down)
            ssh_relay_wait(l, r);
    }
    if (!r->runner_closed) {
        ssh_relay_wait_for_status(l);
        ssh_relay_end_text(l, d);
    }
    free(r);
}

void ssh_link_set_state(struct ssh_link *l, const char *state)
{
    debug_log(DEBUG_STAGE, "host %s: %s", l->host->name.v, state ? state : "logged in");
    pthread_mutex_lock(&l->pool->lock);
    l->state = state;
    pthread_mutex_unlock(&l->pool->lock);
}

bool ssh_link_set_socket(struct ssh_link *l, int fd)
{
    pthread_mutex_lock(&l->pool->lock);
    bool good = !l->pool->ending;
    l->socket = fd;
    pthread_mutex_unlock(&l->pool->lock);
    return good;
}

bool ssh_link_is_ending(struct ssh_link *l)
{
    pthread_mutex_lock(&l->pool->lock);
    bool ending = l->pool->ending;
    pthread_mutex_unlock(&l->pool->lock);
    return ending;
}
