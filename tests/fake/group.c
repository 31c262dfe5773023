/* SPDX-License-Identifier: Apache-2.0
 *
 * ncclGroupStart and ncclGroupEnd, per thread. A call outside of a group is a group of one. At the
 * end of the outermost group the tasks of each communicator become one kernel, on the first of
 * their streams (the other streams wait before and after it); jobs (init, abort, ...) run
 * concurrently. For nonblocking communicators another thread does this, unless it destroys them,
 * after a random delay: an event that the caller records before ncclCommGetAsyncError returns
 * ncclSuccess may precede the kernel.
 */
#include "comm.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { ENTRIES_MAX = 64 };

struct entry { /* one communicator in the group: a job or tasks */
    struct ncclComm *comm;
    bool is_job, counted;
    enum job_kind job;
    struct CUstream_st *streams[STREAMS_MAX];
    uint32_t nstreams, ntasks, capacity;
    struct task *tasks;
};

struct group {
    int depth, result;
    uint32_t nentries;
    struct entry entries[ENTRIES_MAX];
};

static _Thread_local struct group open_group;

/* ---- executing a group ---- */

static int launch_kernel(struct entry *entry, struct kernel *kernel)
{
    struct ncclComm *comm = entry->comm;
    struct CUstream_st *stream = entry->streams[0];
    int code = cudaSuccess;
    for (uint32_t i = 1; code == cudaSuccess && i < entry->nstreams; i++)
        code = fake_order(stream, entry->streams[i]);
    if (code == cudaSuccess)
        code = launch_queue_launch(kernel, stream);
    else
        free(kernel);
    for (uint32_t i = 1; code == cudaSuccess && i < entry->nstreams; i++)
        code = fake_order(entry->streams[i], stream);
    if (code == cudaSuccess)
        return ncclSuccess;
    return comm_fail(comm, ncclUnhandledCudaError, "launch on a stream of device %d, from %d: %s",
                     fake_stream_device(stream), comm->device, cudaGetErrorString(code));
}

static int launch(struct entry *entry)
{
    struct ncclComm *comm = entry->comm;
    struct kernel *kernel = calloc(1, sizeof *kernel + entry->ntasks * sizeof *entry->tasks);
    int before = fake_current(), result;
    if (!kernel)
        return ncclSystemError;
    kernel->comm = comm;
    kernel->ntasks = entry->ntasks;
    memcpy(kernel->tasks, entry->tasks, entry->ntasks * sizeof *entry->tasks);
    if (!launch_queue_enter(comm->device)) {
        free(kernel);
        return comm_fail(comm, ncclInvalidUsage,
                         "host threads race to launch on device %d (NCCL_LAUNCH_RACE_FATAL)",
                         comm->device);
    }
    cudaSetDevice(comm->device);
    fake_delay();
    result = launch_kernel(entry, kernel);
    cudaSetDevice(before);
    launch_queue_leave(comm->device);
    return result;
}

struct helper { /* a job that runs concurrently with others */
    struct entry *entry;
    pthread_t thread;
    int result;
    bool started;
};

static void *run_helper(void *arg)
{
    struct helper *helper = arg;
    cudaSetDevice(helper->entry->comm->device);
    helper->result = job_run(helper->entry->job, helper->entry->comm);
    return NULL;
}

static int run_jobs(struct group *group)
{
    struct helper helpers[ENTRIES_MAX];
    int result = ncclSuccess;
    for (uint32_t i = 0; i < group->nentries; i++) {
        helpers[i] = (struct helper){.entry = &group->entries[i]};
        helpers[i].started = group->nentries > 1 && group->entries[i].is_job &&
                             !pthread_create(&helpers[i].thread, NULL, run_helper, &helpers[i]);
        if (group->entries[i].is_job && !helpers[i].started)
            helpers[i].result = job_run(group->entries[i].job, group->entries[i].comm);
    }
    for (uint32_t i = 0; i < group->nentries; i++) {
        if (helpers[i].started)
            pthread_join(helpers[i].thread, NULL);
        if (result == ncclSuccess)
            result = helpers[i].result;
    }
    return result;
}

