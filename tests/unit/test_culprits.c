/* SPDX-License-Identifier: Apache-2.0
 *
 * Which ranks are the culprits of a failure, and which are suspects.
 */
#include "diagnose/mismatch.h"
#include "verdict_job.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

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
    assert_string_equal(
        others, "rank 3 also failed: workload \"train\" returned it; rank 1 failed because of it");
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

/* Ranks 1 to 3 wait for rank 0 when a limit of 2 s passes, in operation `steps` + 1 since `age`. */
static enum cause_class at_limit(uint64_t steps, uint64_t age_ms, bool of_workload)
{
    const uint64_t second = 1000000000;
    const struct collrun_call sum = {.kind = COLLRUN_ALLREDUCE, .count = 8};
    struct group_snapshot late = op("world", steps, false, sum),
                          waits = op("world", steps + 1, true, sum);
    struct rank_state ranks[4];
    struct arena arena;
    arena_init(&arena);
    waits.age_ns = age_ms * second / 1000;
    for (int i = 0; i < 4; i++)
        ranks[i] = (struct rank_state){.phase = PHASE_RUNNING,
                                       .snapshot = {.groups = i ? &waits : &late, .n = 1}};
    if (of_workload) {
        workload.timeout_ns = 2 * second;
        ranks[1] = (struct rank_state)RETURNED(5, 124);
        ranks[1].failure.code = COLLRUN_ERR_TIMEOUT;
        ranks[1].snapshot = (struct rank_snapshot){.groups = &waits, .n = 1};
    }
    const struct verdict v = verdict_of(ranks,
                                        of_workload ? NO_JOB
                                                    : (struct job_failure){.class = CAUSE_TIMEOUT,
                                                                           .exit_code = 124,
                                                                           .limit_ns = 2 * second},
                                        &arena);
    is_list(&v.culprits, v.class == CAUSE_MISSING ? "0" : of_workload ? "1" : "");
    workload.timeout_ns = 0;
    arena_fini(&arena);
    return v.class;
}

static void at_a_time_limit_a_rank_that_computes_is_not_missing(void **state)
{
    static const struct {
        uint64_t steps, age_ms;
        enum cause_class class;
    } cases[] = {
        {60, 30, CAUSE_TIMEOUT},   /* as long as a step */
        {60, 190, CAUSE_TIMEOUT},  /* as six of them, but for less than a tenth of the limit */
        {60, 1000, CAUSE_MISSING}, /* 60 steps in one second, and then none */
        {6, 500, CAUSE_TIMEOUT},   /* twice as long as a step */
        {6, 1500, CAUSE_MISSING},
        {0, 900, CAUSE_TIMEOUT},  /* its first step takes longer than those of the others */
        {0, 1990, CAUSE_MISSING}, /* it has never called anything */
        {1, 1990, CAUSE_MISSING},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int of_workload = 0; of_workload < 2; of_workload++)
            assert_int_equal(at_limit(cases[i].steps, cases[i].age_ms, of_workload),
                             cases[i].class);
}

/* Others wait for rank 1 in calls that are no operations. */
static void ranks_wait_outside_of_operations_at_a_time_limit(void **state)
{
    (void)state;
    const uint64_t second = 1000000000;
    struct rank_state ranks[4] = {{0}};
    struct forming_wait w = {.kind = WIRE_FORMING_FINALIZE,
                             .name = "world",
                             .members = {all_ranks, 4},
                             .since_ns = second};
    struct desc_group world = {.name = "world", .ranks = {all_ranks, 4}};
    struct desc programs = desc;
    struct arena arena;
    struct verdict v;
    arena_init(&arena);
    programs.groups = &world;
    programs.ngroups = 1;
    for (int i = 0; i < 4; i++) {
        ranks[i].phase = PHASE_RUNNING;
        ranks[i].command = true;
        ranks[i].part = i == 1 ? PART_MEMBER : PART_FINALIZING;
        if (i == 0)
            rank_forming_add(&ranks[i].forming, &w);
    }
    ranks[1].end = RANK_EXITED; /* since then */
    ranks[1].stop_requested = true;
    struct evidence e = {
        &programs,
        ranks,
        {.class = CAUSE_TIMEOUT, .exit_code = 124, .ns = 9 * second, .limit_ns = 9 * second}};
    verdict_find(&e, &arena, &v);
    assert_int_equal(v.class, CAUSE_MISSING);
    is_list(&v.culprits, "1");
    assert_string_equal(v.diag.text, "rank 1 has not called collrun_finalize");
    assert_string_equal(v.group, "world");
    assert_null(v.kind);
    is_list(&v.waits[0].waited_for, "1");
    rank_forming_fini(&ranks[0].forming);
    ranks[0].attached_ns = second;
    ranks[0].part = PART_JOINING;
    ranks[1].part = PART_OUTSIDE;
    verdict_find(&e, &arena, &v);
    assert_int_equal(v.class, CAUSE_MISSING);
    is_list(&v.culprits, "1");
    assert_string_equal(v.diag.text, "rank 1 has not called collrun_init");
    arena_fini(&arena);
}

