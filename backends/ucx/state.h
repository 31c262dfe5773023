/* SPDX-License-Identifier: Apache-2.0
 *
 * struct link over UCX, and struct link_peer: one worker of UCX, and one endpoint for each peer
 * that this process sends to.
 *
 * - Packets are active messages that are sent eagerly; data of a put is one active message, which
 *   UCX may move by its rendezvous, straight into the landing.
 * - UCX calls back only inside ucp_worker_progress. Its callbacks put what has happened into
 *   lists; link_progress makes the upcalls afterwards. An upcall may therefore call any function
 *   of the link.
 * - Every active message bears the secret of its receiver, which members of the job get with its
 *   address. Others are dropped.
 */
#ifndef UCX_STATE_H
#define UCX_STATE_H

#include "library.h"
#include "link.h"

#include <netinet/in.h>
#include <stdatomic.h>

#define UCX_SECRET_LEN 16u
/* What link_address publishes before the address of the worker: the secret, and the numeric address
 * of the host. */
#define UCX_CARD_LEN (UCX_SECRET_LEN + INET6_ADDRSTRLEN)

struct packet;

struct link_peer {
    struct link *link;
    struct link_peer *next; /* of those that are known */
    uint32_t world_rank;
    bool opened; /* else only packets of it have arrived */
    char name[96];
    char host[INET6_ADDRSTRLEN]; /* its address */
    char silent[256];            /* what peer.h knows of a connection there; or "" */
    void *cookie;
    void *address; /* of its worker, UCX's own format */
    uint8_t secret[UCX_SECRET_LEN];
    ucp_ep_h ep; /* NULL: not connected yet, or lost */

    uint64_t sent;          /* packets */
    uint64_t delivered;     /* packets */
    struct packet *packets; /* that have arrived, by number */
    bool lost, left;        /* nothing can be sent any more; it has closed its link */
    bool loss_reported;     /* by the upcall */
    enum link_loss_reason reason;
    char reason_text[320];
};

struct link {
    const struct collrun_services *services;
    struct link_upcalls upcalls;
    uint32_t world_rank;
    struct ucx_library ucx;
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_address_t *address;
    size_t address_len;
    char host[INET6_ADDRSTRLEN];
    uint8_t secret[UCX_SECRET_LEN];
    struct link_peer *peers;

    uint32_t in_flight;          /* sends that UCX has not completed */
    struct link_landing **slots; /* of landings, by the lower bits of their tokens */
    uint32_t nslots, next_slot;
    uint64_t landings;            /* ever; above those bits */
    struct link_landing *landed;  /* complete; their upcall is due */
    struct link_put *puts, *sent; /* in flight; complete, and their upcall is due */

    int worker_fd, wake_fd, rouse_fd;
    uint64_t next_check_ms; /* of peer.h */
    bool has_packets;       /* some have arrived during this progress */
    uint32_t idle;          /* how often progress has found nothing, in a row */
    atomic_bool armed;      /* worker_fd becomes readable with the next event */
    atomic_bool waits;      /* a thread is in link_wait */
};

/* What an active message begins with. */
struct ucx_head {
    uint8_t secret[UCX_SECRET_LEN];
    uint32_t from;   /* rank in the job */
    uint32_t kind;   /* enum ucx_head_kind */
    uint64_t number; /* of a packet: of those to this peer, from 0; of a put: the token */
    uint8_t header[LINK_HEADER_LEN]; /* of a packet */
};

enum ucx_head_kind { UCX_HEAD_PACKET, UCX_HEAD_LEAVE };

/* The identifiers of active messages. */
enum { UCX_AM_PACKET = 1, UCX_AM_PUT = 2 };

#endif
