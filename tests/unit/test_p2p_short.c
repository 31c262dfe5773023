/* SPDX-License-Identifier: Apache-2.0
 *
 * The short way of a blocking message, on a transport of a few lines that brings what this rank
 * sends back as messages of rank 1: what it tells the caller, and when it is closed, so
 * that messages keep their order.
 */
#include "null_group.h"
#include "progress/p2p.h"

#include "core/services.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 8, LONGEST = 16 };

struct packet {
    struct collrun_envelope envelope;
    char data[LONGEST];
};

/* The packets from `taken` up to `sent` are on the way. */
struct wire {
    struct p2p *p2p;
    struct packet packets[MOST];
    unsigned sent, taken;
    unsigned nshort, nlong; /* messages that were done by either way */
};

static int wire_send_short(void *group, const struct collrun_message *m)
{
    struct wire *w = group;
    if (m->len > LONGEST || w->sent == MOST)
        return COLLRUN_AGAIN;
    struct packet *packet = &w->packets[w->sent++];
    packet->envelope = m->envelope;
    memcpy(packet->data, m->data, m->len);
    w->nshort++;
    return COLLRUN_OK;
}

static int wire_recv_short(void *group, const struct collrun_message *m)
{
    struct wire *w = group;
    const struct packet *packet = &w->packets[w->taken];
    if (w->taken == w->sent || packet->envelope.tag != m->envelope.tag ||
        packet->envelope.count != m->envelope.count || packet->envelope.dtype != m->envelope.dtype)
        return COLLRUN_AGAIN;
    memcpy(m->data, packet->data, m->len);
    w->taken++;
    w->nshort++;
    return COLLRUN_OK;
}

static int wire_send(void *group, struct collrun_message *m)
{
    struct wire *w = group;
    w->nlong++;
    w->p2p->table.done(w->p2p->table.ctx, m);
    return COLLRUN_OK;
}

static int wire_recv(void *group, struct collrun_message *m, const void *packet, size_t len)
{
    struct wire *w = group;
    assert_int_equal(len, m->len);
    memcpy(m->data, packet, len);
    w->nlong++;
    w->p2p->table.done(w->p2p->table.ctx, m);
    return COLLRUN_OK;
}

static int wire_progress(void *group, uint64_t wait_ns)
{
    struct wire *w = group;
    (void)wait_ns;
    if (w->taken == w->sent)
        return COLLRUN_OK;
    const struct packet *packet = &w->packets[w->taken++];
    const size_t len = packet->envelope.count;
    const int rc =
        w->p2p->table.arrived(w->p2p->table.ctx, 1, &packet->envelope, packet->data, len);
    return rc == COLLRUN_OK ? COLLRUN_AGAIN : rc;
}

static const struct collrun_transport transport = {
    .size = (uint32_t)sizeof(struct collrun_transport),
    .message_size = (uint32_t)sizeof(struct collrun_message),
    .send = wire_send,
    .recv = wire_recv,
    .progress = wire_progress,
    .send_short = wire_send_short,
    .recv_short = wire_recv_short,
};

static struct services services;

static int wire_setup(void **state)
{
    static struct wire w;
    services_init(&services, NULL, NULL, NULL, "test");
    w = (struct wire){.p2p = p2p_new(&transport, &services.table, 0, 2)};
    if (!w.p2p)
        return 1;
    w.p2p->handle = &w;
    *state = &w;
    return 0;
}

static int wire_teardown(void **state)
{
    struct wire *w = *state;
    p2p_free(w->p2p);
    return 0;
}

static int exec(struct wire *w, enum collrun_kind kind, void *data, size_t len, uint32_t tag)
{
    struct p2p_batch batch;
    struct collrun_call call = null_group_message(kind, data, len);
    call.tag = tag;
    call.timeout_ns = 20000000;
    return p2p_exec(w->p2p, &call, 1, &batch, NULL);
}

