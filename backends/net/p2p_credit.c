/* SPDX-License-Identifier: Apache-2.0
 *
 * See p2p_credit.h.
 */
#include "p2p_credit.h"

/* What may wait at a receiver, from one sender. */
enum { P2P_CREDIT_MESSAGES = 1024, P2P_CREDIT_BYTES = 1 << 20 };

bool net_p2p_credit_use(struct p2p_peer *peer, size_t len)
{
    if (peer->used_messages == P2P_CREDIT_MESSAGES || peer->used_bytes + len > P2P_CREDIT_BYTES)
        return false;
    peer->used_messages++;
    peer->used_bytes += (uint32_t)len;
    return true;
}

void net_p2p_credit_unuse(struct p2p_peer *peer, size_t len)
{
    peer->used_messages--;
    peer->used_bytes -= (uint32_t)len;
}

void net_p2p_credit_arrived(struct p2p_peer *peer, const struct packet_message *packet)
{
    if (packet->alignment)
        peer->alignment_there = packet->alignment;
    if (packet->credit_messages > peer->used_messages || packet->credit_bytes > peer->used_bytes)
        return;
    peer->used_messages -= packet->credit_messages;
    peer->used_bytes -= packet->credit_bytes;
}

bool net_p2p_credit_matched(struct p2p_peer *peer, const void *data, size_t len, bool used)
{
    if (len > 0)
        peer->alignment_here = (uint16_t)((uintptr_t)data % LINK_MEMORY_ALIGN + 1);
    if (!used)
        return false;
    peer->matched_messages++;
    peer->matched_bytes += (uint32_t)len;
    return peer->matched_messages >= P2P_CREDIT_MESSAGES / 2 ||
           peer->matched_bytes > P2P_CREDIT_BYTES / 2;
}

void net_p2p_credit_return(struct p2p_peer *peer, struct packet_message *packet)
{
    packet->credit_messages = (uint16_t)peer->matched_messages;
    packet->credit_bytes = peer->matched_bytes;
    packet->alignment = peer->alignment_here;
    peer->matched_messages = 0;
    peer->matched_bytes = 0;
}
