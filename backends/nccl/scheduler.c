/* SPDX-License-Identifier: Apache-2.0
 *
 * When a collective may be launched.
 *
 * Kernels of a GPU start in the order in which they were launched. A kernel that cannot start yet
 * blocks all later kernels of any group. So a kernel is launched only if it is certain to start, in
 * every continuation of this rank's program. This is the case
 *
 *   - when its communicator is formed and idle, and the collective has no cross-group dependency:
 * its caller's stream does not wait for an unfinished collective of another group. Then it only
 * waits for the kernels before it to start;
 *   - when it is stacked, that is launched behind an unfinished collective of its communicator, and
 *     all ranks of the group have committed to it. A commitment is the guarantee to launch a
 *     collective, and all before it, on no other condition than that those before it end. A rank
 *     has open commitments in one group at a time, so it stacks in that group only.
 *
 * Proof that stacked kernels end: take the oldest committed collective that has not ended. It is
 * launched on all ranks, and no kernel before it on any GPU is stacked. So it starts everywhere,
 * and ends. Commitments only serve speed: a collective that some rank does not commit to is
 * launched when its communicator is idle.
 *
 * Messages are launched when both ends are known, neither has a cross-group dependency, and the
 * messages before them have ended (p2p.c); direct ones when they have none and are certain to start
 * (direct.c). So operations of different groups, and messages, may be
 * started in any order on any rank, from any threads. The GPU needs room for one kernel of every
 * communicator.
 */
#include "scheduler.h"

#include "group.h"

void sched_init(struct sched *s)
{
    *s = (struct sched){0};
    s->end = &s->in_flight;
    pthread_mutex_init(&s->lock, NULL);
}

void sched_fini(struct sched *s)
{
    pthread_mutex_destroy(&s->lock);
}

/* ---- collectives in flight; with the lock ---- */

static void sched_mark_launched(struct sched *s, struct op *op)
{
    struct sched_queue *q = &op->group->sched;
    *s->end = op;
    s->end = &op->sched.next;
    op->sched.launched = true;
    q->launched++;
    q->in_flight++;
    q->multi_kernel = op->sched.class == SCHED_MULTI_KERNEL;
}

static void sched_mark_complete(struct sched *s, struct op *op)
{
    struct sched_queue *q = &op->group->sched;
    struct op **link = &s->in_flight;
    while (*link != op)
        link = &(*link)->sched.next;
    *link = op->sched.next;
    if (!op->sched.next)
        s->end = link;
    op->sched.complete = true;
    q->in_flight--;
    q->multi_kernel = false;
    q->stream_waits -= op->sched.stream_waits;
    s->stream_waits -= op->sched.stream_waits;
}

static bool sched_is_passed(const struct op *op)
{
    const struct nccl_group *g = op->group;
    if (!atomic_load_explicit(&op->events_final, memory_order_acquire))
        return false;
    for (uint32_t i = 0; i < g->ndevs; i++)
        if (op->after_evts[i] &&
            event_query(&g->context->lib.cuda, op->after_evts[i]) != cudaSuccess)
            return false;
    return true;
}

/* Whether what a stream holds now may wait for a collective in flight, not counting those of queue
 * `q`, if that is given, or for a direct message. The owners of complete collectives may poll late,
 * so this polls them. */
static bool sched_may_wait(struct sched *s, const struct sched_queue *q)
{
    unsigned own = q ? q->stream_waits : 0;
    struct op *op = s->in_flight, *next;
    for (; op && s->stream_waits != own; op = next) {
        next = op->sched.next;
        if (op->sched.stream_waits && &op->group->sched != q && sched_is_passed(op))
            sched_mark_complete(s, op);
    }
    return s->message_waits || s->stream_waits != (q ? q->stream_waits : 0);
}

/* ---- launching; with the lock ---- */

