/* SPDX-License-Identifier: Apache-2.0
 *
 * One end of a control stream in an event loop: reads bytes and hands out whole frames, buffers
 * what is sent and writes it when the descriptor takes it, passes descriptors along where the
 * stream is a UNIX socket. The owner learns of the end exactly once, by `closed`, and may free the
 * conn there or in any later callback, never in `frame`.
 */
#ifndef BASE_CONN_H
#define BASE_CONN_H

#include "base/buf.h"
#include "base/loop.h"
#include "base/wire.h"

struct conn_fd { /* a descriptor that travels with the byte at stream position `at` */
    uint64_t at;
    int fd;
};

struct conn {
    struct loop *loop;
    struct loop_fd reader, writer; /* the same descriptor twice (dup) when the stream is a socket */
    int read_fd, write_fd;         /* owned */
    struct buf in, out;
    uint64_t written;         /* bytes of `out` that have left, ever */
    uint64_t sends, received; /* so far: flushes, and frames of the peer */
    struct conn_fd *fds;      /* waiting to be sent, in order */
    size_t nfds;
    bool closed, in_frame;
    void (*frame)(struct conn *c, const struct wire_frame *f);
    void (*on_closed)(struct conn *c, const struct diag *why); /* why->code 0: the peer closed it */
    void *owner;
};

/* Takes both descriptors (which may be the same number) and makes them non-blocking. */
int conn_open(struct conn *c, struct loop *loop, int read_fd, int write_fd, struct diag *d);
void conn_close(
    struct conn *c); /* no callback; safe on a zeroed or closed conn; what is buffered is dropped */
bool conn_is_open(const struct conn *c);

/* Bytes that were read ahead of conn_open; they are delivered before all others. */
void conn_feed(struct conn *c, const void *bytes, size_t len);

/* What is put into the returned buffer is sent soon after conn_flush. */
struct buf *conn_out(struct conn *c);
void conn_flush(struct conn *c);
void conn_send(struct conn *c, uint16_t type, uint32_t rank, uint32_t attempt, const void *payload,
               size_t len);
/* Attaches a descriptor (taken; closed once sent) to the next byte put into conn_out. */
void conn_attach_fd(struct conn *c, int fd);
/* Blocks until everything buffered has left, or the deadline (monotonic ns) passes. */
void conn_drain(struct conn *c, uint64_t deadline_ns);

#endif
