/* SPDX-License-Identifier: Apache-2.0
 *
 * Signatures: made, compared, described, hashed.
 */
#include "common.h"

#include <cstdarg>
#include <cstdio>
#include <time.h>

namespace collrun_gloo
{

std::string format(const char *format, ...)
{
    char text[768];
    va_list ap;
    va_start(ap, format);
    std::vsnprintf(text, sizeof(text), format, ap);
    va_end(ap);
    return text;
}

uint64_t now_ns()
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<uint64_t>(t.tv_sec) * 1000000000u + static_cast<uint64_t>(t.tv_nsec);
}

bool is_v_form(unsigned kind)
{
    return kind == COLLRUN_ALLGATHERV || kind == COLLRUN_GATHERV || kind == COLLRUN_SCATTERV ||
           kind == COLLRUN_REDUCE_SCATTERV || kind == COLLRUN_ALLTOALLV;
}

bool is_reduction(unsigned kind)
{
    return kind == COLLRUN_ALLREDUCE || kind == COLLRUN_REDUCE || kind == COLLRUN_REDUCE_SCATTER ||
           kind == COLLRUN_REDUCE_SCATTERV;
}

bool is_half(enum collrun_dtype dtype)
{
    return dtype == COLLRUN_FLOAT16 || dtype == COLLRUN_BFLOAT16;
}

static bool has_root(unsigned kind)
{
    return kind == COLLRUN_REDUCE || kind == COLLRUN_BROADCAST || kind == COLLRUN_GATHER ||
           kind == COLLRUN_SCATTER || kind == COLLRUN_GATHERV || kind == COLLRUN_SCATTERV;
}

signature signature_of(const collrun_call &call, uint64_t sequence)
{
    signature s = {};
    s.magic = signature_magic;
    s.kind = static_cast<uint8_t>(call.kind);
    if (call.kind != COLLRUN_BARRIER)
        s.dtype = static_cast<uint8_t>(call.dtype);
    if (is_reduction(call.kind))
        s.op = static_cast<uint8_t>(call.op);
    s.root = has_root(call.kind) ? call.root : no_peer;
    s.sequence = sequence;
    if (!is_v_form(call.kind) && call.kind != COLLRUN_BARRIER)
        s.count = call.count;
    return s;
}

signature at_step(const signature &call, unsigned step, size_t bytes)
{
    signature s = call;
    s.step = static_cast<uint8_t>(step);
    s.bytes = bytes;
    return s;
}

bool same_call(const signature &a, const signature &b)
{
    return a.kind == b.kind && a.dtype == b.dtype && a.op == b.op && a.root == b.root &&
           a.tag == b.tag && a.count == b.count;
}

static const char *kind_name(unsigned kind)
{
    static const char *const names[COLLRUN_KIND_COUNT] = {
        "barrier",         "allreduce",      "reduce",   "broadcast",  "allgather", "gather",
        "scatter",         "reduce_scatter", "alltoall", "allgatherv", "gatherv",   "scatterv",
        "reduce_scatterv", "alltoallv",      "send",     "recv",       "recv_any"};
    return kind < COLLRUN_KIND_COUNT ? names[kind] : "unknown";
}

static const char *dtype_name(unsigned dtype)
{
    static const char *const names[COLLRUN_DTYPE_COUNT] = {
        "int8",   "uint8",   "int16",    "uint16",  "int32",   "uint32", "int64",
        "uint64", "float16", "bfloat16", "float32", "float64", "bool"};
    return dtype < COLLRUN_DTYPE_COUNT ? names[dtype] : "unknown";
}

static const char *op_name(unsigned op)
{
    static const char *const names[COLLRUN_OP_COUNT] = {"sum", "prod", "min",  "max", "avg", "band",
                                                        "bor", "bxor", "land", "lor", "lxor"};
    return op < COLLRUN_OP_COUNT ? names[op] : "unknown";
}

std::string describe(const signature &s)
{
    std::string text = kind_name(s.kind);
    if (s.kind == COLLRUN_BARRIER)
        return text;
    if (is_v_form(s.kind))
        text += format("(%s", dtype_name(s.dtype));
    else
        text += format("(%llu x %s", static_cast<unsigned long long>(s.count), dtype_name(s.dtype));
    if (is_reduction(s.kind))
        text += format(", %s", op_name(s.op));
    if (s.root != no_peer)
        text += format(", root %d", s.root);
    if (s.kind >= COLLRUN_SEND && s.tag != 0)
        text += format(", tag %u", s.tag);
    return text + ")";
}

/* The finaliser of MurmurHash3: every bit of x reaches every bit of the result. */
static uint64_t mix(uint64_t x)
{
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdull;
    x ^= x >> 33;
    x *= 0xc4ceb9fe1a85ec53ull;
    return x ^ (x >> 33);
}

uint64_t slot_of(const signature &s)
{
    const uint64_t what = static_cast<uint64_t>(s.kind) | static_cast<uint64_t>(s.dtype) << 8 |
                          static_cast<uint64_t>(s.op) << 16 | static_cast<uint64_t>(s.step) << 24 |
                          static_cast<uint64_t>(static_cast<uint32_t>(s.root)) << 32;
    uint64_t h = mix(what + 0x9e3779b97f4a7c15ull);
    h = mix(h ^ s.tag);
    h = mix(h ^ s.sequence);
    h = mix(h ^ s.count);
    h = mix(h ^ s.bytes);
    return h | 1ull << 63;
}

} // namespace collrun_gloo
