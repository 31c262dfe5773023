/* SPDX-License-Identifier: Apache-2.0
 *
 * See local.h. The local group gets a separate description, rendezvous and services:
 * - segment: one segment of the engine holds that of shm and, behind it, the posts
 * - services: ranks in messages become those of the group, calls those of the workload
 */
#include "local.h"

#include "packet.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* The shm backend, compiled into this one. */
extern const struct collrun_backend net_shm_backend;

#define LOCAL_LEADER_FIRST_NS 300000000u

/* The last call of the workload on one rank. A rank may be one operation ahead of another, which
 * may still read the post before: they alternate. All three are released, in the order of
 * net_local_begin: a reader that acquires the number has the rest, and one that acquires a word of
 * a later operation then finds that the number has changed. */
struct local_post {
    _Atomic uint64_t number; /* of the operation, from 1 on; 0: none, or it is being written */
    _Atomic uint64_t what, count;
    /* Set for a handle, whose number is that of the post. Released after all messages of the rank,
     * and counted after that. */
    _Atomic uint32_t has_left;
    _Atomic uint32_t nleft; /* of all ranks; in the posts of rank 0 */
    char pad[32];
};
#define LOCAL_POSTS 2u /* of each rank; as many as a group has handles */

struct net_local {
    void *group;     /* of net_shm_backend */
    uint32_t handle; /* 1: the second one */
    const struct net_hosts *hosts;
    uint32_t host, rank, nranks; /* rank and nranks: of the local group */
    const struct collrun_services *outer;
    struct collrun_services services;
    const struct collrun_rendezvous *rendezvous; /* of the group; during open */
    struct local_post *posts;                    /* LOCAL_POSTS of each rank */
    void *mapped;
    size_t mapped_len;
    const struct collrun_call *call; /* of the workload */
    uint64_t number;                 /* of the operation */
    uint32_t ncompared;              /* ranks below it have the same call */
    char text[1024];                 /* of the last failure */
};

/* Stores a failure, for this thread and for net_local_failure_text. */
static int local_report(struct net_local *l, int status, const char *text)
{
    snprintf(l->text, sizeof l->text, "%s", text);
    return l->outer->fail(l->outer->ctx, status, "%s", text);
}

const char *net_local_failure_text(const struct net_local *l)
{
    return l->text;
}

/* ---- the calls of the workload ---- */

static uint64_t local_what(const struct packet_op *op)
{
    return (uint64_t)op->kind | (uint64_t)op->dtype << 8 | (uint64_t)op->op << 16 |
           (uint64_t)(uint32_t)op->root << 32;
}

static struct packet_op local_op(uint64_t what, uint64_t count)
{
    return (struct packet_op){.kind = (uint8_t)what,
                              .dtype = (uint8_t)(what >> 8),
                              .op = (uint8_t)(what >> 16),
                              .root = (int32_t)(what >> 32),
                              .count = count};
}

static struct local_post *local_post_of(const struct net_local *l, uint32_t rank, uint64_t number)
{
    return &l->posts[(size_t)rank * LOCAL_POSTS + number % LOCAL_POSTS];
}

/* What a rank calls as its operation `number`. False: it has none yet, or is past it. */
static bool local_posted(const struct net_local *l, uint32_t rank, uint64_t number,
                         struct packet_op *op)
{
    struct local_post *p = local_post_of(l, rank, number);
    if (atomic_load(&p->number) != number)
        return false;
    const uint64_t what = atomic_load(&p->what);
    const uint64_t count = atomic_load(&p->count);
    *op = local_op(what, count);
    return atomic_load(&p->number) == number;
}

void net_local_begin(struct net_local *l, const struct collrun_call *call)
{
    l->call = call;
    l->number++;
    l->ncompared = 0;
    const struct packet_op op = packet_op_of(call);
    struct local_post *p = local_post_of(l, l->rank, l->number);
    atomic_store(&p->number, 0);
    atomic_store_explicit(&p->what, local_what(&op), memory_order_release);
    atomic_store_explicit(&p->count, op.count, memory_order_release);
    atomic_store_explicit(&p->number, l->number, memory_order_release);
}

static uint32_t local_group_rank(const struct net_local *l, uint32_t rank)
{
    return net_hosts_rank(l->hosts, l->host, rank);
}

/* Compares this rank's call with those of the ranks that have begun the operation. */
static int local_compare(struct net_local *l)
{
    const struct packet_op mine = packet_op_of(l->call);
    struct packet_op theirs;
    bool all = true;
    for (uint32_t r = l->ncompared; r < l->nranks; r++) {
        struct local_post *p = local_post_of(l, r, l->number);
        if (r == l->rank || atomic_load(&p->number) > l->number)
            continue;
        if (!local_posted(l, r, l->number, &theirs)) {
            all = false;
            continue;
        }
        if (packet_op_agrees(&theirs, &mine))
            continue;
        char text[1024];
        const struct collrun_call a = packet_op_call(&mine), b = packet_op_call(&theirs);
        l->outer->mismatch_text(l->outer->ctx, local_group_rank(l, l->rank), &a,
                                local_group_rank(l, r), &b, text, sizeof text);
        net_local_fail(l, COLLRUN_ERR_MISMATCH, text);
        return local_report(l, COLLRUN_ERR_MISMATCH, text);
    }
    if (all)
        l->ncompared = l->nranks;
    return COLLRUN_OK;
}

