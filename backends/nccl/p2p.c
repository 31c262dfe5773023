/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages.
 *
 * ncclSend and ncclRecv carry no tag or datatype, and there is no any-source receive. Calls of one
 * NCCL group progress together, while those of the next NCCL group wait; a send that is launched
 * too early keeps everything behind it waiting. So a message is launched only when both of its ends
 * are known.
 *
 * Happy path
 *   - each rank requests a match from the group's coordinator for what it would send or receive;
 *   - the coordinator matches by peer and tag, or from any source, in the order of arrival, and
 *     replies to both ends, to all ranks in one order. The matches of one of its rounds are an
 *     epoch;
 *   - every process launches its part of an epoch as one NCCL group, one epoch after the other.
 *     So the oldest epoch that has not ended is on all GPUs that it concerns, is complete there,
 *     and ends.
 *   - a message without elements is done when it is matched;
 *   - a receive may accept any tag, and any count up to its own: it is launched with the count of
 *     the sender, which the reply holds.
 * Failures
 *   - the reply has the other end's count and type: a difference is a MISMATCH, found before
 *     anything moves;
 *   - the connection to the coordinator is lost: PEER_FAILED;
 *   - a message is not matched in time: TIMEOUT, with the peer's rank.
 */
#include "p2p.h"

#include "direct.h"
#include "group.h"
#include "issue.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MIN_SLOTS = 64, MAX_ASK_NS = 100000000 };
/* Requests of messages that are started one after the other are sent together. Between two receives
 * from the connection there is a pause: a system call costs more than a poll. */
enum { MAX_BURST = 16, PAUSE_NS = 2000 };

struct p2p_slot { /* one request that the coordinator has not answered */
    struct message *message;
    uint32_t next_free;
};

struct p2p {
    struct coord_client *coord; /* the connection of the handle for collectives */
    struct direct *direct;      /* NULL: all messages are matched before they are launched */
    struct message_queue queued;
    struct message_queue matched;   /* epoch after epoch */
    struct message_queue in_flight; /* one epoch */
    uint32_t epochs;                /* complete ones in `matched` */
    uint32_t nrequested;
    uint32_t nfresh;       /* requests and reports that have not been sent */
    uint32_t npolls;       /* calls of nccl_p2p_progress since the last of them was made */
    uint64_t exchanged_ns; /* when the connection was last used */
    uint64_t epochs_launched;
    struct event **after_evts;   /* ndevs: behind what is in flight; NULL = GPU not involved */
    struct p2p_slot *slots;      /* by message.id */
    uint32_t nslots, first_free; /* first_free == nslots: none is free */
};

/* ---- ids ---- */

static bool nccl_p2p_alloc_id(struct p2p *p, struct message *m)
{
    if (p->first_free == p->nslots) {
        uint32_t more = p->nslots ? 2 * p->nslots : MIN_SLOTS;
        struct p2p_slot *grown = realloc(p->slots, more * sizeof *grown);
        if (!grown)
            return false;
        for (uint32_t i = p->nslots; i < more; i++)
            grown[i] = (struct p2p_slot){.next_free = i + 1};
        p->slots = grown;
        p->nslots = more;
    }
    m->id = p->first_free;
    p->first_free = p->slots[m->id].next_free;
    p->slots[m->id].message = m;
    return true;
}

static void nccl_p2p_release_id(struct p2p *p, uint32_t id)
{
    p->slots[id] = (struct p2p_slot){.next_free = p->first_free};
    p->first_free = id;
}

/* ---- submitting ---- */

/* Consecutive messages of one stream share an event. */
static int nccl_p2p_record_caller(struct nccl_group *g, struct message *m,
                                  const struct message *before)
{
    const struct collrun_call *c = m->call, *b = before ? before->call : NULL;
    if (c->tag == COLLRUN_ENGINE_TAG) /* its data is complete */
        return COLLRUN_OK;
    if (b && before->before_evt && b->device == c->device && b->stream == c->stream) {
        m->before_evt = before->before_evt;
        return COLLRUN_OK;
    }
    m->before_evt = event_record(g, &g->devs[c->device], c->stream);
    m->owns_before_evt = m->before_evt != NULL;
    return m->before_evt ? COLLRUN_OK : COLLRUN_ERR_BACKEND;
}

