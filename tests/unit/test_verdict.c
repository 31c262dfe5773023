/* SPDX-License-Identifier: Apache-2.0
 *
 * Which of several endings is the root cause, which ranks are the culprits, and the exit code that
 * follows: tables of situations with the expected answer.
 */
#include "diagnose/mismatch.h"
#include "diagnose/verdict.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define EXIT(code) ((code) << 8)

static struct desc_host host = {.name = "here", .nranks = 4};
static struct desc_rank rank_places[4];
static uint32_t all_ranks[] = {0, 1, 2, 3};
static struct desc_workload workload = {.name = "train", .ranks = {all_ranks, 4}};
static struct group_snapshot called = {
    .name = "dp", .started = 7, .done = 6, .kind = COLLRUN_ALLREDUCE};
static struct group_snapshot inside = {
    .name = "dp", .started = 7, .done = 6, .age_ns = 9, .kind = COLLRUN_ALLREDUCE};
static struct group_snapshot earlier = {
    .name = "dp", .started = 6, .done = 5, .age_ns = 9, .kind = COLLRUN_ALLREDUCE};
static struct group_snapshot not_called = {
    .name = "dp", .started = 6, .done = 6, .kind = COLLRUN_ALLREDUCE};
static struct group_snapshot elsewhere = {.name = "world", .started = 1};
static const struct desc desc = {.hosts = &host,
                                 .nhosts = 1,
                                 .ranks = rank_places,
                                 .nranks = 4,
                                 .workloads = &workload,
                                 .nworkloads = 1};

struct situation {
    const char *name;
    struct rank_state ranks[4];
    uint32_t culprit;
    enum cause_class class;
    int exit_code;
    const char *text;
};

#define GOOD                                                                                       \
    {                                                                                              \
        .phase = PHASE_FINISHING, .exited = true                                                   \
    }
#define FAILED_AT(t)                                                                               \
    .phase = PHASE_RUNNING, .first_failure_phase = PHASE_RUNNING, .exited = true,                  \
    .first_failure_ns = (t), .workload = UINT32_MAX
#define FAILED(code_)                                                                              \
    .failed = true, .failed_phase = WIRE_PHASE_RUN, .failure = {.code = (code_), .text = "why"}
#define OF_WORKLOAD(t)                                                                             \
    .phase = PHASE_RUNNING, .first_failure_phase = PHASE_RUNNING, .exited = true,                  \
    .first_failure_ns = (t), .workload = 0, .failed = true, .failed_phase = WIRE_PHASE_RUN

