/* SPDX-License-Identifier: Apache-2.0
 *
 * Spares: which requests are used again, and that a call which differs in anything is checked and
 * runs with its own arguments.
 */
#include "null_group.h"
#include "ops/request.h"
#include "progress/p2p.h"
#include "progress/progress_queue.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { RANK = 1, N = 4, THREADS = 4, STARTS = 3000 };
static int32_t space[256];

static struct collrun_call reduce_call(void)
{
    struct collrun_call call = COLLRUN_CALL(COLLRUN_REDUCE);
    call.send = &space[0];
    call.recv = &space[128];
    call.count = 8;
    call.dtype = COLLRUN_INT32;
    call.op = COLLRUN_SUM;
    return call;
}

static struct collrun_request *start(struct collrun_group *g, const struct collrun_call *call)
{
    struct collrun_request *r = NULL;
    assert_int_equal(collrun_start(g, call, &r), COLLRUN_OK);
    assert_non_null(r);
    return r;
}

static void the_same_call_has_the_same_request(void **state)
{
    (void)state;
    struct collrun_group *g = null_group_new(RANK, N, 0);
    const struct collrun_call call = reduce_call();
    const struct collrun_request *first = start(g, &call);
    const uint64_t number = first->number;
    assert_int_equal(collrun_wait((struct collrun_request *)(uintptr_t)first), COLLRUN_OK);
    for (unsigned i = 1; i < 4; i++) {
        struct collrun_request *r = start(g, &call);
        assert_ptr_equal(r, first);
        assert_int_equal(r->number, number + i);
        assert_int_equal(r->status, COLLRUN_AGAIN);
        assert_int_equal(collrun_wait(r), COLLRUN_OK);
        assert_int_equal(null_backend.calls, i + 1);
        assert_ptr_equal(null_backend.last.send, call.send);
        assert_int_equal(null_backend.last.timeout_ns, g->timeout_ns);
    }
    struct collrun_request *r = start(g, &call), *behind = start(g, &call);
    assert_ptr_not_equal(r, behind); /* two at a time are two */
    assert_int_equal(collrun_wait(r), COLLRUN_OK);
    assert_int_equal(collrun_wait(behind), COLLRUN_OK);
    null_group_free(g);
}

/* After the call itself, each call that differs from it in one field. */
static void another_call_is_checked(void **state)
{
    (void)state;
    struct collrun_group *g = null_group_new(RANK, N, 0);
    const struct collrun_call call = reduce_call();
    struct collrun_call bad[5];
    for (int i = 0; i < 5; i++)
        bad[i] = call;
    bad[0].send = NULL;
    bad[1].count = SIZE_MAX / 2;
    bad[2].dtype = (enum collrun_dtype)99;
    bad[3].op = (enum collrun_op)99;
    bad[4].root = N;
    for (int i = 0; i < 5; i++) {
        struct collrun_request *r = NULL;
        assert_int_equal(collrun_wait(start(g, &call)), COLLRUN_OK);
        const unsigned calls = null_backend.calls;
        assert_int_equal(collrun_start(g, &bad[i], &r), COLLRUN_ERR_INVALID);
        assert_int_equal(null_backend.calls, calls);
    }
    null_group_free(g);
}

static void check_differ(struct collrun_group *g, const struct collrun_call *call,
                         const struct collrun_call *other, int n)
{
    for (int i = 0; i < n; i++) {
        assert_null(request_spare_take(g, &other[i]));
        struct collrun_request *r = request_spare_take(g, call);
        assert_non_null(r);
        request_spare_keep_or_free(r);
    }
}

static void each_field_counts(void **state)
{
    (void)state;
    struct collrun_group *g = null_group_new(RANK, N, 0);
    const struct collrun_call call = reduce_call();
    assert_int_equal(collrun_wait(start(g, &call)), COLLRUN_OK);
    struct collrun_call other[8];
    for (int i = 0; i < 8; i++)
        other[i] = call;
    int who;
    other[0].recv = &space[64];
    other[1].count = 4;
    other[2].root = 1;
    other[3].device = 1;
    other[4].peer_device = 1;
    other[5].stream = &who;
    other[6].timeout_ns = 1;
    other[7].user_op = (const void *)&who;
    check_differ(g, &call, other, 8);
    other[0].recv = call.recv;
    other[0].dtype = COLLRUN_UINT32;
    other[1].count = call.count;
    other[1].op = COLLRUN_MAX;
    other[2].root = call.root;
    other[2].kind = COLLRUN_ALLREDUCE;
    check_differ(g, &call, other, 3);
    null_group_free(g);
}

