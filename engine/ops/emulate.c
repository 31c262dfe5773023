/* SPDX-License-Identifier: Apache-2.0
 *
 * Selects how a call is executed: natively, natively as bytes, or by rounds of messages. The rounds
 * of each kind are in emulate_move.h and, of reductions, at the end of this file.
 */
#include "ops/emulate.h"

#include "base/loop.h"
#include "base/standstill.h"
#include "core/backend.h"
#include "core/error.h"
#include "core/fingerprint.h"
#include "core/reduce.h"
#include "group/group.h"
#include "ops/emulate_move.h"
#include "progress/progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- by messages ---- */

/* The blocks of a buffer, by its extent in the table of kinds. */
static struct cut emulate_cut(const struct collrun_call *c, const void *base, unsigned char extent)
{
    switch (extent) {
    case COLLRUN_SENDCOUNTS_BLOCKS:
        return (struct cut){.base = base, .counts = c->sendcounts, .displs = c->senddispls};
    case COLLRUN_RECVCOUNTS_BLOCKS:
        return (struct cut){.base = base, .counts = c->recvcounts, .displs = c->recvdispls};
    case COLLRUN_RECVCOUNTS_PACKED:
        return (struct cut){.base = base, .counts = c->recvcounts};
    default:
        return (struct cut){.base = base, .equal = c->count};
    }
}

static int emulate_dispatch(struct emulation *e)
{
    const struct collrun_call *c = e->call;
    const struct collrun_kind_info info = collrun_kind_row(c->kind);
    const struct cut from = emulate_cut(c, c->send, info.send),
                     into = emulate_cut(c, c->recv, info.recv);
    const size_t own = info.recv == COLLRUN_RECVCOUNT_BLOCK ? c->recvcount : c->count;
    uint32_t root = (uint32_t)c->root;
    switch (c->kind) {
    case COLLRUN_BARRIER:
        return emulate_barrier(e);
    case COLLRUN_BROADCAST:
        return emulate_broadcast(e);
    case COLLRUN_ALLREDUCE:
    case COLLRUN_REDUCE:
        return emulate_reduce_all(e);
    case COLLRUN_ALLGATHER:
    case COLLRUN_ALLGATHERV:
        return emulate_all_gather(e, c->send, &into);
    case COLLRUN_GATHER:
    case COLLRUN_GATHERV:
        return emulate_gather(e, c->send, c->count * e->es, &into, root);
    case COLLRUN_SCATTER:
    case COLLRUN_SCATTERV:
        return emulate_scatter(e, &from, c->recv, own * e->es, root);
    case COLLRUN_REDUCE_SCATTER:
    case COLLRUN_REDUCE_SCATTERV:
        return emulate_reduce_block(e, &from, c->recv);
    case COLLRUN_ALLTOALL:
    case COLLRUN_ALLTOALLV:
        return emulate_all_to_all(e, from, &into);
    case COLLRUN_SCAN:
    case COLLRUN_EXSCAN:
        return emulate_scan(e);
    default:
        return COLLRUN_ERR_UNSUPPORTED;
    }
}

/* With a count of 0, forms with one count still synchronise. */
static bool emulate_is_empty(const struct collrun_call *call)
{
    return call->kind != COLLRUN_BARRIER && !collrun_kind_is_vector(call->kind) && !call->count;
}

/* The queue of the messages, which is another one if the backend wants that. */
static struct progress_queue *emulate_queue(const struct group_backend *gb,
                                            struct progress_queue *pq)
{
    bool separate = gb->backend->table.flags & COLLRUN_BACKEND_SEPARATE_P2P_HANDLE;
    return separate ? gb->pq[GROUP_MESSAGES] : pq;
}

void emulate_give_up(const struct group_backend *gb, struct progress_queue *pq, int status)
{
    struct progress_queue *queue = emulate_queue(gb, pq);
    struct p2p *p2p = queue->config.p2p;
    struct error_record cause = *error_get();
    char text[sizeof cause.cause + 32];
    snprintf(text, sizeof text, "%s", cause.cause);
    if (status != COLLRUN_ERR_TIMEOUT) /* that names the rank */
        snprintf(text, sizeof text, "rank %u: %s", gb->group->rank, cause.cause);
    if (queue != pq)
        pq_acquire(queue);
    if (p2p && p2p->status == COLLRUN_OK)
        p2p_fail_with_peer(p2p, COLLRUN_ANY_SOURCE, status, text);
    if (queue != pq)
        pq_release(queue);
    error_restore(&cause);
}

