/* SPDX-License-Identifier: Apache-2.0
 *
 * One operation, from shape to verdict. Every buffer is described by pieces: `at` this element of
 * it lie elements first.. of what rank `from` sends (or, reduced, of what all ranks make of them).
 * The same description fills the inputs, builds the expected output over the buffer's initial
 * contents, and checks afterwards that inputs are as they were: what no piece covers must still be
 * poison.
 */
#include "conform.h"

#include <stdio.h>
#include <string.h>

struct piece {
    size_t at, count;
    int from; /* a rank; -k: reduced over ranks 0 to k-1 */
    uint64_t first;
};

bool is_v(enum collrun_kind kind)
{
    return kind >= COLLRUN_ALLGATHERV && kind <= COLLRUN_ALLTOALLV;
}

bool has_op(enum collrun_kind kind)
{
    return kind == COLLRUN_ALLREDUCE || kind == COLLRUN_REDUCE || kind == COLLRUN_REDUCE_SCATTER ||
           kind == COLLRUN_REDUCE_SCATTERV || kind == COLLRUN_SCAN || kind == COLLRUN_EXSCAN;
}

bool has_root(enum collrun_kind kind)
{
    return kind == COLLRUN_REDUCE || kind == COLLRUN_BROADCAST || kind == COLLRUN_GATHER ||
           kind == COLLRUN_SCATTER || kind == COLLRUN_GATHERV || kind == COLLRUN_SCATTERV;
}

bool has_in_place(enum collrun_kind kind)
{
    return kind == COLLRUN_ALLREDUCE || kind == COLLRUN_REDUCE || kind == COLLRUN_ALLGATHER ||
           kind == COLLRUN_GATHER || kind == COLLRUN_SCATTER || kind == COLLRUN_REDUCE_SCATTER ||
           kind == COLLRUN_ALLTOALL || kind == COLLRUN_ALLTOALLV || kind == COLLRUN_SCAN ||
           kind == COLLRUN_EXSCAN;
}

bool kind_in_scope(const struct conform *run, enum collrun_kind kind)
{
    if (run->full)
        return true;
    return kind <= COLLRUN_ALLGATHER || kind == COLLRUN_REDUCE_SCATTER || kind == COLLRUN_SEND ||
           kind == COLLRUN_RECV || kind == COLLRUN_SCAN || kind == COLLRUN_EXSCAN;
}

bool dtype_in_scope(const struct conform *run, enum collrun_dtype dtype)
{
    if (run->full)
        return true;
    return dtype == COLLRUN_FLOAT32 || dtype == COLLRUN_FLOAT64 || dtype == COLLRUN_INT32 ||
           dtype == COLLRUN_INT64 || dtype == COLLRUN_UINT8;
}

bool op_in_scope(const struct conform *run, enum collrun_op op)
{
    return run->full || op <= COLLRUN_AVG;
}

/* ---- uneven counts: any rank can compute any other's ---- */
static size_t pair_count(const struct shape *s, int from, int to)
{
    if (s->in_place && from > to) /* each block is replaced by one of its length */
        return pair_count(s, to, from);
    size_t factor = (size_t)(from * 7 + to * 3 + (int)s->layout) % 5;
    return s->count == 0 ? 0 : (s->count + 1) * factor / 4;
}

static size_t rank_count(const struct shape *s, int rank)
{
    return pair_count(s, rank, 0);
}

static uint64_t rank_first(const struct shape *s, int rank)
{
    uint64_t first = 0;
    for (int r = 0; r < rank; r++)
        first += rank_count(s, r);
    return first;
}

static uint64_t pair_first(const struct shape *s, int from, int to)
{
    uint64_t first = 0;
    for (int r = 0; r < to; r++)
        first += pair_count(s, from, r);
    return first;
}

/* Lays `n` blocks out as the shape says; returns the elements they span. */
static size_t lay_out(enum layout layout, const size_t *counts, int n, size_t *displs)
{
    size_t at = 0, gap = layout == LAYOUT_PACKED ? 0 : 3;
    for (int i = 0; i < n; i++) {
        int block = layout == LAYOUT_REVERSED ? n - 1 - i : i;
        displs[block] = at;
        at += counts[block] + gap;
    }
    return at;
}

/* ---- which elements lie where ---- */
static bool at_root(const struct trial *t)
{
    return !has_root(t->shape.kind) || t->team->rank == t->shape.root;
}

