/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives. Every one of them moves blocks of elements: one block that all ranks share, or one
 * per rank. A long block goes in slices, so that the memory in which MPI sees it is small and MPI's
 * int counts suffice: slice after slice is copied from the caller's buffer, given to a nonblocking
 * collective of MPI, and copied on when that is done. All ranks must cut alike, so where a rank
 * cannot know the longest block of any other (gatherv, scatterv, alltoallv), they first agree on
 * it. An operation without any element moves one that nobody looks at, and so waits for whom the
 * full one would wait for.
 *
 * The uniform forms are the v-forms with equal counts. The collectives of a group run one after the
 * other, in their order.
 */
#include "mpi_backend.h"

#include <stdlib.h>
#include <string.h>

enum { STAGE_LEN = 1 << 20 }; /* of a slice's input, or output */

/* One side of a collective: what a rank brings, or gets. */
struct side {
    unsigned char *user;
    uint32_t nblocks;      /* 0: this rank has no part in this side */
    size_t *counts;        /* owned: elements of each block */
    size_t *places;        /* owned: where they are in `user` */
    int *cut, *cut_places; /* owned: the same of the slice in the stage, in units of `type` */
    int cut_total;
};

struct collective {
    struct operation op;
    enum collrun_kind kind;
    enum collrun_dtype dtype;
    enum collrun_op reduce;
    int root;
    size_t element; /* bytes */
    int unit;       /* what MPI counts: elements of a type it reduces, or bytes */
    MPI_Datatype type;
    MPI_Op mpi_op;
    struct side in, out;
    size_t longest, next, slice; /* elements of a block: on any rank, done, at once */
    enum { AGREE, AGREEING, CUT, FLY, DONE } state;
    MPI_Request request;
};

/* ---- what a kind is made of ---- */

enum { BLOCKS_NONE, BLOCKS_ONE, BLOCKS_EACH };

/* Blocks that go in and come out, at the root and elsewhere. */
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

static bool reduces(enum collrun_kind kind)
{
    return kind == COLLRUN_ALLREDUCE || kind == COLLRUN_REDUCE || kind == COLLRUN_REDUCE_SCATTER ||
           kind == COLLRUN_REDUCE_SCATTERV;
}

/* Whether only some ranks know how long the blocks are. */
static bool must_agree(enum collrun_kind kind)
{
    return kind == COLLRUN_GATHERV || kind == COLLRUN_SCATTERV || kind == COLLRUN_ALLTOALLV;
}

/* Sums, products and bits of signed integers are those of unsigned ones, whose overflow is defined.
 */
static MPI_Datatype type_of(enum collrun_dtype dtype, enum collrun_op op)
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

static MPI_Op op_of(enum collrun_op op)
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

/* Cuts the next slice out of each block. Returns its elements in all. */
static size_t cut(struct collective *c, struct side *side)
{
    size_t total = 0;
    for (uint32_t i = 0; i < side->nblocks; i++) {
        size_t left = side->counts[i] > c->next ? side->counts[i] - c->next : 0;
        size_t n = c->longest == 0 ? 1 : left < c->slice ? left : c->slice;
        side->cut[i] = (int)n * c->unit;
        side->cut_places[i] = (int)total * c->unit;
        total += n;
    }
    side->cut_total = (int)total * c->unit;
    return total;
}

/* Between the caller's buffer and the stage, which holds the slice packed. */
static void copy(const struct collective *c, const struct side *side, unsigned char *stage, bool in)
{
    const size_t scale = c->element / (size_t)c->unit; /* bytes of a unit */
    for (uint32_t i = 0; i < side->nblocks && c->longest > 0; i++) {
        size_t len = (size_t)side->cut[i] * scale;
        unsigned char *user = side->user + (side->places[i] + c->next) * c->element;
        unsigned char *packed = stage + (size_t)side->cut_places[i] * scale;
        if (len > 0)
            memcpy(in ? packed : user, in ? user : packed, len);
    }
}

static int reserve(struct group *group, struct stage *stage, size_t len)
{
    if (len <= stage->len)
        return COLLRUN_OK;
    unsigned char *bytes = realloc(stage->bytes, len);
    if (!bytes)
        return group_fail(group, COLLRUN_ERR_NO_MEMORY, "out of memory for %zu bytes", len);
    memset(bytes + stage->len, 0, len - stage->len);
    *stage = (struct stage){.bytes = bytes, .len = len};
    return COLLRUN_OK;
}

/* ---- MPI ---- */

