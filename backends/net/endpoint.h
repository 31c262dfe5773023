/* SPDX-License-Identifier: Apache-2.0
 *
 * struct endpoint: the link of this process, and what its groups share: the peers, the lock, the
 * delivery of packets, waiting.
 *
 * - A group has one context in each member, with the same id. A packet names the context that it is
 *   for. One for a context that is not open here yet is kept; one for a context that is closed is
 *   dropped, and ASK is answered by LEAVE.
 * - A thread that waits makes progress for all contexts. It polls at first. Then one of the waiting
 *   threads sleeps in the link, and the others on a condition variable until something has been
 *   delivered to their context, or until it is their turn to sleep in the link.
 * - The service thread opens connections, and sends what is left while no thread waits. Its
 *   progress delivers to contexts, too, and answers those that ask, within the seconds of a tick of
 *   the link.
 *
 * One lock protects the endpoint and the state of its contexts. Functions are called with it, but
 * for open, close, lock, unlock and wake.
 */
#ifndef NET_ENDPOINT_H
#define NET_ENDPOINT_H

#include "packet.h"

#include <pthread.h>
#include <stdatomic.h>

struct endpoint;

struct endpoint_peer {
    struct link_peer *link;
    uint32_t world_rank;
    bool lost;
    enum link_loss_reason reason;
    char name[64]; /* "rank 3 (10.2.0.13)" */
    char text[320];
};

struct endpoint_context;

/* Another source of what a context waits for, such as memory that ranks of the host share. */
struct endpoint_source {
    /* Without the lock. True: something has moved there. */
    bool (*look)(struct endpoint_context *context);
    /* The thread is about to sleep, once it has looked: from now on the source sends it a packet.
     * Returns how long it may sleep, ns. */
    uint64_t (*before_sleep)(struct endpoint_context *context);
    void (*after_sleep)(struct endpoint_context *context);
};

enum endpoint_sleep { ENDPOINT_AWAKE, ENDPOINT_SLEEPS_ON_COND, ENDPOINT_SLEEPS_IN_LINK };

/* Embedded in a group's handle. */
struct endpoint_context {
    struct endpoint *endpoint;
    uint64_t id;
    bool oversubscribed; /* ranks share cores: poll little, and yield */
    /* As in link.h; `peer` has sent it. */
    void (*packet)(struct endpoint_context *context, const struct endpoint_peer *peer,
                   const struct packet *packet, const void *data, size_t len);
    bool (*long_packet)(struct endpoint_context *context, const struct endpoint_peer *peer,
                        const struct packet *packet, size_t len, struct link_landing **landing);
    /* The peer is a member or not. */
    void (*lost)(struct endpoint_context *context, const struct endpoint_peer *peer);
    /* A wait takes long: connects to those that it is for, so that their loss is seen. */
    void (*connect)(struct endpoint_context *context);
    const struct endpoint_source *source; /* of a wait that has one; else NULL */
    /* of the endpoint */
    uint32_t poll_ns, polls; /* how long to poll; how often it was done */
    atomic_bool woken;
    atomic_int sleep; /* enum endpoint_sleep */
    pthread_cond_t cond;
    struct endpoint_context *next, *next_asleep;
};

/* `address`, `interface`: of a group's description. On failure the cause is stored. */
int endpoint_open(const struct collrun_services *services, const struct link_config *config,
                  struct endpoint **endpoint);
/* All contexts have been removed. */
void endpoint_close(struct endpoint *endpoint);

void endpoint_lock(struct endpoint *endpoint);
/* What is left to be sent is the service thread's, unless a thread waits. */
void endpoint_unlock(struct endpoint *endpoint);
/* The same, of a thread that is about to make progress: the service thread, which would take the
 * core or the lock from it, is left asleep. */
void endpoint_unlock_attended(struct endpoint *endpoint);

/* For assert: a thread has the lock. */
bool endpoint_is_locked(struct endpoint *endpoint);

struct link *endpoint_link(const struct endpoint *endpoint);
size_t endpoint_address(const struct endpoint *endpoint, void *address);
bool endpoint_has_address(const struct endpoint *endpoint, const char *address);
/* Opened at its first use. On failure the cause is stored. */
int endpoint_peer_get(struct endpoint *endpoint, uint32_t world_rank, const void *address,
                      size_t len, struct endpoint_peer **peer);
/* NULL: not opened. */
struct endpoint_peer *endpoint_peer_find(const struct endpoint *endpoint, uint32_t world_rank);

/* A new id, which no other process uses; even. */
uint64_t endpoint_new_id(struct endpoint *endpoint);
/* Between begin and end, packets of contexts that are not known yet are kept. */
void endpoint_opening_begin(struct endpoint *endpoint);
void endpoint_opening_end(struct endpoint *endpoint);
/* From now on the context gets its packets, and those that were kept, and losses. */
int endpoint_context_add(struct endpoint *endpoint, struct endpoint_context *context);
void endpoint_context_remove(struct endpoint_context *context);

bool endpoint_progress(struct endpoint *endpoint);
/* Makes progress until ready(context), or something has moved in its source, or endpoint_wake, or
 * until CLOCK_MONOTONIC has passed until_ns. Without the lock while it sleeps. */
void endpoint_wait(struct endpoint_context *context,
                   bool (*ready)(const struct endpoint_context *context), uint64_t until_ns);
/* Something has been delivered to the context. */
void endpoint_notify(struct endpoint_context *context);
/* The endpoint_wait of another thread returns; or the next one that would sleep. */
void endpoint_wake(struct endpoint_context *context);

uint64_t endpoint_now_ns(const struct endpoint *endpoint);

#endif