static int blocks(struct piece *out, const size_t *counts, const size_t *displs, int n, int from)
{
    uint64_t first = 0;
    for (int r = 0; r < n; r++) {
        out[r] = (struct piece){displs[r], counts[r], from, first};
        first += counts[r];
    }
    return n;
}

/* What this rank sends. */
static int input_pieces(const struct trial *t, struct piece *out)
{
    const struct shape *s = &t->shape;
    int rank = t->team->rank, size = t->team->size;
    size_t count = s->count;
    switch (s->kind) {
    case COLLRUN_BARRIER:
    case COLLRUN_RECV:
    case COLLRUN_RECV_ANY:
        return 0;
    case COLLRUN_SCATTER:
    case COLLRUN_BROADCAST:
        if (!at_root(t))
            return 0;
        out[0] =
            (struct piece){0, s->kind == COLLRUN_SCATTER ? count * (size_t)size : count, rank, 0};
        return 1;
    case COLLRUN_REDUCE_SCATTER:
    case COLLRUN_ALLTOALL:
        out[0] = (struct piece){0, count * (size_t)size, rank, 0};
        return 1;
    case COLLRUN_ALLGATHERV:
    case COLLRUN_GATHERV:
        out[0] = (struct piece){0, rank_count(s, rank), rank, 0};
        return 1;
    case COLLRUN_REDUCE_SCATTERV:
        out[0] = (struct piece){0, rank_first(s, size), rank, 0};
        return 1;
    case COLLRUN_SCATTERV:
        return at_root(t) ? blocks(out, t->sendcounts, t->senddispls, size, rank) : 0;
    case COLLRUN_ALLTOALLV:
        return blocks(out, t->sendcounts, t->senddispls, size, rank);
    default:
        out[0] = (struct piece){0, count, rank, 0};
        return 1;
    }
}

static int gathered_pieces(const struct trial *t, struct piece *out)
{
    const struct shape *s = &t->shape;
    bool v = is_v(s->kind);
    if (!at_root(t))
        return 0;
    for (int r = 0; r < t->team->size; r++)
        out[r] = (struct piece){v ? t->recvdispls[r] : s->count * (size_t)r,
                                v ? t->recvcounts[r] : s->count, r, 0};
    return t->team->size;
}

static int exchanged_pieces(const struct trial *t, struct piece *out)
{
    const struct shape *s = &t->shape;
    bool v = is_v(s->kind);
    int rank = t->team->rank;
    for (int r = 0; r < t->team->size; r++)
        out[r] = (struct piece){v ? t->recvdispls[r] : s->count * (size_t)r,
                                v ? t->recvcounts[r] : s->count, r,
                                v ? pair_first(s, r, rank) : s->count * (uint64_t)rank};
    return t->team->size;
}

/* What this rank must receive. */
static int output_pieces(const struct trial *t, struct piece *out)
{
    const struct shape *s = &t->shape;
    int rank = t->team->rank, size = t->team->size;
    size_t count = s->count;
    switch (s->kind) {
    case COLLRUN_BARRIER:
    case COLLRUN_SEND:
        return 0;
    case COLLRUN_ALLREDUCE:
    case COLLRUN_REDUCE:
        out[0] = (struct piece){0, count, -size, 0};
        return at_root(t) ? 1 : 0;
    case COLLRUN_SCAN:
        out[0] = (struct piece){0, count, -(rank + 1), 0};
        return 1;
    case COLLRUN_EXSCAN:
        out[0] = (struct piece){0, count, -rank, 0};
        return rank ? 1 : 0;
    case COLLRUN_BROADCAST:
        out[0] = (struct piece){0, count, s->root, 0};
        return 1;
    case COLLRUN_SCATTER:
        out[0] = (struct piece){0, count, s->root, count * (uint64_t)rank};
        return 1;
    case COLLRUN_REDUCE_SCATTER:
        out[0] = (struct piece){0, count, -size, count * (uint64_t)rank};
        return 1;
    case COLLRUN_SCATTERV:
        out[0] = (struct piece){0, rank_count(s, rank), s->root, rank_first(s, rank)};
        return 1;
    case COLLRUN_REDUCE_SCATTERV:
        out[0] = (struct piece){0, rank_count(s, rank), -size, rank_first(s, rank)};
        return 1;
    case COLLRUN_ALLTOALL:
    case COLLRUN_ALLTOALLV:
        return exchanged_pieces(t, out);
    case COLLRUN_RECV:
    case COLLRUN_RECV_ANY:
        out[0] = (struct piece){0, count, s->from, 0};
        return 1;
    default:
        return gathered_pieces(t, out);
    }
}

