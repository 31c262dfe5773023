/* SPDX-License-Identifier: Apache-2.0
 *
 * collrun-engine as a whole: real processes, a small backend, a workload whose parameter says what
 * it does (tests/unit/plugins), and the test as their agent: ranks that succeed, and every way to
 * fail once they run. Failures before that are in test_engine_load.c.
 */
#include "fake_agent.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#define assert_has(text, part) assert_non_null(strstr((text), (part)))

static void run_well(uint32_t nranks, int backend, const char *what)
{
    struct fake_job job;
    fake_simple(&job, nranks, backend, what);
    assert_int_equal(fake_run(&job), 0);
    assert_int_equal(job.scopes_left, 0);
    for (uint32_t i = 0; i < nranks; i++) {
        assert_false(job.ranks[i].failed);
        assert_string_equal(job.ranks[i].last_metric_name, "fini");
    }
    fake_fini(&job);
}

/* ---- going well ---- */

static void ranks_sum(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 4; n++)
        run_well(n, n % 2, "sum");
}

static void all_collectives_are_right(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 5; n++) {
        run_well(n, 0, "all");
        run_well(n, 1, "all");
    }
}

static void messages_pass_around_a_ring(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 4; n++) {
        run_well(n, 0, "ring");
        run_well(n, 1, "ring");
    }
}

static void requests_complete(void **state)
{
    (void)state;
    run_well(2, 1, "requests");
    run_well(4, 1, "requests");
}

static unsigned count_of(const char *text, const char *what)
{
    unsigned n = 0;
    for (const char *p = strstr(text, what); p; p = strstr(p + 1, what))
        n++;
    return n;
}

static void requests_that_are_never_waited_for_are_reported(void **state)
{
    struct fake_job job;
    (void)state;
    fake_simple(&job, 2, false, "forget");
    assert_int_equal(fake_run(&job), 0);
    const char *logged = (char *)job.ranks[1].logged.data;
    assert_has(logged, "group \"world\" is closed, but 2 requests were never waited for; the first "
                       "is allreduce world#1 (1 x int32, sum), started by workload \"probe\"\n");
    assert_has(logged, "group \"own\" is closed, but 1 request was never waited for; the first is "
                       "allreduce own#1 (1 x int32, sum), started by workload \"probe\"\n");
    assert_int_equal(count_of(logged, "never waited for"), 2);
    fake_fini(&job);
    fake_simple(&job, 2, false, "requests");
    assert_int_equal(fake_run(&job), 0);
    assert_int_equal(count_of((char *)job.ranks[0].logged.data, "never waited for"), 0);
    fake_fini(&job);
}

static void a_tagged_message_overtakes_another(void **state)
{
    (void)state;
    run_well(2, 0, "overtake");
    run_well(3, 1, "overtake");
}

static void a_request_completes_before_an_earlier_one(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) {
        run_well(2, 0, "ahead");
        run_well(3, 1, "ahead");
    }
}

static void groups_are_made_at_run_time(void **state)
{
    (void)state;
    run_well(1, 0, "groups");
    run_well(3, 0, "groups");
    run_well(4, 1, "groups");
}

static void two_threads_in_one_group_are_refused(void **state)
{
    (void)state;
    run_well(2, 0, "two-threads");
}

static void params_and_templates_reach_each_rank(void **state)
{
    struct fake_job job;
    (void)state;
    struct desc_workload *w = fake_simple(&job, 2, false, "params");
    fake_option(&job, &w->params, "label", "rank-{rank}");
    w->noverrides = 1;
    w->overrides = arena_calloc(&job.arena, 1, sizeof *w->overrides);
    w->overrides[0].ranks = (struct desc_ranks){.items = (uint32_t[]){1}, .n = 1};
    fake_option(&job, &w->overrides[0].params, "count", "8");
    assert_int_equal(fake_run(&job), 0);
    assert_has((char *)job.ranks[1].logged.data, "probe: label rank-1\n");
    assert_has((char *)job.ranks[1].logged.data, "msg, group world: open, 1 of 2\n");
    assert_has((char *)job.ranks[0].printed.data, "ran run-7\n");
    fake_fini(&job);
}

