/* SPDX-License-Identifier: Apache-2.0
 *
 * The calls that move data. Arguments are checked as strictly as NCCL's documentation states, which
 * is stricter than NCCL: a buffer must be inside one allocation of the communicator's device or in
 * pinned memory, and the send and receive ranges may overlap only in the documented in-place forms.
 * Collectives with a count of 0 are dropped without synchronizing the ranks.
 */
#include "arith.h"
#include "comm.h"

const char *const operation_names[] = {
    "ncclAllReduce", "ncclReduce", "ncclBroadcast", "ncclAllGather", "ncclReduceScatter",
    "ncclAlltoAll",  "ncclGather", "ncclScatter",   "ncclSend",      "ncclRecv"};

/* How many blocks of `count` the rank sends and receives; a message and a reduction have one. */
static void count_blocks(const struct ncclComm *comm, const struct call *call, size_t *sent,
                         size_t *received)
{
    size_t n = (size_t)comm->nranks;
    bool root = comm->rank == call->root;
    *sent = *received = 1;
    switch (call->operation) {
    case REDUCE:
        *received = root;
        break;
    case BROADCAST:
        *sent = root;
        break;
    case ALLGATHER:
        *received = n;
        break;
    case REDUCE_SCATTER:
        *sent = n;
        break;
    case ALLTOALL:
        *sent = *received = n;
        break;
    case GATHER:
        *received = root ? n : 0;
        break;
    case SCATTER:
        *sent = root ? n : 0;
        break;
    case SEND:
        *received = 0;
        break;
    case RECV:
        *sent = 0;
        break;
    default:
        break;
    }
}

/* The bytes of a buffer; NULL, with an error message, if NCCL could not access it. */
static char *reach(struct ncclComm *comm, const char *function, const char *which, const void *ptr,
                   size_t len)
{
    struct fake_place place = fake_find(ptr);
    if (place.type == cudaMemoryTypeUnregistered)
        comm_fail(comm, ncclInvalidArgument, "%s: %s %p is neither device nor pinned memory",
                  function, which, ptr);
    else if (!place.bytes || place.left < len)
        comm_fail(comm, ncclInvalidArgument, "%s: %s %p + %zu leaves its allocation", function,
                  which, ptr, len);
    else if (place.type == cudaMemoryTypeDevice && place.device != comm->device)
        comm_fail(comm, ncclInvalidArgument, "%s: %s %p is on device %d, not %d", function, which,
                  ptr, place.device, comm->device);
    else
        return place.bytes;
    return NULL;
}

/* NCCL's in-place forms: the offset of one buffer in the other, in elements. */
static bool in_place(const struct ncclComm *comm, const struct task *task, size_t size)
{
    const struct call *call = &task->call;
    size_t block = call->count * size, at = 0;
    switch (call->operation) {
    case ALLTOALL:
        return false;
    case ALLGATHER:
        return task->send == task->recv + (size_t)comm->rank * block;
    case GATHER:
        return task->send == task->recv + (size_t)call->root * block;
    case REDUCE_SCATTER:
        at = (size_t)comm->rank * block;
        break;
    case SCATTER:
        at = (size_t)call->root * block;
        break;
    default:
        break;
    }
    return task->recv == task->send + at;
}

static bool overlaps(const struct task *task, size_t sent, size_t received)
{
    return sent && received && task->send < task->recv + received && task->recv < task->send + sent;
}

static int check_call(struct ncclComm *comm, const char *name, const struct call *call)
{
    if (!arith_size(call->type))
        return comm_fail(comm, ncclInvalidArgument, "%s: data type %d", name, call->type);
    if (call->op < 0 || call->op >= ncclNumOps)
        return comm_fail(comm, ncclInvalidArgument, "%s: operator %d", name, call->op);
    if (call->root < 0 || call->root >= comm->nranks)
        return comm_fail(comm, ncclInvalidArgument, "%s: root or peer %d of %d", name, call->root,
                         comm->nranks);
    return ncclSuccess;
}

