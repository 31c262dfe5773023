/* SPDX-License-Identifier: Apache-2.0
 *
 * A backend that runs the collectives of backends/net over a stand-in for op.c: the ranks are
 * threads of one process, and one lock guards all messages. Ranks of one simulated host use the
 * real local group.
 *
 * - A short message is copied; a long one is moved when its receive has been posted. Both are
 *   delivered late and out of order, at random.
 * - What an algorithm must not do ends the run with an error: a slot used twice, two lengths of one
 *   message, a request that is left when the operation ends.
 * - A failure of one rank is that of all.
 */
#include "coll/net_coll.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define WIRE_WAIT_NS 100000u /* between two looks at the messages */

/* A message that has not been delivered. */
struct letter {
    uint64_t number; /* of the operation */
    uint32_t from, to, slot;
    const void *data;
    void *copy; /* of a short one */
    size_t len;
    struct net_request *send;    /* of a long one */
    struct net_request *receive; /* NULL: not posted */
    struct letter *next;
};

/* A receive without its message. */
struct receive {
    uint64_t number;
    struct net_request *request;
    struct receive *next;
};

struct wire {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint32_t nranks, nopen;
    uint64_t random;
    struct letter *letters;
    struct receive *receives;
    struct net_coll **colls; /* of each rank */
    int status;              /* of the failure */
    char text[512];
};

struct net_group {
    struct wire *wire;
    const struct collrun_services *services;
    uint32_t rank;
    uint64_t number;
    struct net_coll *coll;
};

struct used_slot {
    uint32_t peer, slot;
};

struct net_op {
    struct net_group *group;
    const struct collrun_call *call;
    uint32_t outstanding;
    void **scratch;
    size_t nscratch;
    struct used_slot *used;
    size_t nused;
};

static uint32_t wire_random(struct wire *w)
{
    w->random = w->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(w->random >> 33);
}

/* ---- failure ---- */

static void wire_set_failure(struct wire *w, int status, const char *text)
{
    if (w->status != COLLRUN_OK)
        return;
    w->status = status;
    snprintf(w->text, sizeof w->text, "%s", text);
    for (uint32_t r = 0; r < w->nranks; r++)
        if (w->colls[r])
            net_coll_fail(w->colls[r], status, text);
    pthread_cond_broadcast(&w->changed);
}

static int wire_report(struct net_group *g)
{
    return g->services->fail(g->services->ctx, g->wire->status, "%s", g->wire->text);
}

static int wire_fail(struct net_group *g, const char *what, uint32_t peer, uint32_t slot)
{
    char text[256];
    snprintf(text, sizeof text, "rank %u: %s (peer %u, slot %u)", g->rank, what, peer, slot);
    wire_set_failure(g->wire, COLLRUN_ERR_BACKEND, text);
    return wire_report(g);
}

/* ---- messages ---- */

static void letter_remove(struct wire *w, struct letter *l)
{
    struct letter **at = &w->letters;
    while (*at != l)
        at = &(*at)->next;
    *at = l->next;
    free(l->copy);
    free(l);
}

static void letter_deliver(struct wire *w, struct letter *l)
{
    if (l->len > 0)
        memcpy(l->receive->data, l->copy ? l->copy : l->data, l->len);
    l->receive->done = true;
    l->receive->op->outstanding--;
    if (l->send) {
        l->send->done = true;
        l->send->op->outstanding--;
    }
    letter_remove(w, l);
    pthread_cond_broadcast(&w->changed);
}

/* Delivers some of what can be delivered to a rank. */
static void wire_deliver(struct wire *w, uint32_t rank)
{
    for (struct letter *l = w->letters, *next; l; l = next) {
        next = l->next;
        if (l->to == rank && l->receive && wire_random(w) % 3 != 0)
            letter_deliver(w, l);
    }
}

static bool op_uses(struct net_op *op, uint32_t peer, uint32_t slot)
{
    for (size_t i = 0; i < op->nused; i++)
        if (op->used[i].peer == peer && op->used[i].slot == slot)
            return false;
    struct used_slot *used = realloc(op->used, (op->nused + 1) * sizeof *used);
    if (!used)
        return false;
    op->used = used;
    op->used[op->nused++] = (struct used_slot){peer, slot};
    return true;
}

static void request_init(struct net_request *request, struct net_op *op, uint32_t peer,
                         uint32_t slot)
{
    *request = (struct net_request){.peer = peer, .slot = slot, .op = op};
    op->outstanding++;
}

