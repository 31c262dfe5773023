/* SPDX-License-Identifier: Apache-2.0
 *
 * See ahead.h.
 */
#include "ahead.h"

/* What an operation counts at least, for its packet; and in a vector form, where ranks know
 * different counts: less than such an operation may have. Most have less, and to wait for a grant
 * takes as long as a few small ones. */
enum { AHEAD_LEAST = 128, AHEAD_VECTOR = 4096 };

bool net_ahead_add(struct net_ahead *ahead, const struct collrun_call *call, size_t elem)
{
    const bool vector = collrun_kind_is_vector(call->kind);
    if (!vector && !collrun_kind_has_root(call->kind)) { /* each rank waits for all others */
        ahead->bytes = 0;
        return false;
    }
    const size_t bytes = vector                                 ? AHEAD_VECTOR
                         : call->count > NET_AHEAD_BYTES / elem ? NET_AHEAD_BYTES
                                                                : call->count * elem;
    if (bytes == 0) /* there is nothing to wait for a grant with */
        return false;
    ahead->bytes += bytes < AHEAD_LEAST ? AHEAD_LEAST : bytes;
    if (ahead->bytes < NET_AHEAD_BYTES)
        return false;
    ahead->bytes = 0;
    return true;
}
