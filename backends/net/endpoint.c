/* SPDX-License-Identifier: Apache-2.0
 *
 * Peers, contexts, progress and waiting; see endpoint.h.
 */
#include "endpoint.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How long a thread polls before it sleeps, at most and at least, and how much of that without
 * yielding to other threads that need the core. The time is halved after each poll that was in
 * vain. Each ENDPOINT_PROBES-th poll is the longest; after a poll that was not in vain all are.
 * Where ranks share cores, a thread only yields, ENDPOINT_YIELDS times. */
enum { ENDPOINT_POLL_NS = 1000000, ENDPOINT_POLL_MIN_NS = 10000, ENDPOINT_SPIN_NS = 100000 };
enum { ENDPOINT_PROBES = 32, ENDPOINT_YIELDS = 16, ENDPOINT_HANDOVERS = 64 };
enum { ENDPOINT_BUCKETS = 256 };

/* A packet of a context that is not open yet. */
struct endpoint_early {
    struct endpoint_early *next;
    const struct endpoint_peer *from;
    struct packet packet;
    size_t len;
    char data[];
};

struct endpoint {
    pthread_mutex_t lock;
    /* Threads that want the lock or have it. Relaxed: a hint when to yield the core; the lock
     * publishes the rest. */
    atomic_uint contenders;
    const struct collrun_services *services;
    struct link *link;
    char address[64];
    uint32_t world_rank, last_id;

    struct endpoint_peer **peers; /* by rank in the job; npeers entries */
    uint32_t npeers;
    struct endpoint_context *buckets[ENDPOINT_BUCKETS];
    uint32_t opening;
    struct endpoint_early *early, **early_end;

    uint32_t nwaiting;                /* threads inside endpoint_wait */
    struct endpoint_context *in_link; /* that sleeps there; or NULL */
    struct endpoint_context *asleep;  /* those on their condition variables */

    pthread_t service;
    bool service_started, stopping;
    bool service_sends; /* the service thread takes care of what is left */
};

uint64_t endpoint_now_ns(const struct endpoint *e)
{
    return e->services->now_ns();
}

/* ---- the lock ---- */

void endpoint_lock(struct endpoint *e)
{
    atomic_fetch_add_explicit(&e->contenders, 1, memory_order_relaxed);
    pthread_mutex_lock(&e->lock);
}

void endpoint_unlock(struct endpoint *e)
{
    const bool rouse = e->nwaiting == 0 && !e->service_sends && link_pending(e->link);
    e->service_sends |= rouse;
    endpoint_unlock_attended(e);
    if (rouse)
        link_rouse(e->link);
}

void endpoint_unlock_attended(struct endpoint *e)
{
    atomic_fetch_sub_explicit(&e->contenders, 1, memory_order_relaxed);
    pthread_mutex_unlock(&e->lock);
}

bool endpoint_is_locked(struct endpoint *e)
{
    return pthread_mutex_trylock(&e->lock) == EBUSY;
}

/* Lets another thread have the lock, if one wants it. */
static void endpoint_relax(struct endpoint *e, bool yield)
{
    pthread_mutex_unlock(&e->lock);
    for (int i = 0; i < ENDPOINT_HANDOVERS &&
                    (atomic_load_explicit(&e->contenders, memory_order_relaxed) > 1 || yield);
         i++, yield = false)
        sched_yield();
    pthread_mutex_lock(&e->lock);
}

/* ---- peers ---- */

struct endpoint_peer *endpoint_peer_find(const struct endpoint *e, uint32_t world_rank)
{
    return world_rank < e->npeers ? e->peers[world_rank] : NULL;
}

static bool endpoint_peers_grow(struct endpoint *e, uint32_t world_rank)
{
    if (world_rank < e->npeers)
        return true;
    struct endpoint_peer **peers = realloc(e->peers, (world_rank + 1) * sizeof *peers);
    if (!peers)
        return false;
    memset(peers + e->npeers, 0, (world_rank + 1 - e->npeers) * sizeof *peers);
    e->peers = peers;
    e->npeers = world_rank + 1;
    return true;
}

