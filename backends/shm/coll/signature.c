/* SPDX-License-Identifier: Apache-2.0
 *
 * Packing and unpacking; see signature.h.
 */
#include "coll/signature.h"

struct signature signature_of(const struct collrun_call *call)
{
    struct signature s = {.what = (uint64_t)call->kind};
    if (call->kind == COLLRUN_BARRIER)
        return s;
    s.what |= (uint64_t)call->dtype << 8;
    if (collrun_kind_reduces(call->kind) || call->kind == COLLRUN_ALLGATHER)
        s.what |= (uint64_t)call->op << 16;
    if (collrun_kind_has_root(call->kind))
        s.what |= (uint64_t)(uint32_t)call->root << 32;
    if (!collrun_kind_is_vector(call->kind))
        s.count = call->count;
    return s;
}

static bool signature_begins_another(struct signature s)
{
    return (s.what & 0xff) == COLLRUN_ALLGATHER && s.what >> 16 & 0xff;
}

bool signature_agree(struct signature a, struct signature b)
{
    return a.count == b.count &&
           (a.what == b.what || (signature_begins_another(a) && signature_begins_another(b)));
}

struct collrun_call signature_call(struct signature s)
{
    struct collrun_call call = COLLRUN_CALL((enum collrun_kind)(s.what & 0xff));
    call.dtype = (enum collrun_dtype)(s.what >> 8 & 0xff);
    call.op = (enum collrun_op)(s.what >> 16 & 0xff);
    call.root = (int)(s.what >> 32);
    call.count = s.count;
    return call;
}
