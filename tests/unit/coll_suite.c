/* SPDX-License-Identifier: Apache-2.0
 *
 * See coll_suite.h. The ranks get the suite as their argument.
 */
#include "coll_suite.h"

#include "coll_sweeps.h"

static struct rig_options options_for(const struct coll_suite *s, uint32_t nranks)
{
    return (struct rig_options){
        .path = rig_backend_path(s->backend), .nranks = nranks, .arg = (void *)(uintptr_t)s};
}

static int all_kinds(struct rig_rank *r)
{
    const struct coll_suite *s = r->arg;
    return coll_every_variant(r, s->counts, s->ncounts, s->heap);
}

void coll_every_kind_in_processes(void **state)
{
    const struct coll_suite *s = *state;
    const struct rig_options options = options_for(s, s->processes);
    assert_int_equal(rig_run_each(&options, 1, all_kinds), 0);
}

void coll_every_kind_in_threads(void **state)
{
    const struct coll_suite *s = *state;
    struct rig_options options = options_for(s, s->threads);
    options.threads = true;
    assert_int_equal(rig_run_each(&options, 1, all_kinds), 0);
}

/* The algorithms and the waiting of wide machines are tested on narrow ones. */
void coll_every_kind_as_if_alone(void **state)
{
    const struct coll_suite *s = *state;
    struct rig_options options = options_for(s, s->alone);
    options.ncpus = 64;
    assert_int_equal(rig_run(&options, all_kinds), 0);
}

static int every_type(struct rig_rank *r)
{
    const struct coll_suite *s = r->arg;
    return coll_every_type(r, s->many);
}

void coll_every_type_and_operator(void **state)
{
    const struct rig_options options = options_for(*state, 3);
    assert_int_equal(rig_run_each(&options, 1, every_type), 0);
}

/* Reuse of memory that somebody still reads would show. */
static int out_of_step(struct rig_rank *r)
{
    const struct coll_suite *s = r->arg;
    return coll_out_of_step(r, s->turns, s->heap);
}

void coll_ranks_out_of_step(void **state)
{
    for (uint32_t n = 2; n <= 6; n += 2) {
        struct rig_options options = options_for(*state, n);
        options.ncpus = n == 4 ? 64 : 0;
        assert_int_equal(rig_run(&options, out_of_step), 0);
        options.threads = true;
        assert_int_equal(rig_run(&options, out_of_step), 0);
    }
}

static int crowd(struct rig_rank *r)
{
    const struct coll_suite *s = r->arg;
    return coll_all_small(r, s->rounds, 700);
}

void coll_many_ranks_on_few_cores(void **state)
{
    const struct coll_suite *s = *state;
    const struct rig_options options = options_for(s, s->crowd);
    const uint64_t start = rig_now_ns();
    assert_int_equal(rig_run(&options, crowd), 0);
    print_message("# %u ranks, %u collectives: %.2f s\n", s->crowd, s->rounds * COLL_NKINDS,
                  (double)(rig_now_ns() - start) / 1e9);
}
