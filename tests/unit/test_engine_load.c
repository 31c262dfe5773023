/* SPDX-License-Identifier: Apache-2.0
 *
 * collrun-engine before its workloads run: plugins, backends and parameters that are not what they
 * should be, groups that do not form, and an agent out of its mind. The rest is test_engine.c.
 */
#include "fake_agent.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <dlfcn.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define assert_has(text, part) assert_non_null(strstr((text), (part)))

/* ---- failing to load ---- */

struct bad_plugin {
    const char *file, *text, *hint;
};

static void assert_refused(const struct fake_rank *rank, int phase, int line,
                           const struct bad_plugin *plugin)
{
    assert_int_equal(rank->exit_code, 126);
    assert_int_equal(rank->failed_phase, phase);
    assert_int_equal(rank->failure.loc.line, line);
    assert_has(rank->failure.text, plugin->text);
    assert_has(rank->failure.hint, plugin->hint);
}

static void broken_workloads_are_refused(void **state)
{
    static const struct bad_plugin cases[] = {
        {"broken_no_symbol.so", "has no symbol collrun_workload_v1", "COLLRUN_WORKLOAD("},
        {"broken_undefined.so", "uses the symbol \"collrun_from_the_future\"", "newer collrun"},
        {"broken_abi.so", "was built for workload ABI 9; this collrun has 1", ""},
        {"broken_no_run.so", "has no .run", ""},
        {"broken_table.so", "declares parameter \"n\" wrongly: its default", ""},
        {"msg.so", "is a backend, not a workload", ""},
        {"missing.so", "No such file or directory", ""},
        {"/etc/passwd", "is not a shared object", "built with cc -shared -fPIC"},
        {"/usr/bin/ldd", "is not a shared object", "by command: [/usr/bin/ldd] in place of plugin"},
        {"/usr", "is not a file", ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fake_job job;
        fake_simple(&job, 2, false, "sum");
        job.workloads[0].plugin = fake_path(&job, cases[i].file);
        assert_int_equal(fake_run(&job), 1);
        for (uint32_t r = 0; r < 2; r++) {
            assert_true(job.ranks[r].failed && !job.ranks[r].attached);
            assert_int_equal(job.ranks[r].failed_workload, 0);
            assert_int_equal(job.ranks[r].failure.rank, (int)r);
            assert_refused(&job.ranks[r], WIRE_PHASE_LOAD, 30, &cases[i]);
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

static void plugins_that_others_can_write_are_refused(void **state)
{
    char dir[] = "/tmp/test_engine.XXXXXX", file[64];
    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(file, sizeof file, "%s/w.so", dir);
    for (int i = 0; i < 3; i++) {
        struct fake_job job;
        fake_simple(&job, 1, false, "nothing");
        copy_file(fake_path(&job, "probe.so"), file);
        chmod(file, i == 0 ? 0666 : 0644);
        chmod(dir, i == 1 ? 0777 : 0755);
        job.workloads[0].plugin = file;
        assert_int_equal(fake_run(&job), i == 2 ? 0 : 1);
        if (i < 2) {
            assert_int_equal(job.ranks[0].exit_code, 126);
            assert_has(job.ranks[0].failure.text,
                       i ? "every user may write the directory" : "every user may write it");
            assert_has(job.ranks[0].failure.hint, "chmod o-w");
        }
        fake_fini(&job);
    }
    unlink(file);
    rmdir(dir);
}

/* In a sticky directory: a file of another user, one in a folder of another user, by a link of
 * ours, too, and one of ours. */
static void plugins_that_others_made_in_a_sticky_directory_are_refused(void **state)
{
    char dir[] = "/tmp/test_engine.XXXXXX", folder[64], file[64], inner[80], link[64];
    (void)state;
    if (geteuid() != 0)
        skip();
    assert_non_null(mkdtemp(dir));
    snprintf(file, sizeof file, "%s/w.so", dir);
    snprintf(folder, sizeof folder, "%s/folder", dir);
    snprintf(inner, sizeof inner, "%s/w.so", folder);
    snprintf(link, sizeof link, "%s/link.so", dir);
    chmod(dir, 01777);
    assert_int_equal(mkdir(folder, 0755), 0);
    assert_int_equal(symlink(inner, link), 0);
    const char *const plugins[] = {file, inner, link, file};
    for (int i = 0; i < 4; i++) {
        struct fake_job job;
        const uid_t other = i < 3 ? 65534 : 0;
        fake_simple(&job, 1, false, "nothing");
        copy_file(fake_path(&job, "probe.so"), file);
        copy_file(fake_path(&job, "probe.so"), inner);
        assert_int_equal(chown(file, other, 0) + chown(folder, other, 0), 0);
        job.workloads[0].plugin = plugins[i];
        assert_int_equal(fake_run(&job), i == 3 ? 0 : 1);
        if (i < 3) {
            assert_int_equal(job.ranks[0].exit_code, 126);
            assert_has(job.ranks[0].failure.text,
                       i == 0 ? "/w.so belongs to user 65534" : "/folder belongs to user 65534");
            assert_has(job.ranks[0].failure.hint, "a directory of yours");
        }
        fake_fini(&job);
    }
    unlink(link), unlink(inner), unlink(file);
    rmdir(folder), rmdir(dir);
}

static void broken_backends_are_refused(void **state)
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
        fake_simple(&job, 2, false, "sum");
        job.backends[0].path = fake_path(&job, cases[i].file);
        assert_int_equal(fake_run(&job), 1);
        for (uint32_t r = 0; r < 2; r++) {
            assert_string_equal(job.ranks[r].failed_group, "world");
            assert_refused(&job.ranks[r], WIRE_PHASE_GROUPS, 20, &cases[i]);
        }
        fake_fini(&job);
    }
}

static void wrong_params_are_refused(void **state)
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
        struct desc_workload *w = fake_simple(&job, 1, false, "nothing");
        fake_option(&job, &w->params, cases[i].key, cases[i].value);
        assert_int_equal(fake_run(&job), 1);
        assert_int_equal(job.ranks[0].exit_code, 126);
        assert_int_equal(job.ranks[0].failure.loc.line, 41);
        assert_has(job.ranks[0].failure.text, cases[i].text);
        assert_has(job.ranks[0].failure.hint, cases[i].hint);
        fake_fini(&job);
    }
}

