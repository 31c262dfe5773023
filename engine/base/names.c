/* SPDX-License-Identifier: Apache-2.0
 *
 * Tables from enum to word. Their lengths are tied to the counts of types.h, so that a new value
 * without a name does not compile.
 */
#include "base/names.h"

static const char *const kinds[] = {
    "barrier",         "allreduce",      "reduce",   "broadcast",  "allgather", "gather",
    "scatter",         "reduce_scatter", "alltoall", "allgatherv", "gatherv",   "scatterv",
    "reduce_scatterv", "alltoallv",      "send",     "recv",       "recv_any"};
static const char *const dtypes[] = {"int8",    "uint8",   "int16",  "uint16",  "int32",
                                     "uint32",  "int64",   "uint64", "float16", "bfloat16",
                                     "float32", "float64", "bool"};
static const char *const ops[] = {"sum", "prod", "min",  "max", "avg", "band",
                                  "bor", "bxor", "land", "lor", "lxor"};

_Static_assert(sizeof kinds / sizeof *kinds == COLLRUN_KIND_COUNT, "a kind has no name");
_Static_assert(sizeof dtypes / sizeof *dtypes == COLLRUN_DTYPE_COUNT, "a dtype has no name");
_Static_assert(sizeof ops / sizeof *ops == COLLRUN_OP_COUNT, "an operator has no name");

const char *kind_name(enum collrun_kind kind)
{
    return (unsigned)kind < COLLRUN_KIND_COUNT ? kinds[kind] : NULL;
}

const char *dtype_name(enum collrun_dtype dtype)
{
    return (unsigned)dtype < COLLRUN_DTYPE_COUNT ? dtypes[dtype] : NULL;
}

const char *op_name(enum collrun_op op)
{
    return (unsigned)op < COLLRUN_OP_COUNT ? ops[op] : NULL;
}
