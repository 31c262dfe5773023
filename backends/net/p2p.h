/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages: struct collrun_transport (see <collrun/backend.h>). The engine matches, this side moves
 * packets and data.
 *
 *     sender                           receiver
 *     EAGER, with the data      -->                       up to P2P_EAGER_LIMIT bytes
 *
 *     LONG, with the data       -->                       from P2P_LONG_MIN bytes to LINK_LONG_MAX,
 * if the link takes it at once
 *
 *     RTS                       -->                       others
 *                               <--    CTS, when it is matched
 *     data                      -->
 *
 * - EAGER and LONG need credit: so many bytes may wait at a receiver.
 * - Messages between ranks of one host are moved by the transport of the local group (p2p_local.h),
 *   unless each rank counts as a host.
 * - What arrives is put into a list by the thread that makes progress, and handed to the
 *   engine by the thread that is inside the group's progress.
 *
 * Failure modes: those of group.h. A peer that has left is a failure once a message needs it.
 */
#ifndef NET_P2P_H
#define NET_P2P_H

#include "local.h"
#include "packet.h"

#define P2P_EAGER_LIMIT 65536u /* bytes, between hosts */
#define P2P_LONG_MIN (P2P_EAGER_LIMIT + 1)
/* Within a host more may leave early. */
#define P2P_EAGER_LIMIT_ANY EMBED_EAGER_BYTES

struct net_group;

enum p2p_state { P2P_IDLE, P2P_AWAITS_CTS, P2P_PUTS, P2P_RECEIVES, P2P_AWAITS_COPY };

struct net_message {
    struct collrun_message head; /* first */
    enum p2p_state state;
    bool from_any; /* a receive that has not been matched with a source */
    bool is_local; /* the local group has it, as `local` */
    struct net_group *group;
    struct net_message *next, *previous; /* of those that are not P2P_IDLE */
    struct net_message *next_done;
    union {
        struct link_landing landing;
        struct link_put put;
    };
    _Alignas(16) char local[EMBED_MESSAGE_BYTES]; /* begins with a copy of `head` */
} __attribute__((aligned(16)));

struct p2p_arrivals {
    char *bytes;
    size_t len, room;
};

struct p2p_peer {
    uint32_t needed;                          /* messages that need it */
    uint32_t used_messages, used_bytes;       /* credit of this sender */
    uint32_t matched_messages, matched_bytes; /* credit to be returned */
    /* The address modulo LINK_MEMORY_ALIGN, + 1, of the memory that was last received into, there
     * and here; 0: not known. */
    uint16_t alignment_there, alignment_here;
};

/* Messages with ranks of this host; of p2p_local.h. */
struct p2p_local {
    struct net_local *group; /* NULL: messages take the network */
    bool is_owned;           /* else it is the one for collectives */
    bool is_all;             /* all members are on this host */
    const struct net_hosts *hosts;
    uint32_t host;
    struct collrun_p2p table; /* what the local group gets as the engine's */
    struct embedder embedder;
    uint32_t nleft; /* ranks of the host whose leaving is known */
    int status;     /* of the last look */
};

struct net_p2p {
    struct p2p_local local;
    const struct collrun_p2p *engine;
    struct p2p_peer *peers;
    uint32_t nany; /* receives from any source that are not matched */
    struct p2p_arrivals arrivals,
        reading;                /* packets: that have arrived, that are handed to the engine */
    struct net_message *active; /* not P2P_IDLE */
    struct p2p_long *longs;
    bool attended; /* a thread is inside progress, and comes for what arrives */
    struct net_message *done, **done_end;
    struct net_message **sends; /* by id: those that await CTS; nsends entries */
    uint32_t nsends;
};

/* False: out of memory. */
bool net_p2p_init(struct net_p2p *p, const struct collrun_p2p *engine, uint32_t nranks);
void net_p2p_fini(struct net_p2p *p);

/* With the lock of the endpoint. */
void net_p2p_handle_packet(struct net_group *group, const struct packet *packet, const void *data,
                           size_t len);
/* As long_packet of link.h. */
bool net_p2p_handle_long_packet(struct net_group *group, const struct packet *packet, size_t len,
                                struct link_landing **landing);
/* Takes the memory of all messages back. */
void net_p2p_detach(struct net_group *group);

extern const struct collrun_transport net_transport;

#endif
