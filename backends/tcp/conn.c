/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames in and out; see conn.h.
 */
#include "conn.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

/* A packet with so much data is copied behind its header, which is cheaper than a second part in
 * the system call. */
enum { CONN_COPY_LEN = 1024 };
/* What one conn_pull reads and one conn_push writes, about. */
enum { CONN_ROUND_LEN = 2 * CONN_FRAGMENT_LEN };
/* Further fragments in a system call, of a put if there is no other one, no other socket that takes
 * from it, and nothing to receive meanwhile. Where the kernel paces what leaves, fragments leave
 * one by one, so that what it holds stays in the caches of the two cores: between two namespaces 2
 * MiB there and back take 0.5 ms instead of 1.5. */
enum { CONN_BATCH = 5 };

static const char conn_zeros[CONN_ALIGN];

/* The `rep movsb` of some processors (AMD Zen 3 and 4), with which the kernel copies, moves a
 * fifteenth of the bytes per second when its destination is 1 to 31 bytes behind its source, modulo
 * the page: a store then looks like one to what is loaded next. The kernel lines up what a thread
 * sends in blocks of pages, one behind the other, and begins anew where all of it has been
 * received: since the length of each frame is a multiple of CONN_ALIGN, the position of the data in
 * these pages is known, modulo CONN_ALIGN. It is chosen so that neither the copy from the sender's
 * memory nor the one to the receiver's is such a one. Buffers from malloc are 16 bytes behind the
 * beginning of a page, as a rule. */
static uint32_t conn_lead(uint32_t head, const void *from, uint32_t to)
{
    const uint32_t sender = (uint32_t)(uintptr_t)from % CONN_ALIGN;
    const uint32_t apart = (to - sender) % CONN_ALIGN;
    const uint32_t place = sender + (apart < CONN_ALIGN / 2 && apart ? CONN_ALIGN / 2 : 0);
    return head + (place - head) % CONN_ALIGN;
}

/* ---- life ---- */

bool conn_begin(struct conn *conn, int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = conn};
    if (conn->io->epoll_fd >= 0 && epoll_ctl(conn->io->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0)
        return false;
    conn->fd = fd;
    conn->wants_out = conn->asks_for_acks = conn->exchanges = false;
    conn->suspended = conn->gets_long = false;
    conn->unanswered = CONN_UNANSWERED;
    return true;
}

void conn_fini(struct conn *conn)
{
    if (conn->fd >= 0)
        close(conn->fd);
    conn->fd = -1;
    conn->mute = true;
    conn->put = NULL;
    conn->data_left = conn->tail_left = 0;
    conn->landing = NULL;
    outbox_clear(&conn->outbox);
    free(conn->kept);
    conn->kept = NULL;
    conn->nkept = conn->nahead = 0;
    conn->suspended = false;
}

static void conn_want_out(struct conn *conn, bool wanted)
{
    if (conn->wants_out == wanted || conn->fd < 0)
        return;
    struct epoll_event event = {.events = wanted ? EPOLLIN | EPOLLOUT : EPOLLIN, .data.ptr = conn};
    conn->wants_out = wanted;
    if (conn->io->epoll_fd >= 0)
        epoll_ctl(conn->io->epoll_fd, EPOLL_CTL_MOD, conn->fd, &event);
}

/* ---- outgoing ---- */

bool conn_is_pending(const struct conn *conn)
{
    return conn->fd >= 0 && !conn->mute &&
           (conn->put || !outbox_is_empty(&conn->outbox) || conn->puts->first);
}

void conn_puts_add(struct conn_puts *puts, struct link_put *put)
{
    put->next = NULL;
    if (puts->last)
        puts->last->next = put;
    else
        puts->first = put;
    puts->last = put;
}

void conn_puts_remove(struct conn_puts *puts, const struct link_put *put)
{
    struct link_put *before = NULL;
    for (struct link_put *p = puts->first; p && p != put; p = p->next)
        before = p;
    if (before ? before->next != put : puts->first != put)
        return;
    if (before)
        before->next = put->next;
    else
        puts->first = put->next;
    if (puts->last == put)
        puts->last = before;
}

/* The length of a fragment, with its head and without padding. */
static size_t conn_fragment_total(const struct conn_data *fragment)
{
    return sizeof fragment->frame + (size_t)fragment->frame.len;
}

static size_t conn_fragment_data_len(const struct conn_data *fragment)
{
    return conn_fragment_total(fragment) - fragment->lead;
}

/* The fragment of the put that begins at `at`. */
static struct conn_data conn_fragment_at(const struct link_put *put, size_t at)
{
    const size_t left = put->len - at, n = left < CONN_FRAGMENT_LEN ? left : CONN_FRAGMENT_LEN;
    const uint32_t lead = conn_lead(CONN_DATA_HEAD, (const char *)put->data + at,
                                    landing_alignment(put->token) + (uint32_t)at);
    return (struct conn_data){
        .frame = {.len = (uint32_t)(lead - sizeof(struct conn_frame) + n), .type = CONN_DATA},
        .token = put->token,
        .offset = at,
        .lead = lead};
}

