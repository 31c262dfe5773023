/* SPDX-License-Identifier: Apache-2.0
 *
 * What a kernel does.
 *
 *   - Collectives go in chunks. For each chunk every rank writes its part into its slot, waits for
 *     the others, and reads theirs.
 *   - The collectives of one kernel may run in any order: here they run from the last one to the
 *     first, so one that needs an earlier one of its group shows as stale data.
 *   - Messages go in pieces through the channel of the two ranks. A send is complete when its last
 *     piece was read, so two ranks that both send first and receive later, outside of a group, wait
 *     forever, as NCCL warns. All messages of a kernel progress together, those with one peer in
 *     order.
 *   - What NCCL leaves undefined is reported and then hangs until the communicator is aborted:
 *     ranks that disagree about a call, messages of different lengths.
 */
#include "arith.h"
#include "comm.h"

#include <string.h>
#include <time.h>

static struct rank_state *state_of_rank(const struct kernel *kernel, int rank)
{
    return &kernel->comm->shared->ranks[rank];
}

/* Waits until the communicator is aborted. Returns false. */
static bool hang(const struct kernel *kernel)
{
    struct shared *shared = kernel->comm->shared;
    while (!comm_stopped(kernel->comm))
        shared_wait(shared, atomic_load(&shared->changes));
    return false;
}

/* ---- collectives ---- */

struct chunk {
    const struct task *task;
    size_t size, at, len; /* bytes of an element; elements before it; its elements per block */
};

static bool all_have(struct kernel *kernel, bool taken, uint64_t number)
{
    struct shared *shared = kernel->comm->shared;
    for (int r = 0; r < kernel->comm->nranks;) {
        uint32_t seen = atomic_load(&shared->changes);
        struct rank_state *state = state_of_rank(kernel, r);
        if (atomic_load(taken ? &state->taken : &state->posted) >= number) {
            r++;
        } else if (comm_stopped(kernel->comm)) {
            return false;
        } else {
            shared_wait(shared, seen);
            launch_queue_explain(kernel, r);
        }
    }
    return true;
}

/* The number of blocks in a slot: one per rank, or one. */
static int blocks_of(const struct ncclComm *comm, int operation)
{
    bool each = operation == REDUCE_SCATTER || operation == ALLTOALL || operation == SCATTER;
    return each ? comm->nranks : 1;
}

static void post(const struct ncclComm *comm, const struct chunk *c)
{
    const struct call *call = &c->task->call;
    bool root_only = call->operation == BROADCAST || call->operation == SCATTER;
    if (root_only && comm->rank != call->root)
        return;
    for (int b = 0; b < blocks_of(comm, call->operation); b++)
        memcpy(shared_slot(comm, comm->rank) + (size_t)b * c->len * c->size,
               c->task->send + ((size_t)b * call->count + c->at) * c->size, c->len * c->size);
}

/* The data of rank `r` for this rank. */
static const char *part_of(const struct ncclComm *comm, const struct chunk *c, int r)
{
    bool own = blocks_of(comm, c->task->call.operation) > 1;
    return shared_slot(comm, r) + (own ? (size_t)comm->rank * c->len * c->size : 0);
}

static void collect(const struct ncclComm *comm, const struct chunk *c)
{
    const struct call *call = &c->task->call;
    const char *parts[RANKS_MAX];
    bool to_root = call->operation == REDUCE || call->operation == GATHER;
    if (to_root && comm->rank != call->root)
        return;
    char *out = (char *)c->task->recv + c->at * c->size;
    for (int r = 0; r < comm->nranks; r++)
        parts[r] = part_of(comm, c, r);
    switch (call->operation) {
    case ALLREDUCE:
    case REDUCE:
    case REDUCE_SCATTER:
        arith_reduce(out, parts, comm->nranks, c->len, call->type, call->op);
        break;
    case BROADCAST:
    case SCATTER:
        memcpy(out, parts[call->root], c->len * c->size);
        break;
    default:
        for (int r = 0; r < comm->nranks; r++)
            memcpy(out + (size_t)r * call->count * c->size, parts[r], c->len * c->size);
    }
}

static bool agree(struct kernel *kernel, const struct call *mine)
{
    struct ncclComm *comm = kernel->comm;
    for (int r = 0; r < comm->nranks; r++) {
        const struct call *other = &state_of_rank(kernel, r)->call;
        if (other->operation == mine->operation && other->type == mine->type &&
            other->op == mine->op && other->root == mine->root && other->count == mine->count)
            continue;
        comm_fail(comm, ncclInvalidUsage,
                  "MISMATCH: %s count %zu type %d op %d root %d here, %s count %zu type %d op %d "
                  "root %d on rank %d",
                  operation_names[mine->operation], mine->count, mine->type, mine->op, mine->root,
                  operation_names[other->operation], other->count, other->type, other->op,
                  other->root, r);
        return false;
    }
    return true;
}

static void delay_end(const struct ncclComm *comm)
{
    const long us = comm->device % 2 ? fake_setting("FAKE_NCCL_SLOW_US", 0) : 0;
    const struct timespec pause = {us / 1000000, us % 1000000 * 1000};
    fake_delay();
    if (us > 0)
        nanosleep(&pause, NULL);
}

