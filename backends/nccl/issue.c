/* SPDX-License-Identifier: Apache-2.0
 *
 * Putting operations onto the streams of the group's GPUs.
 *
 * Happy path
 *   - each call waits, on the GPU, for what its caller's stream holds;
 *   - all calls of one operation go to NCCL as one NCCL group, so that they progress together; so
 *     do the messages of one epoch;
 *   - an event behind them, on each stream, shows when they are complete.
 * Nothing here waits for another rank: connections were made when the group was formed.
 */
#include "issue.h"

#include "collectives.h"
#include "group.h"

/* Beyond this number of communicator ranks, pairs connect when they first exchange messages. */
enum { MAX_WARM_UP_RANKS = 128 };

static uint64_t issue_all_devs(const struct nccl_group *g)
{
    return g->ndevs == MAX_DEVICES ? UINT64_MAX : (1ull << g->ndevs) - 1;
}

/* Locks or unlocks a set of the group's GPUs, in ascending order of CUDA ordinals: all threads lock
 * in the same order. */
static void issue_lock_devices(struct nccl_group *g, uint64_t set, bool lock)
{
    for (int ordinal = 0; ordinal < g->context->lib.device_count; ordinal++)
        for (uint32_t i = 0; i < g->ndevs; i++)
            if (set >> i & 1 && g->devs[i].ordinal == ordinal) {
                pthread_mutex_t *m = &g->devs[i].device->issue_lock;
                lock ? pthread_mutex_lock(m) : pthread_mutex_unlock(m);
            }
}

bool issue_try_lock(struct nccl_group *g)
{
    uint64_t locked = 0;
    for (uint32_t i = 0; i < g->ndevs; i++) {
        if (pthread_mutex_trylock(&g->devs[i].device->issue_lock) != 0) {
            issue_lock_devices(g, locked, false);
            return false;
        }
        locked |= 1ull << i;
    }
    return true;
}

void issue_unlock(struct nccl_group *g)
{
    issue_lock_devices(g, issue_all_devs(g), false);
}

/* ---- order after the callers' streams ---- */

/* Both with the device current: what its stream gets next runs after `event`, or after what the
 * caller's stream holds now. */
static int issue_after(struct nccl_group *g, struct dev_comm *dev, const struct event *event)
{
    cudaError_t error = g->context->lib.cuda.cudaStreamWaitEvent(dev->stream, event->handle, 0);
    return error == cudaSuccess
               ? COLLRUN_OK
               : nccl_group_fail_cuda(g, dev, error, "order after the caller's stream");
}

static int issue_after_stream(struct nccl_group *g, struct dev_comm *dev, void *stream)
{
    cudaError_t error = g->context->lib.cuda.cudaEventRecord(dev->caller_evt->handle, stream);
    return error == cudaSuccess
               ? issue_after(g, dev, dev->caller_evt)
               : nccl_group_fail_cuda(g, dev, error, "order after the caller's stream");
}

static int issue_after_callers(struct nccl_group *g, const struct op *op)
{
    int status = COLLRUN_OK;
    for (uint32_t i = 0; status == COLLRUN_OK && i < op->ncalls; i++) {
        int device = op->calls[i].device;
        struct dev_comm *dev = &g->devs[device];
        int before = device_enter(g->context, dev->ordinal);
        if (!op->before_evts)
            status = issue_after_stream(g, dev, op->calls[i].stream);
        else if (op->before_evts[i])
            status = issue_after(g, dev, op->before_evts[i]);
        device_leave(g->context, before);
    }
    return status;
}

static int issue_after_messages(struct nccl_group *g, const struct message *list)
{
    int status = COLLRUN_OK;
    for (const struct message *m = list; status == COLLRUN_OK && m; m = m->next) {
        struct dev_comm *dev = &g->devs[m->call->device];
        int before = device_enter(g->context, dev->ordinal);
        if (m->before_evt)
            status = issue_after(g, dev, m->before_evt);
        device_leave(g->context, before);
    }
    return status;
}

/* Records an event behind what was issued, on each GPU of the set. NCCL launches later than it
 * returns, so this waits until NCCL has. Replaces the events of the kernel before it. */