/* Begins the next fragment of a put, which goes to the end of the list. */
static void conn_begin_fragment(struct conn *conn, struct link_put *put)
{
    conn->put = put;
    conn->fragment = conn_fragment_at(put, put->moved);
    conn->fragment_sent = 0;
    put->moved += conn_fragment_data_len(&conn->fragment);
    conn_puts_remove(conn->puts, put);
    if (put->moved < put->len)
        conn_puts_add(conn->puts, put);
}

/* What is left of a fragment of which `sent` bytes have left. Returns the number of parts. */
static size_t conn_fragment_parts(const struct link_put *put, const struct conn_data *fragment,
                                  size_t sent, struct iovec parts[3])
{
    const char *data = (const char *)put->data + fragment->offset;
    const struct iovec whole[3] = {
        {(void *)(uintptr_t)fragment, fragment->lead},
        {(void *)(uintptr_t)data, conn_fragment_data_len(fragment)},
        {(void *)(uintptr_t)conn_zeros, conn_padding(conn_fragment_total(fragment))}};
    size_t n = 0;
    for (size_t i = 0; i < 3; i++) {
        const size_t len = whole[i].iov_len, skip = sent < len ? sent : len;
        sent -= skip;
        if (skip < len)
            parts[n++] = (struct iovec){(char *)whole[i].iov_base + skip, len - skip};
    }
    return n;
}

/* The number of bytes that the socket takes; 0: none now. */
static size_t conn_write(struct conn *conn, struct iovec *parts, size_t nparts)
{
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = nparts};
    const ssize_t n = nparts == 1 ? send(conn->fd, parts->iov_base, parts->iov_len, MSG_NOSIGNAL)
                                  : sendmsg(conn->fd, &message, MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN && errno != EINTR) {
        conn->mute = true;
        outbox_clear(&conn->outbox);
    }
    return n > 0 ? (size_t)n : 0;
}

/* At most `n` bytes of the present fragment have left. Returns how many. */
static size_t conn_fragment_moved(struct conn *conn, size_t n)
{
    const size_t total = conn_fragment_total(&conn->fragment);
    const size_t left = total + conn_padding(total) - conn->fragment_sent;
    conn->fragment_sent += n < left ? n : left;
    if (n < left)
        return n;
    conn->put->finished += conn_fragment_data_len(&conn->fragment);
    conn->put = NULL;
    return left;
}

/* The present fragment, which has begun, and in the same system call the next ones of `only`, or
 * none. Those that do not begin to leave are not begun. */
static size_t conn_push_fragments(struct conn *conn, struct link_put *only)
{
    struct conn_data next[CONN_BATCH];
    struct iovec parts[3 * (CONN_BATCH + 1)];
    struct link_put *puts[2] = {conn->put, only != conn->put ? only : NULL};
    size_t nparts = conn_fragment_parts(conn->put, &conn->fragment, conn->fragment_sent, parts);
    size_t at = only ? only->moved : 0;
    for (size_t i = 0; only && i < CONN_BATCH && at < only->len; i++) {
        next[i] = conn_fragment_at(only, at);
        nparts += conn_fragment_parts(only, &next[i], 0, parts + nparts);
        at += conn_fragment_data_len(&next[i]);
    }
    const size_t n = conn_write(conn, parts, nparts);
    for (size_t left = n; left > 0; left -= conn_fragment_moved(conn, left)) {
        if (!conn->put)
            conn_begin_fragment(conn, only);
    }
    for (size_t i = 0; n > 0 && i < 2; i++) {
        if (puts[i] && puts[i]->finished == puts[i]->len)
            puts[i]->sent(puts[i]);
    }
    return n;
}

static size_t conn_push_puts(struct conn *conn)
{
    const struct conn_puts *puts = conn->puts;
    const bool whole = conn->unpaced && puts->first && puts->first == puts->last && !puts->shared &&
                       conn->io->landings.nused == 0;
    struct link_put *only = whole ? puts->first : NULL;
    if (!conn->put)
        conn_begin_fragment(conn, puts->first);
    return conn_push_fragments(conn, only);
}

static size_t conn_push_outbox(struct conn *conn)
{
    struct iovec part;
    part.iov_base = (void *)(uintptr_t)outbox_head(&conn->outbox, &part.iov_len);
    const size_t n = conn_write(conn, &part, 1);
    if (n)
        outbox_drop(&conn->outbox, n);
    return n;
}

