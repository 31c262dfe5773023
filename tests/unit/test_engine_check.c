/* SPDX-License-Identifier: Apache-2.0
 *
 * What is refused before anything is sent: one row per way to call wrongly, and rows of good calls
 * that look almost the same. A refused call must not reach the backend and must leave the group
 * usable.
 */
#include "core/backend.h"
#include "core/error.h"
#include "group/group.h"
#include "null_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

/* Rank 1 of 4. Buffers: 64 elements of int32 from `space`, by index. */
enum { RANK = 1, N = 4, SPACE = 512 };
static int32_t space[SPACE];
#define AT(i) (&space[i])
#define BIG (SIZE_MAX / 2)

struct row {
    const char *name;
    struct collrun_call call;
    int status;
    const char *text;
};

static const size_t ones[N] = {1, 1, 1, 1}, twos[N] = {2, 2, 2, 2}, huge[N] = {BIG, BIG, BIG, BIG},
                    none[N];
static const size_t apart[N] = {0, 10, 20, 30}, clash[N] = {0, 1, 0, 30}, back[N] = {30, 20, 10, 0};

#define I32 COLLRUN_INT32
#define CALL(k, type, ...)                                                                         \
    {                                                                                              \
        .size = sizeof(struct collrun_call), .kind = (k), .dtype = (type), __VA_ARGS__             \
    }
#define GOOD(name, k, type, ...)                                                                   \
    {                                                                                              \
        name, CALL(k, type, __VA_ARGS__), COLLRUN_OK, NULL                                         \
    }
#define BAD(name, text, k, type, ...)                                                              \
    {                                                                                              \
        name, CALL(k, type, __VA_ARGS__), COLLRUN_ERR_INVALID, text                                \
    }

