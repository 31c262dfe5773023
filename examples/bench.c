/* SPDX-License-Identifier: Apache-2.0
 *
 * Bench: sweeps collectives over message sizes and element types, in every group of the workload,
 * and prints a table like that of nccl-tests, with percentiles added.
 *
 * - time is that of the slowest rank in each iteration: their mean, and their percentiles.
 * - size is the larger of the bytes that a rank sends and receives; count is that of one rank, or
 *   of one block; in v-forms, whose blocks are uneven (bench_values.h), that of an average block.
 * - algbw = size / time; busbw = algbw * factor, which makes it comparable with the hardware for
 *   any number n of ranks: 2 (n - 1) / n for allreduce, (n - 1) / n where each rank has a block,
 *   otherwise 1 (nccl-tests, doc/PERFORMANCE.md). v-forms have the factor of the form with equal
 *   blocks; scan and exscan, which nccl-tests lacks, have 1. GB is 1e9 bytes.
 * - #wrong: wrong elements on all ranks, compared with results that follow from the rank numbers.
 *
 * The results of a group are also a file, bench-GROUP.json of the run directory (bench_rows.h), and
 * can be compared with such a file (bench_saved.h).
 *
 * Where a process drives several GPUs, each of them is a rank in all of this: GPU d of D of process
 * r is rank r * D + d.
 *
 * Groups are swept in the order of job.yaml, which is the same on all ranks: groups that share a
 * rank run one after the other, all others at the same time; with `interference`, each point is
 * measured by one group after the other, alone, and then by all groups at once. Rank 0 of each
 * group prints its table.
 */
#define _POSIX_C_SOURCE 200809L /* clock_gettime */
#include "bench_report.h"

#include <pthread.h>

#define NUMBER(name_, def_, min_, help_)                                                           \
    {                                                                                              \
        .name = name_, .type = COLLRUN_PARAM_INT, .def = def_, .min = min_, .max = "1000000",      \
        .help = help_                                                                              \
    }
static const struct collrun_param params[] = {
    {.name = "ops",
     .type = COLLRUN_PARAM_LIST,
     .item = COLLRUN_PARAM_ENUM,
     .def = "allreduce",
     .help = "operations",
     .choices = "all|allreduce|reduce|broadcast|allgather|reduce_scatter|alltoall|gather|scatter|"
                "sendrecv|barrier|scan|exscan|allgatherv|gatherv|scatterv|reduce_scatterv|"
                "alltoallv"},
    {.name = "sizes",
     .type = COLLRUN_PARAM_LIST,
     .item = COLLRUN_PARAM_SIZE,
     .def = "",
     .min = "1",
     .help = "sizes in the place of min, max and factor"},
    {.name = "min", .type = COLLRUN_PARAM_SIZE, .def = "8", .min = "1", .help = "smallest size"},
    {.name = "max", .type = COLLRUN_PARAM_SIZE, .def = "1MiB", .min = "1", .help = "largest size"},
    NUMBER("factor", "2", "2", "factor between two sizes"),
    NUMBER("iters", "20", "1", "timed calls at each size"),
    NUMBER("warmup", "5", "0", "calls before the timed ones"),
    {.name = "dtype",
     .type = COLLRUN_PARAM_LIST,
     .item = COLLRUN_PARAM_ENUM,
     .def = "float32",
     .help = "element types",
     .choices = "all|int8|uint8|int16|uint16|int32|uint32|int64|uint64|float16|bfloat16|float32|"
                "float64|bool"},
    {.name = "op",
     .type = COLLRUN_PARAM_ENUM,
     .def = "sum",
     .help = "operator of reductions",
     .choices = "sum|prod|min|max|band|bor|bxor|land|lor|lxor"},
    {.name = "root", .type = COLLRUN_PARAM_INT, .def = "0", .min = "0", .help = "root"},
    {.name = "verify",
     .type = COLLRUN_PARAM_BOOL,
     .def = "true",
     .help = "check one result at each size"},
    {.name = "json",
     .type = COLLRUN_PARAM_STRING,
     .def = "",
     .help = "file of the results; FOLDER/ for one per group; default: the run directory"},
    {.name = "csv",
     .type = COLLRUN_PARAM_STRING,
     .def = "",
     .help = "the same as CSV; default: none"},
    {.name = "compare",
     .type = COLLRUN_PARAM_STRING,
     .def = "",
     .help =
         "JSON of an earlier run to compare with; FOLDER/ or a run directory/ for one per group"},
    {.name = "tolerance",
     .type = COLLRUN_PARAM_FLOAT,
     .def = "0.05",
     .min = "0",
     .max = "100",
     .help = "of compare and interference: a change up to this share is none"},
    {.name = "on_slower",
     .type = COLLRUN_PARAM_ENUM,
     .def = "report",
     .help = "of compare: what a slower row does",
     .choices = "report|fail"},
    {.name = "interference",
     .type = COLLRUN_PARAM_STRING,
     .def = "",
     .help = "group of all ranks, for turns: the other groups one by one, then all at once"},
    {0},
};

