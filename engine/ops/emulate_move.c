/* SPDX-License-Identifier: Apache-2.0
 *
 * - barrier: log2(n) rounds (dissemination); broadcast: a binomial tree.
 * - All others: one round, in which each rank exchanges its blocks with all peers that need them.
 */
#include "ops/emulate_move.h"

#include <string.h>

int emulate_barrier(struct emulation *e)
{
    char *tokens = emulate_scratch(e, 2);
    int rc = tokens ? COLLRUN_OK : COLLRUN_ERR_NO_MEMORY;
    if (tokens)
        memset(tokens, 0, 2);
    for (uint32_t step = 1; rc == COLLRUN_OK && step < e->n; step *= 2) {
        emulate_add_send(e, (e->me + step) % e->n, tokens, 1);
        emulate_add_recv(e, (e->me + e->n - step) % e->n, tokens + 1, 1);
        rc = emulate_exchange(e);
    }
    return rc;
}

/* A binomial tree, seen from the root. */
int emulate_broadcast(struct emulation *e)
{
    const struct collrun_call *call = e->call;
    uint32_t root = (uint32_t)call->root, vrank = (e->me + e->n - root) % e->n, step = 1;
    size_t len = call->count * e->es;
    while (step <= vrank)
        step *= 2;
    if (vrank) {
        emulate_add_recv(e, (vrank - step / 2 + root) % e->n, call->recv, len);
        int rc = emulate_exchange(e);
        if (rc != COLLRUN_OK)
            return rc;
    }
    for (; vrank + step < e->n; step *= 2)
        emulate_add_send(e, (vrank + step + root) % e->n, call->recv, len);
    return emulate_exchange(e);
}

int emulate_all_gather(struct emulation *e, const void *mine, const struct cut *into)
{
    struct block own = emulate_block_of(e, into, e->me);
    emulate_copy(own.bytes, mine, own.len);
    for (uint32_t i = 1; i < e->n; i++) {
        uint32_t to = (e->me + i) % e->n, from = (e->me + e->n - i) % e->n;
        struct block b = emulate_block_of(e, into, from);
        emulate_add_send(e, to, own.bytes, own.len);
        emulate_add_recv(e, from, b.bytes, b.len);
    }
    return emulate_exchange(e);
}

int emulate_gather(struct emulation *e, const void *mine, size_t len, const struct cut *into,
                   uint32_t root)
{
    if (e->me != root) {
        emulate_add_send(e, root, mine, len);
        return emulate_exchange(e);
    }
    for (uint32_t i = 0; i < e->n; i++) {
        struct block b = emulate_block_of(e, into, i);
        if (i == root)
            emulate_copy(b.bytes, mine, b.len);
        else
            emulate_add_recv(e, i, b.bytes, b.len);
    }
    return emulate_exchange(e);
}

int emulate_scatter(struct emulation *e, const struct cut *from, void *mine, size_t len,
                    uint32_t root)
{
    if (e->me != root) {
        emulate_add_recv(e, root, mine, len);
        return emulate_exchange(e);
    }
    for (uint32_t i = 0; i < e->n; i++) {
        struct block b = emulate_block_of(e, from, i);
        if (i == root)
            emulate_copy(mine, b.bytes, b.len);
        else
            emulate_add_send(e, i, b.bytes, b.len);
    }
    return emulate_exchange(e);
}

int emulate_all_to_all(struct emulation *e, struct cut from, const struct cut *into)
{
    if (from.base == into->base && !from.counts) { /* in place */
        size_t len = from.equal * e->es * e->n;
        void *copy = emulate_scratch(e, len);
        if (!copy)
            return COLLRUN_ERR_NO_MEMORY;
        emulate_copy(copy, from.base, len);
        from.base = copy;
    }
    struct block own = emulate_block_of(e, &from, e->me);
    emulate_copy(emulate_block_of(e, into, e->me).bytes, own.bytes, own.len);
    for (uint32_t i = 1; i < e->n; i++) {
        uint32_t to = (e->me + i) % e->n, source = (e->me + e->n - i) % e->n;
        struct block out = emulate_block_of(e, &from, to), in = emulate_block_of(e, into, source);
        emulate_add_send(e, to, out.bytes, out.len);
        emulate_add_recv(e, source, in.bytes, in.len);
    }
    return emulate_exchange(e);
}
