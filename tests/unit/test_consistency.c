/* SPDX-License-Identifier: Apache-2.0
 *
 * The result of check: strict for every kind of disagreement, from fingerprints alone. Rank 1 of 3
 * deviates from a call in one field, and the error names it. What may differ between ranks
 * (buffers, displacements, arrays that a rank does not use) is ignored.
 */
#include "core/error.h"
#include "core/fingerprint.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { N = 3, MOST = 8 };

#define CALL(k, ...)                                                                               \
    {                                                                                              \
        .size = sizeof(struct collrun_call), .kind = (k), .dtype = COLLRUN_INT32, __VA_ARGS__      \
    }

static int verdict_of_ranks(const struct collrun_call *calls, const uint64_t *numbers, uint32_t n)
{
    struct fingerprint all[MOST];
    error_clear_cause();
    for (uint32_t r = 0; r < n; r++)
        all[r] = fingerprint_of(&calls[r], numbers ? numbers[r] : 7, r, n);
    return fingerprint_compare(all, n, 1, NULL);
}

static int verdict_of(const struct collrun_call calls[N], const uint64_t numbers[N])
{
    return verdict_of_ranks(calls, numbers, N);
}

/* Rank 1 calls `one`, the others `most`; `text` NULL: they agree. */
static void expect(const char *text, struct collrun_call most, struct collrun_call one)
{
    const struct collrun_call calls[N] = {most, one, most};
    int rc = verdict_of(calls, NULL);
    assert_int_equal(rc, text ? COLLRUN_ERR_MISMATCH : COLLRUN_OK);
    if (text && !strstr(error_get()->cause, text))
        fail_msg("\"%s\" lacks \"%s\"", error_get()->cause, text);
}

static void calls_that_differ_in_a_field_mismatch(void **state)
{
    (void)state;
    struct collrun_call sum = CALL(COLLRUN_ALLREDUCE, .count = 10), one = sum;
    one.send = &one; /* its own business, as are fields that the kind does not have */
    one.root = 2;
    one.timeout_ns = 5;
    expect(NULL, sum, one);
    one = sum;
    one.op = COLLRUN_MAX;
    expect("rank 0 calls allreduce(10 x int32, sum), rank 1 calls allreduce(10 x int32, max)", sum,
           one);
    one = sum;
    one.dtype = COLLRUN_FLOAT32;
    expect("10 x float32, sum", sum, one);
    one = sum;
    one.count = 11;
    expect("rank 1 calls allreduce(11 x int32", sum, one);
    one = (struct collrun_call)CALL(COLLRUN_BARRIER, .count = 99);
    expect("rank 1 calls barrier()", sum, one);
    struct collrun_call from0 = CALL(COLLRUN_BROADCAST, .count = 4), from2 = from0;
    from2.root = 2;
    expect("broadcast(4 x int32, root 0), rank 1 calls broadcast(4 x int32, root 2)", from0, from2);
    from2 = from0;
    from2.peer_device = 1;
    expect("broadcast(4 x int32, root 0), with devices 0 and 1 of the root", from0, from2);
}

static void scans_and_their_operators_are_compared(void **state)
{
    static const struct collrun_user_op argmax = {.name = "argmax", .unit = 2},
                                        same = {.name = "argmax",
                                                .unit = 2,
                                                .ctx = (void *)&argmax},
                                        argmin = {.name = "argmin", .unit = 2},
                                        wider = {.name = "argmax", .unit = 4};
    struct collrun_call scan = CALL(COLLRUN_SCAN, .count = 4), one = scan;
    (void)state;
    one.kind = COLLRUN_EXSCAN;
    expect("rank 0 calls scan(4 x int32, sum), rank 1 calls exscan(4 x int32, sum)", scan, one);
    one = scan;
    one.op = COLLRUN_MAX;
    expect("rank 1 calls scan(4 x int32, max)", scan, one);
    scan.user_op = &argmax;
    one = scan;
    one.user_op = &same;
    expect(NULL, scan, one);
    one.user_op = &argmin;
    expect("scan(4 x int32, user op argmax), rank 1 calls scan(4 x int32, user op argmin)", scan,
           one);
    one.user_op = &wider;
    expect("the operators have different units or commutativity", scan, one);
    one.user_op = NULL;
    expect("rank 1 calls scan(4 x int32, sum)", scan, one);
}