/* ---- services of the local group ---- */

static void local_log(void *ctx, enum collrun_log_level level, const char *format, ...)
{
    const struct net_local *l = ctx;
    char text[1024];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    l->outer->log(l->outer->ctx, level, "%s", text);
}

static int local_fail(void *ctx, int status, const char *format, ...)
{
    char text[1024];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    return local_report(ctx, status, text);
}

/* The parameters are the ABI's. NOLINTNEXTLINE(readability-function-size) */
static void local_mismatch_text(void *ctx, uint32_t rank_a, const struct collrun_call *a,
                                uint32_t rank_b, const struct collrun_call *b, char *out,
                                size_t len)
{
    const struct net_local *l = ctx;
    struct packet_op op_a, op_b;
    const struct collrun_call call_a =
        local_posted(l, rank_a, l->number, &op_a) ? packet_op_call(&op_a) : *a;
    const struct collrun_call call_b =
        local_posted(l, rank_b, l->number, &op_b) ? packet_op_call(&op_b) : *b;
    l->outer->mismatch_text(l->outer->ctx, local_group_rank(l, rank_a), &call_a,
                            local_group_rank(l, rank_b), &call_b, out, len);
}

static int local_fail_mismatch(void *ctx, uint32_t rank_a, const struct collrun_call *a,
                               uint32_t rank_b, const struct collrun_call *b)
{
    char text[1024];
    local_mismatch_text(ctx, rank_a, a, rank_b, b, text, sizeof text);
    return local_report(ctx, COLLRUN_ERR_MISMATCH, text);
}

/* The parameters are the ABI's. NOLINTNEXTLINE(readability-function-size) */
static void local_timeout_text(void *ctx, uint32_t rank, const uint32_t *missing, uint32_t nmissing,
                               uint64_t waited_ns, char *out, size_t len)
{
    const struct net_local *l = ctx;
    uint32_t *theirs = calloc((size_t)nmissing + 1, sizeof *theirs);
    for (uint32_t i = 0; theirs && i < nmissing; i++)
        theirs[i] = local_group_rank(l, missing[i]);
    l->outer->timeout_text(l->outer->ctx, local_group_rank(l, rank), theirs, theirs ? nmissing : 0,
                           waited_ns, out, len);
    free(theirs);
}

static int local_fail_timeout(void *ctx, uint32_t rank, const uint32_t *missing, uint32_t nmissing,
                              uint64_t waited_ns)
{
    char text[1024];
    local_timeout_text(ctx, rank, missing, nmissing, waited_ns, text, sizeof text);
    return local_report(ctx, COLLRUN_ERR_TIMEOUT, text);
}

static void local_count_mismatch_text(void *ctx, const struct collrun_count_mismatch *counts,
                                      char *out, size_t len)
{
    const struct net_local *l = ctx;
    struct collrun_count_mismatch theirs = *counts;
    theirs.call = l->call;
    theirs.sender = local_group_rank(l, counts->sender);
    theirs.receiver = local_group_rank(l, counts->receiver);
    l->outer->count_mismatch_text(l->outer->ctx, &theirs, out, len);
}

static const char *local_option(void *ctx, const char *key)
{
    (void)ctx;
    (void)key;
    return NULL; /* shm has none */
}

static int local_memory_kind(void *ctx, const void *ptr)
{
    const struct net_local *l = ctx;
    return l->outer->memory_kind(l->outer->ctx, ptr);
}

static int local_thread_start(void *ctx, void *(*run)(void *), void *arg, pthread_t *thread)
{
    const struct net_local *l = ctx;
    return l->outer->thread_start(l->outer->ctx, run, arg, thread);
}

static void local_services_init(struct net_local *l)
{
    COLLRUN_COPY(&l->services, l->outer);
    l->services.size = sizeof l->services;
    l->services.ctx = l;
    l->services.log = local_log;
    l->services.fail = local_fail;
    l->services.fail_mismatch = local_fail_mismatch;
    l->services.fail_timeout = local_fail_timeout;
    l->services.mismatch_text = local_mismatch_text;
    l->services.timeout_text = local_timeout_text;
    l->services.count_mismatch_text = local_count_mismatch_text;
    l->services.option = local_option;
    l->services.memory_kind = local_memory_kind;
    l->services.thread_start = local_thread_start;
    l->services.connect = NULL; /* shm does not connect */
}

/* ---- life ---- */

