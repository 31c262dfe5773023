/* SPDX-License-Identifier: Apache-2.0
 *
 * The signature of a collective call: what must be the same on all ranks, packed into two words
 * that travel in the first step record of every call.
 */
#ifndef SHM_COLL_SIGNATURE_H
#define SHM_COLL_SIGNATURE_H

#include <collrun/types.h>

#include <stdbool.h>

struct signature {
    /* kind, dtype << 8, operator << 16, root << 32; fields that the kind lacks are 0. The operator
     * of an allgather is not 0 if the engine begins another operation with it. */
    uint64_t what;
    uint64_t count; /* 0 for vector forms, whose counts are compared pair by pair */
};

/* Differs from that of all calls. */
#define SIGNATURE_NONE ((struct signature){.what = UINT64_MAX})

static inline bool signature_is_none(struct signature s)
{
    return s.what == UINT64_MAX;
}

static inline struct signature signature_of(const struct collrun_call *call)
{
    const enum collrun_kind kind = call->kind;
    const bool has_op = collrun_kind_reduces(kind) || kind == COLLRUN_ALLGATHER;
    struct signature s = {.what = (uint64_t)kind};
    if (kind == COLLRUN_BARRIER)
        return s;
    s.what |= (uint64_t)call->dtype << 8 | (has_op ? (uint64_t)call->op << 16 : 0) |
              (collrun_kind_has_root(kind) ? (uint64_t)(uint32_t)call->root << 32 : 0);
    s.count = collrun_kind_is_vector(kind) ? 0 : call->count;
    return s;
}

/* False: the calls are a mistake. With allgathers that begin other operations, the engine compares
 * these. */
bool signature_agree(struct signature a, struct signature b);

/* The call that a signature describes, for error messages. */
struct collrun_call signature_call(struct signature s);

#endif
