/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi: collrun's operations on Open MPI, for ranks that collrun has started. This file holds the
 * exported table, groups, and the life of a collective.
 *
 * - start creates and begins a collective, test progresses and ends it, exec does both in a loop.
 * - Each look at MPI goes through group_enter, which checks the flag that group_abort sets. test
 *   checks the time-out; those of messages are collrun's.
 * - The first failure of a group is final: operations inside MPI are abandoned, and later calls
 *   return the same error.
 */
#include "mpi_backend.h"

#include <dlfcn.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define STRING_(x) #x
#define STRING(x) STRING_(x)
#define OPEN_MPI_VERSION                                                                           \
    STRING(OMPI_MAJOR_VERSION) "." STRING(OMPI_MINOR_VERSION) "." STRING(OMPI_RELEASE_VERSION)

uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- groups ---- */

int group_fail(struct group *group, int status, const char *format, ...)
{
    va_list ap;
    if (group->failed)
        return status;
    va_start(ap, format);
    vsnprintf(group->why, sizeof group->why, format, ap);
    va_end(ap);
    group->failed = status;
    return status;
}

int group_fail_mpi(struct group *group, const char *function, int error)
{
    char text[MPI_MAX_ERROR_STRING];
    int len;
    MPI_Error_string(error, text, &len);
    return group_fail(group, COLLRUN_ERR_BACKEND, "%s: %s", function, text);
}

int group_report(const struct group *group)
{
    const struct collrun_services *s = group->services;
    return s->fail(s->ctx, group->failed, "%s", group->why);
}

int group_enter(struct group *group, int (*fn)(void *arg), void *arg)
{
    if (!group->failed && atomic_load(&group->aborted))
        group_fail(group, COLLRUN_ERR_ABORTED, "the group was aborted");
    if (group->failed)
        return group->failed;
    int rc = library_enter(group->library, fn, arg);
    return rc < 0 ? group_fail(group, rc, "%s", group->library->why) : COLLRUN_OK;
}

void group_idle(const struct group *group, unsigned round)
{
    enum { SPINS = 1000, YIELDS = 2000 };
    if (round < SPINS && !group->oversubscribed)
        return;
    if (round < YIELDS)
        sched_yield();
    else
        nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
}

static int group_open(void *backend, const struct collrun_group_desc *theirs, void **out)
{
    struct library *library = backend;
    struct collrun_group_desc copy;
    const struct collrun_group_desc *desc = &copy;
    COLLRUN_COPY(&copy, theirs);
    const struct collrun_services *s = desc->services;
    struct group *group = calloc(1, sizeof *group);
    if (!group)
        return s->fail(s->ctx, COLLRUN_ERR_NO_MEMORY, "out of memory");
    group->library = library;
    group->services = s;
    group->p2p = desc->p2p;
    group->rank = desc->rank;
    group->nranks = desc->nranks;
    group->oversubscribed = desc->nlocal > desc->ncpus;
    int rc = library_join(library, desc);
    if (rc == COLLRUN_OK)
        rc = communicator_take(library, desc, &group->comm, &group->id);
    if (rc != COLLRUN_OK) {
        free(group);
        return rc;
    }
    *out = group;
    return COLLRUN_OK;
}

static void group_abort(void *handle)
{
    atomic_store(&((struct group *)handle)->aborted, true);
}

/* If the group has failed, MPI may still use all its memory. */
static void group_close(void *handle)
{
    struct group *group = handle;
    if (!group->failed && group->active == 0 && !group->messages) {
        communicator_give(group->library, group->comm);
        free(group->input.bytes);
        free(group->output.bytes);
    } else {
        atomic_store(&group->library->dirty, true);
    }
    free(group);
}

/* ---- collectives ---- */

int operations_advance(void *arg)
{
    struct group *group = arg;
    while (group->queue) {
        struct operation *first = group->queue;
        first->status = collective_advance(first);
        if (first->status == COLLRUN_AGAIN)
            break;
        group->queue = first->next;
        if (first->status != COLLRUN_OK)
            return first->status;
    }
    return COLLRUN_OK;
}

static void operation_progress(struct operation *op)
{
    struct group *group = op->group;
    if (op->status != COLLRUN_AGAIN ||
        group_enter(group, operations_advance, group) != COLLRUN_OK ||
        op->status != COLLRUN_AGAIN || now_ns() <= op->deadline_ns)
        return;
    const struct collrun_services *s = group->services;
    char text[WHY_LEN];
    s->timeout_text(s->ctx, group->rank, NULL, 0, op->timeout_ns, text, sizeof text);
    group_fail(group, COLLRUN_ERR_TIMEOUT, "%s", text);
}

static void operation_dequeue(struct operation *op)
{
    struct operation **p = &op->group->queue;
    while (*p && *p != op)
        p = &(*p)->next;
    if (*p)
        *p = op->next;
}

static int test(void *handle, void *request)
{
    struct group *group = handle;
    struct operation *op = request;
    operation_progress(op);
    int status = op->status;
    if (status == COLLRUN_AGAIN && !group->failed)
        return COLLRUN_AGAIN;
    operation_dequeue(op);
    group->active--;
    collective_free(op);
    return status == COLLRUN_OK ? COLLRUN_OK : group_report(group);
}

