/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/elements.h"

#include <collrun/types.h>

/* A trace has no counts of v-forms: each rank counts as with op->count elements. */
static uint64_t trace_elements(const struct trace_op *op, uint32_t size, unsigned char extent,
                               bool used)
{
    if (op->kind == COLLRUN_BARRIER)
        return 0;
    if (extent != COLLRUN_ONE_BLOCK && extent != COLLRUN_BLOCK_EACH)
        return op->count;
    return !used ? 0 : extent == COLLRUN_BLOCK_EACH ? op->count * size : op->count;
}

uint64_t trace_elements_in(const struct trace_op *op, uint32_t size, bool root)
{
    const enum collrun_kind kind = (enum collrun_kind)op->kind;
    return trace_elements(op, size, collrun_kind_row(kind).send, collrun_kind_sends(kind, root));
}

uint64_t trace_elements_out(const struct trace_op *op, uint32_t size, bool root)
{
    const enum collrun_kind kind = (enum collrun_kind)op->kind;
    return trace_elements(op, size, collrun_kind_row(kind).recv,
                          collrun_kind_receives(kind, root, false));
}
