/* SPDX-License-Identifier: Apache-2.0
 *
 * Broadcast from the root to the leaders of the other hosts, and by each leader to its host.
 * - Short: a binomial tree of hosts.
 * - Long: a chain of hosts. Each passes on piece t while it receives piece t + 1, so every link
 *   carries the data once in each direction, all at the same time.
 */
#include "coll/coll.h"
#include "coll/tuning.h"

struct broadcast {
    struct coll *c;
    char *data;
    size_t len, piece, npieces;
    uint32_t place; /* of this host: the root's is 0 */
    struct net_request in[TUNING_CHAIN_DEPTH], out[TUNING_CHAIN_DEPTH];
};

static uint32_t broadcast_leader(const struct broadcast *b, uint32_t place)
{
    return coll_leader(b->c, (b->c->root_host + place) % b->c->hosts->n);
}

/* To the children of a tree in which this host's subtree has the places up to place + width - 1.
 * The farthest subtree is the largest: it is first. */
static int broadcast_to_children(struct broadcast *b, uint32_t width)
{
    struct net_request requests[32];
    uint32_t n = 0;
    int status = COLLRUN_OK;
    for (uint32_t k = width / 2; status == COLLRUN_OK && k > 0; k /= 2)
        if (b->place + k < b->c->hosts->n)
            status = net_op_send(b->c->op, &requests[n++], broadcast_leader(b, b->place + k),
                                 coll_slot(0, 0), b->data, b->len);
    return status == COLLRUN_OK ? net_op_wait_all(b->c->op, requests, n) : status;
}

static int broadcast_tree(struct broadcast *b)
{
    uint32_t width = 1;
    while (width < b->c->hosts->n && !(b->place & width))
        width *= 2;
    int status = COLLRUN_OK;
    if (b->place > 0) {
        struct net_request request;
        status = net_op_recv(b->c->op, &request, broadcast_leader(b, b->place - width),
                             coll_slot(0, 0), b->data, b->len);
        if (status == COLLRUN_OK)
            status = net_op_wait(b->c->op, &request);
    }
    return status == COLLRUN_OK ? broadcast_to_children(b, width) : status;
}

static size_t broadcast_piece_len(const struct broadcast *b, size_t t)
{
    const size_t at = t * b->piece;
    return b->len - at < b->piece ? b->len - at : b->piece;
}

static int broadcast_receive_piece(struct broadcast *b, size_t t)
{
    struct coll *c = b->c;
    const size_t first = t == 0 ? 0 : t + TUNING_CHAIN_DEPTH - 1;
    int status = COLLRUN_OK;
    for (size_t k = first; k < t + TUNING_CHAIN_DEPTH && k < b->npieces; k++) {
        status =
            net_op_recv(c->op, &b->in[k % TUNING_CHAIN_DEPTH], broadcast_leader(b, b->place - 1),
                        coll_slot(k, 0), b->data + k * b->piece, broadcast_piece_len(b, k));
        if (status != COLLRUN_OK)
            return status;
    }
    return net_op_wait(c->op, &b->in[t % TUNING_CHAIN_DEPTH]);
}

static int broadcast_pass_piece(struct broadcast *b, size_t t)
{
    struct net_request *request = &b->out[t % TUNING_CHAIN_DEPTH];
    const int status = t >= TUNING_CHAIN_DEPTH ? net_op_wait(b->c->op, request) : COLLRUN_OK;
    if (status != COLLRUN_OK)
        return status;
    return net_op_send(b->c->op, request, broadcast_leader(b, b->place + 1), coll_slot(t, 0),
                       b->data + t * b->piece, broadcast_piece_len(b, t));
}

static int broadcast_chain(struct broadcast *b)
{
    struct coll *c = b->c;
    const bool last = b->place + 1 == c->hosts->n;
    int status = COLLRUN_OK;
    for (size_t t = 0; status == COLLRUN_OK && t < b->npieces; t++) {
        if (c->leads && b->place > 0)
            status = broadcast_receive_piece(b, t);
        if (status == COLLRUN_OK && c->leads && !last)
            status = broadcast_pass_piece(b, t);
        if (status == COLLRUN_OK)
            status = coll_broadcast_local(c, b->data + t * b->piece, broadcast_piece_len(b, t));
    }
    if (status != COLLRUN_OK || !c->leads || last)
        return status;
    const size_t n = b->npieces < TUNING_CHAIN_DEPTH ? b->npieces : TUNING_CHAIN_DEPTH;
    return net_op_wait_all(c->op, b->out, (uint32_t)n);
}

int coll_broadcast(struct coll *c)
{
    struct broadcast b = {.c = c, .data = c->call->recv, .len = c->call->count * c->elem};
    b.place = (c->host + c->hosts->n - c->root_host) % c->hosts->n;
    if (b.len <= TUNING_SHORT_BYTES || c->hosts->n == 1) {
        const int status = c->leads ? broadcast_tree(&b) : COLLRUN_OK;
        return status == COLLRUN_OK ? coll_broadcast_local(c, b.data, b.len) : status;
    }
    b.piece = b.len;
    if (c->nranks > 2) {
        b.piece = b.len / (TUNING_PIECES * (c->hosts->n - 1));
        b.piece = b.piece < TUNING_CHAIN_MIN ? TUNING_CHAIN_MIN : b.piece;
        b.piece = b.piece > TUNING_CHAIN_MAX ? TUNING_CHAIN_MAX : b.piece;
    }
    b.npieces = (b.len + b.piece - 1) / b.piece;
    return broadcast_chain(&b);
}