static const char *const dtype_names[] = {"int8",    "uint8",   "int16",  "uint16",  "int32",
                                          "uint32",  "int64",   "uint64", "float16", "bfloat16",
                                          "float32", "float64", "bool"}; /* by enum collrun_dtype */
/* In the order of the choices. */
static const enum collrun_op operators[] = {COLLRUN_SUM,  COLLRUN_PROD, COLLRUN_MIN,  COLLRUN_MAX,
                                            COLLRUN_BAND, COLLRUN_BOR,  COLLRUN_BXOR, COLLRUN_LAND,
                                            COLLRUN_LOR,  COLLRUN_LXOR};

/* ---- the table ---- */

static void print_header(const struct bench *b, const struct operation *operation)
{
    printf("# %s in group %s: %d ranks on %s; sizes ", operation->name,
           collrun_group_name(b->group), b->size, collrun_group_backend(b->group));
    if (b->is_listed)
        for (int i = 0; i < b->nsizes; i++)
            printf("%s%zu", i ? ", " : "", b->sizes[i]);
    else
        printf("%zu to %zu, factor %zu", b->min, b->max, b->factor);
    printf("; %d calls after %d\n", b->iters, b->warmup);
    table_put_header(stdout);
}

static void set_bandwidth(struct bench *b, const struct point *p)
{
    struct form *f = p->form;
    f->alg_bw = (double)p->bytes / f->time / 1e3;
    f->bus_bw = f->alg_bw * point_bus_factor(p->operation, b->size);
    f->wrong = b->verify ? p->wrong : -1;
    b->wrong += p->wrong;
    b->busbw_sum += f->bus_bw;
    b->busbw_count++;
}

/* Called by rank 0. */
static int print_row(struct bench *b, const struct row *row)
{
    if (!b->takes_turns)
        table_put_row(stdout, row);
    return rows_add(&b->rows, row) ? collrun_fail(b->ctx, "out of memory for the results") : 0;
}

/* ---- the sweep ---- */

/* For how long a group works before and after it measures together with others, and in how many
 * calls at most: groups do not begin and end at one moment. All ranks know the times of the calls
 * apart, and make equally many. */
enum { AROUND_US = 5000, AROUND_CALLS = 30 };

/* Measures the forms that the operation has; count: of a rank or block. */
static int measure_row(struct bench *b, const struct operation *operation, size_t count,
                       struct row *row)
{
    struct point p = {.operation = operation, .count = count};
    const struct values v = point_values(b, &p);
    bool blocks = operation->traits & (SENDS_BLOCKS | RECEIVES_BLOCKS);
    bool gathers = operation->kind == COLLRUN_ALLGATHERV || operation->kind == COLLRUN_GATHERV;
    size_t elements = gathers  ? values_recv_offset(&v, b->size, 0)
                      : blocks ? values_send_offset(&v, 0, b->size)
                               : count;
    bool together = strcmp(b->phase, "apart") != 0;
    p.bytes = elements * b->width;
    *row = (struct row){.operation = operation->name,
                        .phase = b->phase,
                        .type = operation->kind == COLLRUN_BARRIER ? "none" : dtype_names[b->dtype],
                        .redop = operation->traits & REDUCES ? collrun_param_string(b->ctx, "op")
                                                             : "none",
                        .size = p.bytes,
                        .count = count,
                        .root = collrun_kind_has_root(operation->kind) ? b->root : -1};
    for (int form = 0; form < 2; form++) {
        p.in_place = form == 1;
        p.form = &row->forms[form];
        p.wrong = 0;
        if (!(operation->traits & (p.in_place ? IN_PLACE : OUT_OF_PLACE)))
            continue;
        double around = (double)AROUND_US / (b->apart_us[form] + 1);
        p.around = !together ? 0 : around < (double)AROUND_CALLS ? (int)around : AROUND_CALLS;
        int rc = point_measure(b, &p);
        if (rc)
            return rc;
        set_bandwidth(b, &p);
        b->apart_us[form] = p.form->time;
    }
    return 0;
}