static int emulate_by_messages(const struct group_backend *gb, struct progress_queue *pq,
                               const struct collrun_call *calls, uint32_t ncalls)
{
    const struct collrun_group *g = gb->group;
    const struct collrun_call *call = &calls[0];
    struct emulation e = {.pq = pq,
                          .p2p = emulate_queue(gb, pq),
                          .kind = group_host_kind(gb),
                          .call = call,
                          .ndevices = ncalls,
                          .world_rank = g->id.members.items,
                          .me = g->rank,
                          .n = g->nranks,
                          .es = dtype_size(call->dtype),
                          .deadline_ns = deadline_after(now_ns(), call->timeout_ns),
                          .stopped_ns = standstill_total(now_ns())};
    e.messages = calloc(2 * (size_t)g->nranks, sizeof *e.messages);
    int rc = COLLRUN_OK;
    if (!e.messages)
        rc = error_cause(COLLRUN_ERR_NO_MEMORY, "out of memory for %u messages", 2 * g->nranks);
    else if (emulate_is_empty(call))
        rc = emulate_barrier(&e);
    else
        rc = ncalls > 1 ? emulate_devices(&e) : emulate_dispatch(&e);
    if (rc != COLLRUN_OK)
        emulate_give_up(gb, pq, rc);
    free(e.messages);
    emulate_scratch_drop(&e, rc);
    return rc;
}

/* ---- moving as bytes ---- */

static void emulate_scale(size_t *to, const size_t *from, uint32_t n, size_t es)
{
    for (uint32_t i = 0; from && i < n; i++)
        to[i] = from[i] * es;
}

/* `arrays` has room for four of n counts. */
static void emulate_to_bytes(struct collrun_call *c, uint32_t n, size_t *arrays)
{
    size_t es = dtype_size(c->dtype);
    const size_t **fields[4] = {&c->sendcounts, &c->senddispls, &c->recvcounts, &c->recvdispls};
    for (uint32_t i = 0; i < 4; i++) {
        emulate_scale(arrays + i * n, *fields[i], n, es);
        *fields[i] = *fields[i] ? arrays + i * n : NULL;
    }
    c->dtype = COLLRUN_UINT8;
    c->count *= es;
    c->recvcount *= es;
}

/* A call for each device of this process. */
static int emulate_exec_as_bytes(const struct group_backend *gb, struct progress_queue *pq,
                                 const struct collrun_call *calls, uint32_t ncalls)
{
    const uint32_t n = gb->comm_size;
    struct collrun_call *own = calloc(ncalls, sizeof *own);
    size_t *arrays = calloc(4 * (size_t)n * ncalls, sizeof *arrays);
    int rc = own && arrays ? COLLRUN_OK
                           : error_cause(COLLRUN_ERR_NO_MEMORY,
                                         "out of memory for the counts of %u ranks", n);
    for (uint32_t i = 0; rc == COLLRUN_OK && i < ncalls; i++) {
        own[i] = calls[i];
        emulate_to_bytes(&own[i], n, arrays + 4 * (size_t)n * i);
    }
    if (rc == COLLRUN_OK)
        rc = progress_exec(pq, own, ncalls);
    free(arrays);
    free(own);
    return rc;
}

/* ---- alltoallv in place ---- */

/* The range of the send buffer that has blocks, in bytes. */
struct range {
    size_t from, to;
};

static struct range emulate_sent_range(const struct collrun_call *call, uint32_t n)
{
    size_t es = dtype_size(call->dtype), packed = 0;
    struct range r = {.from = SIZE_MAX};
    for (uint32_t i = 0; i < n; i++) {
        size_t at = call->senddispls ? call->senddispls[i] : packed, len = call->sendcounts[i];
        packed += len;
        r.from = len && at < r.from ? at : r.from;
        r.to = len && at + len > r.to ? at + len : r.to;
    }
    return r.to ? (struct range){r.from * es, r.to * es} : (struct range){0};
}

/* Backends want the two buffers apart: the blocks are sent from a copy. `copies` get one for each
 * call that needs it. */