int endpoint_peer_get(struct endpoint *e, uint32_t world_rank, const void *address, size_t len,
                      struct endpoint_peer **out)
{
    const struct collrun_services *s = e->services;
    *out = endpoint_peer_find(e, world_rank);
    if (*out)
        return COLLRUN_OK;
    struct endpoint_peer *peer = calloc(1, sizeof *peer);
    if (!peer || !endpoint_peers_grow(e, world_rank)) {
        free(peer);
        return s->fail(s->ctx, COLLRUN_ERR_NO_MEMORY, "out of memory for rank %u", world_rank);
    }
    peer->world_rank = world_rank;
    snprintf(peer->name, sizeof peer->name, "rank %u", world_rank);
    const struct link_peer_config config = {.world_rank = world_rank,
                                            .address = address,
                                            .len = len,
                                            .name = peer->name,
                                            .cookie = peer};
    const int status = link_peer_open(e->link, &config, &peer->link);
    if (status != COLLRUN_OK) {
        free(peer);
        return status;
    }
    e->peers[world_rank] = peer;
    *out = peer;
    return COLLRUN_OK;
}

/* ---- contexts ---- */

static struct endpoint_context **endpoint_bucket(struct endpoint *e, uint64_t id)
{
    return &e->buckets[(id ^ id >> 32) % ENDPOINT_BUCKETS];
}

static struct endpoint_context *endpoint_context_find(struct endpoint *e, uint64_t id)
{
    struct endpoint_context *c = *endpoint_bucket(e, id);
    while (c && c->id != id)
        c = c->next;
    return c;
}

uint64_t endpoint_new_id(struct endpoint *e)
{
    e->last_id += 2;
    return (uint64_t)e->world_rank << 32 | e->last_id;
}

void endpoint_opening_begin(struct endpoint *e)
{
    e->opening++;
}

/* For a context that is closed. */
static void endpoint_drop(const struct endpoint_peer *from, const struct packet *packet)
{
    const struct packet leave = {
        .context = packet->context, .source = packet->message.tag, .type = PACKET_LEAVE};
    if (packet->type == PACKET_ASK)
        link_send(from->link, &leave, NULL, 0);
}

/* Drops early packets for which no handle is open, or about to be. */
static void endpoint_early_drop(struct endpoint *e)
{
    for (struct endpoint_early **at = &e->early, *early; (early = *at);) {
        if (e->opening || endpoint_context_find(e, early->packet.context & ~(uint64_t)1)) {
            at = &early->next;
            continue;
        }
        *at = early->next;
        endpoint_drop(early->from, &early->packet);
        free(early);
    }
    e->early_end = &e->early;
    while (*e->early_end)
        e->early_end = &(*e->early_end)->next;
}

void endpoint_opening_end(struct endpoint *e)
{
    if (--e->opening == 0)
        endpoint_early_drop(e);
}

static void endpoint_early_keep(struct endpoint *e, const struct endpoint_peer *from,
                                const struct packet *packet, const void *data, size_t len)
{
    struct endpoint_early *early = malloc(sizeof *early + len);
    const struct collrun_services *s = e->services;
    if (!early) {
        s->log(s->ctx, COLLRUN_LOG_WARN, "out of memory for a packet of rank %u", packet->source);
        return;
    }
    early->next = NULL;
    early->from = from;
    early->packet = *packet;
    early->len = len;
    if (len)
        memcpy(early->data, data, len);
    *e->early_end = early;
    e->early_end = &early->next;
}

static void endpoint_early_deliver(struct endpoint *e, struct endpoint_context *context)
{
    for (struct endpoint_early **at = &e->early, *early; (early = *at);) {
        if (early->packet.context != context->id) {
            at = &early->next;
            continue;
        }
        *at = early->next;
        if (!early->next)
            e->early_end = at;
        context->packet(context, early->from, &early->packet, early->data, early->len);
        free(early);
    }
}

