/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of kinds, types and operators.
 */
#include "explain.h"

#include <stdio.h>

static const char *kind_name(unsigned kind)
{
    static const char *const names[COLLRUN_KIND_COUNT] = {
        "barrier",         "allreduce",      "reduce",   "broadcast",  "allgather", "gather",
        "scatter",         "reduce_scatter", "alltoall", "allgatherv", "gatherv",   "scatterv",
        "reduce_scatterv", "alltoallv",      "send",     "recv",       "recv_any",
    };
    return kind < COLLRUN_KIND_COUNT ? names[kind] : "?";
}

const char *dtype_name(unsigned dtype)
{
    static const char *const names[COLLRUN_DTYPE_COUNT] = {
        "int8",   "uint8",   "int16",    "uint16",  "int32",   "uint32", "int64",
        "uint64", "float16", "bfloat16", "float32", "float64", "bool",
    };
    return dtype < COLLRUN_DTYPE_COUNT ? names[dtype] : "?";
}

static const char *op_name(unsigned op)
{
    static const char *const names[COLLRUN_OP_COUNT] = {
        "sum", "prod", "min", "max", "avg", "band", "bor", "bxor", "land", "lor", "lxor",
    };
    return op < COLLRUN_OP_COUNT ? names[op] : "?";
}

void explain_signature(const struct signature *s, char *out, size_t len)
{
    const unsigned kind = s->what & 0xff;
    const unsigned dtype = s->what >> 8 & 0xff;
    char count[32] = "";
    char op[16] = "";
    char root[24] = "";
    if (!kind_is_uneven((enum collrun_kind)kind))
        snprintf(count, sizeof(count), "%llu x ", (unsigned long long)s->count);
    if (kind_reduces((enum collrun_kind)kind))
        snprintf(op, sizeof(op), ", %s", op_name(s->what >> 16 & 0xff));
    if (kind_has_root((enum collrun_kind)kind))
        snprintf(root, sizeof(root), ", root %u", (unsigned)(s->what >> 32));
    if (kind == COLLRUN_BARRIER)
        snprintf(out, len, "%s()", kind_name(kind));
    else
        snprintf(out, len, "%s(%s%s%s%s)", kind_name(kind), count, dtype_name(dtype), op, root);
}
