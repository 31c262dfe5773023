/* SPDX-License-Identifier: Apache-2.0
 *
 * Bench: sweep one or all collectives over message sizes, in every group of the workload, and print
 * a table as nccl-tests does, with the 50th and 99th percentile added at its end.
 *
 * - An iteration counts with the time of its slowest rank: that is what a synchronous job pays.
 * - size is the larger of what a rank sends and what it receives; count is that of one rank, or of
 * one block.
 * - algbw = size / time; busbw = algbw * a factor that makes it comparable with the hardware for
 * any number n of ranks: 2 (n - 1) / n for allreduce, (n - 1) / n where each rank has a block of
 * its own, otherwise 1 (nccl-tests, doc/PERFORMANCE.md). GB is 1e9 bytes.
 * - #wrong counts the elements, on all ranks, that differ from what the ranks' numbers say must
 * come out.
 *
 * Groups are swept in the order of job.yaml, which is the same on all ranks: groups that share a
 * rank wait for each other, the others run side by side. Each group's own rank 0 prints its table.
 */
#define _POSIX_C_SOURCE 200809L /* clock_gettime */
#include <collrun/workload.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const struct collrun_param params[] = {
    {"ops", COLLRUN_PARAM_STRING, "allreduce", NULL, NULL,
     "all, or names separated by commas: allreduce, reduce, broadcast, allgather, reduce_scatter, "
     "alltoall, gather, scatter, sendrecv, barrier"},
    {"min", COLLRUN_PARAM_SIZE, "8", "1", NULL, "smallest size"},
    {"max", COLLRUN_PARAM_SIZE, "1MiB", "1", NULL, "largest size"},
    {"factor", COLLRUN_PARAM_INT, "2", "2", "1000000", "each size is the last one times this"},
    {"iters", COLLRUN_PARAM_INT, "20", "1", "1000000", "timed calls at each size"},
    {"warmup", COLLRUN_PARAM_INT, "5", "0", "1000000", "calls before those"},
    {"dtype", COLLRUN_PARAM_STRING, "float32", NULL, NULL, "float32, float64, int32 or int64"},
    {"op", COLLRUN_PARAM_STRING, "sum", NULL, NULL, "sum, min or max: what reductions do"},
    {"root", COLLRUN_PARAM_INT, "0", "0", NULL, "the root of rooted operations"},
    {"verify", COLLRUN_PARAM_BOOL, "true", NULL, NULL, "check a result at each size"},
    {0},
};

static const char *const dtype_names[COLLRUN_DTYPE_COUNT] = {
    [COLLRUN_FLOAT32] = "float32",
    [COLLRUN_FLOAT64] = "float64",
    [COLLRUN_INT32] = "int32",
    [COLLRUN_INT64] = "int64",
};
static const char *const op_names[COLLRUN_OP_COUNT] = {
    [COLLRUN_SUM] = "sum",
    [COLLRUN_MIN] = "min",
    [COLLRUN_MAX] = "max",
};

enum traits {
    SENDS_BLOCKS = 1, /* one block for each rank, not one alone */
    RECEIVES_BLOCKS = 2,
    ROOT_SENDS = 4,    /* only the root has input */
    ROOT_RECEIVES = 8, /* only the root has output */
    REDUCES = 16,
    APART = 32,
    IN_PLACE = 64 /* the forms that exist: two buffers, one buffer */
};
static const struct operation {
    const char *name;
    enum collrun_kind kind;
    int traits;
} operations[] = {
    {"allreduce", COLLRUN_ALLREDUCE, REDUCES | APART | IN_PLACE},
    {"reduce", COLLRUN_REDUCE, REDUCES | ROOT_RECEIVES | APART | IN_PLACE},
    {"broadcast", COLLRUN_BROADCAST, ROOT_SENDS | IN_PLACE},
    {"allgather", COLLRUN_ALLGATHER, RECEIVES_BLOCKS | APART | IN_PLACE},
    {"reduce_scatter", COLLRUN_REDUCE_SCATTER, REDUCES | SENDS_BLOCKS | APART | IN_PLACE},
    {"alltoall", COLLRUN_ALLTOALL, SENDS_BLOCKS | RECEIVES_BLOCKS | APART | IN_PLACE},
    {"gather", COLLRUN_GATHER, ROOT_RECEIVES | RECEIVES_BLOCKS | APART | IN_PLACE},
    {"scatter", COLLRUN_SCATTER, ROOT_SENDS | SENDS_BLOCKS | APART | IN_PLACE},
    {"sendrecv", COLLRUN_SEND, APART},
    {"barrier", COLLRUN_BARRIER, APART},
};
#define OPERATIONS (sizeof operations / sizeof *operations)