static const struct row rows[] = {
    GOOD("barrier", COLLRUN_BARRIER, 99, .count = BIG),
    BAD("kind", "19 is not a kind of operation", 19, I32, .count = 1),
    BAD("negative kind", "-1 is not a kind of operation", (enum collrun_kind) - 1, I32, .count = 1),
    BAD("dtype", "13 is not an element type", COLLRUN_ALLREDUCE, 13, .count = 1),
    BAD("operator", "11 is not an operator", COLLRUN_ALLREDUCE, I32, .op = 11),
    BAD("operator on floats", "operator band is not defined for float32", COLLRUN_ALLREDUCE,
        COLLRUN_FLOAT32, .op = COLLRUN_BAND),
    BAD("logical on floats", "operator lxor is not defined for bfloat16", COLLRUN_REDUCE,
        COLLRUN_BFLOAT16, .op = COLLRUN_LXOR),
    GOOD("unused operator", COLLRUN_BROADCAST, I32, .op = 99, .recv = AT(0), .count = 4),

    GOOD("allreduce", COLLRUN_ALLREDUCE, I32, .send = AT(0), .recv = AT(64), .count = 64),
    GOOD("allreduce in place", COLLRUN_ALLREDUCE, I32, .send = AT(0), .recv = AT(0), .count = 64),
    GOOD("allreduce of nothing", COLLRUN_ALLREDUCE, I32, .count = 0),
    BAD("allreduce overlap", "overlap", COLLRUN_ALLREDUCE, I32, .send = AT(0), .recv = AT(63),
        .count = 64),
    BAD("allreduce send", "the send buffer is NULL", COLLRUN_ALLREDUCE, I32, .recv = AT(0),
        .count = 1),
    BAD("allreduce recv", "the receive buffer is NULL", COLLRUN_ALLREDUCE, I32, .send = AT(0),
        .count = 1),
    BAD("allreduce count", "exceed the address space", COLLRUN_ALLREDUCE, I32, .send = AT(0),
        .recv = AT(64), .count = BIG),

    GOOD("reduce at another root", COLLRUN_REDUCE, I32, .send = AT(0), .count = 64, .root = 3),
    BAD("reduce at the root", "the receive buffer is NULL", COLLRUN_REDUCE, I32, .send = AT(0),
        .count = 64, .root = RANK),
    BAD("reduce root", "root 4 is not a rank of this group of 4", COLLRUN_REDUCE, I32,
        .send = AT(0), .count = 64, .root = 4),
    BAD("reduce negative root", "root -1 is not a rank", COLLRUN_REDUCE, I32, .send = AT(0),
        .count = 64, .root = -1),

    BAD("broadcast buffer", "the buffer is NULL", COLLRUN_BROADCAST, I32, .count = 1),
    BAD("broadcast root", "root 100 is not a rank", COLLRUN_BROADCAST, I32, .recv = AT(0),
        .count = 1, .root = 100),

    GOOD("allgather in place", COLLRUN_ALLGATHER, I32, .send = AT(16), .recv = AT(0), .count = 16),
    BAD("allgather in another's place", "overlap", COLLRUN_ALLGATHER, I32, .send = AT(32),
        .recv = AT(0), .count = 16),
    BAD("allgather at the start", "overlap", COLLRUN_ALLGATHER, I32, .send = AT(0), .recv = AT(0),
        .count = 16),
    BAD("allgather product", "exceed the address space", COLLRUN_ALLGATHER, I32, .send = AT(0),
        .recv = AT(64), .count = BIG / 8),

    GOOD("gather in place", COLLRUN_GATHER, I32, .send = AT(16), .recv = AT(0), .count = 16,
         .root = RANK),
    GOOD("gather elsewhere", COLLRUN_GATHER, I32, .send = AT(16), .recv = AT(15), .count = 16,
         .root = 0),
    BAD("gather overlap", "overlap", COLLRUN_GATHER, I32, .send = AT(17), .recv = AT(0),
        .count = 16, .root = RANK),
    GOOD("scatter in place", COLLRUN_SCATTER, I32, .send = AT(0), .recv = AT(16), .count = 16,
         .root = RANK),
    GOOD("scatter elsewhere", COLLRUN_SCATTER, I32, .recv = AT(16), .count = 16, .root = 0),
    BAD("scatter send", "the send buffer is NULL", COLLRUN_SCATTER, I32, .recv = AT(16),
        .count = 16, .root = RANK),
    GOOD("reduce_scatter in place", COLLRUN_REDUCE_SCATTER, I32, .send = AT(0), .recv = AT(16),
         .count = 16),
    BAD("reduce_scatter overlap", "overlap", COLLRUN_REDUCE_SCATTER, I32, .send = AT(0),
        .recv = AT(0), .count = 16),
    GOOD("alltoall in place", COLLRUN_ALLTOALL, I32, .send = AT(0), .recv = AT(0), .count = 16),
    BAD("alltoall overlap", "overlap", COLLRUN_ALLTOALL, I32, .send = AT(0), .recv = AT(1),
        .count = 16),

    GOOD("allgatherv", COLLRUN_ALLGATHERV, I32, .send = AT(100), .count = 2, .recv = AT(0),
         .recvcounts = twos),
    GOOD("allgatherv in place", COLLRUN_ALLGATHERV, I32, .send = AT(10), .count = 2, .recv = AT(0),
         .recvcounts = twos, .recvdispls = apart),
    GOOD("allgatherv in a gap", COLLRUN_ALLGATHERV, I32, .send = AT(12), .count = 2, .recv = AT(0),
         .recvcounts = twos, .recvdispls = apart),
    GOOD("allgatherv backwards", COLLRUN_ALLGATHERV, I32, .send = AT(100), .count = 2,
         .recv = AT(0), .recvcounts = twos, .recvdispls = back),
    GOOD("allgatherv of nothing", COLLRUN_ALLGATHERV, I32, .recvcounts = none),
    BAD("allgatherv counts", "the array of receive counts is NULL", COLLRUN_ALLGATHERV, I32,
        .send = AT(0), .count = 1, .recv = AT(9)),
    BAD("allgatherv own", "this rank sends 3 elements to itself, but receives 2",
        COLLRUN_ALLGATHERV, I32, .send = AT(100), .count = 3, .recv = AT(0), .recvcounts = twos),
    BAD("allgatherv blocks", "the blocks received from ranks 0 and 1 overlap", COLLRUN_ALLGATHERV,
        I32, .send = AT(100), .count = 2, .recv = AT(0), .recvcounts = twos, .recvdispls = clash),
    BAD("allgatherv huge", "the receive counts for rank 0 exceed the address space",
        COLLRUN_ALLGATHERV, I32, .send = AT(100), .count = 2, .recv = AT(0), .recvcounts = huge),
    BAD("allgatherv overlap", "overlap", COLLRUN_ALLGATHERV, I32, .send = AT(1), .count = 2,
        .recv = AT(0), .recvcounts = twos),
    BAD("allgatherv recv", "the receive buffer is NULL", COLLRUN_ALLGATHERV, I32, .send = AT(1),
        .count = 2, .recvcounts = twos),
    BAD("allgatherv send", "the send buffer is NULL", COLLRUN_ALLGATHERV, I32, .recv = AT(1),
        .count = 2, .recvcounts = twos),

    GOOD("gatherv elsewhere", COLLRUN_GATHERV, I32, .send = AT(0), .count = 7, .recvcounts = huge,
         .root = 0),
    GOOD("gatherv at the root", COLLRUN_GATHERV, I32, .send = AT(100), .count = 2, .recv = AT(0),
         .recvcounts = twos, .root = RANK),
    BAD("gatherv counts", "the array of receive counts is NULL", COLLRUN_GATHERV, I32,
        .send = AT(0), .count = 1, .recv = AT(9), .root = RANK),
    BAD("gatherv root", "root 7 is not a rank", COLLRUN_GATHERV, I32, .send = AT(0), .count = 1,
        .root = 7),
    GOOD("scatterv elsewhere", COLLRUN_SCATTERV, I32, .recv = AT(0), .recvcount = 7,
         .sendcounts = huge, .root = 0),
    GOOD("scatterv same block twice", COLLRUN_SCATTERV, I32, .send = AT(0), .recv = AT(200),
         .recvcount = 2, .sendcounts = twos, .senddispls = clash, .root = RANK),
    BAD("scatterv own", "this rank sends 1 elements to itself, but receives 2", COLLRUN_SCATTERV,
        I32, .send = AT(0), .recv = AT(200), .recvcount = 2, .sendcounts = ones, .root = RANK),
    GOOD("reduce_scatterv in place", COLLRUN_REDUCE_SCATTERV, I32, .send = AT(0), .recv = AT(2),
         .recvcounts = twos),
    BAD("reduce_scatterv overlap", "overlap", COLLRUN_REDUCE_SCATTERV, I32, .send = AT(0),
        .recv = AT(1), .recvcounts = twos),
    BAD("reduce_scatterv counts", "the array of receive counts is NULL", COLLRUN_REDUCE_SCATTERV,
        I32, .send = AT(0), .recv = AT(50)),
    BAD("reduce_scatterv send", "the send buffer is NULL", COLLRUN_REDUCE_SCATTERV, I32,
        .recv = AT(2), .recvcounts = twos),
    GOOD("alltoallv", COLLRUN_ALLTOALLV, I32, .send = AT(100), .sendcounts = twos, .recv = AT(0),
         .recvcounts = twos, .recvdispls = back),
    BAD("alltoallv overlap", "overlap", COLLRUN_ALLTOALLV, I32, .send = AT(0), .sendcounts = twos,
        .recv = AT(1), .recvcounts = twos),
    BAD("alltoallv counts", "the array of send counts is NULL", COLLRUN_ALLTOALLV, I32,
        .send = AT(0), .recv = AT(90), .recvcounts = twos),

    GOOD("send", COLLRUN_SEND, I32, .send = AT(0), .count = 1, .peer = 0),
    GOOD("empty send", COLLRUN_SEND, I32, .peer = 0),
    {"send to itself", CALL(COLLRUN_SEND, I32, .send = AT(0), .count = 1, .peer = RANK),
     COLLRUN_ERR_UNSUPPORTED, "peer 1 is this rank itself, and backend \"null\" has no such"},
    BAD("send too far", "peer 4 is not a rank of this group of 4", COLLRUN_SEND, I32, .send = AT(0),
        .count = 1, .peer = 4),
    BAD("send to -1", "peer -1 is not a rank", COLLRUN_SEND, I32, .send = AT(0), .count = 1,
        .peer = -1),
    BAD("recv buffer", "the receive buffer is NULL", COLLRUN_RECV, I32, .count = 1, .peer = 0),
    BAD("largest tag", "tag 2147483648 is larger than the maximum, 2147483647", COLLRUN_SEND, I32,
        .send = AT(0), .count = 1, .tag = 1u << 31),
    {"tag", CALL(COLLRUN_SEND, I32, .send = AT(0), .count = 1, .tag = 1), COLLRUN_ERR_UNSUPPORTED,
     "backend \"null\" does not match tags"},
    GOOD("alltoallv in place", COLLRUN_ALLTOALLV, I32, .send = AT(0), .sendcounts = twos,
         .recv = AT(0), .recvcounts = twos),
    GOOD("alltoallv in place with gaps", COLLRUN_ALLTOALLV, I32, .send = AT(0), .sendcounts = twos,
         .senddispls = back, .recv = AT(0), .recvcounts = twos, .recvdispls = back),
    BAD("alltoallv in other places", "overlap", COLLRUN_ALLTOALLV, I32, .send = AT(0),
        .sendcounts = twos, .senddispls = back, .recv = AT(0), .recvcounts = twos,
        .recvdispls = apart),
    GOOD("scan", COLLRUN_SCAN, I32, .send = AT(0), .recv = AT(64), .count = 64),
    GOOD("scan in place", COLLRUN_SCAN, I32, .send = AT(0), .recv = AT(0), .count = 64),
    BAD("scan overlap", "overlap", COLLRUN_SCAN, I32, .send = AT(0), .recv = AT(1), .count = 64),
    BAD("scan operator", "operator band is not defined for float32", COLLRUN_SCAN, COLLRUN_FLOAT32,
        .send = AT(0), .recv = AT(64), .count = 1, .op = COLLRUN_BAND),
    BAD("exscan recv", "the receive buffer is NULL", COLLRUN_EXSCAN, I32, .send = AT(0),
        .count = 64),
    {"recv_any", CALL(COLLRUN_RECV_ANY, I32, .recv = AT(0), .count = 1), COLLRUN_ERR_UNSUPPORTED,
     "recv_any test: not supported by backend \"null\""},
};

