/* SPDX-License-Identifier: Apache-2.0
 *
 * on_failure, with a simulated clock: which rule applies, how often, after what pause, and which
 * failures are not retried.
 */
#include "diagnose/policy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define SECOND INT64_C(1000000000)

static struct verdict failure(enum cause_class class, int exit_code)
{
    return (struct verdict){.class = class, .exit_code = exit_code, .rank = 0};
}

static struct job_on_failure restart(int64_t max, int64_t backoff_s)
{
    return (struct job_on_failure){.action = {.v = JOB_ACTION_RESTART},
                                   .max_restarts = {.v = max},
                                   .backoff = {.v = backoff_s * SECOND},
                                   .min_uptime = {.v = 30 * SECOND}};
}

static void rules_go_by_cause_and_exit_code(void **state)
{
    (void)state;
    struct job_num codes[] = {{.v = 75}, {.v = 76}};
    struct job_rule rules[] = {
        {.cause = {.v = JOB_CAUSE_OOM}, .action = {.v = JOB_ACTION_STOP}},
        {.exit_code = {codes, 2, {0}}, .action = {.v = JOB_ACTION_RESTART}},
        {.cause = {.v = JOB_CAUSE_SIGNAL},
         .exit_code = {(struct job_num[]){{.v = 139}}, 1, {0}},
         .action = {.v = JOB_ACTION_CONTINUE}},
        {.cause = {.v = JOB_CAUSE_HOST_LOST}, .action = {.v = JOB_ACTION_RESTART}},
        {.cause = {.v = JOB_CAUSE_MISMATCH}, .action = {.v = JOB_ACTION_CONTINUE}},
        {.cause = {.v = JOB_CAUSE_PLUGIN}, .action = {.v = JOB_ACTION_STOP}},
        {.cause = {.v = JOB_CAUSE_JOB}, .action = {.v = JOB_ACTION_RESTART}},
        {.cause = {.v = JOB_CAUSE_TIMEOUT}, .action = {.v = JOB_ACTION_CONTINUE}},
    };
    struct job_on_failure on = {
        .action = {.v = JOB_ACTION_STOP}, .rules = rules, .nrules = sizeof rules / sizeof *rules};
    static const struct {
        enum cause_class class;
        int exit_code;
        enum job_action action;
    } cases[] = {
        {CAUSE_OOM, 137, JOB_ACTION_STOP},          {CAUSE_EXIT, 75, JOB_ACTION_RESTART},
        {CAUSE_EXIT, 76, JOB_ACTION_RESTART},       {CAUSE_EXIT, 77, JOB_ACTION_STOP},
        {CAUSE_SIGNAL, 139, JOB_ACTION_CONTINUE},   {CAUSE_SIGNAL, 137, JOB_ACTION_STOP},
        {CAUSE_HOST_LOST, 127, JOB_ACTION_RESTART}, {CAUSE_LAUNCH, 126, JOB_ACTION_STOP},
        {CAUSE_LAUNCH, 2, JOB_ACTION_RESTART},      {CAUSE_TIMEOUT, 124, JOB_ACTION_CONTINUE},
        {CAUSE_INTERRUPTED, 75, JOB_ACTION_STOP}, /* whatever the rules say */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct verdict v = failure(cases[i].class, cases[i].exit_code);
        print_message("# class %d, exit code %d\n", (int)v.class, v.exit_code);
        assert_int_equal(policy_action(&on, &v), cases[i].action);
    }
    struct verdict v = failure(CAUSE_MISMATCH, 1);
    assert_int_equal(policy_action(&on, &v), JOB_ACTION_CONTINUE);
    /* A program answers a time-out with another code. */
    v = failure(CAUSE_MISSING, 124);
    v.own_code = 75;
    assert_int_equal(policy_action(&on, &v), JOB_ACTION_RESTART);
}

static void pauses_double_up_to_a_minute(void **state)
{
    (void)state;
    struct policy p = {0};
    struct job_on_failure on = restart(10, 1);
    struct rank_state ranks[1] = {{.end = RANK_EXITED}};
    struct verdict v = failure(CAUSE_EXIT, 1);
    struct policy_decision next;
    static const uint64_t seconds[] = {1, 2, 4, 8, 16, 32, 60, 60, 60, 60};
    for (size_t i = 0; i < 10; i++) {
        policy_decide(&p, &on, &v, ranks, 0, &next);
        assert_true(next.restart);
        assert_int_equal(next.pause_ns, seconds[i] * (uint64_t)SECOND);
    }
    policy_decide(&p, &on, &v, ranks, 0, &next);
    assert_false(next.restart);
    assert_non_null(strstr(next.why, "max_restarts (10) is reached"));
    p = (struct policy){0};
    on = restart(2, 300); /* longer than a minute from the start: as written */
    policy_decide(&p, &on, &v, ranks, 0, &next);
    assert_int_equal(next.pause_ns, 300 * SECOND);
    policy_decide(&p, &on, &v, ranks, 0, &next);
    assert_int_equal(next.pause_ns, 300 * SECOND);
}

