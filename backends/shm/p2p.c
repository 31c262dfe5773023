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
    free(p->sides);
    free(p->watched);
    free(p->transfers);
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

static int reserve(struct shm_group *g, uint32_t ncalls)
{
    struct p2p *p = &g->p2p;
    const struct collrun_services *s = g->services;
    if (ncalls <= p->capacity)
        return COLLRUN_OK;
    struct transfer *t = realloc(p->transfers, ncalls * sizeof(*t));
    if (!t)
        return s->fail(s->ctx, COLLRUN_ERR_NO_MEMORY, "no memory for %u transfers", ncalls);
    p->transfers = t;
    p->capacity = ncalls;
    return COLLRUN_OK;
}

static int start(struct shm_group *g, const struct collrun_call *calls, uint32_t ncalls)
{
    struct p2p *p = &g->p2p;
    int status = reserve(g, ncalls);
    p->nwatched = 0;
    p->ntransfers = p->unfinished = status == COLLRUN_OK ? ncalls : 0;
    for (uint32_t i = 0; status == COLLRUN_OK && i < ncalls; i++) {
        struct transfer *t = &p->transfers[i];
        *t = (struct transfer){
            .call = &calls[i],
            .len = calls[i].count * g->services->dtype_size(calls[i].dtype),
            .peer = (uint32_t)calls[i].peer,
            .state = calls[i].kind == COLLRUN_SEND ? SEND_NEW : RECV_POSTED,
            .on_agenda = calls[i].kind == COLLRUN_SEND,
        };
        if (calls[i].kind == COLLRUN_RECV_ANY)
            watch_all(g);
        else
            watch(p, t->peer);
    }
    for (uint32_t i = 0; status == COLLRUN_OK && i < ncalls; i++)
        if (!transfer_sends(&p->transfers[i]))
            status = recv_start(g, &p->transfers[i]);
    return status;
}

/* ---- hearing and saying ---- */

static int hear(struct shm_group *g, uint32_t from, const struct cell *cell)
{
    if (cell->type == MAIL_SEND)
        return recv_hear_announcement(g, from, cell);
    struct transfer *t = &g->p2p.transfers[cell->id];
    switch ((enum mail_type)cell->type) {
    case MAIL_GO:
        send_hear_go(g, t, cell);
        return COLLRUN_OK;
    case MAIL_ACK:
        send_hear_ack(g, t, cell);
        return COLLRUN_OK;
    case MAIL_WRITTEN:
        recv_hear_written(t);
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

static void say_all(struct shm_group *g, bool *progress)
{
    struct p2p *p = &g->p2p;
    p->round++;
    for (uint32_t i = 0; i < p->ntransfers; i++) {
        struct transfer *t = &p->transfers[i];
        if (t->on_agenda)
            *progress |= transfer_sends(t) ? send_say(g, t) : recv_say(g, t);
    }
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

/* ---- waiting ---- */

static void missing_peers(struct shm_group *g, const void *context, char *out, size_t len)
{
    const struct p2p *p = context;
    for (uint32_t r = 0; r < g->nranks; r++) {
        bool waited_for = false;
        for (uint32_t i = 0; i < p->ntransfers; i++) {
            const struct transfer *t = &p->transfers[i];
            const bool anybody = t->state == RECV_POSTED && t->call->kind == COLLRUN_RECV_ANY;
            waited_for |= t->state != FINISHED && (anybody ? r != g->rank : t->peer == r);
        }
        if (waited_for)
            rank_list_add(out, len, r);
    }
}

static void forget(struct p2p *p)
{
    for (uint32_t i = 0; i < p->nwatched; i++)
        p->sides[p->watched[i]].watched = false;
    p->ntransfers = 0;
}

int p2p_run(struct shm_group *g, const struct collrun_call *calls, uint32_t ncalls)
{
    struct wait w = WAIT_FOR(g, &g->seg.bells[g->rank]);
    int status = start(g, calls, ncalls);
    while (status == COLLRUN_OK && g->p2p.unfinished > 0) {
        bool progress = false;
        status = hear_all(g, &progress);
        say_all(g, &progress);
        ring_peers(g);
        if (progress) {
            wait_end(&w);
            w = (struct wait)WAIT_FOR(g, &g->seg.bells[g->rank]);
            if (group_failed(g))
                status = group_failure(g);
        } else if (status == COLLRUN_OK) {
            status = wait_more(&w, missing_peers, &g->p2p);
        }
    }
    wait_end(&w);
    forget(&g->p2p);
    return status;
}