static void every_rule_of_the_arguments_holds(void **state)
{
    (void)state;
    struct collrun_group *g = null_group_new(RANK, N, 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct row *row = &rows[i];
        struct collrun_request *r = NULL;
        unsigned before = null_backend.calls;
        int rc = collrun_start(g, &row->call, &r);
        if (rc != row->status)
            fail_msg("%s: %d, not %d: %s", row->name, rc, row->status, collrun_error());
        if (rc == COLLRUN_OK)
            assert_int_equal(collrun_wait(r), COLLRUN_OK);
        else if (!strstr(collrun_error(), row->text))
            fail_msg("%s: \"%s\" does not say \"%s\"", row->name, collrun_error(), row->text);
        assert_int_equal(null_backend.calls, before + (rc == COLLRUN_OK));
        assert_int_equal(error_get()->status, rc == COLLRUN_OK ? error_get()->status : rc);
    }
    assert_int_equal(collrun_barrier(g), COLLRUN_OK);
    null_group_free(g);
}

static void the_size_of_a_call_is_checked(void **state)
{
    struct collrun_call call = CALL(COLLRUN_BARRIER, I32, .count = 0);
    struct collrun_request *r = NULL;
    (void)state;
    struct collrun_group *g = null_group_new(RANK, N, 0);
    for (uint32_t size = 0; size < 2; size++) {
        call.size = size ? 100000 : 8;
        assert_int_equal(collrun_start(g, &call, &r), COLLRUN_ERR_INVALID);
        assert_non_null(strstr(collrun_error(), "COLLRUN_CALL(kind)"));
    }
    struct {
        struct collrun_call call;
        char newer[64];
    } future = {.call = CALL(COLLRUN_BARRIER, I32, .count = 0)};
    future.call.size = sizeof future; /* a program built against a later header */
    assert_int_equal(collrun_start(g, &future.call, &r), COLLRUN_OK);
    assert_int_equal(collrun_wait(r), COLLRUN_OK);
    null_group_free(g);
}

