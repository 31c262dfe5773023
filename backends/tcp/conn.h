/* SPDX-License-Identifier: Apache-2.0
 *
 * struct conn: one socket to a peer, and the frames on it.
 *
 *   PACKET  the caller's header, and data
 *   LONG    the same of a long packet
 *   DATA    a part of a put: token, offset, and at most CONN_FRAGMENT_LEN bytes
 *   BYE     the peer closes its link
 *
 * - A frame is padded to a multiple of CONN_ALIGN bytes, and the data of a fragment begins where
 *   both copies of it, into the kernel and out of it, are fast; see conn_lead.
 * - A packet leaves in one system call, if the socket takes it; else a copy of the rest is queued.
 * - Puts of a peer leave fragment by fragment, in turn, straight from the caller's memory. Packets
 *   overtake what is left of a put, but no fragment that has begun.
 * - The data of a fragment is read straight into the landing, together with the beginning of the
 *   frame behind it. So is that of a long packet: once its header has arrived, nothing more is read
 *   until the caller has a place for the data.
 *
 * Failure modes, after which conn.ended is set:
 * - the end of the stream, or an error of the socket: conn.error has the errno, or 0
 * - a malformed frame: EPROTO
 * - no memory for an incomplete frame: ENOMEM
 * An error while writing (`mute`) is no end: what the peer has sent before can still be read.
 */
#ifndef TCP_CONN_H
#define TCP_CONN_H

#include "link.h"

#include <stdbool.h>
#include <stddef.h>

/* ---- landings ----
 *
 * struct landing_table: the landings of a link, by token. A token is the place in the table, and
 * how many landings that place had before; so a token of a landing that is gone finds nothing. It
 * also tells the sender how the landing is aligned.
 *
 *     bits 63 to 32   landings that the place had, with this one
 *     bits 31 to 26   its address modulo LANDING_ALIGN
 *     bits 25 to 0    the place + 1
 */

#define LANDING_ALIGN LINK_MEMORY_ALIGN
#define LANDING_INDEX_BITS 26

struct landing_slot {
    struct link_landing *landing; /* NULL: free */
    uint32_t uses;
    uint32_t next_free; /* index + 1; 0: none */
};

struct landing_table {
    struct landing_slot *slots;
    uint32_t nslots, nused;
    uint32_t first_free; /* index + 1; 0: none */
};

/* Writes landing->token. False: out of memory. */
bool landing_add(struct landing_table *table, struct link_landing *landing);
void landing_remove(struct landing_table *table, const struct link_landing *landing);
/* The address of a landing, of this process or another one, modulo LANDING_ALIGN. */
static inline uint32_t landing_alignment(uint64_t token)
{
    return (uint32_t)token >> LANDING_INDEX_BITS;
}
void landing_table_fini(struct landing_table *table);

/* ---- outbox ----
 *
 * struct outbox: copied bytes that a socket did not take yet, in order.
 */

struct outbox_chunk;

struct outbox {
    struct outbox_chunk *first, *last;
};

static inline bool outbox_is_empty(const struct outbox *box)
{
    return !box->first;
}

/* ---- a connection ---- */

#define CONN_FRAGMENT_LEN 786432u /* bytes */
#define CONN_BUFFER_LEN 131072u   /* bytes; of conn_io.buffer */
#define CONN_ALIGN 64u            /* bytes; of conn_io.buffer, too */
#define CONN_SEGMENT_LEN 1400u    /* bytes; longer packets do not fit into a frame of Ethernet */

enum conn_frame_type { CONN_PACKET = 1, CONN_DATA = 2, CONN_BYE = 3, CONN_LONG = 4 };

struct conn_frame {
    uint32_t len;  /* bytes that follow, without the padding: PACKET: header and data; DATA and
                      LONG: the rest of conn_data, and the data */
    uint32_t type; /* enum conn_frame_type */
};

