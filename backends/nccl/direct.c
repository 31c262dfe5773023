/* SPDX-License-Identifier: Apache-2.0
 *
 * Direct messages: launched at their call, without waiting for the other end. Those from one GPU
 * to another are a *direction*, which has its own communicator and keeps their
 * order; a GPU has an *end* of it.
 *
 * Happy path
 *   - the first message of a direction has its communicator formed, in the background; until then
 *     messages queue;
 *   - a message is launched at its call if it is certain to start, else as soon as it is. That is
 *     when its caller's stream does not wait for an operation that may not end (scheduler.c), and
 *     all messages of its direction before it have ended, or are launched at both ends. So a kernel
 *     waits for earlier launches alone: take a direction whose messages are launched at both ends.
 *     The oldest of them that has not ended waits for no message of the direction, so both of its
 *     kernels start when those before them on their GPUs have started, which were launched earlier;
 *   - messages of one op are launched together, direction after direction in one order on all GPUs;
 *   - it is complete when the GPU has passed its event. One without elements is not launched, and
 *     is complete when both ends are known;
 *   - each end then reports it to the coordinator, which pairs the reports in their order and
 *     answers both ends.
 * Failures
 *   - the answer has another count or type: MISMATCH. By then data may have moved;
 *   - the other end does not come: the operation's time-out.
 */
#include "direct.h"

#include "group.h"
#include "issue.h"

#include <stdlib.h>
#include <string.h>

enum { MIN_REPORTS = 16 };

struct direct_report { /* what this rank has launched */
    uint64_t count;
    uint32_t dtype;
    struct message *message; /* NULL: its op has ended */
};

struct direct_end {
    struct direct_end *next;
    struct nccl_group *part; /* NULL: not known to be formed */
    uint32_t id;             /* its index in direct.ends */
    uint32_t device, peer;   /* of this process; a communicator rank */
    uint32_t from, to;       /* communicator ranks */
    bool sends;
    bool wanted;                    /* the coordinator was asked for the communicator */
    struct message_queue queued;    /* not launched */
    struct message_queue in_flight; /* launched, not complete */
    /* Messages launched, reported to the coordinator, and answered by it, since the group was
     * formed. Those that are not answered have a report: number n is at n % capacity. */
    uint64_t launched, reported, answered;
    struct direct_report *reports;
    uint64_t capacity;
};

struct direct {
    struct coord_client *coord;
    uint32_t size, ndevs;
    struct direct_end **ends; /* NULL: not used yet */
    struct direct_end *first; /* all that are used, in the order of directions */
    uint64_t launches, unanswered;
    bool wanted; /* see direct_take_wanted */
};

/* ---- life ---- */

int direct_new(struct nccl_group *g, struct coord_client *coord, struct direct **out)
{
    const char *option = g->services->option(g->services->ctx, "messages");
    if (!option || strcmp(option, "direct") != 0 || g->size == 1)
        return COLLRUN_OK;
    struct direct *d = calloc(1, sizeof *d);
    if (d)
        d->ends = calloc((size_t)2 * g->ndevs * g->size, sizeof(struct direct_end *));
    if (!d || !d->ends) {
        free(d);
        return nccl_group_out_of_memory(g);
    }
    d->coord = coord;
    d->size = g->size;
    d->ndevs = g->ndevs;
    *out = d;
    return COLLRUN_OK;
}

void direct_free(struct direct *d)
{
    if (!d)
        return;
    while (d->first) {
        struct direct_end *next = d->first->next;
        free(d->first->reports);
        free(d->first);
        d->first = next;
    }
    free(d->ends);
    free(d);
}

/* All GPUs launch directions in one order, by sender and receiver. With less room on the GPUs than
 * kernels, the first direction that has not ended is then on both of its GPUs. */
static bool direct_end_is_before(const struct direct_end *a, const struct direct_end *b)
{
    return a->from < b->from || (a->from == b->from && a->to < b->to);
}