/* Counts and displacements of v-forms; elements that the two buffers span are returned. */
static void lay_out_v(struct trial *t, size_t *send_len, size_t *recv_len)
{
    const struct shape *s = &t->shape;
    int rank = t->team->rank, size = t->team->size;
    for (int r = 0; r < size; r++) {
        bool pairs = s->kind == COLLRUN_ALLTOALLV;
        t->sendcounts[r] = pairs ? pair_count(s, rank, r) : rank_count(s, r);
        t->recvcounts[r] = pairs ? pair_count(s, r, rank) : rank_count(s, r);
    }
    *send_len = lay_out(s->layout, t->sendcounts, size, t->senddispls);
    *recv_len = lay_out(s->layout, t->recvcounts, size, t->recvdispls);
    if (s->kind == COLLRUN_ALLGATHERV || s->kind == COLLRUN_GATHERV)
        *send_len = rank_count(s, rank);
    if (s->kind == COLLRUN_REDUCE_SCATTERV)
        *send_len = (size_t)rank_first(s, size);
    if (s->kind == COLLRUN_SCATTERV || s->kind == COLLRUN_REDUCE_SCATTERV)
        *recv_len = rank_count(s, rank);
}

static void lay_out_even(const struct trial *t, size_t *send_len, size_t *recv_len)
{
    enum collrun_kind kind = t->shape.kind;
    size_t one = t->shape.count, all = one * (size_t)t->team->size;
    bool sends_all =
        kind == COLLRUN_SCATTER || kind == COLLRUN_REDUCE_SCATTER || kind == COLLRUN_ALLTOALL;
    bool recvs_all =
        kind == COLLRUN_ALLGATHER || kind == COLLRUN_GATHER || kind == COLLRUN_ALLTOALL;
    bool no_send = kind == COLLRUN_BARRIER || kind == COLLRUN_BROADCAST || kind == COLLRUN_RECV ||
                   kind == COLLRUN_RECV_ANY;
    bool no_recv = kind == COLLRUN_BARRIER || kind == COLLRUN_SEND;
    *send_len = no_send ? 0 : sends_all ? all : one;
    *recv_len = no_recv ? 0 : recvs_all ? all : one;
}

/* In place, one buffer is both: where in it (in elements) the inputs and the outputs begin. */
static void in_place_offsets(const struct trial *t, size_t *send_at, size_t *recv_at)
{
    size_t mine = t->shape.count * (size_t)t->team->rank;
    enum collrun_kind kind = t->shape.kind;
    *send_at = kind == COLLRUN_ALLGATHER || kind == COLLRUN_GATHER ? mine : 0;
    *recv_at = kind == COLLRUN_REDUCE_SCATTER || kind == COLLRUN_SCATTER ? mine : 0;
}

static bool in_place_here(const struct trial *t)
{
    enum collrun_kind kind = t->shape.kind;
    bool root_only = kind == COLLRUN_GATHER || kind == COLLRUN_SCATTER;
    return t->shape.in_place && (!root_only || at_root(t));
}

static void fill(const struct trial *t, unsigned char *at, const struct piece *pieces, int n)
{
    size_t w = width(t->shape.dtype);
    for (int i = 0; i < n; i++) {
        const struct piece *p = &pieces[i];
        if (p->from < 0)
            stream_reduced(&t->stream, -p->from, p->first, p->count, at + p->at * w);
        else
            stream_input(&t->stream, p->from, p->first, p->count, at + p->at * w);
    }
}

static void set_call(struct trial *t, void *send, void *recv)
{
    const struct shape *s = &t->shape;
    int rank = t->team->rank;
    bool packed = s->layout == LAYOUT_PACKED;
    struct collrun_call call = COLLRUN_CALL(s->kind);
    call.send = send;
    call.recv = recv;
    call.count = s->count;
    if (s->kind == COLLRUN_ALLGATHERV || s->kind == COLLRUN_GATHERV)
        call.count = rank_count(s, rank);
    call.recvcount = rank_count(s, rank);
    call.sendcounts = t->sendcounts;
    call.recvcounts = t->recvcounts;
    call.senddispls = packed ? NULL : t->senddispls;
    call.recvdispls = packed ? NULL : t->recvdispls;
    call.dtype = s->dtype;
    call.op = s->op;
    call.root = s->root;
    call.peer = s->kind == COLLRUN_SEND ? s->to : s->from;
    call.source = &t->source;
    call.tag = s->tag;
    call.user_op = s->user_op;
    t->call = call;
}

