/* SPDX-License-Identifier: Apache-2.0
 *
 * Packing and unpacking; see signature.h.
 */
#include "coll/signature.h"

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