static int nccl_p2p_enter(struct nccl_group *g, struct op *op, uint32_t i)
{
    struct p2p *p = g->p2p;
    struct message *m = &op->messages[i];
    m->op = op;
    m->call = &op->calls[i];
    m->state = MESSAGE_QUEUED;
    m->cross_dep = m->call->tag != COLLRUN_ENGINE_TAG && sched_has_dependents(g->context);
    if (p->direct && direct_takes(g, m->call))
        return direct_enter(p->direct, g, m);
    message_push(&p->queued, m);
    return COLLRUN_OK;
}

int nccl_p2p_submit(struct nccl_group *g, struct op *op)
{
    if (nccl_group_has_failed(g))
        return nccl_group_failure(g);
    int status = COLLRUN_OK;
    op->nopen = op->ncalls;
    for (uint32_t i = 0; status == COLLRUN_OK && i < op->ncalls; i++)
        status = nccl_p2p_enter(g, op, i);
    if (status == COLLRUN_OK && g->p2p->direct)
        direct_launch(g->p2p->direct, g);
    for (uint32_t i = 0; status == COLLRUN_OK && i < op->ncalls; i++)
        if (op->messages[i].state == MESSAGE_QUEUED)
            status = nccl_p2p_record_caller(g, &op->messages[i], i ? &op->messages[i] - 1 : NULL);
    return status == COLLRUN_OK && nccl_group_has_failed(g) ? nccl_group_failure(g) : status;
}

/* ---- requesting matches ---- */

/* Whether the coordinator could match one in place of the other. */
static bool nccl_p2p_compete(const struct collrun_call *a, const struct collrun_call *b)
{
    bool any = a->kind == COLLRUN_RECV_ANY || b->kind == COLLRUN_RECV_ANY;
    bool tags = a->tag == b->tag || a->tag == COLLRUN_ANY_TAG || b->tag == COLLRUN_ANY_TAG;
    return (a->kind == COLLRUN_SEND) == (b->kind == COLLRUN_SEND) && a->device == b->device &&
           tags && (any || (a->peer == b->peer && a->peer_device == b->peer_device));
}

/* The first queued message that may be requested and does not overtake an earlier one that
 * competes with it. */
static struct message **nccl_p2p_next_request(struct nccl_group *g)
{
    struct message **link = &g->p2p->queued.first;
    for (; *link; link = &(*link)->next) {
        const struct message *before = g->p2p->queued.first;
        while (before != *link && !nccl_p2p_compete(before->call, (*link)->call))
            before = before->next;
        if (before == *link && message_is_ready(g, *link))
            return link;
    }
    return NULL;
}

/* False: the coordinator is slow to read. */
static bool nccl_p2p_request(struct nccl_group *g, const struct message *m)
{
    const struct collrun_call *c = m->call;
    bool any = c->kind == COLLRUN_RECV_ANY;
    struct coord_match_req req = {
        .count = c->count,
        .id = m->id,
        .comm_rank = g->rank * g->ndevs + (uint32_t)c->device,
        .peer = any ? COLLRUN_ANY_SOURCE : (uint32_t)c->peer * g->ndevs + (uint32_t)c->peer_device,
        .tag = c->tag,
        .kind = (uint32_t)c->kind,
        .dtype = (uint32_t)c->dtype,
        .at_most = c->kind != COLLRUN_SEND && c->received};
    return coord_request_match(g->p2p->coord, &req);
}