int endpoint_context_add(struct endpoint *e, struct endpoint_context *context)
{
    struct endpoint_context **bucket = endpoint_bucket(e, context->id);
    assert(endpoint_is_locked(e));
    pthread_condattr_t attr;
    const struct collrun_services *s = e->services;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    const int error = pthread_cond_init(&context->cond, &attr);
    pthread_condattr_destroy(&attr);
    if (error)
        return s->fail(s->ctx, COLLRUN_ERR_SYSTEM, "pthread_cond_init: %s", strerror(error));
    context->endpoint = e;
    context->poll_ns = ENDPOINT_POLL_NS;
    atomic_init(&context->woken, false);
    atomic_init(&context->sleep, ENDPOINT_AWAKE);
    context->next = *bucket;
    *bucket = context;
    endpoint_early_deliver(e, context);
    for (uint32_t r = 0; r < e->npeers; r++) {
        if (e->peers[r] && e->peers[r]->lost)
            context->lost(context, e->peers[r]);
    }
    return COLLRUN_OK;
}

void endpoint_context_remove(struct endpoint_context *context)
{
    struct endpoint *e = context->endpoint;
    struct endpoint_context **at = endpoint_bucket(e, context->id);
    assert(endpoint_is_locked(e));
    while (*at != context)
        at = &(*at)->next;
    *at = context->next;
    pthread_cond_destroy(&context->cond);
    if (e->early)
        endpoint_early_drop(e);
}

/* ---- upcalls of the link ---- */

static void endpoint_handle_packet(void *ctx, void *cookie, const void *header, const void *data,
                                   size_t len)
{
    struct endpoint *e = ctx;
    const struct packet *packet = header;
    struct endpoint_context *context = endpoint_context_find(e, packet->context);
    if (context)
        context->packet(context, cookie, packet, data, len);
    else if (e->opening || endpoint_context_find(e, packet->context & ~(uint64_t)1))
        endpoint_early_keep(e, cookie, packet, data, len);
    else
        endpoint_drop(cookie, packet);
}

/* Members send them when they know that the context is open here. */
static bool endpoint_handle_long_packet(void *ctx, void *cookie, const void *header, size_t len,
                                        struct link_landing **landing)
{
    const struct packet *packet = header;
    struct endpoint_context *context = endpoint_context_find(ctx, packet->context);
    *landing = NULL;
    return !context || context->long_packet(context, cookie, packet, len, landing);
}

static void endpoint_handle_lost(void *ctx, void *cookie, const struct link_loss *loss)
{
    struct endpoint *e = ctx;
    struct endpoint_peer *peer = cookie;
    peer->lost = true;
    peer->reason = loss->reason;
    snprintf(peer->text, sizeof peer->text, "%s", loss->text);
    for (uint32_t b = 0; b < ENDPOINT_BUCKETS; b++) {
        for (struct endpoint_context *c = e->buckets[b]; c; c = c->next)
            c->lost(c, peer);
    }
}

bool endpoint_progress(struct endpoint *e)
{
    assert(endpoint_is_locked(e));
    return link_progress(e->link);
}

/* ---- waiting ---- */

static void endpoint_rise(struct endpoint_context *c)
{
    const int sleep = atomic_load(&c->sleep);
    if (sleep == ENDPOINT_SLEEPS_ON_COND)
        pthread_cond_signal(&c->cond);
    else if (sleep == ENDPOINT_SLEEPS_IN_LINK)
        link_wake(c->endpoint->link);
}

void endpoint_notify(struct endpoint_context *context)
{
    endpoint_rise(context);
}

/* A thread that is about to sleep has set `sleep` before it reads `woken`. So either it sees that,
 * or this thread sees that it sleeps. */
void endpoint_wake(struct endpoint_context *context)
{
    struct endpoint *e = context->endpoint;
    if (atomic_exchange(&context->woken, true) || atomic_load(&context->sleep) == ENDPOINT_AWAKE)
        return;
    endpoint_lock(e);
    endpoint_rise(context);
    endpoint_unlock(e);
}

