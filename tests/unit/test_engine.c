/* SPDX-License-Identifier: Apache-2.0
 *
 * collrun-engine as a whole: real processes, a small backend, a workload that does as it is told
 * (tests/unit/plugins), and the test as their agent. What ranks do well, and every way in which
 * they fail.
 */
#include "fake_agent.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define assert_has(text, part) assert_non_null(strstr((text), (part)))

static const char *const backends[][2] = {{"msg", "msg.so"}, {"msgstart", "msgstart.so"}};

/* One group "world" of all ranks, one workload "probe" that does `what`. */
static struct desc_workload *simple(struct fake_job *job, uint32_t nranks, int backend,
                                    const char *what)
{
    fake_init(job, nranks);
    fake_backend(job, backends[backend][0], backends[backend][1]);
    fake_group(job, "world", 0, NULL, 0);
    struct desc_workload *w = fake_workload(job, "probe", "probe.so");
    fake_option(job, &w->params, "do", what);
    return w;
}

static void run_well(uint32_t nranks, int backend, const char *what)
{
    struct fake_job job;
    simple(&job, nranks, backend, what);
    assert_int_equal(fake_run(&job), 0);
    assert_int_equal(job.scopes_left, 0);
    for (uint32_t i = 0; i < nranks; i++) {
        assert_false(job.ranks[i].failed);
        assert_string_equal(job.ranks[i].last_metric_name, "fini");
    }
    fake_fini(&job);
}

/* ---- going well ---- */

static void test_sum(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 4; n++)
        run_well(n, n % 2, "sum");
}

static void test_all_collectives(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 5; n++) {
        run_well(n, 0, "all");
        run_well(n, 1, "all");
    }
}

static void test_messages(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 4; n++) {
        run_well(n, 0, "ring");
        run_well(n, 1, "ring");
    }
}

static void test_requests(void **state)
{
    (void)state;
    run_well(2, 1, "requests");
    run_well(4, 1, "requests");
}

static void test_overtake(void **state)
{
    (void)state;
    run_well(2, 0, "overtake");
    run_well(3, 1, "overtake");
}

static void test_wait_for_the_first(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) {
        run_well(2, 0, "ahead");
        run_well(3, 1, "ahead");
    }
}

static void test_groups_at_run_time(void **state)
{
    (void)state;
    run_well(1, 0, "groups");
    run_well(3, 0, "groups");
    run_well(4, 1, "groups");
}

static void test_driver_conflict(void **state)
{
    (void)state;
    run_well(2, 0, "two-threads");
}

static void test_params(void **state)
{
    struct fake_job job;
    (void)state;
    struct desc_workload *w = simple(&job, 2, 0, "params");
    fake_option(&job, &w->params, "label", "rank-{rank}");
    w->noverrides = 1;
    w->overrides = arena_calloc(&job.arena, 1, sizeof *w->overrides);
    w->overrides[0].ranks = (struct desc_ranks){.items = (uint32_t[]){1}, .n = 1};
    fake_option(&job, &w->overrides[0].params, "count", "8");
    assert_int_equal(fake_run(&job), 0);
    assert_has((char *)job.ranks[1].said.data, "probe: label rank-1\n");
    assert_has((char *)job.ranks[1].said.data, "msg, group world: open, 1 of 2\n");
    assert_has((char *)job.ranks[0].printed.data, "ran run-7\n");
    fake_fini(&job);
}

/* Two workloads in one process, each with a group of its own, beside a background one. */
static void test_threads_and_background(void **state)
{
    struct fake_job job;
    (void)state;
    simple(&job, 3, 0, "sum");
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
        assert_in_range(job.ranks[i].progress, 1, 60);
    }
    fake_fini(&job);
}

/* A rank without workload and without group takes part in the phases all the same. */
static void test_idle_rank(void **state)
{
    struct fake_job job;
    (void)state;
    struct desc_workload *w = simple(&job, 3, 0, "sum");
    w->ranks.n = job.groups[0].ranks.n = 2;
    assert_int_equal(fake_run(&job), 0);
    fake_fini(&job);
}

/* ---- failing to load ---- */

struct bad_plugin {
    const char *file, *text, *hint;
};