static void nccl_p2p_request_all(struct nccl_group *g)
{
    struct p2p *p = g->p2p;
    struct message **link;
    while (p->queued.first && (link = nccl_p2p_next_request(g))) {
        struct message *m = *link;
        if (!nccl_p2p_alloc_id(p, m)) {
            nccl_group_fail(g, COLLRUN_ERR_NO_MEMORY, "out of memory");
            return;
        }
        if (!nccl_p2p_request(g, m)) {
            nccl_p2p_release_id(p, m->id);
            return;
        }
        message_unlink(&p->queued, link);
        m->state = MESSAGE_REQUESTED;
        p->nrequested++;
        p->nfresh++;
        p->npolls = 0;
    }
}

/* ---- taking replies ---- */

static void nccl_p2p_on_match(struct nccl_group *g, const struct coord_match_rep *rep)
{
    struct p2p *p = g->p2p;
    if (rep->direct && p->direct) {
        direct_on_match(p->direct, g, rep);
        return;
    }
    struct message *m = rep->id < p->nslots ? p->slots[rep->id].message : NULL;
    if (!m || rep->peer >= g->size) {
        nccl_group_fail(g, COLLRUN_ERR_BACKEND,
                        "protocol error: rank 0 matched an unknown message");
        return;
    }
    nccl_p2p_release_id(p, rep->id);
    p->nrequested--;
    bool sends = m->call->kind == COLLRUN_SEND;
    m->peer_rank = rep->peer;
    m->tag = sends ? m->call->tag : rep->tag;
    m->count = sends ? m->call->count : (size_t)rep->count;
    m->ends_epoch = rep->ends_epoch;
    m->state = MESSAGE_MATCHED;
    message_push(&p->matched, m);
    p->epochs += m->ends_epoch;
    if (!message_agrees(m->call, rep))
        message_mismatch(g, m->call, m->tag, rep);
}

/* Requests and reports that the coordinator has not answered. */
static uint64_t nccl_p2p_unanswered(const struct p2p *p)
{
    return p->nrequested + (p->direct ? direct_unanswered(p->direct) : 0);
}

/* When a message is started, all that are in flight are polled once. More polls mean that the
 * program waits: it is time to send. */
static bool nccl_p2p_may_exchange(const struct nccl_group *g)
{
    struct p2p *p = g->p2p;
    if (p->nfresh && p->nfresh < MAX_BURST && p->npolls++ <= nccl_p2p_unanswered(p))
        return false;
    uint64_t now = context_now_ns(g->context);
    if (!p->nfresh && now < p->exchanged_ns + PAUSE_NS)
        return false;
    return true;
}

static void nccl_p2p_exchange(struct nccl_group *g)
{
    struct coord_match_rep rep;
    int error = coord_poll(g->p2p->coord);
    g->p2p->nfresh = 0;
    g->p2p->exchanged_ns = context_now_ns(g->context);
    while (!nccl_group_has_failed(g) && coord_next_match(g->p2p->coord, &rep))
        nccl_p2p_on_match(g, &rep);
    if (error && !nccl_group_has_failed(g))
        nccl_group_fail_coordinator(g, error, "matches the messages");
}

/* ---- epochs ---- */

/* OK: the GPUs have passed the events behind the epoch in flight. */
static int nccl_p2p_query_in_flight(struct nccl_group *g)
{
    for (uint32_t i = 0; i < g->ndevs; i++) {
        const struct event *event = g->p2p->after_evts[i];
        cudaError_t error = event ? event_query(&g->context->lib.cuda, event) : cudaSuccess;
        if (error == cudaErrorNotReady)
            return COLLRUN_AGAIN;
        if (error != cudaSuccess)
            return nccl_group_fail_cuda(g, &g->devs[i], error, "a message");
    }
    return COLLRUN_OK;
}

static void nccl_p2p_release_events(struct nccl_group *g)
{
    for (uint32_t i = 0; i < g->ndevs; i++) {
        struct event **event = &g->p2p->after_evts[i];
        if (*event)
            atomic_fetch_sub(&g->devs[i].device->in_flight, 1);
        event_release(&g->devs[i], *event);
        *event = NULL;
    }
}

