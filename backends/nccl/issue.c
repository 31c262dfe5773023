/* SPDX-License-Identifier: Apache-2.0
 *
 * Putting operations onto the ports' streams. Each call waits, on the GPU, for what its caller's
 * stream holds; all calls of one operation go to NCCL as one group, so that they progress together,
 * and so do the messages that their ranks have agreed to launch together; a mark behind them tells
 * when they are done. Nothing here waits for another rank: connections were made when the group was
 * formed.
 */
#include "group.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

/* CUDA's errors from here on are about what runs on the GPU, not about a call's arguments. */
enum { FIRST_DEVICE_ERROR = 200 };

/* ---- failures ---- */

int nccl_failed(struct nccl_group *g, ncclComm_t comm, ncclResult_t result, const char *what)
{
    const struct nccl_api *nccl = &g->home->lib.nccl;
    const char *more = nccl->ncclGetLastError ? nccl->ncclGetLastError(comm) : "";
    const int status = result == ncclRemoteError ? COLLRUN_ERR_PEER_FAILED : COLLRUN_ERR_BACKEND;
    char xid[160] = "", text[sizeof(g->why)];
    for (uint32_t i = 0; i < g->nports && !xid[0]; i++)
        if (g->ports[i].device)
            xid_words(g->ports[i].device, xid, sizeof(xid));
    snprintf(text, sizeof(text), "%s: %s%s%s%s", what, nccl->ncclGetErrorString(result),
             more && *more ? ": " : "", more ? more : "", xid);
    group_doom(g, status, text);
    return g->services->fail(g->services->ctx, status, "%s", text);
}

int cuda_failed(struct nccl_group *g, const struct port *port, cudaError_t error, const char *what)
{
    char xid[160], text[sizeof(g->why)];
    g->home->lib.cuda.cudaGetLastError(); /* one that is not sticky must not surface elsewhere */
    if (error >= FIRST_DEVICE_ERROR)
        xid_await(g->home, port->device);
    snprintf(text, sizeof(text), "%s on GPU %d: %s%s", what, port->ordinal,
             g->home->lib.cuda.cudaGetErrorString(error),
             xid_words(port->device, xid, sizeof(xid)));
    group_doom(g, COLLRUN_ERR_BACKEND, text);
    return g->services->fail(g->services->ctx, COLLRUN_ERR_BACKEND, "%s", text);
}

int device_enter(const struct home *home, int ordinal)
{
    int before = ordinal;
    home->lib.cuda.cudaGetDevice(&before);
    if (before != ordinal)
        home->lib.cuda.cudaSetDevice(ordinal);
    return before;
}

void device_leave(const struct home *home, int before)
{
    int now = before;
    home->lib.cuda.cudaGetDevice(&now);
    if (before != now)
        home->lib.cuda.cudaSetDevice(before);
}

/* ---- waiting for NCCL itself ---- */

int await_ready(struct nccl_group *g, struct port *port, uint64_t deadline_ns)
{
    ncclResult_t state = ncclInProgress;
    for (unsigned round = 0;; round++) {
        const ncclResult_t asked = g->home->lib.nccl.ncclCommGetAsyncError(port->comm, &state);
        if (asked != ncclSuccess)
            state = asked;
        if (state == ncclSuccess)
            return COLLRUN_OK;
        if (state != ncclInProgress)
            return nccl_failed(g, port->comm, state, "NCCL");
        if (atomic_load_explicit(&g->fate, memory_order_acquire))
            return group_failure(g);
        const int gone = forming_goes_on(g);
        if (gone != COLLRUN_OK)
            return gone;
        if (round > 64 && clock_ns() >= deadline_ns)
            return g->services->fail(g->services->ctx, COLLRUN_ERR_TIMEOUT,
                                     "NCCL was not ready in time: a peer has not come, or cannot "
                                     "be reached");
        if (round < 1000)
            sched_yield();
        else
            pause_ns(50000);
    }
}

/* ---- native calls ---- */

/* One call on one port. */
struct order {
    struct nccl_group *g;
    struct port *port;
    const struct collrun_call *call;
    uint32_t rank; /* of the port in the communicator */
    int root;
    ncclDataType_t type; /* that moves or reduces, and how many of it one element is */
    size_t scale, width; /* width: bytes of an element */
    ncclRedOp_t op;
};

