/* SPDX-License-Identifier: Apache-2.0
 *
 * Reduce: the ranks of a host to their leader, the leaders to the root.
 * - Short: a binomial tree of hosts.
 * - Long: a chain of hosts that ends at the root. Each adds its own part to piece t and passes it
 *   on, while it receives piece t + 1: the root's link carries the vector once.
 */
#include "coll/arith.h"
#include "coll/tuning.h"

struct reduce {
    struct coll *c;
    struct arith a;
    uint32_t place; /* of this host: the root's is 0 */
};

static uint32_t reduce_leader(const struct reduce *r, uint32_t place)
{
    return coll_leader(r->c, (r->c->root_host + place) % r->c->hosts->n);
}

/* ---- tree ---- */

/* Adds the partial results of this host's children to *own, which is then `sum`. */
static int reduce_from_children(struct reduce *r, const void **own, char *sum, size_t count)
{
    struct coll *c = r->c;
    struct net_request requests[32];
    const void *srcs[33] = {*own};
    uint32_t n = 0;
    int status = COLLRUN_OK;
    uint32_t width = 1, children = 0;
    for (; !(r->place & width) && r->place + width < c->hosts->n; width *= 2)
        children++;
    char *room = coll_scratch(c, children * count, r->a.elem);
    if (!room)
        return COLLRUN_ERR_NO_MEMORY;
    for (uint32_t k = 1; status == COLLRUN_OK && k < width; k *= 2) {
        char *part = room + n * count * r->a.elem;
        status = net_op_recv(c->op, &requests[n], reduce_leader(r, r->place + k), coll_slot(0, 0),
                             part, count * r->a.elem);
        srcs[++n] = part;
    }
    if (status == COLLRUN_OK)
        status = net_op_wait_all(c->op, requests, n);
    if (status == COLLRUN_OK && n > 0) {
        arith_combine(&r->a, sum, srcs, n + 1, count);
        *own = sum;
    }
    return status;
}

static int reduce_tree(struct reduce *r, const void *own, char *sum, size_t count)
{
    struct coll *c = r->c;
    int status = reduce_from_children(r, &own, sum, count);
    if (status != COLLRUN_OK)
        return status;
    if (r->place == 0) {
        arith_store(&r->a, c->call->recv, (void *)(uintptr_t)own, count);
        return COLLRUN_OK;
    }
    struct net_request request;
    const uint32_t parent = r->place & (r->place - 1);
    status = net_op_send(c->op, &request, reduce_leader(r, parent), coll_slot(0, 0), own,
                         count * r->a.elem);
    return status == COLLRUN_OK ? net_op_wait(c->op, &request) : status;
}

static int reduce_short(struct reduce *r)
{
    struct coll *c = r->c;
    const size_t count = c->call->count;
    const bool in_result = coll_is_root(c) && !r->a.wide;
    char *sum = in_result ? c->call->recv : coll_scratch(c, count, r->a.elem);
    if (count > 0 && !sum)
        return COLLRUN_ERR_NO_MEMORY;
    const void *own = arith_load(&r->a, sum, c->call->send, count);
    const int status = arith_reduce_local(c, &r->a, own, sum, count);
    if (status != COLLRUN_OK || !c->leads)
        return status;
    return reduce_tree(r, c->local ? sum : own, sum, count);
}

/* ---- chain ---- */

/* Receives are posted so far ahead; the rest of the depth is for pieces that are being sent. */
#define CHAIN_AHEAD (TUNING_CHAIN_DEPTH / 2)

struct chain {
    struct reduce *r;
    size_t piece, npieces;                  /* elements of a piece */
    char *parts[TUNING_CHAIN_DEPTH], *room; /* room: this host's own part */
    struct net_request in[TUNING_CHAIN_DEPTH], out[TUNING_CHAIN_DEPTH];
    size_t posted;
    bool first; /* of the chain: nothing is received */
};

static size_t chain_len(const struct chain *h, size_t t)
{
    const size_t left = h->r->c->call->count - t * h->piece;
    return left < h->piece ? left : h->piece;
}

/* Makes the buffer of piece t free: what was sent from it has left. */
static int chain_free(struct chain *h, size_t t)
{
    if (t < TUNING_CHAIN_DEPTH || h->r->place == 0)
        return COLLRUN_OK;
    return net_op_wait(h->r->c->op, &h->out[t % TUNING_CHAIN_DEPTH]);
}

static int chain_post(struct chain *h, size_t t)
{
    struct reduce *r = h->r;
    int status = COLLRUN_OK;
    for (; status == COLLRUN_OK && h->posted < h->npieces && h->posted < t + CHAIN_AHEAD;
         h->posted++) {
        const size_t k = h->posted % TUNING_CHAIN_DEPTH;
        status = chain_free(h, h->posted);
        if (status == COLLRUN_OK)
            status = net_op_recv(r->c->op, &h->in[k], reduce_leader(r, r->place + 1),
                                 coll_slot(h->posted, 0), h->parts[k],
                                 chain_len(h, h->posted) * r->a.elem);
    }
    return status;
}