static void nccl_p2p_complete_in_flight(struct nccl_group *g)
{
    struct message_queue *q = &g->p2p->in_flight;
    if (!q->first || nccl_p2p_query_in_flight(g) != COLLRUN_OK)
        return;
    nccl_p2p_release_events(g);
    while (q->first)
        message_complete(g, message_unlink(q, &q->first));
}

/* Moves the next epoch into `in_flight`, and completes its messages without elements. */
static void nccl_p2p_begin_epoch(struct nccl_group *g)
{
    struct p2p *p = g->p2p;
    bool last = false;
    p->epochs--;
    while (!last) {
        struct message *m = message_unlink(&p->matched, &p->matched.first);
        last = m->ends_epoch;
        if (!m->count) {
            message_complete(g, m);
            continue;
        }
        m->state = MESSAGE_IN_FLIGHT;
        message_push(&p->in_flight, m);
    }
}

/* Whether the next epoch moves nothing. */
static bool nccl_p2p_is_next_empty(const struct p2p *p)
{
    const struct message *m = p->matched.first;
    while (!m->count && !m->ends_epoch)
        m = m->next;
    return !m->count;
}

static void nccl_p2p_launch_epoch(struct nccl_group *g)
{
    struct p2p *p = g->p2p;
    while (!p->in_flight.first && p->epochs &&
           (nccl_group_is_formed(g) || nccl_p2p_is_next_empty(p)))
        nccl_p2p_begin_epoch(g);
    if (!p->in_flight.first)
        return;
    pthread_mutex_lock(&g->lock);
    int status = nccl_group_has_failed(g) ? nccl_group_failure(g)
                                          : issue_messages(g, p->in_flight.first, p->after_evts);
    pthread_mutex_unlock(&g->lock);
    p->epochs_launched++;
    if (status != COLLRUN_OK)
        nccl_group_fail(g, status, "a message could not be launched");
}

/* False: there is nothing to send to the coordinator or to receive from it, or not yet. */
static bool nccl_p2p_must_exchange(struct nccl_group *g)
{
    struct p2p *p = g->p2p;
    if (p->direct && !nccl_group_has_failed(g)) {
        direct_progress(p->direct, g);
        uint32_t n = direct_report(p->direct, g);
        p->nfresh += n;
        p->npolls = n ? 0 : p->npolls;
        if (direct_take_wanted(p->direct))
            return true;
    }
    return nccl_p2p_unanswered(p) && nccl_p2p_may_exchange(g);
}

void nccl_p2p_progress(struct nccl_group *g)
{
    struct p2p *p = g->p2p;
    if (!p || nccl_group_has_failed(g))
        return;
    unsigned failed_peer = atomic_load(&g->status.failed_peer);
    nccl_p2p_request_all(g);
    if (!nccl_group_has_failed(g) && (nccl_p2p_must_exchange(g) || failed_peer))
        nccl_p2p_exchange(g);
    if (failed_peer)
        nccl_group_fail_peer(g, failed_peer - 1);
    if (!nccl_group_has_failed(g))
        nccl_p2p_complete_in_flight(g);
    if (!nccl_group_has_failed(g) && !p->in_flight.first)
        nccl_p2p_launch_epoch(g);
}

uint64_t nccl_p2p_launches(const struct nccl_group *g)
{
    const struct p2p *p = g->p2p;
    return p ? p->epochs_launched + (p->direct ? direct_launches(p->direct) : 0) : 0;
}

bool nccl_p2p_is_direct(const struct nccl_group *g)
{
    return g->p2p && g->p2p->direct;
}

void nccl_p2p_wait(struct nccl_group *g, uint64_t ns)
{
    if (!g->p2p || g->p2p->in_flight.first || !g->p2p->nrequested)
        context_sleep_ns(ns);
    else
        coord_wait(g->p2p->coord, ns);
}

/* ---- questions to the coordinator ---- */

