/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts that requests, received messages and formations need. A slot of a group that was closed
 * may belong to another group by now: its generation says so.
 */
#include "group/thread_record.h"

#include "base/names.h"

void thread_record_refuse(struct record_writer *w)
{
    atomic_fetch_or_explicit(&w->head->lost, RECORD_LOST_THREADS, memory_order_relaxed);
}

/* 0: none, or one that never ends. */
uint64_t thread_record_ticks_of(const struct collrun_group *g, uint64_t timeout_ns)
{
    const struct record_head *head = g->process->record;
    if (!head || !timeout_ns || timeout_ns > UINT64_MAX / 4 || !head->ticks_mult)
        return 0;
    const double ticks = (double)timeout_ns * 4294967296.0 / (double)head->ticks_mult;
    return ticks < (double)(UINT64_MAX / 4) ? (uint64_t)ticks : 0;
}

/* ---- messages ---- */

static bool thread_record_is_receive(enum collrun_kind kind)
{
    return kind == COLLRUN_RECV || kind == COLLRUN_RECV_ANY;
}

/* `source`: of a receive from any rank; `tag`: of one with any tag. A rank that the backend has not
 * named is not known: the message stays on the way. */
static void thread_record_take(const struct collrun_group *g, struct record_thread *t,
                               const struct collrun_call *call, int source, uint32_t tag)
{
    const struct record_queue *q = &g->calls.record[GROUP_MESSAGES];
    const int from = call->kind == COLLRUN_RECV_ANY ? source : call->peer;
    struct record_part part = {.group = q->group,
                               .peer = thread_record_world_rank(g, from),
                               .tag = call->tag == COLLRUN_ANY_TAG ? tag : call->tag};
    if (part.group && part.group->generation == q->generation && part.peer >= 0)
        record_take(g->process->writer, t, &part);
}

/* Messages of a group with several backends are not ordered: see group_open_records. */
struct record_thread *thread_record_probe(const struct collrun_group *g,
                                          const struct collrun_call *call, uint64_t number,
                                          uint64_t site)
{
    struct record_writer *w = g->process->writer;
    const struct record_group *slot = g->calls.record[GROUP_MESSAGES].group;
    const struct record_part part = {.group = slot,
                                     .peer = thread_record_world_rank(g, call->peer),
                                     .tag = call->tag,
                                     .kind = RECORD_PROBE};
    if (!slot)
        return thread_record_enter_other(w);
    struct record_thread *t = thread_record_enter(w);
    if (!t)
        return NULL;
    const struct record_at at = thread_record_at(g, call, record_ticks(w->head), site, number);
    record_begin(w, t, &part);
    record_inside(t, RECORD_ALL, &at);
    return t;
}

/* A receive that has failed may have been matched, unless its group has failed with it. */
void thread_record_messages_end(const struct collrun_group *g, struct record_thread *t,
                                const struct collrun_call *calls, uint32_t n, int status)
{
    if (!t)
        return;
    record_leave(t);
    for (uint32_t i = 0; status == COLLRUN_OK && i < n; i++)
        if (thread_record_is_receive(calls[i].kind))
            thread_record_take(g, t, &calls[i], calls[i].source ? *calls[i].source : -1,
                               calls[i].received_tag ? *calls[i].received_tag : 0);
    if (status != COLLRUN_OK && !group_has_failed(g))
        record_writer_abandon(g->process->writer, t);
    record_outside(t);
}

/* ---- requests ---- */

static struct record_part thread_record_collective_request(const struct collrun_request *r,
                                                           uint32_t i)
{
    const struct collrun_group *g = r->group;
    const struct collrun_call *call = &r->calls[i];
    const struct record_queue *q = &g->calls.record[GROUP_COLLECTIVES];
    const struct record_entry *e =
        collrun_kind_is_vector(call->kind) && r->record != RECORD_QUEUE_NONE
            ? record_queue_find(q, r->record + i)
            : NULL;
    return thread_record_collective_part(g, call, e ? e->tag : RECORD_NO_COUNTS, r->number + i);
}

/* When the request was recorded; the clock is not read twice, unless there are no entries. */
static uint64_t thread_record_since(const struct collrun_request *r)
{
    const struct collrun_group *g = r->group;
    const enum group_queue which = group_queue_of(r->calls->kind);
    const struct record_entry *e = record_queue_find(&g->calls.record[which], r->record);
    return e ? e->called : record_ticks(g->process->record);
}

struct record_thread *thread_record_post(struct collrun_request *r, uint64_t site)
{
    const struct collrun_group *g = r->group;
    struct record_writer *w = g->process->writer;
    struct record_thread *t = thread_record_enter(w);
    if (!t)
        return NULL;
    if (kind_is_collective(r->calls->kind)) {
        struct record_group *slot = g->calls.record[GROUP_COLLECTIVES].group;
        if (slot)
            record_call(t, slot, r->number + r->nrecord - 1);
        return t;
    }
    const struct record_at at = {
        .since = thread_record_since(r), .site = site, .number = r->number};
    for (uint32_t i = 0; i < r->nrecord; i++) {
        const struct record_part part = thread_record_message_part(g, &r->calls[i]);
        r->posted[i].handle = part.group ? record_post(w, t, &part, &at) : 0;
    }
    return t;
}

void thread_record_drop(struct collrun_request *r)
{
    for (uint32_t i = 0; r->posted && i < r->nrecord; i++) {
        if (r->posted[i].handle)
            record_close(r->group->process->writer, r->posted[i].handle);
        r->posted[i].handle = 0;
    }
}

