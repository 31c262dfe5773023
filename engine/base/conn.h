/* SPDX-License-Identifier: Apache-2.0
 *
 * struct conn: one end of a control connection in an event loop. It reads bytes and delivers whole
 * frames; it buffers frames to send and writes them when the descriptor is writable. The end is
 * reported once, by `on_closed`. The owner may free the conn there or in any later callback, but
 * not in `frame`.
 */
#ifndef ENGINE_BASE_CONN_H
#define ENGINE_BASE_CONN_H

#include "base/base64.h"
#include "base/loop.h"
#include "base/wire.h"

struct conn {
    struct loop *loop;
    const char *peer;              /* for the log; set before conn_open; borrowed */
    struct loop_fd reader, writer; /* the same descriptor twice (dup) when the stream is a socket */
    int read_fd, write_fd;         /* owned */
    bool reads_text, writes_text;  /* as lines of base64; set before conn_open */
    struct buf in, out;
    struct buf lines; /* of text, made of what was first in `out` */
    struct base64_decoder decoder;
    struct loop_timer broken; /* set when bytes were lost; reports that from the loop */
    uint64_t written;         /* bytes so far */
    uint64_t sends, received; /* so far: flushes, and frames of the peer */
    bool closed, in_frame;
    void (*frame)(struct conn *c, const struct wire_frame *f);
    void (*on_closed)(struct conn *c, const struct diag *why); /* why->code 0: the peer closed it */
    void (*drained)(struct conn *c); /* what was buffered has been written; NULL: none */
    void *owner;
};

/* Takes both descriptors (which may be the same number) and makes them non-blocking. */
int conn_open(struct conn *c, struct loop *loop, int read_fd, int write_fd, struct diag *d);
void conn_close(
    struct conn *c); /* no callback; safe on a zeroed or closed conn; buffered bytes are dropped */
bool conn_is_open(const struct conn *c);

/* Bytes that were read ahead of conn_open; they are delivered before all others. */
void conn_feed(struct conn *c, const void *bytes, size_t len);

/* Reads no more until conn_resume; frames that were read are still delivered, and the end of the
 * stream is not noticed. */
void conn_pause(struct conn *c);
void conn_resume(struct conn *c);

/* Frames that are put into the returned buffer, from wire_begin to conn_end, are sent after
 * conn_flush. */
struct buf *conn_out(struct conn *c);
void conn_end(struct conn *c, size_t mark);
void conn_flush(struct conn *c);
void conn_send(struct conn *c, uint16_t type, uint32_t rank, uint32_t attempt, const void *payload,
               size_t len);
/* The same for a payload that may have run out of memory: then the stream is closed, with
 * NO_MEMORY, as it is when the conn has no room. conn_put_buf waits for conn_flush. */
void conn_send_buf(struct conn *c, uint16_t type, uint32_t rank, uint32_t attempt,
                   const struct buf *payload);
void conn_put_buf(struct conn *c, uint16_t type, uint32_t rank, uint32_t attempt,
                  const struct buf *payload);
/* Blocks until all buffered bytes are written, or the deadline (monotonic ns) has passed. */
void conn_drain(struct conn *c, uint64_t deadline_ns);

#endif
