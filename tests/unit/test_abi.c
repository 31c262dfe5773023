/* SPDX-License-Identifier: Apache-2.0
 *
 * Plugins that were built with other sizes of the structs that cross the interfaces in arrays: the
 * engine hands them calls in their stride, and reads their tables in theirs.
 */
#include "core/backend.h"
#include "core/plugin.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The struct as an older header has it: without its last member. */
#define OLDER_CALL ((uint32_t)offsetof(struct collrun_call, timeout_ns))
/* As a newer one has it: with a member more. */
struct newer_call {
    struct collrun_call call;
    uint64_t added;
};
struct newer_capability {
    struct collrun_capability row;
    uint64_t added;
};
struct newer_param {
    struct collrun_param param;
    const char *added;
};

static uint32_t stride;  /* of the backend under test */
static const char *seen; /* the calls of its last exec or start */
static uint32_t nseen;
static void *const the_request = &stride;

static const struct collrun_call *seen_call(uint32_t i)
{
    return (const struct collrun_call *)(const void *)(seen + (size_t)i * stride);
}

static void check_calls(void)
{
    assert_int_equal(nseen, 3);
    for (uint32_t i = 0; i < nseen; i++) {
        const struct collrun_call *call = seen_call(i);
        assert_int_equal(call->size, stride);
        assert_int_equal(call->kind, COLLRUN_SEND);
        assert_int_equal(call->count, 10 + i);
        assert_int_equal(call->peer, i);
        if (stride >= sizeof(struct collrun_call))
            assert_int_equal(call->timeout_ns, 1000 + i);
        for (size_t at = sizeof(struct collrun_call); at < stride; at++)
            assert_int_equal(((const char *)call)[at], 0);
    }
}

static int fake_exec(void *group, const struct collrun_call *calls, uint32_t ncalls)
{
    (void)group;
    seen = (const char *)calls;
    nseen = ncalls;
    check_calls();
    return COLLRUN_OK;
}

static int fake_start(void *group, const struct collrun_call *calls, uint32_t ncalls,
                      void **request)
{
    *request = the_request;
    return fake_exec(group, calls, ncalls);
}

/* The calls of a request are there until it has ended. */
static int fake_test(void *group, void *request)
{
    static unsigned asked;
    (void)group;
    assert_ptr_equal(request, the_request);
    check_calls();
    return asked++ % 2 ? COLLRUN_OK : COLLRUN_AGAIN;
}

static int fake_order(void *group, void *request, uint32_t device, void *stream)
{
    (void)group;
    (void)stream;
    assert_ptr_equal(request, the_request);
    return (int)device;
}

static int fake_open(void *backend, const struct collrun_group_desc *desc, void **group)
{
    (void)backend;
    (void)desc;
    (void)group;
    return COLLRUN_OK;
}

static void nothing(void *group)
{
    (void)group;
}

static const struct newer_capability rows[] = {
    {{COLLRUN_BARRIER, COLLRUN_MEMORY_HOST, 0, 0}, 1},
    {{COLLRUN_ALLREDUCE, COLLRUN_MEMORY_HOST, 1u << COLLRUN_INT32, 1u << COLLRUN_SUM}, 2},
    {{COLLRUN_SEND, COLLRUN_MEMORY_HOST, ~0ull, 0}, 3},
    {{0}, 0},
};
static const struct newer_param options[] = {
    {{.name = "first", .type = COLLRUN_PARAM_INT, .help = "one"}, "more"},
    {{.name = "second", .type = COLLRUN_PARAM_BOOL}, "more"},
    {{0}, NULL},
};

static struct backend adopt(uint32_t call_size)
{
    const struct collrun_backend table = {.abi = COLLRUN_BACKEND_ABI,
                                          .size = sizeof table,
                                          .call_size = call_size,
                                          .capability_size = sizeof *rows,
                                          .param_size = sizeof *options,
                                          .name = "other",
                                          .version = "1",
                                          .native = &rows[0].row,
                                          .options = &options[0].param,
                                          .group_open = fake_open,
                                          .group_abort = nothing,
                                          .group_close = nothing,
                                          .exec = fake_exec,
                                          .start = fake_start,
                                          .test = fake_test,
                                          .order = fake_order};
    struct backend b;
    assert_int_equal(backend_adopt(&table, "", &b, NULL), COLLRUN_OK);
    stride = call_size;
    return b;
}

static void make_calls(struct collrun_call calls[3])
{
    for (uint32_t i = 0; i < 3; i++) {
        calls[i] = (struct collrun_call)COLLRUN_CALL(COLLRUN_SEND);
        calls[i].count = 10 + i;
        calls[i].peer = (int)i;
        calls[i].timeout_ns = 1000 + i;
    }
}

static void calls_have_the_stride_that_the_backend_was_built_with(void **state)
{
    const uint32_t sizes[] = {OLDER_CALL, sizeof(struct collrun_call), sizeof(struct newer_call)};
    struct collrun_call calls[3];
    (void)state;
    make_calls(calls);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct backend b = adopt(sizes[i]);
        void *request = NULL;
        assert_int_equal(backend_exec(&b, NULL, calls, 3), COLLRUN_OK);
        assert_int_equal(backend_start(&b, NULL, calls, 3, &request), COLLRUN_OK);
        assert_int_equal(backend_order(&b, NULL, request, 5, NULL), 5);
        assert_int_equal(backend_test(&b, NULL, request), COLLRUN_AGAIN);
        assert_int_equal(backend_test(&b, NULL, request), COLLRUN_OK);
        backend_close(&b);
    }
}