/* Each is an operation of the call, as long as there is room, else a request from now on. */
static void thread_record_await_collectives(struct record_writer *w, struct record_thread *t,
                                            const struct collrun_request *r)
{
    for (uint32_t i = 0; r->posted && i < r->nrecord; i++) {
        const struct record_part part = thread_record_collective_request(r, i);
        if (!part.group || record_wait_collective(w, t, &part))
            continue;
        const struct record_at at = {.since = thread_record_since(r)};
        if (!r->posted[i].handle)
            r->posted[i].handle = record_open(w, t, &part, &at);
        record_wait(w, t, r->posted[i].handle);
    }
}

void thread_record_await(struct record_writer *w, struct record_thread *t,
                         const struct collrun_request *r)
{
    if (t && r->ncalls && r->group && kind_is_collective(r->calls->kind)) {
        thread_record_await_collectives(w, t, r);
        return;
    }
    for (uint32_t i = 0; t && r->posted && i < r->nrecord; i++)
        record_wait(w, t, r->posted[i].handle);
}

void thread_record_inside(struct record_thread *t, enum record_mode mode,
                          const struct collrun_request *r, uint64_t site)
{
    const struct collrun_group *g = r->group;
    if (!t)
        return;
    if (!g || !r->ncalls) {
        record_inside(t, mode, &(struct record_at){.site = site});
        return;
    }
    const struct record_at at = thread_record_at(g, r->calls, thread_record_since(r), site, 0);
    record_inside(t, mode, &at);
}

static void thread_record_complete_one(struct record_writer *w, struct record_thread *t,
                                       const struct collrun_request *r, uint32_t i, int status)
{
    struct request_op *op = &r->posted[i];
    const bool receive = r->ncalls && thread_record_is_receive(r->calls[i].kind);
    if (receive && status == COLLRUN_OK)
        thread_record_take(r->group, t, &r->calls[i], op->source, op->tag);
    if (receive && status != COLLRUN_OK && !group_has_failed(r->group))
        record_give_up(w, op->handle, RECORD_ABANDONED);
    else
        record_close(w, op->handle);
    op->handle = 0;
}

void thread_record_complete(struct record_writer *w, struct record_thread *t,
                            struct collrun_request *r)
{
    const int status = atomic_load_explicit(&r->status, memory_order_acquire);
    for (uint32_t i = 0; t && r->posted && i < r->nrecord; i++)
        thread_record_complete_one(w, t, r, i, status);
}

struct record_thread *thread_record_withdraw(struct collrun_request *r)
{
    struct record_writer *w = r->group->process->writer;
    struct record_thread *t = thread_record_enter(w);
    for (uint32_t i = 0; t && r->posted && i < r->nrecord; i++)
        record_give_up(w, r->posted[i].handle, RECORD_WITHDRAWN);
    if (t)
        record_inside(t, RECORD_NONE, &(struct record_at){.since = record_ticks(w->head)});
    return t;
}

void thread_record_withdrawn(struct record_thread *t, struct collrun_request *r, int status)
{
    if (!t)
        return;
    record_leave(t);
    if (status == COLLRUN_OK)
        thread_record_drop(r);
    record_outside(t);
}

/* ---- formations ---- */

static void thread_record_form_open(struct process *p, const struct thread_record_form *form,
                                    struct record_queue *slot)
{
    const int rank = desc_ranks_find(form->members, p->rank);
    const struct record_queue_info info = {.name = form->name,
                                           .scope = form->name,
                                           .members = form->members->n,
                                           .rank = rank >= 0 ? (uint32_t)rank : 0,
                                           .id = form->id,
                                           .world = form->members->items,
                                           .forming = true};
    record_queue_open(slot, p->writer ? p->record : NULL, &info);
}

static struct record_part thread_record_form_part(const struct record_queue *slot)
{
    return (struct record_part){.group = slot->group, .peer = RECORD_ANY_RANK, .kind = RECORD_FORM};
}

struct record_thread *thread_record_form(struct process *p, const struct thread_record_form *form,
                                         struct record_queue *slot)
{
    *slot = (struct record_queue){0};
    if (!form->id)
        return thread_record_enter_other(p->writer);
    struct record_thread *t = thread_record_enter(p->writer);
    if (!t)
        return NULL;
    thread_record_form_open(p, form, slot);
    const struct record_part part = thread_record_form_part(slot);
    if (slot->group)
        record_begin(p->writer, t, &part);
    record_inside(t, slot->group ? RECORD_ALL : RECORD_NONE,
                  &(struct record_at){.since = record_ticks(p->record)});
    return t;
}

void thread_record_form_end(struct record_thread *t, struct record_queue *slot)
{
    if (!t)
        return;
    record_leave(t);
    record_queue_close(slot);
    record_outside(t);
}

uint32_t thread_record_form_post(struct process *p, const struct thread_record_form *form,
                                 struct record_queue *slot)
{
    *slot = (struct record_queue){0};
    struct record_thread *t = thread_record_enter(p->writer);
    uint32_t handle = 0;
    if (!t)
        return 0;
    thread_record_form_open(p, form, slot);
    const struct record_part part = thread_record_form_part(slot);
    if (slot->group)
        handle =
            record_post(p->writer, t, &part, &(struct record_at){.since = record_ticks(p->record)});
    thread_record_pass(t);
    return handle;
}