static void a_group_that_does_not_open_is_explained(void **state)
{
    struct fake_job job;
    (void)state;
    fake_simple(&job, 2, false, "sum");
    fake_option(&job, &job.groups[0].options, "stumble", "a stone");
    assert_int_equal(fake_run(&job), 1);
    assert_int_equal(job.ranks[0].exit_code, 1);
    assert_int_equal(job.ranks[0].failure.code, COLLRUN_ERR_BACKEND);
    assert_string_equal(job.ranks[0].failure.text,
                        "group \"world\" on backend \"msg\": stumbled over a stone");
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

/* The store reports the mismatch to the ranks; a rank may learn of another's failure first. */
static void ranks_with_different_backends_are_refused(void **state)
{
    struct fake_job job;
    bool mismatch = false;
    (void)state;
    fake_simple(&job, 3, false, "sum");
    setenv("OTHER_BACKEND", fake_path(&job, "msg_2.so"), 1);
    job.change_desc = other_version;
    job.changed_rank = 1;
    assert_int_equal(fake_run(&job), 1);
    for (uint32_t i = 0; i < 3; i++) {
        const struct fake_rank *r = &job.ranks[i];
        assert_int_equal(r->failed_phase, WIRE_PHASE_GROUPS);
        assert_has(r->failure.text,
                   "group \"world\": ranks disagree about the backend or the check");
        assert_has(r->failure.text, "msg 1.0, ABI 1");
        assert_has(r->failure.text, "rank 1 has msg 2.0, ABI 1");
        mismatch =
            mismatch || (r->failure.code == COLLRUN_ERR_MISMATCH && r->failure.loc.line == 10);
    }
    assert_true(mismatch);
    fake_fini(&job);
}

static void no_groups(struct desc *desc)
{
    desc->ngroups = desc->nworkloads = 0;
}

static void a_missing_member_is_named(void **state)
{
    struct fake_job job;
    (void)state;
    fake_simple(&job, 3, true, "sum");
    job.desc.rendezvous_timeout_ns = 500000000;
    job.change_desc = no_groups;
    job.changed_rank = 2;
    assert_int_equal(fake_run(&job), 1);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(job.ranks[i].exit_code, 124);
        assert_int_equal(job.ranks[i].failure.code, COLLRUN_ERR_TIMEOUT);
        assert_string_equal(job.ranks[i].failure.text,
                            "group \"world\": rank 2 did not join within 0.5 s (1 of 3 members)");
        assert_int_equal(job.ranks[i].failure.loc.line, 10);
    }
    assert_false(job.ranks[2].failed);
    assert_int_equal(job.ranks[2].exit_code, 1);
    fake_fini(&job);
}

