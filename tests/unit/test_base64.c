/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines of base64: every length, cut at every byte; what is not base64; a conn that writes text to
 * one that reads it.
 */
#include "base/conn.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum { LONG = 10000 };

static void fill(unsigned char *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++)
        bytes[i] = (unsigned char)(i * 7 + i / 256);
}

static void every_length_comes_back(void **state)
{
    (void)state;
    unsigned char bytes[LONG], back[2 * LONG];
    fill(bytes, sizeof bytes);
    for (size_t len = 0; len <= LONG; len += len < 300 ? 1 : 97) {
        struct base64_decoder decoder = {0};
        struct buf text;
        size_t bad;
        buf_init(&text);
        base64_put_lines(&text, bytes, len);
        if (len)
            assert_int_equal(text.data[text.len - 1], '\n');
        for (size_t i = 0, start = 0; i < text.len; i++) {
            assert_true(text.data[i] == '\n' || (text.data[i] > ' ' && text.data[i] < 127));
            assert_true(i - start < 4096);
            start = text.data[i] == '\n' ? i + 1 : start;
        }
        const size_t cut = text.len ? len % text.len : 0;
        if (text.len)
            memcpy(back, text.data, text.len);
        ssize_t n = base64_decode(&decoder, back, cut, &bad);
        assert_true(n >= 0);
        memmove(back + n, back + cut, text.len - cut);
        ssize_t more = base64_decode(&decoder, back + n, text.len - cut, &bad);
        assert_int_equal(n + more, len);
        assert_memory_equal(back, bytes, len);
        buf_fini(&text);
    }
}

static ssize_t decoded(const char *text, char *out, size_t *bad)
{
    struct base64_decoder decoder = {0};
    memcpy(out, text, strlen(text));
    return base64_decode(&decoder, (unsigned char *)out, strlen(text), bad);
}

static void lines_of_others_are_understood_or_refused(void **state)
{
    (void)state;
    char out[64];
    size_t bad = 0;
    assert_int_equal(decoded("\r\nYWJj\r\nZA\r\n\n", out, &bad), 4);
    assert_memory_equal(out, "abcd", 4);
    assert_int_equal(decoded("YWJjZA", out, &bad), 4); /* without its newline */
    assert_int_equal(decoded("YWJj\nsh: not found\n", out, &bad), -1);
    assert_int_equal(bad, 7);
    assert_int_equal(decoded("YWJjZ\n", out, &bad), -1);
    assert_int_equal(bad, 5);
    assert_int_equal(decoded("ZA==\n", out, &bad), -1);
    assert_int_equal(decoded("\xff", out, &bad), -1);
    struct base64_decoder decoder = {0};
    assert_int_equal(base64_decode(&decoder, (unsigned char *)out, 0, &bad), 0);
}

/* ---- a conn ---- */

struct end {
    struct conn conn;
    struct loop *loop;
    size_t frames, bytes;
    struct diag why;
    int closed;
};

static void take_frame(struct conn *c, const struct wire_frame *f)
{
    struct end *e = c->owner;
    unsigned char *expected = malloc(f->len + 1);
    fill(expected, f->len);
    assert_memory_equal(f->payload, expected, f->len);
    free(expected);
    e->frames++;
    e->bytes += f->len;
}

static void note_closed(struct conn *c, const struct diag *why)
{
    struct end *e = c->owner;
    e->closed++;
    e->why = *why;
    loop_stop(e->loop);
}

static void open_end(struct end *e, struct loop *loop, int fd, bool reads, bool writes)
{
    struct diag d;
    *e = (struct end){.loop = loop};
    e->conn = (struct conn){.frame = take_frame,
                            .on_closed = note_closed,
                            .owner = e,
                            .reads_text = reads,
                            .writes_text = writes};
    assert_int_equal(conn_open(&e->conn, loop, fd, fd, &d), 0);
}

static void a_conn_carries_frames_as_text(void **state)
{
    (void)state;
    enum { LEN = 1 << 20, FRAMES = 5 };
    struct loop *loop = loop_new();
    struct end a, b;
    struct buf first;
    int pair[2];
    unsigned char *big = malloc(LEN);
    fill(big, LEN);
    buf_init(&first);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    open_end(&a, loop, pair[0], false, true);
    open_end(&b, loop, pair[1], true, false);
    for (int i = 0; i < FRAMES; i++)
        conn_send(&a.conn, WIRE_PUT, 0, 0, big, i ? LEN : 5);
    for (int i = 0; i < FRAMES; i++)
        conn_send(&b.conn, WIRE_PUT, 0, 0, big, LEN);
    ssize_t n = read(pair[1], big, 7); /* some bytes are read ahead */
    assert_true(n > 0);
    conn_feed(&b.conn, big, (size_t)n);
    for (int round = 0; round < 200 && (a.frames < FRAMES || b.frames < FRAMES); round++) {
        conn_drain(&a.conn, now_ns() + 1000000);
        conn_drain(&b.conn, now_ns() + 1000000);
        a.conn.reader.ready(&a.conn.reader, 0);
        b.conn.reader.ready(&b.conn.reader, 0);
    }
    assert_int_equal(a.frames, FRAMES);
    assert_int_equal(a.bytes, (size_t)FRAMES * LEN);
    assert_int_equal(b.frames, FRAMES);
    assert_int_equal(b.bytes, (FRAMES - 1) * (size_t)LEN + 5);
    conn_close(&a.conn);
    loop_run(loop);
    assert_int_equal(b.closed, 1);
    assert_int_equal(b.why.code, 0);
    conn_close(&b.conn);
    loop_free(loop);
    free(big);
}

static void other_text_closes_a_conn(void **state)
{
    (void)state;
    struct loop *loop = loop_new();
    struct end b;
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    open_end(&b, loop, pair[1], true, false);
    assert_int_equal(write(pair[0], "AAAA\n\nsh: gone\n", 15), 15);
    loop_run(loop);
    assert_int_equal(b.closed, 1);
    assert_int_equal(b.why.code, COLLRUN_ERR_INVALID);
    assert_string_equal(b.why.text, "its output is not base64: \": gone\\n\"");
    close(pair[0]);
    loop_free(loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_length_comes_back),
        cmocka_unit_test(lines_of_others_are_understood_or_refused),
        cmocka_unit_test(a_conn_carries_frames_as_text),
        cmocka_unit_test(other_text_closes_a_conn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