struct bench {
    struct collrun_ctx *ctx;
    struct collrun_group *group;
    int rank, size, root;
    enum collrun_dtype dtype;
    enum collrun_op op;
    size_t width, min, max, factor; /* bytes of an element, of the sizes; step between those */
    int iters, warmup;
    bool verify;
    char *send, *recv;           /* max bytes each */
    char *host_send, *host_recv; /* the same; what they hold, where the group works on a GPU */
    double *shared;              /* iters of them, where the group works */
    double *us;                  /* of each iteration */
    int64_t wrong;               /* of all tables of this group */
    double busbw_sum;
    int busbw_count;
    uint64_t sizes_done;
};

/* One operation at one size, in one of its forms. */
struct point {
    const struct operation *operation;
    size_t count, bytes; /* of one rank or block, and in all */
    bool in_place;
    double mean_us, p50_us, p99_us;
    int64_t wrong;
};

/* ---- what goes in, what must come out ---- */

static double value(int rank, size_t i)
{
    return rank + (double)(i % 7);
}

static double reduced(const struct bench *b, size_t i)
{
    double n = b->size;
    switch (b->op) {
    case COLLRUN_MIN:
        return value(0, i);
    case COLLRUN_MAX:
        return value(b->size - 1, i);
    default:
        return n * value(0, i) + n * (n - 1) / 2;
    }
}

/* Element i of what this rank must have received. */
static double expected(const struct bench *b, const struct point *p, size_t i)
{
    int block = (int)(i / p->count);
    size_t mine = (size_t)b->rank * p->count, inside = i % p->count;
    switch (p->operation->kind) {
    case COLLRUN_BROADCAST:
        return value(b->root, i);
    case COLLRUN_SCATTER:
        return value(b->root, mine + i);
    case COLLRUN_ALLGATHER:
    case COLLRUN_GATHER:
        return value(block, inside);
    case COLLRUN_ALLTOALL:
        return value(block, mine + inside);
    case COLLRUN_REDUCE_SCATTER:
        return reduced(b, mine + i);
    case COLLRUN_SEND:
        return value((b->rank + b->size - 1) % b->size, i);
    default:
        return reduced(b, i);
    }
}

static void store(const struct bench *b, void *buf, size_t i, double value)
{
    if (b->dtype == COLLRUN_FLOAT32)
        ((float *)buf)[i] = (float)value;
    else if (b->dtype == COLLRUN_FLOAT64)
        ((double *)buf)[i] = value;
    else if (b->dtype == COLLRUN_INT32)
        ((int32_t *)buf)[i] = (int32_t)value;
    else
        ((int64_t *)buf)[i] = (int64_t)value;
}

static double load(const struct bench *b, const void *buf, size_t i)
{
    if (b->dtype == COLLRUN_FLOAT32)
        return ((const float *)buf)[i];
    if (b->dtype == COLLRUN_FLOAT64)
        return ((const double *)buf)[i];
    if (b->dtype == COLLRUN_INT32)
        return ((const int32_t *)buf)[i];
    return (double)((const int64_t *)buf)[i];
}

/* ---- one point ---- */

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* Where input and output of a point lie. In place, a rank's own block is part of all the blocks. */
static void place(const struct bench *b, const struct point *p, bool on_host, char **send,
                  char **recv)
{
    size_t own = (size_t)b->rank * p->count * b->width;
    int blocks = p->operation->traits & (SENDS_BLOCKS | RECEIVES_BLOCKS);
    *recv = on_host ? b->host_recv : b->recv;
    *send = p->in_place ? *recv : on_host ? b->host_send : b->send;
    if (p->in_place && blocks == RECEIVES_BLOCKS)
        *send += own;
    if (p->in_place && blocks == SENDS_BLOCKS)
        *recv += own;
}

