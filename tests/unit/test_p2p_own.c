/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages of a rank to itself in a group whose buffers may be in device memory: the group copies
 * the data, and a copy that fails is a failure of the group, at its peers, too.
 */
#include "progress/p2p.h"

#include "core/error.h"
#include "core/services.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* A transport that nothing leaves by, and the copies. */
struct own {
    struct p2p *p2p;
    unsigned ncopies, failing; /* so far; the one that fails, from 1; 0: none */
    unsigned nfailed;          /* calls of `fail`, and the arguments of the last one */
    uint32_t failed_peer;
    int failed_status;
    char failed_text[64];
};

static int own_send(void *group, struct collrun_message *message)
{
    (void)group, (void)message;
    return COLLRUN_ERR_BACKEND;
}

static int own_recv(void *group, struct collrun_message *message, const void *packet, size_t len)
{
    (void)group, (void)message, (void)packet, (void)len;
    return COLLRUN_ERR_BACKEND;
}

static int own_progress(void *group, uint64_t wait_ns)
{
    (void)group, (void)wait_ns;
    return COLLRUN_OK;
}

static void own_fail(void *group, uint32_t peer, int status, const char *text)
{
    struct own *o = group;
    o->nfailed++;
    o->failed_peer = peer;
    o->failed_status = status;
    snprintf(o->failed_text, sizeof o->failed_text, "%s", text);
}

static int own_copy(void *ctx, void *dst, const void *src, size_t len)
{
    struct own *o = ctx;
    if (++o->ncopies == o->failing)
        return error_cause(COLLRUN_ERR_BACKEND, "the device is lost");
    memcpy(dst, src, len);
    return COLLRUN_OK;
}

static const struct collrun_transport transport = {
    .size = (uint32_t)sizeof(struct collrun_transport),
    .message_size = (uint32_t)sizeof(struct collrun_message),
    .send = own_send,
    .recv = own_recv,
    .progress = own_progress,
    .fail = own_fail,
};

static struct services services;

static void own_open(struct own *o, unsigned failing)
{
    services_init(&services, NULL, NULL, NULL, "test");
    *o = (struct own){.p2p = p2p_new(&transport, &services.table, 0, 4), .failing = failing};
    assert_non_null(o->p2p);
    o->p2p->handle = o;
    o->p2p->copy = own_copy;
    o->p2p->copy_ctx = o;
}

static struct collrun_call call_of(enum collrun_kind kind, void *byte)
{
    struct collrun_call call = COLLRUN_CALL(kind);
    call.send = call.recv = byte;
    call.count = 1;
    call.dtype = COLLRUN_UINT8;
    call.peer = 0;
    call.timeout_ns = 20000000;
    return call;
}

static int exec(struct own *o, const struct collrun_call *calls, uint32_t n)
{
    struct p2p_batch batch;
    return p2p_exec(o->p2p, calls, n, &batch, NULL);
}

/* Unexpected: into a packet, then out of it. Posted: at once. */
static void own_messages_are_copied_by_the_group(void **state)
{
    (void)state;
    char in = 0, out = 7;
    struct own o;
    own_open(&o, 0);
    const struct collrun_call calls[2] = {call_of(COLLRUN_RECV, &in), call_of(COLLRUN_SEND, &out)};
    assert_int_equal(exec(&o, &calls[1], 1), COLLRUN_OK);
    assert_int_equal(o.ncopies, 1);
    assert_int_equal(exec(&o, &calls[0], 1), COLLRUN_OK);
    assert_int_equal(o.ncopies, 2);
    assert_int_equal(in, 7);
    in = 0;
    assert_int_equal(exec(&o, calls, 2), COLLRUN_OK);
    assert_int_equal(o.ncopies, 3);
    assert_int_equal(in, 7);
    p2p_free(o.p2p);
}

/* Peers may be in the middle of messages with this rank, whose buffers belong to the caller again.
 */
static void a_copy_that_fails_is_reported_to_all_peers(void **state)
{
    (void)state;
    for (unsigned failing = 1; failing <= 3; failing++) {
        char in = 0, out = 7;
        int rc = COLLRUN_OK;
        struct own o;
        own_open(&o, failing);
        const struct collrun_call calls[2] = {call_of(COLLRUN_RECV, &in),
                                              call_of(COLLRUN_SEND, &out)};
        rc = exec(&o, &calls[1], 1);
        rc = rc == COLLRUN_OK ? exec(&o, &calls[0], 1) : rc;
        rc = rc == COLLRUN_OK ? exec(&o, calls, 2) : rc;
        assert_int_equal(rc, COLLRUN_ERR_BACKEND);
        assert_string_equal(error_get()->cause, "the device is lost");
        assert_int_equal(o.ncopies, failing);
        assert_int_equal(o.nfailed, 1);
        assert_int_equal(o.failed_peer, COLLRUN_ANY_SOURCE);
        assert_int_equal(o.failed_status, COLLRUN_ERR_BACKEND);
        assert_string_equal(o.failed_text, "the device is lost");
        error_clear_cause();
        assert_int_equal(exec(&o, calls, 2), COLLRUN_ERR_BACKEND);
        assert_string_equal(error_get()->cause, "the device is lost");
        assert_int_equal(o.nfailed, 1);
        p2p_free(o.p2p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(own_messages_are_copied_by_the_group),
        cmocka_unit_test(a_copy_that_fails_is_reported_to_all_peers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