int nccl_probe_message(void *group, uint32_t source, uint32_t tag,
                       struct collrun_envelope *envelope, uint32_t *from)
{
    struct nccl_group *g = group;
    const struct coord_question question = {
        .comm_rank = g->rank * g->ndevs,
        .peer = source == COLLRUN_ANY_SOURCE ? source : source * g->ndevs,
        .tag = tag};
    struct coord_answer answer;
    if (nccl_group_has_failed(g))
        return nccl_group_failure(g);
    if (!coord_ask(g->p2p->coord, COORD_PROBE, &question, 1,
                   context_now_ns(g->context) + MAX_ASK_NS, &answer)) {
        int error = coord_poll(g->p2p->coord);
        return error ? nccl_group_fail_coordinator(g, error, "matches the messages")
                     : COLLRUN_AGAIN;
    }
    if (!answer.yes)
        return COLLRUN_AGAIN;
    *envelope =
        (struct collrun_envelope){.count = answer.count, .tag = answer.tag, .dtype = answer.dtype};
    *from = answer.peer / g->ndevs;
    return COLLRUN_OK;
}

/* A direct message is paired with the one other end of its number: no receive can choose among
 * several of them, and none is known to exist before it is received. */
int nccl_check_receive(void *group, const struct collrun_call *call, int probes)
{
    const struct nccl_group *g = group;
    const struct collrun_services *s = g->services;
    struct collrun_call of_tag_0 = *call;
    of_tag_0.tag = 0;
    bool any = call->kind == COLLRUN_RECV_ANY, any_tag = call->tag == COLLRUN_ANY_TAG;
    if (!nccl_p2p_is_direct(g) || (call->tag && !any_tag) || (!any && !direct_takes(g, &of_tag_0)))
        return COLLRUN_OK;
    const char *what = probes           ? "be probed for"
                       : any            ? "be received from any source"
                       : any_tag        ? "be received with COLLRUN_ANY_TAG"
                       : call->received ? "be shorter than the receive"
                                        : NULL;
    return what ? s->fail(s->ctx, COLLRUN_ERR_UNSUPPORTED,
                          "messages with tag 0 are direct in this group, and cannot %s; use "
                          "another tag, or the option `messages: matched`",
                          what)
                : COLLRUN_OK;
}

static int nccl_p2p_withdraw_requested(struct op *op, struct coord_question *questions)
{
    struct nccl_group *g = op->group;
    struct coord_answer answer;
    uint32_t n = 0;
    for (uint32_t i = 0; i < op->ncalls; i++)
        if (op->messages[i].state == MESSAGE_REQUESTED)
            questions[n++] = (struct coord_question){.comm_rank = g->rank * g->ndevs +
                                                                  (uint32_t)op->calls[i].device,
                                                     .id = op->messages[i].id,
                                                     .more = 1};
    if (n == 0)
        return COLLRUN_OK;
    questions[n - 1].more = 0;
    if (coord_ask(g->p2p->coord, COORD_WITHDRAW, questions, n, op->deadline_ns, &answer))
        return answer.yes ? COLLRUN_OK : COLLRUN_AGAIN;
    int error = coord_poll(g->p2p->coord);
    return nccl_group_fail_coordinator(g, error ? error : ETIMEDOUT, "matches the messages");
}

int nccl_p2p_withdraw(struct op *op)
{
    struct nccl_group *g = op->group;
    struct p2p *p = g->p2p;
    for (uint32_t i = 0; i < op->ncalls; i++)
        if (op->messages[i].state > MESSAGE_REQUESTED || op->messages[i].direct)
            return COLLRUN_AGAIN;
    struct coord_question *questions = calloc((size_t)op->ncalls + 1, sizeof *questions);
    if (!questions)
        return nccl_group_out_of_memory(g);
    int status = nccl_p2p_withdraw_requested(op, questions);
    free(questions);
    for (uint32_t i = 0; status == COLLRUN_OK && i < op->ncalls; i++)
        if (op->messages[i].state == MESSAGE_REQUESTED) {
            nccl_p2p_release_id(p, op->messages[i].id);
            p->nrequested--;
            op->messages[i].state = MESSAGE_QUEUED; /* it is in no queue */
        }
    return status;
}

/* ---- the end of an op ---- */

