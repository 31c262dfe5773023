/* SPDX-License-Identifier: Apache-2.0
 *
 * How much memory of its GPU a rank takes with the groups of job.yaml, after the first collective
 * of one of them, and after its first message; and how long these take: a workload. Where ranks
 * share a GPU, `per_gpu` says how many: the memory is divided by it. Rank 0 prints.
 */
#include <collrun/workload.h>
#include <dlfcn.h>
#include <stdio.h>
#include <time.h>

struct bench {
    struct collrun_ctx *ctx;
    struct collrun_group *host, *gpu;
    int (*mem_get_info)(size_t *available, size_t *total);
    int per_gpu;
    double before; /* MiB; 0 at the start */
    void *buffer;
};

enum { COUNT = 1024, MIB = 1 << 20 };

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static double used_mib(const struct bench *b)
{
    size_t available = 0, total = 0;
    b->mem_get_info(&available, &total);
    return (double)(total - available) / MIB;
}

/* All ranks are here, and have the memory that they need so far. */
static int show(struct bench *b, const char *step, double ms)
{
    int rc = collrun_barrier(b->host);
    const double used = used_mib(b);
    if (!rc && collrun_rank(b->host) == 0)
        printf("%-44s %10.1f %10.1f %10.1f\n", step, ms, used / b->per_gpu,
               (used - b->before) / b->per_gpu);
    fflush(stdout);
    b->before = used;
    return rc ? rc : collrun_barrier(b->host);
}

static int sum(struct bench *b)
{
    const double begun = now_ms();
    int rc = collrun_allreduce(b->gpu, b->buffer, b->buffer, COUNT, COLLRUN_FLOAT32, COLLRUN_SUM);
    return rc ? rc : show(b, "its first allreduce", now_ms() - begun);
}

/* From rank 0 to rank 1. */
static int message(struct bench *b)
{
    const double begun = now_ms();
    int rc = 0;
    if (collrun_rank(b->gpu) == 0)
        rc = collrun_send(b->gpu, b->buffer, COUNT, COLLRUN_FLOAT32, 1);
    else if (collrun_rank(b->gpu) == 1)
        rc = collrun_recv(b->gpu, b->buffer, COUNT, COLLRUN_FLOAT32, 0);
    return rc ? rc : show(b, "its first message", now_ms() - begun);
}

static int prepare(struct bench *b)
{
    static const char *const names[] = {"libcudart.so.13", "libcudart.so.12", "libcudart.so"};
    void *library = NULL;
    int rc = collrun_group_get(b->ctx, "host", &b->host);
    if (!rc)
        rc = collrun_group_get(b->ctx, collrun_param_string(b->ctx, "group"), &b->gpu);
    for (int i = 0; !library && i < 3; i++)
        library = dlopen(names[i], RTLD_LAZY | RTLD_NOLOAD);
    *(void **)&b->mem_get_info = library ? dlsym(library, "cudaMemGetInfo") : NULL;
    if (!rc && !b->mem_get_info)
        rc = collrun_fail(b->ctx, "no cudaMemGetInfo");
    return rc ? rc : collrun_alloc_device(b->gpu, 0, COUNT * 4, &b->buffer);
}

static int run(struct collrun_ctx *ctx, void *state)
{
    struct bench b = {.ctx = ctx, .per_gpu = (int)collrun_param_int(ctx, "per_gpu")};
    (void)state;
    int rc = prepare(&b);
    if (!rc)
        rc = show(&b, collrun_param_string(ctx, "title"), 0);
    if (!rc)
        rc = sum(&b);
    return rc ? rc : message(&b);
}

static const struct collrun_param params[] = {
    {.name = "group", .type = COLLRUN_PARAM_STRING, .help = "the group that is used"},
    {.name = "title", .type = COLLRUN_PARAM_STRING, .help = "what job.yaml declares"},
    {.name = "per_gpu",
     .type = COLLRUN_PARAM_INT,
     .def = "1",
     .min = "1",
     .help = "ranks that share a GPU"},
    {0},
};

COLLRUN_WORKLOAD(.name = "nccl_memory", .summary = "GPU memory of groups on nccl", .params = params,
                 .run = run);