static void tables_are_read_in_the_stride_that_the_backend_was_built_with(void **state)
{
    (void)state;
    struct backend b = adopt(sizeof(struct collrun_call));
    assert_int_equal(backend_supports(&b, COLLRUN_ALLREDUCE), BACKEND_NATIVE);
    assert_int_equal(backend_supports(&b, COLLRUN_SEND), BACKEND_NATIVE);
    assert_int_equal(b.native[COLLRUN_ALLREDUCE][COLLRUN_INT32], 1u << COLLRUN_SUM);
    assert_int_equal(b.native[COLLRUN_ALLREDUCE][COLLRUN_INT8], 0);
    assert_string_equal(b.table.options[0].name, "first");
    assert_string_equal(b.table.options[0].help, "one");
    assert_string_equal(b.table.options[1].name, "second");
    assert_int_equal(b.table.options[1].type, COLLRUN_PARAM_BOOL);
    assert_null(b.table.options[2].name);
    backend_close(&b);
}

static void a_backend_without_its_sizes_is_refused(void **state)
{
    const struct collrun_backend table = {.abi = COLLRUN_BACKEND_ABI,
                                          .size = sizeof table,
                                          .name = "other",
                                          .version = "1",
                                          .native = &rows[0].row,
                                          .group_open = fake_open,
                                          .group_abort = nothing,
                                          .group_close = nothing,
                                          .exec = fake_exec};
    struct backend b;
    struct diag d;
    (void)state;
    diag_init(&d);
    assert_int_not_equal(backend_adopt(&table, "other.so", &b, &d), COLLRUN_OK);
    assert_non_null(strstr(d.text, "COLLRUN_BACKEND_HEAD"));
}

static int transport_move(void *group, struct collrun_message *m)
{
    (void)group, (void)m;
    return COLLRUN_OK;
}

static void transport_unpost(void *group, struct collrun_message *m)
{
    (void)group, (void)m;
}

static int transport_recv(void *group, struct collrun_message *m, const void *packet, size_t len)
{
    (void)group, (void)m, (void)packet, (void)len;
    return COLLRUN_OK;
}

static int transport_progress(void *group, uint64_t wait_ns)
{
    (void)group, (void)wait_ns;
    return COLLRUN_OK;
}

static bool is_adopted_with(const struct collrun_transport *transport)
{
    const struct collrun_backend table = {COLLRUN_BACKEND_HEAD,    .name = "carrier",
                                          .version = "1",          .native = &rows[0].row,
                                          .group_open = fake_open, .group_abort = nothing,
                                          .group_close = nothing,  .transport = transport};
    struct backend b;
    struct diag d;
    diag_init(&d);
    if (backend_adopt(&table, "carrier.so", &b, &d) != COLLRUN_OK) {
        assert_non_null(strstr(d.text, "its transport lacks send, recv or progress"));
        return false;
    }
    backend_close(&b);
    return true;
}

static void transports_with_holes_are_refused(void **state)
{
    const struct collrun_transport whole = {.size = sizeof whole,
                                            .message_size = sizeof(struct collrun_message),
                                            .send = transport_move,
                                            .recv = transport_recv,
                                            .progress = transport_progress,
                                            .post = transport_move,
                                            .unpost = transport_unpost};
    struct collrun_transport t = whole;
    (void)state;
    assert_true(is_adopted_with(&t));
    t.unpost = NULL;
    assert_false(is_adopted_with(&t));
    t.post = NULL;
    assert_true(is_adopted_with(&t));
    t.recv = NULL;
    assert_false(is_adopted_with(&t));
    t = whole;
    t.message_size = 8;
    assert_false(is_adopted_with(&t));
    t = whole;
    t.size = 16;
    assert_false(is_adopted_with(&t));
    t.size = offsetof(struct collrun_transport, fail); /* an older one, without what follows */
    assert_false(is_adopted_with(&t));
    t.post = NULL;
    assert_true(is_adopted_with(&t));
}

static void the_end_of_a_table_is_found_in_any_stride(void **state)
{
    (void)state;
    assert_int_equal(abi_table_len(rows, sizeof *rows, sizeof(uint64_t)), 3);
    assert_int_equal(abi_table_len(options, sizeof *options, sizeof(char *)), 2);
    struct newer_param *wider =
        abi_convert(options, sizeof(struct newer_param), 3, sizeof(struct newer_param) + 8);
    assert_non_null(wider);
    assert_int_equal(abi_table_len(wider, sizeof(struct newer_param) + 8, sizeof(char *)), 2);
    free(wider);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_have_the_stride_that_the_backend_was_built_with),
        cmocka_unit_test(tables_are_read_in_the_stride_that_the_backend_was_built_with),
        cmocka_unit_test(a_backend_without_its_sizes_is_refused),
        cmocka_unit_test(transports_with_holes_are_refused),
        cmocka_unit_test(the_end_of_a_table_is_found_in_any_stride),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
