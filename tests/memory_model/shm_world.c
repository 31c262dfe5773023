/* SPDX-License-Identifier: Apache-2.0
 *
 * See shm_world.h. The services are what collectives and messages of int32 need.
 */
#include "memory_model/shm_world.h"

#include "group.h"
#include "memory_model/model.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

struct shm_world shm_world;
static int file = -1;
static uint64_t file_used;
static struct collrun_services services[MODEL_THREADS];
static const uint32_t ranks[MODEL_THREADS] = {0, 1, 2, 3}, hosts[MODEL_THREADS];

/* ---- services; ctx is the rank's error text ---- */

static int world_fail(void *ctx, int status, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    vsnprintf(ctx, sizeof shm_world.errors[0], format, ap);
    va_end(ap);
    return status;
}

static void world_mismatch_text(void *ctx, uint32_t rank_a, const struct collrun_call *a,
                                uint32_t rank_b, const struct collrun_call *b, char *out,
                                size_t len)
{
    (void)ctx;
    snprintf(out, len, "rank %u calls %d, rank %u calls %d", rank_a, (int)a->kind, rank_b,
             (int)b->kind);
}

static void world_timeout_text(void *ctx, uint32_t rank, const uint32_t *missing, uint32_t nmissing,
                               uint64_t waited_ns, char *out, size_t len)
{
    (void)ctx, (void)missing, (void)waited_ns;
    snprintf(out, len, "rank %u waited for %u ranks", rank, nmissing);
}

static size_t world_dtype_size(enum collrun_dtype dtype)
{
    return dtype == COLLRUN_INT32 ? sizeof(int32_t) : 1;
}

static void world_reduce(void *dst, const void *const *srcs, uint32_t nsrcs, size_t count,
                         enum collrun_dtype dtype, enum collrun_op op, uint32_t divisor)
{
    (void)dtype, (void)op, (void)divisor;
    for (size_t i = 0; i < count; i++) {
        int32_t sum = 0;
        for (uint32_t s = 0; s < nsrcs; s++) {
            int32_t value;
            memcpy(&value, (const char *)srcs[s] + i * sizeof value, sizeof value);
            sum += value;
        }
        memcpy((char *)dst + i * sizeof sum, &sum, sizeof sum);
    }
}

static uint64_t world_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static const char *world_option(void *ctx, const char *key)
{
    (void)ctx;
    (void)key;
    return NULL;
}

static uint64_t world_stopped_ns(void *ctx)
{
    (void)ctx;
    return 0;
}

/* ---- the rendezvous: each group gets one more part of one file ---- */

static int world_segment(void *ctx, size_t len, int *fd, uint64_t *offset)
{
    (void)ctx;
    if (file_used == 0 && ftruncate(file, (off_t)len) != 0)
        abort();
    file_used = len;
    *fd = file;
    *offset = 0;
    return COLLRUN_OK;
}

static const struct collrun_rendezvous rendezvous = {.size = sizeof rendezvous,
                                                     .segment = world_segment};

void shm_world_open(uint32_t nranks, bool oversubscribed, const struct collrun_p2p p2p[])
{
    for (uint32_t r = 0; r < shm_world.nranks; r++)
        collrun_backend_v1.group_close(shm_world.groups[r]);
    if (file >= 0)
        close(file);
    file = memfd_create("model", MFD_CLOEXEC);
    file_used = 0;
    shm_world = (struct shm_world){.nranks = nranks, .oversubscribed = oversubscribed};
    for (uint32_t r = 0; r < nranks; r++) {
        services[r] = (struct collrun_services){.size = sizeof services[r],
                                                .ctx = shm_world.errors[r],
                                                .fail = world_fail,
                                                .mismatch_text = world_mismatch_text,
                                                .timeout_text = world_timeout_text,
                                                .dtype_size = world_dtype_size,
                                                .reduce = world_reduce,
                                                .option = world_option,
                                                .stopped_ns = world_stopped_ns,
                                                .now_ns = world_now_ns};
        const struct collrun_group_desc desc = {.size = sizeof desc,
                                                .rank = r,
                                                .nranks = nranks,
                                                .local_rank = r,
                                                .nlocal = nranks,
                                                .ncpus = oversubscribed ? 1 : nranks,
                                                .name = "model",
                                                .world_rank = ranks,
                                                .host_of = hosts,
                                                .timeout_ns = 60000000000,
                                                .rendezvous = &rendezvous,
                                                .services = &services[r],
                                                .p2p = p2p ? &p2p[r] : NULL};
        if (collrun_backend_v1.group_open(NULL, &desc, &shm_world.groups[r]) != COLLRUN_OK)
            abort();
        ((struct shm_group *)shm_world.groups[r])->wait.spins = oversubscribed ? 0 : 2;
    }
}

int shm_world_exec(uint32_t rank, const struct collrun_call *call)
{
    return collrun_backend_v1.exec(shm_world.groups[rank], call, 1);
}