static void a_short_message_is_described(void **state)
{
    struct wire *w = *state;
    size_t received = 99;
    uint32_t tag = 99;
    char in[4] = "";
    struct collrun_call call = null_group_message(COLLRUN_RECV, in, 4);
    call.tag = 7;
    call.received = &received;
    call.received_tag = &tag;
    assert_int_equal(p2p_short_exec(w->p2p, &call), COLLRUN_AGAIN);
    assert_int_equal(exec(w, COLLRUN_SEND, "abcd", 4, 7), COLLRUN_OK);
    assert_int_equal(p2p_short_exec(w->p2p, &call), COLLRUN_OK);
    assert_memory_equal(in, "abcd", 4);
    assert_int_equal(received, 4);
    assert_int_equal(tag, 7);
    assert_int_equal(w->nshort, 2);
}

static void what_is_long_takes_the_usual_way(void **state)
{
    struct wire *w = *state;
    char out[LONGEST + 1] = "";
    assert_int_equal(exec(w, COLLRUN_SEND, out, sizeof out, 0), COLLRUN_OK);
    assert_int_equal(w->nlong, 1);
    assert_int_equal(w->nshort, 0);
}

/* The second message has the tag of the first one that is received: that receive makes the first
 * message unexpected, and the third one, of the same tag, must not overtake it. */
static void an_unexpected_message_is_not_overtaken(void **state)
{
    struct wire *w = *state;
    char in[1];
    assert_int_equal(exec(w, COLLRUN_SEND, "a", 1, 1), COLLRUN_OK);
    assert_int_equal(exec(w, COLLRUN_SEND, "b", 1, 2), COLLRUN_OK);
    assert_int_equal(exec(w, COLLRUN_SEND, "c", 1, 1), COLLRUN_OK);
    assert_int_equal(exec(w, COLLRUN_RECV, in, 1, 2), COLLRUN_OK);
    assert_int_equal(in[0], 'b');
    assert_int_equal(exec(w, COLLRUN_RECV, in, 1, 1), COLLRUN_OK);
    assert_int_equal(in[0], 'a');
    assert_int_equal(exec(w, COLLRUN_RECV, in, 1, 1), COLLRUN_OK);
    assert_int_equal(in[0], 'c');
}

static void a_posted_receive_is_served_first(void **state)
{
    struct wire *w = *state;
    struct p2p_batch batch;
    char first[1], second[1];
    struct collrun_call call = COLLRUN_CALL(COLLRUN_RECV_ANY);
    call.recv = first;
    call.count = 1;
    call.dtype = COLLRUN_UINT8;
    call.tag = 1;
    assert_int_equal(p2p_start(w->p2p, &call, 1, &batch), COLLRUN_OK);
    w->packets[w->sent++] = (struct packet){{.count = 1, .tag = 1, .dtype = COLLRUN_UINT8}, "a"};
    w->packets[w->sent++] = (struct packet){{.count = 1, .tag = 1, .dtype = COLLRUN_UINT8}, "b"};
    assert_int_equal(exec(w, COLLRUN_RECV, second, 1, 1), COLLRUN_OK);
    assert_int_equal(first[0], 'a');
    assert_int_equal(second[0], 'b');
}

static void another_type_or_count_is_a_mismatch(void **state)
{
    struct wire *w = *state;
    char in[2];
    assert_int_equal(exec(w, COLLRUN_SEND, "a", 1, 0), COLLRUN_OK);
    assert_int_equal(exec(w, COLLRUN_RECV, in, 2, 0), COLLRUN_ERR_MISMATCH);
    assert_int_equal(exec(w, COLLRUN_SEND, "a", 1, 0), COLLRUN_ERR_MISMATCH);
}

#define WIRE_TEST(name) cmocka_unit_test_setup_teardown(name, wire_setup, wire_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WIRE_TEST(a_short_message_is_described),
        WIRE_TEST(what_is_long_takes_the_usual_way),
        WIRE_TEST(an_unexpected_message_is_not_overtaken),
        WIRE_TEST(a_posted_receive_is_served_first),
        WIRE_TEST(another_type_or_count_is_a_mismatch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
