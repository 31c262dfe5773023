/* SPDX-License-Identifier: Apache-2.0
 *
 * struct p2p_packet: the packet of an unexpected message, or the data of one from this rank itself.
 * Short ones are used again.
 */
#ifndef ENGINE_PROGRESS_P2P_PACKET_H
#define ENGINE_PROGRESS_P2P_PACKET_H

#include "core/match.h"

#include <stddef.h>

struct p2p_packet {
    struct match_entry match; /* first: the packet is found by it */
    struct p2p_packet *next;  /* while it is unused */
    size_t len;
    _Alignas(16) char bytes[];
};

/* NULL: out of memory. *unused is the list of packets that are used again. */
struct p2p_packet *p2p_packet_new(struct p2p_packet **unused, size_t len);
void p2p_packet_release(struct p2p_packet **unused, struct p2p_packet *packet);
void p2p_packet_free_unused(struct p2p_packet **unused);

#endif
