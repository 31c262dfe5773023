/* SPDX-License-Identifier: Apache-2.0
 *
 * Started sends of a group whose transport takes messages of up to 16 bytes at once: which of them
 * are done when collrun_start returns, and which take the way of all other requests.
 */
#include "null_group.h"
#include "ops/request.h"
#include "progress/p2p.h"
#include "progress/progress_queue.h"

#include <collrun/collrun.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { LONGEST = 16 };

static struct {
    struct collrun_group *group;
    struct p2p *p2p;
    unsigned nshort, nlong; /* sends by either way */
} wire;

static int wire_send_short(void *group, const struct collrun_message *m)
{
    (void)group;
    if (m->len > LONGEST)
        return COLLRUN_AGAIN;
    wire.nshort++;
    return COLLRUN_OK;
}

static int wire_send(void *group, struct collrun_message *m)
{
    (void)group;
    wire.nlong++;
    wire.p2p->table.done(wire.p2p->table.ctx, m);
    return COLLRUN_OK;
}

static const struct collrun_transport transport = {
    .size = (uint32_t)sizeof(struct collrun_transport),
    .message_size = (uint32_t)sizeof(struct collrun_message),
    .send = wire_send,
    .recv = null_transport_recv,
    .progress = null_transport_progress,
    .send_short = wire_send_short,
};

static int setup(void **state)
{
    (void)state;
    memset(&wire, 0, sizeof wire);
    wire.group = null_group_new(0, 2, COLLRUN_BACKEND_ENVELOPES | COLLRUN_BACKEND_TAGS);
    wire.p2p = wire.group ? null_group_carry(wire.group, &transport) : NULL;
    return wire.p2p ? 0 : 1;
}

static int teardown(void **state)
{
    (void)state;
    null_group_free(wire.group);
    return 0;
}

static struct collrun_request *start(enum collrun_kind kind, void *data, size_t len)
{
    return null_group_start(wire.group, null_group_message(kind, data, len));
}

static void a_short_send_is_done_when_it_is_started(void **state)
{
    (void)state;
    struct collrun_request *r = start(COLLRUN_SEND, "short", 5);
    assert_int_equal(wire.nshort, 1);
    assert_int_equal(r->status, COLLRUN_OK);
    assert_null(wire.group->requests.newest); /* and holds nothing */
    request_spare_close(wire.group);
    assert_int_equal(atomic_load(&wire.group->refs), 1);
    assert_int_equal(collrun_cancel(r), COLLRUN_ERR_INVALID);
    assert_int_equal(collrun_poll(r), COLLRUN_OK);
    assert_int_equal(collrun_wait_stream(r, 0, NULL), COLLRUN_OK);
    assert_int_equal(collrun_wait_stream(r, -1, NULL), COLLRUN_ERR_INVALID);
    assert_int_equal(collrun_wait(r), COLLRUN_OK);
    struct collrun_request *all[] = {NULL, r};
    int index = -1;
    assert_int_equal(collrun_wait_any(all, 2, &index), COLLRUN_OK);
    assert_int_equal(index, 1);
    assert_null(all[1]);
}

static void a_longer_send_takes_the_usual_way(void **state)
{
    (void)state;
    char data[LONGEST + 1] = "";
    assert_int_equal(collrun_wait(start(COLLRUN_SEND, data, sizeof data)), COLLRUN_OK);
    assert_int_equal(wire.nshort, 0);
    assert_int_equal(wire.nlong, 1);
    request_spare_close(wire.group);
    assert_int_equal(atomic_load(&wire.group->refs), 1);
}

static void a_send_behind_a_request_takes_the_usual_way(void **state)
{
    (void)state;
    char in[4];
    struct collrun_request *receive = start(COLLRUN_RECV, in, sizeof in);
    assert_int_equal(collrun_wait(start(COLLRUN_SEND, "short", 5)), COLLRUN_OK);
    assert_int_equal(wire.nshort, 0);
    assert_int_equal(wire.nlong, 1);
    assert_int_equal(collrun_cancel(receive), COLLRUN_OK);
}

#define WIRE_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WIRE_TEST(a_short_send_is_done_when_it_is_started),
        WIRE_TEST(a_longer_send_takes_the_usual_way),
        WIRE_TEST(a_send_behind_a_request_takes_the_usual_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
