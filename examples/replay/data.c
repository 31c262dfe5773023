/* SPDX-License-Identifier: Apache-2.0
 *
 * Sizes and values of buffers; see data.h. Values repeat after a few elements, so blocks are filled
 * and compared by memcpy and memcmp. They are small whole numbers, which every type has.
 */
#include "data.h"

#include <string.h>

enum { DATA_PERIOD = 7, DATA_ELEMENT_MAX = 8 };

struct data_pattern {
    size_t period; /* elements */
    int64_t value[DATA_PERIOD];
};

static size_t data_sum(const size_t *counts, int n)
{
    size_t sum = 0;
    for (int i = 0; i < n; i++)
        sum += counts[i];
    return sum;
}

static bool data_is_root(const struct data_call *d)
{
    return !collrun_kind_has_root(d->call->kind) || d->call->root == d->rank;
}

size_t data_send_bytes(const struct data_call *d)
{
    const struct collrun_call *c = d->call;
    size_t width = collrun_dtype_size(c->dtype), n = (size_t)d->size;
    switch (c->kind) {
    case COLLRUN_BARRIER:
    case COLLRUN_BROADCAST:
    case COLLRUN_RECV:
        return 0;
    case COLLRUN_SCATTER:
        return data_is_root(d) ? n * c->count * width : 0;
    case COLLRUN_SCATTERV:
        return data_is_root(d) ? data_sum(c->sendcounts, d->size) * width : 0;
    case COLLRUN_REDUCE_SCATTER:
    case COLLRUN_ALLTOALL:
        return n * c->count * width;
    case COLLRUN_REDUCE_SCATTERV:
        return data_sum(c->recvcounts, d->size) * width;
    case COLLRUN_ALLTOALLV:
        return data_sum(c->sendcounts, d->size) * width;
    default:
        return c->count * width;
    }
}

size_t data_recv_bytes(const struct data_call *d)
{
    const struct collrun_call *c = d->call;
    size_t width = collrun_dtype_size(c->dtype), n = (size_t)d->size;
    switch (c->kind) {
    case COLLRUN_BARRIER:
    case COLLRUN_SEND:
        return 0;
    case COLLRUN_REDUCE:
        return data_is_root(d) ? c->count * width : 0;
    case COLLRUN_GATHER:
        return data_is_root(d) ? n * c->count * width : 0;
    case COLLRUN_GATHERV:
        return data_is_root(d) ? data_sum(c->recvcounts, d->size) * width : 0;
    case COLLRUN_ALLGATHER:
    case COLLRUN_ALLTOALL:
        return n * c->count * width;
    case COLLRUN_SCATTERV:
        return c->recvcount * width;
    case COLLRUN_REDUCE_SCATTERV:
        return c->recvcounts[d->rank] * width;
    case COLLRUN_ALLGATHERV:
    case COLLRUN_ALLTOALLV:
        return data_sum(c->recvcounts, d->size) * width;
    default:
        return c->count * width;
    }
}

/* ---- values ---- */

/* The pattern of a block from one rank to another; one for all receivers has `to` 0. */
static struct data_pattern data_block(int from, int to)
{
    struct data_pattern p = {.period = DATA_PERIOD};
    for (int j = 0; j < DATA_PERIOD; j++)
        p.value[j] = (3 * from + 5 * to + j) % DATA_PERIOD;
    return p;
}

/* The pattern of the sum over `ranks` ranks from element `offset` on: each has (rank + index) % 2.
 */
static struct data_pattern data_reduced(int ranks, size_t offset)
{
    struct data_pattern p = {.period = 2};
    for (size_t j = 0; j < 2; j++)
        p.value[j] = (offset + j) % 2 ? (ranks + 1) / 2 : ranks / 2;
    return p;
}

/* Half precision, of whole numbers up to 256: the exponent is moved to the other bias. */
static uint16_t data_half(enum collrun_dtype dtype, int64_t value)
{
    float f = (float)value;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if (dtype == COLLRUN_BFLOAT16)
        return (uint16_t)(bits >> 16);
    return (uint16_t)(value ? ((bits >> 23) - 127 + 15) << 10 | (bits >> 13 & 0x3ff) : 0);
}

static void data_store_one(enum collrun_dtype dtype, int64_t value, void *element)
{
    uint16_t half = data_half(dtype, value);
    float f = (float)value;
    double d = (double)value;
    bool is_set = value != 0;
    const void *from = &value; /* little-endian: integers are cut */
    if (dtype == COLLRUN_FLOAT16 || dtype == COLLRUN_BFLOAT16)
        from = &half;
    else if (dtype == COLLRUN_FLOAT32)
        from = &f;
    else if (dtype == COLLRUN_FLOAT64)
        from = &d;
    else if (dtype == COLLRUN_BOOL)
        from = &is_set;
    memcpy(element, from, collrun_dtype_size(dtype));
}

static void data_store(const struct data_pattern *p, enum collrun_dtype dtype, char *out)
{
    for (size_t j = 0; j < p->period; j++)
        data_store_one(dtype, p->value[j], out + j * collrun_dtype_size(dtype));
}

