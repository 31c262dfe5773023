/* SPDX-License-Identifier: Apache-2.0
 *
 * struct link: the wire below the endpoint, TCP or UCX. Each backend compiles this folder and
 * implements these functions once. A link connects this process with others, by packets, and by
 * large data from memory to memory.
 *
 *     sender                                   receiver
 *     link_send(peer, header, data)      -->   upcall packet(header, data)
 *                                              link_land(landing): gets a token
 *     a packet of the caller's           <--   link_send(peer, header with the token)
 *     link_put(put with the token)       -->   landing->landed
 *     put->sent
 *
 *     link_send_long(header, put)        -->   upcall long_packet(header): says where it lands, or
 *     put->sent                                link_take does; landing->landed
 *
 * - A peer is another process, named by its rank in the job. A connection is made when it is first
 *   needed, and serves all groups of both processes.
 * - Packets of one peer arrive in the order in which they were sent. Puts are not ordered.
 * - Memory is never in use after unland or unput has returned. What a peer sends to a landing that
 *   is gone is dropped.
 *
 * Threads: the caller serializes all functions (with the lock of the endpoint), except link_wait,
 * link_serve, link_wake and link_rouse, which are called without it. Upcalls are made only inside
 * link_progress and link_accept; and `landed` inside link_take. An upcall may call link_send,
 * link_land, link_unland, link_put and link_unput.
 *
 * Failure modes: a peer that cannot be reached, whose connection breaks, or that leaves: upcall
 * lost, once for each peer. What was received before is delivered before it. Afterwards packets
 * and puts to the peer are dropped, and its landings and puts stay until the caller takes them
 * back.
 */
#ifndef NET_LINK_H
#define NET_LINK_H

#include <collrun/backend.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Every packet begins with a header of the caller of this length. */
#define LINK_HEADER_LEN 56u
/* The data of one packet, bytes. */
#define LINK_PACKET_MAX 131072u
/* The data of one long packet, bytes. */
#define LINK_LONG_MAX 524288u
/* The most bytes that link_address writes. */
#define LINK_ADDRESS_MAX 1024u

/* What link_put.alignment is modulo of. */
#define LINK_MEMORY_ALIGN 64u

struct link;
struct link_peer;
struct link_landing;

enum link_loss_reason {
    LINK_LOSS_LEFT,        /* the peer has closed its link; all that it sent has been received */
    LINK_LOSS_GONE,        /* nothing listens at its address: its process has ended, or a firewall
                              refuses connections */
    LINK_LOSS_BROKEN,      /* the connection is broken: the process or its host is dead, or the
                              network between */
    LINK_LOSS_UNREACHABLE, /* the connection cannot be made */
    LINK_LOSS_LOCAL        /* this process is the cause: out of memory or descriptors */
};

struct link_loss {
    enum link_loss_reason reason;
    const char *text; /* "connection reset by peer"; "Too many open files; ..."; valid during the
                         upcall */
};

struct link_upcalls {
    void *ctx;
    /* `cookie` is that of the peer. `header` (aligned to 8 bytes) and `data` are valid during
     * the upcall. */
    void (*packet)(void *ctx, void *cookie, const void *header, const void *data, size_t len);
    /* The header of a long packet, in its order among the packets. *landing is where its `len`
     * bytes of data land, a landing with the token 0, or NULL: they are dropped. False: that is not
     * known yet, and nothing more is read of the peer until link_take. */
    bool (*long_packet)(void *ctx, void *cookie, const void *header, size_t len,
                        struct link_landing **landing);
    void (*lost)(void *ctx, void *cookie, const struct link_loss *loss);
};

struct link_config {
    const struct collrun_services *services; /* valid until link_close: log, fail */
    const struct collrun_services *options;  /* of the first group of the link: its options, those
                                                of the backend included; valid during link_open */
    uint32_t world_rank;                     /* of this process */
    const char *address, *interface;         /* numeric address of this host; see backend.h */
    uint16_t first_port, last_port;          /* to listen on; 0: any */
    struct link_upcalls upcalls;
};

/* Memory that waits for data of a peer. The caller's; not moved while it is landed. */
struct link_landing {
    struct link_peer *peer;
    void *data;
    size_t len; /* bytes, at least 1 */
    /* All of it is here. The landing is the caller's again, without link_unland. */
    void (*landed)(struct link_landing *landing);
    uint64_t token; /* written by link_land; unique in this process, and never 0. Of a long packet:
                       0 */
    /* of the link */
    size_t announced, received;
    void *handle;
    struct link_landing *next;
};

