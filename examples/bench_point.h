/* SPDX-License-Identifier: Apache-2.0
 *
 * One measurement of bench.c: an operation at one size, with its buffers, its calls, its times and
 * the check of its result. All devices of a process take part.
 */
#ifndef BENCH_POINT_H
#define BENCH_POINT_H

#include "bench_saved.h"
#include "bench_values.h"

#include <time.h>

enum traits {
    SENDS_BLOCKS = 1, /* one block per rank */
    RECEIVES_BLOCKS = 2,
    ROOT_SENDS = 4,    /* only the root has input */
    ROOT_RECEIVES = 8, /* only the root has output */
    REDUCES = 16,
    OUT_OF_PLACE = 32, /* the operation exists with two buffers */
    IN_PLACE = 64      /* the operation exists with one buffer */
};
static const struct operation {
    const char *name;
    enum collrun_kind kind;
    int traits;
} operations[] = {
    /* in the order of the choices after "all" */
    {"allreduce", COLLRUN_ALLREDUCE, REDUCES | OUT_OF_PLACE | IN_PLACE},
    {"reduce", COLLRUN_REDUCE, REDUCES | ROOT_RECEIVES | OUT_OF_PLACE | IN_PLACE},
    {"broadcast", COLLRUN_BROADCAST, ROOT_SENDS | IN_PLACE},
    {"allgather", COLLRUN_ALLGATHER, RECEIVES_BLOCKS | OUT_OF_PLACE | IN_PLACE},
    {"reduce_scatter", COLLRUN_REDUCE_SCATTER, REDUCES | SENDS_BLOCKS | OUT_OF_PLACE | IN_PLACE},
    {"alltoall", COLLRUN_ALLTOALL, SENDS_BLOCKS | RECEIVES_BLOCKS | OUT_OF_PLACE | IN_PLACE},
    {"gather", COLLRUN_GATHER, ROOT_RECEIVES | RECEIVES_BLOCKS | OUT_OF_PLACE | IN_PLACE},
    {"scatter", COLLRUN_SCATTER, ROOT_SENDS | SENDS_BLOCKS | OUT_OF_PLACE | IN_PLACE},
    {"sendrecv", COLLRUN_SEND, OUT_OF_PLACE},
    {"barrier", COLLRUN_BARRIER, OUT_OF_PLACE},
    {"scan", COLLRUN_SCAN, REDUCES | OUT_OF_PLACE | IN_PLACE},
    {"exscan", COLLRUN_EXSCAN, REDUCES | OUT_OF_PLACE | IN_PLACE},
    {"allgatherv", COLLRUN_ALLGATHERV, RECEIVES_BLOCKS | OUT_OF_PLACE | IN_PLACE},
    {"gatherv", COLLRUN_GATHERV, ROOT_RECEIVES | RECEIVES_BLOCKS | OUT_OF_PLACE | IN_PLACE},
    {"scatterv", COLLRUN_SCATTERV, ROOT_SENDS | SENDS_BLOCKS | OUT_OF_PLACE | IN_PLACE},
    {"reduce_scatterv", COLLRUN_REDUCE_SCATTERV, REDUCES | SENDS_BLOCKS | OUT_OF_PLACE | IN_PLACE},
    {"alltoallv", COLLRUN_ALLTOALLV, SENDS_BLOCKS | RECEIVES_BLOCKS | OUT_OF_PLACE | IN_PLACE},
};
#define OPERATIONS (sizeof operations / sizeof *operations)

enum { MAX_DEVICES = 64 };

struct buffers {                 /* of one rank; max bytes each */
    char *send, *recv;           /* in the memory that the group uses */
    char *copies;                /* host copies of both if the group works on GPUs; else NULL */
    char *host_send, *host_recv; /* the two parts of copies, or else send and recv */
    double *shared;              /* iters values, in the memory that the group uses */
};

struct bench {
    struct collrun_ctx *ctx;
    struct collrun_group *group;
    int first, size, root;    /* first: the rank of this process's first device */
    int ndevices;             /* ranks of this process */
    enum collrun_dtype dtype; /* that is measured now */
    bool dtypes[COLLRUN_DTYPE_COUNT];
    enum collrun_op op;
    size_t width;            /* bytes of an element */
    size_t min, max, factor; /* sizes in bytes, and the factor between two */
    size_t *sizes;           /* all of them; shared by the groups of this rank */
    int nsizes;
    bool is_listed; /* the sizes: min, max and factor do not count */
    bool all, chosen[OPERATIONS];
    int iters, warmup;
    bool verify;
    struct buffers buffers[MAX_DEVICES];
    double *us, *zeros, *room; /* time of each iteration; as many zeros; as many for statistics */
    size_t *counts;            /* of v-forms: those of all blocks, for each device */
    const char *phase;         /* of the rows */
    bool takes_turns;          /* rows are printed at the end */
    double apart_us[2];        /* with turns: the mean times of the last point, apart */
    int64_t wrong;             /* in all tables of this group */
    double busbw_sum;
    int busbw_count, slower; /* slower: results, than those of `saved` */
    uint64_t sizes_done;
    struct rows rows;   /* of rank 0 of the group */
    struct saved saved; /* the results to compare with */
};

