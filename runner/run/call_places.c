/* SPDX-License-Identifier: Apache-2.0 */
#include "run/call_places.h"

#include "base/debug.h"

static void call_places_end(struct call_places *p)
{
    call_places_cancel(p);
    p->done(p->ctx);
}

static void call_places_on_timer(struct loop_timer *t)
{
    debug_log(DEBUG_PROOF, "not all places of calls have arrived in time");
    call_places_end(t->owner);
}

void call_places_ask(struct call_places *p, const struct stacks_call *calls, uint32_t n,
                     void (*done)(void *ctx), void *ctx)
{
    struct buf b;
    p->done = done;
    p->ctx = ctx;
    p->timer = (struct loop_timer){.fired = call_places_on_timer, .owner = p};
    p->nasked = n < CALL_PLACES_MAX ? n : CALL_PLACES_MAX;
    if (!p->nasked) {
        done(ctx);
        return;
    }
    buf_init(&b);
    buf_put_u32(&b, p->nasked);
    for (uint32_t i = 0; i < p->nasked; i++) {
        p->asked[i] = calls[i].rank;
        rank_forget_look(&p->run->ranks[calls[i].rank]); /* an older answer has other places */
        buf_put_u32(&b, calls[i].rank);
        buf_put_u8(&b, 0); /* not its threads */
        buf_put_u32(&b, 1);
        buf_put_u64(&b, calls[i].site);
    }
    hosts_send_all(p->run, WIRE_READ_STACKS, &b);
    buf_fini(&b);
    loop_timer_set(p->run->loop, &p->timer, CALL_PLACES_NS);
}

void call_places_on_stacks(struct call_places *p)
{
    uint32_t answers = 0;
    for (uint32_t i = 0; i < p->nasked; i++) {
        const struct rank_state *r = &p->run->ranks[p->asked[i]];
        answers += r->stacks.received || r->end == RANK_EXITED;
    }
    if (p->nasked && answers == p->nasked)
        call_places_end(p);
}

void call_places_cancel(struct call_places *p)
{
    if (p->nasked)
        loop_timer_clear(p->run->loop, &p->timer);
    p->nasked = 0;
}
