/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives. Each moves blocks of elements: one block that all ranks share, or one per rank.
 *
 * - Blocks move in slices, so that the bounce buffers are small and MPI's int counts suffice. A
 *   slice is copied from the caller's buffer, passed to a nonblocking collective of MPI, and copied
 *   to the caller's buffer when that is complete.
 * - All ranks must use the same number of slices. Where a rank cannot know the longest block of all
 *   ranks (gatherv, scatterv, alltoallv), they first agree on it.
 * - An operation of count 0 moves one element that is ignored, so it synchronises like any other.
 * - The uniform forms run as vector forms with equal counts.
 * - The collectives of a group run one after the other, in call order.
 */
#include "mpi_backend.h"

#include <stdlib.h>
#include <string.h>

enum { SLICE_LEN = 1 << 20 }; /* bytes of a slice, at most, on each side */

/* The input or the output of a rank. */
struct coll_buffer {
    unsigned char *user;
    uint32_t nblocks; /* 0: this rank has no such buffer */
    size_t *counts;   /* owned: elements of each block */
    size_t *displs;   /* owned: their positions in `user` */
    int *slice_counts,
        *slice_displs; /* owned: the same of the slice in the bounce buffer, in units of `type` */
    int slice_total;
};

struct collective {
    struct operation op;
    enum collrun_kind kind;
    enum collrun_dtype dtype;
    enum collrun_op reduce;
    int root;
    size_t element; /* bytes */
    int unit;       /* elements (1) or bytes per element: what MPI counts */
    MPI_Datatype type;
    MPI_Op mpi_op;
    struct coll_buffer in, out;
    size_t longest, next, slice; /* elements of the longest block; done; per slice */
    enum { AGREE, AGREEING, SLICE, IN_FLIGHT, DONE } state;
    MPI_Request request;
};

/* ---- the blocks of each kind ---- */

enum { BLOCKS_NONE, BLOCKS_ONE, BLOCKS_EACH };

/* Input and output blocks, at the root and at other ranks. */
static const struct shape {
    unsigned char in_root, in, out_root, out;
} shapes[COLLRUN_KIND_COUNT] = {
    [COLLRUN_ALLREDUCE] = {BLOCKS_ONE, BLOCKS_ONE, BLOCKS_ONE, BLOCKS_ONE},
    [COLLRUN_REDUCE] = {BLOCKS_ONE, BLOCKS_ONE, BLOCKS_ONE, BLOCKS_NONE},
    [COLLRUN_BROADCAST] = {BLOCKS_ONE, BLOCKS_NONE, BLOCKS_NONE, BLOCKS_ONE},
    [COLLRUN_ALLGATHER] = {BLOCKS_ONE, BLOCKS_ONE, BLOCKS_EACH, BLOCKS_EACH},
    [COLLRUN_GATHER] = {BLOCKS_ONE, BLOCKS_ONE, BLOCKS_EACH, BLOCKS_NONE},
    [COLLRUN_SCATTER] = {BLOCKS_EACH, BLOCKS_NONE, BLOCKS_ONE, BLOCKS_ONE},
    [COLLRUN_REDUCE_SCATTER] = {BLOCKS_EACH, BLOCKS_EACH, BLOCKS_ONE, BLOCKS_ONE},
    [COLLRUN_ALLTOALL] = {BLOCKS_EACH, BLOCKS_EACH, BLOCKS_EACH, BLOCKS_EACH},
    [COLLRUN_ALLGATHERV] = {BLOCKS_ONE, BLOCKS_ONE, BLOCKS_EACH, BLOCKS_EACH},
    [COLLRUN_GATHERV] = {BLOCKS_ONE, BLOCKS_ONE, BLOCKS_EACH, BLOCKS_NONE},
    [COLLRUN_SCATTERV] = {BLOCKS_EACH, BLOCKS_NONE, BLOCKS_ONE, BLOCKS_ONE},
    [COLLRUN_REDUCE_SCATTERV] = {BLOCKS_EACH, BLOCKS_EACH, BLOCKS_ONE, BLOCKS_ONE},
    [COLLRUN_ALLTOALLV] = {BLOCKS_EACH, BLOCKS_EACH, BLOCKS_EACH, BLOCKS_EACH},
};

/* True if only some ranks know the lengths of all blocks. */
static bool collective_must_agree(enum collrun_kind kind)
{
    return collrun_kind_is_vector(kind) && !(collrun_kind_row(kind).flags & COLLRUN_COUNTS_ALIKE);
}

/* Sums, products and bit operations of signed integers use unsigned types, whose overflow is
 * defined. */
