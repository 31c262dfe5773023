/* SPDX-License-Identifier: Apache-2.0
 *
 * Incoming frames; see conn.h.
 */
#include "conn.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

/* What one conn_pull reads, about. */
enum { CONN_ROUND_LEN = 2 * CONN_FRAGMENT_LEN };
/* What is read beyond a frame's end where data may follow that has its place: some short packets.
 */
enum { CONN_AHEAD_LEN = 4096 };
/* The longest frame that is not handled piecewise. */
enum { CONN_KEPT_LEN = sizeof(struct conn_frame) + LINK_HEADER_LEN + LINK_PACKET_MAX };

/* The same for a fragment, or a long packet: with what is between its head and its data. */
static size_t conn_data_need(const char *bytes, size_t len, size_t head_len, size_t most)
{
    struct conn_data head;
    if (len < CONN_DATA_HEAD)
        return CONN_DATA_HEAD;
    memcpy(&head, bytes, CONN_DATA_HEAD);
    const size_t total = sizeof head.frame + (size_t)head.frame.len;
    const bool valid = head.lead >= head_len && head.lead < head_len + CONN_ALIGN &&
                       total > head.lead && total - head.lead <= most;
    return valid ? head.lead : 0;
}

/* How many bytes are needed to handle the frame that begins with these; 0: it is malformed. */
static size_t conn_frame_need(const char *bytes, size_t len)
{
    struct conn_frame frame;
    if (len < sizeof frame)
        return sizeof frame;
    memcpy(&frame, bytes, sizeof frame);
    const size_t total = sizeof frame + (size_t)frame.len;
    switch (frame.type) {
    case CONN_PACKET:
        return frame.len >= LINK_HEADER_LEN && frame.len <= LINK_HEADER_LEN + LINK_PACKET_MAX
                   ? total + conn_padding(total)
                   : 0;
    case CONN_DATA:
        return conn_data_need(bytes, len, CONN_DATA_HEAD, CONN_FRAGMENT_LEN);
    case CONN_LONG:
        return conn_data_need(bytes, len, CONN_LONG_HEAD, LINK_LONG_MAX);
    case CONN_BYE:
        return frame.len == 0 ? total + conn_padding(total) : 0;
    default:
        return 0;
    }
}

static void conn_handle_packet(struct conn *conn, const char *bytes)
{
    struct conn_frame frame;
    uint64_t header[LINK_HEADER_LEN / sizeof(uint64_t)];
    const struct link_upcalls *up = &conn->io->upcalls;
    memcpy(&frame, bytes, sizeof frame);
    if (frame.len > CONN_SEGMENT_LEN) {
        conn->gets_long = false;
        conn->exchanges = conn->unanswered < CONN_UNANSWERED;
        conn->unanswered += conn->exchanges;
    }
    bytes += sizeof frame;
    memcpy(header, bytes, sizeof header);
    up->packet(up->ctx, conn->cookie, header, bytes + sizeof header, frame.len - sizeof header);
}

static void conn_begin_data(struct conn *conn, const struct conn_data *head)
{
    const size_t total = sizeof head->frame + (size_t)head->frame.len;
    conn->data_left = total - head->lead;
    conn->tail_left = conn_padding(total);
    conn->landing = NULL;
    conn->into = NULL;
    conn->exchanges = false;
}

static void conn_handle_data(struct conn *conn, const char *bytes)
{
    struct conn_data head;
    memcpy(&head, bytes, CONN_DATA_HEAD);
    struct link_landing *landing = landing_find(&conn->io->landings, head.token);
    conn_begin_data(conn, &head);
    conn->gets_long = false;
    if (!landing || landing->peer != conn->peer)
        return;
    if (head.offset > landing->len || conn->data_left > landing->len - head.offset ||
        conn->data_left > landing->len - landing->announced) {
        conn_end(conn, EPROTO);
        return;
    }
    landing->announced += conn->data_left;
    conn->landing = landing;
    conn->into = (char *)landing->data + head.offset;
}