static bool endpoint_look(struct endpoint_context *c)
{
    struct endpoint *e = c->endpoint;
    if (!c->source)
        return false;
    endpoint_unlock_attended(e);
    const bool moved = c->source->look(c);
    endpoint_lock(e);
    return moved;
}

static bool endpoint_is_over(struct endpoint_context *c,
                             bool (*ready)(const struct endpoint_context *c))
{
    return ready(c) || (atomic_load(&c->woken) && atomic_exchange(&c->woken, false));
}

static void endpoint_sleep_on_cond(struct endpoint_context *c, uint64_t until_ns)
{
    struct endpoint *e = c->endpoint;
    struct endpoint_context **at = &e->asleep;
    const struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000u),
                                   .tv_nsec = (long)(until_ns % 1000000000u)};
    c->next_asleep = e->asleep;
    e->asleep = c;
    pthread_cond_timedwait(&c->cond, &e->lock, &until);
    while (*at != c)
        at = &(*at)->next_asleep;
    *at = c->next_asleep;
}

static void endpoint_sleep_in_link(struct endpoint_context *c, uint64_t left_ns)
{
    struct endpoint *e = c->endpoint;
    e->in_link = c;
    link_prepare_wait(e->link);
    pthread_mutex_unlock(&e->lock);
    atomic_fetch_sub_explicit(&e->contenders, 1, memory_order_relaxed);
    link_wait(e->link, left_ns);
    endpoint_lock(e);
    e->in_link = NULL;
}

/* Once; until the context is notified, or has to take its turn in the link. */
static void endpoint_sleep(struct endpoint_context *c, uint64_t until_ns)
{
    struct endpoint *e = c->endpoint;
    const bool in_link = !e->in_link;
    const uint64_t now = endpoint_now_ns(e);
    atomic_store(&c->sleep, in_link ? ENDPOINT_SLEEPS_IN_LINK : ENDPOINT_SLEEPS_ON_COND);
    if (!atomic_load(&c->woken) && now < until_ns) {
        if (in_link)
            endpoint_sleep_in_link(c, until_ns - now);
        else
            endpoint_sleep_on_cond(c, until_ns);
    }
    atomic_store(&c->sleep, ENDPOINT_AWAKE);
}

/* The same, of a context with a source. True: the wait is over. While the source is looked at,
 * other threads may deliver to the context, which no thread sleeps for yet. */
static bool endpoint_sleep_beside(struct endpoint_context *c,
                                  bool (*ready)(const struct endpoint_context *c),
                                  uint64_t until_ns)
{
    const uint64_t most_ns = c->source->before_sleep(c);
    if (endpoint_look(c) || ready(c))
        return true;
    const uint64_t soon_ns = endpoint_now_ns(c->endpoint) + most_ns;
    endpoint_sleep(c, soon_ns < until_ns ? soon_ns : until_ns);
    return endpoint_look(c);
}

static uint64_t endpoint_poll_ns(struct endpoint_context *c)
{
    return ++c->polls % ENDPOINT_PROBES == 0 ? ENDPOINT_POLL_NS : c->poll_ns;
}

static void endpoint_adapt(struct endpoint_context *c, bool in_time)
{
    if (in_time)
        c->poll_ns = ENDPOINT_POLL_NS;
    else if (c->poll_ns > ENDPOINT_POLL_MIN_NS)
        c->poll_ns /= 2;
}

/* True if the wait is over. */
static bool endpoint_poll(struct endpoint_context *c,
                          bool (*ready)(const struct endpoint_context *c), uint64_t until_ns)
{
    struct endpoint *e = c->endpoint;
    const uint64_t poll_ns = endpoint_poll_ns(c);
    uint64_t now = endpoint_now_ns(e), last_moved = now;
    for (int round = 0;; round++) {
        if (link_progress(e->link))
            last_moved = now;
        const bool over = endpoint_look(c) || endpoint_is_over(c, ready);
        const bool enough =
            c->oversubscribed ? round >= ENDPOINT_YIELDS : now - last_moved >= poll_ns;
        if (over || enough)
            endpoint_adapt(c, over);
        if (over || enough || now >= until_ns)
            return over || now >= until_ns;
        endpoint_relax(e, c->oversubscribed || now - last_moved > ENDPOINT_SPIN_NS);
        now = endpoint_now_ns(e);
    }
}