/* To where the group works; nothing to do where that is host memory. */
static int upload(const struct bench *b, const struct point *p)
{
    int rc = collrun_copy(b->group, b->send, b->host_send, p->bytes);
    return rc ? rc : collrun_copy(b->group, b->recv, b->host_recv, p->bytes);
}

static void fill(const struct bench *b, const struct point *p)
{
    char *send, *recv;
    place(b, p, true, &send, &recv);
    memset(b->host_recv, 0xff, p->bytes);
    if (p->operation->traits & ROOT_SENDS && b->rank != b->root)
        return;
    size_t n = p->operation->traits & SENDS_BLOCKS ? p->count * (size_t)b->size : p->count;
    for (size_t i = 0; i < n; i++)
        store(b, send, i, value(b->rank, i));
}

static int call(const struct bench *b, const struct point *p)
{
    char *send, *recv;
    place(b, p, false, &send, &recv);
    size_t n = p->count;
    switch (p->operation->kind) {
    case COLLRUN_ALLREDUCE:
        return collrun_allreduce(b->group, send, recv, n, b->dtype, b->op);
    case COLLRUN_REDUCE:
        return collrun_reduce(b->group, send, recv, n, b->dtype, b->op, b->root);
    case COLLRUN_BROADCAST:
        return collrun_broadcast(b->group, recv, n, b->dtype, b->root);
    case COLLRUN_ALLGATHER:
        return collrun_allgather(b->group, send, recv, n, b->dtype);
    case COLLRUN_REDUCE_SCATTER:
        return collrun_reduce_scatter(b->group, send, recv, n, b->dtype, b->op);
    case COLLRUN_ALLTOALL:
        return collrun_alltoall(b->group, send, recv, n, b->dtype);
    case COLLRUN_GATHER:
        return collrun_gather(b->group, send, recv, n, b->dtype, b->root);
    case COLLRUN_SCATTER:
        return collrun_scatter(b->group, send, recv, n, b->dtype, b->root);
    case COLLRUN_SEND:
        return collrun_sendrecv(b->group, send, n, (b->rank + 1) % b->size, recv, n,
                                (b->rank + b->size - 1) % b->size, b->dtype);
    default:
        return collrun_barrier(b->group);
    }
}

/* Of all ranks. */
static int combine(const struct bench *b, void *values, size_t n, enum collrun_dtype dtype,
                   enum collrun_op op)
{
    size_t len = n * collrun_dtype_size(dtype);
    int rc = collrun_copy(b->group, b->shared, values, len);
    if (!rc)
        rc = collrun_allreduce(b->group, b->shared, b->shared, n, dtype, op);
    return rc ? rc : collrun_copy(b->group, values, b->shared, len);
}

