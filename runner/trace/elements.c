/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/elements.h"

#include <collrun/types.h>

uint64_t trace_elements_in(const struct trace_op *op, uint32_t size, bool root)
{
    switch ((enum collrun_kind)op->kind) {
    case COLLRUN_BARRIER:
        return 0;
    case COLLRUN_SCATTER:
        return root ? op->count * size : 0;
    case COLLRUN_REDUCE_SCATTER:
    case COLLRUN_ALLTOALL:
        return op->count * size;
    default:
        return op->count;
    }
}

uint64_t trace_elements_out(const struct trace_op *op, uint32_t size, bool root)
{
    switch ((enum collrun_kind)op->kind) {
    case COLLRUN_BARRIER:
        return 0;
    case COLLRUN_REDUCE:
        return root ? op->count : 0;
    case COLLRUN_GATHER:
        return root ? op->count * size : 0;
    case COLLRUN_ALLGATHER:
    case COLLRUN_ALLTOALL:
        return op->count * size;
    default:
        return op->count;
    }
}
