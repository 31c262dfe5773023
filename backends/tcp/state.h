/* SPDX-License-Identifier: Apache-2.0
 *
 * struct link and struct link_peer, as TCP implements them (link.h).
 *
 *   link.c       life, packets, puts, progress, waiting
 *   peers.c      connections and losses of peers
 *   listener.c   connections until they are open, in both directions
 *   conn.c       open connections
 *
 * Two epoll instances: `io.epoll_fd` has the open connections, and is polled by the thread that
 * makes progress; `serve_fd` has the listener and the handshakes, and belongs to the service thread
 * of the endpoint.
 */
#ifndef TCP_STATE_H
#define TCP_STATE_H

#include "conn.h"
#include "handshake.h"

#include <stdatomic.h>

enum {
    LINK_SOCKETS_MAX = 8,     /* to one peer, each way */
    LINK_UNKNOWN_MAX = 64,    /* connections without a HELLO */
    LINK_HANDSHAKE_MS = 5000, /* until HELLO */
    LINK_CONNECT_MS = 15000,  /* until a connection is open; see listener.h */
    LINK_SILENCE_MS = 12000,  /* sent data without an acknowledgement */
    LINK_TICK_MS = 2000,      /* how often the service thread looks at the clock */
    LINK_PEER_NAME_LEN = 64
};

enum peer_state { PEER_IDLE, PEER_CONNECTING, PEER_AWAITED, PEER_UP, PEER_LOST };

/* What an entry of serve_fd belongs to: the first member of the struct behind it. */
enum serve_kind { SERVE_ROUSE, SERVE_LISTENER, SERVE_INBOUND, SERVE_DIAL };
struct serve_item {
    enum serve_kind kind;
};

/* An outgoing connection that is not open. */
struct dial {
    struct serve_item item; /* SERVE_DIAL */
    struct link_peer *peer;
    uint32_t channel;
    int fd;
    bool connected; /* HELLO has been sent */
    struct handshake_hello hello;
    struct handshake_answer answer;
    size_t got; /* bytes of answer */
    uint64_t deadline_ns;
    struct dial *next;
};

/* An incoming connection that is not open. */
struct inbound {
    struct serve_item item; /* SERVE_INBOUND */
    int fd;
    bool refused; /* there was no descriptor for it but the spare one */
    bool parked;  /* its HELLO is valid, but its sender, a rank of the job, is not known yet */
    struct handshake_hello hello;
    size_t got; /* bytes of hello */
    uint64_t deadline_ns;
    struct inbound *next; /* newer */
};

struct link_peer {
    struct link *link;
    struct link_peer *next;
    uint32_t world_rank;
    struct handshake_address address;
    char name[LINK_PEER_NAME_LEN];
    void *cookie;
    enum peer_state state;
    bool sent_bye;        /* this process, which closes its link */
    uint64_t deadline_ns; /* of PEER_AWAITED */
    struct conn main;
    /* Further sockets, by channel: those that this process has opened, for its puts, and those of
     * the peer. NULL: none. */
    struct conn *outgoing[LINK_SOCKETS_MAX], *incoming[LINK_SOCKETS_MAX];
    uint32_t sockets; /* that carry this process's puts, or are being opened; 0 before a long one */
    struct conn_puts puts;
    enum link_loss_reason loss;
    char loss_text[256];
    struct link_peer *next_lost;
};

struct link {
    const struct collrun_services *services;
    uint32_t world_rank;
    struct handshake_address self;
    struct conn_io io;
    uint32_t sockets; /* to a peer, for large data */

    struct link_peer *peers, *lost; /* lost: those whose loss has not been reported */
    struct conn **open;             /* nopen connections */
    struct conn **pending;          /* of those, some that have something to send */
    uint32_t nopen, npending, capacity;

    atomic_int waiters; /* threads that wait for epoll's report of input, or are about to */
    bool asks_for_acks; /* some connection does */
    bool has_ahead;     /* some connection has input that it has read and not handled */
    int wake_fd, serve_fd, rouse_fd;
    int listen_fd, spare_fd;
    bool listener_pauses; /* there is no descriptor for a connection, until the next tick */
    struct serve_item rouse, listener;
    struct inbound *inbounds, **inbounds_end;
    uint32_t ninbounds; /* that are not parked */
    uint64_t *nonces;   /* of all valid HELLOs: one that comes again is a recorded one */
    uint32_t nnonces, nonces_capacity;
    struct dial *dials;
    uint64_t next_tick_ns;
    atomic_int serve_ms; /* how long link_serve waits; -1: forever */
    bool reported_unknown;
};

static inline uint64_t link_now_ns(const struct link *link)
{
    return link->services->now_ns();
}

#endif