static MPI_Datatype collective_type(enum collrun_dtype dtype, enum collrun_op op)
{
    static const MPI_Datatype types[COLLRUN_DTYPE_COUNT] = {
        [COLLRUN_INT8] = MPI_INT8_T,   [COLLRUN_UINT8] = MPI_UINT8_T,
        [COLLRUN_INT16] = MPI_INT16_T, [COLLRUN_UINT16] = MPI_UINT16_T,
        [COLLRUN_INT32] = MPI_INT32_T, [COLLRUN_UINT32] = MPI_UINT32_T,
        [COLLRUN_INT64] = MPI_INT64_T, [COLLRUN_UINT64] = MPI_UINT64_T,
        [COLLRUN_FLOAT32] = MPI_FLOAT, [COLLRUN_FLOAT64] = MPI_DOUBLE,
    };
    bool ordered = op == COLLRUN_MIN || op == COLLRUN_MAX;
    return types[dtype <= COLLRUN_UINT64 && !ordered ? dtype | 1 : dtype];
}

static MPI_Op collective_op(enum collrun_op op)
{
    static const MPI_Op ops[COLLRUN_OP_COUNT] = {
        [COLLRUN_SUM] = MPI_SUM, [COLLRUN_PROD] = MPI_PROD, [COLLRUN_MIN] = MPI_MIN,
        [COLLRUN_MAX] = MPI_MAX, [COLLRUN_AVG] = MPI_SUM,   [COLLRUN_BAND] = MPI_BAND,
        [COLLRUN_BOR] = MPI_BOR, [COLLRUN_BXOR] = MPI_BXOR, [COLLRUN_LAND] = MPI_LAND,
        [COLLRUN_LOR] = MPI_LOR, [COLLRUN_LXOR] = MPI_LXOR,
    };
    return ops[op];
}

/* ---- slices ---- */

/* Computes the next slice of each block. Returns the total number of elements. */
static size_t collective_cut_slice(struct collective *c, struct coll_buffer *buf)
{
    size_t total = 0;
    for (uint32_t i = 0; i < buf->nblocks; i++) {
        size_t left = buf->counts[i] > c->next ? buf->counts[i] - c->next : 0;
        size_t n = c->longest == 0 ? 1 : left < c->slice ? left : c->slice;
        buf->slice_counts[i] = (int)n * c->unit;
        buf->slice_displs[i] = (int)total * c->unit;
        total += n;
    }
    buf->slice_total = (int)total * c->unit;
    return total;
}

/* Copies a slice between the caller's buffer and the bounce buffer, where it is packed. */
static void collective_copy_slice(const struct collective *c, const struct coll_buffer *buf,
                                  unsigned char *stage, bool in)
{
    const size_t scale = c->element / (size_t)c->unit; /* bytes of a unit */
    for (uint32_t i = 0; i < buf->nblocks && c->longest > 0; i++) {
        size_t len = (size_t)buf->slice_counts[i] * scale;
        unsigned char *user = buf->user + (buf->displs[i] + c->next) * c->element;
        unsigned char *packed = stage + (size_t)buf->slice_displs[i] * scale;
        if (len > 0)
            memcpy(in ? packed : user, in ? user : packed, len);
    }
}

static int bounce_reserve(struct group *group, struct bounce_buffer *stage, size_t len)
{
    if (len <= stage->len)
        return COLLRUN_OK;
    unsigned char *bytes = realloc(stage->bytes, len);
    if (!bytes)
        return group_fail(group, COLLRUN_ERR_NO_MEMORY, "out of memory for %zu bytes", len);
    memset(bytes + stage->len, 0, len - stage->len);
    *stage = (struct bounce_buffer){.bytes = bytes, .len = len};
    return COLLRUN_OK;
}

/* ---- MPI ---- */

static int collective_call_mpi(struct collective *c)
{
    struct group *group = c->op.group;
    const struct coll_buffer *in = &c->in, *out = &c->out;
    unsigned char *from = group->input.bytes, *to = group->output.bytes;
    MPI_Comm comm = group->comm->comm;
    MPI_Datatype t = c->type;
    bool is_root = (int)group->rank == c->root;
    switch (c->kind) {
    case COLLRUN_ALLREDUCE:
        return MPI_Iallreduce(from, to, in->slice_total, t, c->mpi_op, comm, &c->request);
    case COLLRUN_REDUCE:
        return MPI_Ireduce(from, to, in->slice_total, t, c->mpi_op, c->root, comm, &c->request);
    case COLLRUN_BROADCAST:
        return MPI_Ibcast(is_root ? from : to, is_root ? in->slice_total : out->slice_total, t,
                          c->root, comm, &c->request);
    case COLLRUN_ALLGATHER:
    case COLLRUN_ALLGATHERV:
        return MPI_Iallgatherv(from, in->slice_total, t, to, out->slice_counts, out->slice_displs,
                               t, comm, &c->request);
    case COLLRUN_GATHER:
    case COLLRUN_GATHERV:
        return MPI_Igatherv(from, in->slice_total, t, to, out->slice_counts, out->slice_displs, t,
                            c->root, comm, &c->request);
    case COLLRUN_SCATTER:
    case COLLRUN_SCATTERV:
        return MPI_Iscatterv(from, in->slice_counts, in->slice_displs, t, to, out->slice_total, t,
                             c->root, comm, &c->request);
    case COLLRUN_REDUCE_SCATTER:
    case COLLRUN_REDUCE_SCATTERV:
        return MPI_Ireduce_scatter(from, to, in->slice_counts, t, c->mpi_op, comm, &c->request);
    case COLLRUN_ALLTOALL:
    case COLLRUN_ALLTOALLV:
        return MPI_Ialltoallv(from, in->slice_counts, in->slice_displs, t, to, out->slice_counts,
                              out->slice_displs, t, comm, &c->request);
    default:
        return MPI_Ibarrier(comm, &c->request);
    }
}