/* Two workloads in one process, each with a separate group, beside a background one. */
static void workloads_run_beside_each_other(void **state)
{
    struct fake_job job;
    (void)state;
    fake_simple(&job, 3, false, "sum");
    fake_group(&job, "reversed", 0, (const uint32_t[]){2, 1, 0}, 3);
    struct desc_workload *second = fake_workload(&job, "second", "probe.so");
    fake_option(&job, &second->params, "do", "all");
    second->groups[0] = 1;
    second->ngroups = 1;
    struct desc_workload *beat = fake_workload(&job, "beat", "probe.so");
    fake_option(&job, &beat->params, "do", "background");
    beat->background = true;
    assert_int_equal(fake_run(&job), 0);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(job.ranks[i].metrics, 4); /* fini of all three, and beats */
        assert_true(job.ranks[i].progress >= 1 && job.ranks[i].progress <= 60);
    }
    fake_fini(&job);
}

/* A rank without workload and without group takes part in the phases all the same. */
static void a_rank_without_workload_goes_through_the_phases(void **state)
{
    struct fake_job job;
    (void)state;
    struct desc_workload *w = fake_simple(&job, 3, false, "sum");
    w->ranks.n = job.groups[0].ranks.n = 2;
    assert_int_equal(fake_run(&job), 0);
    fake_fini(&job);
}

/* ---- failing to run ---- */

struct bad_run {
    const char *what, *text;
    int exit_code, code;
    uint32_t phase;
};

static void a_workload_that_fails_is_reported(void **state)
{
    static const struct bad_run cases[] = {
        {"return-3", "workload \"probe\" returned 3 from run", 3, 3, WIRE_PHASE_RUN},
        {"return-500", "returned 500 from run, which is neither 0..119 nor a status", 1,
         COLLRUN_ERR_INVALID, WIRE_PHASE_RUN},
        {"say", "the sum is 5, not 4", 1, 1, WIRE_PHASE_RUN},
        {"undeclared", "asks for a parameter \"nonsense\", but does not declare it", 1,
         COLLRUN_ERR_INVALID, WIRE_PHASE_RUN},
        {"wrong-type", "asks for parameter \"label\" as int; it is declared as string", 1,
         COLLRUN_ERR_INVALID, WIRE_PHASE_RUN},
        {"bad-root", "broadcast world: root 99 is not a rank of this group of 2", 1,
         COLLRUN_ERR_INVALID, WIRE_PHASE_RUN},
        {"fail-init", "no fuel", 41, 41, WIRE_PHASE_INIT},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fake_job job;
        fake_simple(&job, 2, true, cases[i].what);
        assert_int_equal(fake_run(&job), 1);
        bool seen = false;
        for (uint32_t r = 0; r < 2; r++) { /* the other may get this rank's failure first */
            const struct fake_rank *rank = &job.ranks[r];
            if (!rank->failed || rank->failure.code == COLLRUN_ERR_PEER_FAILED)
                continue;
            seen = true;
            assert_has(rank->failure.text, cases[i].text);
            assert_int_equal(rank->exit_code, cases[i].exit_code);
            assert_int_equal(rank->failure.code, cases[i].code);
            assert_int_equal(rank->failed_phase, cases[i].phase);
            assert_int_equal(rank->failed_workload, 0);
        }
        assert_true(seen);
        fake_fini(&job);
    }
}

static void a_workload_time_out_ends_the_rank(void **state)
{
    struct fake_job job;
    (void)state;
    fake_simple(&job, 1, false, "sleep")->timeout_ns = 300000000;
    assert_int_equal(fake_run(&job), 1);
    assert_int_equal(job.ranks[0].exit_code, 124);
    assert_string_equal(job.ranks[0].failure.text,
                        "workload \"probe\" exceeded its time-out of 300ms");
    assert_int_equal(job.ranks[0].failure.code, COLLRUN_ERR_TIMEOUT);
    fake_fini(&job);
}

/* Rank 0 does not come to the barrier of the others; how they learn of it. */
static struct fake_job *one_is_missing(struct fake_job *job, int backend, const char *what)
{
    struct desc_workload *w = fake_simple(job, 3, backend, "barrier");
    w->noverrides = 1;
    w->overrides = arena_calloc(&job->arena, 1, sizeof *w->overrides);
    w->overrides[0].ranks =
        (struct desc_ranks){.items = arena_calloc(&job->arena, 1, sizeof(uint32_t)), .n = 1};
    fake_option(job, &w->overrides[0].params, "do", what);
    return job;
}

