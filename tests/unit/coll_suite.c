/* SPDX-License-Identifier: Apache-2.0
 *
 * See coll_suite.h. The ranks get the suite as their argument.
 */
#include "coll_suite.h"

#include "coll_sweeps.h"
#include "unit/emulated.h"

static struct harness_options options_for(const struct coll_suite *s, uint32_t nranks)
{
    return (struct harness_options){
        .path = harness_backend_path(s->backend), .nranks = nranks, .arg = (void *)(uintptr_t)s};
}

static int all_kinds(struct harness_rank *r)
{
    const struct coll_suite *s = r->arg;
    return coll_every_variant(r, s->counts, s->ncounts, s->heap);
}

void coll_every_kind_in_processes(void **state)
{
    const struct coll_suite *s = *state;
    struct harness_options options = options_for(s, s->processes);
    if (emulated() && options.nranks > 4)
        options.nranks = 4; /* 8 ranks map 4 TiB */
    assert_int_equal(harness_run_each(&options, 1, all_kinds), 0);
}

void coll_every_kind_in_threads(void **state)
{
    const struct coll_suite *s = *state;
    struct harness_options options = options_for(s, s->threads);
    options.threads = true;
    assert_int_equal(harness_run_each(&options, 1, all_kinds), 0);
}

/* Tests the algorithms and waiting strategies for many cores on a machine with few. */
void coll_every_kind_on_dedicated_cores(void **state)
{
    const struct coll_suite *s = *state;
    struct harness_options options = options_for(s, s->dedicated);
    options.ncpus = 64;
    assert_int_equal(harness_run(&options, all_kinds), 0);
}

static int every_type(struct harness_rank *r)
{
    const struct coll_suite *s = r->arg;
    return coll_every_type(r, s->long_count);
}

void coll_every_type_and_operator(void **state)
{
    const struct harness_options options = options_for(*state, 3);
    assert_int_equal(harness_run_each(&options, 1, every_type), 0);
}

/* Memory that is reused while another rank reads it would give wrong results. */
static int out_of_step(struct harness_rank *r)
{
    const struct coll_suite *s = r->arg;
    return coll_out_of_step(r, s->random_calls, s->heap);
}

void coll_random_calls_with_late_ranks(void **state)
{
    for (uint32_t n = 2; n <= 6; n += 2) {
        struct harness_options options = options_for(*state, n);
        options.ncpus = n == 4 ? 64 : 0;
        assert_int_equal(harness_run(&options, out_of_step), 0);
        if (((const struct coll_suite *)*state)->threads == 0)
            continue;
        options.threads = true;
        assert_int_equal(harness_run(&options, out_of_step), 0);
    }
}

static int oversubscribed(struct harness_rank *r)
{
    const struct coll_suite *s = r->arg;
    return coll_all_small(r, s->repetitions, 700);
}

void coll_every_kind_oversubscribed(void **state)
{
    const struct coll_suite *s = *state;
    const struct harness_options options = options_for(s, s->oversubscribed);
    const uint64_t start = harness_now_ns();
    assert_int_equal(harness_run(&options, oversubscribed), 0);
    print_message("# %u ranks, %u collectives: %.2f s\n", s->oversubscribed,
                  s->repetitions * COLL_NKINDS, (double)(harness_now_ns() - start) / 1e9);
}
