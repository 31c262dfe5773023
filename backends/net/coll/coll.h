/* SPDX-License-Identifier: Apache-2.0
 *
 * struct coll: one collective while it runs in one rank, and what all algorithms share: leaders,
 * calls on the ranks of this host, and blocks of the vector forms.
 */
#ifndef NET_COLL_COLL_H
#define NET_COLL_COLL_H

#include "hosts.h"
#include "local.h"
#include "op.h"

struct coll {
    struct net_op *op;
    const struct collrun_call *call;
    const struct collrun_services *services;
    const struct net_hosts *hosts;
    struct net_local *local; /* NULL: this rank is the only one of its host */
    uint32_t rank, nranks;   /* of the group */
    uint32_t host, root_host;
    bool has_root, leads; /* leads: this rank is the leader of its host */
    size_t elem;          /* bytes */
};

/* Slots (op.h): the phase of an algorithm and a number in it. */
#define COLL_PHASES 8u
static inline uint32_t coll_slot(size_t number, uint32_t phase)
{
    return (uint32_t)(number * COLL_PHASES + phase);
}

/* The rank that exchanges with other hosts: the root on its host, else the first one. */
static inline uint32_t coll_leader(const struct coll *c, uint32_t host)
{
    return c->has_root && host == c->root_host ? (uint32_t)c->call->root
                                               : net_hosts_rank(c->hosts, host, 0);
}

/* The host that is k after this one, round. */
static inline uint32_t coll_next_host(const struct coll *c, uint32_t k)
{
    return (c->host + k) % c->hosts->n;
}

static inline bool coll_is_root(const struct coll *c)
{
    return c->has_root && c->rank == (uint32_t)c->call->root;
}

/* The address at `offset`; NULL for a buffer that the call does not have. */
static inline char *coll_at(const void *base, size_t offset)
{
    return base ? (char *)(uintptr_t)base + offset : NULL;
}

/* memcpy, unless there is nothing to copy, or it is in its place. */
void coll_copy(void *dst, const void *src, size_t len);

/* The same for this rank's own block, while messages are in flight: they progress. */
int coll_copy_own(struct coll *c, void *dst, const void *src, size_t len);

/* Scratch memory for `n` things of `size` bytes; never NULL for n == 0. */
void *coll_scratch(struct coll *c, size_t n, size_t size);

/* Fills in the lead's rank as root, and runs the call on the ranks of this host. OK without any.
 * Meanwhile this thread receives nothing from the network. */
int coll_run_local(struct coll *c, struct collrun_call *call);

/* Broadcasts bytes from the leader to the ranks of this host. */
int coll_broadcast_local(struct coll *c, void *data, size_t len);

/* Where the blocks of all ranks lie in a buffer, by its extent in the table of kinds: bytes. */
struct coll_blocks {
    const size_t *counts, *displs; /* elements; counts NULL: `count` each; displs NULL: packed */
    size_t count, elem;
    size_t *at; /* of packed counts: the offsets in elements; else NULL */
};
/* `extent`: enum collrun_extent. On failure (no memory) the cause is stored. */
int coll_blocks_init(struct coll *c, struct coll_blocks *b, unsigned char extent);
static inline size_t coll_block_len(const struct coll_blocks *b, uint32_t rank)
{
    return (b->counts ? b->counts[rank] : b->count) * b->elem;
}
static inline size_t coll_block_at(const struct coll_blocks *b, uint32_t rank)
{
    if (!b->counts)
        return rank * b->count * b->elem;
    return (b->displs ? b->displs[rank] : b->at[rank]) * b->elem;
}

/* How many bytes of one owner's block of `len` bytes a piece of a reduction has. */
size_t coll_piece_len(const struct coll *c, size_t len);

/* Messages that are in flight together; all are waited for before more begin. */
struct coll_batch {
    struct coll *c;
    struct net_request *requests;
    uint32_t n, capacity;
};
int coll_batch_init(struct coll *c, struct coll_batch *b, uint32_t capacity);
/* Messages of 0 bytes are left out: both ends know the length. The capacity is not checked. */
int coll_batch_send(struct coll_batch *b, uint32_t peer, uint32_t slot, const void *data,
                    size_t len);
int coll_batch_recv(struct coll_batch *b, uint32_t peer, uint32_t slot, void *data, size_t len);
int coll_batch_wait(struct coll_batch *b);

/* The kinds. */
int coll_barrier(struct coll *c);
int coll_broadcast(struct coll *c);
int coll_allreduce(struct coll *c);
int coll_reduce(struct coll *c);
int coll_reduce_scatter(struct coll *c);
int coll_allgather(struct coll *c);
int coll_gather(struct coll *c); /* and scatter */
int coll_alltoall(struct coll *c);

#endif