/* A group of one rank has no messages to measure. */
static bool has_peers(const struct bench *b, const struct operation *operation)
{
    return operation->kind != COLLRUN_SEND || b->size > 1;
}

static int sweep_size(struct bench *b, const struct operation *operation, size_t size)
{
    bool blocks = operation->traits & (SENDS_BLOCKS | RECEIVES_BLOCKS);
    size_t count = size / b->width / (blocks ? (size_t)b->size : 1);
    struct row row;
    if ((count == 0 && operation->kind != COLLRUN_BARRIER) || !has_peers(b, operation))
        return 0;
    int rc = measure_row(b, operation, count, &row);
    if (!rc && b->first == 0)
        rc = print_row(b, &row);
    collrun_progress(b->ctx, ++b->sizes_done, 0, operation->name);
    return rc;
}

static void set_dtype(struct bench *b, enum collrun_dtype dtype)
{
    b->dtype = dtype;
    b->width = collrun_dtype_size(dtype);
}

static int sweep(struct bench *b, const struct operation *operation)
{
    int rc = 0;
    if (b->first == 0 && has_peers(b, operation))
        print_header(b, operation);
    if (operation->kind == COLLRUN_BARRIER)
        return sweep_size(b, operation, 0);
    for (int dtype = 0; !rc && dtype < COLLRUN_DTYPE_COUNT; dtype++) {
        set_dtype(b, (enum collrun_dtype)dtype);
        for (int i = 0; !rc && b->dtypes[dtype] && i < b->nsizes; i++)
            rc = sweep_size(b, operation, b->sizes[i]);
    }
    return rc;
}

static int sweep_all(struct bench *b)
{
    for (size_t i = 0; i < OPERATIONS; i++) {
        if (!b->all && !b->chosen[i])
            continue;
        int rc = sweep(b, &operations[i]);
        if (rc == COLLRUN_ERR_UNSUPPORTED && b->all) {
            if (b->first == 0) /* every rank fails alike, before any data moves */
                printf("# %s\n", collrun_error());
        } else if (rc) {
            return rc;
        }
    }
    return 0;
}

/* After the last row. */
static int bench_finish(struct bench *b)
{
    int rc = b->first == 0 ? report_finish(b) : 0;
    if (!rc && b->wrong)
        return collrun_fail(b->ctx, "group %s: %lld wrong elements", collrun_group_name(b->group),
                            (long long)b->wrong);
    return rc;
}

/* Allocates in the memory that the group uses: that of a GPU, or of the host. */
static int allocate(const struct bench *b, int d, size_t bytes, void *out)
{
    void *made = NULL;
    int rc = collrun_devices(b->group) ? collrun_alloc_device(b->group, d, bytes, &made)
                                       : collrun_alloc(b->group, bytes, &made);
    memcpy(out, &made, sizeof made);
    return rc;
}

static int allocate_buffers(struct bench *b, int d)
{
    struct buffers *own = &b->buffers[d];
    int rc = allocate(b, d, b->max, &own->send);
    if (!rc)
        rc = allocate(b, d, b->max, &own->recv);
    if (!rc)
        rc = allocate(b, d, (size_t)b->iters * sizeof *own->shared, &own->shared);
    if (rc)
        return rc;
    own->host_send = own->send;
    own->host_recv = own->recv;
    if (!collrun_devices(b->group))
        return 0;
    own->copies = calloc(2, b->max);
    if (!own->copies)
        return collrun_fail(b->ctx, "out of memory for 2 x %zu bytes", b->max);
    own->host_send = own->copies;
    own->host_recv = own->copies + b->max;
    return 0;
}

static void free_buffers(const struct bench *b, int d)
{
    const struct buffers *own = &b->buffers[d];
    free(own->copies);
    collrun_free(b->group, own->shared);
    collrun_free(b->group, own->recv);
    collrun_free(b->group, own->send);
}