struct conn_data {
    struct conn_frame frame;
    uint64_t token, offset; /* of DATA */
    uint32_t lead; /* bytes from the beginning of the frame to the data; less than CONN_ALIGN
                      of them are padding */
    uint32_t reserved;
    char rest[LINK_HEADER_LEN + CONN_ALIGN]; /* LONG: the header; and zeros as padding */
};

enum {
    CONN_DATA_HEAD = offsetof(struct conn_data, rest), /* without padding */
    CONN_LONG_HEAD = CONN_DATA_HEAD + LINK_HEADER_LEN,
    /* A peer that is ahead has sent a packet before this process answers the last one. One that
     * sends more of them does not wait for answers. */
    CONN_UNANSWERED = 2
};

/* What all connections of a link share. */
struct conn_io {
    int epoll_fd; /* -1: none */
    char *buffer; /* CONN_BUFFER_LEN */
    struct landing_table landings;
    struct link_upcalls upcalls;
};

/* The puts to a peer of which some part has not begun to leave, in turn. */
struct conn_puts {
    struct link_put *first, *last;
    bool shared; /* several sockets take from them */
};

struct conn {
    struct conn_io *io;
    struct link_peer *peer;
    void *cookie; /* of the peer */
    struct conn_puts *puts;
    int fd;             /* -1: not connected */
    bool only_data;     /* a further socket to the peer: fragments alone arrive on it */
    bool unpaced;       /* the kernel sends at once what the windows allow */
    bool listed;        /* in link.pending */
    bool asks_for_acks; /* of link.c */
    bool exchanges;     /* packets longer than a segment go both ways, and no fragment arrives */
    uint8_t unanswered; /* such packets that have arrived since one left */

    /* Incoming. `into` is where the data of the present fragment goes; NULL: it is dropped. */
    bool ended, bye;
    bool suspended; /* until conn_take */
    bool gets_long; /* the last long frame was a long packet */
    int error;
    char *kept; /* the beginning of an incomplete frame, nkept bytes; or what has been read behind
                   the header of a long packet, nahead bytes */
    size_t nkept, nahead;
    struct link_landing *landing;
    char *into;
    size_t data_left, tail_left; /* of the fragment, and of the padding behind it */

    /* Outgoing. */
    bool mute;      /* writing has failed */
    bool wants_out; /* epoll reports when the socket takes more */
    struct outbox outbox;
    struct link_put *put; /* whose fragment is on its way */
    struct conn_data fragment;
    size_t fragment_sent; /* bytes, with head and padding */
};

/* The socket is connected; the connection owns it from now on. False: errno, and it does not. */
bool conn_begin(struct conn *conn, int fd);
/* Closes the socket and drops what is queued. */
void conn_fini(struct conn *conn);

static inline size_t conn_padding(size_t len) /* behind a frame or a part of it of this length */
{
    return -len % CONN_ALIGN;
}
static inline void conn_end(struct conn *conn, int error)
{
    conn->ended = true;
    conn->error = error;
}

/* Reads what there is, for a bounded time. Returns the number of bytes; it may set conn.ended. */
size_t conn_pull(struct conn *conn);
/* Handles received bytes, at most CONN_BUFFER_LEN. */
void conn_feed(struct conn *conn, const char *bytes, size_t len);
/* Where the data of the present long packet goes; NULL: it is dropped. What has already been read
 * of it is put there. Does nothing if the connection is not suspended. */
void conn_take(struct conn *conn, struct link_landing *landing);
/* Writes what is left, as far as the socket takes it. True if anything was written. */
bool conn_push(struct conn *conn);
/* True if conn_push has something to do. */
bool conn_is_pending(const struct conn *conn);

void conn_send(struct conn *conn, const void *header, const void *data, size_t len);
enum link_sending conn_send_long(struct conn *conn, const void *header, struct link_put *put);
void conn_send_bye(struct conn *conn);

/* The memory is not used any more. */
void conn_forget_landing(struct conn *conn, const struct link_landing *landing);
void conn_forget_put(struct conn *conn, const struct link_put *put);
void conn_puts_add(struct conn_puts *puts, struct link_put *put);
void conn_puts_remove(struct conn_puts *puts, const struct link_put *put);

#endif
