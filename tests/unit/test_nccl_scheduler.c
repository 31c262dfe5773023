/* SPDX-License-Identifier: Apache-2.0
 *
 * When the nccl backend launches a collective, without GPUs: one whose group is idle at once, one
 * behind it when all ranks have committed to it; and a rank has open commitments in one group at a
 * time, without which two groups could block each other.
 */
#include "../../backends/nccl/scheduler.h"

#include "../../backends/nccl/group.h"

#include <stdlib.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { GROUPS = 2, OPS = 8 };

struct fixture {
    struct context *context;
    struct nccl_group *groups[GROUPS];
    struct op *ops[OPS];
    unsigned nops;
};

static void setup(struct fixture *f)
{
    *f = (struct fixture){.context = calloc(1, sizeof *f->context)};
    assert_non_null(f->context);
    sched_init(&f->context->sched);
    for (unsigned i = 0; i < GROUPS; i++) {
        f->groups[i] = calloc(1, sizeof *f->groups[i]);
        assert_non_null(f->groups[i]);
        f->groups[i]->context = f->context;
        atomic_store(&f->groups[i]->forming.done, true);
    }
}

static void teardown(struct fixture *f)
{
    for (unsigned i = 0; i < f->nops; i++)
        free(f->ops[i]);
    for (unsigned i = 0; i < GROUPS; i++)
        free(f->groups[i]);
    sched_fini(&f->context->sched);
    free(f->context);
}

static struct op *collective(struct fixture *f, unsigned group, enum sched_class class)
{
    struct op *op = calloc(1, sizeof *op);
    assert_non_null(op);
    assert_true(f->nops < OPS);
    f->ops[f->nops++] = op;
    op->group = f->groups[group];
    op->sched.class = class;
    return op;
}

static void an_idle_group_launches_at_once(void **state)
{
    struct fixture f;
    (void)state;
    setup(&f);
    struct op *first = collective(&f, 0, SCHED_ONE_KERNEL);
    struct op *second = collective(&f, 0, SCHED_ONE_KERNEL);
    assert_true(sched_submit(first));
    assert_false(sched_submit(second));
    sched_retire(first);
    assert_true(sched_try_launch(second));
    sched_retire(second);
    teardown(&f);
}

static void it_is_stacked_when_all_ranks_have_committed(void **state)
{
    struct fixture f;
    (void)state;
    setup(&f);
    struct op *first = collective(&f, 0, SCHED_ONE_KERNEL);
    struct op *second = collective(&f, 0, SCHED_ONE_KERNEL);
    assert_true(sched_submit(first));
    assert_false(sched_submit(second));
    assert_true(second->sched.committed);
    assert_false(sched_try_launch(second));
    f.groups[0]->sched.ready = 2;
    assert_true(sched_try_launch(second));
    sched_retire(first);
    sched_retire(second);
    assert_int_equal(f.context->sched.commitments, 0);
    teardown(&f);
}

static void commitments_are_open_in_one_group_at_a_time(void **state)
{
    struct fixture f;
    (void)state;
    setup(&f);
    struct op *running[GROUPS], *behind[GROUPS];
    for (unsigned i = 0; i < GROUPS; i++) {
        running[i] = collective(&f, i, SCHED_ONE_KERNEL);
        behind[i] = collective(&f, i, SCHED_ONE_KERNEL);
        assert_true(sched_submit(running[i]));
    }
    for (unsigned i = 0; i < GROUPS; i++)
        assert_false(sched_submit(behind[i]));
    assert_true(behind[0]->sched.committed);
    assert_false(behind[1]->sched.committed);
    struct op *third = collective(&f, 0, SCHED_ONE_KERNEL);
    assert_false(sched_submit(third)); /* the same group may have several */
    assert_true(third->sched.committed);
    f.groups[0]->sched.ready = 3;
    assert_true(sched_try_launch(behind[0]));
    assert_true(sched_try_launch(third));
    sched_retire(running[0]);
    sched_retire(behind[0]);
    assert_false(sched_try_launch(behind[1])); /* the third one is still open */
    assert_false(behind[1]->sched.committed);
    sched_retire(third);
    assert_false(sched_try_launch(behind[1]));
    assert_true(behind[1]->sched.committed);
    sched_retire(running[1]);
    assert_true(sched_try_launch(behind[1]));
    sched_retire(behind[1]);
    assert_int_equal(f.context->sched.commitments, 0);
    teardown(&f);
}

static void several_kernels_are_never_stacked(void **state)
{
    struct fixture f;
    (void)state;
    setup(&f);
    struct op *first = collective(&f, 0, SCHED_MULTI_KERNEL);
    struct op *second = collective(&f, 0, SCHED_ONE_KERNEL);
    assert_true(sched_submit(first));
    f.groups[0]->sched.ready = 2;
    assert_false(sched_submit(second));
    sched_retire(first);
    struct op *third = collective(&f, 0, SCHED_MULTI_KERNEL);
    assert_true(sched_try_launch(second));
    f.groups[0]->sched.ready = 3;
    assert_false(sched_submit(third));
    sched_retire(second);
    assert_true(sched_try_launch(third));
    sched_retire(third);
    teardown(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_idle_group_launches_at_once),
        cmocka_unit_test(it_is_stacked_when_all_ranks_have_committed),
        cmocka_unit_test(commitments_are_open_in_one_group_at_a_time),
        cmocka_unit_test(several_kernels_are_never_stacked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