static void test_workloads_that_do_not_load(void **state)
{
    static const struct bad_plugin cases[] = {
        {"broken_no_symbol.so", "has no symbol collrun_workload_v1", "COLLRUN_WORKLOAD("},
        {"broken_undefined.so", "uses the symbol \"collrun_from_the_future\"", "newer collrun"},
        {"broken_abi.so", "was built for workload ABI 9; this collrun has 1", ""},
        {"broken_no_run.so", "has no .run", ""},
        {"broken_table.so", "declares parameter \"n\" wrongly: its default", ""},
        {"msg.so", "is a backend, not a workload", ""},
        {"missing.so", "No such file or directory", ""},
        {"/etc/passwd", "is not a shared object", ""},
        {"/usr", "is not a file", ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fake_job job;
        simple(&job, 2, 0, "sum");
        job.workloads[0].plugin = fake_path(&job, cases[i].file);
        assert_int_equal(fake_run(&job), 1);
        for (uint32_t r = 0; r < 2; r++) {
            const struct fake_rank *rank = &job.ranks[r];
            assert_true(rank->failed && !rank->attached);
            assert_int_equal(rank->exit_code, 126);
            assert_int_equal(rank->failed_workload, 0);
            assert_int_equal(rank->failed_phase, WIRE_PHASE_LOAD);
            assert_int_equal(rank->failure.loc.line, 30);
            assert_int_equal(rank->failure.rank, (int)r);
            assert_has(rank->failure.text, cases[i].text);
            assert_has(rank->failure.hint, cases[i].hint);
        }
        fake_fini(&job);
    }
}

static void copy_file(const char *from, const char *to)
{
    char command[1200];
    snprintf(command, sizeof command, "cp %s %s", from, to);
    assert_int_equal(system(command), 0);
}

static void test_writable_plugins(void **state)
{
    char dir[] = "/tmp/test_engine.XXXXXX", file[64];
    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(file, sizeof file, "%s/w.so", dir);
    for (int i = 0; i < 3; i++) {
        struct fake_job job;
        simple(&job, 1, 0, "nothing");
        copy_file(fake_path(&job, "probe.so"), file);
        chmod(file, i == 0 ? 0666 : 0644);
        chmod(dir, i == 1 ? 0777 : 0755);
        job.workloads[0].plugin = file;
        assert_int_equal(fake_run(&job), i == 2 ? 0 : 1);
        if (i < 2) {
            assert_int_equal(job.ranks[0].exit_code, 126);
            assert_has(job.ranks[0].failure.text,
                       i ? "everybody may write the directory" : "everybody may write it");
            assert_has(job.ranks[0].failure.hint, "chmod o-w");
        }
        fake_fini(&job);
    }
    unlink(file);
    rmdir(dir);
}

static void test_backends_that_do_not_load(void **state)
{
    static const struct bad_plugin cases[] = {
        {"msg_abi.so", "was built for backend ABI 77; this collrun has 1", ""},
        {"msg_half.so", "breaks the ABI: group_open, group_abort or group_close is missing", ""},
        {"msg_probe.so", "backend \"msg\" does not work here: the moon is in the wrong phase", ""},
        {"msgstart.so", "is the backend \"msgstart\", not \"msg\"", ""},
        {"probe.so", "is a workload, not a backend", ""},
        {"nowhere.so", "No such file or directory", ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fake_job job;
        simple(&job, 2, 0, "sum");
        job.backends[0].path = fake_path(&job, cases[i].file);
        assert_int_equal(fake_run(&job), 1);
        for (uint32_t r = 0; r < 2; r++) {
            assert_int_equal(job.ranks[r].exit_code, 126);
            assert_int_equal(job.ranks[r].failed_phase, WIRE_PHASE_GROUPS);
            assert_string_equal(job.ranks[r].failed_group, "world");
            assert_int_equal(job.ranks[r].failure.loc.line, 20);
            assert_has(job.ranks[r].failure.text, cases[i].text);
        }
        fake_fini(&job);
    }
}

static void test_bad_params(void **state)
{
    static const struct {
        const char *key, *value, *text, *hint;
    } cases[] = {
        {"cuont", "1", "the workload has no parameter \"cuont\"", "did you mean \"count\"?"},
        {"count", "101", "parameter \"count\": 101 is more than the maximum, 100", ""},
        {"count", "0", "parameter \"count\": 0 is less than the minimum, 1", ""},
        {"count", "six", "parameter \"count\": ", ""},
        {"bytes", "1 league", "parameter \"bytes\": ", ""},
        {"nap", "soon", "parameter \"nap\": ", ""},
        {"loud", "yes", "parameter \"loud\": ", ""},
        {"label", "{moon}", "parameter \"label\": ", ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fake_job job;
        struct desc_workload *w = simple(&job, 1, 0, "nothing");
        fake_option(&job, &w->params, cases[i].key, cases[i].value);
        assert_int_equal(fake_run(&job), 1);
        assert_int_equal(job.ranks[0].exit_code, 126);
        assert_int_equal(job.ranks[0].failure.loc.line, 41);
        assert_has(job.ranks[0].failure.text, cases[i].text);
        assert_has(job.ranks[0].failure.hint, cases[i].hint);
        fake_fini(&job);
    }
}

static void test_group_that_does_not_open(void **state)
{
    struct fake_job job;
    (void)state;
    simple(&job, 2, 0, "sum");
    fake_option(&job, &job.groups[0].options, "stumble", "a stone");
    assert_int_equal(fake_run(&job), 1);
    assert_int_equal(job.ranks[0].exit_code, 1);
    assert_int_equal(job.ranks[0].failure.code, COLLRUN_ERR_BACKEND);
    assert_string_equal(job.ranks[0].failure.text,
                        "group \"world\" on backend \"msg\": told to stumble over a stone");
    assert_int_equal(job.ranks[0].failure.loc.line, 10);
    fake_fini(&job);
}

static void other_version(struct desc *desc)
{
    static struct desc_backend other;
    other = desc->backends[0];
    other.path = getenv("OTHER_BACKEND");
    desc->backends = &other;
}

/* Who hears it from the store says who has what; the others may hear of that rank's failure first.
 */
static void test_backends_that_differ(void **state)
{
    struct fake_job job;
    bool told = false;
    (void)state;
    simple(&job, 3, 0, "sum");
    setenv("OTHER_BACKEND", fake_path(&job, "msg_2.so"), 1);
    job.odd = other_version;
    job.odd_rank = 1;
    assert_int_equal(fake_run(&job), 1);
    for (uint32_t i = 0; i < 3; i++) {
        const struct fake_rank *r = &job.ranks[i];
        assert_int_equal(r->failed_phase, WIRE_PHASE_GROUPS);
        assert_has(r->failure.text, "group \"world\": ranks disagree about the backend");
        assert_has(r->failure.text, "msg 1.0, ABI 1");
        assert_has(r->failure.text, "rank 1 has msg 2.0, ABI 1");
        told = told || (r->failure.code == COLLRUN_ERR_MISMATCH && r->failure.loc.line == 10);
    }
    assert_true(told);
    fake_fini(&job);
}

static void no_groups(struct desc *desc)
{
    desc->ngroups = desc->nworkloads = 0;
}

static void test_missing_member(void **state)
{
    struct fake_job job;
    (void)state;
    simple(&job, 3, 1, "sum");
    job.desc.rendezvous_timeout_ns = 500000000;
    job.odd = no_groups;
    job.odd_rank = 2;
    assert_int_equal(fake_run(&job), 1);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(job.ranks[i].exit_code, 124);
        assert_int_equal(job.ranks[i].failure.code, COLLRUN_ERR_TIMEOUT);
        assert_string_equal(
            job.ranks[i].failure.text,
            "group \"world\": waited 0.5 s for rank 2 of 3, which never came to form it");
        assert_int_equal(job.ranks[i].failure.loc.line, 10);
    }
    assert_false(job.ranks[2].failed);
    assert_int_equal(job.ranks[2].exit_code, 1);
    fake_fini(&job);
}

/* ---- an agent out of its mind ---- */

static void test_bad_first_words(void **state)
{
    char printed[1024], garbage[64];
    struct buf b;
    (void)state;
    assert_int_equal(fake_stammer("", 0, printed, sizeof printed), 125);
    assert_has(printed, "the agent closed the control stream before it said WELCOME");
    memset(garbage, 0xee, sizeof garbage);
    assert_int_equal(fake_stammer(garbage, sizeof garbage, printed, sizeof printed), 125);
    assert_has(printed, "something that is not a collrun frame");
    buf_init(&b);
    wire_put(&b, WIRE_GO, 0, 0, NULL, 0);
    assert_int_equal(fake_stammer(b.data, b.len, printed, sizeof printed), 125);
    assert_has(printed, "the agent's first word is GO, not WELCOME");
    buf_clear(&b);
    wire_put(&b, WIRE_WELCOME, 0, 0, garbage, sizeof garbage);
    assert_int_equal(fake_stammer(b.data, b.len, printed, sizeof printed), 125);
    buf_fini(&b);
}

static void babble(struct fake_job *job)
{
    fake_babble(job, 0, WIRE_HELLO);
    fake_babble(job, 1, WIRE_ABORT);
    fake_babble(job, 2, WIRE_REPLY);
}

static void test_bad_frames(void **state)
{
    struct fake_job job;
    (void)state;
    simple(&job, 3, 0, "sleep")->timeout_ns = 20000000000u;
    job.after_go = babble;
    job.after_go_s = 0.1;
    job.no_abort = true;
    assert_int_equal(fake_run(&job), 1);
    static const char *const words[] = {"a frame that is not for a rank: HELLO",
                                        "an ABORT that cannot be read",
                                        "a REPLY that cannot be read"};
    for (uint32_t i = 0; i < 3; i++) {
        assert_has((char *)job.ranks[i].printed.data, words[i]);
        assert_int_not_equal(job.ranks[i].exit_code, 0);
        assert_true(job.ranks[i].ended_s < 10);
    }
    fake_fini(&job);
}

/* ---- failing to run ---- */

struct bad_run {
    const char *what, *text;
    int exit_code, code;
    uint32_t phase;
};

static void test_workloads_that_fail(void **state)
{
    static const struct bad_run cases[] = {
        {"return-3", "workload \"probe\" returned 3 from run", 3, 3, WIRE_PHASE_RUN},
        {"return-500", "returned 500 from run, which is neither 0..119 nor a status", 1,
         COLLRUN_ERR_INVALID, WIRE_PHASE_RUN},
        {"say", "the sum is 5, not 4", 1, 1, WIRE_PHASE_RUN},
        {"undeclared", "asks for a parameter \"nonsense\", which it does not declare", 1,
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
        simple(&job, 2, 1, cases[i].what);
        assert_int_equal(fake_run(&job), 1);
        bool seen = false;
        for (uint32_t r = 0; r < 2;
             r++) { /* the other may have heard of this one's failure first */
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

static void test_workload_timeout(void **state)
{
    struct fake_job job;
    (void)state;
    simple(&job, 1, 0, "sleep")->timeout_ns = 300000000;
    assert_int_equal(fake_run(&job), 1);
    assert_int_equal(job.ranks[0].exit_code, 124);
    assert_string_equal(job.ranks[0].failure.text,
                        "workload \"probe\" ran longer than its time-out, 300ms");
    assert_int_equal(job.ranks[0].failure.code, COLLRUN_ERR_TIMEOUT);
    fake_fini(&job);
}

/* Rank 0 does not come to the barrier of the others; how they learn of it. */
static struct fake_job *one_is_missing(struct fake_job *job, int backend, const char *what)
{
    struct desc_workload *w = simple(job, 3, backend, "barrier");
    w->noverrides = 1;
    w->overrides = arena_calloc(&job->arena, 1, sizeof *w->overrides);
    w->overrides[0].ranks =
        (struct desc_ranks){.items = arena_calloc(&job->arena, 1, sizeof(uint32_t)), .n = 1};
    fake_option(job, &w->overrides[0].params, "do", what);
    return job;
}

static void check_unblocked(const struct fake_job *job, int status, const char *sentence)
{
    for (uint32_t i = 1; i < 3; i++) {
        const struct fake_rank *r = &job->ranks[i];
        assert_int_equal(r->failure.code, status);
        assert_int_equal(r->exit_code, 1);
        assert_string_equal(r->failed_group, "world");
        assert_has(r->failure.text, "barrier world#");
        assert_has(r->failure.text, sentence);
    }
}

static void test_death_of_a_peer(void **state)
{
    (void)state;
    for (int backend = 0; backend < 2; backend++) {
        struct fake_job job;
        assert_int_equal(fake_run(one_is_missing(&job, backend, "die")), 1);
        assert_int_equal(job.ranks[0].exit_code, 128 + 6);
        check_unblocked(&job, COLLRUN_ERR_PEER_FAILED, "rank 0 (here) died");
        for (int i = 1; i < 3; i++)
            assert_true(job.ranks[i].failed_s < job.ranks[0].ended_s + 0.5);
        fake_fini(&job);
    }
}

static void test_failure_of_a_peer(void **state)
{
    struct fake_job job;
    (void)state;
    assert_int_equal(fake_run(one_is_missing(&job, 0, "say-late")), 1);
    check_unblocked(&job, COLLRUN_ERR_PEER_FAILED, "rank 0 (here) the sum is 5, not 4");
    fake_fini(&job);
}

static void test_operation_timeout(void **state)
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

static void test_abort_while_blocked(void **state)
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
        assert_in_range((long)(job.ranks[0].ended_s * 10), 10, 40);
        fake_fini(&job);
    }
}

static void hang_up_all(struct fake_job *job)
{
    for (uint32_t i = 0; i < 3; i++)
        fake_hang_up(job, i);
}

static void test_lost_agent(void **state)
{
    struct fake_job job;
    (void)state;
    one_is_missing(&job, 1, "sleep");
    job.desc.grace_ns = 60000000000u;
    job.after_go = hang_up_all;
    job.after_go_s = 0.3;
    job.no_abort = true;
    assert_int_equal(fake_run(&job), 1);
    assert_int_equal(job.ranks[0].exit_code, 125);
    assert_has((char *)job.ranks[1].printed.data, "the agent of this host is gone");
    assert_true(job.ranks[0].ended_s < 5);
    fake_fini(&job);
}

/* A background workload that sits in an operation which nobody will join is thrown out of it. */
static void test_stuck_background(void **state)
{
    struct fake_job job;
    (void)state;
    one_is_missing(&job, 0, "nothing");
    job.workloads[0].background = true;
    assert_int_equal(fake_run(&job), 0);
    fake_fini(&job);
}

static void test_background_that_does_not_stop(void **state)
{
    struct fake_job job;
    (void)state;
    simple(&job, 1, 0, "sleep")->background = true;
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

static void test_describe(void **state)
{
    struct fake_job job;
    char out[8192], args[2048];
    (void)state;
    fake_init(&job, 1);
    snprintf(args, sizeof args, "backend:%s workload:%s backend:%s workload:/no/such.so",
             fake_path(&job, "msg.so"), fake_path(&job, "probe.so"),
             fake_path(&job, "msg_probe.so"));
    describe(&job, args, out, sizeof out);
    assert_has(out, "\"name\":\"msg\",\"version\":\"1.0\",\"abi\":1,\"available\":true,\"reason\":"
                    "\"\",\"flags\":[\"one_host\",\"recv_any\"]");
    assert_has(out, "{\"barrier\":\"emulated\",\"allreduce\":\"emulated\"");
    assert_has(out, "\"send\":\"native\",\"recv\":\"native\",\"recv_any\":\"native\"}}\n{\"kind\":"
                    "\"workload\"");
    assert_has(out, "\"summary\":\"what the engine's \\\"tests\\\" need\\u000a\"");
    assert_has(out, "{\"name\":\"count\",\"type\":\"int\",\"default\":\"7\",\"min\":\"1\",\"max\":"
                    "\"100\",\"help\":\"\"}");
    assert_has(out, "\"available\":false,\"reason\":\"the moon is in the wrong phase\"");
    assert_has(out, "{\"kind\":\"workload\",\"path\":\"/no/such.so\",\"error\":\"workload "
                    "/no/such.so: No such file or directory\",\"hint\":\"\"}\n");
    fake_fini(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sum),
        cmocka_unit_test(test_all_collectives),
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_requests),
        cmocka_unit_test(test_overtake),
        cmocka_unit_test(test_wait_for_the_first),
        cmocka_unit_test(test_groups_at_run_time),
        cmocka_unit_test(test_driver_conflict),
        cmocka_unit_test(test_params),
        cmocka_unit_test(test_threads_and_background),
        cmocka_unit_test(test_idle_rank),
        cmocka_unit_test(test_workloads_that_do_not_load),
        cmocka_unit_test(test_writable_plugins),
        cmocka_unit_test(test_backends_that_do_not_load),
        cmocka_unit_test(test_bad_params),
        cmocka_unit_test(test_group_that_does_not_open),
        cmocka_unit_test(test_backends_that_differ),
        cmocka_unit_test(test_missing_member),
        cmocka_unit_test(test_bad_first_words),
        cmocka_unit_test(test_bad_frames),
        cmocka_unit_test(test_workloads_that_fail),
        cmocka_unit_test(test_workload_timeout),
        cmocka_unit_test(test_death_of_a_peer),
        cmocka_unit_test(test_failure_of_a_peer),
        cmocka_unit_test(test_operation_timeout),
        cmocka_unit_test(test_abort_while_blocked),
        cmocka_unit_test(test_lost_agent),
        cmocka_unit_test(test_stuck_background),
        cmocka_unit_test(test_background_that_does_not_stop),
        cmocka_unit_test(test_describe),
    };
    return cmocka_run_group_tests_name("engine", tests, NULL, NULL);
}