static struct direct_end *direct_end_get(struct direct *d, const struct nccl_group *g,
                                         uint32_t device, bool sends, uint32_t peer)
{
    uint32_t id = (device * 2 + sends) * d->size + peer, own = g->rank * g->ndevs + device;
    struct direct_end *e = d->ends[id], **at = &d->first;
    if (e || !(e = calloc(1, sizeof *e)))
        return e;
    *e = (struct direct_end){.id = id,
                             .device = device,
                             .peer = peer,
                             .sends = sends,
                             .from = sends ? own : peer,
                             .to = sends ? peer : own};
    message_queue_init(&e->queued);
    message_queue_init(&e->in_flight);
    while (*at && direct_end_is_before(*at, e))
        at = &(*at)->next;
    e->next = *at;
    *at = d->ends[id] = e;
    return e;
}

/* ---- the communicator of a direction ---- */

/* False: it is not formed. */
static bool direct_end_is_formed(struct direct *d, struct nccl_group *g, struct direct_end *e)
{
    if (e->part)
        return true;
    const struct coord_want direction = {.handle = COORD_DIRECT, .from = e->from, .to = e->to};
    struct nccl_group *part = direct_comm_get(g, e->from, e->to);
    if (part && nccl_group_is_formed(part))
        e->part = part;
    else if (!e->wanted && coord_want(d->coord, &direction))
        d->wanted = e->wanted = true;
    return e->part != NULL;
}

static struct dev_comm *direct_end_dev(const struct direct_end *e)
{
    return &e->part->devs[e->sends ? 0 : e->part->ndevs - 1];
}

struct nccl_group *direct_part(const struct message *m)
{
    return m->direct->part;
}

/* ---- reports ---- */

/* Makes room for reports. */
static bool direct_end_reserve(struct direct_end *e, uint64_t n)
{
    uint64_t used = e->launched - e->answered, more = e->capacity ? e->capacity : MIN_REPORTS;
    if (used + n <= e->capacity)
        return true;
    while (more < used + n)
        more *= 2;
    struct direct_report *grown = malloc(more * sizeof *grown);
    if (!grown)
        return false;
    for (uint64_t i = e->answered; e->capacity && i < e->launched; i++)
        grown[i % more] = e->reports[i % e->capacity];
    free(e->reports);
    e->reports = grown;
    e->capacity = more;
    return true;
}

static struct direct_report *direct_end_report(const struct direct_end *e, uint64_t seq)
{
    return &e->reports[seq % e->capacity];
}

static void direct_unpin(struct nccl_group *g, struct message *m)
{
    if (m->pinned)
        sched_unpin_message(g->context);
    m->pinned = false;
}

bool direct_is_matched(const struct message *m)
{
    return m->state >= MESSAGE_IN_FLIGHT && m->seq < m->direct->answered;
}

static bool direct_end_send_report(const struct direct *d, const struct nccl_group *g,
                                   const struct direct_end *e)
{
    const struct direct_report *r = direct_end_report(e, e->reported);
    return coord_request_match(
        d->coord, &(struct coord_match_req){.count = r->count,
                                            .id = e->id,
                                            .comm_rank = g->rank * g->ndevs + e->device,
                                            .peer = e->peer,
                                            .kind = e->sends ? COLLRUN_SEND : COLLRUN_RECV,
                                            .dtype = r->dtype,
                                            .direct = 1});
}

uint32_t direct_report(struct direct *d, const struct nccl_group *g)
{
    uint32_t n = 0;
    for (struct direct_end *e = d->first; e; e = e->next)
        while (e->reported < e->launched && direct_end_send_report(d, g, e)) {
            e->reported++;
            n++;
        }
    return n;
}

void direct_on_match(struct direct *d, struct nccl_group *g, const struct coord_match_rep *rep)
{
    struct direct_end *e = rep->id < 2 * d->ndevs * d->size ? d->ends[rep->id] : NULL;
    if (!e || rep->peer != e->peer || e->answered == e->reported) {
        nccl_group_fail(g, COLLRUN_ERR_BACKEND,
                        "protocol error: rank 0 matched an unknown message");
        return;
    }
    const struct direct_report *r = direct_end_report(e, e->answered++);
    const struct collrun_call call = {.kind = e->sends ? COLLRUN_SEND : COLLRUN_RECV,
                                      .count = r->count,
                                      .dtype = (enum collrun_dtype)r->dtype,
                                      .device = (int)e->device,
                                      .peer_device = (int)(e->peer % g->ndevs)};
    d->unanswered--;
    if (r->message)
        direct_unpin(g, r->message);
    if (!message_agrees(&call, rep))
        message_mismatch(g, &call, 0, rep);
}