static void null_pointers_are_invalid(void **state)
{
    struct collrun_call call = CALL(COLLRUN_BARRIER, I32, .count = 0);
    struct collrun_request *r = NULL;
    (void)state;
    struct collrun_group *g = null_group_new(RANK, N, 0);
    assert_int_equal(collrun_barrier(NULL), COLLRUN_ERR_INVALID);
    assert_int_equal(collrun_sendrecv(NULL, NULL, 0, 0, NULL, 0, 0, COLLRUN_INT8),
                     COLLRUN_ERR_INVALID);
    assert_int_equal(collrun_start(NULL, &call, &r), COLLRUN_ERR_INVALID);
    assert_int_equal(collrun_start(g, NULL, &r), COLLRUN_ERR_INVALID);
    assert_int_equal(collrun_start(g, &call, NULL), COLLRUN_ERR_INVALID);
    assert_int_equal(collrun_start_many(g, &call, 0, &r), COLLRUN_ERR_INVALID);
    assert_int_equal(collrun_wait(NULL), COLLRUN_ERR_INVALID);
    assert_int_equal(collrun_test(NULL), COLLRUN_ERR_INVALID);
    assert_int_equal(collrun_wait_all(NULL, 1), COLLRUN_ERR_INVALID);
    assert_int_equal(collrun_alloc(NULL, 1, NULL), COLLRUN_ERR_INVALID);
    assert_int_equal(collrun_group_destroy(NULL), COLLRUN_OK);
    assert_int_equal(collrun_free(g, NULL), COLLRUN_OK);
    null_group_free(g);
}

