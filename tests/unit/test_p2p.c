/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine's half of messages on a transport of a few lines, in one process: a send is delivered
 * to this rank itself as a message of rank 1, when progress is asked for. Unexpected messages with
 * packets of any length, what receives learn, withdrawal, probes, messages to this rank itself,
 * optional members left out, time-outs, and failures, which stay. test_p2p_own.c has those to this
 * rank itself on devices.
 */
#include "progress/p2p.h"

#include "base/loop.h"
#include "core/error.h"
#include "core/services.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 16 };

struct wire {
    struct p2p *p2p;
    struct collrun_message *sent[MOST];
    unsigned nsent, nfailed;
    unsigned nposted; /* receives that the transport knows of */
    int progress_status;
    uint64_t longest_wait_ns;
    unsigned nwaits, nwoken;
    atomic_bool *needed; /* becomes true in the 30th wait; or NULL */
    int failed_status;
    uint32_t failed_peer;
};

static int wire_send(void *group, struct collrun_message *message)
{
    struct wire *w = group;
    assert_ptr_equal(w->p2p->table.find(w->p2p->table.ctx, message->id), message);
    w->sent[w->nsent++] = message;
    return COLLRUN_OK;
}

static int wire_post(void *group, struct collrun_message *message)
{
    struct wire *w = group;
    assert_int_not_equal(message->peer, 0);
    w->nposted++;
    return COLLRUN_OK;
}

static void wire_unpost(void *group, struct collrun_message *message)
{
    struct wire *w = group;
    assert_int_not_equal(message->peer, 0);
    w->nposted--;
}

static int wire_recv(void *group, struct collrun_message *message, const void *packet, size_t len)
{
    struct wire *w = group;
    assert_int_equal(len, message->len);
    assert_int_equal(message->peer, 1);
    if (len)
        memcpy(message->data, packet, len);
    w->nposted--;
    w->p2p->table.done(w->p2p->table.ctx, message);
    return COLLRUN_OK;
}

static int wire_progress(void *group, uint64_t wait_ns)
{
    struct wire *w = group;
    const struct collrun_p2p *table = &w->p2p->table;
    w->longest_wait_ns = wait_ns > w->longest_wait_ns ? wait_ns : w->longest_wait_ns;
    if (w->needed && ++w->nwaits == 30)
        atomic_store(w->needed, true);
    if (w->progress_status)
        return error_cause(w->progress_status, "the wire is cut");
    unsigned n = w->nsent;
    w->nsent = 0;
    for (unsigned i = 0; i < n; i++) {
        struct collrun_message *m = w->sent[i];
        int rc = table->arrived(table->ctx, 1, &m->envelope, m->data, m->len);
        if (rc != COLLRUN_OK)
            return rc;
        uint32_t id = m->id;
        table->done(table->ctx, m);
        assert_null(table->find(table->ctx, id));
    }
    return n ? COLLRUN_AGAIN : COLLRUN_OK;
}

static void wire_fail(void *group, uint32_t peer, int status, const char *text)
{
    struct wire *w = group;
    assert_non_null(text);
    w->nfailed++;
    w->failed_peer = peer;
    w->failed_status = status;
}

static void wire_wake(void *group)
{
    struct wire *w = group;
    w->nwoken++;
}

static const struct collrun_transport transport = {
    .size = (uint32_t)sizeof(struct collrun_transport),
    .message_size = (uint32_t)sizeof(struct collrun_message),
    .send = wire_send,
    .recv = wire_recv,
    .progress = wire_progress,
    .fail = wire_fail,
    .post = wire_post,
    .unpost = wire_unpost,
};

static struct services services;

static void wire_open(struct wire *w)
{
    services_init(&services, NULL, NULL, NULL, "test");
    *w = (struct wire){.p2p = p2p_new(&transport, &services.table, 0, 4)};
    assert_non_null(w->p2p);
    w->p2p->handle = w;
}

static struct collrun_call call_of(enum collrun_kind kind, void *data, size_t len, uint32_t tag)
{
    struct collrun_call call = COLLRUN_CALL(kind);
    call.send = data;
    call.recv = data;
    call.count = len;
    call.dtype = COLLRUN_UINT8;
    call.peer = 1;
    call.tag = tag;
    call.timeout_ns = 20000000;
    return call;
}

