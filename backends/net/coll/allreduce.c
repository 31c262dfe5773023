/* SPDX-License-Identifier: Apache-2.0
 *
 * Allreduce.
 * - Short: the ranks of a host reduce to their leader, the leaders combine by recursive doubling,
 *   and each leader broadcasts to its host. Hosts above a power of two fold into a neighbour first.
 * - Long: pieces (allreduce_pieces). A piece has a block for each host. Every leader sends its part
 *   of each block straight to the block's owner, who combines all parts at once and sends the
 *   result to all: 2 * (hosts - 1) / hosts of the vector cross each link in each direction, the
 *   least that is possible (Patarasuk and Yuan, 2009).
 */
#include "coll/arith.h"
#include "coll/tuning.h"

/* ---- recursive doubling ---- */

struct doubling {
    struct coll *c;
    const struct arith *a;
    const void *own; /* the partial result so far */
    char *sum, *theirs;
    size_t count;
};

enum { DOUBLING_ROUND, DOUBLING_FOLD, DOUBLING_RESULT };

/* Adds the partial result of another host, as it is before its exchange. Both combine in the order
 * of hosts, so both get the same bits. */
static void doubling_add(struct doubling *d, uint32_t host)
{
    const bool before = host < d->c->host;
    const void *const srcs[2] = {before ? d->theirs : d->own, before ? d->own : d->theirs};
    arith_combine(d->a, d->sum, srcs, 2, d->count);
    d->own = d->sum;
}

static int doubling_exchange(struct doubling *d, uint32_t host, uint32_t slot)
{
    struct net_request requests[2];
    const uint32_t peer = coll_leader(d->c, host);
    const size_t len = d->count * d->a->elem;
    int status = net_op_recv(d->c->op, &requests[0], peer, slot, d->theirs, len);
    if (status == COLLRUN_OK)
        status = net_op_send(d->c->op, &requests[1], peer, slot, d->own, len);
    if (status == COLLRUN_OK)
        status = net_op_wait_all(d->c->op, requests, 2);
    if (status == COLLRUN_OK)
        doubling_add(d, host);
    return status;
}

static int doubling_send(struct doubling *d, uint32_t host, uint32_t phase)
{
    struct net_request request;
    const int status = net_op_send(d->c->op, &request, coll_leader(d->c, host), coll_slot(0, phase),
                                   d->own, d->count * d->a->elem);
    return status == COLLRUN_OK ? net_op_wait(d->c->op, &request) : status;
}

static int doubling_receive(struct doubling *d, uint32_t host, uint32_t phase, void *data)
{
    struct net_request request;
    const int status = net_op_recv(d->c->op, &request, coll_leader(d->c, host), coll_slot(0, phase),
                                   data, d->count * d->a->elem);
    return status == COLLRUN_OK ? net_op_wait(d->c->op, &request) : status;
}

/* The hosts that are left after folding, numbered: the odd ones of those that fold, then the rest.
 */
static int doubling_rounds(struct doubling *d, uint32_t me, uint32_t power, uint32_t folded)
{
    int status = COLLRUN_OK;
    for (uint32_t distance = 1, round = 0; status == COLLRUN_OK && distance < power;
         distance *= 2, round++) {
        const uint32_t k = me ^ distance;
        status = doubling_exchange(d, k < folded ? 2 * k + 1 : k + folded,
                                   coll_slot(round, DOUBLING_ROUND));
    }
    return status;
}

static int doubling_run(struct doubling *d)
{
    const uint32_t me = d->c->host;
    uint32_t power = 1;
    while (power * 2 <= d->c->hosts->n)
        power *= 2;
    const uint32_t folded = d->c->hosts->n - power;
    if (me >= 2 * folded)
        return doubling_rounds(d, me - folded, power, folded);
    int status;
    if (me % 2 == 0) {
        status = doubling_send(d, me + 1, DOUBLING_FOLD);
        d->own = d->sum;
        return status == COLLRUN_OK ? doubling_receive(d, me + 1, DOUBLING_RESULT, d->sum) : status;
    }
    status = doubling_receive(d, me - 1, DOUBLING_FOLD, d->theirs);
    if (status == COLLRUN_OK) {
        doubling_add(d, me - 1);
        status = doubling_rounds(d, me / 2, power, folded);
    }
    return status == COLLRUN_OK ? doubling_send(d, me - 1, DOUBLING_RESULT) : status;
}

