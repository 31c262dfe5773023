/* SPDX-License-Identifier: Apache-2.0
 *
 * A job that does not end for long: all ranks follow the same pseudo-random sequence of steps on
 * the groups of job.yaml, as fast as they can, and check each result. A step is an operation that
 * is waited for now, or started and waited for some steps later. Every so often all ranks make
 * groups and destroy them again, and print lines. Each rank writes to `samples` what its process
 * holds; run.sh judges.
 */
#include <collrun/workload.h>

#include <dirent.h>
#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    MAX_GROUPS = 64,
    MAX_RANKS = 16,
    MAX_COUNT = 40000, /* elements of a rank's block */
    IN_FLIGHT = 8,
    ROUND = 256, /* steps between two looks at the clock */
    ROUNDS_PER_GROUP = 4,
};

struct step {
    struct collrun_request *request; /* NULL: the slot is free */
    struct collrun_group *group;
    struct collrun_call call;
    uint64_t number;
    int64_t *send, *recv;
};

struct soak {
    struct collrun_ctx *ctx;
    struct collrun_group *world;
    struct collrun_group *groups[MAX_GROUPS];
    int ngroups;
    uint64_t random; /* the same on all ranks */
    uint64_t number;
    struct step steps[IN_FLIGHT];
    FILE *samples;
};

static const struct collrun_param params[] = {
    {.name = "time", .type = COLLRUN_PARAM_DURATION, .def = "60s", .help = "how long"},
    {.name = "sample",
     .type = COLLRUN_PARAM_DURATION,
     .def = "1s",
     .help = "time between two samples"},
    {.name = "samples",
     .type = COLLRUN_PARAM_STRING,
     .help = "the file for the samples: seconds, steps, KiB of memory, descriptors, threads, maps, "
             "KiB allocated"},
    {0},
};

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static uint32_t draw(struct soak *soak, uint32_t below)
{
    soak->random = soak->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(soak->random >> 33) % below;
}

/* ---- one operation: its buffers, and what must be in them ------------------------------------ */

/* What rank `rank` of the group sends as element `i`. */
static int64_t value(uint64_t number, int rank, size_t i)
{
    return (int64_t)(number % 1000003) + rank * 7 + (int64_t)(i % 1009);
}

static int64_t sum(uint64_t number, int size, size_t i)
{
    return size * value(number, 0, i) + 7 * (int64_t)size * (size - 1) / 2;
}

static size_t elements_sent(const struct collrun_call *call, int size)
{
    bool of_each = call->kind == COLLRUN_ALLTOALL || call->kind == COLLRUN_SCATTER ||
                   call->kind == COLLRUN_REDUCE_SCATTER;
    return call->kind == COLLRUN_BARRIER ? 0 : call->count * (size_t)(of_each ? size : 1);
}

/* The number of elements that this rank receives. */
static size_t elements_received(const struct collrun_call *call, int rank, int size)
{
    switch (call->kind) {
    case COLLRUN_BARRIER:
        return 0;
    case COLLRUN_GATHER:
        return rank == call->root ? call->count * (size_t)size : 0;
    case COLLRUN_REDUCE:
        return rank == call->root ? call->count : 0;
    case COLLRUN_ALLGATHER:
    case COLLRUN_ALLTOALL:
        return call->count * (size_t)size;
    default:
        return call->count;
    }
}

/* Element i of what this rank receives. */
static int64_t expected(const struct step *step, int rank, int size, size_t i)
{
    size_t count = step->call.count, own = (size_t)rank * count;
    switch (step->call.kind) {
    case COLLRUN_ALLREDUCE:
    case COLLRUN_REDUCE:
        return sum(step->number, size, i);
    case COLLRUN_REDUCE_SCATTER:
        return sum(step->number, size, own + i);
    case COLLRUN_BROADCAST:
        return value(step->number, step->call.root, i);
    case COLLRUN_SCATTER:
        return value(step->number, step->call.root, own + i);
    case COLLRUN_ALLTOALL:
        return value(step->number, (int)(i / count), own + i % count);
    default: /* allgather, gather */
        return value(step->number, (int)(i / count), i % count);
    }
}

static int check(struct soak *soak, const struct step *step)
{
    int rank = collrun_rank(step->group), size = collrun_size(step->group);
    size_t n = elements_received(&step->call, rank, size);
    for (size_t i = 0; i < n; i++)
        if (step->recv[i] != expected(step, rank, size, i))
            return collrun_fail(soak->ctx,
                                "step %" PRIu64 ", kind %d, element %zu of %zu: %" PRId64
                                ", not %" PRId64,
                                step->number, (int)step->call.kind, i, n, step->recv[i],
                                expected(step, rank, size, i));
    return 0;
}

static int finish(struct soak *soak, struct step *step)
{
    if (!step->request)
        return 0;
    int rc = collrun_wait(step->request);
    step->request = NULL;
    return rc == COLLRUN_OK ? check(soak, step) : rc;
}

