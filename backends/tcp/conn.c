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

/* ---- landings ----
 *
 * An array with a list of its free places.
 */

enum { LANDING_FIRST_SLOTS = 16, LANDING_SLOTS_MAX = 1 << (LANDING_INDEX_BITS - 1) };

static bool landing_table_grow(struct landing_table *table)
{
    const uint32_t before = table->nslots, after = before ? 2 * before : LANDING_FIRST_SLOTS;
    struct landing_slot *slots =
        after <= LANDING_SLOTS_MAX ? realloc(table->slots, after * sizeof *slots) : NULL;
    if (!slots)
        return false;
    for (uint32_t i = after; i-- > before;) {
        slots[i] = (struct landing_slot){.next_free = table->first_free};
        table->first_free = i + 1;
    }
    table->slots = slots;
    table->nslots = after;
    return true;
}

static uint32_t landing_index(uint64_t token)
{
    return (uint32_t)(token & ((1u << LANDING_INDEX_BITS) - 1)) - 1;
}

bool landing_add(struct landing_table *table, struct link_landing *landing)
{
    if (!table->first_free && !landing_table_grow(table))
        return false;
    const uint32_t index = table->first_free - 1;
    struct landing_slot *slot = &table->slots[index];
    table->first_free = slot->next_free;
    slot->landing = landing;
    slot->uses++;
    table->nused++;
    const uint32_t alignment = (uint32_t)(uintptr_t)landing->data % LANDING_ALIGN;
    landing->token = (uint64_t)slot->uses << 32 | alignment << LANDING_INDEX_BITS | (index + 1);
    return true;
}

/* NULL: none. */
static struct link_landing *landing_find(const struct landing_table *table, uint64_t token)
{
    const uint32_t index = landing_index(token);
    if (index >= table->nslots || table->slots[index].uses != token >> 32)
        return NULL;
    return table->slots[index].landing;
}

void landing_remove(struct landing_table *table, const struct link_landing *landing)
{
    const uint32_t index = landing_index(landing->token);
    struct landing_slot *slot = &table->slots[index];
    slot->landing = NULL;
    table->nused--;
    slot->next_free = table->first_free;
    table->first_free = index + 1;
}

void landing_table_fini(struct landing_table *table)
{
    free(table->slots);
}

/* ---- outbox ----
 *
 * A list of chunks; short packets share one.
 */

enum { OUTBOX_CHUNK_LEN = 16384 };

struct outbox_chunk {
    struct outbox_chunk *next;
    size_t begin, end, room; /* of bytes */
    char bytes[];
};

static struct outbox_chunk *outbox_room_for(struct outbox *box, size_t len)
{
    struct outbox_chunk *last = box->last;
    if (last && last->room - last->end >= len)
        return last;
    const size_t room = len > OUTBOX_CHUNK_LEN ? len : OUTBOX_CHUNK_LEN;
    struct outbox_chunk *chunk = malloc(sizeof *chunk + room);
    if (!chunk)
        return NULL;
    *chunk = (struct outbox_chunk){.room = room};
    if (last)
        last->next = chunk;
    else
        box->first = chunk;
    box->last = chunk;
    return chunk;
}

/* Copies. False: out of memory, and the outbox has none of the bytes. */
static bool outbox_add(struct outbox *box, const void *bytes, size_t len)
{
    struct outbox_chunk *chunk = len ? outbox_room_for(box, len) : NULL;
    if (!chunk)
        return len == 0;
    memcpy(chunk->bytes + chunk->end, bytes, len);
    chunk->end += len;
    return true;
}

/* The first bytes that are left; *len is 0 if there are none. */
static const void *outbox_head(const struct outbox *box, size_t *len)
{
    const struct outbox_chunk *first = box->first;
    *len = first ? first->end - first->begin : 0;
    return first ? first->bytes + first->begin : NULL;
}

static void outbox_drop(struct outbox *box, size_t len)
{
    struct outbox_chunk *first = box->first;
    first->begin += len;
    if (first->begin < first->end)
        return;
    box->first = first->next;
    if (!box->first)
        box->last = NULL;
    free(first);
}

/* What is in `other` follows; `other` is empty then. */
static void outbox_append(struct outbox *box, struct outbox *other)
{
    if (!other->first)
        return;
    if (box->last)
        box->last->next = other->first;
    else
        box->first = other->first;
    box->last = other->last;
    *other = (struct outbox){0};
}

static void outbox_clear(struct outbox *box)
{
    while (box->first) {
        struct outbox_chunk *first = box->first;
        box->first = first->next;
        free(first);
    }
    box->last = NULL;
}

/* ---- a connection ---- */

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

/* ---- incoming ---- */

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
