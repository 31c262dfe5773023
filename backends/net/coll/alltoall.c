/* SPDX-License-Identifier: Apache-2.0
 *
 * Alltoall and alltoallv. Ranks of one host exchange through shared memory; pairs on different
 * hosts send to each other directly, from buffer to buffer. In step k every rank sends to the k-th
 * rank after it and receives from the k-th before it, in the order of hosts, so that no link has
 * more than its share at any time. Steps are in flight together, up to a number that is the same on
 * all ranks.
 */
#include "coll/coll.h"
#include "coll/tuning.h"

struct alltoall {
    struct coll *c;
    struct coll_blocks out, in;
    struct coll_batch batch;
};

static uint32_t alltoall_rank(const struct coll *c, uint32_t place)
{
    return c->hosts->members[place % c->nranks];
}

/* The ranks of this host. `send` has the blocks for them, as `out` says; or packed, if not NULL. */
static int alltoall_here(struct alltoall *x, const char *packed)
{
    struct coll *c = x->c;
    const uint32_t nlocal = net_hosts_count(c->hosts, c->host);
    struct collrun_call call = COLLRUN_CALL(COLLRUN_ALLTOALLV);
    size_t *table = coll_scratch(c, (size_t)nlocal * 4, sizeof *table);
    if (!table)
        return COLLRUN_ERR_NO_MEMORY;
    size_t *sendcounts = table, *senddispls = table + nlocal;
    size_t *recvcounts = table + 2 * nlocal, *recvdispls = table + 3 * nlocal;
    for (uint32_t i = 0; i < nlocal; i++) {
        const uint32_t rank = net_hosts_rank(c->hosts, c->host, i);
        sendcounts[i] = coll_block_len(&x->out, rank) / c->elem;
        senddispls[i] = packed ? i * x->out.count : coll_block_at(&x->out, rank) / c->elem;
        recvcounts[i] = coll_block_len(&x->in, rank) / c->elem;
        recvdispls[i] = coll_block_at(&x->in, rank) / c->elem;
    }
    call.send = packed ? packed : c->call->send;
    call.recv = c->call->recv;
    call.sendcounts = sendcounts;
    call.senddispls = senddispls;
    call.recvcounts = recvcounts;
    call.recvdispls = recvdispls;
    call.dtype = c->call->dtype;
    return coll_run_local(c, &call);
}

/* Step k: one message in each direction. Those of 0 bytes are left out in the vector form alone,
 * where both ends have the count. */
static int alltoall_step(struct alltoall *x, uint32_t k)
{
    struct coll *c = x->c;
    const uint32_t place = c->hosts->place[c->rank];
    const uint32_t to = alltoall_rank(c, place + k), from = alltoall_rank(c, place + c->nranks - k);
    int status = COLLRUN_OK;
    if (c->hosts->of[from] != c->host)
        status = coll_batch_recv(&x->batch, from, coll_slot(0, 0),
                                 coll_at(c->call->recv, coll_block_at(&x->in, from)),
                                 coll_block_len(&x->in, from));
    if (status == COLLRUN_OK && c->hosts->of[to] != c->host)
        status = coll_batch_send(&x->batch, to, coll_slot(0, 0),
                                 coll_at(c->call->send, coll_block_at(&x->out, to)),
                                 coll_block_len(&x->out, to));
    return status;
}

static int alltoall_pairs(struct alltoall *x)
{
    struct coll *c = x->c;
    int status = coll_batch_init(c, &x->batch, TUNING_MESSAGES);
    bool here = !c->local;
    for (uint32_t k = 1; status == COLLRUN_OK && k < c->nranks; k++) {
        status = alltoall_step(x, k);
        if (k % (TUNING_MESSAGES / 2) != 0 || status != COLLRUN_OK)
            continue;
        if (!here)
            status = alltoall_here(x, NULL);
        here = true;
        if (status == COLLRUN_OK)
            status = coll_batch_wait(&x->batch);
    }
    if (status == COLLRUN_OK && !here)
        status = alltoall_here(x, NULL);
    if (status == COLLRUN_OK && !c->local)
        status = coll_copy_own(c, coll_at(c->call->recv, coll_block_at(&x->in, c->rank)),
                               coll_at(c->call->send, coll_block_at(&x->out, c->rank)),
                               coll_block_len(&x->out, c->rank));
    return status == COLLRUN_OK ? coll_batch_wait(&x->batch) : status;
}

/* In place, ranks are paired: in step k those whose places add up to k. Each copies its block for
 * the other, sends the copy, and receives into the block. */
static int alltoall_in_place(struct alltoall *x)
{
    struct coll *c = x->c;
    const uint32_t n = c->nranks, place = c->hosts->place[c->rank];
    const size_t len = x->out.count * c->elem;
    const size_t fit = TUNING_COPY_BYTES / (len + 1);
    uint32_t steps = TUNING_MESSAGES / 2;
    if (fit < steps)
        steps = fit > 0 ? (uint32_t)fit : 1;
    char *copies = coll_scratch(c, steps, len);
    int status = copies ? coll_batch_init(c, &x->batch, TUNING_MESSAGES) : COLLRUN_ERR_NO_MEMORY;
    for (uint32_t k = 0; status == COLLRUN_OK && k < n; k++) {
        const uint32_t peer = alltoall_rank(c, k + n - place);
        char *block = coll_at(c->call->recv, coll_block_at(&x->in, peer));
        char *copy = copies + (k % steps) * len;
        if (c->hosts->of[peer] != c->host) {
            coll_copy(copy, block, len);
            status = coll_batch_recv(&x->batch, peer, coll_slot(0, 0), block, len);
            if (status == COLLRUN_OK)
                status = coll_batch_send(&x->batch, peer, coll_slot(0, 0), copy, len);
        }
        if (status == COLLRUN_OK && (k + 1) % steps == 0)
            status = coll_batch_wait(&x->batch);
    }
    if (status == COLLRUN_OK)
        status = coll_batch_wait(&x->batch);
    if (status != COLLRUN_OK || !c->local)
        return status;
    const uint32_t nlocal = net_hosts_count(c->hosts, c->host);
    char *packed = coll_scratch(c, nlocal, len);
    if (!packed)
        return COLLRUN_ERR_NO_MEMORY;
    for (uint32_t i = 0; i < nlocal; i++)
        coll_copy(
            packed + i * len,
            coll_at(c->call->send, coll_block_at(&x->out, net_hosts_rank(c->hosts, c->host, i))),
            len);
    return alltoall_here(x, packed);
}

int coll_alltoall(struct coll *c)
{
    const struct collrun_call *call = c->call;
    const struct collrun_kind_info info = collrun_kind_row(call->kind);
    const bool uneven = info.flags & COLLRUN_IS_VECTOR;
    struct alltoall x = {.c = c};
    if (call->count == 0 && !uneven)
        return coll_barrier(c);
    int status = coll_blocks_init(c, &x.out, info.send);
    if (status == COLLRUN_OK)
        status = coll_blocks_init(c, &x.in, info.recv);
    if (status != COLLRUN_OK)
        return status;
    return !uneven && call->send == call->recv ? alltoall_in_place(&x) : alltoall_pairs(&x);
}