static bool run_chunk(struct kernel *kernel, const struct chunk *c)
{
    struct ncclComm *comm = kernel->comm;
    struct rank_state *own = state_of_rank(kernel, comm->rank);
    uint64_t number = atomic_load(&own->posted);
    if (!all_have(kernel, true, number))
        return false;
    post(comm, c);
    own->call = c->task->call;
    atomic_store(&own->posted, number + 1);
    shared_notify(comm->shared);
    if (!all_have(kernel, false, number + 1))
        return false;
    if (!agree(kernel, &c->task->call))
        return hang(kernel);
    if (c->at + c->len == c->task->call.count)
        delay_end(comm); /* ranks finish at different times */
    collect(comm, c);
    atomic_store(&own->taken, number + 1);
    shared_notify(comm->shared);
    return true;
}

static bool aligned(const struct task *task)
{
    size_t size = arith_size(task->call.type);
    int operation = task->call.operation;
    bool reduces = operation == ALLREDUCE || operation == REDUCE || operation == REDUCE_SCATTER;
    return !reduces || ((uintptr_t)task->send % size == 0 && (uintptr_t)task->recv % size == 0);
}

static bool run_collective(struct kernel *kernel, const struct task *task)
{
    size_t size = arith_size(task->call.type);
    size_t step = SLOT / size / (size_t)blocks_of(kernel->comm, task->call.operation);
    if (!aligned(task)) {
        comm_fail(kernel->comm, ncclUnhandledCudaError, "%s: a buffer is not aligned to its type",
                  operation_names[task->call.operation]);
        atomic_store(&kernel->comm->async, ncclUnhandledCudaError);
        fake_break(kernel->comm->device, cudaErrorMisalignedAddress);
        return hang(kernel);
    }
    struct chunk c = {.task = task, .size = size};
    for (; c.at < task->call.count; c.at += c.len) {
        c.len = task->call.count - c.at < step ? task->call.count - c.at : step;
        if (!run_chunk(kernel, &c))
            return false;
    }
    return true;
}

/* ---- messages ---- */

static bool is_message(const struct task *task)
{
    return task->call.operation == SEND || task->call.operation == RECV;
}

static size_t bytes_of(const struct task *task)
{
    return task->call.count * arith_size(task->call.type);
}

/* Both return whether data moved. */
static bool step_send(struct kernel *kernel, struct task *task)
{
    struct channel *channel = shared_channel(kernel->comm, kernel->comm->rank, task->call.root);
    uint64_t written = atomic_load(&channel->written);
    if (atomic_load(&channel->read) != written)
        return false;
    if (task->posted && task->moved == bytes_of(task))
        return task->over = true;
    size_t left = bytes_of(task) - task->moved;
    channel->total = bytes_of(task);
    channel->len = (uint32_t)(left < PIECE ? left : PIECE);
    if (channel->len)
        memcpy(channel->piece, task->send + task->moved, channel->len);
    task->moved += channel->len;
    task->posted = true;
    atomic_store(&channel->written, written + 1);
    return true;
}

static bool step_recv(struct kernel *kernel, struct task *task)
{
    struct ncclComm *comm = kernel->comm;
    struct channel *channel = shared_channel(comm, task->call.root, comm->rank);
    uint64_t read = atomic_load(&channel->read);
    if (atomic_load(&channel->written) == read)
        return false;
    if (channel->total != bytes_of(task)) {
        comm_fail(comm, ncclInvalidUsage, "MISMATCH: ncclRecv of %zu bytes, rank %d sends %zu",
                  bytes_of(task), task->call.root, channel->total);
        return hang(kernel);
    }
    if (channel->len)
        memcpy(task->recv + task->moved, channel->piece, channel->len);
    task->moved += channel->len;
    task->over = task->moved == bytes_of(task);
    atomic_store(&channel->read, read + 1);
    return true;
}

/* Whether no earlier message of the kernel must go first. */
static bool is_next(const struct kernel *kernel, const struct task *task)
{
    for (const struct task *t = kernel->tasks; t < task; t++)
        if (!t->over && t->call.operation == task->call.operation &&
            t->call.root == task->call.root)
            return false;
    return true;
}

/* One round over the messages. *waits_for: a peer that one of them needs; -1: all are complete. */
static bool step_messages(struct kernel *kernel, int *waits_for)
{
    bool moved = false;
    *waits_for = -1;
    for (struct task *t = kernel->tasks; t < kernel->tasks + kernel->ntasks; t++) {
        if (!is_message(t) || t->over || !is_next(kernel, t))
            continue;
        moved |= t->call.operation == SEND ? step_send(kernel, t) : step_recv(kernel, t);
        if (!t->over)
            *waits_for = t->call.root;
    }
    return moved;
}

static bool run_messages(struct kernel *kernel)
{
    struct shared *shared = kernel->comm->shared;
    int waits_for;
    do {
        uint32_t seen = atomic_load(&shared->changes);
        if (comm_stopped(kernel->comm))
            return false;
        if (step_messages(kernel, &waits_for)) {
            shared_notify(shared);
        } else if (waits_for >= 0) {
            shared_wait(shared, seen);
            launch_queue_explain(kernel, waits_for);
        }
    } while (waits_for >= 0);
    return true;
}

/* ---- the kernel ---- */

void kernel_run(void *arg)
{
    struct kernel *kernel = arg;
    int code;
    bool going = launch_queue_start(kernel);
    if (going && fake_fault("FAKE_NCCL_FAULT", "kernel", kernel->comm->rank, &code)) {
        comm_fail(kernel->comm, code, "an injected fault in a kernel");
        atomic_store(&kernel->comm->async, code);
        going = hang(kernel);
    }
    for (uint32_t i = kernel->ntasks; going && i-- > 0;)
        going = is_message(&kernel->tasks[i]) || run_collective(kernel, &kernel->tasks[i]);
    if (going)
        run_messages(kernel);
    launch_queue_finish(kernel);
}