static void sendrecv_with_oneself_copies(void **state)
{
    (void)state;
    struct collrun_group *g = null_group_new(RANK, N, 0);
    space[0] = 5;
    space[9] = 0;
    assert_int_equal(collrun_sendrecv(g, AT(0), 1, RANK, AT(9), 1, RANK, COLLRUN_INT32),
                     COLLRUN_OK);
    assert_int_equal(space[9], 5);
    assert_int_equal(null_backend.calls, 0);
    assert_int_equal(collrun_sendrecv(g, AT(0), 1, RANK, AT(9), 2, RANK, COLLRUN_INT32),
                     COLLRUN_ERR_INVALID);
    assert_int_equal(collrun_sendrecv(g, AT(0), 1, RANK, AT(9), 1, 0, COLLRUN_INT32),
                     COLLRUN_ERR_UNSUPPORTED);
    assert_int_equal(collrun_sendrecv(g, AT(0), 1, 0, AT(9), 1, 2, COLLRUN_INT32), COLLRUN_OK);
    assert_int_equal(null_backend.calls, 2);
    null_group_free(g);
}

static void sendrecv_with_oneself_may_overlap_a_collective(void **state)
{
    (void)state;
    struct collrun_group *g = null_group_new(RANK, N, 0);
    for (int starts = 0; starts < 2; starts++) {
        g->backends[0].pq[GROUP_MESSAGES]->starts = starts;
        assert_int_equal(group_enter(g, "another thread"), COLLRUN_OK);
        assert_int_equal(collrun_sendrecv(g, AT(0), 1, RANK, AT(9), 1, RANK, COLLRUN_INT32),
                         starts ? COLLRUN_OK : COLLRUN_ERR_INVALID);
        group_leave(g);
    }
    null_group_free(g);
}

/* At rank 0 an exscan receives nothing. */
static void the_first_rank_of_an_exscan_has_no_result(void **state)
{
    (void)state;
    struct collrun_group *g = null_group_new(0, N, 0);
    assert_int_equal(collrun_exscan(g, AT(0), NULL, 4, COLLRUN_INT32, COLLRUN_SUM), COLLRUN_OK);
    assert_int_equal(collrun_exscan(g, NULL, AT(0), 4, COLLRUN_INT32, COLLRUN_SUM),
                     COLLRUN_ERR_INVALID);
    assert_int_equal(collrun_scan(g, AT(0), NULL, 4, COLLRUN_INT32, COLLRUN_SUM),
                     COLLRUN_ERR_INVALID);
    null_group_free(g);
}

static void op_nothing(void *ctx, const void *left, void *right, size_t count,
                       enum collrun_dtype dtype)
{
    (void)ctx;
    (void)left;
    (void)right;
    (void)count;
    (void)dtype;
}

#define OPERATOR(...)                                                                              \
    {                                                                                              \
        .size = sizeof(struct collrun_user_op), __VA_ARGS__                                        \
    }
#define REDUCTION(kind_, ...)                                                                      \
    CALL(kind_, I32, .send = AT(0), .recv = AT(100), .recvcounts = twos, __VA_ARGS__)

static void operators_of_workloads_are_checked(void **state)
{
    static const struct collrun_user_op good = OPERATOR(.name = "pairs", .unit = 2,
                                                        .combine = op_nothing),
                                        three = OPERATOR(.name = "triples", .unit = 3,
                                                         .combine = op_nothing),
                                        unnamed = OPERATOR(.combine = op_nothing),
                                        empty = OPERATOR(.name = "", .combine = op_nothing),
                                        idle = OPERATOR(.name = "idle"),
                                        small = {.size = 8, .name = "a", .combine = op_nothing},
                                        lengthy = OPERATOR(.combine = op_nothing,
                                                           .name = "0123456789012345678901234567890"
                                                                   "123456789012345678901234567890"
                                                                   "123");
    static const struct row cases[] = {
        {"pairs", REDUCTION(COLLRUN_ALLREDUCE, .count = 4, .user_op = &good), COLLRUN_OK, NULL},
        {"op is ignored", REDUCTION(COLLRUN_SCAN, .count = 4, .op = 99, .user_op = &good),
         COLLRUN_OK, NULL},
        {"no reduction", REDUCTION(COLLRUN_ALLGATHER, .count = 1, .user_op = &idle), COLLRUN_OK,
         NULL},
        {"half a pair", REDUCTION(COLLRUN_ALLREDUCE, .count = 5, .user_op = &good),
         COLLRUN_ERR_INVALID, "5 elements are no multiple of the unit of user op pairs, 2"},
        {"blocks", REDUCTION(COLLRUN_REDUCE_SCATTERV, .user_op = &good), COLLRUN_OK, NULL},
        {"split blocks", REDUCTION(COLLRUN_REDUCE_SCATTERV, .user_op = &three), COLLRUN_ERR_INVALID,
         "2 elements are no multiple of the unit of user op triples, 3"},
        {"name", REDUCTION(COLLRUN_EXSCAN, .user_op = &unnamed), COLLRUN_ERR_INVALID,
         "the user op: it has no name"},
        {"empty name", REDUCTION(COLLRUN_EXSCAN, .user_op = &empty), COLLRUN_ERR_INVALID,
         "the user op: it has no name"},
        {"long name", REDUCTION(COLLRUN_SCAN, .user_op = &lengthy), COLLRUN_ERR_INVALID,
         "longer than 63 bytes"},
        {"combine", REDUCTION(COLLRUN_REDUCE, .user_op = &idle), COLLRUN_ERR_INVALID,
         "combine is NULL"},
        {"size", REDUCTION(COLLRUN_REDUCE, .user_op = &small), COLLRUN_ERR_INVALID,
         "sizeof(struct collrun_user_op)"},
    };
    (void)state;
    struct collrun_group *g = null_group_new(RANK, N, 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int rc = collrun_run(g, &cases[i].call, 1);
        if (rc != cases[i].status)
            fail_msg("%s: %d, not %d: %s", cases[i].name, rc, cases[i].status, collrun_error());
        if (rc != COLLRUN_OK && !strstr(collrun_error(), cases[i].text))
            fail_msg("%s: \"%s\" does not say \"%s\"", cases[i].name, collrun_error(),
                     cases[i].text);
    }
    null_group_free(g);
}

