/* SPDX-License-Identifier: Apache-2.0
 *
 * See arith.h. float16 is IEEE 754 binary16, bfloat16 the upper half of a binary32; both round to
 * nearest, ties to even.
 */
#include "coll/arith.h"

#include <string.h>

static bool arith_is_half(enum collrun_dtype dtype)
{
    return dtype == COLLRUN_FLOAT16 || dtype == COLLRUN_BFLOAT16;
}

/* MIN and MAX do not round. */
static bool arith_rounds(enum collrun_op op)
{
    return op == COLLRUN_SUM || op == COLLRUN_PROD || op == COLLRUN_AVG;
}

struct arith arith_of(const struct coll *c, bool staged)
{
    struct arith a = {.services = c->services,
                      .dtype = c->call->dtype,
                      .user = c->call->dtype,
                      .op = c->call->op,
                      .nranks = c->nranks,
                      .elem = c->elem,
                      .user_elem = c->elem};
    a.wide = staged && arith_is_half(a.user) && arith_rounds(a.op);
    if (a.wide) {
        a.dtype = COLLRUN_FLOAT32;
        a.elem = sizeof(float);
    }
    return a;
}

/* ---- half precision and float32, as their bits ---- */

static uint32_t arith_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static float arith_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint32_t arith_widen_float16(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    const uint32_t rest = half & 0x7fffu;
    if (rest >= 0x7c00u) /* infinity, NaN */
        return sign | 0x7f800000u | (rest & 0x3ffu) << 13;
    if (rest >= 0x400u)
        return sign | ((rest << 13) + (112u << 23));
    return sign | arith_bits((float)rest * 0x1p-24f); /* zero, or denormal: exact */
}

static uint16_t arith_narrow_float16(uint32_t bits)
{
    const uint32_t sign = bits >> 16 & 0x8000u;
    const uint32_t rest = bits & 0x7fffffffu;
    if (rest > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u | (rest >> 13 & 0x1ffu));
    if (rest >= 0x477ff000u) /* rounds to 65536 or more */
        return (uint16_t)(sign | 0x7c00u);
    if (rest < 0x38800000u) { /* below 2^-14: 0.5 has one unit of the last place, 2^-24 */
        const float scaled = arith_float(rest) + 0.5f;
        return (uint16_t)(sign | (arith_bits(scaled) - 0x3f000000u));
    }
    const uint32_t odd = rest >> 13 & 1u;
    return (uint16_t)(sign | ((rest - (112u << 23) + 0xfffu + odd) >> 13));
}

static uint16_t arith_narrow_bfloat16(uint32_t bits)
{
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

static void arith_widen(void *dst, const void *src, size_t count, enum collrun_dtype dtype)
{
    for (size_t i = 0; i < count; i++) {
        uint16_t half;
        memcpy(&half, (const char *)src + 2 * i, sizeof half);
        const uint32_t bits =
            dtype == COLLRUN_FLOAT16 ? arith_widen_float16(half) : (uint32_t)half << 16;
        memcpy((char *)dst + 4 * i, &bits, sizeof bits);
    }
}

static void arith_narrow(void *dst, const void *src, size_t count, enum collrun_dtype dtype)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, (const char *)src + 4 * i, sizeof bits);
        const uint16_t half =
            dtype == COLLRUN_FLOAT16 ? arith_narrow_float16(bits) : arith_narrow_bfloat16(bits);
        memcpy((char *)dst + 2 * i, &half, sizeof half);
    }
}

/* ---- reductions ---- */

const void *arith_load(const struct arith *a, void *room, const void *src, size_t count)
{
    if (!a->wide)
        return src;
    arith_widen(room, src, count, a->user);
    return room;
}

void arith_combine(const struct arith *a, void *dst, const void *const *srcs, uint32_t nsrcs,
                   size_t count)
{
    if (count > 0)
        a->services->reduce(dst, srcs, nsrcs, count, a->dtype, a->op, 0);
}

void arith_store(const struct arith *a, void *dst, void *partial, size_t count)
{
    const void *const srcs[1] = {partial};
    if (count == 0)
        return;
    if (a->op == COLLRUN_AVG || a->nranks == 1) /* logical operators make 0 and 1 of one operand */
        a->services->reduce(a->wide ? partial : dst, srcs, 1, count, a->dtype, a->op, a->nranks);
    else if (!a->wide)
        coll_copy(dst, partial, count * a->elem);
    if (a->wide)
        arith_narrow(dst, partial, count, a->user);
}

void arith_finish(const struct arith *a, void *dst, const void *const *srcs, uint32_t nsrcs,
                  size_t count)
{
    void *room = a->wide ? (void *)(uintptr_t)srcs[0] : dst;
    if (count == 0)
        return;
    a->services->reduce(room, srcs, nsrcs, count, a->dtype, a->op,
                        a->op == COLLRUN_AVG ? a->nranks : 0);
    if (a->wide)
        arith_narrow(dst, room, count, a->user);
}

int arith_reduce_local(struct coll *c, const struct arith *a, const void *send, void *recv,
                       size_t count)
{
    struct collrun_call call = COLLRUN_CALL(COLLRUN_REDUCE);
    call.send = send;
    call.recv = recv;
    call.count = count;
    call.dtype = a->dtype;
    call.op = a->op == COLLRUN_AVG ? COLLRUN_SUM : a->op; /* partial */
    return coll_run_local(c, &call);
}