static int op_send_locked(struct net_op *op, struct net_request *request, const void *data,
                          size_t len)
{
    struct net_group *g = op->group;
    struct wire *w = g->wire;
    struct letter *l = calloc(1, sizeof *l);
    *l = (struct letter){.number = g->number,
                         .from = g->rank,
                         .to = request->peer,
                         .slot = request->slot,
                         .data = data,
                         .len = len};
    if (len > NET_EAGER_LIMIT) {
        l->send = request;
    } else {
        l->copy = malloc(len + 1);
        if (len > 0)
            memcpy(l->copy, data, len);
        request->done = true;
        op->outstanding--;
    }
    struct letter **end = &w->letters; /* at a random place */
    while (*end && wire_random(w) % 4 != 0)
        end = &(*end)->next;
    l->next = *end;
    *end = l;
    for (struct receive **at = &w->receives; *at; at = &(*at)->next) {
        struct receive *p = *at;
        struct net_request *r = p->request;
        if (p->number != l->number || r->op->group->rank != l->to || r->peer != l->from ||
            r->slot != l->slot)
            continue;
        if (r->len != len)
            return wire_fail(g, "two lengths of one message", l->to, l->slot);
        l->receive = r;
        *at = p->next;
        free(p);
        break;
    }
    pthread_cond_broadcast(&w->changed);
    return COLLRUN_OK;
}

int net_op_send(struct net_op *op, struct net_request *request, uint32_t peer, uint32_t slot,
                const void *data, size_t len)
{
    struct net_group *g = op->group;
    pthread_mutex_lock(&g->wire->lock);
    int status = g->wire->status != COLLRUN_OK ? wire_report(g) : COLLRUN_OK;
    if (status == COLLRUN_OK && (peer == g->rank || peer >= g->wire->nranks))
        status = wire_fail(g, "a message to no other rank", peer, slot);
    if (status == COLLRUN_OK && !op_uses(op, peer, slot))
        status = wire_fail(g, "a slot is used twice", peer, slot);
    if (status == COLLRUN_OK) {
        request_init(request, op, peer, slot);
        status = op_send_locked(op, request, data, len);
    }
    pthread_mutex_unlock(&g->wire->lock);
    return status;
}

static int op_recv_locked(struct net_op *op, struct net_request *request)
{
    struct net_group *g = op->group;
    for (struct letter *l = g->wire->letters; l; l = l->next) {
        if (l->number != g->number || l->to != g->rank || l->from != request->peer ||
            l->slot != request->slot)
            continue;
        if (l->len != request->len)
            return wire_fail(g, "two lengths of one message", l->from, l->slot);
        l->receive = request;
        return COLLRUN_OK;
    }
    struct receive *r = calloc(1, sizeof *r);
    *r = (struct receive){.number = g->number, .request = request, .next = g->wire->receives};
    g->wire->receives = r;
    return COLLRUN_OK;
}

int net_op_recv(struct net_op *op, struct net_request *request, uint32_t peer, uint32_t slot,
                void *data, size_t len)
{
    struct net_group *g = op->group;
    pthread_mutex_lock(&g->wire->lock);
    int status = g->wire->status != COLLRUN_OK ? wire_report(g) : COLLRUN_OK;
    if (status == COLLRUN_OK && (peer == g->rank || peer >= g->wire->nranks))
        status = wire_fail(g, "a message from no other rank", peer, slot);
    if (status == COLLRUN_OK) {
        request_init(request, op, peer, slot);
        request->receives = true;
        request->data = data;
        request->len = len;
        status = op_recv_locked(op, request);
    }
    pthread_mutex_unlock(&g->wire->lock);
    return status;
}

/* ---- waiting ---- */

static void wire_wait(struct wire *w)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += WIRE_WAIT_NS;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    pthread_cond_timedwait(&w->changed, &w->lock, &until);
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static bool all_done(const struct net_request *requests, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (!requests[i].done)
            return false;
    return true;
}

int net_op_wait_all(struct net_op *op, struct net_request *requests, uint32_t n)
{
    struct net_group *g = op->group;
    struct wire *w = g->wire;
    const uint64_t deadline = now_ns() + op->call->timeout_ns;
    int status = COLLRUN_OK;
    pthread_mutex_lock(&w->lock);
    while (status == COLLRUN_OK) {
        wire_deliver(w, g->rank);
        if (all_done(requests, n))
            break;
        if (w->status != COLLRUN_OK) {
            status = wire_report(g);
        } else if (now_ns() > deadline) {
            char text[256];
            uint32_t i = 0;
            while (requests[i].done)
                i++;
            g->services->timeout_text(g->services->ctx, g->rank, &requests[i].peer, 1,
                                      op->call->timeout_ns, text, sizeof text);
            wire_set_failure(w, COLLRUN_ERR_TIMEOUT, text);
        } else {
            wire_wait(w);
        }
    }
    pthread_mutex_unlock(&w->lock);
    return status;
}

int net_op_wait(struct net_op *op, struct net_request *request)
{
    return net_op_wait_all(op, request, 1);
}