/* The backend gets the calls one by one, and none after the first failure. Each has a number. */
static void a_batch_ends_with_its_first_failure(void **state)
{
    struct collrun_call calls[3];
    struct collrun_request *r = NULL;
    (void)state;
    for (int i = 0; i < 3; i++)
        calls[i] = (struct collrun_call)CALL(i ? COLLRUN_BROADCAST : COLLRUN_ALLREDUCE, I32,
                                             .send = AT(0), .recv = AT(9), .count = 1);
    for (int started = 0; started < 2; started++) {
        struct collrun_group *g = null_group_new(RANK, N, 0);
        assert_int_equal(collrun_run(g, calls, 3), COLLRUN_OK);
        assert_int_equal(null_backend.calls, 3);
        null_backend.answer = COLLRUN_ERR_UNSUPPORTED;
        int rc = started ? collrun_start_many(g, calls, 3, &r) : collrun_run(g, calls, 3);
        rc = started && rc == COLLRUN_OK ? collrun_wait(r) : rc;
        assert_int_equal(rc, COLLRUN_ERR_UNSUPPORTED);
        assert_int_equal(null_backend.calls, 4);
        assert_string_equal(collrun_error(), started ? "allreduce test#4: calls[0], allreduce(1 x "
                                                       "int32, sum): not supported"
                                                     : "allreduce test#4: not supported");
        null_backend.answer = COLLRUN_OK;
        assert_int_equal(collrun_run(g, calls, 3), COLLRUN_OK);
        assert_int_equal(g->calls.numbers[GROUP_COLLECTIVES], 9);
        null_group_free(g);
    }
}

/* With the flag, the backend gets the whole batch, unless the engine has a part in it. */
static void a_backend_may_take_the_whole_batch(void **state)
{
    static const struct collrun_user_op op = OPERATOR(.name = "op", .combine = op_nothing);
    struct collrun_call calls[2] = {REDUCTION(COLLRUN_ALLREDUCE, .count = 4),
                                    REDUCTION(COLLRUN_SCAN, .count = 4)};
    (void)state;
    struct collrun_group *g = null_group_new(RANK, N, COLLRUN_BACKEND_BATCHES);
    assert_int_equal(collrun_run(g, calls, 2), COLLRUN_OK);
    assert_int_equal(null_backend.longest, 2);
    null_backend.longest = 0;
    calls[1].user_op = &op;
    assert_int_equal(collrun_run(g, calls, 2), COLLRUN_OK);
    assert_int_equal(null_backend.last.kind, COLLRUN_SEND); /* of the emulated scan */
    assert_int_equal(g->calls.numbers[GROUP_COLLECTIVES], 4);
    null_group_free(g);
}

