/* SPDX-License-Identifier: Apache-2.0
 *
 * collrun_init and collrun_finalize, in real programs (tests/unit/plugins/member.c) on a simulated
 * agent.
 */
#include "fake_agent.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <collrun/types.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void prepare(struct fake_job *job, uint32_t nranks, const char *backend, const char *what)
{
    fake_init(job, nranks);
    bool shm = strcmp(backend, "shm") == 0;
    const char *folder = fake_path(job, "");
    fake_backend(
        job, backend,
        shm ? arena_printf(&job->arena, "%s../../lib/collrun/backends/libcollrun_shm.so", folder)
            : arena_printf(&job->arena, "%s%s.so", folder, backend));
    fake_group(job, "world", 0, NULL, 0);
    fake_workload(job, "train", "")->plugin = "";
    job->program = "member";
    job->program_argument = what;
}

static void run_good(uint32_t nranks, const char *backend, const char *what)
{
    struct fake_job job;
    prepare(&job, nranks, backend, what);
    assert_int_equal(fake_run(&job), 0);
    for (uint32_t i = 0; i < nranks; i++) {
        assert_true(job.ranks[i].attached && job.ranks[i].ready && job.ranks[i].done);
        assert_true(job.ranks[i].idle && !job.ranks[i].failed);
    }
    assert_int_equal(job.scopes_left, 0);
    fake_fini(&job);
}

static void a_program_is_a_member(void **state)
{
    struct fake_job job;
    (void)state;
    run_good(1, "msg", "good");
    run_good(3, "msgstart", "good");
    prepare(&job, 2, "shm", "good");
    assert_int_equal(fake_run(&job), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(job.ranks[i].progress, 1);
        assert_int_equal(job.ranks[i].metrics, 1);
        assert_non_null(strstr((char *)job.ranks[i].logged.data, "train: a member"));
        assert_null(strstr((char *)job.ranks[i].logged.data, "dropped"));
    }
    fake_fini(&job);
}

static void one_thread_and_one_process_join(void **state)
{
    (void)state;
    run_good(2, "shm", "threads");
    run_good(2, "shm", "claim");
}

static void a_forked_child_is_no_member(void **state)
{
    (void)state;
    run_good(1, "shm", "fork");
    run_good(2, "shm", "fork");
    run_good(2, "msgstart", "fork");
}

static void the_end_waits_for_the_others(void **state)
{
    (void)state;
    run_good(3, "shm", "late");
    run_good(3, "msgstart", "late");
}

/* The runner does not know which program becomes a member, so GO may be there before its groups
 * are. The sleeps of "late" are longer than a tick of the service thread, which looks at the task.
 */
static void go_may_come_before_the_groups(void **state)
{
    struct fake_job job;
    (void)state;
    prepare(&job, 3, "shm", "late");
    job.early_go = true;
    assert_int_equal(fake_run(&job), 0);
    assert_true(job.ranks[0].ready && job.ranks[0].idle);
    fake_fini(&job);
}

static void the_end_needs_all_threads_outside(void **state)
{
    (void)state;
    run_good(2, "shm", "inside");
}

static void the_end_may_come_while_groups_are_created(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++)
        run_good(2, "shm", "creates");
}

static void an_exit_code_is_reported(void **state)
{
    struct fake_job job;
    (void)state;
    prepare(&job, 3, "shm", "exit");
    assert_int_equal(fake_run(&job), 1);
    assert_int_equal(job.ranks[1].exit_code, 7);
    assert_true(job.ranks[1].failed && !job.ranks[1].done);
    assert_int_equal(job.ranks[1].failure.code, 7);
    assert_string_equal(job.ranks[1].failure.text, "program \"train\" exited with code 7");
    assert_int_equal(job.ranks[1].failed_phase, WIRE_PHASE_RUN);
    assert_int_equal(job.ranks[1].failed_workload, 0);
    for (int i = 0; i < 3; i += 2) {
        assert_int_equal(job.ranks[i].exit_code, 1);
        assert_int_equal(job.ranks[i].failure.code, COLLRUN_ERR_PEER_FAILED);
    }
    fake_fini(&job);
    prepare(&job, 2, "shm", "fail");
    assert_int_equal(fake_run(&job), 1);
    assert_string_equal(job.ranks[1].failure.text, "the loss is not a number");
    assert_int_equal(job.ranks[1].failed_subject, WIRE_SUBJECT_RANK);
    assert_int_equal(job.ranks[0].failure.code, COLLRUN_ERR_PEER_FAILED);
    fake_fini(&job);
}

/* What a program does after its part is no failure of the part. */
static void a_program_goes_on_after_its_part(void **state)
{
    struct fake_job job;
    (void)state;
    prepare(&job, 2, "shm", "end");
    assert_int_equal(fake_run(&job), 1);
    assert_int_equal(job.ranks[0].exit_code, 5);
    assert_true(job.ranks[0].idle && !job.ranks[0].failed);
    assert_int_equal(job.ranks[1].exit_code, 0);
    fake_fini(&job);
}

/* ThreadSanitizer calls it a race that a program closes a descriptor which a thread reads. */
static void a_closed_connection_does_not_end_a_program(void **state)
{
    struct fake_job job;
    (void)state;
#ifdef __SANITIZE_THREAD__
    skip();
#endif
    prepare(&job, 1, "shm", "close");
    assert_int_equal(fake_run(&job), 1);
    assert_int_equal(job.ranks[0].exit_code, 3);
    fake_fini(&job);
}

static void the_groups_cannot_be_formed(void **state)
{
    struct fake_job job;
    (void)state;
    prepare(&job, 2, "msg_probe", "good");
    assert_int_equal(fake_run(&job), 1);
    assert_true(job.ranks[0].attached && !job.ranks[0].ready);
    assert_int_equal(job.ranks[0].exit_code, 4);
    assert_true(job.ranks[0].failed);
    assert_int_equal(job.ranks[0].failed_phase, WIRE_PHASE_GROUPS);
    assert_string_equal(job.ranks[0].failed_group, "world");
    assert_non_null(strstr(job.ranks[0].failure.text, "is the backend \"msg\""));
    fake_fini(&job);
}

static void without_collrun_it_is_unavailable(void **state)
{
    struct fake_job job;
    char command[4096];
    (void)state;
    fake_init(&job, 1);
    snprintf(command, sizeof command, "%s alone", fake_path(&job, "member"));
    unsetenv("COLLRUN_CONTROL_FD");
    unsetenv("COLLRUN_RANK");
    assert_int_equal(system(command), 0);
    fake_fini(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_program_is_a_member),
        cmocka_unit_test(one_thread_and_one_process_join),
        cmocka_unit_test(a_forked_child_is_no_member),
        cmocka_unit_test(the_end_waits_for_the_others),
        cmocka_unit_test(go_may_come_before_the_groups),
        cmocka_unit_test(the_end_needs_all_threads_outside),
        cmocka_unit_test(the_end_may_come_while_groups_are_created),
        cmocka_unit_test(an_exit_code_is_reported),
        cmocka_unit_test(a_program_goes_on_after_its_part),
        cmocka_unit_test(a_closed_connection_does_not_end_a_program),
        cmocka_unit_test(the_groups_cannot_be_formed),
        cmocka_unit_test(without_collrun_it_is_unavailable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