void endpoint_wait(struct endpoint_context *c, bool (*ready)(const struct endpoint_context *c),
                   uint64_t until_ns)
{
    struct endpoint *e = c->endpoint;
    assert(endpoint_is_locked(e));
    e->nwaiting++;
    bool over = endpoint_poll(c, ready, until_ns);
    if (!over)
        c->connect(c);
    while (!over && endpoint_now_ns(e) < until_ns) {
        if (!c->source)
            endpoint_sleep(c, until_ns);
        else
            over = endpoint_sleep_beside(c, ready, until_ns);
        link_progress(e->link);
        over |= endpoint_is_over(c, ready);
    }
    if (c->source)
        c->source->after_sleep(c);
    e->nwaiting--;
    if (!e->in_link && e->asleep)
        pthread_cond_signal(&e->asleep->cond);
}

/* ---- the service thread ---- */

static void *endpoint_serve(void *arg)
{
    struct endpoint *e = arg;
    endpoint_lock(e);
    while (!e->stopping) {
        const bool due = link_accept(e->link);
        if (e->nwaiting == 0 && (due || link_pending(e->link)))
            link_progress(e->link);
        e->service_sends = e->nwaiting == 0 && link_pending(e->link);
        const bool output = e->service_sends;
        if (output)
            link_prepare_wait(e->link);
        atomic_fetch_sub_explicit(&e->contenders, 1, memory_order_relaxed);
        pthread_mutex_unlock(&e->lock);
        link_serve(e->link, output);
        endpoint_lock(e);
    }
    endpoint_unlock(e);
    return NULL;
}

/* ---- life ---- */

static void endpoint_free(struct endpoint *e)
{
    e->opening = 0;
    endpoint_early_drop(e);
    if (e->link)
        link_close(e->link);
    for (uint32_t r = 0; r < e->npeers; r++)
        free(e->peers[r]);
    free(e->peers);
    pthread_mutex_destroy(&e->lock);
    free(e);
}

int endpoint_open(const struct collrun_services *services, const struct link_config *config,
                  struct endpoint **out)
{
    struct link_config mine = *config;
    struct endpoint *e = calloc(1, sizeof *e);
    if (!e)
        return services->fail(services->ctx, COLLRUN_ERR_NO_MEMORY, "out of memory");
    pthread_mutex_init(&e->lock, NULL);
    e->services = services;
    e->world_rank = config->world_rank;
    e->early_end = &e->early;
    snprintf(e->address, sizeof e->address, "%s", config->address ? config->address : "");
    mine.services = services;
    mine.upcalls = (struct link_upcalls){.ctx = e,
                                         .packet = endpoint_handle_packet,
                                         .long_packet = endpoint_handle_long_packet,
                                         .lost = endpoint_handle_lost};
    int status = link_open(&mine, &e->link);
    if (status == COLLRUN_OK)
        status = services->thread_start(services->ctx, endpoint_serve, e, &e->service);
    if (status != COLLRUN_OK) {
        endpoint_free(e);
        return status;
    }
    *out = e;
    return COLLRUN_OK;
}

void endpoint_close(struct endpoint *e)
{
    endpoint_lock(e);
    e->stopping = true;
    endpoint_unlock(e);
    link_rouse(e->link);
    pthread_join(e->service, NULL);
    endpoint_free(e);
}

struct link *endpoint_link(const struct endpoint *e)
{
    return e->link;
}

size_t endpoint_address(const struct endpoint *e, void *address)
{
    return link_address(e->link, address);
}

bool endpoint_has_address(const struct endpoint *e, const char *address)
{
    return strcmp(e->address, address ? address : "") == 0;
}