static void check_unblocked(const struct fake_job *job, int status, const char *error)
{
    for (uint32_t i = 1; i < 3; i++) {
        const struct fake_rank *r = &job->ranks[i];
        assert_int_equal(r->failure.code, status);
        assert_int_equal(r->exit_code, 1);
        assert_string_equal(r->failed_group, "world");
        assert_has(r->failure.text, "barrier world#");
        assert_has(r->failure.text, error);
    }
}

static void a_dead_peer_unblocks_the_others(void **state)
{
    (void)state;
    for (int backend = 0; backend < 2; backend++) {
        struct fake_job job;
        assert_int_equal(fake_run(one_is_missing(&job, backend, "die")), 1);
        assert_int_equal(job.ranks[0].exit_code, 128 + 6);
        check_unblocked(&job, COLLRUN_ERR_PEER_FAILED, "rank 0 (here) died");
        for (int i = 1; i < 3; i++)
            assert_true(job.ranks[i].failed_s < job.ranks[0].ended_s + 5); /* not by a time-out */
        fake_fini(&job);
    }
}

static void a_failed_peer_unblocks_the_others(void **state)
{
    struct fake_job job;
    (void)state;
    assert_int_equal(fake_run(one_is_missing(&job, 0, "say-late")), 1);
    check_unblocked(&job, COLLRUN_ERR_PEER_FAILED, "rank 0 (here) the sum is 5, not 4");
    fake_fini(&job);
}

static void an_operation_times_out(void **state)
{
    struct fake_job job;
    (void)state;
    one_is_missing(&job, 0, "sleep");
    job.groups[0].timeout_ns = 300000000;
    job.no_abort = true;
    job.after_go_s = 1.5;
    job.after_go = NULL;
    job.limit_s = 4; /* rank 0 sleeps on */
    assert_int_equal(fake_run(&job), 2);
    for (uint32_t i = 1; i < 3; i++) {
        assert_int_equal(job.ranks[i].failure.code, COLLRUN_ERR_TIMEOUT);
        assert_has(job.ranks[i].failure.text,
                   "barrier world#2: barrier world#1: timed out waiting for rank");
    }
    fake_fini(&job);
}

static void abort_job(struct fake_job *job)
{
    fake_abort(job, COLLRUN_ERR_ABORTED, WIRE_HOST, "interrupted by the user");
}

static void an_abort_unblocks_a_collective(void **state)
{
    (void)state;
    for (int backend = 0; backend < 2; backend++) {
        struct fake_job job;
        one_is_missing(&job, backend, "sleep");
        job.after_go = abort_job;
        job.after_go_s = 0.3;
        assert_int_equal(fake_run(&job), 1);
        check_unblocked(&job, COLLRUN_ERR_ABORTED, "interrupted by the user");
        assert_int_equal(job.ranks[0].exit_code, 1); /* after the grace, of 1 s */
        assert_true((long)(job.ranks[0].ended_s * 10) >= 10 &&
                    (long)(job.ranks[0].ended_s * 10) <= 40);
        fake_fini(&job);
    }
}

static void disconnect_all(struct fake_job *job)
{
    for (uint32_t i = 0; i < 3; i++)
        fake_disconnect(job, i);
}

static void a_lost_agent_ends_the_ranks(void **state)
{
    struct fake_job job;
    (void)state;
    one_is_missing(&job, 1, "sleep");
    job.desc.grace_ns = 60000000000u;
    job.after_go = disconnect_all;
    job.after_go_s = 0.3;
    job.no_abort = true;
    assert_int_equal(fake_run(&job), 1);
    assert_int_equal(job.ranks[0].exit_code, 125);
    assert_has((char *)job.ranks[1].printed.data, "the agent of this host is gone");
    assert_true(job.ranks[0].ended_s < 5);
    fake_fini(&job);
}