void trial_prepare(struct trial *t, struct team *team, const struct shape *shape)
{
    struct piece pieces[MAX_RANKS];
    size_t w = width(shape->dtype), send_len = 0, recv_len = 0, send_at = 0, recv_at = 0;
    t->team = team;
    t->shape = *shape;
    t->source = -1;
    t->stream =
        (struct stream){shape->dtype, has_op(shape->kind) ? (int)shape->op : OP_NONE,
                        mix(team->run->seed) + ++team->serial, team->run->cuda ? team->size : 0};
    if (team->run->alloc && !team->run->cuda)
        t->send.owner = t->recv.owner = team->group;
    if (is_v(shape->kind))
        lay_out_v(t, &send_len, &recv_len);
    else
        lay_out_even(t, &send_len, &recv_len);
    bool alone = in_place_here(t) || shape->kind == COLLRUN_BROADCAST;
    if (in_place_here(t))
        in_place_offsets(t, &send_at, &recv_at);

    unsigned skew =
        shape->misalign * (team->run->cuda ? (unsigned)w : 1); /* GPUs want elements whole */
    guarded_set(&t->send, alone ? 0 : send_len * w, skew);
    guarded_set(&t->recv, (alone && send_len > recv_len ? send_len : recv_len) * w, skew);
    unsigned char *from = (alone ? t->recv.at : t->send.at) + send_at * w;
    fill(t, from, pieces, input_pieces(t, pieces));

    guarded_set(&t->want, t->recv.len, 0);
    if (t->recv.len != 0)
        memcpy(t->want.at, t->recv.at, t->recv.len);
    fill(t, t->want.at + recv_at * w, pieces, output_pieces(t, pieces));
    set_call(t, from, t->recv.at + recv_at * w);
    if (team->run->cuda)
        device_upload(t);
}

static int block_uneven(struct collrun_group *g, const struct collrun_call *c)
{
    switch (c->kind) {
    case COLLRUN_ALLGATHERV:
        return collrun_allgatherv(g, c->send, c->count, c->recv, c->recvcounts, c->recvdispls,
                                  c->dtype);
    case COLLRUN_GATHERV:
        return collrun_gatherv(g, c->send, c->count, c->recv, c->recvcounts, c->recvdispls,
                               c->dtype, c->root);
    case COLLRUN_SCATTERV:
        return collrun_scatterv(g, c->send, c->sendcounts, c->senddispls, c->recv, c->recvcount,
                                c->dtype, c->root);
    case COLLRUN_REDUCE_SCATTERV:
        return collrun_reduce_scatterv(g, c->send, c->recv, c->recvcounts, c->dtype, c->op);
    default:
        return collrun_alltoallv(g, c->send, c->sendcounts, c->senddispls, c->recv, c->recvcounts,
                                 c->recvdispls, c->dtype);
    }
}

int trial_block(struct trial *t)
{
    struct collrun_group *g = t->team->group;
    const struct collrun_call *c = &t->call;
    if (c->user_op)
        return collrun_run(g, c, 1);
    switch (c->kind) {
    case COLLRUN_BARRIER:
        return collrun_barrier(g);
    case COLLRUN_ALLREDUCE:
        return collrun_allreduce(g, c->send, c->recv, c->count, c->dtype, c->op);
    case COLLRUN_REDUCE:
        return collrun_reduce(g, c->send, c->recv, c->count, c->dtype, c->op, c->root);
    case COLLRUN_BROADCAST:
        return collrun_broadcast(g, c->recv, c->count, c->dtype, c->root);
    case COLLRUN_ALLGATHER:
        return collrun_allgather(g, c->send, c->recv, c->count, c->dtype);
    case COLLRUN_GATHER:
        return collrun_gather(g, c->send, c->recv, c->count, c->dtype, c->root);
    case COLLRUN_SCATTER:
        return collrun_scatter(g, c->send, c->recv, c->count, c->dtype, c->root);
    case COLLRUN_REDUCE_SCATTER:
        return collrun_reduce_scatter(g, c->send, c->recv, c->count, c->dtype, c->op);
    case COLLRUN_SCAN:
        return collrun_scan(g, c->send, c->recv, c->count, c->dtype, c->op);
    case COLLRUN_EXSCAN:
        return collrun_exscan(g, c->send, c->recv, c->count, c->dtype, c->op);
    case COLLRUN_ALLTOALL:
        return collrun_alltoall(g, c->send, c->recv, c->count, c->dtype);
    case COLLRUN_SEND:
        return collrun_send(g, c->send, c->count, c->dtype, c->peer);
    case COLLRUN_RECV:
        return collrun_recv(g, c->recv, c->count, c->dtype, c->peer);
    case COLLRUN_RECV_ANY:
        return collrun_recv_any(g, c->recv, c->count, c->dtype, c->source);
    default:
        return block_uneven(g, c);
    }
}

