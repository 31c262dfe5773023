/* SPDX-License-Identifier: Apache-2.0
 *
 * Scratch memory of the operations of a group (backends/net/scratch.h): what is kept for the next
 * operation, and that this does not grow with the number of lengths.
 */
#include "../../backends/net/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

enum { LARGEST = 256 << 10 };

static void a_large_piece_is_used_again(void **state)
{
    struct scratch_pool pool = {0};
    struct scratch_pieces pieces = {0};
    (void)state;
    void *first = scratch_get(&pool, &pieces, LARGEST);
    scratch_release(&pool, &pieces);
    assert_int_equal(pool.len, LARGEST);
    assert_ptr_equal(scratch_get(&pool, &pieces, LARGEST / 2), first);
    assert_int_equal((uintptr_t)first % 64, 0);
    assert_int_equal(pool.len, 0);
    scratch_release(&pool, &pieces);
    scratch_fini(&pool);
}

static void what_is_kept_does_not_grow(void **state)
{
    struct scratch_pool pool = {0};
    (void)state;
    srand(7);
    for (int i = 0; i < 20000; i++) {
        struct scratch_pieces pieces = {0};
        for (int k = rand() % 4; k >= 0; k--)
            assert_non_null(scratch_get(&pool, &pieces, (size_t)rand() % LARGEST + 1));
        scratch_release(&pool, &pieces);
        assert_int_equal(pool.in_use, 0);
        assert_true(pool.len <= 4 * LARGEST * 4); /* a piece may be four times too long */
    }
    assert_true(pool.len > LARGEST);
    scratch_fini(&pool);
}

/* The pool keeps the pieces of the length that the last operation used. */
static void what_was_used_last_is_kept(void **state)
{
    struct scratch_pool pool = {0};
    struct scratch_pieces pieces = {0};
    (void)state;
    scratch_get(&pool, &pieces, LARGEST);
    scratch_release(&pool, &pieces);
    void *last = scratch_get(&pool, &pieces, 2 * LARGEST);
    scratch_release(&pool, &pieces);
    assert_int_equal(pool.len, 2 * LARGEST);
    assert_ptr_equal(scratch_get(&pool, &pieces, 2 * LARGEST), last);
    scratch_release(&pool, &pieces);
    scratch_fini(&pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_large_piece_is_used_again),
        cmocka_unit_test(what_is_kept_does_not_grow),
        cmocka_unit_test(what_was_used_last_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
