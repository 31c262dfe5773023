/* SPDX-License-Identifier: Apache-2.0
 *
 * The receiver's side of a message; see p2p.h for the protocol. Messages of one sender and tag
 * match in the order they were announced, receives in the order they were called; letters keep the
 * order of arrival.
 */
#include "explain.h"
#include "mail.h"
#include "slices.h"
#include "transfer.h"
#include "wait.h"

#include <stdlib.h>
#include <string.h>

static bool takes(const struct transfer *t, uint32_t from, uint32_t tag)
{
    return t->state == RECV_POSTED && t->call->tag == tag &&
           (t->call->kind == COLLRUN_RECV_ANY || t->peer == from);
}

static int mismatch(struct shm_group *g, const struct transfer *t, uint32_t from,
                    const struct cell *cell)
{
    return group_fail(g, COLLRUN_ERR_MISMATCH,
                      "rank %u calls send(%llu x %s, to %u, tag %u), rank %u calls recv(%zu x %s)",
                      from, (unsigned long long)cell->count, dtype_name(cell->dtype), g->rank,
                      cell->tag, g->rank, t->call->count, dtype_name((unsigned)t->call->dtype));
}

/* Takes the bytes that lie at `from`. */
static int take_bytes(struct shm_group *g, struct transfer *t, const char *from, size_t len)
{
    const int status = copy_slices(g, (char *)t->call->recv + t->moved, from, len, false);
    t->moved += len;
    return status;
}

static int take_direct(struct shm_group *g, struct transfer *t, const struct cell *cell)
{
    struct heap_ref ref;
    memcpy(&ref, cell->payload, sizeof(ref));
    const char *from = heap_at(g, t->peer, ref);
    return from ? take_bytes(g, t, from, t->len) : group_failure(g);
}

static void finish(struct shm_group *g, struct transfer *t)
{
    if (t->call->kind == COLLRUN_RECV_ANY && t->call->source)
        *t->call->source = (int)t->peer;
    transfer_finish(&g->p2p, t);
}

/* The sender has gone on: it gets back its block, and no answer. */
static void finish_whole(struct shm_group *g, struct transfer *t)
{
    if (t->blocks)
        atomic_fetch_or_explicit(&g->seg.returned[t->peer].blocks, t->blocks, memory_order_release);
    finish(g, t);
}

/* Joins a receive with an announcement and takes what came with it. */
static int match(struct shm_group *g, struct transfer *t, uint32_t from, const struct cell *cell)
{
    int status = COLLRUN_OK;
    if (cell->count != t->call->count || cell->dtype != (uint8_t)t->call->dtype)
        return mismatch(g, t, from, cell);
    t->peer = from;
    t->peer_id = cell->id;
    if (cell->flags & SEND_INLINE) {
        status = take_bytes(g, t, cell->payload, t->len);
    } else if (cell->flags & SEND_DIRECT) {
        status = take_direct(g, t, cell);
    } else if (cell->block != NO_BLOCK) {
        status = take_bytes(g, t, block_at(g, from, cell->block), block_len(t->len, 0));
        t->blocks = 1ull << cell->block;
    }
    t->state = t->moved == t->len ? RECV_COMPLETE : RECV_MATCHED;
    if (cell->flags & SEND_WHOLE)
        finish_whole(g, t);
    else
        transfer_has_news(&g->p2p, t);
    return status;
}

int recv_start(struct shm_group *g, struct transfer *t)
{
    struct p2p *p = &g->p2p;
    for (struct letter **link = &p->unexpected; *link; link = &(*link)->next) {
        struct letter *l = *link;
        if (!takes(t, l->from, l->cell.tag))
            continue;
        const int status = match(g, t, l->from, &l->cell);
        *link = l->next;
        if (!l->next)
            p->unexpected_end = link;
        free(l);
        return status;
    }
    *p->posted_end = t;
    p->posted_end = &t->next;
    return COLLRUN_OK;
}

static int put_by(struct shm_group *g, uint32_t from, const struct cell *cell)
{
    struct p2p *p = &g->p2p;
    struct letter *l = aligned_alloc(_Alignof(struct letter), sizeof(*l));
    if (!l)
        return group_fail(g, COLLRUN_ERR_NO_MEMORY, "rank %u has no memory left for messages",
                          g->rank);
    l->next = NULL;
    l->from = from;
    memcpy(&l->cell, cell, sizeof(l->cell));
    *p->unexpected_end = l;
    p->unexpected_end = &l->next;
    return COLLRUN_OK;
}

int recv_hear_announcement(struct shm_group *g, uint32_t from, const struct cell *cell)
{
    struct p2p *p = &g->p2p;
    for (struct transfer **link = &p->posted; *link; link = &(*link)->next) {
        struct transfer *t = *link;
        if (!takes(t, from, cell->tag))
            continue;
        *link = t->next;
        if (!t->next)
            p->posted_end = link;
        t->next = NULL;
        return match(g, t, from, cell);
    }
    return put_by(g, from, cell);
}

int recv_hear_frag(struct shm_group *g, struct transfer *t, const struct cell *cell)
{
    const int status =
        take_bytes(g, t, block_at(g, t->peer, cell->block), block_len(t->len, t->moved));
    t->blocks |= 1ull << cell->block;
    if (t->moved == t->len)
        t->state = RECV_COMPLETE;
    transfer_has_news(&g->p2p, t);
    return status;
}

void recv_hear_written(struct shm_group *g, struct transfer *t)
{
    t->moved = t->len;
    t->state = RECV_COMPLETE;
    transfer_has_news(&g->p2p, t);
}

static void write_go(struct shm_group *g, struct transfer *t, struct cell *cell)
{
    const struct go go = {t->blocks, heap_find(g, t->call->recv, t->len)};
    cell->type = MAIL_GO;
    cell->id = t->peer_id;
    cell->count = t->id;
    memcpy(cell->payload, &go, sizeof(go));
    t->state = RECV_STREAMS;
}

static void write_ack(const struct transfer *t, struct cell *cell)
{
    cell->type = MAIL_ACK;
    cell->id = t->peer_id;
    cell->count = t->blocks;
    cell->flags = t->state == RECV_COMPLETE ? ACK_LAST : 0;
}

bool recv_say(struct shm_group *g, struct transfer *t)
{
    const bool last = t->state == RECV_COMPLETE;
    struct cell *cell = mail_room(g, t->peer);
    if (!cell)
        return false;
    if (t->state == RECV_MATCHED)
        write_go(g, t, cell);
    else
        write_ack(t, cell);
    t->blocks = 0;
    t->on_agenda = false;
    mail_send(g, t->peer, cell);
    if (last)
        finish(g, t);
    return true;
}