/* Loads this host's part of piece t. */
static int chain_load(struct chain *h, size_t t, const char **own)
{
    struct reduce *r = h->r;
    struct coll *c = r->c;
    const size_t len = chain_len(h, t);
    const size_t at = t * h->piece * r->a.user_elem;
    char *room = coll_is_root(c) && !r->a.wide ? coll_at(c->call->recv, at) : h->room;
    if (h->first && (c->local || r->a.wide)) {
        const int status = chain_free(h, t);
        if (status != COLLRUN_OK)
            return status;
        room = h->parts[t % TUNING_CHAIN_DEPTH];
    }
    *own = arith_load(&r->a, room, coll_at(c->call->send, at), len);
    const int status = arith_reduce_local(c, &r->a, *own, room, len);
    if (c->local)
        *own = room;
    return status;
}

static int chain_send(struct chain *h, size_t t, const char *data)
{
    struct reduce *r = h->r;
    int status = COLLRUN_OK;
    if (data != h->parts[t % TUNING_CHAIN_DEPTH]) /* else its buffer was made free */
        status = chain_free(h, t);
    if (status != COLLRUN_OK)
        return status;
    return net_op_send(r->c->op, &h->out[t % TUNING_CHAIN_DEPTH], reduce_leader(r, r->place - 1),
                       coll_slot(t, 0), data, chain_len(h, t) * r->a.elem);
}

static int chain_pass(struct chain *h, size_t t, const char *own)
{
    struct reduce *r = h->r;
    if (h->first)
        return chain_send(h, t, own);
    char *part = h->parts[t % TUNING_CHAIN_DEPTH];
    const void *const srcs[2] = {part, own};
    const int status = net_op_wait(r->c->op, &h->in[t % TUNING_CHAIN_DEPTH]);
    if (status != COLLRUN_OK)
        return status;
    if (r->place == 0) {
        arith_finish(&r->a, (char *)r->c->call->recv + t * h->piece * r->a.user_elem, srcs, 2,
                     chain_len(h, t));
        return COLLRUN_OK;
    }
    arith_combine(&r->a, part, srcs, 2, chain_len(h, t));
    return chain_send(h, t, part);
}

/* Bytes of a piece. Short vectors of two ranks need no more memory than they have. */
static size_t chain_piece_len(const struct reduce *r)
{
    const struct coll *c = r->c;
    const size_t all = c->call->count * r->a.elem;
    if (c->nranks == 2)
        return all < TUNING_BLOCK_MAX_OF_TWO_RANKS ? all : TUNING_BLOCK_MAX_OF_TWO_RANKS;
    const size_t len = all / (TUNING_PIECES * (c->hosts->n - 1));
    if (len < TUNING_CHAIN_MIN)
        return TUNING_CHAIN_MIN;
    return len > TUNING_CHAIN_MAX ? TUNING_CHAIN_MAX : len;
}

static int chain_init(struct chain *h, struct reduce *r)
{
    struct coll *c = r->c;
    *h = (struct chain){.r = r, .piece = chain_piece_len(r) / r->a.elem};
    h->npieces = (c->call->count + h->piece - 1) / h->piece;
    h->first = r->place + 1 == c->hosts->n;
    bool complete = (h->room = coll_scratch(c, h->piece, r->a.elem)) != NULL;
    for (uint32_t k = 0; complete && c->leads && k < TUNING_CHAIN_DEPTH && k < h->npieces; k++)
        complete = (h->parts[k] = coll_scratch(c, h->piece, r->a.elem)) != NULL;
    return complete ? COLLRUN_OK : COLLRUN_ERR_NO_MEMORY;
}

static int reduce_chain(struct reduce *r)
{
    struct chain h;
    const char *own;
    int status = chain_init(&h, r);
    h.first = h.first && r->c->leads;
    for (size_t t = 0; status == COLLRUN_OK && t < h.npieces; t++) {
        if (r->c->leads && !h.first)
            status = chain_post(&h, t);
        if (status == COLLRUN_OK)
            status = chain_load(&h, t, &own);
        if (status == COLLRUN_OK && r->c->leads)
            status = chain_pass(&h, t, own);
    }
    if (status != COLLRUN_OK || !r->c->leads || r->place == 0)
        return status;
    const size_t n = h.npieces < TUNING_CHAIN_DEPTH ? h.npieces : TUNING_CHAIN_DEPTH;
    return net_op_wait_all(r->c->op, h.out, (uint32_t)n);
}

int coll_reduce(struct coll *c)
{
    struct reduce r = {.c = c, .a = arith_of(c, c->nranks > 2)};
    const uint32_t n = c->hosts->n;
    r.place = (c->host + n - c->root_host) % n;
    const bool is_short = c->call->count * c->elem <= TUNING_SHORT_BYTES;
    return is_short || n == 1 ? reduce_short(&r) : reduce_chain(&r);
}