/* The first message to a peer, and the first one from it, connects the two. */
static bool connects(const struct ncclComm *comm, const struct task *task)
{
    const bool receives = task->call.operation == RECV, sends = task->call.operation == SEND;
    const int peer = task->call.root;
    return (sends || receives) && peer != comm->rank && !(comm->connected[receives] & 1ull << peer);
}

/* Whether the end of this rank is connecting, or the other one. */
static _Atomic uint32_t *connect_flag(const struct ncclComm *comm, const struct task *task,
                                      bool other)
{
    const bool receives = task->call.operation == RECV;
    const int peer = task->call.root, from = receives ? peer : comm->rank;
    return &shared_channel(comm, from, receives ? comm->rank : peer)->connects[receives != other];
}

static int connect_await(struct ncclComm *comm, const struct task *task)
{
    const uint64_t bit = 1ull << task->call.root;
    for (;;) {
        uint32_t seen = atomic_load(&comm->shared->changes);
        if (atomic_load(connect_flag(comm, task, true))) {
            comm->connected[task->call.operation == RECV] |= bit;
            return ncclSuccess;
        }
        if (comm_stopped(comm))
            return ncclInternalError;
        shared_wait(comm->shared, seen);
    }
}

static void connect_begin(const struct entry *entry)
{
    for (uint32_t i = 0; i < entry->ntasks; i++)
        if (connects(entry->comm, &entry->tasks[i]))
            atomic_store(connect_flag(entry->comm, &entry->tasks[i], false), 1);
    if (entry->ntasks)
        shared_notify(entry->comm->shared);
}

/* Before anything is launched. */
static int connect_end(const struct entry *entry)
{
    int result = ncclSuccess;
    for (uint32_t i = 0; i < entry->ntasks && result == ncclSuccess; i++)
        if (connects(entry->comm, &entry->tasks[i]))
            result = connect_await(entry->comm, &entry->tasks[i]);
    return result;
}

/* Frees the entries' tasks. */
static void group_clear(struct group *group)
{
    for (uint32_t i = 0; i < group->nentries; i++)
        free(group->entries[i].tasks);
    memset(group, 0, sizeof *group);
}

static int group_execute(struct group *group)
{
    int result = run_jobs(group);
    for (uint32_t i = 0; i < group->nentries; i++)
        connect_begin(&group->entries[i]);
    for (uint32_t i = 0; i < group->nentries; i++) {
        struct entry *entry = &group->entries[i];
        if (entry->is_job)
            continue;
        int launched = connect_end(entry);
        if (launched == ncclSuccess && entry->ntasks)
            launched = launch(entry);
        if (result == ncclSuccess)
            result = launched;
        if (launched != ncclSuccess || !entry->comm->blocking)
            atomic_store(&entry->comm->async, launched);
    }
    for (uint32_t i = 0; i < group->nentries; i++)
        if (group->entries[i].counted)
            atomic_fetch_sub(&group->entries[i].comm->busy, 1);
    group_clear(group);
    return result;
}

static void *group_execute_later(void *arg)
{
    fake_delay();
    group_execute(arg);
    free(arg);
    return NULL;
}

/* Executes the group in a separate thread, which blocks all signals. */
static int group_begin(struct group *group)
{
    struct group *copy = malloc(sizeof *copy);
    pthread_t thread;
    sigset_t every, before;
    if (!copy)
        return ncclSystemError;
    for (uint32_t i = 0; i < group->nentries; i++) {
        struct entry *entry = &group->entries[i];
        bool ends = entry->is_job && entry->job == JOB_ABORT;
        if (!ends)
            atomic_store(&entry->comm->async, ncclInProgress);
        entry->counted = !ends;
        if (entry->counted)
            atomic_fetch_add(&entry->comm->busy, 1);
    }
    *copy = *group;
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &before);
    int failed = pthread_create(&thread, NULL, group_execute_later, copy);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    memset(group, 0, sizeof *group);
    if (failed) {
        group_execute(copy);
        free(copy);
        return ncclSystemError;
    }
    pthread_detach(thread);
    return ncclInProgress;
}

/* ---- collecting a group ---- */