/* One operation at one size, in place or out of place. */
struct point {
    const struct operation *operation;
    size_t count, bytes; /* elements of one rank or block; bytes in all */
    bool in_place;
    int around;        /* untimed calls before and after the timed ones, while other groups work */
    struct form *form; /* the result */
    int64_t wrong;
};

static inline int point_rank(const struct bench *b, int device)
{
    return b->first + device;
}

static inline struct values point_values(const struct bench *b, const struct point *p)
{
    return (struct values){.kind = p->operation->kind,
                           .op = b->op,
                           .dtype = b->dtype,
                           .root = b->root,
                           .size = b->size,
                           .count = p->count};
}

static inline double point_now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* The buffers of a point. In place, the block of this rank is one of all the blocks. */
static inline void point_choose_buffers(const struct bench *b, const struct point *p, int d,
                                        bool on_host, char **send, char **recv)
{
    const struct buffers *own_buffers = &b->buffers[d];
    const struct values v = point_values(b, p);
    int rank = point_rank(b, d);
    int blocks = p->operation->traits & (SENDS_BLOCKS | RECEIVES_BLOCKS);
    *recv = on_host ? own_buffers->host_recv : own_buffers->recv;
    *send = p->in_place ? *recv : on_host ? own_buffers->host_send : own_buffers->send;
    if (p->in_place && blocks == RECEIVES_BLOCKS)
        *send += values_recv_offset(&v, rank, rank) * b->width;
    if (p->in_place && blocks == SENDS_BLOCKS)
        *recv += values_send_offset(&v, rank, rank) * b->width;
}

/* Writes the inputs, and copies them to the memory that the group uses. */
static inline int point_fill(const struct bench *b, const struct point *p, int d)
{
    const struct buffers *own = &b->buffers[d];
    const struct values v = point_values(b, p);
    char *send, *recv;
    point_choose_buffers(b, p, d, true, &send, &recv);
    memset(own->host_recv, 0xff, p->bytes);
    int rank = point_rank(b, d);
    size_t n = p->operation->traits & SENDS_BLOCKS ? values_send_offset(&v, rank, b->size)
                                                   : values_block_count(&v, rank, rank);
    if (p->operation->traits & ROOT_SENDS && rank != b->root)
        n = 0;
    char elements[VALUES_PERIOD][8];
    for (size_t i = 0; i < VALUES_PERIOD; i++)
        values_store(b->dtype, values_input(&v, rank, i), elements[i]);
    for (size_t i = 0; i < n; i++)
        memcpy(send + i * b->width, elements[i % VALUES_PERIOD], b->width);
    int rc = collrun_copy(b->group, own->send, own->host_send, p->bytes);
    return rc ? rc : collrun_copy(b->group, own->recv, own->host_recv, p->bytes);
}

static inline int point_fill_all(const struct bench *b, const struct point *p)
{
    int rc = 0;
    for (int d = 0; !rc && d < b->ndevices; d++)
        rc = point_fill(b, p, d);
    return rc;
}

/* The counts of the call of a v-form, from and to all ranks. */
static inline void point_describe_counts(const struct bench *b, const struct point *p, int d,
                                         struct collrun_call *c)
{
    const struct values v = point_values(b, p);
    int rank = point_rank(b, d);
    size_t *counts = b->counts + (size_t)d * (size_t)b->size;
    for (int k = 0; k < b->size; k++)
        counts[k] = p->operation->traits & RECEIVES_BLOCKS ? values_block_count(&v, k, rank)
                                                           : values_block_count(&v, rank, k);
    c->count = c->recvcount = counts[rank];
    c->sendcounts = c->recvcounts = counts;
}

/* Describes the call on device `d`. A message goes to the next rank, and comes from the one before.
 */
static inline struct collrun_call point_describe(const struct bench *b, const struct point *p,
                                                 int d)
{
    struct collrun_call c = COLLRUN_CALL(p->operation->kind);
    char *send, *recv;
    point_choose_buffers(b, p, d, false, &send, &recv);
    c.send = send;
    c.recv = recv;
    c.count = p->count;
    c.dtype = b->dtype;
    c.op = b->op;
    c.device = d;
    int other = p->operation->kind == COLLRUN_SEND ? (point_rank(b, d) + 1) % b->size : b->root;
    c.root = c.peer = other / b->ndevices;
    c.peer_device = other % b->ndevices;
    if (collrun_kind_is_vector(c.kind))
        point_describe_counts(b, p, d, &c);
    return c;
}

