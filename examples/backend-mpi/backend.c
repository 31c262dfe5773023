/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi: collrun's collectives by Open MPI, for ranks that collrun started. This file is what collrun
 * sees: the table, groups, and the way of an operation. start makes one and sets it going, test
 * moves it on and ends it, exec does both.
 *
 * Every wait is a loop around test, and test looks at the clock and at the flag that group_abort
 * sets. The first failure of a group is its last word: what was under way inside MPI is abandoned,
 * later calls repeat the sentence.
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

static int group_open(void *backend, const struct collrun_group_desc *desc, void **out)
{
    struct library *library = backend;
    const struct collrun_services *s = desc->services;
    struct group *group = calloc(1, sizeof *group);
    if (!group)
        return s->fail(s->ctx, COLLRUN_ERR_NO_MEMORY, "out of memory");
    group->library = library;
    group->services = s;
    group->rank = desc->rank;
    group->nranks = desc->nranks;
    group->crowded = desc->nlocal > desc->ncpus;
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

/* Of a group that failed, MPI may still use everything. */
static void group_close(void *handle)
{
    struct group *group = handle;
    if (!group->failed && group->active == 0) {
        communicator_give(group->library, group->comm);
        free(group->input.bytes);
        free(group->output.bytes);
    } else {
        atomic_store(&group->library->dirty, true);
    }
    free(group);
}

/* ---- operations ---- */

/* Inside MPI: moves on the collectives, whichever operation is asked for; a message that waits for
 * its peer must not keep this rank from its part in them. Messages need nothing but MPI's own
 * progress. */
static int drive(void *arg)
{
    struct operation *op = arg;
    struct group *group = op->group;
    while (group->queue) {
        struct operation *first = group->queue;
        first->status = first->advance(first);
        if (first->status == COLLRUN_AGAIN)
            break;
        group->queue = first->next;
        first->queued = false;
        if (first->status != COLLRUN_OK)
            return first->status;
    }
    if (!op->queued && op->status == COLLRUN_AGAIN)
        op->status = op->advance(op);
    return op->status;
}

static void move(struct operation *op)
{
    struct group *group = op->group;
    if (op->status != COLLRUN_AGAIN || group->failed)
        return;
    if (atomic_load(&group->aborted)) {
        group_fail(group, COLLRUN_ERR_ABORTED, "the group is being torn down");
        return;
    }
    int rc = library_enter(group->library, drive, op);
    if (rc < 0)
        group_fail(group, rc, "%s", group->library->why);
    else if (op->status == COLLRUN_AGAIN && now_ns() > op->deadline_ns)
        group_fail(group, COLLRUN_ERR_TIMEOUT, "not done after %.1f s",
                   (double)op->timeout_ns / 1e9);
}

static void leave_queue(struct operation *op)
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
    const struct collrun_services *s = group->services;
    move(op);
    int status = op->status;
    if (status == COLLRUN_AGAIN && !group->failed)
        return COLLRUN_AGAIN;
    leave_queue(op);
    group->active--;
    op->release(op);
    return status == COLLRUN_OK ? COLLRUN_OK : s->fail(s->ctx, group->failed, "%s", group->why);
}

static int start(void *handle, const struct collrun_call *calls, uint32_t ncalls, void **request)
{
    struct group *group = handle;
    const struct collrun_services *s = group->services;
    struct operation *op = NULL;
    bool collective = calls[0].kind < COLLRUN_SEND;
    if (group->failed)
        return s->fail(s->ctx, group->failed, "%s", group->why);
    int rc = collective ? collective_new(group, &calls[0], &op)
                        : messages_new(group, calls, ncalls, &op);
    if (rc != COLLRUN_OK)
        return rc;
    uint64_t now = now_ns();
    op->timeout_ns = calls[0].timeout_ns;
    op->deadline_ns = op->timeout_ns < UINT64_MAX - now ? now + op->timeout_ns : UINT64_MAX;
    op->status = COLLRUN_AGAIN;
    op->queued = collective;
    if (collective) {
        struct operation **end = &group->queue;
        while (*end)
            end = &(*end)->next;
        *end = op;
    }
    group->active++;
    move(op);
    *request = op;
    return COLLRUN_OK;
}

static void idle(const struct group *group, unsigned round)
{
    enum { SPINS = 1000, YIELDS = 2000 };
    if (round < SPINS && !group->crowded)
        return;
    if (round < YIELDS)
        sched_yield();
    else
        nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
}

static int exec(void *handle, const struct collrun_call *calls, uint32_t ncalls)
{
    void *request = NULL;
    int rc = start(handle, calls, ncalls, &request);
    if (rc != COLLRUN_OK)
        return rc;
    for (unsigned round = 0; (rc = test(handle, request)) == COLLRUN_AGAIN; round++)
        idle(handle, round);
    return rc;
}

/* ---- the table ---- */

/* A const struct is bound to the major version it was compiled with: handles are addresses in the
 * library. */
static int probe(const struct collrun_services *services, char *why, size_t len)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int n;
    (void)services;
    MPI_Get_library_version(version, &n);
    if (strncmp(version, "Open MPI v4.", 12) == 0)
        return COLLRUN_OK;
    version[strcspn(version, ",\n")] = '\0';
    snprintf(why, len, "it needs Open MPI 4, whose PMI-1 it starts by; this is %s", version);
    return COLLRUN_ERR_UNAVAILABLE;
}

/* The parts of Open MPI are plugins that expect to see its library. */
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

/* The types and operators whose results MPI and collrun define alike. Floating MIN and MAX are not
 * among them (MPI leaves NaN open), nor half precision, which collrun sums in float32, nor bool. */
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

const struct collrun_backend collrun_backend_v1 = {
    .abi = COLLRUN_BACKEND_ABI,
    .size = (uint32_t)sizeof(struct collrun_backend),
    .name = "mpi",
    .version = "1.0 (Open MPI " OPEN_MPI_VERSION ")",
    .flags = COLLRUN_BACKEND_TAGS | COLLRUN_BACKEND_RECV_ANY | COLLRUN_BACKEND_STARTS_ALL,
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
};
