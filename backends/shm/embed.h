/* SPDX-License-Identifier: Apache-2.0
 *
 * For a backend that contains this one, and whose ranks wait for messages of other hosts at the
 * same time: they sleep in the network instead of on their doorbell.
 *
 * Such a wait looks, announces that it sleeps, looks once more, and sleeps. A rank that pushes a
 * packet for this one, or takes one of its packets, wakes it by the embedder's means. Looking is
 * progress without waiting. As ranks read `sleepers` without a fence (transport/wait.h), the first
 * sleep after an announcement is short.
 */
#ifndef SHM_EMBED_H
#define SHM_EMBED_H

#include <stdint.h>

/* At least the size of a message of the transport, which another backend embeds in its own. */
#define EMBED_MESSAGE_BYTES 192u
/* A message of up to this length may leave before its receiver calls. */
#define EMBED_EAGER_BYTES (256u << 10)

/* Who embeds a handle for messages. All members have one, or none. */
struct embedder {
    void *ctx;
    /* Rank `rank` of the group sleeps elsewhere: wakes it. From inside the calls for messages. */
    void (*wake)(void *ctx, uint32_t rank);
};

/* Before the first message; valid until the handle is closed. */
void embed_set(void *group, const struct embedder *embedder);

/* The thread of the group sleeps elsewhere, until embed_end. May be called again and again
 * meanwhile. Returns how long it may sleep at most, ns, once it has looked. */
uint64_t embed_begin(void *group);
void embed_end(void *group);

#endif