/* One operation: with several devices per process, one request with a call for each. */
static inline int point_call(const struct bench *b, const struct point *p)
{
    struct collrun_call calls[2 * MAX_DEVICES];
    int n = 0;
    if (p->operation->kind == COLLRUN_BARRIER)
        return collrun_barrier(b->group);
    for (int d = 0; d < b->ndevices; d++) {
        calls[n++] = point_describe(b, p, d);
        if (p->operation->kind != COLLRUN_SEND)
            continue;
        int before = (point_rank(b, d) + b->size - 1) % b->size;
        calls[n] = calls[n - 1];
        calls[n].kind = COLLRUN_RECV;
        calls[n].peer = before / b->ndevices;
        calls[n++].peer_device = before % b->ndevices;
    }
    return collrun_run(b->group, calls, n);
}

/* Reduces values of all processes, in place. They are those of the first device; the others have
 * the same values or zeros, which change no maximum and no sum. */
static inline int point_combine(const struct bench *b, void *values, size_t n,
                                enum collrun_dtype dtype, enum collrun_op op)
{
    struct collrun_call calls[MAX_DEVICES];
    size_t len = n * collrun_dtype_size(dtype);
    int rc = 0;
    for (int d = 0; !rc && d < b->ndevices; d++) {
        struct collrun_call c = COLLRUN_CALL(COLLRUN_ALLREDUCE);
        c.send = c.recv = b->buffers[d].shared;
        c.count = n;
        c.dtype = dtype;
        c.op = op;
        c.device = d;
        calls[d] = c;
        rc = collrun_copy(b->group, b->buffers[d].shared, d ? b->zeros : values, len);
    }
    if (!rc)
        rc = collrun_run(b->group, calls, b->ndevices);
    return rc ? rc : collrun_copy(b->group, values, b->buffers[0].shared, len);
}

static inline int point_verify_rank(const struct bench *b, struct point *p, int d)
{
    const struct buffers *own = &b->buffers[d];
    const struct values v = point_values(b, p);
    int traits = p->operation->traits, rank = point_rank(b, d);
    char *send, *recv;
    point_choose_buffers(b, p, d, true, &send, &recv);
    int rc = collrun_copy(b->group, own->host_recv, own->recv, p->bytes);
    if (rc)
        return rc;
    int blocks = traits & RECEIVES_BLOCKS ? b->size : 1;
    if ((traits & ROOT_RECEIVES && rank != b->root) ||
        (p->operation->kind == COLLRUN_EXSCAN && rank == 0))
        blocks = 0;
    for (int k = 0; k < blocks; k++) {
        const struct values_block block = values_received(&v, rank, k);
        char wanted[VALUES_PERIOD][8];
        for (size_t i = 0; i < VALUES_PERIOD; i++)
            values_store(b->dtype, values_expected(&v, &block, i), wanted[i]);
        for (size_t i = 0; i < block.count; i++, recv += b->width)
            p->wrong += memcmp(recv, wanted[i % VALUES_PERIOD], b->width) != 0;
    }
    return 0;
}

/* Runs one call and counts the wrong elements of all ranks. */
static inline int point_verify(const struct bench *b, struct point *p)
{
    int rc = point_fill_all(b, p);
    if (!rc)
        rc = point_call(b, p);
    for (int d = 0; !rc && d < b->ndevices; d++)
        rc = point_verify_rank(b, p, d);
    return rc ? rc : point_combine(b, &p->wrong, 1, COLLRUN_INT64, COLLRUN_SUM);
}

static inline int point_measure(const struct bench *b, struct point *p)
{
    size_t iters = (size_t)b->iters;
    int rc = point_fill_all(b, p);
    for (int i = -b->warmup - p->around; !rc && i < b->iters + p->around; i++) {
        double start = point_now_us();
        rc = point_call(b, p);
        if (rc)
            return rc;
        if (i >= 0 && i < b->iters)
            b->us[i] = point_now_us() - start;
    }
    if (!rc)
        rc = point_combine(b, b->us, iters, COLLRUN_FLOAT64, COLLRUN_MAX);
    if (rc)
        return rc;
    form_set_times(p->form, b->us, iters, b->room);
    return b->verify ? point_verify(b, p) : 0;
}

/* busbw = algbw * factor. */
static inline double point_bus_factor(const struct operation *operation, int size)
{
    double n = size;
    if (operation->kind == COLLRUN_ALLREDUCE)
        return 2 * (n - 1) / n;
    return operation->traits & (SENDS_BLOCKS | RECEIVES_BLOCKS) ? (n - 1) / n : 1;
}

#endif
