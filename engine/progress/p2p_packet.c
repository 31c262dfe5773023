/* SPDX-License-Identifier: Apache-2.0
 *
 * See p2p_packet.h.
 */
#include "progress/p2p_packet.h"

#include <stdlib.h>

/* Most packets are at most this long; such ones are used again. */
enum { PACKET_BYTES = 256 };

struct p2p_packet *p2p_packet_new(struct p2p_packet **unused, size_t len)
{
    struct p2p_packet *packet = len <= PACKET_BYTES ? *unused : NULL;
    if (packet)
        *unused = packet->next;
    else
        packet = malloc(sizeof *packet + (len < PACKET_BYTES ? PACKET_BYTES : len));
    if (!packet)
        return NULL;
    packet->len = len;
    return packet;
}

void p2p_packet_release(struct p2p_packet **unused, struct p2p_packet *packet)
{
    if (packet->len > PACKET_BYTES) {
        free(packet);
        return;
    }
    packet->next = *unused;
    *unused = packet;
}

void p2p_packet_free_unused(struct p2p_packet **unused)
{
    for (struct p2p_packet *packet; (packet = *unused);) {
        *unused = packet->next;
        free(packet);
    }
}