bool nccl_p2p_is_busy(const struct nccl_group *g)
{
    const struct p2p *p = g->p2p;
    return p && (comm_is_busy(g) || (p->direct && direct_is_busy(p->direct)));
}

void nccl_p2p_give_up(struct nccl_group *g)
{
    if (g->p2p)
        nccl_p2p_release_events(g);
}

void nccl_p2p_forget(struct op *op)
{
    struct nccl_group *g = op->group;
    struct p2p *p = op->nopen ? g->p2p : NULL;
    for (uint32_t i = 0; op->messages && i < op->ncalls; i++) {
        struct message *m = &op->messages[i];
        if (m->owns_before_evt)
            event_release(&g->devs[m->call->device], m->before_evt);
        if (p && m->state == MESSAGE_REQUESTED)
            p->slots[m->id].message = NULL; /* the group has failed: ids are not reused */
    }
    if (p) {
        direct_forget(g, op);
        message_drop_all(&p->queued, op);
        message_drop_all(&p->matched, op);
        message_drop_all(&p->in_flight, op);
    }
}

int nccl_p2p_order(const struct op *op, uint32_t device, cudaStream_t stream, cudaError_t *error)
{
    struct nccl_group *g = op->group;
    bool waits = false;
    for (uint32_t i = 0; i < op->ncalls; i++) {
        struct message *m = &op->messages[i];
        bool orders = m->direct && m->call->device == (int)device && m->state != MESSAGE_DONE;
        if (m->state < MESSAGE_IN_FLIGHT ||
            (orders && direct_order(g, m, stream, error) == COLLRUN_AGAIN))
            return COLLRUN_AGAIN;
        if (*error != cudaSuccess)
            return COLLRUN_OK;
        waits = waits ||
                (!m->direct && m->state == MESSAGE_IN_FLIGHT && m->call->device == (int)device);
    }
    if (waits)
        *error =
            g->context->lib.cuda.cudaStreamWaitEvent(stream, g->p2p->after_evts[device]->handle, 0);
    return COLLRUN_OK;
}

/* ---- life ---- */

int nccl_p2p_new(struct nccl_group *g, struct coord_client *coord)
{
    struct p2p *p = calloc(1, sizeof *p);
    if (!p)
        return nccl_group_out_of_memory(g);
    p->after_evts = calloc(g->ndevs, sizeof(struct event *));
    if (!p->after_evts) {
        free(p);
        return nccl_group_out_of_memory(g);
    }
    p->coord = coord;
    message_queue_init(&p->queued);
    message_queue_init(&p->matched);
    message_queue_init(&p->in_flight);
    g->p2p = p;
    return direct_new(g, coord, &p->direct);
}

void nccl_p2p_close(struct nccl_group *g)
{
    if (!g->p2p)
        return;
    nccl_p2p_release_events(g);
    if (g->p2p->direct) { /* the last reports */
        direct_report(g->p2p->direct, g);
        coord_poll(g->p2p->coord);
    }
    direct_comm_end_services(g);
    nccl_group_note_closed(g);
}

void nccl_p2p_free(struct nccl_group *g)
{
    struct p2p *p = g->p2p;
    if (!p)
        return;
    direct_free(p->direct);
    free(p->after_evts);
    free(p->slots);
    free(p);
    g->p2p = NULL;
}

/* ---- the error message of an op that timed out: which ranks it waits for, and what is open ----
 */

enum { MAX_EXPLAINED = 3, MAX_MISSING = 32 };

/* Adds a rank to a sorted set. */
static uint32_t nccl_p2p_add_missing(uint32_t *missing, uint32_t n, uint32_t rank)
{
    uint32_t at = 0;
    while (at < n && missing[at] < rank)
        at++;
    if ((at < n && missing[at] == rank) || n == MAX_MISSING)
        return n;
    memmove(&missing[at + 1], &missing[at], (n - at) * sizeof *missing);
    missing[at] = rank;
    return n + 1;
}