/* Counts the wrong elements of all ranks. */
static int verify(const struct bench *b, struct point *p)
{
    char *send, *recv;
    place(b, p, true, &send, &recv);
    fill(b, p);
    int rc = upload(b, p);
    if (!rc)
        rc = call(b, p);
    if (!rc)
        rc = collrun_copy(b->group, b->host_recv, b->recv, p->bytes);
    if (rc)
        return rc;
    size_t n = p->operation->traits & RECEIVES_BLOCKS ? p->count * (size_t)b->size : p->count;
    if (p->operation->traits & ROOT_RECEIVES && b->rank != b->root)
        n = 0;
    for (size_t i = 0; i < n; i++)
        p->wrong += load(b, recv, i) != expected(b, p, i);
    return combine(b, &p->wrong, 1, COLLRUN_INT64, COLLRUN_SUM);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int measure(const struct bench *b, struct point *p)
{
    size_t iters = (size_t)b->iters;
    fill(b, p);
    int rc = upload(b, p);
    for (int i = -b->warmup; !rc && i < b->iters; i++) {
        double start = now_us();
        rc = call(b, p);
        if (rc)
            return rc;
        if (i >= 0)
            b->us[i] = now_us() - start;
    }
    if (!rc)
        rc = combine(b, b->us, iters, COLLRUN_FLOAT64, COLLRUN_MAX);
    if (rc)
        return rc;
    qsort(b->us, iters, sizeof *b->us, by_value);
    for (size_t i = 0; i < iters; i++)
        p->mean_us += b->us[i] / (double)iters;
    p->p50_us = b->us[iters / 2];
    p->p99_us = b->us[iters * 99 / 100];
    return b->verify ? verify(b, p) : 0;
}

/* ---- the table ---- */

/* As nccl-tests writes numbers: as many decimals as there is room for, two at most. */
static const char *fit(char text[16], double value, int width)
{
    for (int decimals = 2; decimals >= 0; decimals--)
        if (snprintf(text, 16, "%.*f", decimals, value) <= width)
            return text;
    snprintf(text, 16, "%.0e", value);
    return text;
}

static double bus_factor(const struct operation *operation, int size)
{
    double n = size;
    if (operation->kind == COLLRUN_ALLREDUCE)
        return 2 * (n - 1) / n;
    return operation->traits & (SENDS_BLOCKS | RECEIVES_BLOCKS) ? (n - 1) / n : 1;
}

static void print_header(const struct bench *b, const struct operation *operation)
{
    printf("# %s in group %s: %d ranks on %s; sizes %zu to %zu, factor %zu; %d calls after %d\n",
           operation->name, collrun_group_name(b->group), b->size, collrun_group_backend(b->group),
           b->min, b->max, b->factor, b->iters, b->warmup);
    printf("# %10s  %12s  %8s  %6s  %6s  %31s  %31s  %16s  %16s\n", "", "", "", "", "",
           "out-of-place           ", "in-place             ", "out-of-place", "in-place  ");
    printf("# %10s  %12s  %8s  %6s  %6s", "size", "count", "type", "redop", "root");
    for (int form = 0; form < 2; form++)
        printf("  %7s  %6s  %6s  %6s", "time", "algbw", "busbw", "#wrong");
    printf("  %7s  %7s  %7s  %7s\n", "p50", "p99", "p50", "p99");
    printf("# %10s  %12s  %8s  %6s  %6s", "(B)", "(elements)", "", "", "");
    for (int form = 0; form < 2; form++)
        printf("  %7s  %6s  %6s  %6s", "(us)", "(GB/s)", "(GB/s)", "");
    printf("  %7s  %7s  %7s  %7s\n", "(us)", "(us)", "(us)", "(us)");
}

/* forms[0]: out of place, forms[1]: in place; a form that does not exist has no time. */
static void print_row(struct bench *b, const struct point forms[2])
{
    const struct point *p = &forms[0];
    int traits = p->operation->traits;
    char t[3][16];
    printf("%12zu  %12zu  %8s  %6s  %6d", p->bytes, p->count, dtype_names[b->dtype],
           traits & REDUCES ? op_names[b->op] : "none",
           traits & (ROOT_SENDS | ROOT_RECEIVES) ? b->root : -1);
    for (p = forms; p < forms + 2; p++) {
        if (p->mean_us <= 0) {
            printf("  %7s  %6s  %6s  %6s", "N/A", "N/A", "N/A", "N/A");
            continue;
        }
        double algbw = (double)p->bytes / p->mean_us / 1e3;
        double busbw = algbw * bus_factor(p->operation, b->size);
        printf("  %7s  %6s  %6s", fit(t[0], p->mean_us, 7), fit(t[1], algbw, 6),
               fit(t[2], busbw, 6));
        if (b->verify)
            printf("  %6lld", (long long)p->wrong);
        else
            printf("  %6s", "N/A");
        b->busbw_sum += busbw;
        b->busbw_count++;
    }
    for (p = forms; p < forms + 2; p++)
        printf("  %7s  %7s", p->mean_us > 0 ? fit(t[0], p->p50_us, 7) : "N/A",
               p->mean_us > 0 ? fit(t[1], p->p99_us, 7) : "N/A");
    printf("\n");
}

/* ---- the sweep ---- */

static int sweep_size(struct bench *b, const struct operation *operation, size_t size)
{
    bool blocks = operation->traits & (SENDS_BLOCKS | RECEIVES_BLOCKS);
    size_t ranks = blocks ? (size_t)b->size : 1, count = size / b->width / ranks;
    if (count == 0 && operation->kind != COLLRUN_BARRIER)
        return 0;
    struct point forms[2] = {{0}, {0}};
    for (int form = 0; form < 2; form++) {
        struct point *p = &forms[form];
        *p = (struct point){.operation = operation,
                            .count = count,
                            .bytes = count * b->width * ranks,
                            .in_place = form == 1};
        if (!(operation->traits & (p->in_place ? IN_PLACE : APART)))
            continue;
        int rc = measure(b, p);
        if (rc)
            return rc;
        b->wrong += p->wrong;
    }
    if (b->rank == 0)
        print_row(b, forms);
    collrun_progress(b->ctx, ++b->sizes_done, 0, operation->name);
    return 0;
}

static int sweep(struct bench *b, const struct operation *operation)
{
    if (operation->kind == COLLRUN_SEND && b->size < 2)
        return 0; /* nobody to send to */
    if (b->rank == 0)
        print_header(b, operation);
    if (operation->kind == COLLRUN_BARRIER)
        return sweep_size(b, operation, 0);
    for (size_t size = b->min; size <= b->max; size *= b->factor) {
        int rc = sweep_size(b, operation, size);
        if (rc)
            return rc;
        if (size > b->max / b->factor)
            break;
    }
    return 0;
}

/* Is `name` an item of a list such as "allreduce,broadcast"? */
static bool listed(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (; *list; list += strspn(list, ", ")) {
        size_t len = strcspn(list, ", ");
        if (len == n && strncmp(list, name, n) == 0)
            return true;
        list += len;
    }
    return false;
}

static int bench_group(struct bench *b, const char *ops)
{
    bool all = listed(ops, "all");
    for (size_t i = 0; i < OPERATIONS; i++) {
        if (!all && !listed(ops, operations[i].name))
            continue;
        int rc = sweep(b, &operations[i]);
        if (rc == COLLRUN_ERR_UNSUPPORTED &&
            all) { /* the same on every rank, before any data moves */
            if (b->rank == 0)
                printf("# %s\n", collrun_error());
        } else if (rc) {
            return rc;
        }
    }
    if (b->rank == 0) {
        printf("# Out of bounds values : %lld %s\n", (long long)b->wrong,
               b->wrong ? "FAILED" : "OK");
        double busbw = b->busbw_count ? b->busbw_sum / b->busbw_count : 0;
        printf("# Avg bus bandwidth    : %g\n#\n", busbw);
        collrun_metric(b->ctx, "busbw_GBps", busbw);
    }
    if (b->wrong)
        return collrun_fail(b->ctx, "group %s: %lld wrong elements", collrun_group_name(b->group),
                            (long long)b->wrong);
    return 0;
}

/* On the GPU, where the group works on one. */
static int take(const struct bench *b, size_t bytes, void **out)
{
    if (collrun_devices(b->group) > 1)
        return collrun_fail(b->ctx, "group %s has %d GPUs in each process; this workload uses one",
                            collrun_group_name(b->group), collrun_devices(b->group));
    return collrun_devices(b->group) ? collrun_alloc_device(b->group, 0, bytes, out)
                                     : collrun_alloc(b->group, bytes, out);
}

static int bench_group_with_buffers(struct bench *b, const char *ops)
{
    void *send = NULL, *recv = NULL, *shared = NULL;
    bool on_gpu = collrun_devices(b->group) > 0;
    size_t iters = (size_t)b->iters;
    int rc = take(b, b->max, &send);
    if (!rc)
        rc = take(b, b->max, &recv);
    if (!rc)
        rc = take(b, (iters > 1 ? iters : 1) * sizeof *b->shared, &shared);
    b->send = send, b->recv = recv, b->shared = shared;
    b->host_send = on_gpu ? malloc(b->max) : send;
    b->host_recv = on_gpu ? malloc(b->max) : recv;
    if (!rc && b->host_send && b->host_recv)
        rc = bench_group(b, ops);
    else if (!rc)
        rc = collrun_fail(b->ctx, "out of memory for 2 x %zu bytes", b->max);
    if (on_gpu) {
        free(b->host_send);
        free(b->host_recv);
    }
    collrun_free(b->group, shared);
    collrun_free(b->group, recv);
    collrun_free(b->group, send);
    return rc;
}

/* Index of `name`, or -1. */
static int find(const char *const *names, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (names[i] && strcmp(names[i], name) == 0)
            return i;
    return -1;
}

static int read_params(struct collrun_ctx *ctx, struct bench *b)
{
    *b = (struct bench){.ctx = ctx,
                        .root = (int)collrun_param_int(ctx, "root"),
                        .min = collrun_param_size(ctx, "min"),
                        .max = collrun_param_size(ctx, "max"),
                        .factor = (size_t)collrun_param_int(ctx, "factor"),
                        .iters = (int)collrun_param_int(ctx, "iters"),
                        .warmup = (int)collrun_param_int(ctx, "warmup"),
                        .verify = collrun_param_bool(ctx, "verify")};
    const char *dtype_name = collrun_param_string(ctx, "dtype");
    const char *op_name = collrun_param_string(ctx, "op");
    int dtype = find(dtype_names, COLLRUN_DTYPE_COUNT, dtype_name);
    int op = find(op_names, COLLRUN_OP_COUNT, op_name);
    if (dtype < 0)
        return collrun_fail(ctx, "dtype: this workload does not know \"%s\"", dtype_name);
    if (op < 0)
        return collrun_fail(ctx, "op: this workload does not know \"%s\"", op_name);
    if (b->min > b->max)
        return collrun_fail(ctx, "min: %zu is more than max, %zu", b->min, b->max);
    b->dtype = (enum collrun_dtype)dtype;
    b->op = (enum collrun_op)op;
    b->width = collrun_dtype_size(b->dtype);
    return 0;
}

/* Every name in `ops` must mean something. */
static int check_ops(struct collrun_ctx *ctx, const char *ops)
{
    char known[256] = "all";
    for (size_t i = 0; i < OPERATIONS; i++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, ", %s", operations[i].name);
    }
    for (const char *item = ops; *item; item += strspn(item, ", ")) {
        char name[32];
        int len = (int)strcspn(item, ", ");
        snprintf(name, sizeof name, "%.*s", len, item);
        if (!listed(known, name))
            return collrun_fail(ctx, "ops: no operation \"%.*s\"; there are %s", len, item, known);
        item += len;
    }
    return 0;
}

static int run(struct collrun_ctx *ctx, void *state)
{
    (void)state;
    struct bench settings;
    const char *ops = collrun_param_string(ctx, "ops");
    int rc = read_params(ctx, &settings);
    if (!rc)
        rc = check_ops(ctx, ops);
    if (rc)
        return rc;
    double *us = calloc((size_t)settings.iters, sizeof *us);
    if (!us)
        return collrun_fail(ctx, "out of memory: %d times", settings.iters);

    struct collrun_group *group;
    for (int i = 0; !rc && (group = collrun_group_at(ctx, i)) != NULL; i++) {
        struct bench b = settings;
        b.group = group;
        b.rank = collrun_rank(group);
        b.size = collrun_size(group);
        b.us = us;
        if (b.root >= b.size)
            rc = collrun_fail(ctx, "root: group %s has no rank %d", collrun_group_name(group),
                              b.root);
        else
            rc = bench_group_with_buffers(&b, ops);
    }
    free(us);
    return rc;
}

COLLRUN_WORKLOAD(.name = "bench",
                 .summary = "sweep collectives over sizes in every group; a table like nccl-tests",
                 .params = params, .run = run);
