/* SPDX-License-Identifier: Apache-2.0
 *
 * The verdict of check: strict on every kind of disagreement, from signatures alone: rank 1 of 3
 * deviates from a call in one thing, and the sentence says in what. What may differ between ranks
 * (buffers, displacements, arrays that a rank does not use) does not matter.
 */
#include "error.h"
#include "strict.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { N = 3 };

#define CALL(k, ...)                                                                               \
    {                                                                                              \
        .size = sizeof(struct collrun_call), .kind = (k), .dtype = COLLRUN_INT32, __VA_ARGS__      \
    }

static int verdict_of(const struct collrun_call calls[N], const uint64_t numbers[N])
{
    struct strict_signature all[N];
    error_clear_cause();
    for (uint32_t r = 0; r < N; r++)
        all[r] = strict_sign(&calls[r], numbers ? numbers[r] : 7, r, N);
    return strict_compare(all, N, 1);
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

static void test_equal_forms(void **state)
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
}

static void test_numbers(void **state)
{
    (void)state;
    const struct collrun_call call = CALL(COLLRUN_BARRIER, .count = 0),
                              calls[N] = {call, call, call};
    assert_int_equal(verdict_of(calls, (const uint64_t[N]){4, 4, 4}), COLLRUN_OK);
    assert_int_equal(verdict_of(calls, (const uint64_t[N]){4, 4, 5}), COLLRUN_ERR_MISMATCH);
    assert_non_null(strstr(error_get()->cause, "as operations 4 and 5 of the group"));
}

/* Everybody has the array: rank r sends counts[r]. */
static void test_arrays_of_all(void **state)
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
    assert_non_null(strstr(error_get()->cause, "ranks 0 and 1 give different counts"));
    for (int r = 0; r < N; r++)
        calls[r].recvcounts = other;
    assert_int_equal(verdict_of(calls, NULL), COLLRUN_ERR_MISMATCH);
    assert_non_null(strstr(error_get()->cause, "which themselves say 3, 5, 4"));
    for (int r = 0; r < N; r++)
        calls[r] = (struct collrun_call)CALL(COLLRUN_REDUCE_SCATTERV, .recvcounts = counts);
    assert_int_equal(verdict_of(calls, NULL), COLLRUN_OK);
    calls[2].recvcounts = other;
    assert_int_equal(verdict_of(calls, NULL), COLLRUN_ERR_MISMATCH);
}

/* Only the root has it. */
static void test_arrays_of_the_root(void **state)
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
    assert_non_null(strstr(error_get()->cause, "rank 1 gives other counts"));
    for (int r = 0; r < N; r++)
        calls[r] = (struct collrun_call)CALL(COLLRUN_SCATTERV, .recvcount = counts[r], .root = 2,
                                             .sendcounts = r == 2 ? counts : NULL);
    assert_int_equal(verdict_of(calls, NULL), COLLRUN_OK);
    calls[1].recvcount = 1;
    assert_int_equal(verdict_of(calls, NULL), COLLRUN_ERR_MISMATCH);
}

static void test_pairs(void **state)
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal_forms),   cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_arrays_of_all), cmocka_unit_test(test_arrays_of_the_root),
        cmocka_unit_test(test_pairs),
    };
    return cmocka_run_group_tests_name("check: strict", tests, NULL, NULL);
}