/* "GPU 1 of rank 2 did not send with tag 7" */
static void nccl_p2p_unmatched_text(const struct nccl_group *g, const struct collrun_call *c,
                                    char *out, size_t len)
{
    if (c->tag == COLLRUN_ENGINE_TAG) {
        snprintf(out, len, "rank %d did not reach this step of the operation", c->peer);
        return;
    }
    const char *verb = c->kind == COLLRUN_SEND ? "receive" : "send";
    char tag[32] = "";
    if (c->tag && c->tag != COLLRUN_ANY_TAG)
        snprintf(tag, sizeof tag, " with tag %u", c->tag);
    if (c->kind == COLLRUN_RECV_ANY)
        snprintf(out, len, "no rank sent%s", tag);
    else if (g->ndevs == 1)
        snprintf(out, len, "rank %d did not %s%s", c->peer, verb, tag);
    else
        snprintf(out, len, "GPU %d of rank %d did not %s%s", c->peer_device, c->peer, verb, tag);
}

/* Whether the other end is not known. That of a direct message that waits for those of its
 * direction before it is not known either. */
static bool nccl_p2p_is_unmatched(const struct message *m)
{
    if (m->direct)
        return m->state != MESSAGE_DONE && !m->cross_dep && direct_part(m) && !direct_is_matched(m);
    return m->state == MESSAGE_REQUESTED;
}

static void nccl_p2p_open_text(const struct message *m, char *out, size_t len)
{
    const struct nccl_group *g = m->op->group;
    if (nccl_p2p_is_unmatched(m))
        nccl_p2p_unmatched_text(g, m->call, out, len);
    else if (m->direct && !direct_part(m))
        snprintf(out, len, "NCCL has not connected the GPUs of this rank and of rank %d",
                 m->call->peer);
    else if (m->state == MESSAGE_QUEUED)
        snprintf(out, len,
                 "a message could not start: its stream waits for an unfinished collective");
    else
        snprintf(out, len, "the message with rank %u was matched and did not arrive%s",
                 m->peer_rank / g->ndevs,
                 m->direct || nccl_group_is_formed(g)
                     ? ""
                     : ": NCCL has not connected the GPUs of the group");
}

/* What each unfinished message waits for; the first few. */
static void nccl_p2p_details_text(const struct op *op, char *out, size_t len)
{
    unsigned open = 0;
    size_t at = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < op->ncalls; i++) {
        char text[160];
        if (op->messages[i].state == MESSAGE_DONE || ++open > MAX_EXPLAINED)
            continue;
        nccl_p2p_open_text(&op->messages[i], text, sizeof text);
        at += (size_t)snprintf(out + at, len - at, "%s%s", open > 1 ? "; " : "", text);
        at = at < len ? at : len - 1;
    }
    if (open > MAX_EXPLAINED)
        snprintf(out + at, len - at, "; and %u more", open - MAX_EXPLAINED);
}

void nccl_p2p_timeout_text(const struct op *op, char *out, size_t len)
{
    const struct nccl_group *g = op->group;
    const struct collrun_services *s = g->services;
    uint32_t missing[MAX_MISSING], nmissing = 0;
    bool unreceived = false;
    char ranks[200], details[300];
    for (uint32_t i = 0; i < op->ncalls; i++) {
        const struct message *m = &op->messages[i];
        if (!nccl_p2p_is_unmatched(m))
            continue;
        if (m->call->kind != COLLRUN_RECV_ANY)
            nmissing = nccl_p2p_add_missing(missing, nmissing, (uint32_t)m->call->peer);
        bool sends = m->call->kind == COLLRUN_SEND && m->call->tag != COLLRUN_ENGINE_TAG;
        unreceived = unreceived || sends;
    }
    s->timeout_text(s->ctx, g->rank, missing, nmissing, op->timeout_ns, ranks, sizeof ranks);
    nccl_p2p_details_text(op, details, sizeof details);
    snprintf(out, len, "%s: %s%s", ranks, details,
             unreceived ? "; if both ranks send before they receive, use collrun_sendrecv or "
                          "collrun_start_many"
                        : "");
}
