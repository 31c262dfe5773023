/* SPDX-License-Identifier: Apache-2.0
 *
 * Which of several endings is the root cause, and the exit code that follows from it: a table of
 * situations.
 */
#include "watch/cause.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define EXIT(code) ((code) << 8)

static struct desc_host host = {.name = "here", .nranks = 4};
static struct desc_rank places[4];
static uint32_t everybody[] = {0, 1, 2, 3};
static struct desc_workload workload = {.name = "train", .ranks = {everybody, 4}};
static struct seen_group came = {.name = "dp", .started = 7, .done = 6, .kind = COLLRUN_ALLREDUCE};
static struct seen_group inside = {
    .name = "dp", .started = 7, .done = 6, .age_ns = 9, .kind = COLLRUN_ALLREDUCE};
static struct seen_group absent = {
    .name = "dp", .started = 6, .done = 6, .kind = COLLRUN_ALLREDUCE};
static struct seen_group elsewhere = {.name = "world", .started = 1};
static const struct desc desc = {.hosts = &host,
                                 .nhosts = 1,
                                 .ranks = places,
                                 .nranks = 4,
                                 .workloads = &workload,
                                 .nworkloads = 1};

struct situation {
    const char *name;
    struct rank_state ranks[4];
    uint32_t culprit;
    enum cause_class class;
    int exit_code;
    const char *says;
};

#define GOOD                                                                                       \
    {                                                                                              \
        .stage = STAGE_FINISHING, .exited = true                                                   \
    }
#define SIGN(t)                                                                                    \
    .stage = STAGE_RUNNING, .sign_stage = STAGE_RUNNING, .exited = true, .sign_ns = (t),           \
    .workload = UINT32_MAX
#define FAILED(code_)                                                                              \
    .failed = true, .phase = WIRE_PHASE_RUN, .failure = {.code = (code_), .text = "why"}

static const struct situation situations[] = {
    {"a good job", {GOOD, GOOD, GOOD, GOOD}, WIRE_HOST, CAUSE_NONE, 0, ""},
    {"an exit code beats its consequences",
     {{SIGN(5), FAILED(COLLRUN_ERR_PEER_FAILED), .status = EXIT(1)},
      {SIGN(9), .status = EXIT(7)},
      GOOD,
      GOOD},
     1,
     CAUSE_EXIT,
     7,
     "exited with code 7"},
    {"a signal beats an exit code that came first",
     {{SIGN(5), .status = EXIT(3)}, GOOD, {SIGN(6), .status = SIGSEGV}, GOOD},
     2,
     CAUSE_SIGNAL,
     139,
     "signal 11 (SIGSEGV)"},
    {"a crash while cleaning up is a consequence",
     {{SIGN(5), .status = EXIT(7)}, {SIGN(6), .told = true, .status = SIGABRT}, GOOD, GOOD},
     0,
     CAUSE_EXIT,
     7,
     "code 7"},
    {"a SIGKILL from outside counts even after the stop",
     {{SIGN(5), FAILED(COLLRUN_ERR_PEER_FAILED), .status = EXIT(1)},
      {SIGN(6), .told = true, .status = SIGKILL},
      GOOD,
      GOOD},
     1,
     CAUSE_SIGNAL,
     137,
     "sender unknown"},
    {"a SIGKILL for lack of memory beats a crash that came first",
     {{SIGN(5), .status = SIGSEGV},
      GOOD,
      {SIGN(9), .memory = "the host has no more", .max_rss = 3 << 20, .status = SIGKILL},
      GOOD},
     2,
     CAUSE_OOM,
     137,
     "rank 2 (here, pid 0), workload \"train\", was killed by the kernel for lack of memory (the "
     "host "
     "has no more; it held up to 3MiB) while it was running"},
    {"a group's time-out: who has not come",
     {{SIGN(5), FAILED(COLLRUN_ERR_TIMEOUT), .group = "dp", .operation = 7, .status = EXIT(1),
       .seen = {.groups = &came, .n = 1}},
      {.stage = STAGE_RUNNING, .seen = {.groups = &absent, .n = 1}},
      {.stage = STAGE_RUNNING, .seen = {.groups = &came, .n = 1}},
      {.stage = STAGE_RUNNING, .seen = {.groups = &elsewhere, .n = 1}}},
     0,
     CAUSE_TIMEOUT,
     1,
     "why; rank 1 has not called it"},
    {"a workload's time-out: whom it waited for",
     {{SIGN(5), FAILED(COLLRUN_ERR_TIMEOUT), .status = EXIT(124),
       .seen = {.groups = &inside, .n = 1}},
      {.stage = STAGE_RUNNING, .seen = {.groups = &inside, .n = 1}},
      {.stage = STAGE_RUNNING, .seen = {.groups = &absent, .n = 1}},
      {.stage = STAGE_RUNNING, .seen = {.groups = &elsewhere, .n = 1}}},
     0,
     CAUSE_TIMEOUT,
     124,
     "why; rank 2 has not called dp#7"},
    {"collrun's own SIGKILL does not",
     {{SIGN(5), FAILED(COLLRUN_ERR_INVALID), .status = EXIT(1)},
      {SIGN(6), .told = true, .killed = true, .status = SIGKILL},
      GOOD,
      GOOD},
     0,
     CAUSE_EXIT,
     1,
     "why"},
    {"of two exit codes, the first",
     {GOOD, {SIGN(8), .status = EXIT(9)}, GOOD, {SIGN(5), .status = EXIT(4)}},
     3,
     CAUSE_EXIT,
     4,
     "rank 3"},
    {"a plugin that cannot be loaded",
     {GOOD,
      {SIGN(8), .failed = true, .phase = WIRE_PHASE_LOAD,
       .failure = {.code = COLLRUN_ERR_NOT_FOUND, .text = "no such file"}, .status = EXIT(126)},
      GOOD,
      {SIGN(5), .status = EXIT(4)}},
     1,
     CAUSE_LAUNCH,
     126,
     "no such file"},
    {"a process that could not be started",
     {{SIGN(8), .failed = true, .phase = WIRE_PHASE_LOAD,
       .failure = {.code = COLLRUN_ERR_SYSTEM, .text = "exec"}, .status = EXIT(127)},
      GOOD,
      GOOD,
      GOOD},
     0,
     CAUSE_LAUNCH,
     125,
     "exec"},
    {"a group that does not form in time",
     {{SIGN(8), .failed = true, .phase = WIRE_PHASE_GROUPS,
       .failure = {.code = COLLRUN_ERR_TIMEOUT, .text = "late"}, .status = EXIT(1)},
      GOOD,
      GOOD,
      GOOD},
     0,
     CAUSE_TIMEOUT,
     124,
     "late"},
    {"an operation's time-out is the workload's own error",
     {{SIGN(8), FAILED(COLLRUN_ERR_TIMEOUT), .status = EXIT(1)}, GOOD, GOOD, GOOD},
     0,
     CAUSE_TIMEOUT,
     1,
     "why"},
    {"leaving early with 0 is a failure",
     {GOOD, GOOD, {SIGN(3), .status = EXIT(0)}, GOOD},
     2,
     CAUSE_EXIT,
     1,
     "left the job early"},
    {"all only blame each other",
     {{SIGN(5), FAILED(COLLRUN_ERR_PEER_FAILED), .status = EXIT(1)},
      {SIGN(4), FAILED(COLLRUN_ERR_ABORTED), .status = EXIT(2)},
      GOOD,
      GOOD},
     1,
     CAUSE_PEER,
     2,
     "why"},
};