static void different_operation_numbers_mismatch(void **state)
{
    (void)state;
    const struct collrun_call call = CALL(COLLRUN_BARRIER, .count = 0),
                              calls[N] = {call, call, call};
    assert_int_equal(verdict_of(calls, (const uint64_t[N]){4, 4, 4}), COLLRUN_OK);
    assert_int_equal(verdict_of(calls, (const uint64_t[N]){4, 4, 5}), COLLRUN_ERR_MISMATCH);
    assert_non_null(strstr(error_get()->cause, "as operations 4 and 5 of the group"));
}

/* Every rank passes the array: rank r sends counts[r]. */
static void counts_of_all_ranks_must_agree(void **state)
{
    static const size_t counts[N] = {3, 5, 4}, other[N] = {3, 5, 6};
    struct collrun_call calls[N];
    (void)state;
    for (int r = 0; r < N; r++)
        calls[r] = (struct collrun_call)CALL(COLLRUN_ALLGATHERV, .count = counts[r],
                                             .recvcounts = counts, .recvdispls = r ? counts : NULL);
    assert_int_equal(verdict_of(calls, NULL), COLLRUN_OK);
    calls[1].recvcounts = other;
    assert_int_equal(verdict_of(calls, NULL), COLLRUN_ERR_MISMATCH);
    assert_non_null(strstr(error_get()->cause, "ranks 0 and 1 differ about"));
    for (int r = 0; r < N; r++)
        calls[r].recvcounts = other;
    assert_int_equal(verdict_of(calls, NULL), COLLRUN_ERR_MISMATCH);
    assert_non_null(strstr(error_get()->cause, "the counts that the ranks contribute (3, 5, 4)"));
    for (int r = 0; r < N; r++)
        calls[r] = (struct collrun_call)CALL(COLLRUN_REDUCE_SCATTERV, .recvcounts = counts);
    assert_int_equal(verdict_of(calls, NULL), COLLRUN_OK);
    calls[2].recvcounts = other;
    assert_int_equal(verdict_of(calls, NULL), COLLRUN_ERR_MISMATCH);
}

/* Only the root has it. */
static void counts_of_the_root_must_match_the_ranks(void **state)
{
    static const size_t counts[N] = {3, 0, 4};
    struct collrun_call calls[N];
    (void)state;
    for (int r = 0; r < N; r++)
        calls[r] = (struct collrun_call)CALL(COLLRUN_GATHERV, .count = counts[r], .root = 1,
                                             .recvcounts = r == 1 ? counts : NULL);
    assert_int_equal(verdict_of(calls, NULL), COLLRUN_OK);
    calls[0].count = 2;
    assert_int_equal(verdict_of(calls, NULL), COLLRUN_ERR_MISMATCH);
    assert_non_null(strstr(error_get()->cause, "the counts of rank 1 do not match"));
    for (int r = 0; r < N; r++)
        calls[r] = (struct collrun_call)CALL(COLLRUN_SCATTERV, .recvcount = counts[r], .root = 2,
                                             .sendcounts = r == 2 ? counts : NULL);
    assert_int_equal(verdict_of(calls, NULL), COLLRUN_OK);
    calls[1].recvcount = 1;
    assert_int_equal(verdict_of(calls, NULL), COLLRUN_ERR_MISMATCH);
}

