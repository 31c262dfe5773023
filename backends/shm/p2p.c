/* SPDX-License-Identifier: Apache-2.0
 *
 * The loop that drives all transfers of a call array: hear what the watched boxes hold, say what
 * the agenda asks for, and wait when there was neither. See p2p.h for the protocol, transfer.h for
 * what a transfer is.
 */
#include "p2p.h"

#include "mail.h"
#include "transfer.h"
#include "wait.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int p2p_init(struct p2p *p, uint32_t nranks)
{
    *p = (struct p2p){.sides = calloc(nranks, sizeof(*p->sides)),
                      .watched = calloc(nranks, sizeof(*p->watched)),
                      .free_blocks = UINT64_MAX};
    p->posted_end = &p->posted;
    p->agenda_end = &p->agenda;
    p->unexpected_end = &p->unexpected;
    return p->sides && p->watched ? COLLRUN_OK : COLLRUN_ERR_NO_MEMORY;
}

void p2p_fini(struct p2p *p)
{
    while (p->unexpected) {
        struct letter *l = p->unexpected;
        p->unexpected = l->next;
        free(l);
    }
    for (uint32_t i = 0; i < p->ntransfers; i++)
        free(p->transfers[i]);
    free(p->transfers);
    free(p->sides);
    free(p->watched);
}

/* ---- transfers ---- */

static struct transfer *transfer_new(struct p2p *p)
{
    if ((p->ntransfers & (p->ntransfers - 1)) == 0) { /* grown in powers of two */
        const size_t room = p->ntransfers ? 2 * (size_t)p->ntransfers : 1;
        struct transfer **grown = realloc(p->transfers, room * sizeof(struct transfer *));
        if (!grown)
            return NULL;
        p->transfers = grown;
    }
    struct transfer *t = malloc(sizeof(*t));
    if (t) {
        t->id = p->ntransfers;
        p->transfers[p->ntransfers++] = t;
    }
    return t;
}

static struct transfer *transfer_take(struct p2p *p)
{
    struct transfer *t = p->idle;
    if (t)
        p->idle = t->next;
    return t ? t : transfer_new(p);
}

static void transfer_release(struct p2p *p, struct transfer *t)
{
    t->next = p->idle;
    p->idle = t;
}

void transfer_has_news(struct p2p *p, struct transfer *t)
{
    t->on_agenda = true;
    if (t->listed)
        return;
    t->listed = true;
    t->agenda_next = NULL;
    *p->agenda_end = t;
    p->agenda_end = &t->agenda_next;
}

void transfer_finish(struct p2p *p, struct transfer *t)
{
    t->state = FINISHED;
    t->on_agenda = false;
    t->parcel->unfinished--;
    p->active--;
    if (!t->listed)
        transfer_release(p, t);
}

/* ---- starting ---- */

static void watch(struct p2p *p, uint32_t peer)
{
    if (p->sides[peer].watched)
        return;
    p->sides[peer].watched = true;
    p->watched[p->nwatched++] = peer;
}

static void watch_all(struct shm_group *g)
{
    for (uint32_t k = 1; k <= g->nranks; k++)
        watch(&g->p2p, (g->rank + k) % g->nranks);
}

/* Nothing is on its way any more: nobody needs to be looked at. */
static void forget_if_idle(struct p2p *p)
{
    if (p->active > 0)
        return;
    for (uint32_t i = 0; i < p->nwatched; i++)
        p->sides[p->watched[i]].watched = false;
    p->nwatched = 0;
}

static void ring_peers(struct shm_group *g)
{
    struct p2p *p = &g->p2p;
    for (uint32_t i = 0; i < p->nwatched; i++) {
        struct mail_side *side = &p->sides[p->watched[i]];
        if (side->ring_due)
            bell_ring(g, &g->seg.bells[p->watched[i]]);
        side->ring_due = false;
    }
}

static int start_one(struct shm_group *g, const struct collrun_call *call, struct parcel *parcel)
{
    struct p2p *p = &g->p2p;
    struct transfer *t = transfer_take(p);
    if (!t)
        return group_fail(g, COLLRUN_ERR_NO_MEMORY, "rank %u has no memory left for messages",
                          g->rank);
    *t = (struct transfer){.call = call,
                           .len = call->count * g->services->dtype_size(call->dtype),
                           .peer = (uint32_t)call->peer,
                           .state = call->kind == COLLRUN_SEND ? SEND_NEW : RECV_POSTED,
                           .parcel = parcel,
                           .id = t->id};
    parcel->unfinished++;
    p->active++;
    if (call->kind == COLLRUN_RECV_ANY)
        watch_all(g);
    else
        watch(p, t->peer);
    if (!transfer_sends(t))
        return recv_start(g, t);
    if (p->agenda || !send_say(g, t))
        transfer_has_news(p, t);
    return COLLRUN_OK;
}

