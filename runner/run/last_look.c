/* SPDX-License-Identifier: Apache-2.0 */
#include "run/last_look.h"

#include "run/hosts.h"

#include <stdlib.h>
#include <string.h>

static void last_look_end(struct last_look *l)
{
    for (uint32_t i = 0; i < l->n; i++)
        rank_set_doing(&l->run->ranks[l->ranks[i]]);
    l->step = LAST_LOOK_NONE;
    loop_timer_clear(l->run->loop, &l->timer);
    l->done(l->ctx);
}

/* ---- the stacks ---- */

/* No rank is waited for: the first ranks that have not finished are chosen. */
static void last_look_choose_unfinished(struct last_look *l)
{
    for (uint32_t i = 0; i < l->run->desc->nranks && l->n < STALL_REPORT_STACKS; i++) {
        const struct rank_state *r = &l->run->ranks[i];
        if (r->pid && !r->exited && r->phase != PHASE_DONE && r->phase != PHASE_IDLE)
            l->ranks[l->n++] = i;
    }
}

/* A rank that has exceeded the time-out of its workload may be the one that hangs. */
static void last_look_choose(struct last_look *l)
{
    struct stall s;
    char inside[192];
    l->n = 0;
    stall_watch_phases(&l->stalls->watch, l->run->ranks, now_ns());
    if (stall_find(&l->stalls->watch, l->run->ranks, now_ns(), 0, &s))
        l->n = stall_report_ranks(&s, l->ranks);
    stall_fini(&s);
    for (uint32_t i = 0; i < l->run->desc->nranks && l->n < STALL_REPORT_STACKS; i++) {
        const struct rank_state *r = &l->run->ranks[i];
        if (r->failed && !r->exited && r->failure.code == COLLRUN_ERR_TIMEOUT &&
            r->subject == WIRE_SUBJECT_WORKLOAD && !stall_has(l->ranks, l->n, i) &&
            !snapshot_inside(&r->snapshot, inside, sizeof inside))
            l->ranks[l->n++] = i;
    }
    if (!l->n)
        last_look_choose_unfinished(l);
}

static void last_look_take_stacks(struct last_look *l)
{
    struct buf b;
    last_look_choose(l);
    if (!l->n) {
        last_look_end(l);
        return;
    }
    for (uint32_t i = 0; i < l->run->desc->nranks; i++)
        rank_forget_look(&l->run->ranks[i]);
    buf_init(&b);
    buf_put_u32(&b, l->n);
    for (uint32_t i = 0; i < l->n; i++) {
        buf_put_u32(&b, l->ranks[i]);
        buf_put_u8(&b, 1);  /* its threads */
        buf_put_u32(&b, 0); /* no addresses of calls */
    }
    hosts_send_all(l->run, WIRE_READ_STACKS, &b);
    buf_fini(&b);
    l->step = LAST_LOOK_STACKS;
    loop_timer_set(l->run->loop, &l->timer, LAST_LOOK_STACKS_NS);
}

void last_look_on_stacks(struct last_look *l)
{
    uint32_t answers = 0;
    for (uint32_t i = 0; i < l->n; i++) {
        const struct rank_state *r = &l->run->ranks[l->ranks[i]];
        answers += r->stacks.received || r->exited;
    }
    if (l->step == LAST_LOOK_STACKS && answers == l->n)
        last_look_end(l);
}

/* ---- STATUS ---- */

void last_look_on_status(struct last_look *l, uint32_t rank)
{
    if (l->step != LAST_LOOK_STATUS || !l->asked[rank])
        return;
    l->asked[rank] = false;
    if (--l->nasked == 0)
        last_look_take_stacks(l);
}

static void last_look_on_timer(struct loop_timer *t)
{
    struct last_look *l = t->owner;
    if (l->step == LAST_LOOK_STATUS)
        last_look_take_stacks(l);
    else
        last_look_end(l);
}

void last_look_begin(struct last_look *l, void (*done)(void *ctx), void *ctx)
{
    if (!l->asked)
        l->asked = arena_calloc(&l->run->arena, l->run->desc->nranks, sizeof *l->asked);
    if (l->step != LAST_LOOK_NONE) {
        done(ctx);
        return;
    }
    l->done = done;
    l->ctx = ctx;
    l->step = LAST_LOOK_STATUS;
    l->n = l->nasked = 0;
    l->timer = (struct loop_timer){.fired = last_look_on_timer, .owner = l};
    for (uint32_t i = 0; i < l->run->desc->nranks; i++) {
        l->asked[i] = l->run->ranks[i].pid && !l->run->ranks[i].exited;
        l->nasked += l->asked[i];
    }
    hosts_send_all(l->run, WIRE_QUERY, NULL);
    loop_timer_set(l->run->loop, &l->timer, l->nasked ? LAST_LOOK_ANSWER_NS : 0);
}

void last_look_cancel(struct last_look *l)
{
    if (l->step != LAST_LOOK_NONE)
        loop_timer_clear(l->run->loop, &l->timer);
    l->step = LAST_LOOK_NONE;
}
