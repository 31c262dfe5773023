/* SPDX-License-Identifier: Apache-2.0
 *
 * Getters and requests of the interface for workloads, on real engines (tests/unit/plugins/api.c).
 */
#include "fake_agent.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <string.h>

/* On backend "msg" (exec), "msgstart" (start and test) or "shm". With "msgstart" the job names
 * another backend "msg", which does not work here. */
static void run_case(uint32_t nranks, const char *backend, const char *what)
{
    struct fake_job job;
    fake_init(&job, nranks);
    bool shm = strcmp(backend, "shm") == 0;
    const char *installed = "../../lib/collrun/backends/libcollrun_shm.so";
    const char *file = arena_printf(&job.arena, "%s%s%s", fake_path(&job, ""),
                                    shm ? installed : backend, shm ? "" : ".so");
    fake_backend(&job, backend, file);
    if (strcmp(backend, "msgstart") == 0)
        fake_backend(&job, "msg", "msg_probe.so");
    fake_group(&job, "world", 0, NULL, 0);
    fake_option(&job, &fake_workload(&job, "api", "api.so")->params, "do", what);
    assert_int_equal(fake_run(&job), 0);
    fake_fini(&job);
}

static void groups_and_the_job_are_asked(void **state)
{
    (void)state;
    run_case(1, "msg", "ask");
    run_case(2, "msg", "ask");
    run_case(4, "msgstart", "ask");
}

static void descriptors_run(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 4; n++)
        run_case(n, "shm", "run");
}

static void a_request_is_polled(void **state)
{
    (void)state;
    run_case(1, "msg", "poll");
    run_case(3, "msgstart", "poll");
    run_case(2, "shm", "poll");
}

static void any_request_is_waited_for(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 3; n++)
        run_case(n, "shm", "wait-any");
    run_case(2, "msg", "wait-any");
    run_case(3, "msgstart", "wait-any");
}

static void the_failed_request_is_named(void **state)
{
    (void)state;
    run_case(2, "shm", "which-failed");
    run_case(3, "shm", "which-failed");
}

static void a_group_is_aborted(void **state)
{
    (void)state;
    run_case(1, "shm", "abort");
    run_case(2, "shm", "abort");
}

static void receives_learn_what_came(void **state)
{
    (void)state;
    run_case(1, "shm", "envelope");
    run_case(3, "shm", "envelope");
    run_case(1, "shm", "too-long");
}

static void backends_without_envelopes_are_named(void **state)
{
    (void)state;
    run_case(2, "msg", "envelope-refused");
    run_case(2, "msgstart", "envelope-refused");
}

static void threads_share_a_group(void **state)
{
    (void)state;
    run_case(2, "shm", "threads");
    run_case(2, "msgstart", "threads");
}

static const char *broken_path;

static void break_second_backend(struct desc *desc)
{
    static struct desc_backend backends[2];
    memcpy(backends, desc->backends, sizeof backends);
    backends[1].path = broken_path;
    desc->backends = backends;
}

static void groups_meet_after_a_failure_of_one_member(void **state)
{
    struct fake_job job;
    (void)state;
    fake_init(&job, 2);
    fake_backend(&job, "msgstart", "msgstart.so");
    fake_backend(&job, "msg", "msg.so");
    fake_group(&job, "world", 0, NULL, 0);
    fake_option(&job, &fake_workload(&job, "api", "api.so")->params, "do", "fallback");
    job.desc.rendezvous_timeout_ns = 500000000;
    broken_path = fake_path(&job, "msg_probe.so");
    job.changed_rank = 1;
    job.change_desc = break_second_backend;
    assert_int_equal(fake_run(&job), 0);
    fake_fini(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_and_the_job_are_asked),
        cmocka_unit_test(descriptors_run),
        cmocka_unit_test(a_request_is_polled),
        cmocka_unit_test(any_request_is_waited_for),
        cmocka_unit_test(the_failed_request_is_named),
        cmocka_unit_test(a_group_is_aborted),
        cmocka_unit_test(receives_learn_what_came),
        cmocka_unit_test(backends_without_envelopes_are_named),
        cmocka_unit_test(threads_share_a_group),
        cmocka_unit_test(groups_meet_after_a_failure_of_one_member),
    };
    return cmocka_run_group_tests_name("engine_api", tests, NULL, NULL);
}