static void sched_commit(struct sched *s, struct op *op)
{
    struct sched_queue *q = &op->group->sched;
    uint64_t next = q->committed > q->launched ? q->committed : q->launched;
    if (op->sched.committed || op->sched.cross_dep || op->sched.seq != next ||
        (s->commitments && s->committed_queue != q))
        return;
    op->sched.committed = true;
    q->committed = op->sched.seq + 1;
    s->committed_queue = q;
    s->commitments++;
}

static bool sched_is_committed_by_all(const struct op *op)
{
    return op->sched.committed && op->sched.seq < op->group->sched.ready;
}

static bool sched_may_launch(struct sched *s, struct op *op)
{
    const struct sched_queue *q = &op->group->sched;
    if (!nccl_group_is_formed(op->group))
        return false;
    op->sched.cross_dep = op->sched.cross_dep && sched_may_wait(s, q);
    if (op->sched.seq != q->launched || q->in_flight || op->sched.cross_dep) {
        sched_commit(s, op);
        if (op->sched.seq != q->launched || q->multi_kernel ||
            op->sched.class != SCHED_ONE_KERNEL || !sched_is_committed_by_all(op))
            return false;
    }
    sched_mark_launched(s, op);
    return true;
}

/* ---- the interface ---- */

bool sched_submit(struct op *op)
{
    struct sched *s = &op->group->context->sched;
    struct sched_queue *q = &op->group->sched;
    pthread_mutex_lock(&s->lock);
    op->sched.seq = q->submitted++;
    op->sched.cross_dep = s->message_waits || s->stream_waits != q->stream_waits;
    bool now = sched_may_launch(s, op);
    pthread_mutex_unlock(&s->lock);
    return now;
}

bool sched_try_launch(struct op *op)
{
    struct sched *s = &op->group->context->sched;
    pthread_mutex_lock(&s->lock);
    bool now = sched_may_launch(s, op);
    pthread_mutex_unlock(&s->lock);
    return now;
}

uint64_t sched_committed(struct nccl_group *g)
{
    struct sched *s = &g->context->sched;
    pthread_mutex_lock(&s->lock);
    uint64_t committed = g->sched.committed;
    pthread_mutex_unlock(&s->lock);
    return committed;
}

void sched_set_ready(struct nccl_group *g, uint64_t ready)
{
    struct sched *s = &g->context->sched;
    pthread_mutex_lock(&s->lock);
    if (ready > g->sched.ready)
        g->sched.ready = ready;
    pthread_mutex_unlock(&s->lock);
}

void sched_pin(struct op *op)
{
    struct sched *s = &op->group->context->sched;
    pthread_mutex_lock(&s->lock);
    if (!op->sched.complete && !op->sched.stream_waits) {
        op->sched.stream_waits = true;
        op->group->sched.stream_waits++;
        s->stream_waits++;
    }
    pthread_mutex_unlock(&s->lock);
}

void sched_pin_message(struct context *context)
{
    pthread_mutex_lock(&context->sched.lock);
    context->sched.message_waits++;
    pthread_mutex_unlock(&context->sched.lock);
}

void sched_unpin_message(struct context *context)
{
    pthread_mutex_lock(&context->sched.lock);
    context->sched.message_waits--;
    pthread_mutex_unlock(&context->sched.lock);
}

bool sched_has_dependents(struct context *context)
{
    struct sched *s = &context->sched;
    pthread_mutex_lock(&s->lock);
    bool may_wait = sched_may_wait(s, NULL);
    pthread_mutex_unlock(&s->lock);
    return may_wait;
}

void sched_retire(struct op *op)
{
    struct sched *s = &op->group->context->sched;
    if (op->sched.class == SCHED_NONE)
        return;
    pthread_mutex_lock(&s->lock);
    s->commitments -= op->sched.committed;
    if (op->sched.launched && !op->sched.complete)
        sched_mark_complete(s, op);
    pthread_mutex_unlock(&s->lock);
}