static int allreduce_short(struct coll *c)
{
    const struct arith a = arith_of(c, c->nranks > 2);
    struct doubling d = {.c = c, .a = &a, .count = c->call->count};
    d.sum = a.wide ? coll_scratch(c, d.count, a.elem) : c->call->recv;
    d.theirs = coll_scratch(c, d.count, a.elem);
    if ((d.count > 0 && !d.sum) || !d.theirs)
        return COLLRUN_ERR_NO_MEMORY;
    d.own = arith_load(&a, d.sum, c->call->send, d.count);
    int status = arith_reduce_local(c, &a, d.own, d.sum, d.count);
    if (c->local)
        d.own = d.sum;
    if (status == COLLRUN_OK && c->leads)
        status = doubling_run(&d);
    if (status != COLLRUN_OK)
        return status;
    if (c->leads)
        arith_store(&a, c->call->recv, (void *)(uintptr_t)d.own, d.count);
    return coll_broadcast_local(c, c->call->recv, d.count * c->elem);
}

/* ---- pieces ---- */

/* Pieces in flight, from the newest to the oldest: of AHEAD receives are posted, so that no sender
 * waits for a grant; of PARTS parts are exchanged, then they are combined; of RESULTS the results
 * are on their way. With several of each, every connection has something to send although some are
 * behind others. */
#define PIECES_AHEAD 2u
#define PIECES_PARTS 3u
#define PIECES_RESULTS 3u
#define PIECES_DEPTH (PIECES_AHEAD + PIECES_PARTS + PIECES_RESULTS)

enum { PIECES_PART, PIECES_RESULT };

struct pieces_slot {
    const char *own; /* the contribution of this host */
    char *room;      /* for it, if the arithmetic is wide */
    char *parts;     /* of the other hosts for this host's block, in the order of distance */
    struct coll_batch received_parts, rest;
};

struct pieces {
    struct coll *c;
    struct arith a;
    size_t piece, npieces; /* elements of a piece */
    const void **srcs;     /* of each host */
    struct pieces_slot slots[PIECES_DEPTH];
};

/* Elements of a host's block of piece t, and where it begins in the piece. */
static size_t pieces_block(const struct pieces *p, size_t t, uint32_t host, size_t *at)
{
    const size_t left = p->c->call->count - t * p->piece;
    const size_t len = left < p->piece ? left : p->piece;
    const size_t block = ((len + p->c->hosts->n - 1) / p->c->hosts->n + 15) / 16 * 16;
    *at = host * block < len ? host * block : len;
    return len - *at < block ? len - *at : block;
}

static size_t pieces_len(const struct pieces *p, size_t t)
{
    const size_t left = p->c->call->count - t * p->piece;
    return left < p->piece ? left : p->piece;
}

static char *pieces_result(const struct pieces *p, size_t t)
{
    return (char *)p->c->call->recv + t * p->piece * p->a.user_elem;
}

/* The contribution of this host. */
static int pieces_load(struct pieces *p, size_t t)
{
    struct pieces_slot *s = &p->slots[t % PIECES_DEPTH];
    const char *send = (const char *)p->c->call->send + t * p->piece * p->a.user_elem;
    char *sum = p->a.wide ? s->room : pieces_result(p, t);
    s->own = arith_load(&p->a, s->room, send, pieces_len(p, t));
    const int status = arith_reduce_local(p->c, &p->a, s->own, sum, pieces_len(p, t));
    if (p->c->local)
        s->own = sum;
    return status;
}

/* Posts the receives of the parts of this host's block, and of the results of the others. A result
 * cannot arrive before this host's part has left, so its place may still be in use. */
static int pieces_post(struct pieces *p, size_t t)
{
    struct coll *c = p->c;
    struct pieces_slot *s = &p->slots[t % PIECES_DEPTH];
    size_t mine_at, at;
    const size_t mine = pieces_block(p, t, c->host, &mine_at) * p->a.elem;
    int status = COLLRUN_OK;
    for (uint32_t k = 1; status == COLLRUN_OK && k < c->hosts->n; k++) {
        const uint32_t from = coll_next_host(c, c->hosts->n - k);
        status = coll_batch_recv(&s->received_parts, coll_leader(c, from),
                                 coll_slot(t, PIECES_PART), s->parts + (k - 1) * mine, mine);
        const size_t len = pieces_block(p, t, from, &at);
        if (status == COLLRUN_OK)
            status =
                coll_batch_recv(&s->rest, coll_leader(c, from), coll_slot(t, PIECES_RESULT),
                                pieces_result(p, t) + at * p->a.user_elem, len * p->a.user_elem);
    }
    return status;
}

/* Sends the parts of all blocks to their owners. */
static int pieces_send(struct pieces *p, size_t t)
{
    struct coll *c = p->c;
    struct pieces_slot *s = &p->slots[t % PIECES_DEPTH];
    size_t at;
    int status = COLLRUN_OK;
    for (uint32_t k = 1; status == COLLRUN_OK && k < c->hosts->n; k++) {
        const uint32_t to = coll_next_host(c, k);
        const size_t len = pieces_block(p, t, to, &at);
        status = coll_batch_send(&s->rest, coll_leader(c, to), coll_slot(t, PIECES_PART),
                                 s->own + at * p->a.elem, len * p->a.elem);
    }
    return status;
}