static int emulate_set_apart(const struct group_backend *gb, struct collrun_call *calls,
                             uint32_t ncalls, struct block *copies)
{
    struct memory_kind *kind = group_host_kind(gb);
    for (uint32_t i = 0; i < ncalls; i++) {
        struct range sent = emulate_sent_range(&calls[i], gb->comm_size);
        if (!call_is_in_place_alltoallv(&calls[i]))
            continue;
        char *copy = memory_kind_host_take(kind, sent.to);
        if (!copy)
            return error_cause(COLLRUN_ERR_NO_MEMORY, "out of memory for %zu bytes", sent.to);
        copies[i] = (struct block){copy, sent.to};
        memcpy(copy + sent.from, (const char *)calls[i].send + sent.from, sent.to - sent.from);
        calls[i].send = copy;
    }
    return COLLRUN_OK;
}

static int emulate_exec_apart(const struct group_backend *gb, struct progress_queue *pq,
                              const struct collrun_call *calls, uint32_t ncalls)
{
    struct memory_kind *kind = group_host_kind(gb);
    struct collrun_call *own = calloc(ncalls, sizeof *own);
    struct block *copies = calloc(ncalls, sizeof *copies);
    int rc = own && copies
                 ? COLLRUN_OK
                 : error_cause(COLLRUN_ERR_NO_MEMORY, "out of memory for %u calls", ncalls);
    if (rc == COLLRUN_OK) {
        memcpy(own, calls, ncalls * sizeof *own);
        rc = emulate_set_apart(gb, own, ncalls, copies);
    }
    if (rc == COLLRUN_OK)
        rc = emulate_exec(gb, pq, own, ncalls);
    for (uint32_t i = 0; copies && i < ncalls; i++)
        if (copies[i].bytes && (!kind || rc == COLLRUN_OK)) /* else a device may still read it */
            memory_kind_host_give(kind, copies[i].bytes, copies[i].len);
    free(copies);
    free(own);
    return rc;
}

/* The calls are alike in all but their buffers. */
static bool emulate_has_in_place_alltoallv(const struct collrun_call *calls, uint32_t ncalls)
{
    bool found = false;
    for (uint32_t i = 0; i < ncalls; i++)
        found = found || call_is_in_place_alltoallv(&calls[i]);
    return found;
}

int emulate_exec(const struct group_backend *gb, struct progress_queue *pq,
                 const struct collrun_call *calls, uint32_t ncalls)
{
    const struct backend *b = pq->config.backend;
    if (collrun_kind_is_message(calls->kind))
        return progress_exec(pq, calls, ncalls);
    if (emulate_has_in_place_alltoallv(calls, ncalls))
        return emulate_exec_apart(gb, pq, calls, ncalls);
    if (backend_is_native(b, calls))
        return progress_exec(pq, calls, ncalls);
    if (!collrun_kind_reduces(calls->kind) && b->native[calls->kind][COLLRUN_UINT8])
        return emulate_exec_as_bytes(gb, pq, calls, ncalls);
    return emulate_by_messages(gb, pq, calls, ncalls);
}

/* The vector is split into one part per rank. Every rank sends each part to its rank, each rank
 * combines the parts that it receives, and the results are sent to all ranks, to the root, or not
 * at all. This moves as much data as a ring, takes two rounds, and rounds once.
 *
 * The caller's operator combines from the last rank to the first, since it writes to its right
 * operand: s0 op (s1 op (... op s[n-1])). Parts and blocks begin where a unit begins. */

enum { BLOCK_ALIGNMENT = 64 };

enum collrun_dtype emulate_partial_dtype(const struct collrun_call *call)
{
    return call->user_op ? call->dtype : reduce_partial_dtype(call->dtype);
}

void emulate_combine(const struct collrun_call *call, const void *left, void *right, size_t count)
{
    const struct collrun_user_op *own = call->user_op;
    const void *const sources[2] = {left, right};
    if (!count)
        return;
    if (own)
        own->combine(own->ctx, left, right, count, call->dtype);
    else
        reduce_vectors(right, sources, 2, count, emulate_partial_dtype(call), call->op, 0);
}

/* ---- one block ---- */