/* ---- an agent out of its mind ---- */

static void a_bad_first_frame_ends_the_rank(void **state)
{
    char printed[1024], garbage[64];
    struct buf b;
    (void)state;
    assert_int_equal(fake_send_garbage("", 0, printed, sizeof printed), 125);
    assert_has(printed, "the agent closed the control connection before it sent WELCOME");
    memset(garbage, 0xee, sizeof garbage);
    assert_int_equal(fake_send_garbage(garbage, sizeof garbage, printed, sizeof printed), 125);
    assert_has(printed, "bytes that are not a collrun frame");
    buf_init(&b);
    wire_put(&b, WIRE_GO, 0, 0, NULL, 0);
    assert_int_equal(fake_send_garbage(b.data, b.len, printed, sizeof printed), 125);
    assert_has(printed, "the first frame of the agent is GO, not WELCOME");
    buf_clear(&b);
    wire_put(&b, WIRE_WELCOME, 0, 0, garbage, sizeof garbage);
    assert_int_equal(fake_send_garbage(b.data, b.len, printed, sizeof printed), 125);
    buf_fini(&b);
}

static void send_bad_frames(struct fake_job *job)
{
    fake_send_bad_frame(job, 0, WIRE_HELLO);
    fake_send_bad_frame(job, 1, WIRE_ABORT);
    fake_send_bad_frame(job, 2, WIRE_REPLY);
}

static void bad_frames_end_the_rank(void **state)
{
    struct fake_job job;
    (void)state;
    fake_simple(&job, 3, false, "sleep")->timeout_ns = 20000000000u;
    job.after_go = send_bad_frames;
    job.after_go_s = 0.1;
    job.no_abort = true;
    assert_int_equal(fake_run(&job), 1);
    static const char *const words[] = {"unexpected frame from the agent: HELLO",
                                        "malformed ABORT frame", "malformed REPLY frame"};
    for (uint32_t i = 0; i < 3; i++) {
        assert_has((char *)job.ranks[i].printed.data, words[i]);
        assert_int_not_equal(job.ranks[i].exit_code, 0);
        assert_true(job.ranks[i].ended_s < 10);
    }
    fake_fini(&job);
}

/* As Python does. The loader has about 1,600 bytes for the thread-local storage of such a library.
 */
static void libcollrun_is_loaded_by_dlopen(void **state)
{
    char self[4096] = "", path[4200];
    (void)state;
    assert_true(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    snprintf(path, sizeof path, "%s/../lib/libcollrun.so.1", dirname(self));
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        fail_msg("%s", dlerror());
    assert_non_null(dlsym(library, "collrun_version"));
    dlclose(library);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(broken_workloads_are_refused),
        cmocka_unit_test(plugins_that_others_can_write_are_refused),
        cmocka_unit_test(plugins_that_others_made_in_a_sticky_directory_are_refused),
        cmocka_unit_test(broken_backends_are_refused),
        cmocka_unit_test(wrong_params_are_refused),
        cmocka_unit_test(a_group_that_does_not_open_is_explained),
        cmocka_unit_test(ranks_with_different_backends_are_refused),
        cmocka_unit_test(a_missing_member_is_named),
        cmocka_unit_test(a_bad_first_frame_ends_the_rank),
        cmocka_unit_test(bad_frames_end_the_rank),
        cmocka_unit_test(libcollrun_is_loaded_by_dlopen),
    };
    return cmocka_run_group_tests_name("engine_load", tests, NULL, NULL);
}