uint64_t direct_unanswered(const struct direct *d)
{
    return d->unanswered;
}

/* ---- completing ---- */

static void direct_end_complete_first(struct nccl_group *g, struct direct_end *e)
{
    struct message *m = message_unlink(&e->in_flight, &e->in_flight.first);
    direct_unpin(g, m);
    if (m->seq >= e->answered)
        direct_end_report(e, m->seq)->message = NULL;
    if (m->owns_after_evt) {
        struct dev_comm *dev = direct_end_dev(e);
        atomic_fetch_sub(&dev->device->in_flight, 1);
        event_release(dev, m->after_evt);
    }
    m->after_evt = NULL;
    m->owns_after_evt = false;
    message_complete(g, m);
}

/* OK: the first message in flight is over. */
static int direct_end_query(struct nccl_group *g, const struct direct_end *e)
{
    const struct message *m = e->in_flight.first;
    if (!m->after_evt)
        return m->seq < e->answered ? COLLRUN_OK : COLLRUN_AGAIN;
    cudaError_t error = event_query(&g->context->lib.cuda, m->after_evt);
    if (error == cudaErrorNotReady)
        return COLLRUN_AGAIN;
    return error == cudaSuccess
               ? COLLRUN_OK
               : nccl_group_fail_cuda(e->part, direct_end_dev(e), error, "a message");
}

static void direct_end_complete(struct nccl_group *g, struct direct_end *e)
{
    while (e->in_flight.first && direct_end_query(g, e) == COLLRUN_OK)
        direct_end_complete_first(g, e);
}

bool direct_take_wanted(struct direct *d)
{
    bool wanted = d->wanted;
    d->wanted = false;
    return wanted;
}

/* ---- launching ---- */

bool direct_takes(const struct nccl_group *g, const struct collrun_call *c)
{
    bool other_gpu = (uint32_t)c->peer != g->rank || c->peer_device != c->device;
    return c->tag == 0 && c->kind != COLLRUN_RECV_ANY && other_gpu;
}

int direct_enter(struct direct *d, struct nccl_group *g, struct message *m)
{
    const struct collrun_call *c = m->call;
    uint32_t peer = (uint32_t)c->peer * g->ndevs + (uint32_t)c->peer_device;
    m->direct = direct_end_get(d, g, (uint32_t)c->device, c->kind == COLLRUN_SEND, peer);
    if (!m->direct)
        return nccl_group_out_of_memory(g);
    m->peer_rank = peer;
    m->count = c->count;
    message_push(&m->direct->queued, m);
    return COLLRUN_OK;
}

/* Whether the next message of the end is certain to start. */
static bool direct_end_may_launch(struct nccl_group *g, struct direct_end *e)
{
    struct message *m = e->queued.first;
    if (m->cross_dep && !m->before_evt) /* it is just being called */
        return false;
    if (!message_is_ready(g, m))
        return false;
    if (e->in_flight.first && e->answered < e->launched)
        direct_end_complete(g, e);
    return !e->in_flight.first || e->answered == e->launched;
}

/* The next message, and those behind it that are of the same op and can start, too. */
static void direct_end_take(struct nccl_group *g, struct direct_end *e, struct message_queue *out)
{
    const struct op *op = e->queued.first->op;
    message_queue_init(out);
    do
        message_push(out, message_unlink(&e->queued, &e->queued.first));
    while (e->queued.first && e->queued.first->op == op &&
           !(e->queued.first->cross_dep && !e->queued.first->before_evt) &&
           message_is_ready(g, e->queued.first));
}

static void direct_note_launched(struct direct *d, struct direct_end *e, struct message_queue *q,
                                 struct event *after_evt)
{
    struct message *m, *last = NULL;
    while ((m = q->first)) {
        message_unlink(q, &q->first);
        m->state = MESSAGE_IN_FLIGHT;
        m->seq = e->launched++;
        m->after_evt = m->count ? after_evt : NULL;
        last = m->count ? m : last;
        *direct_end_report(e, m->seq) = (struct direct_report){
            .count = m->call->count, .dtype = (uint32_t)m->call->dtype, .message = m};
        message_push(&e->in_flight, m);
        d->unanswered++;
    }
    if (last)
        last->owns_after_evt = after_evt != NULL;
    d->launches++;
}