static int exec(struct p2p *p, const struct collrun_call *calls, uint32_t n)
{
    struct p2p_batch batch;
    return p2p_exec(p, calls, n, &batch, NULL);
}

static void unexpected_packets_of_any_length_are_kept(void **state)
{
    (void)state;
    static const size_t lens[] = {0, 1, 256, 257, 5000};
    static char out[5][5000], in[5000];
    struct wire w;
    wire_open(&w);
    for (int round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < 5; i++) {
            memset(out[i], (int)(i + 1), lens[i]);
            struct collrun_call send = call_of(COLLRUN_SEND, out[i], lens[i], i);
            assert_int_equal(exec(w.p2p, &send, 1), COLLRUN_OK);
        }
        assert_int_equal(w.p2p->match.nunexpected, 5);
        for (uint32_t i = 5; i-- > 0;) {
            int source = -1;
            struct collrun_call recv =
                call_of(i % 2 ? COLLRUN_RECV : COLLRUN_RECV_ANY, in, lens[i], i);
            recv.source = &source;
            memset(in, 0, sizeof in);
            assert_int_equal(exec(w.p2p, &recv, 1), COLLRUN_OK);
            assert_memory_equal(in, out[i], lens[i]);
            assert_int_equal(source, i % 2 ? -1 : 1);
        }
    }
    struct collrun_call left = call_of(COLLRUN_SEND, out[4], lens[4], 0);
    assert_int_equal(exec(w.p2p, &left, 1), COLLRUN_OK); /* p2p_free frees it */
    p2p_free(w.p2p);
}

static void a_batch_is_over_when_its_last_message_is(void **state)
{
    (void)state;
    char out[2] = {3, 4}, in[2] = {0};
    struct wire w;
    struct p2p_batch batch;
    wire_open(&w);
    struct collrun_call calls[4] = {
        call_of(COLLRUN_RECV, &in[0], 1, 7), call_of(COLLRUN_RECV_ANY, &in[1], 1, 7),
        call_of(COLLRUN_SEND, &out[0], 1, 7), call_of(COLLRUN_SEND, &out[1], 1, 7)};
    assert_int_equal(p2p_start(w.p2p, calls, 4, &batch), COLLRUN_OK);
    assert_int_equal(p2p_check(w.p2p, &batch), COLLRUN_AGAIN);
    assert_int_equal(p2p_progress(w.p2p), COLLRUN_AGAIN);
    assert_int_equal(p2p_check(w.p2p, &batch), COLLRUN_OK);
    assert_memory_equal(in, out, 2);
    assert_int_equal(w.p2p->nactive, 0);
    p2p_free(w.p2p);
}

/* A failure stays, and the transport is left alone from then on. */
static void expect_failed(struct wire *w, int status, const char *text)
{
    char byte = 0;
    struct collrun_call send = call_of(COLLRUN_SEND, &byte, 1, 0);
    w->nsent = 0;
    assert_string_equal(error_get()->cause, text);
    error_clear_cause();
    assert_int_equal(exec(w->p2p, &send, 1), status);
    assert_string_equal(error_get()->cause, text);
    assert_int_equal(w->nsent, 0);
    p2p_free(w->p2p);
}

static void a_receive_learns_what_came(void **state)
{
    (void)state;
    for (int posted = 0; posted < 2; posted++) {
        char out[3] = {1, 2, 3}, in[5] = {9, 9, 9, 9, 9};
        size_t received = 77;
        uint32_t tag = 0;
        struct wire w;
        wire_open(&w);
        struct collrun_call send = call_of(COLLRUN_SEND, out, 3, 6);
        struct collrun_call recv = call_of(COLLRUN_RECV, in, 5, COLLRUN_ANY_TAG);
        struct collrun_call both[2] = {recv, send};
        recv.received = both[0].received = &received;
        recv.received_tag = both[0].received_tag = &tag;
        if (posted) {
            assert_int_equal(exec(w.p2p, both, 2), COLLRUN_OK);
        } else {
            assert_int_equal(exec(w.p2p, &send, 1), COLLRUN_OK);
            assert_int_equal(exec(w.p2p, &recv, 1), COLLRUN_OK);
        }
        assert_int_equal(received, 3);
        assert_int_equal(tag, 6);
        assert_memory_equal(in, "\1\2\3\11\11", 5);
        assert_int_equal(w.nposted, 0);
        p2p_free(w.p2p);
    }
}