static char *at(const void *base, size_t bytes)
{
    return base ? (char *)(uintptr_t)base + bytes : NULL;
}

static ncclResult_t send_block(const struct order *o, const void *base, size_t first, size_t count,
                               uint32_t peer)
{
    if (!count)
        return ncclSuccess;
    return o->g->home->lib.nccl.ncclSend(at(base, first * o->width), count * o->scale, o->type,
                                         (int)peer, o->port->comm, o->port->stream);
}

static ncclResult_t recv_block(const struct order *o, void *base, size_t first, size_t count,
                               uint32_t peer)
{
    if (!count)
        return ncclSuccess;
    return o->g->home->lib.nccl.ncclRecv(at(base, first * o->width), count * o->scale, o->type,
                                         (int)peer, o->port->comm, o->port->stream);
}

/* Where the blocks of a buffer lie: equal ones, or those of a v-form. */
struct blocks {
    const void *base;
    size_t equal;
    const size_t *counts, *displs;
};

static ncclResult_t send_all(const struct order *o, const struct blocks *b)
{
    ncclResult_t result = ncclSuccess;
    size_t packed = 0;
    for (uint32_t i = 0; result == ncclSuccess && i < o->g->size; i++) {
        const size_t count = b->counts ? b->counts[i] : b->equal;
        result = send_block(o, b->base, b->displs ? b->displs[i] : packed, count, i);
        packed += count;
    }
    return result;
}

static ncclResult_t recv_all(const struct order *o, const struct blocks *b)
{
    ncclResult_t result = ncclSuccess;
    size_t packed = 0;
    for (uint32_t i = 0; result == ncclSuccess && i < o->g->size; i++) {
        const size_t count = b->counts ? b->counts[i] : b->equal;
        result =
            recv_block(o, (void *)(uintptr_t)b->base, b->displs ? b->displs[i] : packed, count, i);
        packed += count;
    }
    return result;
}

/* Every port's own block goes to every port. */
static ncclResult_t spread(const struct order *o, const void *block, size_t count)
{
    ncclResult_t result = ncclSuccess;
    for (uint32_t i = 0; result == ncclSuccess && i < o->g->size; i++)
        result = send_block(o, block, 0, count, i);
    return result;
}

static ncclResult_t both(ncclResult_t first, ncclResult_t second)
{
    return first != ncclSuccess ? first : second;
}

static ncclResult_t gather(const struct order *o, const struct blocks *into)
{
    const struct collrun_call *c = o->call;
    const bool at_root = (int)o->rank == o->root;
    const ncclResult_t sent = send_block(o, c->send, 0, c->count, (uint32_t)o->root);
    return at_root ? both(sent, recv_all(o, into)) : sent;
}

static ncclResult_t scatter(const struct order *o, const struct blocks *from, size_t count)
{
    const ncclResult_t sent = (int)o->rank == o->root ? send_all(o, from) : ncclSuccess;
    return both(sent, recv_block(o, o->call->recv, 0, count, (uint32_t)o->root));
}

/* A reduction per owner, each to the port whose block it is. */
static ncclResult_t reduce_scatterv(const struct order *o)
{
    const struct collrun_call *c = o->call;
    ncclResult_t result = ncclSuccess;
    size_t first = 0;
    for (uint32_t i = 0; result == ncclSuccess && i < o->g->size; i++) {
        if (c->recvcounts[i])
            result = o->g->home->lib.nccl.ncclReduce(at(c->send, first * o->width),
                                                     i == o->rank ? c->recv : NULL,
                                                     c->recvcounts[i] * o->scale, o->type, o->op,
                                                     (int)i, o->port->comm, o->port->stream);
        first += c->recvcounts[i];
    }
    return result;
}