void shape_print(const struct shape *s, char *out, size_t len)
{
    static const char *const layouts[] = {"", ", gaps", ", reversed"};
    char root[32] = "";
    if (has_root(s->kind))
        snprintf(root, sizeof root, ", root %d", s->root);
    else if (collrun_kind_is_message(s->kind))
        snprintf(root, sizeof root, ", %d to %d, tag %u", s->from, s->to, s->tag);
    snprintf(out, len, "%s(count %zu, %s%s%s%s%s%s", kind_names[s->kind], s->count,
             dtype_names[s->dtype], has_op(s->kind) ? ", " : "",
             has_op(s->kind) ? op_names[s->op] : "", root, s->in_place ? ", in place" : "",
             layouts[s->layout]);
    size_t used = strlen(out);
    if (used < len && s->misalign != 0)
        snprintf(out + used, len - used, ", %u past alignment)", s->misalign);
    else if (used < len)
        snprintf(out + used, len - used, ")");
}

static bool differs(struct trial *t)
{
    char what[160], got[48], want[48];
    const struct shape *s = &t->shape;
    size_t w = width(s->dtype), n = t->recv.len / w;
    size_t at = stream_differs(&t->stream, t->recv.at, t->want.at, n);
    if (at == n)
        return false;
    shape_print(s, what, sizeof what);
    stream_print(s->dtype, t->recv.at + at * w, got, sizeof got);
    stream_print(s->dtype, t->want.at + at * w, want, sizeof want);
    return !team_fail(t->team, "%s: element %zu of %zu is %s, expected %s", what, at, n, got, want);
}

/* The send buffer against a second rendering of it. */
static bool input_changed(struct trial *t)
{
    struct piece pieces[MAX_RANKS];
    if (t->send.len == 0)
        return false;
    guarded_set(&t->want, t->send.len, 0);
    fill(t, t->want.at, pieces, input_pieces(t, pieces));
    return memcmp(t->want.at, t->send.at, t->send.len) != 0;
}

bool trial_verify(struct trial *t, int status)
{
    char what[160];
    struct team *team = t->team;
    if (!collrun_kind_is_message(t->shape.kind))
        team_case(team);
    else if (t->shape.kind != COLLRUN_SEND)
        team->run->cases++;
    shape_print(&t->shape, what, sizeof what);
    if (!team_want(team, status, COLLRUN_OK, what))
        return false;
    if (team->run->cuda)
        device_download(t);
    if (!guarded_intact(&t->send) || !guarded_intact(&t->recv))
        return team_fail(team, "%s: wrote outside its buffer", what);
    if (differs(t))
        return false;
    if (t->shape.kind == COLLRUN_RECV_ANY && t->source != t->shape.from)
        return team_fail(team, "%s: source is %d", what, t->source);
    if (input_changed(t))
        return team_fail(team, "%s: changed its input", what);
    return true;
}

bool trial_run(struct trial *t, struct team *team, const struct shape *shape)
{
    int status;
    if (team->dead)
        return false;
    trial_prepare(t, team, shape);
    if (team->run->async) {
        status = collrun_start(team->group, &t->call, &t->request);
        if (status == COLLRUN_OK)
            status = team->run->cuda ? device_wait(t, t->request) : collrun_wait(t->request);
    } else {
        status = trial_block(t);
    }
    return trial_verify(t, status);
}

void trial_free(struct trial *t)
{
    guarded_free(&t->send);
    guarded_free(&t->recv);
    guarded_free(&t->want);
    if (t->team && t->team->run->cuda)
        device_free(t);
}