/* Data on its way to the landing of a peer. The caller's; not moved while it is put. */
struct link_put {
    struct link_peer *peer;
    uint64_t token;     /* of the landing; not of a long packet */
    uint32_t alignment; /* of a long packet: the address of the memory there, modulo
                           LINK_MEMORY_ALIGN, as far as the caller knows; for speed */
    const void *data;
    size_t len; /* that of the landing */
    /* The memory is not read any more. The put is the caller's again, without link_unput. Not
     * called inside link_put and link_send_long. */
    void (*sent)(struct link_put *put);
    /* of the link */
    size_t moved, finished;
    void *handle;
    struct link_put *next;
};

/* ---- life ---- */

/* On failure the cause is stored with services->fail. */
int link_open(const struct link_config *config, struct link **link);
/* A group, also the first one, begins to use the link. What groups of one process want differently
 * is the link's to decide. */
void link_add_group(struct link *link, const struct collrun_services *options);
/* No thread is in link_wait or link_serve. Sends what is left, and waits until it has been
 * received, for a bounded time. Frees the peers. */
void link_close(struct link *link);

/* What a peer needs to connect to this process. Other members of the job alone may get it. Returns
 * its length, at most LINK_ADDRESS_MAX. */
size_t link_address(const struct link *link, void *address);

/* ---- peers ---- */

struct link_peer_config {
    uint32_t world_rank;
    const void *address; /* what link_address has written there */
    size_t len;
    const char *name; /* for messages, such as "rank 3 (node2)"; copied */
    void *cookie;     /* for upcalls */
};

/* Does not connect. A peer is opened once, and exists until link_close. On failure (out of memory,
 * or the address is none) the cause is stored. */
int link_peer_open(struct link *link, const struct link_peer_config *config,
                   struct link_peer **peer);
/* Connects, if there is no connection yet, so that its loss can be seen. */
void link_connect(struct link_peer *peer);
/* True if a connection is there or on its way. */
bool link_is_connected(const struct link_peer *peer);

/* ---- data ---- */

/* Sends a packet: LINK_HEADER_LEN bytes of header, and `len` bytes (LINK_PACKET_MAX at most) of
 * data. Both are written or copied on return. Does not block. */
void link_send(struct link_peer *peer, const void *header, const void *data, size_t len);

/* Sends a packet whose data is the put's, 1 to LINK_LONG_MAX bytes, which the receiver reads
 * straight to its place. Packets that follow are behind it. Does not block. */
enum link_sending {
    LINK_BUSY, /* nothing has been sent: something is queued to the peer, there is no connection
                  yet, or this link has no long packets */
    LINK_BEGUN,
    LINK_SENT /* put->sent will not be called */
};
enum link_sending link_send_long(struct link_peer *peer, const void *header, struct link_put *put);
/* After long_packet has returned false: where the data lands, as there. What the peer has sent
 * behind the header may be behind that in memory of the link: the next link_progress handles it.
 * Nothing happens if the peer is lost meanwhile. */
void link_take(struct link_peer *peer, struct link_landing *landing);

/* OK, or NO_MEMORY without a stored cause. */
int link_land(struct link *link, struct link_landing *landing);
void link_unland(struct link *link, struct link_landing *landing);

/* Begins to send. Does not block. */
void link_put(struct link *link, struct link_put *put);
/* The landing will never be complete. May copy a bounded part of the data. */
void link_unput(struct link *link, struct link_put *put);

/* ---- progress ---- */

/* Moves what can be moved, in both directions, for a bounded time; does not block. True if
 * something has moved. */
bool link_progress(struct link *link);
/* True if something of this process is still to be sent. */
bool link_pending(const struct link *link);
/* The next call of this thread, for which it gives up the lock, is link_wait, or link_serve with
 * `output`. */
void link_prepare_wait(struct link *link);
/* Without the lock: returns when link_progress would move something, after link_wake, or after
 * timeout_ns; it may return earlier. One thread at a time. */
void link_wait(struct link *link, uint64_t timeout_ns);
/* The link_wait of another thread, which has called link_prepare_wait, returns. Async-signal-safe.
 */
void link_wake(struct link *link);

/* For the service thread of the endpoint, which takes care of the link while no other thread does.
 * link_accept: with the lock; deals with new connections, without blocking. Every few seconds it is
 * true: progress is due, for peers that ask something, even if no thread waits. link_serve: without
 * the lock; returns when link_accept has something to do, after link_rouse, and, if `output`, also
 * when link_progress would move something. */
bool link_accept(struct link *link);
void link_serve(struct link *link, bool output);
void link_rouse(struct link *link);

#endif
