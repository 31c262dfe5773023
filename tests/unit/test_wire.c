/* SPDX-License-Identifier: Apache-2.0
 *
 * The frame codec, the buffer under it, and a conn over a socketpair: frames cut at every byte,
 * garbage, descriptors.
 */
#include "base/conn.h"
#include "base/wire_fields.h"
#include "copy_frame.h"

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

static void fields_have_their_places(void **state)
{
    static const struct wire_exited exited = {
        -9, 1, 2, 3, "cgroup", 1, {-8, 5, 0, "world", "late"}};
    static const unsigned char metric[] = {7, 0, 0, 0, 1, 0, 0,    0,   'x',
                                           0, 0, 0, 0, 0, 0, 0xf0, 0x3f};
    struct wire_exited got;
    struct wire_metric m;
    struct arena arena;
    struct buf b;
    (void)state;
    arena_init(&arena);
    buf_init(&b);
    wire_put_exited(&b, &exited);
    struct wire_frame f = {.type = WIRE_EXITED, .payload = b.data, .len = b.len};
    assert_true(wire_read_exited(&f, &arena, &got));
    assert_int_equal(got.status, -9);
    assert_int_equal(got.max_rss, 3);
    assert_string_equal(got.memory, "cgroup");
    assert_int_equal(got.why.status, -8);
    assert_string_equal(got.why.text, "late");
    f.len--;
    assert_false(wire_read_exited(&f, &arena, &got)); /* cut */
    buf_put_u8(&b, 0);
    f = (struct wire_frame){.type = WIRE_EXITED, .payload = b.data, .len = b.len};
    assert_false(wire_read_exited(&f, &arena, &got)); /* something follows it */
    f = (struct wire_frame){.type = WIRE_METRIC, .payload = metric, .len = sizeof metric};
    assert_true(wire_read_metric(&f, &arena, &m));
    assert_int_equal(m.workload, 7);
    assert_string_equal(m.name, "x");
    assert_float_equal(m.value, 1, 0);
    buf_fini(&b);
    arena_fini(&arena);
}

/* A payload whose fields are 0 and empty. */
static void put_zeros(uint16_t type, struct buf *out)
{
    switch (type) {
#define ZEROS(TYPE, frame)                                                                         \
    case WIRE_##TYPE:                                                                              \
        wire_put_##frame(out, &(struct wire_##frame){0});                                          \
        break;
        WIRE_FIELDS(ZEROS)
#undef ZEROS
    default:
        break;
    }
}

/* What is read from a payload of which some bytes are others, and written, reads the same again. */
static void fields_of_any_bytes(void **state)
{
    static const uint16_t types[] = {
#define TYPE_OF(TYPE, frame) WIRE_##TYPE,
        WIRE_FIELDS(TYPE_OF)
#undef TYPE_OF
    };
    enum { NTYPES = sizeof types / sizeof *types, EACH = 4000 };
    unsigned good[NTYPES] = {0};
    char text[512];
    uint32_t seed = 1;
    (void)state;
    for (unsigned i = 0; i < NTYPES * EACH; i++) {
        struct buf bytes = {0}, once = {0}, twice = {0};
        put_zeros(types[i % NTYPES], &bytes);
        for (unsigned changes = i / NTYPES % 4; changes && bytes.len; changes--) {
            seed = seed * 1664525u + 1013904223u;
            bytes.data[(seed >> 16) % bytes.len] = (unsigned char)(seed >> 8 & 7);
        }
        const size_t cut = i / NTYPES % 5 == 0 ? (seed >> 8) % 3 : 0;
        struct wire_frame f = {.type = types[i % NTYPES],
                               .payload = bytes.data,
                               .len = bytes.len - (cut < bytes.len ? cut : bytes.len)};
        const bool read = copy_frame(&f, &once);
        wire_print(&f, text, sizeof text);
        assert_int_equal(strstr(text, " malformed") == NULL, read);
        if (read) {
            good[i % NTYPES]++;
            f.payload = once.data;
            f.len = once.len;
            assert_true(copy_frame(&f, &twice));
            assert_int_equal(once.len, twice.len);
            assert_memory_equal(once.data, twice.data, once.len);
        }
        buf_fini(&bytes);
        buf_fini(&once);
        buf_fini(&twice);
    }
    for (unsigned i = 0; i < NTYPES; i++)
        assert_true(good[i] > EACH / 10);
}