static void the_root_cause_is_found(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof situations / sizeof *situations; i++) {
        const struct situation *s = &situations[i];
        struct verdict none = {.class = CAUSE_NONE, .rank = WIRE_HOST}, v;
        cause_find(&desc, s->ranks, &none, 0, &v);
        print_message("# %s: class %d, rank %u, exit %d: %s\n", s->name, (int)v.class, v.rank,
                      v.exit_code, v.diag.text);
        assert_int_equal(v.class, s->class);
        assert_int_equal(v.rank, s->culprit);
        assert_int_equal(v.exit_code, s->exit_code);
        assert_non_null(strstr(v.diag.text, s->says));
    }
}

static void a_cause_that_is_no_rank_s(void **state)
{
    (void)state;
    struct rank_state told[4] = {{SIGN(9), .told = true, .status = EXIT(1)},
                                 {SIGN(9), FAILED(COLLRUN_ERR_ABORTED), .told = true},
                                 {SIGN(9), .killed = true, .status = SIGKILL},
                                 GOOD};
    struct verdict job = {.class = CAUSE_TIMEOUT, .exit_code = 124, .rank = WIRE_HOST}, v;
    char others[256];
    cause_find(&desc, told, &job, 5, &v);
    assert_int_equal(v.exit_code, 124);
    cause_consequences(&desc, told, &v, others, sizeof others);
    assert_string_equal(
        others, "rank 1 failed because of it; rank 0 stopped when told to; rank 2 had to be "
                "killed by collrun");
    /* Two that failed by themselves, as under on_failure: continue. */
    struct rank_state both[4] = {
        {SIGN(7), .status = SIGSEGV}, GOOD, {SIGN(8), .status = EXIT(3)}, GOOD};
    const struct verdict nothing = {.class = CAUSE_NONE, .rank = WIRE_HOST};
    cause_find(&desc, both, &nothing, 0, &v);
    cause_consequences(&desc, both, &v, others, sizeof others);
    assert_int_equal(v.rank, 0);
    assert_string_equal(others, "rank 2 also failed");
    /* A rank's signal, though it came later, says more than the lost host that it took along. */
    struct rank_state crashed[4] = {GOOD, {SIGN(9), .status = SIGBUS}, GOOD, GOOD};
    job.class = CAUSE_HOST_LOST;
    cause_find(&desc, crashed, &job, 5, &v);
    assert_int_equal(v.exit_code, 128 + SIGBUS);
    /* Ctrl-C is what the user did: nothing outranks it. */
    job = (struct verdict){.class = CAUSE_INTERRUPTED, .exit_code = 130, .rank = WIRE_HOST};
    cause_find(&desc, crashed, &job, 5, &v);
    assert_int_equal(v.exit_code, 130);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_root_cause_is_found),
        cmocka_unit_test(a_cause_that_is_no_rank_s),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