static int finish_all(struct soak *soak)
{
    for (int i = 0; i < IN_FLIGHT; i++) {
        int rc = finish(soak, &soak->steps[i]);
        if (rc != 0)
            return rc;
    }
    return 0;
}

static int perform(struct soak *soak, struct step *step, bool later)
{
    int rank = collrun_rank(step->group), size = collrun_size(step->group);
    size_t sent = elements_sent(&step->call, size);
    for (size_t i = 0; i < sent; i++)
        step->send[i] = value(step->number, rank, i);
    step->call.send = step->send;
    step->call.recv = step->recv;
    if (step->call.kind == COLLRUN_BROADCAST && rank == step->call.root)
        memcpy(step->recv, step->send, sent * sizeof *step->recv);
    if (later)
        return collrun_start(step->group, &step->call, &step->request);
    int rc = collrun_run(step->group, &step->call, 1);
    return rc == COLLRUN_OK ? check(soak, step) : rc;
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* A collective on one of the groups, drawn alike on all ranks; ranks that are not in it go on. */
static int make_step(struct soak *soak)
{
    static const enum collrun_kind kinds[] = {
        COLLRUN_BARRIER, COLLRUN_ALLREDUCE, COLLRUN_ALLREDUCE,      COLLRUN_BROADCAST,
        COLLRUN_REDUCE,  COLLRUN_ALLGATHER, COLLRUN_REDUCE_SCATTER, COLLRUN_ALLTOALL,
        COLLRUN_GATHER,  COLLRUN_SCATTER,
    };
    static const uint32_t counts[] = {1, 1, 1, 7, 100, 1000, MAX_COUNT};
    uint32_t which = draw(soak, (uint32_t)soak->ngroups);
    uint32_t kind = draw(soak, sizeof kinds / sizeof kinds[0]);
    uint32_t count = 1 + draw(soak, counts[draw(soak, sizeof counts / sizeof counts[0])]);
    uint32_t root = draw(soak, 1u << 30), slot = draw(soak, IN_FLIGHT);
    bool later = draw(soak, 2) == 1;
    struct step *step = &soak->steps[slot];
    soak->number++;
    int rc = finish(soak, step);
    if (rc != 0 || !soak->groups[which])
        return rc;
    step->group = soak->groups[which];
    step->number = soak->number;
    step->call = (struct collrun_call)COLLRUN_CALL(kinds[kind]);
    step->call.count = step->call.kind == COLLRUN_BARRIER ? 0 : count;
    step->call.dtype = COLLRUN_INT64;
    step->call.op = COLLRUN_SUM;
    step->call.root = (int)(root % (uint32_t)collrun_size(step->group));
    return perform(soak, step, later);
}

/* Each rank sends to the next one and receives from the one before. */
static int pass_messages(struct soak *soak)
{
    int rank = collrun_rank(soak->world), size = collrun_size(soak->world);
    int64_t *send = soak->steps[0].send, *recv = soak->steps[0].recv;
    size_t count = 1 + draw(soak, MAX_COUNT);
    for (size_t i = 0; i < count; i++)
        send[i] = value(soak->number, rank, i);
    int from = (rank + size - 1) % size;
    int rc = collrun_sendrecv(soak->world, send, count, (rank + 1) % size, recv, count, from,
                              COLLRUN_INT64);
    for (size_t i = 0; rc == COLLRUN_OK && i < count; i++)
        if (recv[i] != value(soak->number, from, i))
            return collrun_fail(soak->ctx, "message %" PRIu64 ": element %zu is wrong",
                                soak->number, i);
    return rc;
}

/* A group of all ranks, by one backend after the other, and its two halves. */
static int make_groups(struct soak *soak, uint64_t round)
{
    static const char *const backends[] = {"tcp", "gloo", "auto"};
    struct collrun_group *group = NULL, *half = NULL;
    int ranks[MAX_RANKS];
    int64_t one = 1, all = 0;
    struct collrun_group_options options = {
        .size = sizeof options, .backend = backends[round % 3], .ranks = ranks};
    options.nranks = collrun_group_members(soak->world, ranks, MAX_RANKS);
    int rc = collrun_group_create(soak->ctx, &options, &group);
    if (rc == COLLRUN_OK)
        rc = collrun_group_split(group, collrun_rank(group) % 2, 0, NULL, &half);
    if (rc == COLLRUN_OK)
        rc = collrun_allreduce(half, &one, &all, 1, COLLRUN_INT64, COLLRUN_SUM);
    if (rc == COLLRUN_OK && all != collrun_size(half))
        rc = collrun_fail(soak->ctx, "a sum over %d ranks is %" PRId64, collrun_size(half), all);
    if (rc == COLLRUN_OK)
        rc = collrun_barrier(group); /* operations of peers may not fail */
    collrun_group_destroy(half);
    collrun_group_destroy(group);
    return rc;
}

static int make_round(struct soak *soak, uint64_t round)
{
    int rc = 0;
    for (int i = 0; rc == 0 && i < ROUND; i++)
        rc = make_step(soak);
    if (rc == 0)
        rc = finish_all(soak);
    if (rc == 0)
        rc = pass_messages(soak);
    if (rc == 0 && round % ROUNDS_PER_GROUP == 0)
        rc = make_groups(soak, round / ROUNDS_PER_GROUP);
    printf("round %" PRIu64 " of rank %d: %" PRIu64 " steps\n", round,
           collrun_world_rank(soak->ctx), soak->number);
    return rc;
}

/* ---- samples --------------------------------------------------------------------------------- */

static int entries(const char *folder)
{
    int n = 0;
    DIR *dir = opendir(folder);
    while (dir && readdir(dir))
        n++;
    if (dir)
        closedir(dir);
    return n;
}

static long lines(const char *path, const char *start, long *number)
{
    char line[512];
    long n = 0;
    FILE *f = fopen(path, "r");
    for (; f && fgets(line, sizeof line, f); n++)
        if (start && strncmp(line, start, strlen(start)) == 0)
            *number += strtol(line + strlen(start), NULL, 10);
    if (f)
        fclose(f);
    return n;
}

static void sample(struct soak *soak, double since)
{
    long kib = 0;
    lines("/proc/self/status", "RssAnon:", &kib);
    lines("/proc/self/status", "RssShmem:", &kib);
    const struct mallinfo2 heap = mallinfo2();
    fprintf(soak->samples, "%.1f %" PRIu64 " %ld %d %d %ld %zu\n", since, soak->number, kib,
            entries("/proc/self/fd"), entries("/proc/self/task"),
            lines("/proc/self/maps", NULL, NULL), (heap.uordblks + heap.hblkhd) / 1024);
    fflush(soak->samples);
}

/* ---- the job --------------------------------------------------------------------------------- */

static int prepare(struct soak *soak)
{
    int rc = collrun_group_get(soak->ctx, "world", &soak->world);
    soak->random = 1;
    soak->samples = fopen(collrun_param_string(soak->ctx, "samples"), "w");
    if (rc == COLLRUN_OK && !soak->samples)
        return collrun_fail(soak->ctx, "cannot write the samples");
    for (char name[16]; rc == COLLRUN_OK && soak->ngroups < MAX_GROUPS; soak->ngroups++) {
        snprintf(name, sizeof name, "g%d", soak->ngroups);
        rc = collrun_group_get(soak->ctx, name, &soak->groups[soak->ngroups]);
        if (rc == COLLRUN_ERR_NOT_FOUND)
            break;
        if (rc == COLLRUN_ERR_NOT_MEMBER)
            rc = COLLRUN_OK;
    }
    for (int i = 0; i < IN_FLIGHT; i++) {
        size_t bytes = (size_t)collrun_world_size(soak->ctx) * MAX_COUNT * sizeof(int64_t);
        soak->steps[i].send = malloc(bytes);
        soak->steps[i].recv = malloc(bytes);
        if (!soak->steps[i].send || !soak->steps[i].recv)
            return COLLRUN_ERR_NO_MEMORY;
        memset(soak->steps[i].send, 1, bytes); /* in memory from the start */
        memset(soak->steps[i].recv, 1, bytes);
    }
    return rc == COLLRUN_ERR_NOT_FOUND ? COLLRUN_OK : rc;
}

static int soak_all(struct soak *soak)
{
    double begin = seconds(), next = 0;
    double limit = (double)collrun_param_duration(soak->ctx, "time") * 1e-9;
    int64_t over = 0;
    for (uint64_t round = 1; !over; round++) {
        int rc = make_round(soak, round);
        double since = seconds() - begin;
        int64_t mine = since >= limit;
        if (rc == 0) /* one clock decides */
            rc = collrun_allreduce(soak->world, &mine, &over, 1, COLLRUN_INT64, COLLRUN_MAX);
        if (rc != 0)
            return rc;
        if (since >= next) {
            sample(soak, since);
            next += (double)collrun_param_duration(soak->ctx, "sample") * 1e-9;
        }
    }
    return 0;
}

static int run(struct collrun_ctx *ctx, void *state)
{
    struct soak soak = {.ctx = ctx};
    int rc = prepare(&soak);
    (void)state;
    if (rc == 0)
        rc = soak_all(&soak);
    collrun_metric(ctx, "steps", (double)soak.number);
    for (int i = 0; i < IN_FLIGHT; i++) {
        free(soak.steps[i].send);
        free(soak.steps[i].recv);
    }
    if (soak.samples)
        fclose(soak.samples);
    return rc;
}

COLLRUN_WORKLOAD(.name = "soak", .summary = "random operations for long", .params = params,
                 .run = run);