/* Fields that are not numbers or texts: what wire.h says about the bytes, and what is read. */
static void answers_and_lists_have_their_places(void **state)
{
    static const uint32_t two[] = {3, 5};
    static const unsigned char reply[] = {1, 0, 0, 0, 's', 1, 0, 0, 0, 'k', 0, 0, 0, 0, 7, 8, 9};
    struct wire_fenced fenced;
    struct wire_reply got;
    struct wire_join join;
    struct arena arena;
    struct buf b;
    (void)state;
    arena_init(&arena);
    buf_init(&b);
    struct wire_frame f = {.type = WIRE_REPLY, .payload = reply, .len = sizeof reply};
    assert_true(wire_read_reply(&f, &arena, &got));
    assert_int_equal(got.answer.failure.code, COLLRUN_OK);
    assert_int_equal(got.answer.bytes.len, 3);
    assert_memory_equal(got.answer.bytes.data, "\7\10\11", 3);
    struct wire_fenced failed = {.scope = "s", .number = 2};
    diag_set(&failed.answer.failure, COLLRUN_ERR_TIMEOUT, "too late");
    wire_put_fenced(&b, &failed);
    f = (struct wire_frame){.type = WIRE_FENCED, .payload = b.data, .len = b.len};
    assert_true(wire_read_fenced(&f, &arena, &fenced));
    assert_int_equal(fenced.number, 2);
    assert_int_equal(fenced.answer.failure.code, COLLRUN_ERR_TIMEOUT);
    assert_string_equal(fenced.answer.failure.text, "too late");
    assert_int_equal(fenced.answer.bytes.len, 0);
    f.len--;
    assert_false(wire_read_fenced(&f, &arena, &fenced));
    buf_clear(&b);
    wire_put_join(&b, &(struct wire_join){"s", "g", 7, {two, 2}, "tcp 1", 4});
    f = (struct wire_frame){.type = WIRE_JOIN, .payload = b.data, .len = b.len};
    assert_true(wire_read_join(&f, &arena, &join));
    assert_int_equal(join.members.n, 2);
    assert_memory_equal(join.members.items, two, sizeof two);
    assert_string_equal(join.identity, "tcp 1");
    b.data[18] = 0xff; /* more members than bytes */
    assert_false(wire_read_join(&f, &arena, &join));
    buf_clear(&b);
    const struct wire_item_site site = {0x401234};
    const struct wire_item_look looks[] = {{.rank = 7, .sites = {&site, 1}}, {.rank = 8}};
    struct wire_read_stacks ask;
    wire_put_read_stacks(&b, &(struct wire_read_stacks){{looks, 2}});
    f = (struct wire_frame){.type = WIRE_READ_STACKS, .payload = b.data, .len = b.len};
    assert_true(wire_read_read_stacks(&f, &arena, &ask));
    assert_int_equal(ask.ranks.n, 2);
    assert_int_equal(ask.ranks.items[0].sites.items[0].address, 0x401234);
    assert_int_equal(ask.ranks.items[1].rank, 8);
    assert_int_equal(ask.ranks.items[1].sites.n, 0);
    b.data[0] = 4; /* more items than their least length has room for */
    assert_false(wire_read_read_stacks(&f, &arena, &ask));
    buf_clear(&b);
    struct wire_multicast cast;
    wire_put_multicast(&b, &(struct wire_multicast){{two, 2}, WIRE_GO, {"xyz", 3}});
    f = (struct wire_frame){.type = WIRE_MULTICAST, .payload = b.data, .len = b.len};
    assert_true(wire_read_multicast(&f, &arena, &cast));
    assert_int_equal(cast.payload.len, 3);
    assert_memory_equal(cast.payload.data, "xyz", 3);
    f.len -= 4; /* without a whole type */
    assert_false(wire_read_multicast(&f, &arena, &cast));
    buf_fini(&b);
    arena_fini(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fields_have_their_places),
        cmocka_unit_test(answers_and_lists_have_their_places),
        cmocka_unit_test(fields_of_any_bytes),
        cmocka_unit_test(frames_survive_any_cut),
        cmocka_unit_test(garbage_is_refused),
        cmocka_unit_test(a_diag_travels_whole),
        cmocka_unit_test(a_reader_never_runs_over),
        cmocka_unit_test(a_conn_carries_large_frames_both_ways),
        cmocka_unit_test(a_conn_may_be_closed_by_its_own_frame),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
