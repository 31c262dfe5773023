/* SPDX-License-Identifier: Apache-2.0
 *
 * The list of scheduled transfers, and their end.
 */
#include "transport/transfer.h"

void transfer_schedule(struct p2p *p, struct transfer *t)
{
    if (t->scheduled)
        return;
    t->scheduled = true;
    t->next = NULL;
    t->prev = p->last;
    *(p->last ? &p->last->next : &p->first) = t;
    p->last = t;
}

void transfer_unschedule(struct p2p *p, struct transfer *t)
{
    if (!t->scheduled)
        return;
    t->scheduled = false;
    *(t->prev ? &t->prev->next : &p->first) = t->next;
    *(t->next ? &t->next->prev : &p->last) = t->prev;
}

void transfer_announced(struct p2p *p, struct transfer *t)
{
    transfer_unschedule(p, t);
    p->engine->announced(p->engine->ctx, &t->message);
}

void transfer_done(struct p2p *p, struct transfer *t)
{
    transfer_unschedule(p, t);
    p->active--;
    p->engine->done(p->engine->ctx, &t->message);
}
