/* SPDX-License-Identifier: Apache-2.0
 *
 * What all messages have in common: see message.h.
 */
#include "message.h"

#include "group.h"

void message_drop_all(struct message_queue *q, const struct op *op)
{
    struct message **link = &q->first;
    while (*link) {
        if ((*link)->op == op)
            *link = (*link)->next;
        else
            link = &(*link)->next;
    }
    q->end = link;
}

bool message_is_ready(struct nccl_group *g, struct message *m)
{
    m->cross_dep = m->cross_dep && sched_has_dependents(g->context) &&
                   event_query(&g->context->lib.cuda, m->before_evt) != cudaSuccess;
    return !m->cross_dep;
}

void message_complete(const struct nccl_group *g, struct message *m)
{
    const struct collrun_call *c = m->call;
    if (c->kind == COLLRUN_RECV_ANY && c->source)
        *c->source = (int)(m->peer_rank / g->ndevs);
    if (c->kind != COLLRUN_SEND && c->received)
        *c->received = m->count;
    if (c->kind != COLLRUN_SEND && c->received_tag)
        *c->received_tag = m->tag;
    m->state = MESSAGE_DONE;
    m->op->nopen--;
}

bool message_agrees(const struct collrun_call *c, const struct coord_match_rep *rep)
{
    if (rep->dtype != (uint32_t)c->dtype)
        return false;
    if (rep->count == c->count)
        return true;
    if (rep->direct) /* NCCL was given the count of the call */
        return false;
    return c->kind == COLLRUN_SEND ? rep->at_most && c->count < rep->count
                                   : c->received && rep->count < c->count;
}

void message_mismatch(struct nccl_group *g, const struct collrun_call *call, uint32_t tag,
                      const struct coord_match_rep *rep)
{
    const struct collrun_services *s = g->services;
    uint32_t other_rank = rep->peer / g->ndevs;
    struct collrun_call mine = *call, theirs = *call;
    char text[sizeof g->status.text];
    mine.peer = (int)other_rank;
    mine.kind = mine.kind == COLLRUN_SEND ? COLLRUN_SEND : COLLRUN_RECV;
    theirs.kind = mine.kind == COLLRUN_SEND ? COLLRUN_RECV : COLLRUN_SEND;
    theirs.peer = (int)g->rank;
    mine.tag = theirs.tag = tag;
    theirs.count = (size_t)rep->count;
    theirs.dtype = (enum collrun_dtype)rep->dtype;
    bool sends = mine.kind == COLLRUN_SEND;
    s->mismatch_text(s->ctx, sends ? g->rank : other_rank, sends ? &mine : &theirs,
                     sends ? other_rank : g->rank, sends ? &theirs : &mine, text, sizeof text);
    nccl_group_fail(g, COLLRUN_ERR_MISMATCH, text);
}
