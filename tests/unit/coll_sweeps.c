/* SPDX-License-Identifier: Apache-2.0
 *
 * Which cases, in which order; what one case does is coll_cases.c. See coll_sweeps.h.
 */
#include "coll_sweeps.h"

#include "core/reduce.h"

const enum collrun_kind coll_kinds[COLL_NKINDS] = {
    COLLRUN_BARRIER,         COLLRUN_ALLREDUCE,  COLLRUN_REDUCE,  COLLRUN_BROADCAST,
    COLLRUN_ALLGATHER,       COLLRUN_GATHER,     COLLRUN_SCATTER, COLLRUN_REDUCE_SCATTER,
    COLLRUN_ALLTOALL,        COLLRUN_ALLGATHERV, COLLRUN_GATHERV, COLLRUN_SCATTERV,
    COLLRUN_REDUCE_SCATTERV, COLLRUN_ALLTOALLV,
};

static bool is_native(const struct harness_rank *r, const struct coll_case *c)
{
    for (const struct collrun_capability *row = r->backend->native; row->memory; row++)
        if (row->kind == (uint32_t)c->kind &&
            (!collrun_kind_reduces(c->kind) || (row->dtypes >> c->dtype & row->ops >> c->op & 1)))
            return true;
    return false;
}

int coll_run_native(struct harness_rank *r, struct harness_group *g, const struct coll_case *c)
{
    return is_native(r, c) ? coll_case_run(r, g, c) : 0;
}

static int run(struct harness_rank *r, const struct coll_case *c)
{
    return coll_run_native(r, r->group, c);
}

static int every_variant_of(struct harness_rank *r, struct coll_case c, bool heap, uint32_t *turn)
{
    for (int variant = 0; variant < (heap ? 6 : 4); variant++) {
        c.salt = (*turn)++;
        c.dtype = (enum collrun_dtype)(c.salt % COLLRUN_DTYPE_COUNT);
        c.op = (enum collrun_op)(c.salt / 3 % COLLRUN_OP_COUNT);
        c.root = c.salt % r->nranks;
        c.in_place = variant & 1;
        c.memory = heap && variant & 2 ? COLL_HEAP : COLL_PLAIN;
        c.shift = variant & (heap ? 4 : 2) ? 1 : 0;
        if (collrun_kind_reduces(c.kind) && !op_valid_for(c.op, c.dtype))
            c.op = COLLRUN_AVG;
        if ((!c.in_place || coll_has_in_place(c.kind)) && run(r, &c) != 0)
            return 1;
    }
    return 0;
}

int coll_every_variant(struct harness_rank *r, const size_t *counts, size_t ncounts, bool heap)
{
    uint32_t turn = 0;
    for (size_t k = 0; k < COLL_NKINDS; k++)
        for (size_t i = 0; i < ncounts; i++)
            if (every_variant_of(r, (struct coll_case){.kind = coll_kinds[k], .count = counts[i]},
                                 heap, &turn) != 0)
                return 1;
    return 0;
}

int coll_every_type(struct harness_rank *r, size_t many)
{
    struct coll_case c = {0};
    for (c.dtype = 0; c.dtype < COLLRUN_DTYPE_COUNT; c.dtype++)
        for (c.op = 0; c.op < COLLRUN_OP_COUNT; c.op++) {
            c.salt = c.op;
            for (size_t k = 0; k < COLL_NKINDS && op_valid_for(c.op, c.dtype); k++) {
                c.kind = coll_kinds[k];
                c.count = 5;
                c.root = 0;
                if (collrun_kind_reduces(c.kind) && run(r, &c) != 0)
                    return 1;
                c.count = many;
                c.root = r->nranks - 1;
                if (collrun_kind_reduces(c.kind) && run(r, &c) != 0)
                    return 1;
            }
        }
    return 0;
}

static uint64_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

int coll_out_of_step(struct harness_rank *r, uint32_t turns, bool heap)
{
    uint64_t common = 42;
    uint64_t own = 1000 + r->rank;
    for (uint32_t turn = 0; turn < turns; turn++) {
        struct coll_case c = {.kind = coll_kinds[next_random(&common) % COLL_NKINDS],
                              .dtype = COLLRUN_INT32,
                              .root = turn % r->nranks,
                              .salt = turn};
        c.count = next_random(&common) % (turn % 10 == 0 ? 60000 : 600);
        c.memory = heap && next_random(&common) % 4 == 0 ? COLL_HEAP : COLL_PLAIN;
        if (next_random(&own) % 16 == 0)
            harness_lag_us((unsigned)(next_random(&own) % 300));
        if (run(r, &c) != 0)
            return 1;
    }
    return 0;
}

int coll_all_small(struct harness_rank *r, uint32_t turns, size_t many)
{
    for (uint32_t turn = 0; turn < turns; turn++)
        for (size_t k = 0; k < COLL_NKINDS; k++) {
            const struct coll_case c = {.kind = coll_kinds[k],
                                        .dtype = COLLRUN_INT32,
                                        .count = turn % 4 == 2 ? many : turn,
                                        .root = turn,
                                        .salt = turn};
            if (run(r, &c) != 0)
                return 1;
        }
    return 0;
}

int coll_across_groups(struct harness_rank *r, struct harness_group **groups, uint32_t ngroups,
                       uint32_t nranks, uint32_t turns)
{
    for (uint32_t turn = 0; turn < turns; turn++) {
        const struct coll_case c = {.kind = coll_kinds[turn % COLL_NKINDS],
                                    .dtype = COLLRUN_FLOAT64,
                                    .count = 100 * turn,
                                    .root = turn % nranks,
                                    .salt = turn};
        if (coll_run_native(r, groups[turn % ngroups], &c) != 0)
            return 1;
    }
    return 0;
}