static int issue_record(struct nccl_group *g, uint64_t set, struct event **after_evts,
                        uint64_t deadline_ns)
{
    int status = COLLRUN_OK;
    for (uint32_t i = 0; status == COLLRUN_OK && i < g->ndevs; i++) {
        struct dev_comm *dev = &g->devs[i];
        if (!(set >> i & 1))
            continue;
        status = comm_await_ready(g, dev, deadline_ns);
        if (status != COLLRUN_OK)
            break;
        struct event *before = after_evts[i];
        after_evts[i] = event_record(g, dev, dev->stream);
        event_release(dev, before);
        if (!after_evts[i])
            status = COLLRUN_ERR_BACKEND;
        atomic_fetch_add(&dev->device->in_flight, (after_evts[i] ? 1u : 0u) - (before ? 1u : 0u));
    }
    return status;
}

/* ---- collectives ---- */

static ncclResult_t issue_barrier(struct nccl_group *g)
{
    ncclResult_t result = ncclSuccess;
    for (uint32_t i = 0; result == ncclSuccess && i < g->ndevs; i++)
        result = native_barrier(g, i);
    return result;
}

/* One collective, with a call for each GPU, or some of a batch. The calls of a collective without
 * data are one barrier. */
static int issue_native(struct nccl_group *g, const struct collrun_call *calls, uint32_t ncalls)
{
    ncclResult_t result = g->context->lib.nccl.ncclGroupStart();
    for (uint32_t i = 0; result == ncclSuccess && i < ncalls; i++)
        if (!native_is_barrier(&calls[i]))
            result = native_collective(g, &calls[i]);
        else if (i == 0 || g->ndevs == 1)
            result = issue_barrier(g);
    result = comm_group_end(g, result);
    return result == ncclSuccess
               ? COLLRUN_OK
               : nccl_group_fail_nccl(g, g->devs[calls[0].device].comm, result, "NCCL");
}

/* The call or calls of a batch that were executed are over, unless they take another kernel. */
static void issue_advance(struct op *op, uint32_t ncalls)
{
    if (op->kernels.more && emulate_is_needed(op->next))
        return;
    op->next += ncalls;
    op->kernels = (struct op_kernels){.begun = true, .more = op->next < op->calls + op->ncalls};
}

static int issue_kernel(struct nccl_group *g, struct op *op)
{
    bool batch = batch_is(op);
    uint32_t ncalls = batch ? batch_group_len(op) : op->ncalls;
    int status =
        emulate_is_needed(op->next) ? emulate_collective(g, op) : issue_native(g, op->next, ncalls);
    op->kernels.begun = true;
    if (batch)
        issue_advance(op, ncalls);
    return status;
}

int issue_collective(struct nccl_group *g, struct op *op)
{
    uint64_t set = issue_all_devs(g);
    issue_lock_devices(g, set, true);
    int status = op->kernels.begun ? COLLRUN_OK : issue_after_callers(g, op);
    if (status == COLLRUN_OK)
        status = issue_kernel(g, op);
    if (status == COLLRUN_OK)
        status = issue_record(g, set, op->after_evts, op->deadline_ns);
    issue_lock_devices(g, set, false);
    if (status == COLLRUN_OK && !op->kernels.more)
        atomic_store_explicit(&op->events_final, true, memory_order_release);
    return status;
}

/* ---- messages ---- */

static int issue_message_group(struct nccl_group *g, const struct message *list)
{
    ncclResult_t result = g->context->lib.nccl.ncclGroupStart();
    for (const struct message *m = list; result == ncclSuccess && m; m = m->next)
        result = native_message(g, m);
    result = comm_group_end(g, result);
    return result == ncclSuccess
               ? COLLRUN_OK
               : nccl_group_fail_nccl(g, g->devs[list->call->device].comm, result, "NCCL");
}

int issue_messages(struct nccl_group *g, const struct message *list, struct event **after_evts)
{
    uint64_t set = 0;
    for (const struct message *m = list; m; m = m->next)
        set |= 1ull << m->call->device;
    issue_lock_devices(g, set, true);
    int status = issue_after_messages(g, list);
    if (status == COLLRUN_OK)
        status = issue_message_group(g, list);
    if (status == COLLRUN_OK)
        status = issue_record(g, set, after_evts, list->op->deadline_ns);
    issue_lock_devices(g, set, false);
    return status;
}

/* ---- direct messages ---- */

static int issue_after_direct(struct nccl_group *g, struct dev_comm *dev,
                              const struct message *list)
{
    int status = COLLRUN_OK;
    const struct message *before = NULL;
    for (const struct message *m = list; status == COLLRUN_OK && m; before = m, m = m->next)
        if (m->before_evt)
            status = issue_after(g, dev, m->before_evt);
        else if (!before || before->before_evt || before->call->stream != m->call->stream)
            status = issue_after_stream(g, dev, m->call->stream);
    return status;
}

