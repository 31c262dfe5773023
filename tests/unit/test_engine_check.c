/* SPDX-License-Identifier: Apache-2.0
 *
 * What is refused before anything is sent: one row per way to call wrongly, and rows of good calls
 * that look almost the same. A refused call must not reach the backend and must leave the group
 * usable.
 */
#include "backend.h"
#include "error.h"
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
    BAD("kind", "17 is no kind of operation", 17, I32, .count = 1),
    BAD("negative kind", "-1 is no kind of operation", -1, I32, .count = 1),
    BAD("dtype", "13 is no element type", COLLRUN_ALLREDUCE, 13, .count = 1),
    BAD("operator", "11 is no operator", COLLRUN_ALLREDUCE, I32, .op = 11),
    BAD("operator on floats", "operator band has no meaning for float32", COLLRUN_ALLREDUCE,
        COLLRUN_FLOAT32, .op = COLLRUN_BAND),
    BAD("logical on floats", "operator lxor has no meaning for bfloat16", COLLRUN_REDUCE,
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
    BAD("allreduce count", "more than memory can hold", COLLRUN_ALLREDUCE, I32, .send = AT(0),
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
    BAD("allgather product", "more than memory can hold", COLLRUN_ALLGATHER, I32, .send = AT(0),
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
    BAD("allgatherv own", "this rank sends itself 3 elements and receives 2", COLLRUN_ALLGATHERV,
        I32, .send = AT(100), .count = 3, .recv = AT(0), .recvcounts = twos),
    BAD("allgatherv blocks", "the blocks received from ranks 0 and 1 overlap", COLLRUN_ALLGATHERV,
        I32, .send = AT(100), .count = 2, .recv = AT(0), .recvcounts = twos, .recvdispls = clash),
    BAD("allgatherv huge", "the receive counts for rank 0 are more than memory can hold",
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
    BAD("scatterv own", "this rank sends itself 1 elements and receives 2", COLLRUN_SCATTERV, I32,
        .send = AT(0), .recv = AT(200), .recvcount = 2, .sendcounts = ones, .root = RANK),
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
        .recv = AT(0), .recvcounts = twos),
    BAD("alltoallv counts", "the array of send counts is NULL", COLLRUN_ALLTOALLV, I32,
        .send = AT(0), .recv = AT(90), .recvcounts = twos),

    GOOD("send", COLLRUN_SEND, I32, .send = AT(0), .count = 1, .peer = 0),
    GOOD("empty send", COLLRUN_SEND, I32, .peer = 0),
    BAD("send to itself", "peer 1 is this rank itself", COLLRUN_SEND, I32, .send = AT(0),
        .count = 1, .peer = RANK),
    BAD("send too far", "peer 4 is not a rank of this group of 4", COLLRUN_SEND, I32, .send = AT(0),
        .count = 1, .peer = 4),
    BAD("send to -1", "peer -1 is not a rank", COLLRUN_SEND, I32, .send = AT(0), .count = 1,
        .peer = -1),
    BAD("recv buffer", "the receive buffer is NULL", COLLRUN_RECV, I32, .count = 1, .peer = 0),
    BAD("largest tag", "tag 2147483648 is more than the largest, 2147483647", COLLRUN_SEND, I32,
        .send = AT(0), .count = 1, .tag = 1u << 31),
    {"tag", CALL(COLLRUN_SEND, I32, .send = AT(0), .count = 1, .tag = 1), COLLRUN_ERR_UNSUPPORTED,
     "backend \"null\" does not match tags"},
    {"recv_any", CALL(COLLRUN_RECV_ANY, I32, .recv = AT(0), .count = 1), COLLRUN_ERR_UNSUPPORTED,
     "recv_any test: not supported by backend \"null\""},
};

static void test_rows(void **state)
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

static void test_call_size(void **state)
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

static void test_null_pointers(void **state)
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

static void test_sendrecv(void **state)
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
                     COLLRUN_ERR_INVALID);
    assert_int_equal(collrun_sendrecv(g, AT(0), 1, 0, AT(9), 1, 2, COLLRUN_INT32), COLLRUN_OK);
    assert_int_equal(null_backend.calls, 2);
    null_group_free(g);
}