/* bench_close is due even if it fails. */
static int bench_open(struct bench *b, const struct bench *settings, struct collrun_group *group)
{
    *b = *settings;
    b->group = group;
    b->ndevices = collrun_devices(group) ? collrun_devices(group) : 1;
    b->first = collrun_rank(group) * b->ndevices;
    b->size = collrun_size(group) * b->ndevices;
    if (b->ndevices > MAX_DEVICES)
        return b->ndevices = 0, collrun_fail(b->ctx, "group %s has more than %d GPUs per process",
                                             collrun_group_name(group), MAX_DEVICES);
    if (b->root >= b->size)
        return collrun_fail(b->ctx, "root: group %s has no rank %d", collrun_group_name(group),
                            b->root);
    size_t iters = (size_t)b->iters;
    b->counts = calloc((size_t)b->ndevices * (size_t)b->size, sizeof *b->counts);
    b->us = calloc(3 * iters, sizeof *b->us);
    if (!b->counts || !b->us)
        return collrun_fail(b->ctx, "out of memory for %d times", b->iters);
    b->zeros = b->us + iters;
    b->room = b->us + 2 * iters;
    int rc = report_open_saved(b);
    for (int d = 0; !rc && d < b->ndevices; d++)
        rc = allocate_buffers(b, d);
    return rc;
}

static void bench_close(struct bench *b)
{
    for (int d = 0; d < b->ndevices; d++)
        free_buffers(b, d);
    free(b->rows.row);
    free(b->us);
    free(b->counts);
    saved_close(&b->saved);
}

/* The first choice is all of them. */
static void read_dtypes(struct collrun_ctx *ctx, bool *dtypes)
{
    for (int i = 0; i < collrun_param_count(ctx, "dtype"); i++) {
        int choice = collrun_param_enum_at(ctx, "dtype", i);
        for (int dtype = 0; dtype < COLLRUN_DTYPE_COUNT; dtype++)
            dtypes[dtype] = dtypes[dtype] || choice == 0 || choice == dtype + 1;
    }
}

/* Owned by the caller. False: out of memory. */
static bool read_sizes(struct collrun_ctx *ctx, struct bench *b)
{
    int n = collrun_param_count(ctx, "sizes");
    b->is_listed = n > 0;
    b->sizes = calloc((size_t)n + 64, sizeof *b->sizes);
    for (; b->sizes && b->nsizes < n; b->nsizes++)
        b->sizes[b->nsizes] = collrun_param_size_at(ctx, "sizes", b->nsizes);
    for (size_t size = b->min; b->sizes && !n && size <= b->max; size *= b->factor) {
        b->sizes[b->nsizes++] = size;
        if (size > b->max / b->factor)
            break;
    }
    for (int i = 0; i < n && b->sizes; i++)
        b->max = i == 0 || b->sizes[i] > b->max ? b->sizes[i] : b->max;
    return b->sizes != NULL;
}

static void read_params(struct collrun_ctx *ctx, struct bench *b)
{
    *b = (struct bench){.ctx = ctx,
                        .phase = "apart",
                        .root = (int)collrun_param_int(ctx, "root"),
                        .min = collrun_param_size(ctx, "min"),
                        .max = collrun_param_size(ctx, "max"),
                        .factor = (size_t)collrun_param_int(ctx, "factor"),
                        .iters = (int)collrun_param_int(ctx, "iters"),
                        .warmup = (int)collrun_param_int(ctx, "warmup"),
                        .takes_turns = collrun_param_string(ctx, "interference")[0] != 0,
                        .verify = collrun_param_bool(ctx, "verify"),
                        .op = operators[collrun_param_enum(ctx, "op")]};
    read_dtypes(ctx, b->dtypes);
    while (!b->dtypes[b->dtype]) /* of barriers: any */
        b->dtype++;
    b->width = collrun_dtype_size(b->dtype);
    for (int i = 0; i < collrun_param_count(ctx, "ops"); i++) {
        int choice = collrun_param_enum_at(ctx, "ops", i);
        if (choice)
            b->chosen[choice - 1] = true;
        else
            b->all = true;
    }
}

