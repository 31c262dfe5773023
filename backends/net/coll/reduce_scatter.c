/* SPDX-License-Identifier: Apache-2.0
 *
 * Reduce-scatter. The blocks of all ranks are cut into pieces of the same length. Of each piece the
 * ranks of a host combine every block at their leader; the leaders send each block straight to the
 * leader of its owner, who combines the parts of all hosts at once, and hands the results to the
 * ranks of its host. While one piece is combined, the next ones are on the network.
 */
#include "coll/arith.h"

#define SCATTERED_DEPTH 3u /* pieces in flight */

struct scattered_slot {
    char *sums;  /* of this host, for each block one piece; NULL: the workload's send buffer */
    char *parts; /* of the other hosts for the blocks of this one */
    struct coll_batch received, sent;
};

struct scattered {
    struct coll *c;
    struct arith a;
    struct coll_blocks blocks; /* of the workload, packed */
    size_t piece, npieces;     /* elements; with one piece, blocks are packed in `sums`, too */
    size_t total;              /* elements of all blocks */
    uint32_t nlocal;
    const void **srcs;
    char *results; /* of the ranks of this host, for one piece; NULL: there is only one rank */
    size_t *counts, *at; /* of the ranks of this host, for the local group */
    struct scattered_slot slots[SCATTERED_DEPTH];
};

/* Elements of a rank's block in piece t. */
static size_t scattered_len(const struct scattered *s, size_t t, uint32_t rank)
{
    const size_t count = coll_block_len(&s->blocks, rank) / s->a.user_elem;
    const size_t at = t * s->piece;
    if (at >= count)
        return 0;
    return count - at < s->piece ? count - at : s->piece;
}

static const char *scattered_send(const struct scattered *s, size_t t, uint32_t rank)
{
    return coll_at(s->c->call->send,
                   coll_block_at(&s->blocks, rank) + t * s->piece * s->a.user_elem);
}

static char *scattered_sum(const struct scattered *s, size_t t, uint32_t rank)
{
    const size_t at =
        s->npieces == 1 ? coll_block_at(&s->blocks, rank) / s->a.user_elem : rank * s->piece;
    return s->slots[t % SCATTERED_DEPTH].sums + at * s->a.elem;
}

/* This host's part of a rank's block. */
static const char *scattered_part(const struct scattered *s, size_t t, uint32_t rank)
{
    return s->slots[t % SCATTERED_DEPTH].sums ? scattered_sum(s, t, rank)
                                              : scattered_send(s, t, rank);
}

static int scattered_load_block(struct scattered *s, char *sum, const char *send, size_t len)
{
    const void *own = arith_load(&s->a, sum, send, len);
    return arith_reduce_local(s->c, &s->a, own, sum, len);
}

/* Combines all blocks of this host. */
static int scattered_load(struct scattered *s, size_t t)
{
    struct scattered_slot *slot = &s->slots[t % SCATTERED_DEPTH];
    int status = COLLRUN_OK;
    if (!slot->sums)
        return COLLRUN_OK;
    if (s->npieces == 1)
        return scattered_load_block(s, slot->sums, s->c->call->send, s->total);
    for (uint32_t r = 0; status == COLLRUN_OK && r < s->c->nranks; r++) {
        const size_t len = scattered_len(s, t, r);
        if (len > 0)
            status = scattered_load_block(s, scattered_sum(s, t, r), scattered_send(s, t, r), len);
    }
    return status;
}

/* Where the part of the k-th host after this one lies, for the i-th rank of this host. */
static char *scattered_room(const struct scattered *s, size_t t, uint32_t k, uint32_t i)
{
    return s->slots[t % SCATTERED_DEPTH].parts +
           ((size_t)(k - 1) * s->nlocal + i) * s->piece * s->a.elem;
}

static int scattered_exchange(struct scattered *s, size_t t)
{
    struct coll *c = s->c;
    struct scattered_slot *slot = &s->slots[t % SCATTERED_DEPTH];
    const uint32_t n = c->hosts->n;
    int status = COLLRUN_OK;
    for (uint32_t k = 1; k < n; k++) {
        const uint32_t from = coll_leader(c, coll_next_host(c, n - k));
        for (uint32_t i = 0; status == COLLRUN_OK && i < s->nlocal; i++) {
            const uint32_t owner = net_hosts_rank(c->hosts, c->host, i);
            status =
                coll_batch_recv(&slot->received, from, coll_slot(t * c->nranks + owner, 0),
                                scattered_room(s, t, k, i), scattered_len(s, t, owner) * s->a.elem);
        }
    }
    for (uint32_t k = 1; k < n; k++) {
        const uint32_t to = coll_next_host(c, k);
        for (uint32_t i = 0; status == COLLRUN_OK && i < net_hosts_count(c->hosts, to); i++) {
            const uint32_t owner = net_hosts_rank(c->hosts, to, i);
            status = coll_batch_send(
                &slot->sent, coll_leader(c, to), coll_slot(t * c->nranks + owner, 0),
                scattered_part(s, t, owner), scattered_len(s, t, owner) * s->a.elem);
        }
    }
    return status;
}