static const struct situation situations[] = {
    {"a good job", {GOOD, GOOD, GOOD, GOOD}, WIRE_HOST, CAUSE_NONE, 0, ""},
    {"an exit code beats its consequences",
     {{FAILED_AT(5), FAILED(COLLRUN_ERR_PEER_FAILED), .status = EXIT(1)},
      {FAILED_AT(9), .status = EXIT(7)},
      GOOD,
      GOOD},
     1,
     CAUSE_EXIT,
     7,
     "exited with code 7"},
    {"a signal beats an exit code that came first",
     {{FAILED_AT(5), .status = EXIT(3)}, GOOD, {FAILED_AT(6), .status = SIGSEGV}, GOOD},
     2,
     CAUSE_SIGNAL,
     139,
     "signal 11 (SIGSEGV)"},
    {"a crash while cleaning up is a consequence",
     {{FAILED_AT(5), .status = EXIT(7)},
      {FAILED_AT(6), .stop_requested = true, .disturbed = true, .status = SIGABRT},
      GOOD,
      GOOD},
     0,
     CAUSE_EXIT,
     7,
     "code 7"},
    {"an own exit code counts after the stop, if the first failure has not reached the rank",
     {{FAILED_AT(5), FAILED(COLLRUN_ERR_INVALID), .status = EXIT(1)},
      {FAILED_AT(6), .stop_requested = true, .status = EXIT(7)},
      {FAILED_AT(7), .stop_requested = true, .disturbed = true, .status = EXIT(9)},
      GOOD},
     1,
     CAUSE_EXIT,
     7,
     "rank 1 (here), workload \"train\", exited with code 7"},
    {"a rank that exits on collrun's SIGTERM does not count",
     {{FAILED_AT(5), .status = EXIT(7)},
      {FAILED_AT(6), .stop_requested = true, .killed = true, .status = EXIT(7)},
      GOOD,
      GOOD},
     0,
     CAUSE_EXIT,
     7,
     "rank 0 (here), workload \"train\", exited with code 7"},
    {"a rank that a job continues without, and that exits with 0",
     {{FAILED_AT(6), FAILED(COLLRUN_ERR_PEER_FAILED), .status = EXIT(1)},
      {.phase = PHASE_FINISHING,
       .first_failure_phase = PHASE_RUNNING,
       .first_failure_ns = 5,
       .exited = true},
      GOOD,
      GOOD},
     1,
     CAUSE_EXIT,
     1,
     "exited with code 0 while it was running"},
    {"a time-out beats the good end of a rank that had called collrun_finalize",
     {{FAILED_AT(5), FAILED(COLLRUN_ERR_TIMEOUT), .status = EXIT(1)},
      {FAILED_AT(6), .command = true, .finalizing = true, .stop_requested = true},
      GOOD,
      GOOD},
     0,
     CAUSE_TIMEOUT,
     124,
     "why"},
    {"a SIGKILL from outside counts even after the stop",
     {{FAILED_AT(5), FAILED(COLLRUN_ERR_PEER_FAILED), .status = EXIT(1)},
      {FAILED_AT(6), .stop_requested = true, .status = SIGKILL},
      GOOD,
      GOOD},
     1,
     CAUSE_SIGNAL,
     137,
     "sender unknown"},
    {"a SIGKILL for lack of memory beats a crash that came first",
     {{FAILED_AT(5), .status = SIGSEGV},
      GOOD,
      {FAILED_AT(9), .memory = "the host ran out of memory", .max_rss = 3 << 20, .status = SIGKILL},
      GOOD},
     2,
     CAUSE_OOM,
     137,
     "rank 2 (here), workload \"train\", was killed by the kernel for lack of memory (the "
     "host ran out of memory; it held up to 3MiB) while it was running"},
    {"a group's time-out: who has not come",
     {{FAILED_AT(5), FAILED(COLLRUN_ERR_TIMEOUT), .group = "dp", .operation = 7, .status = EXIT(1),
       .snapshot = {.groups = &called, .n = 1}},
      {.phase = PHASE_RUNNING, .snapshot = {.groups = &not_called, .n = 1}},
      {.phase = PHASE_RUNNING, .snapshot = {.groups = &called, .n = 1}},
      {.phase = PHASE_RUNNING, .snapshot = {.groups = &elsewhere, .n = 1}}},
     0,
     CAUSE_MISSING,
     124,
     "why; rank 1 has not called it"},
    {"a group's time-out: all have called it, and one is stopped in it",
     {{FAILED_AT(5), FAILED(COLLRUN_ERR_TIMEOUT), .group = "dp", .operation = 7, .status = EXIT(1),
       .snapshot = {.groups = &called, .n = 1}},
      {.phase = PHASE_RUNNING, .snapshot = {.groups = &called, .n = 1}},
      {.phase = PHASE_RUNNING, .snapshot = {.groups = &inside, .n = 1, .state = 'T'}},
      {.phase = PHASE_RUNNING, .snapshot = {.groups = &called, .n = 1}}},
     0,
     CAUSE_MISSING,
     124,
     "why; rank 2 has been stopped by a signal"},
    {"a group's time-out: one is stopped in an earlier operation, and the others wait for it there",
     {{FAILED_AT(5), FAILED(COLLRUN_ERR_TIMEOUT), .group = "dp", .operation = 7, .status = EXIT(1),
       .snapshot = {.groups = &called, .n = 1}},
      {.phase = PHASE_RUNNING, .snapshot = {.groups = &earlier, .n = 1}},
      {.phase = PHASE_RUNNING, .snapshot = {.groups = &earlier, .n = 1, .state = 'T'}},
      {.phase = PHASE_RUNNING, .snapshot = {.groups = &called, .n = 1}}},
     0,
     CAUSE_MISSING,
     124,
     "why; ranks 1-2 have not called it; rank 2 has been stopped by a signal"},
    {"a workload's time-out: whom it waited for",
     {{FAILED_AT(5), FAILED(COLLRUN_ERR_TIMEOUT), .status = EXIT(124),
       .snapshot = {.groups = &inside, .n = 1}},
      {.phase = PHASE_RUNNING, .snapshot = {.groups = &inside, .n = 1}},
      {.phase = PHASE_RUNNING, .snapshot = {.groups = &not_called, .n = 1}},
      {.phase = PHASE_RUNNING, .snapshot = {.groups = &elsewhere, .n = 1}}},
     0,
     CAUSE_MISSING,
     124,
     "why; rank 2 has not called dp#7"},
    {"collrun's own SIGKILL does not",
     {{FAILED_AT(5), FAILED(COLLRUN_ERR_INVALID), .status = EXIT(1)},
      {FAILED_AT(6), .stop_requested = true, .killed = true, .status = SIGKILL},
      GOOD,
      GOOD},
     0,
     CAUSE_ERROR,
     1,
     "why"},
    {"of two exit codes, the first",
     {GOOD, {FAILED_AT(8), .status = EXIT(9)}, GOOD, {FAILED_AT(5), .status = EXIT(4)}},
     3,
     CAUSE_EXIT,
     4,
     "rank 3"},
    {"a plugin that cannot be loaded",
     {GOOD,
      {FAILED_AT(8), .failed = true, .failed_phase = WIRE_PHASE_LOAD,
       .failure = {.code = COLLRUN_ERR_NOT_FOUND, .text = "no such file"}, .status = EXIT(126)},
      GOOD,
      {FAILED_AT(5), .status = EXIT(4)}},
     1,
     CAUSE_LAUNCH,
     126,
     "no such file"},
    {"a process that could not be started",
     {{FAILED_AT(8), .failed = true, .failed_phase = WIRE_PHASE_LOAD,
       .failure = {.code = COLLRUN_ERR_SYSTEM, .text = "exec"}, .status = EXIT(127)},
      GOOD,
      GOOD,
      GOOD},
     0,
     CAUSE_LAUNCH,
     125,
     "exec"},
    {"a text that names its workload is printed as it is",
     {{OF_WORKLOAD(5), .subject = WIRE_SUBJECT_WORKLOAD, .status = EXIT(1),
       .failure = {.code = COLLRUN_ERR_INVALID, .text = "workload \"train\" ended its thread"}},
      GOOD,
      GOOD,
      GOOD},
     0,
     CAUSE_ERROR,
     1,
     "rank 0 (here): workload \"train\" ended"},
    {"any other text gets the workload's name, whatever its first word is",
     {{OF_WORKLOAD(5), .subject = WIRE_SUBJECT_RANK, .status = EXIT(1),
       .failure = {.code = COLLRUN_ERR_INVALID, .text = "workload of the day"}},
      GOOD,
      GOOD,
      GOOD},
     0,
     CAUSE_ERROR,
     1,
     "rank 0 (here), workload \"train\": workload of the day"},
    {"a group that does not form in time",
     {{FAILED_AT(8), .failed = true, .failed_phase = WIRE_PHASE_GROUPS,
       .failure = {.code = COLLRUN_ERR_TIMEOUT, .text = "late"}, .status = EXIT(1)},
      GOOD,
      GOOD,
      GOOD},
     0,
     CAUSE_TIMEOUT,
     124,
     "late"},
    {"an operation's time-out, not the code of the rank that reports it",
     {{FAILED_AT(8), FAILED(COLLRUN_ERR_TIMEOUT), .status = EXIT(1)}, GOOD, GOOD, GOOD},
     0,
     CAUSE_TIMEOUT,
     124,
     "why"},
    {"leaving early with 0 is a failure",
     {GOOD, GOOD, {FAILED_AT(3), .status = EXIT(0)}, GOOD},
     2,
     CAUSE_EXIT,
     1,
     "left the job early"},
    {"all only blame each other",
     {{FAILED_AT(5), FAILED(COLLRUN_ERR_PEER_FAILED), .status = EXIT(1)},
      {FAILED_AT(4), FAILED(COLLRUN_ERR_ABORTED), .status = EXIT(2)},
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
    struct arena arena;
    arena_init(&arena);
    for (size_t i = 0; i < sizeof situations / sizeof *situations; i++) {
        const struct situation *s = &situations[i];
        const struct evidence e = {&desc, s->ranks, {.class = CAUSE_NONE}};
        struct verdict v;
        verdict_find(&e, &arena, &v);
        print_message("# %s: class %d, rank %u, exit %d: %s\n", s->name, (int)v.class, v.rank,
                      v.exit_code, v.diag.text);
        assert_int_equal(v.class, s->class);
        assert_int_equal(v.rank, s->culprit);
        assert_int_equal(v.exit_code, s->exit_code);
        assert_non_null(strstr(v.diag.text, s->text));
    }
    arena_fini(&arena);
}

static void a_cause_that_is_no_rank_s(void **state)
{
    (void)state;
    struct rank_state stopped[4] = {
        {FAILED_AT(9), .stop_requested = true, .status = EXIT(1)},
        {FAILED_AT(9), FAILED(COLLRUN_ERR_ABORTED), .stop_requested = true},
        {FAILED_AT(9), .killed = true, .status = SIGKILL},
        GOOD};
    struct evidence e = {&desc, stopped, {.class = CAUSE_TIMEOUT, .exit_code = 124, .ns = 5}};
    struct verdict v;
    struct arena arena;
    char others[256];
    arena_init(&arena);
    verdict_find(&e, &arena, &v);
    assert_int_equal(v.exit_code, 124);
    verdict_other_ranks(&e, &v, others, sizeof others);
    assert_string_equal(others,
                        "rank 1 failed because of it; rank 0 stopped on request; rank 2 had to be "
                        "killed by collrun");
    /* Two ranks fail independently, as under on_failure: continue. */
    struct rank_state both[4] = {
        {FAILED_AT(7), .status = SIGSEGV}, GOOD, {FAILED_AT(8), .status = EXIT(3)}, GOOD};
    e = (struct evidence){&desc, both, {.class = CAUSE_NONE}};
    verdict_find(&e, &arena, &v);
    verdict_other_ranks(&e, &v, others, sizeof others);
    assert_int_equal(v.rank, 0);
    assert_string_equal(others, "rank 2 also failed");
    /* The job has continued without the first one, and stops because of the second one. */
    both[0].left_out = true;
    verdict_find(&e, &arena, &v);
    verdict_other_ranks(&e, &v, others, sizeof others);
    assert_int_equal(v.rank, 2);
    assert_int_equal(v.exit_code, 3);
    assert_int_equal(v.culprits.n, 1);
    assert_string_equal(others, "rank 0 also failed");
    /* It has continued without both; or the second one has failed because of the first one. */
    both[2].left_out = true;
    verdict_find(&e, &arena, &v);
    assert_int_equal(v.rank, 0);
    both[2] = (struct rank_state){FAILED_AT(8), FAILED(COLLRUN_ERR_PEER_FAILED), .status = EXIT(1)};
    verdict_find(&e, &arena, &v);
    assert_int_equal(v.rank, 0);
    /* A rank has sent what its workload has returned, and will exit with that. */
    struct rank_state early[4] = {
        {.phase = PHASE_RUNNING, FAILED(75), .subject = WIRE_SUBJECT_WORKLOAD}, GOOD, GOOD, GOOD};
    early[0].first_failure_ns = 7;
    e = (struct evidence){&desc, early, {.class = CAUSE_NONE}};
    verdict_find(&e, &arena, &v);
    assert_int_equal(v.class, CAUSE_EXIT);
    assert_int_equal(v.exit_code, 75);
    /* A rank killed by a signal is a stronger cause than the lost host, even if it was reported
     * later. */
    struct rank_state crashed[4] = {GOOD, {FAILED_AT(9), .status = SIGBUS}, GOOD, GOOD};
    e = (struct evidence){&desc, crashed, {.class = CAUSE_HOST_LOST, .exit_code = 127, .ns = 5}};
    verdict_find(&e, &arena, &v);
    assert_int_equal(v.exit_code, 128 + SIGBUS);
    /* Ctrl-C is what the user did: nothing outranks it. */
    e.job = (struct job_failure){.class = CAUSE_INTERRUPTED, .exit_code = 130};
    verdict_find(&e, &arena, &v);
    assert_int_equal(v.exit_code, 130);
    arena_fini(&arena);
}

/* ---- culprits ---- */

static struct group_snapshot op(const char *group, uint64_t number, bool inside_it,
                                struct collrun_call call)
{
    struct group_snapshot g = {.started = number,
                               .done = inside_it ? number - 1 : number,
                               .age_ns = 9,
                               .count = call.count,
                               .root_or_peer = call.root,
                               .kind = (uint8_t)call.kind,
                               .dtype = (uint8_t)call.dtype,
                               .op = (uint8_t)call.op};
    snprintf(g.name, sizeof g.name, "%s", group);
    return g;
}

static void is_list(const struct desc_ranks *list, const char *expected)
{
    char text[64] = "";
    for (uint32_t i = 0; i < list->n; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%u", i ? "," : "",
                 list->items[i]);
    assert_string_equal(text, expected);
}

static struct verdict verdict_of(struct rank_state *ranks, struct job_failure job,
                                 struct arena *arena)
{
    const struct evidence e = {&desc, ranks, job};
    struct verdict v;
    verdict_find(&e, arena, &v);
    print_message("# %s\n", v.diag.text);
    return v;
}

#define NO_JOB                                                                                     \
    (struct job_failure)                                                                           \
    {                                                                                              \
        .class = CAUSE_NONE                                                                        \
    }
#define RETURNED(t, code_)                                                                         \
    {                                                                                              \
        OF_WORKLOAD(t), .subject = WIRE_SUBJECT_WORKLOAD, .status = EXIT(code_), .failure = {      \
            .code = (code_),                                                                       \
            .text = "workload \"train\" returned it"                                               \
        }                                                                                          \
    }

static void ranks_that_fail_alike_are_all_culprits(void **state)
{
    (void)state;
    struct arena arena;
    arena_init(&arena);
    struct rank_state all[4] = {RETURNED(5, 7), RETURNED(6, 7), RETURNED(4, 7), RETURNED(9, 7)};
    for (int i = 0; i < 4; i++)
        all[i].stop_requested = i != 2; /* rank 2 was first */
    struct verdict v = verdict_of(all, NO_JOB, &arena);
    is_list(&v.culprits, "0,1,2,3");
    assert_string_equal(v.diag.text, "all 4 ranks: workload \"train\" returned it");
    char others[256];
    const struct evidence e = {&desc, all, NO_JOB};
    verdict_other_ranks(&e, &v, others, sizeof others);
    assert_string_equal(others, "");
    /* A call of one of them failed: it is no culprit. Another has another code: it is one. */
    all[1].failure.code = COLLRUN_ERR_PEER_FAILED;
    all[3].failure.code = 9;
    all[3].status = EXIT(9);
    v = verdict_of(all, NO_JOB, &arena);
    is_list(&v.culprits, "0,2,3");
    assert_string_equal(v.diag.text, "ranks 0 and 2: workload \"train\" returned it");
    verdict_other_ranks(&e, &v, others, sizeof others);
    assert_string_equal(others, "rank 3 also failed; rank 1 failed because of it");
    /* Each of three exceeded the time-out of the workload. */
    for (int i = 0; i < 4; i++) {
        all[i].failure.code = i == 1 ? COLLRUN_ERR_ABORTED : COLLRUN_ERR_TIMEOUT;
        all[i].status = EXIT(124);
    }
    v = verdict_of(all, NO_JOB, &arena);
    is_list(&v.culprits, "0,2,3");
    assert_string_equal(v.diag.text, "ranks 0 and 2-3: workload \"train\" returned it");
    verdict_other_ranks(&e, &v, others, sizeof others);
    assert_string_equal(others, "rank 1 failed because of it");
    arena_fini(&arena);
}

static void the_minority_of_a_mismatch_is_the_culprit(void **state)
{
    (void)state;
    static const struct collrun_call
        sum = {.kind = COLLRUN_ALLREDUCE, .count = 8, .op = COLLRUN_SUM, .dtype = COLLRUN_FLOAT32},
        max = {.kind = COLLRUN_ALLREDUCE, .count = 8, .op = COLLRUN_MAX, .dtype = COLLRUN_FLOAT32};
    struct arena arena;
    arena_init(&arena);
    for (uint32_t odd = 0; odd < 4; odd++) {
        for (uint32_t first = 0; first < 4; first++) { /* any rank may report it */
            struct group_snapshot groups[4];
            struct rank_state ranks[4] = {{0}};
            for (uint32_t i = 0; i < 4; i++) {
                groups[i] = op("dp", 501, true, i == odd ? max : sum);
                ranks[i] = (struct rank_state){FAILED_AT(i == first ? 1 : 5 + i),
                                               FAILED(COLLRUN_ERR_MISMATCH), .group = "dp",
                                               .operation = 501, .status = EXIT(1)};
                ranks[i].stop_requested = i != first;
                ranks[i].snapshot = (struct rank_snapshot){.groups = &groups[i], .n = 1};
                snprintf(ranks[i].failure.text, sizeof ranks[i].failure.text,
                         "allreduce dp#501: rank %u calls one thing, another rank another", first);
            }
            struct verdict v = verdict_of(ranks, NO_JOB, &arena);
            char culprit[8];
            snprintf(culprit, sizeof culprit, "%u", odd);
            assert_int_equal(v.class, CAUSE_MISMATCH);
            is_list(&v.culprits, culprit);
            is_list(&v.suspects, "");
            assert_string_equal(v.field, "op");
            assert_string_equal(v.group, "dp");
            assert_int_equal(v.number, 501);
            assert_int_equal(v.ncalls, 2);
            assert_string_equal(v.calls[odd == 0].call, "allreduce(8 x float32, sum)");
            /* Two against two: no rank is. */
            groups[(odd + 1) % 4] = groups[odd];
            v = verdict_of(ranks, NO_JOB, &arena);
            is_list(&v.culprits, "");
            is_list(&v.suspects, "0,1,2,3");
        }
    }
    arena_fini(&arena);
}

/* Rank 0 waits in dp for rank 1, which waits in tp for rank 2, which sleeps. */
static void the_missing_rank_is_found_behind_other_groups(void **state)
{
    (void)state;
    static const struct collrun_call barrier = {.kind = COLLRUN_BARRIER, .root = -1};
    struct arena arena;
    arena_init(&arena);
    struct group_snapshot zero[] = {op("dp", 7, true, barrier)},
                          one[] = {op("dp", 6, false, barrier), op("tp", 3, true, barrier)},
                          two[] = {op("tp", 2, false, barrier)},
                          three[] = {op("dp", 7, true, barrier)};
    struct rank_state ranks[4] = {{FAILED_AT(5), FAILED(COLLRUN_ERR_TIMEOUT), .group = "dp",
                                   .operation = 7, .status = EXIT(1)},
                                  {.phase = PHASE_RUNNING},
                                  {.phase = PHASE_RUNNING},
                                  {.phase = PHASE_RUNNING}};
    ranks[0].snapshot = (struct rank_snapshot){.groups = zero, .n = 1};
    ranks[1].snapshot = (struct rank_snapshot){.groups = one, .n = 2};
    ranks[2].snapshot = (struct rank_snapshot){.groups = two, .n = 1};
    ranks[3].snapshot = (struct rank_snapshot){.groups = three, .n = 1};
    struct verdict v = verdict_of(ranks, NO_JOB, &arena);
    assert_int_equal(v.class, CAUSE_MISSING);
    is_list(&v.culprits, "2");
    assert_string_equal(v.group, "tp");
    assert_int_equal(v.number, 3);
    assert_int_equal(v.nwaits, 2);
    is_list(&v.waits[0].ranks, "0,3");
    is_list(&v.waits[0].waited_for, "1");
    assert_non_null(strstr(v.diag.text, "rank 2 has not called tp#3"));
    /* The same at the end of timeouts.run, which no rank reports. */
    ranks[0] = (struct rank_state){.phase = PHASE_RUNNING, .snapshot = {.groups = zero, .n = 1}};
    v = verdict_of(ranks, (struct job_failure){.class = CAUSE_TIMEOUT, .exit_code = 124}, &arena);
    assert_int_equal(v.class, CAUSE_MISSING);
    is_list(&v.culprits, "2");
    assert_int_equal(v.exit_code, 124);
    arena_fini(&arena);
}

static void members_that_disagree_about_a_new_group(void **state)
{
    (void)state;
    struct arena arena;
    arena_init(&arena);
    struct rank_state ranks[4] = {{FAILED_AT(5), FAILED(COLLRUN_ERR_MISMATCH), .status = EXIT(1)}};
    diag_set(&ranks[0].failure, COLLRUN_ERR_MISMATCH,
             "group \"x\": ranks disagree about the backend: rank 0 has shm, rank 1 has tcp");
    struct verdict v = verdict_of(ranks, NO_JOB, &arena);
    assert_int_equal(v.class, CAUSE_MISMATCH);
    is_list(&v.suspects, "0,1");
    assert_null(v.field); /* no argument differs */
    arena_fini(&arena);
}

/* A group that a workload creates. The ranks that report the time-out have waited. */
static void a_group_that_is_created_misses_ranks(void **state)
{
    (void)state;
    static const struct collrun_call barrier = {.kind = COLLRUN_BARRIER, .root = -1};
    static const struct {
        const char *text, *culprits, *suspects;
        enum cause_class class;
    } cases[] = {
        {"group \"x\": rank 2 of 4 did not join within 2.0 s", "2", "", CAUSE_MISSING},
        {"split: group \"x\": rank 2 of 4 did not join within 2 s", "2", "", CAUSE_MISSING},
        {"group \"x\": ranks 2 and 0-1 of 4 did not join within 2.0 s", "2", "", CAUSE_MISSING},
        {"group \"x\": rank 1 of 2 did not join within 2.0 s", "", "1", CAUSE_TIMEOUT},
        {"group \"x\": rank 3 of 4 did not join within 2.0 s", "", "3", CAUSE_TIMEOUT},
        {"group \"x\": ranks 1 and 9 more of 40 did not join within 2.0 s", "", "", CAUSE_TIMEOUT},
        {"group \"x\": ranks 0-4294967295 of 4 did not join within 2.0 s", "", "", CAUSE_TIMEOUT},
        {"group \"x\": ranks 0-3, 0-3 of 4 did not join within 2.0 s", "", "", CAUSE_TIMEOUT}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct arena arena;
        arena_init(&arena);
        struct group_snapshot waits[] = {op("dp", 7, true, barrier)};
        /* Rank 1 waits in a barrier, and rank 3 for another group. */
        struct rank_state ranks[4] = {
            {FAILED_AT(5), FAILED(COLLRUN_ERR_TIMEOUT), .status = EXIT(1)}};
        ranks[3] = ranks[0];
        snprintf(ranks[0].failure.text, sizeof ranks[0].failure.text, "%s", cases[i].text);
        ranks[1].snapshot = (struct rank_snapshot){.groups = waits, .n = 1};
        struct verdict v = verdict_of(ranks, NO_JOB, &arena);
        assert_int_equal(v.class, cases[i].class);
        is_list(&v.culprits, cases[i].culprits);
        is_list(&v.suspects, cases[i].suspects);
        arena_fini(&arena);
    }
}

static void a_message_of_a_collective_shows_a_part_of_a_mismatch(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool partial;
    } cases[] = {
        {"reduce_scatter g#5: rank 0 calls send(64 x uint8, to 1, tag 2147483648), rank 1 calls "
         "recv(32 x uint8, from 0, tag 2147483648)",
         true},
        {"recv g#5: rank 0 calls send(64 x uint8, to 1, tag 7), rank 1 calls recv(32 x uint8, from "
         "0, tag 7)",
         false},
        {"allreduce g#5: rank 0 calls allreduce(1 x int8, sum), rank 1 calls barrier()", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct rank_state r = {.failed = true};
        diag_set(&r.failure, COLLRUN_ERR_MISMATCH, "%s", cases[i].text);
        assert_int_equal(mismatch_is_partial(&r), cases[i].partial);
        r.failed = false;
        assert_false(mismatch_is_partial(&r));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_root_cause_is_found),
        cmocka_unit_test(a_cause_that_is_no_rank_s),
        cmocka_unit_test(members_that_disagree_about_a_new_group),
        cmocka_unit_test(a_group_that_is_created_misses_ranks),
        cmocka_unit_test(ranks_that_fail_alike_are_all_culprits),
        cmocka_unit_test(the_minority_of_a_mismatch_is_the_culprit),
        cmocka_unit_test(a_message_of_a_collective_shows_a_part_of_a_mismatch),
        cmocka_unit_test(the_missing_rank_is_found_behind_other_groups),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