static int check(struct collrun_ctx *ctx)
{
    unsigned long long min = collrun_param_size(ctx, "min"), max = collrun_param_size(ctx, "max");
    if (min > max)
        return collrun_refuse(ctx, "min", "%llu is larger than max, %llu", min, max);
    if (!collrun_param_count(ctx, "ops"))
        return collrun_refuse(ctx, "ops", "the list is empty");
    if (!collrun_param_count(ctx, "dtype"))
        return collrun_refuse(ctx, "dtype", "the list is empty");
    bool dtypes[COLLRUN_DTYPE_COUNT] = {false};
    read_dtypes(ctx, dtypes);
    for (int dtype = 0; dtype < COLLRUN_DTYPE_COUNT; dtype++)
        if (dtypes[dtype] && values_is_float((enum collrun_dtype)dtype) &&
            operators[collrun_param_enum(ctx, "op")] > COLLRUN_AVG)
            return collrun_refuse(ctx, "op", "%s is for integers and bool, and dtype has %s",
                                  collrun_param_string(ctx, "op"), dtype_names[dtype]);
    return 0;
}

/* ---- interference ---- */

enum { TURNS_GROUPS = 8, TURNS_NAME = 256 };

/* The turns that the groups take. Every rank of `all` has the same list of groups. */
struct turns {
    struct collrun_group *all;
    struct bench mine[TURNS_GROUPS]; /* the groups of this rank */
    int nmine, n;                    /* n: all groups */
    struct bench **of;               /* the bench of each group; NULL: this rank is no member */
};

static int turns_find(struct turns *t, const char *name, const char *names)
{
    for (int i = 0; i < t->n; i++)
        if (strcmp(names + (size_t)i * TURNS_NAME, name) == 0)
            return i;
    return -1;
}

/* The groups of all ranks, in the order of the ranks. */
static int turns_agree(struct turns *t, struct collrun_ctx *ctx)
{
    enum { LEN = TURNS_GROUPS * TURNS_NAME };
    size_t ranks = (size_t)collrun_size(t->all);
    char own[LEN] = {0}, *each = calloc(ranks + 1, LEN), *names = calloc(ranks + 1, LEN);
    t->of = calloc(ranks * TURNS_GROUPS + 1, sizeof *t->of);
    for (int i = 0; i < t->nmine; i++)
        snprintf(own + (size_t)i * TURNS_NAME, TURNS_NAME, "%s",
                 collrun_group_name(t->mine[i].group));
    int rc = each && names && t->of ? collrun_allgather(t->all, own, each, LEN, COLLRUN_UINT8)
                                    : collrun_fail(ctx, "out of memory for the groups");
    for (size_t i = 0; !rc && i < ranks * TURNS_GROUPS; i++) {
        const char *name = each + i * TURNS_NAME;
        if (name[0] && turns_find(t, name, names) < 0)
            memcpy(names + (size_t)t->n++ * TURNS_NAME, name, TURNS_NAME);
    }
    for (int i = 0; !rc && i < t->nmine; i++)
        t->of[turns_find(t, collrun_group_name(t->mine[i].group), names)] = &t->mine[i];
    free(each);
    free(names);
    return rc;
}

struct turn { /* of one group, in a thread */
    pthread_t thread;
    pthread_mutex_t *gate; /* locked until all ranks are ready */
    struct bench *bench;
    const struct operation *operation;
    size_t size;
    int rc;
};

static void *turn_main(void *arg)
{
    struct turn *turn = arg;
    pthread_mutex_lock(turn->gate);
    pthread_mutex_unlock(turn->gate);
    turn->rc = sweep_size(turn->bench, turn->operation, turn->size);
    if (turn->rc < 0) /* the message belongs to this thread */
        turn->rc = collrun_fail(turn->bench->ctx, "%s", collrun_error());
    return NULL;
}

/* All groups of this rank at once, each in a thread. */
static int turns_together(struct turns *t, const struct operation *operation, size_t size)
{
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    struct turn turns[TURNS_GROUPS];
    int rc = 0, n = 0;
    pthread_mutex_lock(&gate);
    for (; !rc && n < t->nmine; n += !rc) {
        struct bench *b = &t->mine[n];
        b->phase = "together";
        turns[n] = (struct turn){.gate = &gate, .bench = b, .operation = operation, .size = size};
        if (pthread_create(&turns[n].thread, NULL, turn_main, &turns[n]) != 0)
            rc = collrun_fail(b->ctx, "cannot create a thread");
    }
    if (!rc)
        rc = collrun_barrier(t->all);
    pthread_mutex_unlock(&gate);
    for (int i = 0; i < n; i++) {
        pthread_join(turns[i].thread, NULL);
        rc = rc ? rc : turns[i].rc;
    }
    return rc;
}

