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

struct signature signature_of(const struct collrun_call *call);

/* False: the calls are a mistake. With allgathers that begin other operations, the engine compares
 * these. */
bool signature_agree(struct signature a, struct signature b);

/* The call that a signature describes, for error messages. */
struct collrun_call signature_call(struct signature s);

#endif