static int call_mpi(struct collective *c)
{
    struct group *group = c->op.group;
    const struct side *in = &c->in, *out = &c->out;
    unsigned char *from = group->input.bytes, *to = group->output.bytes;
    MPI_Comm comm = group->comm->comm;
    MPI_Datatype t = c->type;
    bool is_root = (int)group->rank == c->root;
    switch (c->kind) {
    case COLLRUN_ALLREDUCE:
        return MPI_Iallreduce(from, to, in->cut_total, t, c->mpi_op, comm, &c->request);
    case COLLRUN_REDUCE:
        return MPI_Ireduce(from, to, in->cut_total, t, c->mpi_op, c->root, comm, &c->request);
    case COLLRUN_BROADCAST:
        return MPI_Ibcast(is_root ? from : to, is_root ? in->cut_total : out->cut_total, t, c->root,
                          comm, &c->request);
    case COLLRUN_ALLGATHER:
    case COLLRUN_ALLGATHERV:
        return MPI_Iallgatherv(from, in->cut_total, t, to, out->cut, out->cut_places, t, comm,
                               &c->request);
    case COLLRUN_GATHER:
    case COLLRUN_GATHERV:
        return MPI_Igatherv(from, in->cut_total, t, to, out->cut, out->cut_places, t, c->root, comm,
                            &c->request);
    case COLLRUN_SCATTER:
    case COLLRUN_SCATTERV:
        return MPI_Iscatterv(from, in->cut, in->cut_places, t, to, out->cut_total, t, c->root, comm,
                             &c->request);
    case COLLRUN_REDUCE_SCATTER:
    case COLLRUN_REDUCE_SCATTERV:
        return MPI_Ireduce_scatter(from, to, in->cut, t, c->mpi_op, comm, &c->request);
    case COLLRUN_ALLTOALL:
    case COLLRUN_ALLTOALLV:
        return MPI_Ialltoallv(from, in->cut, in->cut_places, t, to, out->cut, out->cut_places, t,
                              comm, &c->request);
    default:
        return MPI_Ibarrier(comm, &c->request);
    }
}

static int start_slice(struct collective *c)
{
    struct group *group = c->op.group;
    int rc = reserve(group, &group->input, cut(c, &c->in) * c->element);
    if (rc == COLLRUN_OK)
        rc = reserve(group, &group->output, cut(c, &c->out) * c->element);
    if (rc != COLLRUN_OK)
        return rc;
    copy(c, &c->in, group->input.bytes, true);
    int error = call_mpi(c);
    c->state = FLY;
    return error == MPI_SUCCESS ? COLLRUN_OK : group_fail_mpi(group, "the collective", error);
}

static void finish_slice(struct collective *c)
{
    struct group *group = c->op.group;
    const struct collrun_services *s = group->services;
    const void *sums = group->output.bytes;
    /* MPI only sums for an average, and leaves alone what a single rank brings, be it a truth value
     * other than 0 and 1. */
    if (reduces(c->kind) && (c->reduce == COLLRUN_AVG || group->nranks == 1) && c->out.nblocks > 0)
        s->reduce(group->output.bytes, &sums, 1, (size_t)c->out.cut_total, c->dtype, c->reduce,
                  group->nranks);
    copy(c, &c->out, group->output.bytes, false);
    c->next += c->slice;
    c->state = c->next < c->longest ? CUT : DONE;
}

/* The longest block of any rank, in the first eight bytes of the stages. */
static int start_agreement(struct collective *c)
{
    struct group *group = c->op.group;
    uint64_t longest = c->longest;
    int rc = reserve(group, &group->input, sizeof longest);
    if (rc == COLLRUN_OK)
        rc = reserve(group, &group->output, sizeof longest);
    if (rc != COLLRUN_OK)
        return rc;
    memcpy(group->input.bytes, &longest, sizeof longest);
    int error = MPI_Iallreduce(group->input.bytes, group->output.bytes, 1, MPI_UINT64_T, MPI_MAX,
                               group->comm->comm, &c->request);
    c->state = AGREEING;
    return error == MPI_SUCCESS ? COLLRUN_OK : group_fail_mpi(group, "MPI_Iallreduce", error);
}

static void finish_agreement(struct collective *c)
{
    uint64_t longest;
    memcpy(&longest, c->op.group->output.bytes, sizeof longest);
    c->longest = (size_t)longest;
    c->state = CUT;
}