/* Combines the parts of all hosts, in the order of hosts, for the i-th rank of this one. */
static void scattered_combine(struct scattered *s, size_t t, uint32_t i)
{
    struct coll *c = s->c;
    const uint32_t n = c->hosts->n;
    const uint32_t owner = net_hosts_rank(c->hosts, c->host, i);
    char *result = s->results ? s->results + i * s->piece * s->a.user_elem
                              : coll_at(c->call->recv, t * s->piece * s->a.user_elem);
    for (uint32_t k = 1; k < n; k++)
        s->srcs[coll_next_host(c, n - k)] = scattered_room(s, t, k, i);
    s->srcs[c->host] = scattered_part(s, t, owner);
    arith_finish(&s->a, result, s->srcs, n, scattered_len(s, t, owner));
}

/* The leader's results of piece t to the ranks of this host. */
static int scattered_hand_out(struct scattered *s, size_t t)
{
    struct coll *c = s->c;
    struct collrun_call call = COLLRUN_CALL(COLLRUN_SCATTERV);
    if (!c->local)
        return COLLRUN_OK;
    for (uint32_t i = 0; i < s->nlocal; i++) {
        s->counts[i] = scattered_len(s, t, net_hosts_rank(c->hosts, c->host, i));
        s->at[i] = i * s->piece;
    }
    call.send = s->results;
    call.sendcounts = s->counts;
    call.senddispls = s->at;
    call.recv = coll_at(c->call->recv, t * s->piece * s->a.user_elem);
    call.recvcount = scattered_len(s, t, c->rank);
    call.dtype = s->a.user;
    return coll_run_local(c, &call);
}

static int scattered_end(struct scattered *s, size_t t)
{
    struct scattered_slot *slot = &s->slots[t % SCATTERED_DEPTH];
    int status = COLLRUN_OK;
    if (s->c->leads) {
        status = coll_batch_wait(&slot->received);
        for (uint32_t i = 0; status == COLLRUN_OK && i < s->nlocal; i++)
            scattered_combine(s, t, i);
        if (status == COLLRUN_OK)
            status = coll_batch_wait(&slot->sent);
    }
    return status == COLLRUN_OK ? scattered_hand_out(s, t) : status;
}

static bool scattered_init_leader(struct scattered *s)
{
    struct coll *c = s->c;
    const uint32_t others = c->nranks - s->nlocal, n = c->hosts->n;
    s->srcs = coll_scratch(c, n, sizeof *s->srcs);
    if (c->local)
        s->results = coll_scratch(c, s->nlocal * s->piece, s->a.user_elem);
    bool complete = s->srcs && (s->results || !c->local);
    for (uint32_t k = 0; complete && k < SCATTERED_DEPTH && k < s->npieces; k++) {
        struct scattered_slot *slot = &s->slots[k];
        slot->parts = coll_scratch(c, (n - 1) * s->nlocal * s->piece, s->a.elem);
        complete = slot->parts &&
                   coll_batch_init(c, &slot->received, (n - 1) * s->nlocal + 1) == COLLRUN_OK &&
                   coll_batch_init(c, &slot->sent, others + 1) == COLLRUN_OK;
    }
    return complete;
}

static int scattered_init(struct scattered *s, struct coll *c)
{
    *s = (struct scattered){.c = c, .a = arith_of(c, c->hosts->n < c->nranks)};
    s->nlocal = net_hosts_count(c->hosts, c->host);
    int status = coll_blocks_init(c, &s->blocks, collrun_kind_row(c->call->kind).send);
    if (status != COLLRUN_OK)
        return status;
    size_t longest = 0;
    for (uint32_t r = 0; r < c->nranks; r++) {
        const size_t block = coll_block_len(&s->blocks, r);
        s->total += block / s->a.user_elem;
        longest = block > longest ? block : longest;
    }
    s->piece = coll_piece_len(c, longest / s->a.user_elem * s->a.elem) / s->a.elem;
    s->npieces = (longest / s->a.user_elem + s->piece - 1) / s->piece;
    if (s->npieces == 1) /* short: no more memory than needed */
        s->piece = longest / s->a.user_elem;
    s->counts = coll_scratch(c, s->nlocal, sizeof *s->counts);
    s->at = coll_scratch(c, s->nlocal, sizeof *s->at);
    bool complete = s->counts && s->at;
    const bool sums = c->local || s->a.wide;
    for (uint32_t k = 0; complete && sums && k < SCATTERED_DEPTH && k < s->npieces; k++)
        complete = (s->slots[k].sums = coll_scratch(c, c->nranks * s->piece, s->a.elem)) != NULL;
    complete = complete && (!c->leads || scattered_init_leader(s));
    return complete ? COLLRUN_OK : COLLRUN_ERR_NO_MEMORY;
}

int coll_reduce_scatter(struct coll *c)
{
    struct scattered s;
    if (c->call->kind == COLLRUN_REDUCE_SCATTER && c->call->count == 0)
        return coll_barrier(c);
    int status = scattered_init(&s, c);
    for (size_t t = 0; status == COLLRUN_OK && t < s.npieces + SCATTERED_DEPTH - 1; t++) {
        const size_t ended = t - (SCATTERED_DEPTH - 1); /* large, if there is none */
        if (t < s.npieces)
            status = scattered_load(&s, t);
        if (status == COLLRUN_OK && t < s.npieces && c->leads)
            status = scattered_exchange(&s, t);
        if (status == COLLRUN_OK && ended < s.npieces)
            status = scattered_end(&s, ended);
    }
    return status;
}