static int start(void *handle, const struct collrun_call *call, uint32_t ncalls, void **request)
{
    struct group *group = handle;
    struct operation *op = NULL, **end = &group->queue;
    (void)ncalls; /* 1: one collective */
    if (group->failed)
        return group_report(group);
    int rc = collective_new(group, call, &op);
    if (rc != COLLRUN_OK)
        return rc;
    uint64_t now = now_ns();
    op->timeout_ns = call->timeout_ns;
    op->deadline_ns = op->timeout_ns < UINT64_MAX - now ? now + op->timeout_ns : UINT64_MAX;
    op->status = COLLRUN_AGAIN;
    while (*end)
        end = &(*end)->next;
    *end = op;
    group->active++;
    operation_progress(op);
    *request = op;
    return COLLRUN_OK;
}

static int exec(void *handle, const struct collrun_call *calls, uint32_t ncalls)
{
    void *request = NULL;
    int rc = start(handle, calls, ncalls, &request);
    if (rc != COLLRUN_OK)
        return rc;
    for (unsigned round = 0; (rc = test(handle, request)) == COLLRUN_AGAIN; round++)
        group_idle(handle, round);
    return rc;
}

/* ---- the exported table ---- */

/* A build works with one major version of Open MPI only: handles are addresses in the library. */
static int probe(const struct collrun_services *services, char *why, size_t len)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int n;
    (void)services;
    MPI_Get_library_version(version, &n);
    if (strncmp(version, "Open MPI v4.", 12) == 0)
        return COLLRUN_OK;
    version[strcspn(version, ",\n")] = '\0';
    snprintf(why, len, "needs Open MPI 4, which it starts by PMI-1; found %s", version);
    return COLLRUN_ERR_UNAVAILABLE;
}

/* Open MPI loads plugins that expect the symbols of its library in the global scope. */
static int open_library(const struct collrun_services *services, void **backend)
{
    if (!dlopen("libmpi.so.40", RTLD_NOW | RTLD_GLOBAL))
        return services->fail(services->ctx, COLLRUN_ERR_UNAVAILABLE, "%s", dlerror());
    *backend = library_new();
    return *backend ? COLLRUN_OK
                    : services->fail(services->ctx, COLLRUN_ERR_NO_MEMORY, "out of memory");
}

static void close_library(void *backend)
{
    library_free(backend);
}

/* The types and operators whose results MPI and collrun define alike. These exclude floating MIN
 * and MAX (MPI leaves NaN undefined), half precision, which collrun sums in float32, and bool. */
#define BIT(x) (1ull << (x))
#define INTEGERS 0xffull
#define FLOATS (BIT(COLLRUN_FLOAT32) | BIT(COLLRUN_FLOAT64))
#define ALL_OPS (BIT(COLLRUN_OP_COUNT) - 1)
#define FLOAT_OPS (BIT(COLLRUN_SUM) | BIT(COLLRUN_PROD) | BIT(COLLRUN_AVG))
#define MOVES(kind)                                                                                \
    {                                                                                              \
        kind, COLLRUN_MEMORY_HOST, ~0ull, 0                                                        \
    }
#define REDUCES(kind)                                                                              \
    {kind, COLLRUN_MEMORY_HOST, INTEGERS, ALL_OPS},                                                \
    {                                                                                              \
        kind, COLLRUN_MEMORY_HOST, FLOATS, FLOAT_OPS                                               \
    }

static const struct collrun_capability native[] = {
    {COLLRUN_BARRIER, COLLRUN_MEMORY_HOST, 0, 0},
    REDUCES(COLLRUN_ALLREDUCE),
    REDUCES(COLLRUN_REDUCE),
    MOVES(COLLRUN_BROADCAST),
    MOVES(COLLRUN_ALLGATHER),
    MOVES(COLLRUN_GATHER),
    MOVES(COLLRUN_SCATTER),
    REDUCES(COLLRUN_REDUCE_SCATTER),
    MOVES(COLLRUN_ALLTOALL),
    MOVES(COLLRUN_ALLGATHERV),
    MOVES(COLLRUN_GATHERV),
    MOVES(COLLRUN_SCATTERV),
    REDUCES(COLLRUN_REDUCE_SCATTERV),
    MOVES(COLLRUN_ALLTOALLV),
    MOVES(COLLRUN_SEND),
    MOVES(COLLRUN_RECV),
    MOVES(COLLRUN_RECV_ANY),
    {0},
};

static void *native_handle(void *group, const char *what, uint32_t device)
{
    struct group *g = group;
    (void)device;
    return strcmp(what, "mpi_comm") == 0 ? &g->comm->comm : NULL;
}

const struct collrun_backend collrun_backend_v1 = {
    COLLRUN_BACKEND_HEAD,
    .name = "mpi",
    .version = "1.0 (Open MPI " OPEN_MPI_VERSION ")",
    .flags = COLLRUN_BACKEND_START_COLLECTIVES,
    .eager_limit = EAGER_LEN,
    .native = native,
    .probe = probe,
    .open = open_library,
    .close = close_library,
    .group_open = group_open,
    .group_abort = group_abort,
    .group_close = group_close,
    .exec = exec,
    .start = start,
    .test = test,
    .transport = &message_transport,
    .native_handle = native_handle,
};