static void only_a_longer_message_is_a_mismatch(void **state)
{
    (void)state;
    char data[4] = {0};
    size_t received = 77;
    struct wire w;
    wire_open(&w);
    struct collrun_call send = call_of(COLLRUN_SEND, data, 4, 6);
    struct collrun_call recv = call_of(COLLRUN_RECV_ANY, data, 3, COLLRUN_ANY_TAG);
    recv.received = &received;
    assert_int_equal(exec(w.p2p, &send, 1), COLLRUN_OK);
    assert_int_equal(exec(w.p2p, &recv, 1), COLLRUN_ERR_MISMATCH);
    assert_int_equal(received, 77);
    expect_failed(&w, COLLRUN_ERR_MISMATCH,
                  "rank 1 calls send(4 x uint8, to 0, tag 6), rank 0 calls recv_any(up to 3 x "
                  "uint8, any tag)");
}

static void messages_to_this_rank_stay_in_the_engine(void **state)
{
    (void)state;
    enum { LONG = 100000 };
    char *out = malloc(LONG), *in = calloc(1, LONG);
    int source = -1;
    struct wire w;
    wire_open(&w);
    memset(out, 5, LONG);
    struct collrun_call send = call_of(COLLRUN_SEND, out, LONG, 6), empty = send;
    struct collrun_call recv = call_of(COLLRUN_RECV, in, LONG, 6), any = recv;
    send.peer = recv.peer = empty.peer = 0;
    any.kind = COLLRUN_RECV_ANY;
    any.source = &source;
    any.count = empty.count = 0;
    /* Unexpected, with the buffer reused; then posted. */
    assert_int_equal(exec(w.p2p, &send, 1), COLLRUN_OK);
    memset(out, 6, LONG);
    assert_int_equal(exec(w.p2p, &recv, 1), COLLRUN_OK);
    assert_int_equal(in[0] + in[LONG - 1], 10);
    struct collrun_call both[3] = {recv, any, send};
    assert_int_equal(exec(w.p2p, (struct collrun_call[]){both[0], both[2]}, 2), COLLRUN_OK);
    assert_int_equal(in[0] + in[LONG - 1], 12);
    assert_int_equal(exec(w.p2p, (struct collrun_call[]){any, empty}, 2), COLLRUN_OK);
    assert_int_equal(source, 0);
    assert_int_equal(w.nsent, 0);
    assert_int_equal(w.nposted, 0);
    assert_int_equal(w.p2p->nactive, 0);
    p2p_free(w.p2p);
    free(in);
    free(out);
}

static void receives_are_withdrawn_until_one_is_matched(void **state)
{
    (void)state;
    char in[3] = {0}, out = 4;
    struct wire w;
    struct p2p_batch batch;
    wire_open(&w);
    struct collrun_call recvs[3] = {call_of(COLLRUN_RECV, &in[0], 1, 1),
                                    call_of(COLLRUN_RECV_ANY, &in[1], 1, COLLRUN_ANY_TAG),
                                    call_of(COLLRUN_RECV, &in[2], 1, 1)};
    struct collrun_call send = call_of(COLLRUN_SEND, &out, 1, 1);
    recvs[2].peer = 0;
    assert_int_equal(p2p_start(w.p2p, recvs, 3, &batch), COLLRUN_OK);
    assert_int_equal(p2p_withdraw(w.p2p, &batch), COLLRUN_OK);
    assert_int_equal(w.p2p->nactive, 0);
    assert_int_equal(w.nposted, 0);
    /* The message finds no receive. */
    assert_int_equal(exec(w.p2p, &send, 1), COLLRUN_OK);
    assert_int_equal(w.p2p->match.nunexpected, 1);
    assert_int_equal(p2p_start(w.p2p, recvs, 2, &batch), COLLRUN_OK);
    assert_int_equal(p2p_withdraw(w.p2p, &batch), COLLRUN_AGAIN);
    assert_int_equal(in[0], 4);
    assert_int_equal(exec(w.p2p, &send, 1), COLLRUN_OK);
    assert_int_equal(p2p_check(w.p2p, &batch), COLLRUN_OK);
    p2p_free(w.p2p);
}