/* The blocks of all ranks for this one; those of the others are in memory of the emulation. */
static int emulate_collect_blocks(struct emulation *e, const struct cut *from, void **sources)
{
    size_t len = emulate_block_of(e, from, e->me).len;
    size_t stride = (len + BLOCK_ALIGNMENT - 1) / BLOCK_ALIGNMENT * BLOCK_ALIGNMENT;
    char *room = emulate_scratch(e, stride * (e->n - 1));
    if (!room)
        return COLLRUN_ERR_NO_MEMORY;
    for (uint32_t i = 0; i < e->n; i++) {
        struct block b = emulate_block_of(e, from, i);
        sources[i] = b.bytes;
        if (i == e->me)
            continue;
        emulate_add_send(e, i, b.bytes, b.len);
        emulate_add_recv(e, i, room, len);
        sources[i] = room;
        room += stride;
    }
    return emulate_exchange(e);
}

/* Into the block of the last rank, or a copy of it if that is the input of this rank. */
static void emulate_combine_blocks(const struct emulation *e, void *const *sources, void *dst,
                                   size_t len)
{
    uint32_t last = e->n - 1;
    void *result = sources[last];
    if (e->me == last) {
        emulate_copy(dst, result, len);
        result = dst;
    }
    for (uint32_t i = last; i-- > 0;)
        emulate_combine(e->call, sources[i], result, len / e->es);
    emulate_copy(dst, result, len);
}

int emulate_reduce_block(struct emulation *e, const struct cut *from, void *dst)
{
    const struct collrun_call *call = e->call;
    size_t len = emulate_block_of(e, from, e->me).len;
    void **sources = calloc(e->n, sizeof *sources);
    if (!sources)
        return error_cause(COLLRUN_ERR_NO_MEMORY, "out of memory");
    int rc = emulate_collect_blocks(e, from, sources);
    if (rc == COLLRUN_OK && len && call->user_op)
        emulate_combine_blocks(e, sources, dst, len);
    else if (rc == COLLRUN_OK && len)
        reduce_vectors(dst, (const void *const *)sources, e->n, len / e->es, call->dtype, call->op,
                       call->op == COLLRUN_AVG ? e->n : 0);
    free(sources);
    return rc;
}

/* ---- whole vectors ---- */

/* One part per rank, of whole units: the first `units % n` parts have one unit more. */
static size_t *emulate_even_parts(const struct emulation *e)
{
    size_t unit = user_op_unit(e->call->user_op), units = e->call->count / unit;
    size_t *counts = calloc(e->n, sizeof *counts);
    for (uint32_t i = 0; counts && i < e->n; i++)
        counts[i] = unit * (units / e->n + (i < units % e->n));
    return counts;
}

static int emulate_reduce_parts(struct emulation *e, size_t *counts)
{
    const struct collrun_call *call = e->call;
    struct cut send = {.base = call->send, .counts = counts},
               recv = {.base = call->recv, .counts = counts};
    bool to_all = call->kind == COLLRUN_ALLREDUCE,
         receives = to_all || e->me == (uint32_t)call->root;
    struct block part = emulate_block_of(e, &send, e->me);
    void *result =
        receives ? emulate_block_of(e, &recv, e->me).bytes : emulate_scratch(e, part.len);
    if (!receives && !result)
        return COLLRUN_ERR_NO_MEMORY;
    int rc = emulate_reduce_block(e, &send, result);
    if (rc == COLLRUN_OK && to_all)
        return emulate_all_gather(e, result, &recv);
    return rc == COLLRUN_OK ? emulate_gather(e, result, part.len, &recv, (uint32_t)call->root) : rc;
}

int emulate_reduce_all(struct emulation *e)
{
    size_t *counts = emulate_even_parts(e);
    int rc = counts ? emulate_reduce_parts(e, counts)
                    : error_cause(COLLRUN_ERR_NO_MEMORY, "out of memory");
    free(counts);
    return rc;
}

/* ---- scans ---- */

/* - The devices of this process are combined first: prefix d is that of its devices 0 to d.
 * - The processes then scan, exclusively, what all their devices make together, in log2(n) rounds,
 *   rounded up (Hillis and Steele, "Data parallel algorithms", CACM 29, 1986). Before the round of
 *   distance k, the window of rank r combines ranks r-k+1 .. r. Rank r sends its window to r+k and
 *   combines the one of r-k from the left, so the windows double. Those that a rank receives cover
 *   all ranks before it, once.
 * - The result of a device combines both. A scan of processes without several devices is simpler:
 *   the window becomes the result.
 *
 * Partial results of half precision are float32, and rounded once. */

