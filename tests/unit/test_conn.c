/* SPDX-License-Identifier: Apache-2.0
 *
 * One end of a control connection: when what was buffered has been written, its owner is called,
 * whichever message found the room for the last byte.
 */
#include "base/conn.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum { LEN = 4 << 20 };

struct end {
    struct conn conn;
    struct loop *loop;
    int peer, drained;
    unsigned char *bytes;
};

static void ignore_frame(struct conn *c, const struct wire_frame *f)
{
    (void)c, (void)f;
}

static void ignore_end(struct conn *c, const struct diag *why)
{
    (void)c, (void)why;
}

static void count_drained(struct conn *c)
{
    struct end *e = c->owner;
    e->drained++;
}

/* More than the socket holds is on its way. */
static int open_end(void **state)
{
    struct end *e = calloc(1, sizeof *e);
    struct diag d;
    int pair[2];
    assert_non_null(e);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
    e->loop = loop_new();
    e->bytes = calloc(1, LEN);
    e->peer = pair[1];
    e->conn = (struct conn){
        .frame = ignore_frame, .on_closed = ignore_end, .drained = count_drained, .owner = e};
    assert_int_equal(conn_open(&e->conn, e->loop, pair[0], pair[0], &d), COLLRUN_OK);
    conn_send(&e->conn, WIRE_LOG, 0, 0, e->bytes, LEN);
    assert_true(buf_pending(conn_out(&e->conn)) > 0);
    assert_int_equal(e->drained, 0);
    *state = e;
    return 0;
}

static int close_end(void **state)
{
    struct end *e = *state;
    conn_close(&e->conn);
    close(e->peer);
    loop_free(e->loop);
    free(e->bytes);
    free(e);
    return 0;
}

static void the_loop_writes_the_last_byte(void **state)
{
    struct end *e = *state;
    while (buf_pending(conn_out(&e->conn))) {
        assert_true(read(e->peer, e->bytes, LEN) > 0);
        e->conn.writer.ready(&e->conn.writer, EPOLLOUT);
    }
    assert_int_equal(e->drained, 1);
}

static void another_message_writes_the_last_byte(void **state)
{
    struct end *e = *state;
    while (buf_pending(conn_out(&e->conn))) {
        assert_true(read(e->peer, e->bytes, LEN) > 0);
        conn_send(&e->conn, WIRE_HEARTBEAT, 0, 0, NULL, 0);
    }
    assert_int_equal(e->drained, 1);
    conn_send(&e->conn, WIRE_HEARTBEAT, 0, 0, NULL, 0); /* is written at once */
    assert_int_equal(e->drained, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_loop_writes_the_last_byte, open_end, close_end),
        cmocka_unit_test_setup_teardown(another_message_writes_the_last_byte, open_end, close_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