static void each_field_of_a_message_counts(void **state)
{
    (void)state;
    struct collrun_group *g = null_group_new(RANK, N, COLLRUN_BACKEND_TAGS);
    struct collrun_call call = COLLRUN_CALL(COLLRUN_RECV);
    int who;
    size_t received;
    uint32_t received_tag;
    call.recv = &space[0];
    call.count = 8;
    call.dtype = COLLRUN_INT32;
    assert_int_equal(collrun_wait(start(g, &call)), COLLRUN_OK);
    struct collrun_call other[5];
    for (int i = 0; i < 5; i++)
        other[i] = call;
    other[0].peer = 2;
    other[1].source = &who;
    other[2].tag = 1;
    other[3].received = &received;
    other[4].received_tag = &received_tag;
    check_differ(g, &call, other, 5);
    null_group_free(g);
}

/* A spare that is not started again makes room for one that is. */
static void a_spare_gives_way(void **state)
{
    (void)state;
    struct collrun_group *g = null_group_new(RANK, N, 0);
    struct collrun_call call = reduce_call();
    assert_int_equal(collrun_wait(start(g, &call)), COLLRUN_OK);
    call.root = 1; /* which the place does not depend on */
    for (int i = 0; i < 100; i++)
        assert_int_equal(collrun_wait(start(g, &call)), COLLRUN_OK);
    struct collrun_request *r = request_spare_take(g, &call);
    assert_non_null(r);
    request_spare_keep_or_free(r);
    null_group_free(g);
}

static void a_failed_request_is_no_spare(void **state)
{
    (void)state;
    struct collrun_group *g = null_group_new(RANK, N, 0);
    const struct collrun_call call = reduce_call();
    null_backend.answer = COLLRUN_ERR_INVALID;
    assert_int_equal(collrun_wait(start(g, &call)), COLLRUN_ERR_INVALID);
    assert_null(request_spare_take(g, &call));
    null_backend.answer = COLLRUN_OK;
    null_group_free(g);
}

static void a_closed_group_has_none(void **state)
{
    (void)state;
    struct collrun_group *g = null_group_new(RANK, N, 0);
    const struct collrun_call call = reduce_call();
    struct collrun_request *r = start(g, &call);
    assert_int_equal(collrun_wait(start(g, &call)), COLLRUN_OK);
    assert_int_equal(atomic_load(&g->refs), 3);
    request_spare_close(g);
    assert_int_equal(atomic_load(&g->refs), 2);
    assert_int_equal(collrun_wait(r), COLLRUN_OK);
    assert_int_equal(atomic_load(&g->refs), 1);
    assert_null(request_spare_take(g, &call));
    null_group_free(g);
}

/* A transport that sends at once, for threads: a backend that executes messages takes one thread at
 * a time. */
static struct p2p *wire;

static int wire_send(void *group, struct collrun_message *m)
{
    (void)group;
    wire->table.done(wire->table.ctx, m);
    return COLLRUN_OK;
}

static const struct collrun_transport transport = {
    .size = (uint32_t)sizeof(struct collrun_transport),
    .message_size = (uint32_t)sizeof(struct collrun_message),
    .send = wire_send,
    .recv = null_transport_recv,
    .progress = null_transport_progress,
};

static void *start_and_wait(void *group)
{
    struct collrun_call call = COLLRUN_CALL(COLLRUN_SEND);
    call.send = space;
    call.count = 4;
    call.dtype = COLLRUN_INT32;
    call.peer = 0;
    for (int i = 0; i < STARTS; i++) {
        struct collrun_request *r;
        call.tag = (uint32_t)i % 3;
        if (collrun_start(group, &call, &r) != COLLRUN_OK || collrun_wait(r) != COLLRUN_OK)
            return group;
    }
    return NULL;
}

static void threads_share_them(void **state)
{
    (void)state;
    struct collrun_group *g =
        null_group_new(RANK, N, COLLRUN_BACKEND_ENVELOPES | COLLRUN_BACKEND_TAGS);
    wire = null_group_carry(g, &transport);
    assert_non_null(wire);
    pthread_t threads[THREADS];
    void *failed = NULL;
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, start_and_wait, g), 0);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], &failed), 0);
        assert_null(failed);
    }
    request_spare_close(g);
    assert_int_equal(atomic_load(&g->refs), 1);
    null_group_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_call_has_the_same_request),
        cmocka_unit_test(another_call_is_checked),
        cmocka_unit_test(each_field_counts),
        cmocka_unit_test(each_field_of_a_message_counts),
        cmocka_unit_test(a_spare_gives_way),
        cmocka_unit_test(a_failed_request_is_no_spare),
        cmocka_unit_test(a_closed_group_has_none),
        cmocka_unit_test(threads_share_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