struct scan {
    struct emulation *e;
    bool simple;       /* a scan with one device: the result is the last window */
    size_t count, len; /* of one vector of partial results: elements, bytes */
    char *prefixes;    /* one vector for each device */
    void *window;      /* of this rank */
    void *received;    /* of another rank */
    void *before;      /* all windows received so far, combined */
    bool has_before;
};

static void *scan_prefix(const struct scan *s, uint32_t device)
{
    return s->prefixes + device * s->len;
}

/* A vector of partial results: the receive buffer if it may be and has their type. */
static void *scan_vector(const struct scan *s, bool may_be_result)
{
    const struct collrun_call *call = s->e->call;
    bool fits = may_be_result && call->recv && emulate_partial_dtype(call) == call->dtype;
    return fits ? call->recv : emulate_scratch(s->e, s->len);
}

static int scan_init(struct scan *s, struct emulation *e)
{
    const struct collrun_call *call = e->call;
    bool single = e->ndevices == 1;
    *s =
        (struct scan){.e = e, .simple = single && call->kind == COLLRUN_SCAN, .count = call->count};
    s->len = call->count * dtype_size(emulate_partial_dtype(call));
    s->window = scan_vector(s, s->simple);
    s->prefixes = single ? s->window : emulate_scratch(e, e->ndevices * s->len);
    s->received = emulate_scratch(e, s->len);
    bool good = s->prefixes && s->window && s->received;
    if (s->simple || e->me == 0)
        return good ? COLLRUN_OK : COLLRUN_ERR_NO_MEMORY;
    s->before = scan_vector(s, single);
    return good && s->before ? COLLRUN_OK : COLLRUN_ERR_NO_MEMORY;
}

/* ---- the devices of this process ---- */

static void scan_devices(struct scan *s)
{
    const struct emulation *e = s->e;
    for (uint32_t d = 0; d < e->ndevices; d++) {
        const struct collrun_call *call = emulate_call(e, d);
        if (call->user_op)
            emulate_copy(scan_prefix(s, d), call->send, s->len);
        else
            reduce_to_partial(scan_prefix(s, d), call->send, s->count, call->dtype, call->op);
        if (d)
            emulate_combine(call, scan_prefix(s, d - 1), scan_prefix(s, d), s->count);
    }
    emulate_copy(s->window, scan_prefix(s, e->ndevices - 1), s->len);
}

/* ---- the processes ---- */

/* The window of rank me - distance is in `received`. */
static void scan_combine(struct scan *s, uint32_t distance)
{
    const struct emulation *e = s->e;
    if (s->simple || e->me + 2 * distance < e->n) /* else the window is not sent any more */
        emulate_combine(e->call, s->received, s->window, s->count);
    if (s->simple)
        return;
    if (s->has_before)
        emulate_combine(e->call, s->received, s->before, s->count);
    else
        emulate_copy(s->before, s->received, s->len);
    s->has_before = true;
}

static int scan_round(struct scan *s, uint32_t distance)
{
    struct emulation *e = s->e;
    if (e->me + distance < e->n)
        emulate_add_send(e, e->me + distance, s->window, s->len);
    if (e->me >= distance)
        emulate_add_recv(e, e->me - distance, s->received, s->len);
    int rc = emulate_exchange(e);
    if (rc == COLLRUN_OK && e->me >= distance)
        scan_combine(s, distance);
    return rc;
}

/* ---- results ---- */

/* What lies before the result of a device in its own process; NULL: nothing does. */
static void *scan_own_part(const struct scan *s, uint32_t device)
{
    if (s->e->call->kind == COLLRUN_SCAN)
        return scan_prefix(s, device);
    return device ? scan_prefix(s, device - 1) : NULL;
}

/* AVG divides by the number of ranks that were combined. */
static void scan_store(const struct scan *s, uint32_t device)
{
    const struct collrun_call *call = emulate_call(s->e, device);
    uint32_t rank = s->e->me * s->e->ndevices + device;
    uint32_t combined = call->kind == COLLRUN_SCAN ? rank + 1 : rank;
    void *own = scan_own_part(s, device), *result = own ? own : s->before;
    if (!combined)
        return; /* the first rank of an exscan */
    if (own && s->has_before)
        emulate_combine(call, s->before, own, s->count);
    if (call->user_op)
        emulate_copy(call->recv, result, s->len);
    else
        reduce_from_partial(call->recv, result, s->count, call->dtype,
                            call->op == COLLRUN_AVG ? combined : 0);
}