int group_refuse(int result)
{
    if (open_group.depth && open_group.result == ncclSuccess)
        open_group.result = result;
    return result;
}

static int check(const struct group *group)
{
    uint32_t blocking = 0, jobs = 0;
    for (uint32_t i = 0; i < group->nentries; i++) {
        blocking += group->entries[i].comm->blocking;
        jobs += group->entries[i].is_job;
    }
    if (blocking && blocking < group->nentries)
        return comm_fail(NULL, ncclInvalidArgument,
                         "blocking and nonblocking communicators in one group");
    if (jobs && jobs < group->nentries)
        return comm_fail(NULL, ncclInvalidUsage,
                         "a group mixes operations with making or ending communicators");
    return ncclSuccess;
}

/* A communicator whose init was never started must still be possible to end. */
static void group_drop(struct group *group)
{
    for (uint32_t i = 0; i < group->nentries; i++)
        if (group->entries[i].is_job && group->entries[i].job == JOB_INIT) {
            atomic_store(&group->entries[i].comm->async, group->result);
            atomic_store(&group->entries[i].comm->ready, true);
        }
    group_clear(group);
}

int ncclGroupStart(void)
{
    open_group.depth++;
    return ncclSuccess;
}

int ncclGroupEnd(void)
{
    struct group *group = &open_group;
    if (!group->depth)
        return comm_fail(NULL, ncclInvalidUsage, "ncclGroupEnd: not in a group call");
    if (--group->depth)
        return ncclSuccess;
    if (group->result == ncclSuccess)
        group->result = check(group);
    int result = group->result;
    if (result != ncclSuccess) {
        group_drop(group);
        return result;
    }
    if (!group->nentries) {
        group_clear(group);
        return ncclSuccess;
    }
    const struct entry *first = &group->entries[0];
    const bool now = first->comm->blocking || (first->is_job && first->job == JOB_DESTROY);
    return now ? group_execute(group) : group_begin(group);
}

static struct entry *add_entry(struct ncclComm *comm)
{
    struct group *group = &open_group;
    if (group->nentries == ENTRIES_MAX) {
        comm_fail(comm, ncclInvalidUsage, "more than %d communicators in a group", ENTRIES_MAX);
        return NULL;
    }
    struct entry *entry = &group->entries[group->nentries++];
    *entry = (struct entry){.comm = comm};
    return entry;
}

int group_job(enum job_kind kind, struct ncclComm *comm)
{
    ncclGroupStart();
    struct entry *entry = add_entry(comm);
    if (entry) {
        entry->is_job = true;
        entry->job = kind;
    } else {
        group_refuse(ncclInvalidUsage);
    }
    return ncclGroupEnd();
}

static struct entry *find_entry(struct ncclComm *comm)
{
    for (uint32_t i = 0; i < open_group.nentries; i++)
        if (open_group.entries[i].comm == comm && !open_group.entries[i].is_job)
            return &open_group.entries[i];
    return add_entry(comm);
}

static bool add_stream(struct entry *entry, struct CUstream_st *stream)
{
    uint32_t i = 0;
    while (i < entry->nstreams && entry->streams[i] != stream)
        i++;
    if (i == STREAMS_MAX)
        return false;
    entry->streams[i] = stream;
    entry->nstreams += i == entry->nstreams;
    return true;
}

static bool add_task(struct entry *entry, const struct task *task)
{
    if (entry->ntasks == entry->capacity) {
        uint32_t capacity = entry->capacity ? 2 * entry->capacity : 8;
        struct task *tasks = realloc(entry->tasks, capacity * sizeof *tasks);
        if (!tasks)
            return false;
        entry->tasks = tasks;
        entry->capacity = capacity;
    }
    entry->tasks[entry->ntasks++] = *task;
    return true;
}

int group_task(struct ncclComm *comm, struct CUstream_st *stream, const struct task *task)
{
    ncclGroupStart();
    struct entry *entry = find_entry(comm);
    if (!entry || !add_stream(entry, stream) || !add_task(entry, task))
        group_refuse(ncclSystemError);
    return ncclGroupEnd();
}