/* Writes `count` elements, and returns where they end. */
static char *data_write(const struct data_pattern *p, enum collrun_dtype dtype, char *to,
                        size_t count)
{
    char first[DATA_PERIOD * DATA_ELEMENT_MAX];
    size_t width = collrun_dtype_size(dtype), bytes = count * width, done = p->period * width;
    data_store(p, dtype, first);
    memcpy(to, first, done < bytes ? done : bytes);
    for (size_t n; done < bytes; done += n) {
        n = bytes - done < done ? bytes - done : done;
        memcpy(to + done, to, n);
    }
    return to + bytes;
}

static bool data_is(const struct data_pattern *p, enum collrun_dtype dtype, const char *at,
                    size_t count)
{
    char first[DATA_PERIOD * DATA_ELEMENT_MAX];
    size_t width = collrun_dtype_size(dtype), bytes = count * width, head = p->period * width;
    data_store(p, dtype, first);
    if (bytes <= head)
        return memcmp(at, first, bytes) == 0;
    return memcmp(at, first, head) == 0 && memcmp(at, at + head, bytes - head) == 0;
}

/* Elements that are sent to, or received from, rank i. */
static size_t data_send_count(const struct collrun_call *c, int i)
{
    return collrun_kind_is_vector(c->kind) ? c->sendcounts[i] : c->count;
}

static size_t data_recv_count(const struct collrun_call *c, int i)
{
    return collrun_kind_is_vector(c->kind) ? c->recvcounts[i] : c->count;
}

void data_fill(const struct data_call *d, void *send, void *recv)
{
    const struct collrun_call *c = d->call;
    size_t width = collrun_dtype_size(c->dtype);
    size_t elements = data_send_bytes(d) / width;
    struct data_pattern p = data_block(d->rank, 0);
    bool blocks = c->kind == COLLRUN_SCATTER || c->kind == COLLRUN_SCATTERV ||
                  c->kind == COLLRUN_ALLTOALL || c->kind == COLLRUN_ALLTOALLV;
    if (recv)
        memset(recv, 0xab, data_recv_bytes(d));
    if (c->kind == COLLRUN_BROADCAST && recv && data_is_root(d))
        data_write(&p, c->dtype, recv, c->count);
    if (!send || !elements)
        return;
    if (collrun_kind_reduces(c->kind)) {
        p = (struct data_pattern){.period = 2, .value = {d->rank % 2, (d->rank + 1) % 2}};
    } else if (c->kind == COLLRUN_SEND) {
        p = data_block(d->rank, c->peer);
    } else if (blocks) {
        char *to = send;
        for (int i = 0; i < d->size; i++) {
            p = data_block(d->rank, i);
            to = data_write(&p, c->dtype, to, data_send_count(c, i));
        }
        return;
    }
    data_write(&p, c->dtype, send, elements);
}

static bool data_blocks_right(const struct data_call *d, const char *at)
{
    const struct collrun_call *c = d->call;
    bool all = c->kind == COLLRUN_ALLTOALL || c->kind == COLLRUN_ALLTOALLV;
    for (int i = 0; i < d->size; i++) {
        struct data_pattern p = data_block(i, all ? d->rank : 0);
        if (!data_is(&p, c->dtype, at, data_recv_count(c, i)))
            return false;
        at += data_recv_count(c, i) * collrun_dtype_size(c->dtype);
    }
    return true;
}

static struct data_pattern data_sums(const struct data_call *d)
{
    const struct collrun_call *c = d->call;
    int ranks = d->size;
    size_t offset = 0;
    if (c->kind == COLLRUN_REDUCE_SCATTER)
        offset = c->count * (size_t)d->rank;
    else if (c->kind == COLLRUN_REDUCE_SCATTERV)
        offset = data_sum(c->recvcounts, d->rank);
    else if (c->kind == COLLRUN_SCAN || c->kind == COLLRUN_EXSCAN)
        ranks = d->rank + (c->kind == COLLRUN_SCAN);
    return data_reduced(ranks, offset);
}

bool data_right(const struct data_call *d, const void *recv, size_t received)
{
    const struct collrun_call *c = d->call;
    size_t elements = data_recv_bytes(d) / collrun_dtype_size(c->dtype);
    struct data_pattern p;
    if (!recv || !elements || (c->kind == COLLRUN_EXSCAN && d->rank == 0))
        return true; /* rank 0 of an exscan receives nothing */
    if (collrun_kind_reduces(c->kind)) {
        p = data_sums(d);
    } else if (c->kind == COLLRUN_RECV) {
        p = data_block(c->peer, d->rank);
        elements = received;
    } else if (c->kind == COLLRUN_BROADCAST) {
        p = data_block(c->root, 0);
    } else if (c->kind == COLLRUN_SCATTER || c->kind == COLLRUN_SCATTERV) {
        p = data_block(c->root, d->rank);
    } else {
        return data_blocks_right(d, recv);
    }
    return data_is(&p, c->dtype, recv, elements);
}