/* Two ranks with two devices each; the root is the last device. */
static void counts_are_those_of_the_root_among_devices(void **state)
{
    enum { DEVICES = 2, SIZE = 4, ROOT = 3 };
    static const size_t counts[SIZE] = {3, 1, 4, 1};
    struct fingerprint any = {.kind = COLLRUN_GATHERV, .dtype = COLLRUN_INT32, .root = 1};
    uint64_t all[SIZE][2 * SIZE];
    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        const bool scatters = i == 1;
        any.kind = scatters ? COLLRUN_SCATTERV : COLLRUN_GATHERV;
        for (uint32_t r = 0; r < SIZE; r++) {
            struct collrun_call call = CALL(any.kind, .root = 1, .peer_device = 1);
            call.count = call.recvcount = r == 2 ? 5 : counts[r];
            call.sendcounts = scatters && r == ROOT ? counts : NULL;
            call.recvcounts = !scatters && r == ROOT ? counts : NULL;
            fingerprint_counts(&call, r, ROOT, SIZE, all[r]);
        }
        assert_int_equal(fingerprint_compare_counts(&any, all[0], SIZE, DEVICES, NULL),
                         COLLRUN_ERR_MISMATCH);
        assert_non_null(strstr(error_get()->cause,
                               scatters ? "rank 1 sends 4 elements to rank 1, which receives 5"
                                        : "rank 1 sends 5 elements to rank 1, which receives 4"));
    }
}

static void counts_of_each_pair_must_agree(void **state)
{
    static const size_t sent[N][N] = {{1, 2, 3}, {4, 5, 6}, {7, 8, 9}},
                        received[N][N] = {{1, 4, 7}, {2, 5, 8}, {3, 6, 9}}, swapped[N] = {4, 1, 7};
    struct collrun_call calls[N];
    (void)state;
    for (int r = 0; r < N; r++)
        calls[r] = (struct collrun_call)CALL(COLLRUN_ALLTOALLV, .sendcounts = sent[r],
                                             .recvcounts = received[r]);
    assert_int_equal(verdict_of(calls, NULL), COLLRUN_OK);
    calls[0].recvcounts = swapped; /* the same sum, from other ranks */
    assert_int_equal(verdict_of(calls, NULL), COLLRUN_ERR_MISMATCH);
}

/* Errors of a few small counts, as programs make them: one count, a pair that is exchanged, counts
 * that move between three peers. The hash of counts is linear, so each has to be seen. */
static void small_differences_of_counts_do_not_cancel(void **state)
{
    enum { M = MOST, STEP = 1 << 20 };
    static const int errors[][3] = {{1, 0, 0}, {1, -1, 0}, {1, -2, 1}, {2, -1, -1}, {3, -2, -1}};
    size_t sent[M][M], received[M][M];
    struct collrun_call calls[M];
    (void)state;
    for (uint32_t i = 0; i < sizeof errors / sizeof *errors * M * M * 2; i++) {
        uint32_t which = i / 2 / M / M, from = i / 2 / M % M, to = i / 2 % M;
        for (uint32_t r = 0; r < M; r++) {
            calls[r] = (struct collrun_call)CALL(COLLRUN_ALLTOALLV, .sendcounts = sent[r],
                                                 .recvcounts = received[r]);
            for (uint32_t p = 0; p < M; p++)
                sent[r][p] = received[p][r] = (size_t)(100 + r * M + p) * STEP;
        }
        assert_int_equal(verdict_of_ranks(calls, NULL, M), COLLRUN_OK);
        for (uint32_t e = 0; e < 3; e++) {
            uint32_t a = (from + (i & 1 ? e : 0)) % M, b = (to + (i & 1 ? 0 : e)) % M;
            received[b][a] += (size_t)(errors[which][e] * STEP);
        }
        assert_int_equal(verdict_of_ranks(calls, NULL, M), COLLRUN_ERR_MISMATCH);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_that_differ_in_a_field_mismatch),
        cmocka_unit_test(scans_and_their_operators_are_compared),
        cmocka_unit_test(different_operation_numbers_mismatch),
        cmocka_unit_test(counts_of_all_ranks_must_agree),
        cmocka_unit_test(counts_of_the_root_must_match_the_ranks),
        cmocka_unit_test(counts_are_those_of_the_root_among_devices),
        cmocka_unit_test(counts_of_each_pair_must_agree),
        cmocka_unit_test(small_differences_of_counts_do_not_cancel),
    };
    return cmocka_run_group_tests_name("check: strict", tests, NULL, NULL);
}
