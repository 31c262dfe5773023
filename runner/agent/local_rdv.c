/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/local_rdv.h"

#include "agent/agent.h"
#include "agent/ranks.h"
#include "agent/uplink.h"
#include "base/debug.h"
#include "base/standstill.h"
#include "base/wire_fields.h"
#include "rendezvous/store.h"

/* A clock that stands still while this process is stopped. */
static uint64_t local_rdv_awake_ns(void)
{
    const uint64_t now = now_ns();
    return now - standstill_total(now);
}

/* The clock of the store: that one, which stands still while the ranks are stopped, too. */
static uint64_t local_rdv_now_ns(const struct local_rdv *l)
{
    return (l->suspended_ns ? l->suspended_ns : local_rdv_awake_ns()) - l->stopped_ns;
}

static void local_rdv_send(void *ctx, const uint32_t *ranks, uint32_t n, uint16_t type,
                           const struct buf *payload)
{
    for (uint32_t i = 0; i < n; i++)
        ranks_send(ctx, ranks[i], type, payload);
}

/* All groups have the same time-out, so a scope that begins to wait later ends later: a timer that
 * is set stays as it is. */
static void local_rdv_set_deadline(struct local_rdv *l)
{
    const uint64_t now = local_rdv_now_ns(l), due = rdv_next_deadline(l->store);
    if (!l->deadline.at_ns && due != UINT64_MAX && !l->suspended_ns)
        loop_timer_set(l->agent->loop, &l->deadline, due > now ? due - now : 0);
}

static void local_rdv_on_deadline(struct loop_timer *t)
{
    struct local_rdv *l = t->owner;
    rdv_expire(l->store, local_rdv_now_ns(l));
    local_rdv_set_deadline(l);
}

int local_rdv_open(struct local_rdv *l, struct agent *a, struct diag *d)
{
    *l = (struct local_rdv){.agent = a,
                            .store = rdv_new(&a->desc, (struct rdv_output){local_rdv_send, a}),
                            .deadline = {.fired = local_rdv_on_deadline, .owner = l}};
    return l->store ? COLLRUN_OK
                    : diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory for the rendezvous");
}

void local_rdv_close(struct local_rdv *l)
{
    if (l->store)
        loop_timer_clear(l->agent->loop, &l->deadline);
    rdv_free(l->store);
    l->store = NULL;
}

/* A JOIN whose members are all on this host. */
static bool local_rdv_is_local_join(const struct agent *a, const struct wire_frame *f,
                                    struct arena *arena)
{
    struct wire_join join;
    if (!wire_read_join(f, arena, &join))
        return false;
    for (uint32_t i = 0; i < join.members.n; i++) {
        const uint32_t rank = join.members.items[i];
        if (rank >= a->desc.nranks || a->desc.ranks[rank].host != a->host)
            return false;
    }
    return true;
}

void local_rdv_suspend(struct local_rdv *l)
{
    if (!l->suspended_ns)
        l->suspended_ns = local_rdv_awake_ns();
}

void local_rdv_resume(struct local_rdv *l)
{
    if (!l->suspended_ns)
        return;
    l->stopped_ns += local_rdv_awake_ns() - l->suspended_ns;
    l->suspended_ns = 0;
    if (l->store)
        local_rdv_set_deadline(l);
}

bool local_rdv_take(struct local_rdv *l, const struct wire_frame *f)
{
    struct arena arena;
    struct reader r;
    struct diag d;
    if (f->type < WIRE_JOIN || f->type > WIRE_LEAVE)
        return false;
    diag_init(&d);
    arena_init(&arena);
    reader_init(&r, f->payload, f->len);
    const char *scope = read_str(&r, &arena); /* the first field of all of them */
    const bool mine = f->type == WIRE_JOIN ? local_rdv_is_local_join(l->agent, f, &arena)
                                           : rdv_has_scope(l->store, scope);
    if (f->type == WIRE_JOIN)
        debug_log(DEBUG_RDV, "%s: rank %u joins; the store of %s serves it", scope, f->rank,
                  mine ? "this host" : "the runner");
    if (mine && rdv_on_frame(l->store, f, local_rdv_now_ns(l), &d) != COLLRUN_OK)
        uplink_send_error(l->agent, &d);
    if (mine && (f->type == WIRE_GET || f->type == WIRE_FENCE))
        local_rdv_set_deadline(l);
    arena_fini(&arena);
    return mine;
}

void local_rdv_on_rank_exit(struct local_rdv *l, uint32_t rank)
{
    if (l->store)
        rdv_on_rank_exit(l->store, rank, "exited while the group was being formed");
}
