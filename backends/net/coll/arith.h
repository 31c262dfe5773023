/* SPDX-License-Identifier: Apache-2.0
 *
 * struct arith: how the elements of one reduction are combined. Where half precision would be
 * rounded at each of several stages, the stages work on float32 ("wide"), and the result is rounded
 * once at the end.
 */
#ifndef NET_COLL_ARITH_H
#define NET_COLL_ARITH_H

#include "coll/coll.h"

struct arith {
    const struct collrun_services *services;
    enum collrun_dtype dtype, user; /* of partial results; of the workload */
    enum collrun_op op;
    uint32_t nranks;
    bool wide;
    size_t elem, user_elem; /* bytes */
};

/* `staged`: partial results are combined again, so they must not be rounded. */
struct arith arith_of(const struct coll *c, bool staged);

/* `count` elements of the workload as a contribution. Without wide, that is src itself, and
 * `room` is not used. */
const void *arith_load(const struct arith *a, void *room, const void *src, size_t count);

/* Two or more partial results into one, in the order of srcs; dst may be any of them. */
void arith_combine(const struct arith *a, void *dst, const void *const *srcs, uint32_t nsrcs,
                   size_t count);

/* The complete result, from a partial one that covers all ranks. `partial` may be overwritten. dst
 * may be the same. */
void arith_store(const struct arith *a, void *dst, void *partial, size_t count);

/* Both in one: the complete result of all srcs. srcs[0] may be overwritten if the arithmetic is
 * wide. */
void arith_finish(const struct arith *a, void *dst, const void *const *srcs, uint32_t nsrcs,
                  size_t count);

/* Combines `count` contributions of the ranks of this host at `send` into `recv` of the leader,
 * where they may be the same. Elsewhere recv is ignored. */
int arith_reduce_local(struct coll *c, const struct arith *a, const void *send, void *recv,
                       size_t count);

#endif