static void test_batches(void **state)
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
    assert_non_null(strstr(collrun_error(), "several calls in one request have to be messages"));
    null_group_free(g);
}

/* What a failure does to the group, by status. */
static void test_fate(void **state)
{
    static const struct {
        int status;
        bool sticks;
    } cases[] = {{COLLRUN_ERR_INVALID, false},   {COLLRUN_ERR_UNSUPPORTED, false},
                 {COLLRUN_ERR_NO_MEMORY, false}, {COLLRUN_ERR_SYSTEM, false},
                 {COLLRUN_ERR_MISMATCH, true},   {COLLRUN_ERR_TIMEOUT, true}};
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
static void test_fate_reaches_what_is_in_flight(void **state)
{
    (void)state;
    for (unsigned busy = 0; busy < 2; busy++) {
        struct collrun_group *g = null_group_new(RANK, N, 0);
        atomic_store(&g->sides[0].lane[GROUP_MESSAGES]->pending, busy);
        null_backend.answer = COLLRUN_ERR_MISMATCH;
        assert_int_equal(collrun_barrier(g), COLLRUN_ERR_MISMATCH);
        assert_int_equal(collrun_barrier(g), COLLRUN_ERR_MISMATCH);
        assert_int_equal(null_backend.aborts, busy);
        atomic_store(&g->sides[0].lane[GROUP_MESSAGES]->pending, 0);
        null_group_free(g);
    }
}

static void test_timeout_is_filled_in(void **state)
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
static void test_arrays_are_copied(void **state)
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
static void test_devices(void **state)
{
    struct collrun_call calls[2];
    struct collrun_request *r = NULL;
    (void)state;
    struct collrun_group *g = null_group_new(RANK, N, 0);
    struct group_side *side = &g->sides[0];
    side->ndevices = 2;
    side->nplaces = 2 * N;
    side->first_place = 2 * RANK;
    for (int i = 0; i < 2; i++)
        calls[i] = (struct collrun_call)CALL(COLLRUN_ALLREDUCE, I32, .send = AT(i), .recv = AT(i),
                                             .count = 1, .device = i);
    assert_int_equal(collrun_start_many(g, calls, 2, &r), COLLRUN_OK);
    assert_int_equal(collrun_wait(r), COLLRUN_OK);
    assert_int_equal(null_backend.calls, 2);
    assert_int_equal(collrun_barrier(g), COLLRUN_OK);
    refused_devices(g, calls, 1, "each process drives 2 GPUs");
    calls[1].device = 0;
    refused_devices(g, calls, 2, "two calls for device 0");
    calls[1].device = 2;
    refused_devices(g, calls, 2, "device 2 is not one of the 2 GPUs");
    calls[1].device = 1;
    calls[1].count = 2;
    refused_devices(g, calls, 2, "differ in more than their buffers");
    calls[0] = (struct collrun_call)CALL(COLLRUN_SEND, I32, .send = AT(0), .count = 1, .peer = RANK,
                                         .peer_device = 0);
    refused_devices(g, calls, 1, "is this rank itself");
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
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_call_size),
        cmocka_unit_test(test_null_pointers),
        cmocka_unit_test(test_sendrecv),
        cmocka_unit_test(test_batches),
        cmocka_unit_test(test_fate),
        cmocka_unit_test(test_fate_reaches_what_is_in_flight),
        cmocka_unit_test(test_timeout_is_filled_in),
        cmocka_unit_test(test_arrays_are_copied),
        cmocka_unit_test(test_devices),
    };
    return cmocka_run_group_tests_name("engine checks", tests, NULL, NULL);
}