static void a_probe_leaves_the_message(void **state)
{
    (void)state;
    char out[2] = {4, 5}, in[2] = {0};
    struct wire w;
    struct p2p_batch batch;
    wire_open(&w);
    struct collrun_call send = call_of(COLLRUN_SEND, out, 2, 3);
    struct collrun_call recv = call_of(COLLRUN_RECV, in, 2, 3);
    struct p2p_probe probe = {.source = MATCH_ANY_SOURCE, .tag = MATCH_ANY_TAG};
    assert_int_equal(p2p_probe(w.p2p, &probe, 0), COLLRUN_AGAIN);
    assert_int_equal(w.nposted, 0);
    assert_int_equal(p2p_start(w.p2p, &send, 1, &batch), COLLRUN_OK); /* it is on the wire */
    for (int i = 0; i < 2; i++) {
        assert_int_equal(p2p_probe(w.p2p, &probe, 0), COLLRUN_OK);
        assert_int_equal(probe.from, 1);
        assert_int_equal(probe.envelope.tag, 3);
        assert_int_equal(probe.envelope.count, 2);
        assert_int_equal(probe.envelope.dtype, COLLRUN_UINT8);
    }
    probe = (struct p2p_probe){.source = 1, .tag = 4};
    assert_int_equal(p2p_probe(w.p2p, &probe, 0), COLLRUN_AGAIN);
    assert_int_equal(exec(w.p2p, &recv, 1), COLLRUN_OK);
    assert_memory_equal(in, out, 2);
    assert_int_equal(p2p_probe_expired(w.p2p, &probe, 2000000000), COLLRUN_ERR_TIMEOUT);
    expect_failed(&w, COLLRUN_ERR_TIMEOUT, "rank 0 waited 2.0 s for rank 1");
}

static void a_wait_ends_when_the_handle_is_needed(void **state)
{
    (void)state;
    char in = 0, out = 7;
    atomic_bool yield = true;
    struct wire w;
    struct p2p_batch batch;
    wire_open(&w);
    struct collrun_call recv = call_of(COLLRUN_RECV, &in, 1, 3);
    struct collrun_call send = call_of(COLLRUN_SEND, &out, 1, 3);
    assert_int_equal(p2p_exec(w.p2p, &recv, 1, &batch, &yield), COLLRUN_AGAIN);
    assert_int_equal(exec(w.p2p, &send, 1), COLLRUN_OK);
    assert_int_equal(p2p_check(w.p2p, &batch), COLLRUN_OK);
    assert_int_equal(in, 7);
    p2p_free(w.p2p);
}

/* A receive with a time-out of 60 s, which another thread interrupts. */
static void wait_until_needed(struct wire *w)
{
    char in = 0;
    atomic_bool needed = false;
    struct p2p_batch batch;
    struct collrun_call recv = call_of(COLLRUN_RECV, &in, 1, 3);
    recv.timeout_ns = 60000000000;
    w->needed = &needed;
    assert_int_equal(p2p_exec(w->p2p, &recv, 1, &batch, &needed), COLLRUN_AGAIN);
    p2p_free(w->p2p);
}

static void a_wait_that_may_be_ended_is_short(void **state)
{
    (void)state;
    struct wire w;
    wire_open(&w);
    wait_until_needed(&w);
    assert_int_equal(w.nwaits, 30);
    assert_true(w.longest_wait_ns <= 20000000);
}

static void a_wait_that_can_be_woken_is_long(void **state)
{
    (void)state;
    struct wire w;
    wire_open(&w);
    w.p2p->transport.wake = wire_wake;
    p2p_wake(w.p2p);
    assert_int_equal(w.nwoken, 1);
    wait_until_needed(&w);
    assert_true(w.longest_wait_ns > 50000000000);
}

static void a_time_out_is_not_early(void **state)
{
    (void)state;
    for (uint64_t timeout_ns = 5000000; timeout_ns < 20000000; timeout_ns += 7000000) {
        char in;
        struct wire w;
        wire_open(&w);
        struct collrun_call recv = call_of(COLLRUN_RECV, &in, 1, 3);
        recv.timeout_ns = timeout_ns;
        uint64_t begun = now_ns();
        assert_int_equal(exec(w.p2p, &recv, 1), COLLRUN_ERR_TIMEOUT);
        assert_true(now_ns() - begun >= timeout_ns);
        p2p_free(w.p2p);
    }
}