static void messages_and_collectives_do_not_mix(void **state)
{
    struct collrun_call calls[12];
    struct collrun_request *r = NULL;
    (void)state;
    struct collrun_group *g = null_group_new(RANK, N, 0);
    for (int i = 0; i < 12; i++)
        calls[i] = (struct collrun_call)CALL(i % 2 ? COLLRUN_SEND : COLLRUN_RECV, I32,
                                             .send = AT(i), .recv = AT(i), .count = 1, .peer = 2);
    assert_int_equal(collrun_start_many(g, calls, 12, &r), COLLRUN_OK);
    assert_int_equal(collrun_wait(r), COLLRUN_OK);
    assert_int_equal(null_backend.calls, 12);
    calls[5].kind = COLLRUN_BARRIER;
    assert_int_equal(collrun_start_many(g, calls, 12, &r), COLLRUN_ERR_INVALID);
    assert_non_null(strstr(collrun_error(), "a request has messages or collectives, but not both"));
    null_group_free(g);
}

/* What a failure does to the group, by status. */
static void a_failure_sticks_by_its_status(void **state)
{
    static const struct {
        int status;
        bool sticks;
    } cases[] = {{COLLRUN_ERR_INVALID, false},  {COLLRUN_ERR_UNSUPPORTED, false},
                 {COLLRUN_ERR_NO_MEMORY, true}, {COLLRUN_ERR_SYSTEM, true},
                 {COLLRUN_ERR_MISMATCH, true},  {COLLRUN_ERR_TIMEOUT, true}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct collrun_group *g = null_group_new(RANK, N, 0);
        assert_int_equal(collrun_barrier(g), COLLRUN_OK);
        null_backend.answer = cases[i].status;
        assert_int_equal(collrun_barrier(g), cases[i].status);
        char expect[128];
        snprintf(expect, sizeof expect, "barrier test#2: %s", collrun_strstatus(cases[i].status));
        assert_string_equal(collrun_error(), expect);
        null_backend.answer = 0;
        assert_int_equal(collrun_allreduce(g, AT(0), AT(9), 1, COLLRUN_INT32, COLLRUN_SUM),
                         cases[i].sticks ? cases[i].status : COLLRUN_OK);
        if (cases[i].sticks) {
            snprintf(expect, sizeof expect, "allreduce test#3: barrier test#2: %s",
                     collrun_strstatus(cases[i].status));
            assert_string_equal(collrun_error(), expect);
            assert_int_equal(null_backend.calls, 2);
        }
        null_group_free(g);
    }
}

/* A failure reaches the group's other handle, if something is in flight there. */
static void a_failure_aborts_messages_in_flight(void **state)
{
    (void)state;
    for (unsigned busy = 0; busy < 2; busy++) {
        struct collrun_group *g = null_group_new(RANK, N, 0);
        atomic_store(&g->backends[0].pq[GROUP_MESSAGES]->pending, busy);
        null_backend.answer = COLLRUN_ERR_MISMATCH;
        assert_int_equal(collrun_barrier(g), COLLRUN_ERR_MISMATCH);
        assert_int_equal(collrun_barrier(g), COLLRUN_ERR_MISMATCH);
        assert_int_equal(null_backend.aborts, busy);
        atomic_store(&g->backends[0].pq[GROUP_MESSAGES]->pending, 0);
        null_group_free(g);
    }
}

static void the_time_out_of_the_group_is_filled_in(void **state)
{
    struct collrun_call call = CALL(COLLRUN_BARRIER, I32, .timeout_ns = 77);
    struct collrun_request *r = NULL;
    (void)state;
    struct collrun_group *g = null_group_new(RANK, N, 0);
    collrun_barrier(g);
    assert_int_equal(null_backend.last.timeout_ns, g->timeout_ns);
    collrun_start(g, &call, &r);
    collrun_wait(r);
    assert_int_equal(null_backend.last.timeout_ns, 77);
    null_group_free(g);
}

/* Count arrays may change as soon as collrun_start has returned. */
static void count_arrays_are_copied(void **state)
{
    size_t counts[N] = {1, 1, 1, 1};
    struct collrun_call call = CALL(COLLRUN_ALLGATHERV, I32, .send = AT(50), .count = 1,
                                    .recv = AT(0), .recvcounts = counts);
    struct collrun_request *r = NULL;
    (void)state;
    struct collrun_group *g = null_group_new(RANK, N, 0);
    assert_int_equal(collrun_start(g, &call, &r), COLLRUN_OK);
    assert_int_equal(collrun_wait(r), COLLRUN_OK);
    assert_ptr_not_equal(null_backend.last.recvcounts, counts);
    null_group_free(g);
}

static void refused_devices(struct collrun_group *g, const struct collrun_call *calls, int n,
                            const char *words)
{
    struct collrun_request *r = NULL;
    assert_int_equal(collrun_start_many(g, calls, n, &r), COLLRUN_ERR_INVALID);
    if (!strstr(collrun_error(), words))
        fail_msg("\"%s\" is not in \"%s\"", words, collrun_error());
}