static int advance(struct operation *op)
{
    struct collective *c = (struct collective *)op;
    int done = 1;
    while (c->state != DONE) {
        int rc = c->state == AGREE ? start_agreement(c)
                 : c->state == CUT ? start_slice(c)
                                   : COLLRUN_OK;
        if (rc != COLLRUN_OK)
            return rc;
        int error = MPI_Test(&c->request, &done, MPI_STATUS_IGNORE);
        if (error != MPI_SUCCESS)
            return group_fail_mpi(op->group, "the collective", error);
        if (!done)
            return COLLRUN_AGAIN;
        if (c->state == AGREEING)
            finish_agreement(c);
        else
            finish_slice(c);
    }
    return COLLRUN_OK;
}

/* ---- from a call ---- */

static void side_free(struct side *side)
{
    free(side->counts);
    free(side->places);
    free(side->cut);
    free(side->cut_places);
}

static void release(struct operation *op)
{
    struct collective *c = (struct collective *)op;
    if (c->request != MPI_REQUEST_NULL)
        return; /* MPI may still use the counts */
    side_free(&c->in);
    side_free(&c->out);
    free(c);
}

/* Without `counts` all blocks are `count` long; without `places` they are packed. */
static bool side_init(struct side *side, const void *user, unsigned blocks, uint32_t nranks,
                      size_t count, const size_t *counts, const size_t *places)
{
    size_t packed = 0;
    side->user = (unsigned char *)(uintptr_t)user;
    side->nblocks = blocks == BLOCKS_EACH ? nranks : blocks == BLOCKS_ONE ? 1 : 0;
    side->counts = calloc(nranks, sizeof *side->counts);
    side->places = calloc(nranks, sizeof *side->places);
    side->cut = calloc(nranks, sizeof *side->cut);
    side->cut_places = calloc(nranks, sizeof *side->cut_places);
    if (!side->counts || !side->places || !side->cut || !side->cut_places)
        return false;
    for (uint32_t i = 0; i < side->nblocks; i++) {
        side->counts[i] = counts ? counts[i] : count;
        side->places[i] = places ? places[i] : packed;
        packed += side->counts[i];
    }
    return true;
}

static size_t longest_of(const struct side *side)
{
    size_t longest = 0;
    for (uint32_t i = 0; i < side->nblocks; i++)
        longest = side->counts[i] > longest ? side->counts[i] : longest;
    return longest;
}

/* Fills in both sides from the fields that types.h names for each kind. */
static bool sides_init(struct collective *c, const struct collrun_call *call)
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
    return side_init(&c->in, c->kind == COLLRUN_BROADCAST ? call->recv : call->send,
                     is_root ? shape->in_root : shape->in, group->nranks, call->count,
                     sends_v     ? call->sendcounts
                     : reduces_v ? call->recvcounts
                                 : NULL,
                     sends_v ? call->senddispls : NULL) &&
           side_init(&c->out, call->recv, is_root ? shape->out_root : shape->out, group->nranks,
                     mine, receives_v ? call->recvcounts : NULL,
                     receives_v ? call->recvdispls : NULL);
}

int collective_new(struct group *group, const struct collrun_call *call, struct operation **out)
{
    const struct collrun_services *s = group->services;
    const struct shape *shape = &shapes[call->kind];
    bool each = shape->in_root == BLOCKS_EACH || shape->out_root == BLOCKS_EACH;
    struct collective *c = calloc(1, sizeof *c);
    if (!c)
        return s->fail(s->ctx, COLLRUN_ERR_NO_MEMORY, "out of memory");
    c->op = (struct operation){.group = group, .advance = advance, .release = release};
    c->request = MPI_REQUEST_NULL;
    c->kind = call->kind;
    c->root = call->root;
    c->dtype = call->dtype;
    c->reduce = call->op;
    c->element = call->kind == COLLRUN_BARRIER ? 1 : s->dtype_size(call->dtype);
    c->unit = reduces(c->kind) ? 1 : (int)c->element;
    c->type = reduces(c->kind) ? type_of(c->dtype, c->reduce) : MPI_BYTE;
    c->mpi_op = reduces(c->kind) ? op_of(c->reduce) : MPI_OP_NULL;
    if (!sides_init(c, call)) {
        release(&c->op);
        return s->fail(s->ctx, COLLRUN_ERR_NO_MEMORY, "out of memory");
    }
    c->longest =
        longest_of(&c->in) > longest_of(&c->out) ? longest_of(&c->in) : longest_of(&c->out);
    c->slice = STAGE_LEN / c->element / (each ? group->nranks : 1);
    c->slice = c->slice ? c->slice : 1;
    c->state = must_agree(c->kind) ? AGREE : CUT;
    *out = &c->op;
    return COLLRUN_OK;
}
