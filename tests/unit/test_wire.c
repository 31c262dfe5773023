/* SPDX-License-Identifier: Apache-2.0
 *
 * The frame codec, the buffer under it, and a conn over a socketpair: frames cut at every byte,
 * garbage, descriptors.
 */
#include "base/conn.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static void frames_survive_any_cut(void **state)
{
    (void)state;
    struct buf whole;
    buf_init(&whole);
    wire_put(&whole, WIRE_PUT, 3, 1, "abc", 3);
    wire_put(&whole, WIRE_GO, WIRE_HOST, 0, NULL, 0);
    for (size_t cut = 0; cut <= whole.len; cut++) {
        struct buf in;
        struct wire_frame f;
        struct diag d;
        int frames = 0;
        buf_init(&in);
        buf_put(&in, whole.data, cut);
        while (wire_next(&in, &f, &d) > 0) {
            wire_next_done(&in, &f);
            frames++;
        }
        assert_int_equal(frames, cut == whole.len ? 2 : cut >= WIRE_HEAD_LEN + 3 ? 1 : 0);
        buf_put(&in, whole.data + cut, whole.len - cut);
        while (wire_next(&in, &f, &d) > 0) {
            if (frames++ == 0) {
                assert_int_equal(f.type, WIRE_PUT);
                assert_int_equal(f.rank, 3);
                assert_int_equal(f.attempt, 1);
                assert_memory_equal(f.payload, "abc", 3);
            }
            wire_next_done(&in, &f);
        }
        assert_int_equal(frames, 2);
        assert_int_equal(buf_pending(&in), 0);
        buf_fini(&in);
    }
    buf_fini(&whole);
}

static void garbage_is_refused(void **state)
{
    (void)state;
    struct buf in;
    struct wire_frame f;
    struct diag d;
    buf_init(&in);
    buf_put(&in, "Welcome to host17! Last login: Tue", 34);
    diag_init(&d);
    assert_true(wire_next(&in, &f, &d) < 0);
    assert_non_null(strstr(d.text, "not a collrun frame"));
    buf_fini(&in);
}

static void a_diag_travels_whole(void **state)
{
    (void)state;
    struct diag in, out;
    struct buf b;
    struct reader r;
    diag_set(&in, COLLRUN_ERR_TIMEOUT, "group \"%s\"", "dp");
    diag_hint(&in, "wait longer");
    in.rank = 5;
    in.loc = (struct diag_loc){.file = "--set #1", .line = 14, .column = 3, .width = 5};
    struct arena arena;
    arena_init(&arena);
    buf_init(&b);
    wire_put_diag(&b, &in);
    reader_init(&r, b.data, b.len);
    wire_read_diag(&r, &arena, &out);
    assert_true(reader_done(&r));
    assert_int_equal(out.code, COLLRUN_ERR_TIMEOUT);
    assert_int_equal(out.rank, 5);
    assert_int_equal(out.loc.line, 14);
    assert_string_equal(out.loc.file, "--set #1");
    assert_null(out.loc2.file);
    assert_string_equal(out.text, "group \"dp\"");
    assert_string_equal(out.hint, "wait longer");
    for (size_t cut = 0; cut < b.len; cut++) {
        reader_init(&r, b.data, cut);
        wire_read_diag(&r, NULL, &out);
        assert_true(r.bad);
    }
    buf_fini(&b);
    arena_fini(&arena);
}

static void a_reader_never_runs_over(void **state)
{
    (void)state;
    const unsigned char bytes[] = {0xff, 0xff, 0xff, 0xff, 1};
    struct reader r;
    size_t len;
    reader_init(&r, bytes, sizeof bytes);
    assert_int_equal(read_count(&r, 4), 0);
    assert_true(r.bad);
    reader_init(&r, bytes, sizeof bytes);
    assert_null(read_blob(&r, &len));
    assert_int_equal(len, 0);
    assert_int_equal(read_u64(&r), 0);
}

/* ---- conn ---- */

struct end {
    struct loop *loop;
    struct conn conn;
    int frames, closed;
    size_t bytes;
    bool close_in_frame;
};

static void count_frame(struct conn *c, const struct wire_frame *f)
{
    struct end *e = c->owner;
    e->frames++;
    e->bytes += f->len;
    if (e->close_in_frame) {
        conn_close(c);
        loop_stop(e->loop);
    }
}

static void note_closed(struct conn *c, const struct diag *why)
{
    struct end *e = c->owner;
    (void)why;
    e->closed++;
    loop_stop(e->loop);
}

static void open_end(struct end *e, struct loop *loop, int fd)
{
    struct diag d;
    *e = (struct end){.loop = loop};
    e->conn.frame = count_frame;
    e->conn.on_closed = note_closed;
    e->conn.owner = e;
    assert_int_equal(conn_open(&e->conn, loop, fd, fd, &d), 0);
}

static void a_conn_carries_large_frames_both_ways(void **state)
{
    (void)state;
    enum { LEN = 3 << 20 };
    struct loop *loop = loop_new();
    struct end a, b;
    int pair[2];
    char *big = calloc(1, LEN);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    open_end(&a, loop, pair[0]);
    open_end(&b, loop, pair[1]);
    for (int i = 0; i < 3; i++) {
        conn_send(&a.conn, WIRE_PUT, 0, 0, big, LEN);
        conn_send(&b.conn, WIRE_PUT, 0, 0, big, LEN);
    }
    for (int round = 0; round < 100 && (a.frames < 3 || b.frames < 3); round++) {
        conn_drain(&a.conn, now_ns() + 1000000);
        conn_drain(&b.conn, now_ns() + 1000000);
        a.conn.reader.ready(&a.conn.reader, 0);
        b.conn.reader.ready(&b.conn.reader, 0);
    }
    assert_int_equal(a.frames, 3);
    assert_int_equal(b.bytes, 3 * (size_t)LEN);
    conn_close(&a.conn);
    loop_run(loop);
    assert_int_equal(b.closed, 1);
    assert_int_equal(a.closed, 0);
    conn_close(&b.conn);
    loop_free(loop);
    free(big);
}

static void a_conn_may_be_closed_by_its_own_frame(void **state)
{
    (void)state;
    struct loop *loop = loop_new();
    struct end a, b;
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    open_end(&a, loop, pair[0]);
    open_end(&b, loop, pair[1]);
    b.close_in_frame = true;
    conn_send(&a.conn, WIRE_PUT, 0, 0, "x", 1);
    conn_send(&a.conn, WIRE_PUT, 0, 0, "y", 1);
    loop_run(loop);
    assert_int_equal(b.frames, 1);
    assert_int_equal(b.closed, 0);
    loop_run(loop);
    assert_int_equal(a.closed, 1);
    loop_free(loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_survive_any_cut),
        cmocka_unit_test(garbage_is_refused),
        cmocka_unit_test(a_diag_travels_whole),
        cmocka_unit_test(a_reader_never_runs_over),
        cmocka_unit_test(a_conn_carries_large_frames_both_ways),
        cmocka_unit_test(a_conn_may_be_closed_by_its_own_frame),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