static void a_tag_that_no_sender_uses_fails_the_group(void **state)
{
    (void)state;
    struct wire w;
    const struct collrun_envelope envelope = {.tag = COLLRUN_ANY_TAG};
    wire_open(&w);
    assert_int_equal(w.p2p->table.arrived(w.p2p, 1, &envelope, NULL, 0), COLLRUN_ERR_BACKEND);
    expect_failed(&w, COLLRUN_ERR_BACKEND, "malformed message: no sender uses its tag");
}

static void a_mismatch_names_both_calls(void **state)
{
    (void)state;
    for (int posted = 0; posted < 2; posted++) {
        char data[4] = {0};
        struct wire w;
        wire_open(&w);
        struct collrun_call calls[2] = {call_of(COLLRUN_SEND, data, 3, 9),
                                        call_of(COLLRUN_RECV, data, 4, 9)};
        int rc = COLLRUN_OK;
        if (posted) {
            struct collrun_call both[2] = {calls[1], calls[0]};
            rc = exec(w.p2p, both, 2);
        } else {
            assert_int_equal(exec(w.p2p, &calls[0], 1), COLLRUN_OK);
            rc = exec(w.p2p, &calls[1], 1);
        }
        assert_int_equal(rc, COLLRUN_ERR_MISMATCH);
        assert_int_equal(w.nfailed, 1);
        assert_int_equal(w.failed_peer, 1);
        assert_int_equal(w.failed_status, COLLRUN_ERR_MISMATCH);
        expect_failed(
            &w, COLLRUN_ERR_MISMATCH,
            "rank 1 calls send(3 x uint8, to 0, tag 9), rank 0 calls recv(4 x uint8, from "
            "1, tag 9)");
    }
}

static void a_time_out_names_the_missing_ranks(void **state)
{
    (void)state;
    char data[2];
    struct wire w;
    wire_open(&w);
    struct collrun_call any = call_of(COLLRUN_RECV_ANY, data, 1, 0);
    any.timeout_ns = 100000000;
    assert_int_equal(exec(w.p2p, &any, 1), COLLRUN_ERR_TIMEOUT);
    assert_int_equal(w.failed_peer, COLLRUN_ANY_SOURCE);
    expect_failed(&w, COLLRUN_ERR_TIMEOUT, "rank 0 waited 0.1 s for ranks 1-3");
}

static void a_failure_of_the_transport_stays(void **state)
{
    (void)state;
    char data[2];
    struct wire w;
    wire_open(&w);
    w.progress_status = COLLRUN_ERR_BACKEND;
    struct collrun_call recv = call_of(COLLRUN_RECV, data, 1, 0);
    assert_int_equal(exec(w.p2p, &recv, 1), COLLRUN_ERR_BACKEND);
    assert_int_equal(w.nfailed, 0);
    w.progress_status = 0;
    expect_failed(&w, COLLRUN_ERR_BACKEND, "the wire is cut");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unexpected_packets_of_any_length_are_kept),
        cmocka_unit_test(a_batch_is_over_when_its_last_message_is),
        cmocka_unit_test(a_receive_learns_what_came),
        cmocka_unit_test(only_a_longer_message_is_a_mismatch),
        cmocka_unit_test(messages_to_this_rank_stay_in_the_engine),
        cmocka_unit_test(receives_are_withdrawn_until_one_is_matched),
        cmocka_unit_test(a_probe_leaves_the_message),
        cmocka_unit_test(a_wait_ends_when_the_handle_is_needed),
        cmocka_unit_test(a_wait_that_may_be_ended_is_short),
        cmocka_unit_test(a_wait_that_can_be_woken_is_long),
        cmocka_unit_test(a_time_out_is_not_early),
        cmocka_unit_test(a_tag_that_no_sender_uses_fails_the_group),
        cmocka_unit_test(a_mismatch_names_both_calls),
        cmocka_unit_test(a_time_out_names_the_missing_ranks),
        cmocka_unit_test(a_failure_of_the_transport_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
