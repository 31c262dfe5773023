/* SPDX-License-Identifier: Apache-2.0
 *
 * What the ranks send in bench.c, and the results that follow from it: small whole numbers, which
 * every type and every operator of the table below represents exactly, in any order of the ranks.
 *
 * - Element i of a rank depends on i % VALUES_PERIOD alone, so that a result is known from a few
 *   values. The period is prime: a block that arrives at the place of another one is detected.
 * - Integers wrap. Logical operators get 0 and 1. Half precision gets 0 and 1 in reductions:
 * bfloat16 is exact up to 256.
 * - The blocks of v-forms are uneven: that of rank k is proportional to k + 1.
 */
#ifndef BENCH_VALUES_H
#define BENCH_VALUES_H

#include <collrun/workload.h>

#include <string.h>

enum { VALUES_PERIOD = 7 };

struct values { /* of one operation */
    enum collrun_kind kind;
    enum collrun_op op;
    enum collrun_dtype dtype;
    int root, size; /* size: the number of ranks */
    size_t count;   /* elements of one rank or block; of v-forms: at most on average */
};

/* Elements that a rank receives, and where they come from: from one sender's buffer, from index
 * `offset` on; or, if sender is -1, combined from ranks 0 to ranks - 1. */
struct values_block {
    int sender, ranks;
    size_t offset, count;
};

/* Elements of the block from rank `from` to rank `to` of a v-form; the sum over `to` of alltoallv,
 * and that over the owners of all other forms, is at most size * count. */
static inline size_t values_block_count(const struct values *v, int from, int to)
{
    if (!collrun_kind_is_vector(v->kind))
        return v->count;
    bool gathers = v->kind == COLLRUN_ALLGATHERV || v->kind == COLLRUN_GATHERV;
    int k = gathers ? from : to;
    if (v->kind == COLLRUN_ALLTOALLV)
        k = (from + to) % v->size; /* symmetric, as the form in place needs */
    return 2 * ((size_t)k + 1) * v->count / ((size_t)v->size + 1);
}

/* Where that block is in the sender's buffer, if it sends one to each rank. */
static inline size_t values_send_offset(const struct values *v, int from, int to)
{
    size_t offset = 0;
    for (int k = 0; k < to; k++)
        offset += values_block_count(v, from, k);
    return offset;
}

/* Where it is in the receiver's buffer, if it receives one from each rank. */
static inline size_t values_recv_offset(const struct values *v, int from, int to)
{
    size_t offset = 0;
    for (int k = 0; k < from; k++)
        offset += values_block_count(v, k, to);
    return offset;
}

static inline bool values_is_half(enum collrun_dtype dtype)
{
    return dtype == COLLRUN_FLOAT16 || dtype == COLLRUN_BFLOAT16;
}

static inline bool values_is_float(enum collrun_dtype dtype)
{
    return values_is_half(dtype) || dtype == COLLRUN_FLOAT32 || dtype == COLLRUN_FLOAT64;
}

/* Element i of the rank's input. */
static inline int64_t values_input(const struct values *v, int rank, size_t i)
{
    int phase = (int)(i % VALUES_PERIOD);
    bool logical = collrun_kind_reduces(v->kind) && v->op >= COLLRUN_LAND;
    if (v->dtype == COLLRUN_BOOL || logical)
        return (rank + phase) % 3 == 0;
    if (collrun_kind_reduces(v->kind) && v->op == COLLRUN_PROD)
        return 1 + (rank < 100 && rank % VALUES_PERIOD == phase);
    if (collrun_kind_reduces(v->kind) && values_is_half(v->dtype))
        return (rank + phase) % 2;
    return rank % 100 + phase;
}

static inline int64_t values_combine(const struct values *v, int64_t a, int64_t b)
{
    bool is_bool = v->dtype == COLLRUN_BOOL;
    switch (v->op) {
    case COLLRUN_PROD:
        return is_bool ? a && b : a * b;
    case COLLRUN_MIN:
        return a < b ? a : b;
    case COLLRUN_MAX:
        return a > b ? a : b;
    case COLLRUN_BAND:
        return a & b;
    case COLLRUN_BOR:
        return a | b;
    case COLLRUN_BXOR:
        return a ^ b;
    case COLLRUN_LAND:
        return a && b;
    case COLLRUN_LOR:
        return a || b;
    case COLLRUN_LXOR:
        return !a != !b;
    default:
        return is_bool ? a || b : a + b;
    }
}

/* Block `b` of what the rank receives. */
static inline struct values_block values_received(const struct values *v, int rank, int b)
{
    struct values_block block = {.sender = -1, .ranks = v->size, .count = v->count};
    switch (v->kind) {
    case COLLRUN_BROADCAST:
        block.sender = v->root;
        break;
    case COLLRUN_SCATTER:
    case COLLRUN_SCATTERV:
        block.sender = v->root;
        block.offset = values_send_offset(v, v->root, rank);
        block.count = values_block_count(v, v->root, rank);
        break;
    case COLLRUN_REDUCE_SCATTER:
    case COLLRUN_REDUCE_SCATTERV:
        block.offset = values_send_offset(v, 0, rank);
        block.count = values_block_count(v, 0, rank);
        break;
    case COLLRUN_ALLTOALL:
    case COLLRUN_ALLTOALLV:
        block.offset = values_send_offset(v, b, rank);
        /* fall through */
    case COLLRUN_ALLGATHER:
    case COLLRUN_ALLGATHERV:
    case COLLRUN_GATHER:
    case COLLRUN_GATHERV:
        block.sender = b;
        block.count = values_block_count(v, b, rank);
        break;
    case COLLRUN_SCAN:
        block.ranks = rank + 1;
        break;
    case COLLRUN_EXSCAN:
        block.ranks = rank;
        break;
    case COLLRUN_SEND:
        block.sender = (rank + v->size - 1) % v->size;
        break;
    default:
        break;
    }
    return block;
}

/* Element i of a block. */
static inline int64_t values_expected(const struct values *v, const struct values_block *block,
                                      size_t i)
{
    if (block->sender >= 0)
        return values_input(v, block->sender, block->offset + i);
    int64_t all = values_input(v, 0, block->offset + i);
    for (int rank = 1; rank < block->ranks; rank++)
        all = values_combine(v, all, values_input(v, rank, block->offset + i));
    return all;
}

/* The upper half of the bits of a float is bfloat16; whole numbers up to 256 are exact in it. */
static inline uint16_t values_bfloat16(int64_t value)
{
    float f = (float)value;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return (uint16_t)(bits >> 16);
}

/* Whole numbers up to 2048, and powers of 2 up to 32768. */
static inline uint16_t values_float16(int64_t value)
{
    float f = (float)value;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if (!value)
        return 0;
    return (uint16_t)(((bits >> 23) - 127 + 15) << 10 | (bits >> 13 & 0x3ff));
}

/* Writes one element, of at most 8 bytes. */
static inline void values_store(enum collrun_dtype dtype, int64_t value, void *element)
{
    uint16_t half = dtype == COLLRUN_FLOAT16 ? values_float16(value) : values_bfloat16(value);
    float f = (float)value;
    double d = (double)value;
    const void *from = &value; /* little-endian: integers are cut */
    if (values_is_half(dtype))
        from = &half;
    else if (dtype == COLLRUN_FLOAT32)
        from = &f;
    else if (dtype == COLLRUN_FLOAT64)
        from = &d;
    memcpy(element, from, collrun_dtype_size(dtype));
}

#endif