/* A single one needs no NCCL group. */
static int issue_direct_group(struct nccl_group *g, struct dev_comm *dev,
                              const struct message *list)
{
    const struct nccl_api *nccl = &g->context->lib.nccl;
    ncclResult_t result = list->next ? nccl->ncclGroupStart() : ncclSuccess;
    for (const struct message *m = list; result == ncclSuccess && m; m = m->next)
        result = native_direct(g, dev, m);
    if (list->next)
        result = comm_group_end(g, result);
    return result == ncclSuccess || result == ncclInProgress
               ? COLLRUN_OK
               : nccl_group_fail_nccl(g, dev->comm, result, "NCCL");
}

int issue_direct(struct nccl_group *g, struct dev_comm *dev, const struct message *list,
                 struct event **after_evt)
{
    struct event *after_evts[2] = {NULL, NULL}; /* a part has at most two GPUs here */
    uint32_t at = (uint32_t)(dev - g->devs);
    bool moves = false;
    for (const struct message *m = list; m; m = m->next)
        moves = moves || m->count;
    if (!moves)
        return COLLRUN_OK;
    pthread_mutex_lock(&dev->device->issue_lock);
    int before = device_enter(g->context, dev->ordinal);
    int status = issue_after_direct(g, dev, list);
    if (status == COLLRUN_OK)
        status = issue_direct_group(g, dev, list);
    if (status == COLLRUN_OK)
        status = issue_record(g, 1ull << at, after_evts, list->op->deadline_ns);
    device_leave(g->context, before);
    pthread_mutex_unlock(&dev->device->issue_lock);
    *after_evt = after_evts[at];
    return status;
}

/* ---- forming ---- */

static ncclResult_t issue_token_to_all(struct nccl_group *g, struct dev_comm *dev)
{
    const struct nccl_api *nccl = &g->context->lib.nccl;
    ncclResult_t result = ncclSuccess;
    for (uint32_t i = 0; result == ncclSuccess && i < g->size; i++) {
        result = nccl->ncclSend(dev->token, 1, ncclUint8, (int)i, dev->comm, dev->stream);
        if (result == ncclSuccess)
            result = nccl->ncclRecv(dev->token + 1, 1, ncclUint8, (int)i, dev->comm, dev->stream);
    }
    return result;
}

/* Sends or receives one byte in a part, from its rank 0 to its rank 1. */
static ncclResult_t issue_token(struct nccl_group *g, struct dev_comm *dev, bool sends)
{
    const struct nccl_api *nccl = &g->context->lib.nccl;
    return sends ? nccl->ncclSend(dev->token, 1, ncclUint8, 1, dev->comm, dev->stream)
                 : nccl->ncclRecv(dev->token, 1, ncclUint8, 0, dev->comm, dev->stream);
}

int issue_connect(struct nccl_group *g)
{
    ncclResult_t result = g->context->lib.nccl.ncclGroupStart();
    for (uint32_t i = 0; result == ncclSuccess && g->size <= MAX_WARM_UP_RANKS && i < g->ndevs; i++)
        result = g->whole ? issue_token(g, &g->devs[i], g->rank * g->ndevs + i == 0)
                          : issue_token_to_all(g, &g->devs[i]);
    result = comm_group_end(g, result);
    return result == ncclSuccess
               ? COLLRUN_OK
               : nccl_group_fail_nccl(g, g->devs[0].comm, result, "NCCL: connect");
}

int issue_warm_up(struct nccl_group *g, struct op *op)
{
    uint64_t set = issue_all_devs(g);
    issue_lock_devices(g, set, true);
    int status = issue_connect(g);
    if (status == COLLRUN_OK)
        status = issue_record(g, set, op->after_evts, op->deadline_ns);
    issue_lock_devices(g, set, false);
    return status;
}

int issue_confirm(struct nccl_group *g, struct op *op)
{
    struct collrun_call barrier = COLLRUN_CALL(COLLRUN_BARRIER);
    uint64_t set = issue_all_devs(g);
    issue_lock_devices(g, set, true);
    int status = issue_native(g, &barrier, 1);
    if (status == COLLRUN_OK)
        status = issue_record(g, set, op->after_evts, op->deadline_ns);
    issue_lock_devices(g, set, false);
    return status;
}

/* Happy path
 *   - a rank finds its cuts when the batch is first in its group and the communicator is idle, and
 *     sends them to the coordinator;
 *   - the coordinator replies when it has those of all ranks: one round trip for up to 64 calls,
 *     which costs less than the launches that it saves;
 *   - every group is launched when the one before it has left the GPU.
 * Failures
 *   - a rank does not start the batch: the op times out, as it would inside the kernel;
 *   - the connection to the coordinator is lost: the group fails. */

