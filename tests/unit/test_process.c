/* SPDX-License-Identifier: Apache-2.0
 *
 * What is known of a rank from outside: STATUS frames, which may be cut, and what the agent reads
 * of a process, from a made-up /proc.
 */
#include "agent/process.h"
#include "diagnose/snapshot.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define SECOND UINT64_C(1000000000)

/* ---- STATUS ---- */

static void put_group(struct buf *b, const char *scope, uint32_t npending)
{
    buf_put_str(b, "dp");
    for (uint64_t v = 1; v <= 5; v++) /* started, done, bytes, age, count */
        buf_put_u64(b, v);
    buf_put_u32(b, (uint32_t)-1);
    buf_put_u8(b, COLLRUN_ALLREDUCE);
    buf_put_u8(b, COLLRUN_FLOAT32);
    buf_put_u8(b, COLLRUN_SUM);
    buf_put_str(b, scope);
    buf_put_u32(b, 4);
    buf_put_u32(b, 3);
    buf_put_u8(b, 1);
    buf_put_u32(b, npending);
    for (uint32_t i = 0; i < npending; i++) {
        for (uint64_t v = 10; v < 14; v++) /* number, age, idle, count */
            buf_put_u64(b, v + i);
        buf_put_u32(b, 2);
        buf_put_u32(b, 7);
        buf_put_u8(b, COLLRUN_RECV);
        buf_put_u8(b, COLLRUN_FLOAT32);
        buf_put_u8(b, COLLRUN_SUM);
        buf_put_u64(b, 0x1234); /* the call site */
    }
}

static void a_status_that_is_cut_is_refused(void **state)
{
    (void)state;
    struct rank_snapshot s = {0};
    struct buf b;
    buf_init(&b);
    buf_put_u8(&b, 'S');
    buf_put_u32(&b, 3); /* ended_by */
    buf_put_u64(&b, 4); /* in_fini */
    buf_put_u64(&b, 5); /* fini_ns */
    buf_put_u32(&b, 2);
    put_group(&b, "dp#0:12", 0);
    put_group(&b, "dp#1:34", 2);
    struct wire_frame f = {.payload = b.data, .len = b.len};
    assert_true(snapshot_read(&s, &f));
    assert_int_equal(s.ended_by * 100 + s.in_fini * 10 + s.fini_ns, 345);
    assert_string_equal(s.groups[1].scope, "dp#1:34");
    assert_int_equal(s.groups[1].members * 10 + s.groups[1].rank, 43);
    assert_int_equal(s.groups[0].npending, 0);
    assert_int_equal(s.groups[1].npending, 2);
    assert_int_equal(s.groups[1].pending[1].number, 11);
    assert_int_equal(s.groups[1].pending[1].idle_ns, 13);
    assert_int_equal(s.groups[1].pending[1].tag, 7);
    assert_int_equal(s.groups[1].pending[1].site, 0x1234);
    for (f.len = 0; f.len < b.len; f.len++)
        assert_false(snapshot_read(&s, &f));
    assert_string_equal(s.groups[1].scope, "dp#1:34"); /* as before */
    snapshot_fini(&s);
    buf_fini(&b);
}

/* ---- /proc ---- */

static void put_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void proc_has_name_state_time_and_call(void **state)
{
    (void)state;
    char root[] = "/tmp/test_stall.XXXXXX", path[128], command[160];
    struct process_sample first, second;
    assert_non_null(mkdtemp(root));
    snprintf(command, sizeof command, "mkdir -p %s/task/7 %s/task/12 %s/fd", root, root, root);
    assert_int_equal(system(command), 0);
    snprintf(path, sizeof path, "%s/task/12/stat", root);
    put_file(path, "12 (a (b) c) S 1 1 1 0 -1 0 0 0 0 0 100 50 0 0");
    snprintf(path, sizeof path, "%s/task/12/syscall", root);
    put_file(path, "0 0x3 0x0 0x0 0x0 0x0 0x0 0x7f 0x7f\n"); /* read, on x86-64 */
    snprintf(path, sizeof path, "%s/task/7/stat", root);
    put_file(path, "7 (x) R 1 1 1 0 -1 0 0 0 0 0 1 1 0 0");
    snprintf(path, sizeof path, "%s/task/7/schedstat", root);
    put_file(path, "1000000000 0 1\n");
    snprintf(path, sizeof path, "%s/task/7/syscall", root);
    put_file(path, "running\n");
    snprintf(path, sizeof path, "%s/fd/3", root);
    assert_int_equal(symlink("/data/x", path), 0);
    assert_true(process_sample_take(&first, root));
    assert_int_equal(first.n, 2);
    assert_int_equal(first.threads[0].tid, 7);
    assert_int_equal(first.threads[0].run_ns, 1000000000);
    assert_string_equal(first.threads[0].call, "");
    assert_string_equal(first.threads[1].name, "a (b) c");
    assert_int_equal(first.threads[1].state, 'S');
#ifdef __x86_64__
    assert_string_equal(first.threads[1].call, "read(3) of /data/x");
#endif
    snprintf(path, sizeof path, "%s/task/7/schedstat", root);
    put_file(path, "1500000000 0 1\n");
    assert_true(process_sample_take(&second, root));
    second.at_ns = first.at_ns + SECOND;
    assert_int_equal(process_sample_use(&first, &second, 0), 500);
    assert_int_equal(process_sample_use(&first, &second, 1), 0);
    process_sample_fini(&first);
    process_sample_fini(&second);
    assert_false(process_sample_take(&first, "/tmp/no-such-process"));
    process_sample_fini(&first);
    snprintf(command, sizeof command, "rm -r %s", root);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_status_that_is_cut_is_refused),
        cmocka_unit_test(proc_has_name_state_time_and_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