static int check_buffers(struct ncclComm *comm, const char *name, const void *send, void *recv,
                         struct task *task)
{
    const struct call *call = &task->call;
    size_t sent, received, size = arith_size(call->type);
    count_blocks(comm, call, &sent, &received);
    if (call->count > SIZE_MAX / 2 / size / (size_t)comm->nranks)
        return comm_fail(comm, ncclInvalidArgument, "%s: count %zu", name, call->count);
    sent *= call->count * size;
    received *= call->count * size;
    if (sent && !(task->send = reach(comm, name, "the send buffer", send, sent)))
        return ncclInvalidArgument;
    if (received && !(task->recv = reach(comm, name, "the receive buffer", recv, received)))
        return ncclInvalidArgument;
    if (overlaps(task, sent, received) && !in_place(comm, task, size))
        return comm_fail(comm, ncclInvalidArgument, "%s: the buffers overlap", name);
    return ncclSuccess;
}

static int priority_of(struct CUstream_st *stream)
{
    int priority = 0;
    cudaStreamGetPriority(stream, &priority);
    return priority;
}

static int enqueue(struct call call, const void *send, void *recv, struct ncclComm *comm,
                   struct CUstream_st *stream)
{
    const char *name = operation_names[call.operation];
    struct task task = {.call = call};
    struct ncclComm *c = comm_get(comm, name);
    int result = c ? comm_ready(c, name) : ncclInvalidArgument;
    if (result == ncclSuccess && fake_fault("FAKE_NCCL_FAULT", name, c->rank, &result))
        comm_fail(c, result, "%s: an injected fault, on a stream of priority %d", name,
                  priority_of(stream));
    if (result == ncclSuccess)
        result = check_call(c, name, &call);
    if (result == ncclSuccess)
        result = check_buffers(c, name, send, recv, &task);
    if (result != ncclSuccess)
        return group_refuse(result);
    if (!call.count && call.operation != SEND && call.operation != RECV)
        return ncclSuccess;
    return group_task(c, stream, &task);
}

int ncclAllReduce(const void *send, void *recv, size_t count, int type, int op,
                  struct ncclComm *comm, struct CUstream_st *stream)
{
    return enqueue((struct call){ALLREDUCE, type, op, 0, count}, send, recv, comm, stream);
}

int ncclReduce(const void *send, void *recv, size_t count, int type, int op, int root,
               struct ncclComm *comm, struct CUstream_st *stream)
{
    return enqueue((struct call){REDUCE, type, op, root, count}, send, recv, comm, stream);
}

int ncclBroadcast(const void *send, void *recv, size_t count, int type, int root,
                  struct ncclComm *comm, struct CUstream_st *stream)
{
    return enqueue((struct call){BROADCAST, type, 0, root, count}, send, recv, comm, stream);
}

int ncclBcast(void *buf, size_t count, int type, int root, struct ncclComm *comm,
              struct CUstream_st *stream)
{
    return ncclBroadcast(buf, buf, count, type, root, comm, stream);
}

int ncclAllGather(const void *send, void *recv, size_t count, int type, struct ncclComm *comm,
                  struct CUstream_st *stream)
{
    return enqueue((struct call){ALLGATHER, type, 0, 0, count}, send, recv, comm, stream);
}

int ncclReduceScatter(const void *send, void *recv, size_t count, int type, int op,
                      struct ncclComm *comm, struct CUstream_st *stream)
{
    return enqueue((struct call){REDUCE_SCATTER, type, op, 0, count}, send, recv, comm, stream);
}

int ncclSend(const void *send, size_t count, int type, int peer, struct ncclComm *comm,
             struct CUstream_st *stream)
{
    return enqueue((struct call){SEND, type, 0, peer, count}, send, NULL, comm, stream);
}

int ncclRecv(void *recv, size_t count, int type, int peer, struct ncclComm *comm,
             struct CUstream_st *stream)
{
    return enqueue((struct call){RECV, type, 0, peer, count}, NULL, recv, comm, stream);
}

#ifndef FAKE_NCCL_OLD
int ncclAlltoAll(const void *send, void *recv, size_t count, int type, struct ncclComm *comm,
                 struct CUstream_st *stream)
{
    return enqueue((struct call){ALLTOALL, type, 0, 0, count}, send, recv, comm, stream);
}

int ncclGather(const void *send, void *recv, size_t count, int type, int root,
               struct ncclComm *comm, struct CUstream_st *stream)
{
    return enqueue((struct call){GATHER, type, 0, root, count}, send, recv, comm, stream);
}

int ncclScatter(const void *send, void *recv, size_t count, int type, int root,
                struct ncclComm *comm, struct CUstream_st *stream)
{
    return enqueue((struct call){SCATTER, type, 0, root, count}, send, recv, comm, stream);
}
#endif