/* A background workload blocked in an operation that no rank will join is aborted. */
static void a_blocked_background_workload_is_aborted_at_the_end(void **state)
{
    struct fake_job job;
    (void)state;
    one_is_missing(&job, 0, "nothing");
    job.workloads[0].background = true;
    assert_int_equal(fake_run(&job), 0);
    fake_fini(&job);
}

static void a_background_workload_must_stop_within_the_grace_time(void **state)
{
    struct fake_job job;
    (void)state;
    fake_simple(&job, 1, false, "sleep")->background = true;
    assert_int_equal(fake_run(&job), 1);
    assert_int_equal(job.ranks[0].exit_code, 124);
    assert_string_equal(job.ranks[0].failure.text,
                        "background workload \"probe\" did not stop within 1s");
    fake_fini(&job);
}

/* ---- describing ---- */

static void describe(struct fake_job *job, const char *args, char *out, size_t size)
{
    char command[4096];
    snprintf(command, sizeof command, "%s --describe %s", fake_engine(job), args);
    FILE *p = popen(command, "r");
    assert_non_null(p);
    size_t n = fread(out, 1, size - 1, p);
    out[n] = '\0';
    assert_int_equal(pclose(p), 0);
}

static void plugins_describe_themselves(void **state)
{
    struct fake_job job;
    char out[8192], args[2048];
    (void)state;
    fake_init(&job, 1);
    snprintf(args, sizeof args, "backend:%s workload:%s backend:%s workload:/no/such.so",
             fake_path(&job, "msg.so"), fake_path(&job, "probe.so"),
             fake_path(&job, "msg_probe.so"));
    describe(&job, args, out, sizeof out);
    assert_has(out, "\"name\":\"msg\",\"version\":\"1.0\",\"abi\":1,\"available\":true,\"found\":"
                    "\"\",\"reason\":\"\",\"flags\":[\"one_host\",\"recv_any\"]");
    assert_has(out, "{\"barrier\":\"emulated\",\"allreduce\":\"emulated\"");
    assert_has(out, "\"send\":\"native\",\"recv\":\"native\",\"recv_any\":\"native\"");
    assert_has(out, "}\n{\"kind\":\"workload\"");
    assert_has(out, "\"summary\":\"what the engine's \\\"tests\\\" need\\u000a\"");
    assert_has(out, "{\"name\":\"count\",\"type\":\"int\",\"default\":\"7\",\"min\":\"1\",\"max\":"
                    "\"100\",\"choices\":null,\"help\":\"\"}");
    assert_has(out,
               "\"available\":false,\"found\":\"\",\"reason\":\"the moon is in the wrong phase\"");
    assert_has(out, "{\"kind\":\"workload\",\"path\":\"/no/such.so\",\"error\":\"workload "
                    "/no/such.so: No such file or directory\",\"hint\":\"\"}\n");
    fake_fini(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_sum),
        cmocka_unit_test(all_collectives_are_right),
        cmocka_unit_test(messages_pass_around_a_ring),
        cmocka_unit_test(requests_complete),
        cmocka_unit_test(requests_that_are_never_waited_for_are_reported),
        cmocka_unit_test(a_tagged_message_overtakes_another),
        cmocka_unit_test(a_request_completes_before_an_earlier_one),
        cmocka_unit_test(groups_are_made_at_run_time),
        cmocka_unit_test(two_threads_in_one_group_are_refused),
        cmocka_unit_test(params_and_templates_reach_each_rank),
        cmocka_unit_test(workloads_run_beside_each_other),
        cmocka_unit_test(a_rank_without_workload_goes_through_the_phases),
        cmocka_unit_test(a_workload_that_fails_is_reported),
        cmocka_unit_test(a_workload_time_out_ends_the_rank),
        cmocka_unit_test(a_dead_peer_unblocks_the_others),
        cmocka_unit_test(a_failed_peer_unblocks_the_others),
        cmocka_unit_test(an_operation_times_out),
        cmocka_unit_test(an_abort_unblocks_a_collective),
        cmocka_unit_test(a_lost_agent_ends_the_ranks),
        cmocka_unit_test(a_blocked_background_workload_is_aborted_at_the_end),
        cmocka_unit_test(a_background_workload_must_stop_within_the_grace_time),
        cmocka_unit_test(plugins_describe_themselves),
    };
    return cmocka_run_group_tests_name("engine", tests, NULL, NULL);
}