int net_op_progress(struct net_op *op)
{
    pthread_mutex_lock(&op->group->wire->lock);
    wire_deliver(op->group->wire, op->group->rank);
    pthread_mutex_unlock(&op->group->wire->lock);
    return COLLRUN_OK;
}

void net_op_hand_over(struct net_op *op)
{
    (void)op; /* the receiver takes what is sent */
}

/* ---- the rest of op.h ---- */

const struct collrun_call *net_op_call(const struct net_op *op)
{
    return op->call;
}

uint32_t net_op_rank(const struct net_op *op)
{
    return op->group->rank;
}

uint32_t net_op_size(const struct net_op *op)
{
    return op->group->wire->nranks;
}

const struct collrun_services *net_op_services(const struct net_op *op)
{
    return op->group->services;
}

void *net_op_scratch(struct net_op *op, size_t len)
{
    void **scratch = realloc(op->scratch, (op->nscratch + 1) * sizeof *scratch);
    if (!scratch)
        return NULL;
    op->scratch = scratch;
    return op->scratch[op->nscratch++] = aligned_alloc(64, (len + 64) / 64 * 64);
}

/* ---- the backend ---- */

static void op_close(struct net_op *op)
{
    for (size_t i = 0; i < op->nscratch; i++)
        free(op->scratch[i]);
    free(op->scratch);
    free(op->used);
}

static int net_threads_exec(void *group, const struct collrun_call *calls, uint32_t ncalls)
{
    struct net_group *g = group;
    struct net_op op = {.group = g, .call = calls};
    (void)ncalls;
    pthread_mutex_lock(&g->wire->lock);
    g->number++;
    int status = g->wire->status != COLLRUN_OK ? wire_report(g) : COLLRUN_OK;
    pthread_mutex_unlock(&g->wire->lock);
    if (status != COLLRUN_OK)
        return status;
    status = net_coll_run(g->coll, &op);
    pthread_mutex_lock(&g->wire->lock);
    if (status != COLLRUN_OK)
        wire_set_failure(g->wire, status, "a member has failed");
    else if (op.outstanding > 0)
        status = wire_fail(g, "a request is left", g->rank, op.outstanding);
    pthread_mutex_unlock(&g->wire->lock);
    op_close(&op);
    return status;
}

static struct wire *wire_new(uint32_t nranks)
{
    struct wire *w = calloc(1, sizeof *w);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    w->nranks = w->nopen = nranks;
    w->random = now_ns();
    w->colls = calloc(nranks, sizeof(struct net_coll *));
    return w;
}

static int net_threads_open(void *backend, const struct collrun_group_desc *desc, void **out)
{
    (void)backend;
    const struct collrun_rendezvous *v = desc->rendezvous;
    struct net_group *g = calloc(1, sizeof *g);
    size_t len;
    if (desc->rank == 0) {
        g->wire = wire_new(desc->nranks);
        v->put(v->ctx, "wire", &g->wire, sizeof g->wire);
    } else if (v->get(v->ctx, "wire", &g->wire, sizeof g->wire, &len) != COLLRUN_OK) {
        free(g);
        return COLLRUN_ERR_TIMEOUT;
    }
    g->services = desc->services;
    g->rank = desc->rank;
    const int status = net_coll_open(desc, &g->coll);
    pthread_mutex_lock(&g->wire->lock);
    g->wire->colls[g->rank] = g->coll;
    pthread_mutex_unlock(&g->wire->lock);
    *out = g;
    return status;
}

static void net_threads_abort(void *group)
{
    struct net_group *g = group;
    pthread_mutex_lock(&g->wire->lock);
    wire_set_failure(g->wire, COLLRUN_ERR_ABORTED, "the group was aborted");
    pthread_mutex_unlock(&g->wire->lock);
}

static void wire_free(struct wire *w)
{
    while (w->letters)
        letter_remove(w, w->letters);
    while (w->receives) {
        struct receive *r = w->receives;
        w->receives = r->next;
        free(r);
    }
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    free(w->colls);
    free(w);
}

static void net_threads_close(void *group)
{
    struct net_group *g = group;
    struct wire *w = g->wire;
    pthread_mutex_lock(&w->lock);
    w->colls[g->rank] = NULL;
    const bool last = --w->nopen == 0;
    pthread_mutex_unlock(&w->lock);
    net_coll_close(g->coll);
    free(g);
    if (last)
        wire_free(w);
}

const struct collrun_backend collrun_backend_v1 = {
    COLLRUN_BACKEND_HEAD,
    .name = "net_threads",
    .version = "1.0",
    .native = net_coll_native,
    .group_open = net_threads_open,
    .group_abort = net_threads_abort,
    .group_close = net_threads_close,
    .exec = net_threads_exec,
};