/* Two GPUs in each process: a collective takes two calls, a message may go to the other one here.
 */
static void each_gpu_makes_its_own_call(void **state)
{
    struct collrun_call calls[2];
    struct collrun_request *r = NULL;
    (void)state;
    struct collrun_group *g = null_group_new(RANK, N, 0);
    struct group_backend *gb = &g->backends[0];
    static struct memory_kind gpus = {.title = "GPU"};
    gb->kind = &gpus;
    gb->ndevices = 2;
    gb->comm_size = 2 * N;
    gb->first_comm_rank = 2 * RANK;
    for (int i = 0; i < 2; i++)
        calls[i] = (struct collrun_call)CALL(COLLRUN_ALLREDUCE, I32, .send = AT(i), .recv = AT(i),
                                             .count = 1, .device = i);
    assert_int_equal(collrun_start_many(g, calls, 2, &r), COLLRUN_OK);
    assert_int_equal(collrun_wait(r), COLLRUN_OK);
    assert_int_equal(null_backend.calls, 2);
    assert_int_equal(collrun_barrier(g), COLLRUN_OK);
    refused_devices(g, calls, 1, "for the 2 GPUs of each process");
    calls[1].device = 0;
    refused_devices(g, calls, 2, "two calls for device 0");
    calls[1].device = 2;
    refused_devices(g, calls, 2, "device 2 is not one of the 2 GPUs");
    calls[1].device = 1;
    calls[1].count = 2;
    refused_devices(g, calls, 2, "differ in more than their buffers");
    calls[0] = (struct collrun_call)CALL(COLLRUN_SEND, I32, .send = AT(0), .count = 1, .peer = RANK,
                                         .peer_device = 0);
    assert_int_equal(collrun_start_many(g, calls, 1, &r), COLLRUN_ERR_UNSUPPORTED);
    calls[0].peer_device = 1;
    assert_int_equal(collrun_start(g, calls, &r), COLLRUN_OK);
    assert_int_equal(collrun_wait(r), COLLRUN_OK);
    /* Each GPU has its own count in a v-form, and what a kind does not use may be anything. */
    const size_t uneven[2 * N] = {1, 1, 1, 1, 1, 2, 1, 1};
    for (int i = 0; i < 2; i++)
        calls[i] = (struct collrun_call)CALL(COLLRUN_ALLGATHERV, I32, .send = AT(50 + i),
                                             .recv = AT(0), .recvcounts = uneven, .device = i,
                                             .count = uneven[2 * RANK + i], .root = i,
                                             .op = i ? COLLRUN_MAX : COLLRUN_SUM);
    assert_int_equal(collrun_start_many(g, calls, 2, &r), COLLRUN_OK);
    assert_int_equal(collrun_wait(r), COLLRUN_OK);
    /* The second GPU's block of an allgather in place is block 2 * RANK + 1. */
    for (int i = 0; i < 2; i++)
        calls[i] = (struct collrun_call)CALL(COLLRUN_ALLGATHER, I32, .send = AT(2 * RANK + i),
                                             .recv = AT(0), .count = 1, .device = i);
    assert_int_equal(collrun_start_many(g, calls, 2, &r), COLLRUN_OK);
    assert_int_equal(collrun_wait(r), COLLRUN_OK);
    calls[1].send = AT(RANK);
    refused_devices(g, calls, 2, "overlap");
    null_group_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rule_of_the_arguments_holds),
        cmocka_unit_test(the_size_of_a_call_is_checked),
        cmocka_unit_test(null_pointers_are_invalid),
        cmocka_unit_test(sendrecv_with_oneself_copies),
        cmocka_unit_test(sendrecv_with_oneself_may_overlap_a_collective),
        cmocka_unit_test(the_first_rank_of_an_exscan_has_no_result),
        cmocka_unit_test(operators_of_workloads_are_checked),
        cmocka_unit_test(a_batch_ends_with_its_first_failure),
        cmocka_unit_test(a_backend_may_take_the_whole_batch),
        cmocka_unit_test(messages_and_collectives_do_not_mix),
        cmocka_unit_test(a_failure_sticks_by_its_status),
        cmocka_unit_test(a_failure_aborts_messages_in_flight),
        cmocka_unit_test(the_time_out_of_the_group_is_filled_in),
        cmocka_unit_test(count_arrays_are_copied),
        cmocka_unit_test(each_gpu_makes_its_own_call),
    };
    return cmocka_run_group_tests_name("engine checks", tests, NULL, NULL);
}