static void a_long_attempt_counts_afresh(void **state)
{
    (void)state;
    struct policy p = {0};
    struct job_on_failure on = restart(2, 1);
    struct rank_state ranks[1] = {{.end = RANK_EXITED}};
    struct verdict v = failure(CAUSE_EXIT, 1);
    struct policy_decision next;
    for (int i = 0; i < 20; i++) {
        policy_decide(&p, &on, &v, ranks, (uint64_t)(31 * SECOND), &next);
        assert_true(next.restart);
        assert_int_equal(next.pause_ns, SECOND);
    }
    policy_decide(&p, &on, &v, ranks, (uint64_t)(29 * SECOND), &next);
    assert_true(next.restart);
    policy_decide(&p, &on, &v, ranks, (uint64_t)(29 * SECOND), &next);
    assert_false(next.restart);
}

/* Any of the ranks that disagree about an operation may be the first to report it. */
static void the_same_operation_is_not_retried_whichever_rank_reports_it(void **state)
{
    (void)state;
    struct policy p = {0};
    struct job_on_failure on = restart(10, 1);
    struct rank_state ranks[2] = {{.failed = true}, {.failed = true}};
    struct verdict v = failure(CAUSE_ERROR, 1);
    v.group = "dp";
    v.number = 7;
    struct policy_decision next;
    policy_decide(&p, &on, &v, ranks, 0, &next);
    assert_true(next.restart);
    v.rank = 1;
    policy_decide(&p, &on, &v, ranks, 0, &next);
    assert_false(next.restart);
    assert_non_null(strstr(next.why, "(exit code 1, in dp#7)"));
}

static void the_same_again_is_not_retried(void **state)
{
    (void)state;
    struct policy p = {0};
    struct job_on_failure on = restart(10, 1);
    struct group_snapshot g = {.name = "dp", .started = 7, .done = 6, .kind = COLLRUN_ALLREDUCE};
    struct rank_state ranks[1] = {{.end = RANK_EXITED, .snapshot = {.groups = &g, .n = 1}}};
    struct verdict v = failure(CAUSE_SIGNAL, 139);
    struct policy_decision next;
    policy_decide(&p, &on, &v, ranks, 0, &next);
    assert_true(next.restart);
    g.started = 8; /* elsewhere: a coincidence */
    policy_decide(&p, &on, &v, ranks, 0, &next);
    assert_true(next.restart);
    v.exit_code = 137; /* in the same place, but otherwise */
    policy_decide(&p, &on, &v, ranks, 0, &next);
    assert_true(next.restart);
    policy_decide(&p, &on, &v, ranks, 0, &next);
    assert_false(next.restart);
    assert_non_null(strstr(next.why,
                           "two attempts failed in the same way (rank 0, exit code 137, in "
                           "allreduce dp#8"));
    /* Outside any operation a crash has a place, too: after the last one. */
    g.done = g.started;
    v.exit_code = 139;
    policy_decide(&p, &on, &v, ranks, 0, &next);
    assert_true(next.restart);
    policy_decide(&p, &on, &v, ranks, 0, &next);
    assert_false(next.restart);
    assert_non_null(strstr(next.why, "(rank 0, exit code 139, after dp#8)"));
    /* An exit code, or a SIGKILL from who knows where, has none. */
    v = failure(CAUSE_SIGNAL, 137);
    for (int i = 0; i < 3; i++) {
        policy_decide(&p, &on, &v, ranks, 0, &next);
        assert_true(next.restart);
    }
    p = (struct policy){0};
    v = failure(CAUSE_EXIT, 75);
    for (int i = 0; i < 3; i++) {
        policy_decide(&p, &on, &v, ranks, 0, &next);
        assert_true(next.restart);
    }
    /* A host that is lost twice is no place either. */
    v = failure(CAUSE_HOST_LOST, 127);
    v.rank = WIRE_HOST;
    for (int i = 0; i < 3; i++) {
        policy_decide(&p, &on, &v, ranks, 0, &next);
        assert_true(next.restart);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules_go_by_cause_and_exit_code),
        cmocka_unit_test(pauses_double_up_to_a_minute),
        cmocka_unit_test(a_long_attempt_counts_afresh),
        cmocka_unit_test(the_same_again_is_not_retried),
        cmocka_unit_test(the_same_operation_is_not_retried_whichever_rank_reports_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