bool conn_push(struct conn *conn)
{
    size_t total = 0;
    bool blocked = false;
    while (!blocked && total < CONN_ROUND_LEN && conn_is_pending(conn)) {
        size_t n;
        if (conn->put || outbox_is_empty(&conn->outbox))
            n = conn_push_puts(conn);
        else
            n = conn_push_outbox(conn);
        blocked = n == 0;
        total += n;
    }
    conn_want_out(conn, conn_is_pending(conn));
    return total > 0;
}

/* ---- packets ---- */

/* Behind what is queued. Without memory the connection is given up. */
static void conn_enqueue(struct conn *conn, const void *bytes, size_t len)
{
    if (outbox_add(&conn->outbox, bytes, len))
        return;
    conn->mute = true;
    outbox_clear(&conn->outbox);
    conn_end(conn, ENOMEM);
}

static void conn_send_parts(struct conn *conn, struct iovec *parts, size_t nparts)
{
    const bool at_once = conn->fd >= 0 && !conn->put && outbox_is_empty(&conn->outbox);
    size_t sent = at_once ? conn_write(conn, parts, nparts) : 0;
    for (size_t i = 0; i < nparts && !conn->mute; i++) {
        const size_t skip = sent < parts[i].iov_len ? sent : parts[i].iov_len;
        sent -= skip;
        conn_enqueue(conn, (const char *)parts[i].iov_base + skip, parts[i].iov_len - skip);
    }
    if (!outbox_is_empty(&conn->outbox))
        conn_want_out(conn, true);
}

void conn_send(struct conn *conn, const void *header, const void *data, size_t len)
{
    char head[sizeof(struct conn_frame) + LINK_HEADER_LEN + CONN_COPY_LEN + CONN_ALIGN];
    const struct conn_frame frame = {.len = (uint32_t)(LINK_HEADER_LEN + len), .type = CONN_PACKET};
    const size_t head_len = sizeof frame + LINK_HEADER_LEN, padding = conn_padding(head_len + len);
    struct iovec parts[3] = {
        {head, head_len}, {(void *)(uintptr_t)data, len}, {(void *)(uintptr_t)conn_zeros, padding}};
    if (conn->mute)
        return;
    if (len > CONN_SEGMENT_LEN)
        conn->unanswered = 0;
    memcpy(head, &frame, sizeof frame);
    memcpy(head + sizeof frame, header, LINK_HEADER_LEN);
    if (len > CONN_COPY_LEN) {
        conn_send_parts(conn, parts, padding ? 3 : 2);
        return;
    }
    if (len > 0) {
        memcpy(head + head_len, data, len);
        memset(head + head_len + len, 0, padding);
        parts[0].iov_len += len + padding;
    }
    conn_send_parts(conn, parts, 1);
}

enum link_sending conn_send_long(struct conn *conn, const void *header, struct link_put *put)
{
    struct iovec parts[3];
    if (conn->fd < 0 || conn->mute || conn->put || !outbox_is_empty(&conn->outbox))
        return LINK_BUSY;
    const uint32_t lead = conn_lead(CONN_LONG_HEAD, put->data, put->alignment);
    conn->put = put;
    conn->fragment =
        (struct conn_data){.frame = {.len = (uint32_t)(lead - sizeof(struct conn_frame) + put->len),
                                     .type = CONN_LONG},
                           .lead = lead};
    memcpy(conn->fragment.rest, header, LINK_HEADER_LEN);
    conn->fragment_sent = 0;
    put->moved = put->len;
    put->finished = 0;
    const size_t nparts = conn_fragment_parts(put, &conn->fragment, 0, parts);
    conn_fragment_moved(conn, conn_write(conn, parts, nparts));
    if (!conn->put)
        return LINK_SENT;
    conn_want_out(conn, true);
    return LINK_BEGUN;
}

void conn_send_bye(struct conn *conn)
{
    char bytes[CONN_ALIGN] = {0};
    struct iovec part = {bytes, sizeof bytes};
    const struct conn_frame frame = {.type = CONN_BYE};
    memcpy(bytes, &frame, sizeof frame);
    if (!conn->mute)
        conn_send_parts(conn, &part, 1);
}

/* ---- memory that is taken back ---- */

void conn_forget_landing(struct conn *conn, const struct link_landing *landing)
{
    if (conn->landing == landing)
        conn->landing = NULL;
}

void conn_forget_put(struct conn *conn, const struct link_put *put)
{
    struct iovec parts[3];
    if (conn->put != put)
        return;
    const size_t n = conn_fragment_parts(put, &conn->fragment, conn->fragment_sent, parts);
    struct outbox behind = conn->outbox;
    conn->outbox = (struct outbox){0};
    for (size_t i = 0; i < n && !conn->mute; i++)
        conn_enqueue(conn, parts[i].iov_base, parts[i].iov_len);
    conn->put = NULL;
    outbox_append(&conn->outbox, &behind);
}