/* The segment of shm, with the posts behind it. */
static int local_segment(void *ctx, size_t len, int *fd, uint64_t *offset)
{
    struct net_local *l = ctx;
    const struct collrun_rendezvous *v = l->rendezvous;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t at = (len + page - 1) / page * page;
    const size_t posts = (size_t)l->nranks * LOCAL_POSTS * sizeof *l->posts;
    const int status = v->segment(v->ctx, at + posts, fd, offset);
    if (status != COLLRUN_OK)
        return status;
    void *memory =
        mmap(NULL, posts, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, (off_t)(*offset + at));
    if (memory == MAP_FAILED)
        return l->outer->fail(l->outer->ctx, COLLRUN_ERR_SYSTEM,
                              "cannot map %zu bytes of shared memory: %s", posts, strerror(errno));
    l->posts = memory;
    l->mapped = memory;
    l->mapped_len = posts;
    return COLLRUN_OK;
}

static int local_group_open(struct net_local *l, const struct collrun_group_desc *desc,
                            const struct net_local *first)
{
    uint32_t *world = calloc(l->nranks, sizeof *world);
    uint32_t *host_of = calloc(l->nranks, sizeof *host_of);
    int status = COLLRUN_ERR_NO_MEMORY;
    const struct collrun_rendezvous table = {
        .size = sizeof table, .ctx = l, .segment = local_segment};
    struct collrun_group_desc inner = *desc;
    inner.size = sizeof inner;
    inner.rank = inner.local_rank = l->rank;
    inner.nranks = inner.nlocal = l->nranks;
    inner.world_rank = world;
    inner.host_of = host_of;
    inner.rendezvous = &table;
    inner.services = &l->services;
    inner.collectives_handle = first ? first->group : NULL;
    if (world && host_of) {
        for (uint32_t r = 0; r < l->nranks; r++)
            world[r] = desc->world_rank[local_group_rank(l, r)];
        status = net_shm_backend.group_open(NULL, &inner, &l->group);
    } else {
        status = l->outer->fail(l->outer->ctx, status, "out of memory for the group");
    }
    free(world);
    free(host_of);
    return status;
}

int net_local_open(const struct collrun_group_desc *desc, const struct net_hosts *hosts,
                   const struct net_local *first, struct net_local **out)
{
    const struct collrun_services *s = desc->services;
    struct net_local *l = calloc(1, sizeof *l);
    if (!l)
        return s->fail(s->ctx, COLLRUN_ERR_NO_MEMORY, "out of memory for the group");
    l->hosts = hosts;
    l->host = hosts->of[desc->rank];
    l->rank = net_hosts_local_rank(hosts, desc->rank);
    l->nranks = net_hosts_count(hosts, l->host);
    l->outer = s;
    l->rendezvous = desc->rendezvous;
    l->handle = first != NULL;
    l->posts = first ? first->posts : NULL;
    local_services_init(l);
    const int status = local_group_open(l, desc, first);
    l->rendezvous = NULL;
    if (status != COLLRUN_OK) {
        net_local_close(l);
        return status;
    }
    *out = l;
    return COLLRUN_OK;
}

void net_local_close(struct net_local *l)
{
    if (!l)
        return;
    if (l->group) {
        atomic_store_explicit(&l->posts[l->rank * LOCAL_POSTS + l->handle].has_left, 1,
                              memory_order_release);
        atomic_fetch_add_explicit(&l->posts[l->handle].nleft, 1, memory_order_release);
        net_shm_backend.group_close(l->group);
    }
    if (l->mapped)
        munmap(l->mapped, l->mapped_len);
    free(l);
}

void *net_local_group(const struct net_local *l)
{
    return l->group;
}

const struct collrun_transport *net_local_transport(void)
{
    return net_shm_backend.transport;
}

void net_local_set_embedder(struct net_local *l, const struct embedder *embedder)
{
    embed_set(l->group, embedder);
}

uint64_t net_local_sleep_begin(struct net_local *l)
{
    return embed_begin(l->group);
}

void net_local_sleep_end(struct net_local *l)
{
    embed_end(l->group);
}

uint32_t net_local_nleft(const struct net_local *l)
{
    return atomic_load_explicit(&l->posts[l->handle].nleft, memory_order_acquire);
}

bool net_local_has_left(const struct net_local *l, uint32_t local_rank)
{
    return atomic_load_explicit(&l->posts[local_rank * LOCAL_POSTS + l->handle].has_left,
                                memory_order_acquire) != 0;
}

void net_local_fail(struct net_local *l, int status, const char *text)
{
    if (status == COLLRUN_ERR_ABORTED) /* of this rank alone */
        net_shm_backend.group_abort(l->group);
    else
        net_shm_backend.transport->fail(l->group, COLLRUN_ANY_SOURCE, status, text);
}

int net_local_run(struct net_local *l, struct collrun_call *call, bool waits_for_leader)
{
    call->size = (uint32_t)sizeof *call;
    call->timeout_ns = l->call->timeout_ns + (waits_for_leader ? LOCAL_LEADER_FIRST_NS : 0);
    const int status = net_shm_backend.exec(l->group, call, 1);
    if (status != COLLRUN_OK || l->ncompared == l->nranks)
        return status;
    return local_compare(l);
}