int emulate_scan(struct emulation *e)
{
    struct scan s;
    int rc = scan_init(&s, e);
    if (rc == COLLRUN_OK)
        scan_devices(&s);
    for (uint32_t distance = 1; rc == COLLRUN_OK && distance < e->n; distance *= 2)
        rc = scan_round(&s, distance);
    for (uint32_t d = 0; rc == COLLRUN_OK && d < e->ndevices; d++)
        scan_store(&s, d);
    return rc;
}

/* ---- several devices ---- */

/* The devices of a process are neighbours in the order of ranks. Their vectors are combined here
 * first; the processes then execute one collective, and its result is handed to the devices. */

/* How many elements each device of all processes contributes. */
static size_t emulate_devices_count(const struct emulation *e)
{
    const struct collrun_call *call = e->call;
    size_t count = 0;
    if (call->kind != COLLRUN_REDUCE_SCATTERV)
        return call->kind == COLLRUN_REDUCE_SCATTER ? call->count * e->n * e->ndevices
                                                    : call->count;
    for (uint32_t i = 0; i < e->n * e->ndevices; i++)
        count += call->recvcounts[i];
    return count;
}

/* The vectors of all devices of this process, combined. NULL: out of memory. */
static void *emulate_devices_combine(struct emulation *e, size_t count)
{
    uint32_t device = e->ndevices - 1;
    void *sum = emulate_scratch(e, count * e->es);
    if (!sum)
        return NULL;
    emulate_copy(sum, emulate_call(e, device)->send, count * e->es);
    while (device-- > 0)
        emulate_combine(e->call, emulate_call(e, device)->send, sum, count);
    return sum;
}

/* ---- allreduce, reduce ---- */

static int emulate_devices_reduce_all(struct emulation *e, const void *sum)
{
    const struct collrun_call *first = e->call;
    bool to_all = first->kind == COLLRUN_ALLREDUCE;
    struct collrun_call call = *emulate_call(e, 0);
    call.send = sum;
    if (!to_all)
        call.recv = emulate_call(e, (uint32_t)first->peer_device)->recv;
    e->call = &call;
    int rc = emulate_reduce_all(e);
    e->call = first;
    for (uint32_t d = 1; rc == COLLRUN_OK && to_all && d < e->ndevices; d++)
        emulate_copy(emulate_call(e, d)->recv, call.recv, call.count * e->es);
    return rc;
}

/* ---- reduce_scatter and its v-form ---- */

static size_t emulate_devices_block(const struct emulation *e, uint32_t comm_rank)
{
    const struct collrun_call *call = e->call;
    return call->kind == COLLRUN_REDUCE_SCATTERV ? call->recvcounts[comm_rank] : call->count;
}

static int emulate_devices_reduce_scatter(struct emulation *e, const void *sum, size_t *counts)
{
    for (uint32_t i = 0; i < e->n * e->ndevices; i++)
        counts[i / e->ndevices] += emulate_devices_block(e, i);
    const struct cut blocks = {.base = sum, .counts = counts};
    char *at = emulate_scratch(e, counts[e->me] * e->es);
    int rc = at ? emulate_reduce_block(e, &blocks, at) : COLLRUN_ERR_NO_MEMORY;
    for (uint32_t d = 0; rc == COLLRUN_OK && d < e->ndevices; d++) {
        size_t len = emulate_devices_block(e, e->me * e->ndevices + d) * e->es;
        emulate_copy(emulate_call(e, d)->recv, at, len);
        at += len;
    }
    return rc;
}

int emulate_devices(struct emulation *e)
{
    enum collrun_kind kind = e->call->kind;
    size_t count = emulate_devices_count(e);
    if (kind == COLLRUN_SCAN || kind == COLLRUN_EXSCAN)
        return emulate_scan(e);
    void *sum = emulate_devices_combine(e, count);
    if (!sum)
        return COLLRUN_ERR_NO_MEMORY;
    if (kind == COLLRUN_ALLREDUCE || kind == COLLRUN_REDUCE)
        return emulate_devices_reduce_all(e, sum);
    size_t *counts = calloc(e->n, sizeof *counts);
    int rc = counts ? emulate_devices_reduce_scatter(e, sum, counts)
                    : error_cause(COLLRUN_ERR_NO_MEMORY, "out of memory");
    free(counts);
    return rc;
}