static void conn_handle_long(struct conn *conn, const char *bytes)
{
    struct conn_data head;
    uint64_t header[LINK_HEADER_LEN / sizeof(uint64_t)];
    const struct link_upcalls *up = &conn->io->upcalls;
    memcpy(&head, bytes, CONN_DATA_HEAD);
    memcpy(header, bytes + CONN_DATA_HEAD, sizeof header);
    conn_begin_data(conn, &head);
    conn->gets_long = conn->suspended = true;
    struct link_landing *landing = NULL;
    if (up->long_packet(up->ctx, conn->cookie, header, conn->data_left, &landing))
        conn_take(conn, landing);
}

static void conn_handle_frame(struct conn *conn, const char *bytes)
{
    struct conn_frame frame;
    memcpy(&frame, bytes, sizeof frame);
    if (frame.type == CONN_DATA)
        conn_handle_data(conn, bytes);
    else if (conn->only_data)
        conn_end(conn, EPROTO);
    else if (frame.type == CONN_PACKET)
        conn_handle_packet(conn, bytes);
    else if (frame.type == CONN_LONG)
        conn_handle_long(conn, bytes);
    else
        conn->bye = true;
}

/* `len` bytes of the fragment are in place. */
static void conn_data_received(struct conn *conn, size_t len)
{
    struct link_landing *landing = conn->landing;
    conn->data_left -= len;
    if (!landing)
        return;
    conn->into += len;
    landing->received += len;
    if (conn->data_left == 0)
        conn->landing = NULL;
    if (landing->received < landing->len)
        return;
    conn->landing = NULL;
    if (landing->token)
        landing_remove(&conn->io->landings, landing);
    landing->landed(landing);
}

static size_t conn_feed_data(struct conn *conn, const char *bytes, size_t len)
{
    const size_t n = len < conn->data_left ? len : conn->data_left;
    if (conn->landing)
        memcpy(conn->into, bytes, n);
    conn_data_received(conn, n);
    return n;
}

/* So many bytes more of the frame are in conn->kept. */
static void conn_kept_grow(struct conn *conn, size_t len)
{
    conn->nkept += len;
    const size_t need = conn_frame_need(conn->kept, conn->nkept);
    if (need == 0) {
        conn_end(conn, EPROTO);
    } else if (need == conn->nkept) {
        conn->nkept = 0;
        conn_handle_frame(conn, conn->kept);
    }
}

static bool conn_has_kept(struct conn *conn)
{
    if (!conn->kept && !(conn->kept = aligned_alloc(CONN_ALIGN, CONN_KEPT_LEN)))
        conn_end(conn, ENOMEM);
    return conn->kept != NULL;
}

/* Keeps the beginning of a frame, or the part of it that is missing. */
static size_t conn_keep(struct conn *conn, const char *bytes, size_t len)
{
    if (!conn_has_kept(conn))
        return 0;
    const size_t missing = conn_frame_need(conn->kept, conn->nkept) - conn->nkept;
    const size_t n = len < missing ? len : missing;
    memcpy(conn->kept + conn->nkept, bytes, n);
    conn_kept_grow(conn, n);
    return n;
}

static size_t conn_feed_frame(struct conn *conn, const char *bytes, size_t len)
{
    const size_t need = conn->nkept ? 0 : conn_frame_need(bytes, len);
    if (conn->nkept || need > len)
        return conn_keep(conn, bytes, len);
    if (need == 0)
        conn_end(conn, EPROTO);
    else
        conn_handle_frame(conn, bytes);
    return need;
}

static size_t conn_feed_tail(struct conn *conn, size_t len)
{
    const size_t n = len < conn->tail_left ? len : conn->tail_left;
    conn->tail_left -= n;
    return n;
}