static void direct_end_launch(struct direct *d, struct nccl_group *g, struct direct_end *e)
{
    struct message_queue q;
    struct event *after_evt = NULL;
    uint64_t n = 0;
    direct_end_take(g, e, &q);
    for (const struct message *m = q.first; m; m = m->next)
        n++;
    pthread_mutex_lock(&e->part->lock);
    int status = !direct_end_reserve(e, n) ? nccl_group_out_of_memory(g)
                 : nccl_group_has_failed(e->part)
                     ? nccl_group_failure(e->part)
                     : issue_direct(e->part, direct_end_dev(e), q.first, &after_evt);
    pthread_mutex_unlock(&e->part->lock);
    if (status == COLLRUN_OK) {
        direct_note_launched(d, e, &q, after_evt);
        return;
    }
    nccl_group_fail(g, status, "a message could not be launched");
    while (q.first) /* nccl_p2p_forget takes it out again */
        message_push(&e->queued, message_unlink(&q, &q.first));
}

static void direct_end_launch_all(struct direct *d, struct nccl_group *g, struct direct_end *e)
{
    while (e->queued.first && !nccl_group_has_failed(g) && direct_end_is_formed(d, g, e) &&
           direct_end_may_launch(g, e))
        direct_end_launch(d, g, e);
}

void direct_launch(struct direct *d, struct nccl_group *g)
{
    for (struct direct_end *e = d->first; e; e = e->next)
        direct_end_launch_all(d, g, e);
}

void direct_progress(struct direct *d, struct nccl_group *g)
{
    for (struct direct_end *e = d->first; e && !nccl_group_has_failed(g); e = e->next) {
        direct_end_complete(g, e);
        direct_end_launch_all(d, g, e);
    }
}

uint64_t direct_launches(const struct direct *d)
{
    return d->launches;
}

/* ---- the end of an op, and order after it ---- */

/* A launch that failed halfway is in no queue, and counts, too. */
bool direct_is_busy(const struct direct *d)
{
    const struct direct_end *e = d->first;
    while (e && !(e->part && comm_is_busy(e->part)))
        e = e->next;
    return e != NULL;
}

void direct_forget(struct nccl_group *g, const struct op *op)
{
    for (uint32_t i = 0; i < op->ncalls; i++) {
        struct message *m = &op->messages[i];
        struct direct_end *e = m->direct;
        if (!e || m->state == MESSAGE_DONE)
            continue;
        direct_unpin(g, m);
        if (m->state == MESSAGE_IN_FLIGHT && m->seq >= e->answered)
            direct_end_report(e, m->seq)->message = NULL;
        if (m->owns_after_evt) {
            atomic_fetch_sub(&direct_end_dev(e)->device->in_flight, 1);
            event_release(direct_end_dev(e), m->after_evt);
        }
        message_drop_all(&e->queued, op);
        message_drop_all(&e->in_flight, op);
    }
}

int direct_order(struct nccl_group *g, struct message *m, cudaStream_t stream, cudaError_t *error)
{
    if (m->state < MESSAGE_IN_FLIGHT || !m->after_evt)
        return COLLRUN_AGAIN;
    if (!m->pinned && !direct_is_matched(m)) {
        m->pinned = true;
        sched_pin_message(g->context);
    }
    *error = g->context->lib.cuda.cudaStreamWaitEvent(stream, m->after_evt->handle, 0);
    return COLLRUN_OK;
}

/* ---- the communicators of directions ----
 *
 * The communicators of direct messages: made when on_demand.c begins to form one, closed with the
 * group. */

struct nccl_group *direct_comm_get(const struct nccl_group *whole, uint32_t from, uint32_t to)
{
    struct nccl_group *p = atomic_load_explicit(&whole->parts, memory_order_acquire);
    while (p && (p->from != from || p->to != to))
        p = p->next_part;
    return p;
}

static void direct_comm_free(struct nccl_group *p)
{
    for (uint32_t i = 0; p->devs && i < p->ndevs; i++)
        if (p->devs[i].device)
            dev_comm_fini(p, &p->devs[i]);
    pthread_mutex_destroy(&p->lock);
    pthread_mutex_destroy(&p->status.lock);
    free(p->devs);
    free(p->name);
    free(p);
}