static ncclResult_t moves(const struct order *o)
{
    const struct nccl_api *n = &o->g->home->lib.nccl;
    const struct collrun_call *c = o->call;
    const ncclComm_t comm = o->port->comm;
    const cudaStream_t stream = o->port->stream;
    const size_t count = c->count * o->scale;
    const struct blocks out = {c->send, c->count, c->sendcounts, c->senddispls};
    const struct blocks in = {c->recv, c->count, c->recvcounts, c->recvdispls};
    switch (c->kind) {
    case COLLRUN_BROADCAST:
        return n->ncclBroadcast(c->recv, c->recv, count, o->type, o->root, comm, stream);
    case COLLRUN_ALLGATHER:
        return n->ncclAllGather(c->send, c->recv, count, o->type, comm, stream);
    case COLLRUN_GATHER:
        return n->ncclGather
                   ? n->ncclGather(c->send, c->recv, count, o->type, o->root, comm, stream)
                   : gather(o, &in);
    case COLLRUN_SCATTER:
        return n->ncclScatter
                   ? n->ncclScatter(c->send, c->recv, count, o->type, o->root, comm, stream)
                   : scatter(o, &out, c->count);
    case COLLRUN_ALLTOALL:
        return n->ncclAlltoAll ? n->ncclAlltoAll(c->send, c->recv, count, o->type, comm, stream)
                               : both(send_all(o, &out), recv_all(o, &in));
    case COLLRUN_ALLGATHERV:
        return both(spread(o, c->send, c->count), recv_all(o, &in));
    case COLLRUN_GATHERV:
        return gather(o, &in);
    case COLLRUN_SCATTERV:
        return scatter(o, &out, c->recvcount);
    case COLLRUN_ALLTOALLV:
        return both(send_all(o, &out), recv_all(o, &in));
    default:
        return ncclInvalidArgument;
    }
}

static ncclResult_t reduces(const struct order *o)
{
    const struct nccl_api *n = &o->g->home->lib.nccl;
    const struct collrun_call *c = o->call;
    const ncclComm_t comm = o->port->comm;
    const cudaStream_t stream = o->port->stream;
    const size_t count = c->count * o->scale;
    switch (c->kind) {
    case COLLRUN_ALLREDUCE:
        return n->ncclAllReduce(c->send, c->recv, count, o->type, o->op, comm, stream);
    case COLLRUN_REDUCE:
        return n->ncclReduce(c->send, c->recv, count, o->type, o->op, o->root, comm, stream);
    case COLLRUN_REDUCE_SCATTER:
        return n->ncclReduceScatter(c->send, c->recv, count, o->type, o->op, comm, stream);
    default:
        return reduce_scatterv(o);
    }
}

static bool is_reduction(enum collrun_kind kind)
{
    return kind == COLLRUN_ALLREDUCE || kind == COLLRUN_REDUCE || kind == COLLRUN_REDUCE_SCATTER ||
           kind == COLLRUN_REDUCE_SCATTERV;
}

static struct order order_of(struct nccl_group *g, const struct collrun_call *call)
{
    const size_t width = g->services->dtype_size(call->dtype);
    return (struct order){.g = g,
                          .port = &g->ports[call->device],
                          .call = call,
                          .rank = g->rank * g->nports + (uint32_t)call->device,
                          .root = call->root * (int)g->nports + call->peer_device,
                          .type = ncclUint8,
                          .scale = width,
                          .width = width};
}

static ncclResult_t issue_native(struct nccl_group *g, const struct collrun_call *call)
{
    struct order o = order_of(g, call);
    if (!is_reduction(call->kind))
        return moves(&o); /* bytes: whatever the type */
    o.scale = 1;
    reduction_native(call->dtype, call->op, &o.type, &o.op);
    return reduces(&o);
}

/* Something for everybody to wait for. */
static ncclResult_t issue_token(struct nccl_group *g, struct port *p)
{
    return g->home->lib.nccl.ncclAllReduce(p->token, p->token, 1, ncclUint8, ncclMax, p->comm,
                                           p->stream);
}

/* ---- one operation ---- */

/* With nothing to move, the equal forms still wait for everybody; NCCL would not. */
static bool is_barrier(const struct collrun_call *call)
{
    return call->kind == COLLRUN_BARRIER || (call->kind < COLLRUN_ALLGATHERV && call->count == 0);
}

static uint64_t all_ports(const struct nccl_group *g)
{
    return g->nports == MOST_PORTS ? UINT64_MAX : (1ull << g->nports) - 1;
}

/* Of the ports in the set, in ascending order of ordinals: all threads lock in the same order. */
static void lock_devices(struct nccl_group *g, uint64_t set, bool lock)
{
    for (int ordinal = 0; ordinal < g->home->lib.device_count; ordinal++)
        for (uint32_t i = 0; i < g->nports; i++)
            if (set >> i & 1 && g->ports[i].ordinal == ordinal) {
                pthread_mutex_t *m = &g->ports[i].device->issue;
                lock ? pthread_mutex_lock(m) : pthread_mutex_unlock(m);
            }
}