bool batch_is(const struct op *op)
{
    return op->ncalls > 1 && op->group->ndevs == 1 && !collrun_kind_is_message(op->calls->kind);
}

uint64_t batch_timeout(const struct op *op)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < op->ncalls; i++)
        sum =
            op->calls[i].timeout_ns > UINT64_MAX - sum ? UINT64_MAX : sum + op->calls[i].timeout_ns;
    return sum;
}

/* ---- the memory of a call ---- */

struct span {
    uintptr_t from, to; /* empty if they are equal */
};

static struct span batch_span(const struct nccl_group *g, const struct collrun_call *c,
                              const void *base, unsigned char extent, size_t width)
{
    const struct collrun_range used = collrun_call_range(c, extent, g->size, g->rank);
    const uintptr_t at = (uintptr_t)base;
    return base && used.to > used.from ? (struct span){at + used.from * width, at + used.to * width}
                                       : (struct span){0};
}

/* What the call reads on this rank. Of a broadcast: see batch_written. */
static struct span batch_read(const struct nccl_group *g, const struct collrun_call *c,
                              size_t width)
{
    if (!collrun_kind_sends(c->kind, c->root == (int)g->rank))
        return (struct span){0};
    return batch_span(g, c, c->send, collrun_kind_row(c->kind).send, width);
}

/* What the call writes on this rank; of the root of a broadcast, what it reads. */
static struct span batch_written(const struct nccl_group *g, const struct collrun_call *c,
                                 size_t width)
{
    if (!collrun_kind_receives(c->kind, c->root == (int)g->rank, g->rank == 0))
        return (struct span){0};
    return batch_span(g, c, c->recv, collrun_kind_row(c->kind).recv, width);
}

static bool batch_overlaps(struct span a, struct span b)
{
    return a.from < b.to && b.from < a.to;
}

/* True if the two calls must not be executed at the same time. */
static bool batch_depends(const struct nccl_group *g, const struct collrun_call *a,
                          const struct collrun_call *b)
{
    size_t a_width = g->services->dtype_size(a->dtype), b_width = g->services->dtype_size(b->dtype);
    struct span a_written = batch_written(g, a, a_width), b_written = batch_written(g, b, b_width);
    return batch_overlaps(a_written, b_written) ||
           batch_overlaps(a_written, batch_read(g, b, b_width)) ||
           batch_overlaps(batch_read(g, a, a_width), b_written);
}

/* ---- cuts ---- */

static uint32_t batch_window_len(const struct op *op)
{
    uint32_t left = op->ncalls - op->batch.first;
    return left < BATCH_WINDOW ? left : BATCH_WINDOW;
}

static uint64_t batch_own_cuts(const struct op *op)
{
    const struct collrun_call *calls = &op->calls[op->batch.first];
    uint64_t cuts = 1;
    uint32_t group = 0; /* its first call */
    for (uint32_t i = 1; i < batch_window_len(op); i++) {
        bool cut = emulate_is_needed(&calls[i]) || emulate_is_needed(&calls[i - 1]);
        for (uint32_t k = group; !cut && k < i; k++)
            cut = batch_depends(op->group, &calls[k], &calls[i]);
        cuts |= (uint64_t)cut << i;
        group = cut ? i : group;
    }
    return cuts;
}

int batch_join_cuts(struct op *op)
{
    struct batch *b = &op->batch;
    struct coord_client *coord = op->group->coord;
    if (b->joined && op->next < op->calls + b->first + BATCH_WINDOW)
        return COLLRUN_OK;
    if (b->joined)
        *b = (struct batch){.first = b->first + BATCH_WINDOW};
    if (!b->asked)
        b->cuts = batch_own_cuts(op);
    b->joined = op->group->size == 1;
    if (b->joined)
        return COLLRUN_OK;
    b->asked = b->asked || coord_send_cuts(coord, b->cuts);
    b->joined = b->asked && coord_next_cuts(coord, &b->cuts);
    if (b->joined)
        return COLLRUN_OK;
    int error = coord_poll(coord);
    return error ? nccl_group_fail_coordinator(op->group, error, "compares the batches")
                 : COLLRUN_AGAIN;
}

uint32_t batch_group_len(const struct op *op)
{
    uint32_t at = (uint32_t)(op->next - op->calls) - op->batch.first, end = at + 1;
    while (end < batch_window_len(op) && !(op->batch.cuts >> end & 1))
        end++;
    return end - at;
}
