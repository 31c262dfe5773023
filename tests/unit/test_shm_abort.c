/* SPDX-License-Identifier: Apache-2.0
 *
 * One rank aborts its group, on shm and between ranks of one host on tcp: that is no failure of the
 * others. Their messages go on; those that wait for the rank wait until their time-out and get no
 * data from memory that it uses again.
 */
#include "backend_harness.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SHORT = 100, LONG = 8u << 20, RANKS = 3, ODD = RANKS - 1 };

static struct harness_options options_for(const char *backend)
{
    return (struct harness_options){.path = harness_backend_path(backend), .nranks = RANKS};
}

/* tcp contains shm for the ranks of one host. */
static void run_on_both(int (*body)(struct harness_rank *r))
{
    static const char *const backends[] = {"shm", "tcp"};
    for (int i = 0; i < 2; i++) {
        const struct harness_options options = options_for(backends[i]);
        assert_int_equal(harness_run(&options, body), 0);
    }
}

static int exec_one(struct harness_rank *r, enum collrun_kind kind, void *buf, size_t len,
                    uint32_t peer)
{
    struct collrun_call call = harness_message(kind, buf, len, peer, 0);
    call.timeout_ns = kind == COLLRUN_RECV && peer == ODD ? 200000000u : 0;
    return harness_exec(r->group, &call, 1);
}

/* All of this rank's calls have ended, and end. */
static int abort_own(struct harness_rank *r)
{
    char byte = 0;
    harness_abort_after(r, 30);
    HARNESS_CHECK(r, exec_one(r, COLLRUN_RECV, &byte, 1, 0) == COLLRUN_ERR_ABORTED);
    HARNESS_CHECK(r, strstr(harness_error(), "the group was aborted"));
    return 0;
}

/* ---- messages of others ---- */

static int exchange(struct harness_rank *r, unsigned char *buf, size_t len)
{
    memset(buf, r->rank == 0 ? 7 : 0, len);
    HARNESS_CHECK(r, exec_one(r, r->rank == 0 ? COLLRUN_SEND : COLLRUN_RECV, buf, len,
                              1 - r->rank) == COLLRUN_OK);
    HARNESS_CHECK(r, buf[0] == 7 && buf[len - 1] == 7);
    return 0;
}

/* A message of rank 0 is in flight when the last rank aborts; others follow. */
static int others_go_on(struct harness_rank *r)
{
    _Atomic unsigned *aborted = r->scratch;
    if (r->rank == ODD) {
        HARNESS_UNTIL(r, harness_inside_ms(r, 0) >= 30);
        const int failed = abort_own(r);
        *aborted = 1;
        return failed;
    }
    unsigned char *buf = malloc(LONG);
    HARNESS_CHECK(r, buf);
    if (r->rank == 1)
        HARNESS_UNTIL(r, *aborted);
    const int failed = exchange(r, buf, LONG) || exchange(r, buf, SHORT) || exchange(r, buf, LONG);
    free(buf);
    return failed;
}

static void messages_of_others_go_on(void **state)
{
    (void)state;
    run_on_both(others_go_on);
}

/* ---- those that wait for the rank ---- */

static int others_wait(struct harness_rank *r)
{
    struct collrun_call call = COLLRUN_CALL(COLLRUN_BARRIER);
    if (r->rank == ODD) {
        HARNESS_UNTIL(r, harness_inside_ms(r, 0) >= 30 && harness_inside_ms(r, 1) >= 30);
        return abort_own(r);
    }
    call.timeout_ns = 1000000000u;
    HARNESS_CHECK(r, harness_exec(r->group, &call, 1) == COLLRUN_ERR_TIMEOUT);
    HARNESS_CHECK(r, strstr(harness_error(), "rank 2"));
    return 0;
}

static void a_collective_waits_until_its_time_out(void **state)
{
    (void)state;
    run_on_both(others_wait);
}

/* ---- memory of the rank ---- */

/* The last rank sends from memory that its receiver would read, aborts, and writes there. */
static int sender_aborts(struct harness_rank *r)
{
    const bool heap = *(const bool *)r->arg;
    const size_t len = heap ? LONG / 16 : LONG;
    _Atomic unsigned *aborted = r->scratch;
    if (r->rank == 1)
        return 0;
    void *p = heap ? NULL : malloc(len);
    if (heap)
        HARNESS_CHECK(r, r->backend->alloc(r->group->handle, len, &p) == COLLRUN_OK);
    HARNESS_CHECK(r, p);
    memset(p, r->rank == ODD ? 7 : 0, len);
    if (r->rank == ODD) {
        harness_abort_after(r, 30);
        HARNESS_CHECK(r, exec_one(r, COLLRUN_SEND, p, len, 0) == COLLRUN_ERR_ABORTED);
        memset(p, 9, len);
        *aborted = 1;
        HARNESS_UNTIL(r, *aborted == 2);
    } else {
        HARNESS_UNTIL(r, *aborted);
        HARNESS_CHECK(r, exec_one(r, COLLRUN_RECV, p, len, ODD) == COLLRUN_ERR_TIMEOUT);
        *aborted = 2;
    }
    if (!heap)
        free(p);
    return 0;
}

static void memory_that_is_used_again_is_no_message(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        bool heap = i == 0;
        struct harness_options options = options_for("shm");
        options.arg = &heap;
        assert_int_equal(harness_run(&options, sender_aborts), 0);
    }
}

/* In a collective all ranks confirm that they have read the memory of the others. The last rank
 * confirms and aborts before another one has read its memory. */
static int root_aborts(struct harness_rank *r)
{
    _Atomic unsigned *aborted = r->scratch;
    struct collrun_call call = COLLRUN_CALL(COLLRUN_BROADCAST);
    void *p;
    HARNESS_CHECK(r, r->backend->alloc(r->group->handle, LONG, &p) == COLLRUN_OK);
    memset(p, r->rank == ODD ? 7 : 0, LONG);
    call.recv = p;
    call.count = LONG;
    call.dtype = COLLRUN_UINT8;
    call.root = ODD;
    if (r->rank == ODD) {
        HARNESS_UNTIL(r, harness_inside_ms(r, 0) >= 30);
        harness_abort_after(r, 30);
        HARNESS_CHECK(r, harness_exec(r->group, &call, 1) == COLLRUN_ERR_ABORTED);
        memset(p, 9, LONG);
        *aborted = 1;
        return 0;
    }
    call.timeout_ns = 1000000000u;
    if (r->rank == 1) {
        HARNESS_UNTIL(r, *aborted);
        call.timeout_ns = 200000000u;
    }
    HARNESS_CHECK(r, harness_exec(r->group, &call, 1) == COLLRUN_ERR_TIMEOUT);
    return 0;
}

static void memory_that_is_used_again_is_no_broadcast(void **state)
{
    (void)state;
    const struct harness_options options = options_for("shm");
    assert_int_equal(harness_run(&options, root_aborts), 0);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_of_others_go_on),
        cmocka_unit_test(a_collective_waits_until_its_time_out),
        cmocka_unit_test(memory_that_is_used_again_is_no_message),
        cmocka_unit_test(memory_that_is_used_again_is_no_broadcast),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