/* What the caller's stream holds now comes before what this port's stream gets next. */
static int follow(struct nccl_group *g, struct port *p, void *stream)
{
    const struct cuda_api *cuda = &g->home->lib.cuda;
    cudaError_t error = cuda->cudaEventRecord(p->ready->event, stream);
    if (error == cudaSuccess)
        error = cuda->cudaStreamWaitEvent(p->stream, p->ready->event, 0);
    return error == cudaSuccess ? COLLRUN_OK
                                : cuda_failed(g, p, error, "order after the caller's stream");
}

/* What this port's stream gets next comes after the mark. */
static int follow_mark(struct nccl_group *g, struct port *p, const struct mark *mark)
{
    const int before = device_enter(g->home, p->ordinal);
    const cudaError_t error = g->home->lib.cuda.cudaStreamWaitEvent(p->stream, mark->event, 0);
    device_leave(g->home, before);
    return error == cudaSuccess ? COLLRUN_OK
                                : cuda_failed(g, p, error, "order after the caller's stream");
}

static int follow_all(struct nccl_group *g, const struct flight *f)
{
    int status = COLLRUN_OK;
    for (uint32_t i = 0; status == COLLRUN_OK && i < f->ncalls; i++) {
        const int device = f->calls[i].device;
        struct port *p = &g->ports[device];
        const int before = device_enter(g->home, p->ordinal);
        status = f->ready ? follow_mark(g, p, f->ready[device]) : follow(g, p, f->calls[i].stream);
        device_leave(g->home, before);
    }
    return status;
}

static int submit(struct nccl_group *g, const struct collrun_call *calls, uint32_t ncalls)
{
    const struct nccl_api *nccl = &g->home->lib.nccl;
    ncclResult_t result = nccl->ncclGroupStart();
    if (is_barrier(calls))
        for (uint32_t i = 0; result == ncclSuccess && i < g->nports; i++)
            result = issue_token(g, &g->ports[i]);
    else
        for (uint32_t i = 0; result == ncclSuccess && i < ncalls; i++)
            result = issue_native(g, &calls[i]);
    const ncclResult_t end = nccl->ncclGroupEnd();
    if (result == ncclSuccess && end != ncclInProgress)
        result = end;
    return result == ncclSuccess ? COLLRUN_OK
                                 : nccl_failed(g, g->ports[calls[0].device].comm, result, "NCCL");
}

/* NCCL launches at its leisure; only then is a mark behind the operation. The marks behind the
 * kernel before it are given back. */
static int mark_all(struct nccl_group *g, uint64_t set, struct mark **done, uint64_t deadline_ns)
{
    int status = COLLRUN_OK;
    for (uint32_t i = 0; status == COLLRUN_OK && i < g->nports; i++) {
        struct port *p = &g->ports[i];
        if (!(set >> i & 1))
            continue;
        status = await_ready(g, p, deadline_ns);
        if (status != COLLRUN_OK)
            break;
        struct mark *before = done[i];
        done[i] = port_mark(g, p, p->stream);
        port_take_back(p, before);
        if (!done[i])
            status = COLLRUN_ERR_BACKEND;
        atomic_fetch_add(&p->device->flying, (done[i] ? 1u : 0u) - (before ? 1u : 0u));
    }
    return status;
}

/* What is not NCCL's to do. */
static bool is_emulated(const struct collrun_call *call)
{
    ncclDataType_t type;
    ncclRedOp_t op;
    return !is_barrier(call) && is_reduction(call->kind) &&
           !reduction_native(call->dtype, call->op, &type, &op);
}

static bool is_in_place(const struct collrun_call *call)
{
    return call->kind == COLLRUN_ALLTOALL && call->count && call->send == call->recv;
}

bool is_heavy(const struct collrun_call *call)
{
    return is_emulated(call) || is_in_place(call);
}