/* Until there is a place for the data of the long packet. */
static void conn_put_aside(struct conn *conn, const char *bytes, size_t len)
{
    if (conn_has_kept(conn)) {
        memmove(conn->kept, bytes, len);
        conn->nahead = len;
    }
}

void conn_feed(struct conn *conn, const char *bytes, size_t len)
{
    while (len > 0 && !conn->ended && !conn->suspended) {
        const size_t n = conn->data_left   ? conn_feed_data(conn, bytes, len)
                         : conn->tail_left ? conn_feed_tail(conn, len)
                                           : conn_feed_frame(conn, bytes, len);
        bytes += n;
        len -= n;
    }
    if (len > 0 && !conn->ended)
        conn_put_aside(conn, bytes, len);
}

void conn_take(struct conn *conn, struct link_landing *landing)
{
    if (!conn->suspended)
        return;
    conn->suspended = false;
    conn->landing = landing;
    conn->into = landing ? landing->data : NULL;
    if (conn->nahead == 0)
        return;
    const size_t n = conn_feed_data(conn, conn->kept, conn->nahead);
    conn->nahead -= n;
    memmove(conn->kept, conn->kept + n, conn->nahead);
}

/* What has been read behind the data of a long packet. */
static size_t conn_feed_ahead(struct conn *conn)
{
    const size_t n = conn->nahead;
    conn->nahead = 0;
    if (n > 0) {
        memcpy(conn->io->buffer, conn->kept, n);
        conn_feed(conn, conn->io->buffer, n);
    }
    return n;
}

/* Where the next bytes are read to: the rest of the present fragment or packet to its place, and
 * what follows to the buffer. That is little where a fragment may follow, whose data should be read
 * straight into its landing. */
static void conn_place(const struct conn *conn, struct iovec parts[2])
{
    const bool packet = conn->nkept >= sizeof(struct conn_frame);
    const bool expects = packet || conn->landing ||
                         (!conn->data_left && (conn->gets_long || conn->io->landings.nused > 0));
    parts[0] = (struct iovec){.iov_base = conn->into};
    if (conn->landing)
        parts[0].iov_len = conn->data_left;
    else if (packet)
        parts[0] =
            (struct iovec){.iov_base = conn->kept + conn->nkept,
                           .iov_len = conn_frame_need(conn->kept, conn->nkept) - conn->nkept};
    parts[1] = (struct iovec){.iov_base = conn->io->buffer,
                              .iov_len = expects ? CONN_AHEAD_LEN : CONN_BUFFER_LEN};
}

static void conn_placed(struct conn *conn, size_t len)
{
    if (conn->data_left)
        conn_data_received(conn, len);
    else
        conn_kept_grow(conn, len);
}

/* One system call; true if it has filled its room, so that there may be more. */
static bool conn_read_once(struct conn *conn, size_t *total)
{
    struct iovec parts[2];
    conn_place(conn, parts);
    const size_t direct = parts[0].iov_len, room = parts[1].iov_len;
    const ssize_t n =
        direct ? readv(conn->fd, parts, 2) : recv(conn->fd, conn->io->buffer, room, 0);
    if (n <= 0) {
        if (n == 0 || (errno != EAGAIN && errno != EINTR))
            conn_end(conn, n == 0 ? 0 : errno);
        return false;
    }
    const size_t got = (size_t)n, in_place = got < direct ? got : direct;
    *total += got;
    if (direct == 0 && got == room) /* many packets; those in the buffer may set it again */
        conn->gets_long = false;
    if (in_place)
        conn_placed(conn, in_place);
    conn_feed(conn, conn->io->buffer, got - in_place);
    return got == direct + room;
}

size_t conn_pull(struct conn *conn)
{
    size_t total = conn->suspended ? 0 : conn_feed_ahead(conn);
    while (conn->fd >= 0 && !conn->ended && !conn->suspended && total < CONN_ROUND_LEN &&
           conn_read_once(conn, &total))
        ;
    return total;
}
