/* SPDX-License-Identifier: Apache-2.0
 *
 * Which of several endings is the root cause, and the exit code that follows: tables of situations
 * with the expected answer.
 */
#include "diagnose/network_cut.h"
#include "verdict_job.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct group_snapshot called = {
    .name = "dp", .started = 7, .done = 6, .kind = COLLRUN_ALLREDUCE};
static struct group_snapshot inside = {
    .name = "dp", .started = 7, .done = 6, .age_ns = 9, .kind = COLLRUN_ALLREDUCE};
static struct group_snapshot earlier = {
    .name = "dp", .started = 6, .done = 5, .age_ns = 9, .kind = COLLRUN_ALLREDUCE};
static struct group_snapshot not_called = {
    .name = "dp", .started = 6, .done = 6, .kind = COLLRUN_ALLREDUCE};
static struct group_snapshot elsewhere = {.name = "world", .started = 1};
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
        .phase = PHASE_FINISHING, .end = RANK_EXITED                                               \
    }
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
    {"a crash in MPI_Abort is a consequence",
     {{FAILED_AT(5), FAILED(4), .command = true, .status = SIGSEGV, .last_words = "Invalid tag"},
      GOOD,
      GOOD,
      GOOD},
     0,
     CAUSE_ERROR,
     4,
     "why; it wrote last: Invalid tag"},
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
       .end = RANK_EXITED},
      GOOD,
      GOOD},
     1,
     CAUSE_EXIT,
     1,
     "exited with code 0 while it was running"},
    {"a time-out beats the good end of a rank that had called collrun_finalize",
     {{FAILED_AT(5), FAILED(COLLRUN_ERR_TIMEOUT), .status = EXIT(1)},
      {FAILED_AT(6), .command = true, .part = PART_FINALIZING, .stop_requested = true},
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
      {FAILED_AT(8), .failed = FAILURE_REPORTED, .failed_phase = WIRE_PHASE_LOAD,
       .failure = {.code = COLLRUN_ERR_NOT_FOUND, .text = "no such file"}, .status = EXIT(126)},
      GOOD,
      {FAILED_AT(5), .status = EXIT(4)}},
     1,
     CAUSE_LAUNCH,
     126,
     "no such file"},
    {"a process that could not be started",
     {{FAILED_AT(8), .failed = FAILURE_REPORTED, .failed_phase = WIRE_PHASE_LOAD,
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
     {{FAILED_AT(8), .failed = FAILURE_REPORTED, .failed_phase = WIRE_PHASE_GROUPS,
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

/* However a rank ends after a failed call, its end counts as that call does. */
static void an_end_after_a_failed_call_is_its_consequence(void **state)
{
    (void)state;
    static const struct {
        int status;
        enum cause_class class;
    } calls[] = {{COLLRUN_ERR_MISMATCH, CAUSE_MISMATCH},
                 {COLLRUN_ERR_TIMEOUT, CAUSE_TIMEOUT},
                 {COLLRUN_ERR_PEER_FAILED, CAUSE_PEER},
                 {COLLRUN_ERR_ABORTED, CAUSE_PEER}};
    struct arena arena;
    arena_init(&arena);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        struct rank_state ends[] = {
            {OF_WORKLOAD(5), .failure = {.code = 1, .text = "why"}, .status = EXIT(1)},
            {OF_WORKLOAD(5), .failure = {.code = 3}, .subject = WIRE_SUBJECT_WORKLOAD,
             .status = EXIT(3)},
            {FAILED_AT(5), .status = SIGABRT},
            {FAILED_AT(5), .status = EXIT(1)},
            {FAILED_AT(5), .status = EXIT(0)},
            {FAILED_AT(5), .command = true, .part = PART_MEMBER, .departure = DEPARTURE_EARLY,
             .status = EXIT(0)}};
        for (size_t k = 0; k < sizeof ends / sizeof *ends; k++) {
            struct rank_state ranks[4] = {GOOD, ends[k], GOOD, GOOD};
            struct record_view_failure why = {.status = calls[i].status,
                                              .number = 6,
                                              .group = "dp",
                                              .text = "allreduce dp#6: rank 1 waited 3.0 s"};
            struct evidence e = {&desc, ranks, {.class = CAUSE_NONE}};
            struct verdict v;
            verdict_find(&e, &arena, &v);
            assert_true(v.class < CAUSE_MISMATCH); /* its own doing, without a failed call */
            ranks[1].disturbed = calls[i].class == CAUSE_PEER;
            rank_set_why(&ranks[1], &why);
            verdict_find(&e, &arena, &v);
            print_message("# %s; %s\n", v.diag.text, v.diag.hint);
            if (calls[i].class == CAUSE_PEER) { /* a rank that exits has noticed the stop */
                assert_true(v.class >= CAUSE_PEER || k == 5);
                continue;
            }
            assert_int_equal(v.class, calls[i].class);
            assert_string_equal(v.group, "dp");
            assert_string_equal(v.kind, "allreduce");
            assert_int_equal(v.number, 6);
            if (v.class == CAUSE_TIMEOUT) {
                assert_non_null(strstr(v.diag.text, "waited 3.0 s"));
                assert_non_null(strstr(v.diag.hint, "after that, rank 1"));
                assert_int_equal(v.exit_code, 124);
            }
            /* A signal from outside is no consequence. */
            ranks[1] = (struct rank_state){FAILED_AT(5), .status = SIGKILL};
            rank_set_why(&ranks[1], &why);
            verdict_find(&e, &arena, &v);
            assert_int_equal(v.class, CAUSE_SIGNAL);
        }
    }
    arena_fini(&arena);
}

static void the_rank_that_aborted_a_group_is_the_culprit(void **state)
{
    (void)state;
    struct rank_state ranks[4] = {{FAILED_AT(5), FAILED(COLLRUN_ERR_ABORTED), .status = EXIT(1)},
                                  {FAILED_AT(6), FAILED(COLLRUN_ERR_ABORTED), .status = EXIT(1)},
                                  {FAILED_AT(7), FAILED(COLLRUN_ERR_ABORTED), .status = EXIT(1)},
                                  GOOD};
    struct verdict v;
    struct arena arena;
    struct evidence e = {&desc, ranks, {.class = CAUSE_NONE}};
    arena_init(&arena);
    diag_set(&ranks[0].failure, COLLRUN_ERR_ABORTED,
             "allreduce dp#6: rank 2 has aborted the group: loss is NaN");
    verdict_find(&e, &arena, &v);
    assert_string_equal(verdict_class(&v), "error");
    assert_int_equal(v.culprits.n, 1);
    assert_int_equal(v.culprits.items[0], 2);
    assert_int_equal(v.suspects.n, 0);
    diag_set(&ranks[0].failure, COLLRUN_ERR_ABORTED, "rank 9 has aborted the group: x");
    verdict_find(&e, &arena, &v);
    assert_int_equal(v.culprits.n, 0);
    assert_int_equal(v.suspects.n, 3);
    arena_fini(&arena);
}

static void a_death_inside_an_operation_names_it(void **state)
{
    (void)state;
    struct verdict v;
    struct arena arena;
    struct rank_state ranks[4] = {GOOD, {FAILED_AT(5), .status = SIGSEGV}, GOOD, GOOD};
    struct evidence e = {&desc, ranks, {.class = CAUSE_NONE}};
    arena_init(&arena);
    ranks[1].snapshot = (struct rank_snapshot){.groups = &inside, .n = 1};
    verdict_find(&e, &arena, &v);
    assert_string_equal(v.group, "dp");
    assert_string_equal(v.kind, "allreduce");
    assert_int_equal(v.number, 7);
    /* It has left the job with code 0 while rank 0 waits for it. */
    ranks[1] = (struct rank_state){FAILED_AT(5), .status = EXIT(0)};
    ranks[1].snapshot = (struct rank_snapshot){.groups = &not_called, .n = 1};
    ranks[0].snapshot = (struct rank_snapshot){.groups = &inside, .n = 1};
    verdict_find(&e, &arena, &v);
    assert_string_equal(v.group, "dp");
    assert_string_equal(v.kind, "allreduce");
    assert_int_equal(v.number, 7);
    assert_non_null(strstr(v.diag.text, "; rank 0 waits for it in allreduce dp#7"));
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
    assert_string_equal(others, "rank 2 also failed: exited with code 3");
    /* The job has continued without the first one, and stops because of the second one. */
    both[0].left_out = true;
    verdict_find(&e, &arena, &v);
    verdict_other_ranks(&e, &v, others, sizeof others);
    assert_int_equal(v.rank, 2);
    assert_int_equal(v.exit_code, 3);
    assert_int_equal(v.culprits.n, 1);
    assert_string_equal(others, "rank 0 also failed: killed by signal 11 (SIGSEGV)");
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

/* What the drawings in diagnose/ranks.h say, written out: the state that each transition leads to.
 */
static void a_rank_never_moves_back(void **state)
{
    static const enum rank_part parts[][5] = {
        {PART_OUTSIDE, PART_JOINING, PART_MEMBER, PART_FINALIZING, PART_FINALIZED},
        {PART_JOINING, PART_JOINING, PART_MEMBER, PART_FINALIZING, PART_FINALIZED},
        {PART_MEMBER, PART_MEMBER, PART_MEMBER, PART_FINALIZING, PART_FINALIZED},
        {PART_FINALIZING, PART_FINALIZING, PART_FINALIZING, PART_FINALIZING, PART_FINALIZED},
        {PART_FINALIZED, PART_FINALIZED, PART_FINALIZED, PART_FINALIZED, PART_FINALIZED}};
    static const enum rank_end ends[3][3] = {{RANK_LIVES, RANK_EXITED, RANK_LOST},
                                             {RANK_EXITED, RANK_EXITED, RANK_EXITED},
                                             {RANK_LOST, RANK_LOST, RANK_LOST}};
    (void)state;
    for (unsigned from = PART_OUTSIDE; from <= PART_FINALIZED; from++)
        for (unsigned to = PART_OUTSIDE; to <= PART_FINALIZED; to++) {
            struct rank_state r = {.part = (enum rank_part)from};
            assert_int_equal(rank_advance_part(&r, (enum rank_part)to), parts[from][to] != from);
            assert_int_equal(r.part, parts[from][to]);
        }
    for (unsigned from = RANK_LIVES; from <= RANK_LOST; from++)
        for (unsigned to = RANK_LIVES; to <= RANK_LOST; to++) {
            struct rank_state r = {.end = (enum rank_end)from};
            assert_int_equal(rank_set_end(&r, (enum rank_end)to), ends[from][to] != from);
            assert_int_equal(r.end, ends[from][to]);
        }
    static const enum rank_failure failures[3][3] = {
        {FAILURE_NONE, FAILURE_REPORTED, FAILURE_OVERDUE},
        {FAILURE_REPORTED, FAILURE_REPORTED, FAILURE_REPORTED},
        {FAILURE_OVERDUE, FAILURE_OVERDUE, FAILURE_OVERDUE}};
    for (unsigned from = FAILURE_NONE; from <= FAILURE_OVERDUE; from++)
        for (unsigned to = FAILURE_NONE; to <= FAILURE_OVERDUE; to++) {
            struct rank_state r = {.failed = (enum rank_failure)from};
            assert_int_equal(rank_set_failure(&r, (enum rank_failure)to),
                             failures[from][to] != from);
            assert_int_equal(r.failed, failures[from][to]);
        }
    struct rank_state r = {0};
    assert_true(rank_advance_departure(&r, DEPARTURE_SENT));
    assert_false(rank_advance_departure(&r, DEPARTURE_SENT)); /* the others get RANK_LOST once */
    assert_true(rank_advance_departure(&r, DEPARTURE_EARLY));
    assert_false(rank_advance_departure(&r, DEPARTURE_SENT));
    assert_int_equal(r.departure, DEPARTURE_EARLY);
}

/* Its agent is asked again when a rank has timed out; by then the connections may be closed. */
static void what_is_known_of_the_network_stays(void **state)
{
    static struct desc_host hosts[2] = {{.name = "a", .nranks = 2}, {.name = "b", .nranks = 2}};
    static struct desc_rank places[4] = {{.host = 0}, {.host = 0}, {.host = 1}, {.host = 1}};
    const struct desc two = {.hosts = hosts, .nhosts = 2, .ranks = places, .nranks = 4};
    const struct wire_network cut = {"10.2.0.1", "no answer from 10.2.0.7 port 4711 for 5.9 s (3 "
                                                 "retransmissions, 65536 bytes unacknowledged)"},
                              well = {"10.2.0.1", ""}, peer = {"10.2.0.7", ""};
    struct rank_state ranks[4] = {0};
    struct network_cut found;
    struct arena arena;
    (void)state;
    arena_init(&arena);
    network_cut_take(&two, ranks, 1, &cut, false);
    network_cut_take(&two, ranks, 2, &peer, false);
    rank_forget_look(&ranks[1]); /* the agent is asked again */
    assert_true(network_cut_find(&two, ranks, &arena, WIRE_HOST, &found));
    assert_string_equal(found.hosts[1], "b");
    ranks[0].first_failure_ns = 1;
    network_cut_take(&two, ranks, 0, &well, false);
    network_cut_forget(&two, ranks);
    assert_true(network_cut_find(&two, ranks, &arena, WIRE_HOST, &found));
    assert_int_equal(found.rank, 1);
    assert_string_equal(ranks[0].address, "10.2.0.1");
    ranks[0].first_failure_ns = 0;
    network_cut_take(&two, ranks, 0, &well, true);
    assert_true(network_cut_find(&two, ranks, &arena, WIRE_HOST, &found));
    network_cut_take(&two, ranks, 0, &well, false); /* the network is well again */
    assert_false(network_cut_find(&two, ranks, &arena, WIRE_HOST, &found));
    network_cut_take(&two, ranks, 1, &cut, false);
    network_cut_forget(&two, ranks);
    assert_false(network_cut_find(&two, ranks, &arena, WIRE_HOST, &found));
    arena_fini(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_root_cause_is_found),
        cmocka_unit_test(an_end_after_a_failed_call_is_its_consequence),
        cmocka_unit_test(the_rank_that_aborted_a_group_is_the_culprit),
        cmocka_unit_test(a_death_inside_an_operation_names_it),
        cmocka_unit_test(a_cause_that_is_no_rank_s),
        cmocka_unit_test(a_rank_never_moves_back),
        cmocka_unit_test(what_is_known_of_the_network_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