int p2p_start(struct shm_group *g, const struct collrun_call *calls, uint32_t ncalls,
              struct parcel *parcel)
{
    int status = COLLRUN_OK;
    *parcel = (struct parcel){.timeout_ns = calls[0].timeout_ns};
    for (uint32_t i = 0; status == COLLRUN_OK && i < ncalls; i++)
        status = start_one(g, &calls[i], parcel);
    ring_peers(g);
    return status;
}

/* ---- hearing and saying ---- */

static int hear(struct shm_group *g, uint32_t from, const struct cell *cell)
{
    if (cell->type == MAIL_SEND)
        return recv_hear_announcement(g, from, cell);
    struct transfer *t = g->p2p.transfers[cell->id];
    switch ((enum mail_type)cell->type) {
    case MAIL_GO:
        send_hear_go(g, t, cell);
        return COLLRUN_OK;
    case MAIL_ACK:
        send_hear_ack(g, t, cell);
        return COLLRUN_OK;
    case MAIL_WRITTEN:
        recv_hear_written(g, t);
        return COLLRUN_OK;
    default:
        return recv_hear_frag(g, t, cell);
    }
}

static int hear_all(struct shm_group *g, bool *progress)
{
    struct p2p *p = &g->p2p;
    int status = COLLRUN_OK;
    for (uint32_t i = 0; i < p->nwatched; i++) {
        const struct cell *cell;
        while (status == COLLRUN_OK && (cell = mail_peek(g, p->watched[i]))) {
            status = hear(g, p->watched[i], cell);
            mail_take(g, p->watched[i]);
            *progress = true;
        }
    }
    return status;
}

/* Each of them in turn, once; those that have more to say keep their order. */
static void say_all(struct shm_group *g, bool *progress)
{
    struct p2p *p = &g->p2p;
    struct transfer *t = p->agenda, *next;
    p->round++;
    p->agenda = NULL;
    p->agenda_end = &p->agenda;
    for (; t; t = next) {
        next = t->agenda_next;
        if (t->on_agenda)
            *progress |= transfer_sends(t) ? send_say(g, t) : recv_say(g, t);
        t->listed = false;
        if (t->on_agenda)
            transfer_has_news(p, t);
        else if (t->state == FINISHED)
            transfer_release(p, t);
    }
}

/* ---- waiting ---- */

static void missing_peers(struct shm_group *g, const void *context, char *out, size_t len)
{
    const struct p2p *p = &g->p2p;
    for (uint32_t r = 0; r < g->nranks; r++) {
        bool waited_for = false;
        for (uint32_t i = 0; i < p->ntransfers; i++) {
            const struct transfer *t = p->transfers[i];
            if (t->state == FINISHED || t->parcel != context)
                continue;
            const bool anybody = t->state == RECV_POSTED && t->call->kind == COLLRUN_RECV_ANY;
            waited_for |= anybody ? r != g->rank : t->peer == r;
        }
        if (waited_for)
            rank_list_add(out, len, r);
    }
}

/* Hears and says what there is. */
static int progress_all(struct shm_group *g, bool *progress)
{
    const int status = hear_all(g, progress);
    say_all(g, progress);
    ring_peers(g);
    return status == COLLRUN_OK && group_failed(g) ? group_failure(g) : status;
}

int p2p_run(struct shm_group *g, const struct collrun_call *calls, uint32_t ncalls)
{
    struct wait w = WAIT_FOR(g, &g->seg.bells[g->rank]);
    struct parcel parcel;
    int status = p2p_start(g, calls, ncalls, &parcel);
    bool more = g->p2p.active > 0; /* those that have been started before go on as well */
    while (status == COLLRUN_OK && more) {
        bool progress = false;
        status = progress_all(g, &progress);
        more = parcel.unfinished > 0;
        if (progress) {
            wait_end(&w);
            w = (struct wait)WAIT_FOR(g, &g->seg.bells[g->rank]);
        } else if (status == COLLRUN_OK && more) {
            status = wait_more(&w, missing_peers, &parcel);
        }
    }
    wait_end(&w);
    forget_if_idle(&g->p2p);
    return status;
}

int p2p_test(struct shm_group *g, struct parcel *parcel)
{
    bool progress = false;
    int status = parcel->unfinished > 0 ? progress_all(g, &progress) : COLLRUN_OK;
    if (status == COLLRUN_OK && parcel->unfinished > 0) {
        if (progress)
            return COLLRUN_AGAIN;
        g->timeout_ns = parcel->timeout_ns;
        status = wait_expired(g, &parcel->deadline_ns, missing_peers, parcel);
        if (status == COLLRUN_OK)
            return COLLRUN_AGAIN;
    }
    forget_if_idle(&g->p2p);
    return status;
}