static void members_that_disagree_about_a_new_group(void **state)
{
    (void)state;
    struct arena arena;
    arena_init(&arena);
    struct rank_state ranks[4] = {{FAILED_AT(5), FAILED(COLLRUN_ERR_MISMATCH), .status = EXIT(1)}};
    diag_set(&ranks[0].failure, COLLRUN_ERR_MISMATCH,
             "group \"x\": ranks disagree about the backend or the check: rank 0 has shm, rank 1 "
             "has tcp");
    struct verdict v = verdict_of(ranks, NO_JOB, &arena);
    assert_int_equal(v.class, CAUSE_MISMATCH);
    is_list(&v.suspects, "0,1");
    assert_null(v.field); /* no argument differs */
    arena_fini(&arena);
}

/* Rank 0 got the time-out of its creation of `names[0]`; the others wait in theirs, or did. */
static void members_that_create_different_groups(void **state)
{
    static uint32_t three[] = {0, 1, 2}, turned[] = {2, 1, 0}, pair[] = {2, 3}, two[] = {0, 1};
    static const struct {
        const char *names[3];
        struct desc_ranks members[3];
        int status_of_2; /* 0: it waits; else its wait has ended with it */
        enum cause_class class;
        const char *culprits, *suspects, *field, *text;
    } cases[] = {
        {{"sub", "sub", "subs"},
         {{three, 3}, {three, 3}, {three, 3}},
         0,
         CAUSE_MISMATCH,
         "2",
         "",
         "name",
         "rank 2 (here): members disagree about a new group: ranks 0-1 call "
         "collrun_group_create(\"sub\", ranks 0-2), rank 2 calls collrun_group_create(\"subs\", "
         "ranks 0-2)"},
        {{"sub", "sub", "sub"},
         {{three, 3}, {three, 3}, {turned, 3}},
         COLLRUN_ERR_TIMEOUT,
         CAUSE_MISMATCH,
         "2",
         "",
         "ranks",
         NULL},
        {{"sub", "subs", "subs"},
         {{three, 3}, {three, 3}, {three, 3}},
         0,
         CAUSE_MISMATCH,
         "0",
         "",
         "name",
         NULL},
        {{"a", "b", NULL},
         {{two, 2}, {two, 2}, {NULL, 0}},
         0,
         CAUSE_MISMATCH,
         "",
         "0,1",
         "name",
         NULL},
        /* Rank 2 waits in vain for rank 3, or what it waited for has ended before. */
        {{"sub", "sub", "pair"},
         {{three, 3}, {three, 3}, {pair, 2}},
         0,
         CAUSE_MISSING,
         "2",
         "",
         NULL,
         NULL},
        {{"sub", "sub", "subs"},
         {{three, 3}, {three, 3}, {three, 3}},
         COLLRUN_ERR_BACKEND,
         CAUSE_TIMEOUT,
         "",
         "2",
         NULL,
         NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct arena arena;
        struct rank_state ranks[4] = {
            {FAILED_AT(5), FAILED(COLLRUN_ERR_TIMEOUT), .status = EXIT(1)}};
        arena_init(&arena);
        snprintf(ranks[0].failure.text, sizeof ranks[0].failure.text,
                 "group \"%s\": rank 2 did not join within 2.0 s (1 of 3 members)",
                 cases[i].names[0]);
        for (uint32_t r = 0; r < 3 && cases[i].names[r]; r++) {
            struct forming_wait w = {
                .kind = WIRE_FORMING_CREATE, .since_ns = 1, .members = cases[i].members[r]};
            snprintf(w.name, sizeof w.name, "%s", cases[i].names[r]);
            const bool ended = r == 0 || (r == 2 && cases[i].status_of_2);
            rank_forming_add(&ranks[r].forming, &w);
            if (ended)
                ranks[r].forming.last = ranks[r].forming.items[--ranks[r].forming.n];
        }
        ranks[2].why.status = cases[i].status_of_2;
        const struct verdict v = verdict_of(ranks, NO_JOB, &arena);
        assert_int_equal(v.class, cases[i].class);
        is_list(&v.culprits, cases[i].culprits);
        is_list(&v.suspects, cases[i].suspects);
        assert_int_equal(v.exit_code, v.class == CAUSE_MISMATCH ? 1 : 124);
        if (cases[i].field)
            assert_string_equal(v.field, cases[i].field);
        if (cases[i].text)
            assert_string_equal(v.diag.text, cases[i].text);
        for (uint32_t r = 0; r < 3; r++)
            rank_forming_fini(&ranks[r].forming);
        arena_fini(&arena);
    }
}

/* Rank 2 waits in a barrier of the group that the others split. */
static void a_group_is_split_against_a_collective(void **state)
{
    static uint32_t all[] = {0, 1, 2};
    const struct desc_ranks members = {all, 3};
    struct arena arena;
    struct rank_state ranks[4] = {0};
    (void)state;
    arena_init(&arena);
    for (uint32_t r = 0; r < 2; r++) {
        struct forming_wait w = {
            .kind = WIRE_FORMING_SPLIT, .name = "g", .since_ns = 1, .members = members};
        rank_forming_add(&ranks[r].forming, &w);
    }
    struct wait_report_group g = {.scope = "g#0:1", .name = "g", .members = all, .nmembers = 3};
    struct wait_report_call call = {.scope = "g#0:1", .number = 1, .kind = COLLRUN_BARRIER};
    ranks[2].wait_report = (struct wait_report){
        .received = true, .items = &call, .groups = &g, .nitems = 1, .ngroups = 1};
    const struct job_failure job = {.class = CAUSE_DEADLOCK, .exit_code = 124, .ns = 1};
    const struct verdict v = verdict_of(ranks, job, &arena);
    assert_int_equal(v.class, CAUSE_MISMATCH);
    is_list(&v.culprits, "2");
    assert_string_equal(v.field, "kind");
    assert_string_equal(v.diag.text, "rank 2 (here): members disagree about a new group: ranks 0-1 "
                                     "call collrun_group_split(g), rank 2 calls barrier()");
    for (uint32_t r = 0; r < 2; r++)
        rank_forming_fini(&ranks[r].forming);
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
        {"group \"x\": rank 2 did not join within 2.0 s (1 of 4 members)", "2", "", CAUSE_MISSING},
        {"split: group \"x\": rank 2 did not join within 2 s (1 of 4 members)", "2", "",
         CAUSE_MISSING},
        {"group \"x\": ranks 2 and 0-1 did not join within 2.0 s (3 of 4 members)", "2", "",
         CAUSE_MISSING},
        {"group \"x\": rank 1 did not join within 2.0 s (1 of 2 members)", "", "1", CAUSE_TIMEOUT},
        {"group \"x\": rank 3 did not join within 2.0 s (1 of 4 members)", "", "3", CAUSE_TIMEOUT},
        {"group \"x\": ranks 1 and 9 more did not join within 2.0 s (10 of 40 members)", "", "",
         CAUSE_TIMEOUT},
        {"group \"x\": ranks 0-4294967295 did not join within 2.0 s (4294967296 of 4 members)", "",
         "", CAUSE_TIMEOUT},
        {"group \"x\": ranks 0-3, 0-3 did not join within 2.0 s (8 of 4 members)", "", "",
         CAUSE_TIMEOUT}};
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
        {"allreduce g#5: rank 0 calls allreduce(1 x int8, sum), rank 1 calls barrier()", true},
        {"allreduce g#5: ranks 0-1 call allreduce(1 x int8, sum), rank 2 calls barrier()", false},
        {"allreduce g#5: rank 0 calls barrier(), rank 1 calls scan(1 x int8, sum), rank 2 calls "
         "allreduce(1 x int8, sum)",
         false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct rank_state r = {.failed = FAILURE_REPORTED};
        diag_set(&r.failure, COLLRUN_ERR_MISMATCH, "%s", cases[i].text);
        assert_int_equal(mismatch_is_partial(&desc, &r), cases[i].partial);
        r.failed = FAILURE_NONE;
        assert_false(mismatch_is_partial(&desc, &r));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_that_disagree_about_a_new_group),
        cmocka_unit_test(members_that_create_different_groups),
        cmocka_unit_test(a_group_is_split_against_a_collective),
        cmocka_unit_test(a_group_that_is_created_misses_ranks),
        cmocka_unit_test(ranks_that_fail_alike_are_all_culprits),
        cmocka_unit_test(the_minority_of_a_mismatch_is_the_culprit),
        cmocka_unit_test(a_message_of_a_collective_shows_a_part_of_a_mismatch),
        cmocka_unit_test(at_a_time_limit_a_rank_that_computes_is_not_missing),
        cmocka_unit_test(ranks_wait_outside_of_operations_at_a_time_limit),
        cmocka_unit_test(the_missing_rank_is_found_behind_other_groups),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