/* Combines this host's block, in the order of hosts, and sends the result to all. */
static int pieces_combine(struct pieces *p, size_t t)
{
    struct coll *c = p->c;
    struct pieces_slot *s = &p->slots[t % PIECES_DEPTH];
    size_t at;
    const size_t len = pieces_block(p, t, c->host, &at);
    int status = coll_batch_wait(&s->received_parts);
    if (status != COLLRUN_OK || len == 0)
        return status;
    for (uint32_t k = 1; k < c->hosts->n; k++)
        p->srcs[coll_next_host(c, c->hosts->n - k)] = s->parts + (k - 1) * len * p->a.elem;
    p->srcs[c->host] = s->own + at * p->a.elem;
    char *result = pieces_result(p, t) + at * p->a.user_elem;
    arith_finish(&p->a, result, p->srcs, c->hosts->n, len);
    for (uint32_t k = 1; status == COLLRUN_OK && k < c->hosts->n; k++)
        status = coll_batch_send(&s->rest, coll_leader(c, coll_next_host(c, k)),
                                 coll_slot(t, PIECES_RESULT), result, len * p->a.user_elem);
    return status;
}

/* Posts the receives of piece t, and before the first one those of the pieces up to it. */
static int pieces_post_ahead(struct pieces *p, size_t t)
{
    int status = COLLRUN_OK;
    for (size_t k = t > PIECES_AHEAD ? t : 0; status == COLLRUN_OK && k <= t && k < p->npieces; k++)
        status = pieces_post(p, k);
    return status;
}

/* The results of piece t have arrived. */
static int pieces_end(struct pieces *p, size_t t)
{
    int status = COLLRUN_OK;
    if (p->c->leads)
        status = coll_batch_wait(&p->slots[t % PIECES_DEPTH].rest);
    if (status != COLLRUN_OK)
        return status;
    return coll_broadcast_local(p->c, pieces_result(p, t), pieces_len(p, t) * p->a.user_elem);
}

/* In step t, piece t begins, and one before it is combined, and one before that ends. */
#define PIECES_LAST_STEP (PIECES_PARTS - 1 + PIECES_RESULTS - 1)
static int pieces_step(struct pieces *p, size_t t)
{
    const size_t combined = t - (PIECES_PARTS - 1); /* large, if there is none */
    const size_t ended = t - PIECES_LAST_STEP;
    const bool leads = p->c->leads;
    int status = leads ? pieces_post_ahead(p, t + PIECES_AHEAD) : COLLRUN_OK;
    if (status == COLLRUN_OK && t < p->npieces)
        status = pieces_load(p, t);
    if (status == COLLRUN_OK && leads && t < p->npieces)
        status = pieces_send(p, t);
    if (status == COLLRUN_OK && leads && combined < p->npieces)
        status = pieces_combine(p, combined);
    if (status == COLLRUN_OK && ended < p->npieces)
        status = pieces_end(p, ended);
    return status;
}

static int pieces_init(struct pieces *p, struct coll *c)
{
    const uint32_t n = c->hosts->n;
    *p = (struct pieces){.c = c, .a = arith_of(c, n < c->nranks)};
    size_t block = coll_piece_len(c, c->call->count * p->a.elem / n) / p->a.elem;
    const size_t even = (c->call->count / n + 16) / 16 * 16;
    block = block < even ? block : even; /* short: no more memory than needed */
    p->piece = block * n;
    p->npieces = (c->call->count + p->piece - 1) / p->piece;
    p->srcs = coll_scratch(c, n, sizeof *p->srcs);
    bool complete = p->srcs != NULL;
    for (uint32_t k = 0; complete && k < PIECES_DEPTH && k < p->npieces; k++) {
        struct pieces_slot *s = &p->slots[k];
        if (p->a.wide)
            complete = (s->room = coll_scratch(c, p->piece, p->a.elem)) != NULL;
        if (!complete || !c->leads)
            continue;
        s->parts = coll_scratch(c, (block + 16) * (n - 1), p->a.elem);
        complete = s->parts && coll_batch_init(c, &s->received_parts, n) == COLLRUN_OK &&
                   coll_batch_init(c, &s->rest, 3 * n) == COLLRUN_OK;
    }
    return complete ? COLLRUN_OK : COLLRUN_ERR_NO_MEMORY;
}

static int allreduce_pieces(struct coll *c)
{
    struct pieces p;
    int status = pieces_init(&p, c);
    for (size_t t = 0; status == COLLRUN_OK && t < p.npieces + PIECES_LAST_STEP; t++)
        status = pieces_step(&p, t);
    return status;
}

int coll_allreduce(struct coll *c)
{
    const bool is_short = c->call->count * c->elem <= TUNING_SHORT_BYTES;
    return is_short || c->hosts->n == 1 ? allreduce_short(c) : allreduce_pieces(c);
}