static int collective_start_slice(struct collective *c)
{
    struct group *group = c->op.group;
    int rc = bounce_reserve(group, &group->input, collective_cut_slice(c, &c->in) * c->element);
    if (rc == COLLRUN_OK)
        rc = bounce_reserve(group, &group->output, collective_cut_slice(c, &c->out) * c->element);
    if (rc != COLLRUN_OK)
        return rc;
    collective_copy_slice(c, &c->in, group->input.bytes, true);
    int error = collective_call_mpi(c);
    c->state = IN_FLIGHT;
    return error == MPI_SUCCESS ? COLLRUN_OK : group_fail_mpi(group, "the collective", error);
}

static void collective_finish_slice(struct collective *c)
{
    struct group *group = c->op.group;
    const struct collrun_services *s = group->services;
    const void *sums = group->output.bytes;
    /* MPI does not divide for AVG, and does not normalise the logical results of a single rank to 0
     * and 1. */
    if (collrun_kind_reduces(c->kind) && (c->reduce == COLLRUN_AVG || group->nranks == 1) &&
        c->out.nblocks > 0)
        s->reduce(group->output.bytes, &sums, 1, (size_t)c->out.slice_total, c->dtype, c->reduce,
                  group->nranks);
    collective_copy_slice(c, &c->out, group->output.bytes, false);
    c->next += c->slice;
    c->state = c->next < c->longest ? SLICE : DONE;
}

/* Agrees on the longest block of all ranks, in the first eight bytes of the bounce buffers. */
static int collective_start_agreement(struct collective *c)
{
    struct group *group = c->op.group;
    uint64_t longest = c->longest;
    int rc = bounce_reserve(group, &group->input, sizeof longest);
    if (rc == COLLRUN_OK)
        rc = bounce_reserve(group, &group->output, sizeof longest);
    if (rc != COLLRUN_OK)
        return rc;
    memcpy(group->input.bytes, &longest, sizeof longest);
    int error = MPI_Iallreduce(group->input.bytes, group->output.bytes, 1, MPI_UINT64_T, MPI_MAX,
                               group->comm->comm, &c->request);
    c->state = AGREEING;
    return error == MPI_SUCCESS ? COLLRUN_OK : group_fail_mpi(group, "MPI_Iallreduce", error);
}

static void collective_finish_agreement(struct collective *c)
{
    uint64_t longest;
    memcpy(&longest, c->op.group->output.bytes, sizeof longest);
    c->longest = (size_t)longest;
    c->state = SLICE;
}

int collective_advance(struct operation *op)
{
    struct collective *c = (struct collective *)op;
    int done = 1;
    while (c->state != DONE) {
        int rc = c->state == AGREE   ? collective_start_agreement(c)
                 : c->state == SLICE ? collective_start_slice(c)
                                     : COLLRUN_OK;
        if (rc != COLLRUN_OK)
            return rc;
        int error = MPI_Test(&c->request, &done, MPI_STATUS_IGNORE);
        if (error != MPI_SUCCESS)
            return group_fail_mpi(op->group, "the collective", error);
        if (!done)
            return COLLRUN_AGAIN;
        if (c->state == AGREEING)
            collective_finish_agreement(c);
        else
            collective_finish_slice(c);
    }
    return COLLRUN_OK;
}

/* ---- construction ---- */

static void coll_buffer_free(struct coll_buffer *buf)
{
    free(buf->counts);
    free(buf->displs);
    free(buf->slice_counts);
    free(buf->slice_displs);
}

void collective_free(struct operation *op)
{
    struct collective *c = (struct collective *)op;
    if (c->request != MPI_REQUEST_NULL)
        return; /* MPI may still use the counts */
    coll_buffer_free(&c->in);
    coll_buffer_free(&c->out);
    free(c);
}