/* Its place among the two ranks, and the GPUs of this process. */
static int direct_comm_open_devs(struct nccl_group *p)
{
    const struct nccl_group *whole = p->whole;
    const uint32_t ends[] = {p->from, p->to};
    int status = COLLRUN_OK;
    for (uint32_t i = p->rank; status == COLLRUN_OK && i < p->rank + p->ndevs; i++) {
        int ordinal = whole->devs[ends[i] % whole->ndevs].ordinal;
        int before = device_enter(p->context, ordinal);
        status = dev_comm_init(p, &p->devs[i - p->rank], ordinal);
        device_leave(p->context, before);
    }
    return status;
}

static struct nccl_group *direct_comm_alloc(struct nccl_group *whole, uint32_t from, uint32_t to)
{
    bool sends = from / whole->ndevs == whole->rank, receives = to / whole->ndevs == whole->rank;
    struct nccl_group *p = sends || receives ? calloc(1, sizeof *p) : NULL;
    if (!p)
        return NULL;
    p->whole = whole;
    p->from = from;
    p->to = to;
    p->context = whole->context;
    p->services = whole->context->services;
    p->config = whole->config;
    p->size = 2;
    p->ndevs = sends && receives ? 2 : 1;
    p->nranks = 2 / p->ndevs;
    p->rank = sends ? 0 : 1;
    p->name = strdup(whole->name);
    p->devs = calloc(p->ndevs, sizeof *p->devs);
    pthread_mutex_init(&p->lock, NULL);
    pthread_mutex_init(&p->status.lock, NULL);
    if (p->name && p->devs)
        return p;
    direct_comm_free(p);
    return NULL;
}

/* A part takes the services of the whole, which another thread may end: the part is in its list
 * already. */
static void direct_comm_take_services(struct nccl_group *p)
{
    pthread_mutex_lock(&p->status.lock);
    pthread_mutex_lock(&p->whole->status.lock);
    p->services = p->whole->services;
    pthread_mutex_unlock(&p->whole->status.lock);
    pthread_mutex_unlock(&p->status.lock);
}

struct nccl_group *direct_comm_new(struct nccl_group *whole, uint32_t from, uint32_t to)
{
    if (from >= whole->size || to >= whole->size || from == to)
        return NULL;
    struct nccl_group *p = direct_comm_alloc(whole, from, to);
    if (!p) {
        nccl_group_fail(whole, COLLRUN_ERR_NO_MEMORY, "out of memory for a communicator");
        return NULL;
    }
    p->next_part = atomic_load(&whole->parts);
    atomic_store(&whole->parts, p);
    direct_comm_take_services(p);
    int status =
        nccl_group_has_failed(whole) ? atomic_load(&whole->status.code) : direct_comm_open_devs(p);
    if (status != COLLRUN_OK)
        nccl_group_fail(p, status, "the communicator could not be formed");
    return status == COLLRUN_OK ? p : NULL;
}

void direct_comm_end_services(struct nccl_group *whole)
{
    for (struct nccl_group *p = atomic_load(&whole->parts); p; p = p->next_part)
        nccl_group_end_services(p);
}

/* Takes out the part with the lowest direction. Each closing waits for the other rank; in one order
 * on all ranks none of them waits for another closing. */
static struct nccl_group *direct_comm_take_lowest(struct nccl_group *whole)
{
    struct nccl_group *lowest = atomic_load(&whole->parts), *before = NULL;
    for (struct nccl_group *p = lowest; p && p->next_part; p = p->next_part) {
        const struct nccl_group *next = p->next_part;
        if (next->from < lowest->from || (next->from == lowest->from && next->to < lowest->to)) {
            before = p;
            lowest = p->next_part;
        }
    }
    if (before)
        before->next_part = lowest->next_part;
    else if (lowest)
        atomic_store(&whole->parts, lowest->next_part);
    return lowest;
}

void direct_comm_close_all(struct nccl_group *whole)
{
    struct nccl_group *p;
    while ((p = direct_comm_take_lowest(whole))) {
        comm_close(p);
        direct_comm_free(p);
    }
}