/* One operation at one size: each group alone, then all of them. */
static int turns_point(struct turns *t, const struct operation *operation, size_t size)
{
    int rc = 0;
    for (int i = 0; !rc && i < t->n; i++) {
        rc = collrun_barrier(t->all);
        if (rc || !t->of[i])
            continue;
        t->of[i]->phase = "apart";
        rc = sweep_size(t->of[i], operation, size);
    }
    return rc ? rc : turns_together(t, operation, size);
}

static int turns_operation(struct turns *t, const struct bench *settings,
                           const struct operation *operation)
{
    int rc = 0;
    if (operation->kind == COLLRUN_BARRIER)
        return turns_point(t, operation, 0);
    for (int dtype = 0; !rc && dtype < COLLRUN_DTYPE_COUNT; dtype++) {
        for (int i = 0; i < t->nmine; i++)
            set_dtype(&t->mine[i], (enum collrun_dtype)dtype);
        for (int i = 0; !rc && settings->dtypes[dtype] && i < settings->nsizes; i++)
            rc = turns_point(t, operation, settings->sizes[i]);
    }
    return rc;
}

static int turns_open(struct turns *t, const struct bench *settings)
{
    struct collrun_ctx *ctx = settings->ctx;
    struct collrun_group *group;
    int rc = collrun_group_get(ctx, collrun_param_string(ctx, "interference"), &t->all);
    for (int i = 0; !rc && (group = collrun_group_at(ctx, i)) != NULL; i++) {
        if (group == t->all)
            continue;
        if (t->nmine == TURNS_GROUPS)
            return collrun_fail(ctx, "interference: a rank is in more than %d groups",
                                TURNS_GROUPS);
        rc = bench_open(&t->mine[t->nmine++], settings, group);
    }
    return rc ? rc : turns_agree(t, ctx);
}

static int run_turns(const struct bench *settings, int *slower)
{
    struct turns *t = calloc(1, sizeof *t);
    if (!t)
        return collrun_fail(settings->ctx, "out of memory for the groups");
    int rc = turns_open(t, settings);
    for (size_t i = 0; !rc && i < OPERATIONS; i++)
        if (settings->all || settings->chosen[i])
            rc = turns_operation(t, settings, &operations[i]);
    for (int i = 0; i < t->nmine; i++) {
        if (!rc)
            rc = bench_finish(&t->mine[i]);
        *slower += t->mine[i].slower;
        bench_close(&t->mine[i]);
    }
    free(t->of);
    free(t);
    return rc;
}

/* One group after the other. */
static int run_groups(const struct bench *settings, int *slower)
{
    struct collrun_group *group;
    int rc = 0;
    for (int i = 0; !rc && (group = collrun_group_at(settings->ctx, i)) != NULL; i++) {
        struct bench b;
        rc = bench_open(&b, settings, group);
        if (!rc)
            rc = sweep_all(&b);
        if (!rc)
            rc = bench_finish(&b);
        *slower += b.slower;
        bench_close(&b);
    }
    return rc;
}

static int run(struct collrun_ctx *ctx, void *state)
{
    (void)state;
    struct bench settings;
    int slower = 0;
    read_params(ctx, &settings);
    if (!read_sizes(ctx, &settings))
        return collrun_fail(ctx, "out of memory for the sizes");
    int rc = collrun_param_string(ctx, "interference")[0] ? run_turns(&settings, &slower)
                                                          : run_groups(&settings, &slower);
    free(settings.sizes);
    if (!rc && slower && collrun_param_enum(ctx, "on_slower"))
        return collrun_fail(ctx, "%d results are slower than those of %s", slower,
                            collrun_param_string(ctx, "compare"));
    return rc;
}

COLLRUN_WORKLOAD(.name = "bench",
                 .summary =
                     "sweeps collectives over sizes in every group; prints a table like nccl-tests",
                 .params = params, .run = run, .check = check);