static bool coll_buffer_alloc(struct coll_buffer *buf, unsigned blocks, uint32_t nranks)
{
    buf->nblocks = blocks == BLOCKS_EACH ? nranks : blocks == BLOCKS_ONE ? 1 : 0;
    buf->counts = calloc(nranks, sizeof *buf->counts);
    buf->displs = calloc(nranks, sizeof *buf->displs);
    buf->slice_counts = calloc(nranks, sizeof *buf->slice_counts);
    buf->slice_displs = calloc(nranks, sizeof *buf->slice_displs);
    return buf->counts && buf->displs && buf->slice_counts && buf->slice_displs;
}

/* Without `counts` all blocks are `count` long; without `displs` they are packed. */
static void coll_buffer_lay_out(struct coll_buffer *buf, const void *user, size_t count,
                                const size_t *counts, const size_t *displs)
{
    size_t packed = 0;
    buf->user = (unsigned char *)(uintptr_t)user;
    for (uint32_t i = 0; i < buf->nblocks; i++) {
        buf->counts[i] = counts ? counts[i] : count;
        buf->displs[i] = displs ? displs[i] : packed;
        packed += buf->counts[i];
    }
}

static size_t coll_buffer_longest(const struct coll_buffer *buf)
{
    size_t longest = 0;
    for (uint32_t i = 0; i < buf->nblocks; i++)
        longest = buf->counts[i] > longest ? buf->counts[i] : longest;
    return longest;
}

/* Fills in both buffers from the fields that types.h defines for each kind. */
static bool coll_buffers_init(struct collective *c, const struct collrun_call *call)
{
    const struct group *group = c->op.group;
    const struct shape *shape = &shapes[c->kind];
    bool is_root = (int)group->rank == c->root;
    bool sends_v = c->kind == COLLRUN_SCATTERV || c->kind == COLLRUN_ALLTOALLV;
    bool receives_v =
        c->kind == COLLRUN_ALLGATHERV || c->kind == COLLRUN_GATHERV || c->kind == COLLRUN_ALLTOALLV;
    bool reduces_v = c->kind == COLLRUN_REDUCE_SCATTERV;
    size_t mine = c->kind == COLLRUN_SCATTERV ? call->recvcount
                  : reduces_v                 ? call->recvcounts[group->rank]
                                              : call->count;
    if (!coll_buffer_alloc(&c->in, is_root ? shape->in_root : shape->in, group->nranks) ||
        !coll_buffer_alloc(&c->out, is_root ? shape->out_root : shape->out, group->nranks))
        return false;
    const size_t *sent = sends_v ? call->sendcounts : reduces_v ? call->recvcounts : NULL;
    coll_buffer_lay_out(&c->in, c->kind == COLLRUN_BROADCAST ? call->recv : call->send, call->count,
                        sent, sends_v ? call->senddispls : NULL);
    coll_buffer_lay_out(&c->out, call->recv, mine, receives_v ? call->recvcounts : NULL,
                        receives_v ? call->recvdispls : NULL);
    return true;
}

int collective_new(struct group *group, const struct collrun_call *call, struct operation **out)
{
    const struct collrun_services *s = group->services;
    const struct shape *shape = &shapes[call->kind];
    bool each = shape->in_root == BLOCKS_EACH || shape->out_root == BLOCKS_EACH;
    struct collective *c = calloc(1, sizeof *c);
    if (!c)
        return s->fail(s->ctx, COLLRUN_ERR_NO_MEMORY, "out of memory");
    c->op.group = group;
    c->request = MPI_REQUEST_NULL;
    c->kind = call->kind;
    c->root = call->root;
    c->dtype = call->dtype;
    c->reduce = call->op;
    c->element = call->kind == COLLRUN_BARRIER ? 1 : s->dtype_size(call->dtype);
    c->unit = collrun_kind_reduces(c->kind) ? 1 : (int)c->element;
    c->type = collrun_kind_reduces(c->kind) ? collective_type(c->dtype, c->reduce) : MPI_BYTE;
    c->mpi_op = collrun_kind_reduces(c->kind) ? collective_op(c->reduce) : MPI_OP_NULL;
    if (!coll_buffers_init(c, call)) {
        collective_free(&c->op);
        return s->fail(s->ctx, COLLRUN_ERR_NO_MEMORY, "out of memory");
    }
    c->longest = coll_buffer_longest(&c->in) > coll_buffer_longest(&c->out)
                     ? coll_buffer_longest(&c->in)
                     : coll_buffer_longest(&c->out);
    c->slice = SLICE_LEN / c->element / (each ? group->nranks : 1);
    c->slice = c->slice ? c->slice : 1;
    c->state = collective_must_agree(c->kind) ? AGREE : SLICE;
    *out = &c->op;
    return COLLRUN_OK;
}