int issue(struct nccl_group *g, struct flight *f)
{
    const uint64_t set = all_ports(g);
    const bool first = !f->unlaunched;
    lock_devices(g, set, true);
    int status = first ? follow_all(g, f) : COLLRUN_OK;
    if (status == COLLRUN_OK)
        status = is_emulated(f->calls)   ? emulate_reduction(g, f)
                 : is_in_place(f->calls) ? alltoall_in_place(g, f)
                                         : submit(g, f->calls, f->ncalls);
    if (status == COLLRUN_OK)
        status = mark_all(g, set, f->done, f->deadline_ns);
    lock_devices(g, set, false);
    if (status == COLLRUN_OK && !f->unlaunched)
        atomic_store_explicit(&f->marked, true, memory_order_release);
    return status;
}

/* ---- messages ---- */

static int follow_callers(struct nccl_group *g, const struct message *list)
{
    int status = COLLRUN_OK;
    for (const struct message *m = list; status == COLLRUN_OK && m; m = m->next)
        status = follow_mark(g, &g->ports[m->call->device], m->after);
    return status;
}

static int submit_messages(struct nccl_group *g, const struct message *list)
{
    const struct nccl_api *nccl = &g->home->lib.nccl;
    ncclResult_t result = nccl->ncclGroupStart();
    for (const struct message *m = list; result == ncclSuccess && m; m = m->next) {
        const struct order o = order_of(g, m->call);
        result = m->call->kind == COLLRUN_SEND
                     ? send_block(&o, m->call->send, 0, m->call->count, m->place)
                     : recv_block(&o, m->call->recv, 0, m->call->count, m->place);
    }
    const ncclResult_t end = nccl->ncclGroupEnd();
    if (result == ncclSuccess && end != ncclInProgress)
        result = end;
    return result == ncclSuccess
               ? COLLRUN_OK
               : nccl_failed(g, g->ports[list->call->device].comm, result, "NCCL");
}

int issue_messages(struct nccl_group *g, const struct message *list, struct mark **done)
{
    uint64_t set = 0;
    for (const struct message *m = list; m; m = m->next)
        set |= 1ull << m->call->device;
    lock_devices(g, set, true);
    int status = follow_callers(g, list);
    if (status == COLLRUN_OK)
        status = submit_messages(g, list);
    if (status == COLLRUN_OK)
        status = mark_all(g, set, done, list->flight->deadline_ns);
    lock_devices(g, set, false);
    return status;
}

/* ---- connecting ---- */

/* Beyond this many ranks, pairs connect when they first exchange messages. */
enum { MOST_CONNECTED = 128 };

static ncclResult_t greet(struct nccl_group *g, struct port *p)
{
    const struct nccl_api *nccl = &g->home->lib.nccl;
    ncclResult_t result = ncclSuccess;
    for (uint32_t i = 0; result == ncclSuccess && i < g->size && g->size <= MOST_CONNECTED; i++) {
        result = nccl->ncclSend(p->token, 1, ncclUint8, (int)i, p->comm, p->stream);
        if (result == ncclSuccess)
            result = nccl->ncclRecv(p->token + 1, 1, ncclUint8, (int)i, p->comm, p->stream);
    }
    return result;
}

/* Marked, and NCCL has accepted it. */
static int finish_step(struct nccl_group *g, struct flight *flight, ncclResult_t result)
{
    const int status =
        result == ncclSuccess ? COLLRUN_OK : nccl_failed(g, g->ports[0].comm, result, "connect");
    return status == COLLRUN_OK ? mark_all(g, all_ports(g), flight->done, flight->deadline_ns)
                                : status;
}

int issue_greetings(struct nccl_group *g, struct flight *flight)
{
    const struct nccl_api *nccl = &g->home->lib.nccl;
    lock_devices(g, all_ports(g), true);
    ncclResult_t result = nccl->ncclGroupStart();
    for (uint32_t i = 0; result == ncclSuccess && i < g->nports; i++)
        result = greet(g, &g->ports[i]);
    const ncclResult_t end = nccl->ncclGroupEnd();
    if (result == ncclSuccess && end != ncclInProgress)
        result = end;
    const int status = finish_step(g, flight, result);
    lock_devices(g, all_ports(g), false);
    return status;
}

int issue_roll(struct nccl_group *g, struct flight *flight)
{
    const struct collrun_call barrier = COLLRUN_CALL(COLLRUN_BARRIER);
    lock_devices(g, all_ports(g), true);
    int status = submit(g, &barrier, 1);
    if (status == COLLRUN_OK)
        status = mark_all(g, all_ports(g), flight->done, flight->deadline_ns);
    lock_devices(g, all_ports(g), false);
    return status;
}
