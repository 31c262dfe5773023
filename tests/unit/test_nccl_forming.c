/* SPDX-License-Identifier: Apache-2.0
 *
 * How the coordinator of the nccl backend has the communicators of a handle formed, without I/O:
 * which step follows which, in which order the ranks lock their GPUs, and what a failure does.
 */
#include "../../backends/nccl/coord/forming.h"

#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { RANKS = 4, MOST = 64 };
static const uint32_t world_rank[RANKS] = {7, 2, 9, 4}; /* they lock as 1, 3, 0, 2 */

struct sent {
    struct {
        uint32_t rank;
        struct coord_form form;
    } items[MOST];
    unsigned n, taken;
};

static void note(void *ctx, uint32_t rank, const struct coord_form *form)
{
    struct sent *s = ctx;
    assert_true(s->n < MOST);
    s->items[s->n].rank = rank;
    s->items[s->n++].form = *form;
}

static void init(struct coord_forming *f, struct sent *s, uint32_t joined)
{
    memset(s, 0, sizeof *s);
    assert_true(coord_forming_init(f, RANKS, 1, note, s));
    for (uint32_t i = 0; i < joined; i++)
        assert_true(coord_forming_join(f, i, world_rank[i]));
}

static void want(struct coord_forming *f, enum coord_handle handle)
{
    assert_true(coord_forming_want(f, &(struct coord_want){.handle = handle}));
}

static void expect(struct sent *s, uint32_t rank, enum coord_handle handle,
                   enum coord_form_step step)
{
    assert_true(s->taken < s->n);
    assert_int_equal(s->items[s->taken].rank, rank);
    assert_int_equal(s->items[s->taken].form.handle, handle);
    assert_int_equal(s->items[s->taken++].form.step, step);
}

static void expect_all(struct sent *s, enum coord_handle handle, enum coord_form_step step)
{
    for (uint32_t i = 0; i < RANKS; i++)
        expect(s, i, handle, step);
}

static void expect_nothing(const struct sent *s)
{
    assert_int_equal(s->taken, s->n);
}

static bool reply(struct coord_forming *f, uint32_t rank, enum coord_handle handle,
                  enum coord_form_step step)
{
    return coord_forming_on_frame(
        f, rank, &(struct coord_form){.handle = (uint16_t)handle, .step = (uint16_t)step});
}

static void reply_all(struct coord_forming *f, struct sent *s, enum coord_handle handle,
                      enum coord_form_step step)
{
    for (uint32_t i = 0; i < RANKS; i++) {
        expect_nothing(s);
        assert_true(reply(f, i, handle, step));
    }
}

/* From MAKE_ID to END. */
static void form_one(struct coord_forming *f, struct sent *s, enum coord_handle h)
{
    static const uint32_t order[RANKS] = {1, 3, 0, 2};
    expect(s, 0, h, FORM_MAKE_ID);
    expect_nothing(s);
    assert_true(reply(f, 0, h, FORM_ID));
    expect_all(s, h, FORM_ID);
    reply_all(f, s, h, FORM_MADE);
    for (uint32_t i = 0; i < RANKS; i++) {
        expect(s, order[i], h, FORM_LOCK);
        expect_nothing(s);
        assert_true(reply(f, order[i], h, FORM_LOCKED));
    }
    expect_all(s, h, FORM_CONNECT);
    reply_all(f, s, h, FORM_CONNECTED);
    expect_all(s, h, FORM_END);
}

static void gpus_are_locked_in_the_order_of_world_ranks(void **state)
{
    struct coord_forming f;
    struct sent s;
    (void)state;
    init(&f, &s, RANKS);
    expect_nothing(&s);
    want(&f, COORD_MESSAGES);
    want(&f, COORD_MESSAGES);
    form_one(&f, &s, COORD_MESSAGES);
    expect_nothing(&s);
    want(&f, COORD_MESSAGES); /* it is formed */
    expect_nothing(&s);
    coord_forming_fini(&f);
}

static void handles_are_formed_one_after_the_other(void **state)
{
    struct coord_forming f;
    struct sent s;
    (void)state;
    init(&f, &s, RANKS);
    want(&f, COORD_MESSAGES);
    want(&f, COORD_COLLECTIVES);
    form_one(&f, &s, COORD_MESSAGES);
    form_one(&f, &s, COORD_COLLECTIVES);
    expect_nothing(&s);
    coord_forming_fini(&f);
}

static void it_begins_when_all_ranks_take_part(void **state)
{
    struct coord_forming f;
    struct sent s;
    (void)state;
    init(&f, &s, RANKS - 1);
    want(&f, COORD_COLLECTIVES);
    expect_nothing(&s);
    assert_false(coord_forming_join(&f, 0, 1));
    assert_true(coord_forming_join(&f, RANKS - 1, world_rank[RANKS - 1]));
    form_one(&f, &s, COORD_COLLECTIVES);
    coord_forming_fini(&f);
}

static void a_failure_ends_one_handle(void **state)
{
    struct coord_forming f;
    struct sent s;
    (void)state;
    init(&f, &s, RANKS);
    want(&f, COORD_COLLECTIVES);
    want(&f, COORD_MESSAGES);
    expect(&s, 0, COORD_COLLECTIVES, FORM_MAKE_ID);
    assert_true(reply(&f, 2, COORD_COLLECTIVES, FORM_FAILED));
    assert_int_equal(s.items[s.taken].form.number, 2);
    expect_all(&s, COORD_COLLECTIVES, FORM_FAILED);
    assert_true(reply(&f, 1, COORD_COLLECTIVES, FORM_MADE)); /* it crossed FAILED */
    form_one(&f, &s, COORD_MESSAGES);
    expect_nothing(&s);
    coord_forming_fini(&f);
}

static void after_a_rank_has_left_nothing_is_formed(void **state)
{
    struct coord_forming f;
    struct sent s;
    (void)state;
    init(&f, &s, RANKS);
    want(&f, COORD_MESSAGES);
    expect(&s, 0, COORD_MESSAGES, FORM_MAKE_ID);
    coord_forming_leave(&f, 3);
    assert_int_equal(s.items[s.taken].form.number, 3);
    expect_all(&s, COORD_MESSAGES, FORM_FAILED);
    expect_all(&s, COORD_CLOSING, FORM_FAILED);
    coord_forming_leave(&f, 1);
    expect_nothing(&s);
    assert_true(reply(&f, 0, COORD_MESSAGES, FORM_ID)); /* it crossed FAILED */
    expect_nothing(&s);
    want(&f, COORD_COLLECTIVES);
    expect_all(&s, COORD_COLLECTIVES, FORM_FAILED);
    expect_nothing(&s);
    coord_forming_fini(&f);
}

static void malformed_frames_are_refused(void **state)
{
    struct coord_forming f;
    struct sent s;
    (void)state;
    init(&f, &s, RANKS);
    want(&f, COORD_MESSAGES);
    assert_false(reply(&f, 0, COORD_HANDLES, FORM_ID));
    assert_false(reply(&f, 0, COORD_COLLECTIVES, FORM_ID)); /* not wanted */
    assert_false(reply(&f, 0, COORD_MESSAGES, FORM_END));
    for (uint32_t i = 0; i < RANKS; i++)
        assert_true(reply(&f, i, COORD_MESSAGES, FORM_MADE));
    assert_false(reply(&f, 0, COORD_MESSAGES, FORM_LOCKED)); /* it is rank 1's turn */
    coord_forming_fini(&f);
}

static const struct coord_want from_0_to_5 = {.handle = COORD_DIRECT, .from = 0, .to = 5},
                               from_7_to_6 = {.handle = COORD_DIRECT, .from = 7, .to = 6},
                               from_2_to_4 = {.handle = COORD_DIRECT, .from = 2, .to = 4};

static void expect_of(struct sent *s, uint32_t rank, const struct coord_want *what,
                      enum coord_form_step step)
{
    assert_true(s->taken < s->n);
    assert_int_equal(s->items[s->taken].form.from, what->from);
    assert_int_equal(s->items[s->taken].form.to, what->to);
    expect(s, rank, COORD_DIRECT, step);
}

static bool reply_of(struct coord_forming *f, uint32_t rank, const struct coord_want *what,
                     enum coord_form_step step)
{
    return coord_forming_on_frame(
        f, rank,
        &(struct coord_form){
            .handle = COORD_DIRECT, .step = (uint16_t)step, .from = what->from, .to = what->to});
}

/* With two GPUs per rank: from rank 0 to rank 2, within rank 3, and from rank 1 to rank 2. */
static void directions_concern_two_ranks_and_are_formed_side_by_side(void **state)
{
    struct coord_forming f;
    struct sent s;
    (void)state;
    init(&f, &s, RANKS);
    f.ndevs = 2;
    assert_true(coord_forming_want(&f, &from_0_to_5));
    expect_of(&s, 0, &from_0_to_5, FORM_MAKE_ID);
    assert_true(coord_forming_want(&f, &from_7_to_6));
    expect_of(&s, 3, &from_7_to_6, FORM_MAKE_ID);
    assert_true(coord_forming_want(&f, &from_2_to_4)); /* rank 2 is busy */
    assert_true(coord_forming_want(&f, &from_2_to_4));
    expect_nothing(&s);
    assert_false(reply_of(&f, 1, &from_0_to_5, FORM_MADE)); /* it does not concern rank 1 */
    assert_true(reply_of(&f, 3, &from_7_to_6, FORM_ID));
    expect_of(&s, 3, &from_7_to_6, FORM_ID);
    assert_true(reply_of(&f, 0, &from_0_to_5, FORM_ID));
    expect_of(&s, 0, &from_0_to_5, FORM_ID);
    expect_of(&s, 2, &from_0_to_5, FORM_ID);
    assert_true(reply_of(&f, 2, &from_0_to_5, FORM_MADE));
    assert_true(reply_of(&f, 0, &from_0_to_5, FORM_MADE));
    for (int i = 0; i < 2; i++) { /* by world rank: 7 and 9 */
        expect_of(&s, i ? 2 : 0, &from_0_to_5, FORM_LOCK);
        assert_true(reply_of(&f, i ? 2 : 0, &from_0_to_5, FORM_LOCKED));
    }
    for (int step = FORM_CONNECT; step <= FORM_END; step += FORM_END - FORM_CONNECT) {
        expect_of(&s, 0, &from_0_to_5, (enum coord_form_step)step);
        expect_of(&s, 2, &from_0_to_5, (enum coord_form_step)step);
        for (uint32_t r = 0; r < 3 && step == FORM_CONNECT; r += 2)
            assert_true(reply_of(&f, r, &from_0_to_5, FORM_CONNECTED));
    }
    expect_of(&s, 1, &from_2_to_4, FORM_MAKE_ID);
    coord_forming_leave(&f, 1); /* the others are not concerned */
    expect_of(&s, 1, &from_2_to_4, FORM_FAILED);
    expect_of(&s, 2, &from_2_to_4, FORM_FAILED);
    expect_all(&s, COORD_CLOSING, FORM_FAILED);
    assert_true(reply_of(&f, 3, &from_7_to_6, FORM_MADE));
    expect_of(&s, 3, &from_7_to_6, FORM_LOCK);
    expect_nothing(&s);
    coord_forming_fini(&f);
}

/* ---- closing ---- */

/* All ranks are ready, and are to lock their GPUs. */
static void begin_closing(struct coord_forming *f, struct sent *s)
{
    init(f, s, RANKS);
    reply_all(f, s, COORD_CLOSING, FORM_READY);
    expect_all(s, COORD_CLOSING, FORM_LOCK);
}

static void all_close_when_all_gpus_are_locked(void **state)
{
    struct coord_forming f;
    struct sent s;
    (void)state;
    begin_closing(&f, &s);
    reply_all(&f, &s, COORD_CLOSING, FORM_LOCKED);
    assert_true(coord_forming_is_over(&f));
    expect_all(&s, COORD_CLOSING, FORM_CLOSE);
    coord_forming_leave(&f, 2); /* it has closed */
    expect_nothing(&s);
    coord_forming_fini(&f);
}

static void a_busy_gpu_puts_closing_off(void **state)
{
    struct coord_forming f;
    struct sent s;
    (void)state;
    begin_closing(&f, &s);
    for (uint32_t i = 0; i < RANKS; i++)
        assert_true(reply(&f, i, COORD_CLOSING, i == 2 ? FORM_BUSY : FORM_LOCKED));
    expect_all(&s, COORD_CLOSING, FORM_UNLOCK);
    expect_nothing(&s);
    assert_false(reply(&f, 0, COORD_CLOSING, FORM_READY)); /* it is */
    assert_true(reply(&f, 2, COORD_CLOSING, FORM_READY));
    expect_all(&s, COORD_CLOSING, FORM_LOCK);
    reply_all(&f, &s, COORD_CLOSING, FORM_LOCKED);
    expect_all(&s, COORD_CLOSING, FORM_CLOSE);
    expect_nothing(&s);
    coord_forming_fini(&f);
}

static void closing_waits_for_what_is_being_formed(void **state)
{
    struct coord_forming f;
    struct sent s;
    (void)state;
    init(&f, &s, RANKS);
    want(&f, COORD_MESSAGES);
    expect(&s, 0, COORD_MESSAGES, FORM_MAKE_ID);
    reply_all(&f, &s, COORD_CLOSING, FORM_READY);
    expect_nothing(&s);
    assert_true(reply(&f, 1, COORD_MESSAGES, FORM_FAILED));
    expect_all(&s, COORD_MESSAGES, FORM_FAILED);
    expect_all(&s, COORD_CLOSING, FORM_LOCK);
    expect_nothing(&s);
    coord_forming_fini(&f);
}

static void when_a_rank_has_gone_each_closes_alone(void **state)
{
    struct coord_forming f;
    struct sent s;
    (void)state;
    begin_closing(&f, &s);
    assert_true(reply(&f, 0, COORD_CLOSING, FORM_LOCKED));
    coord_forming_leave(&f, 3);
    expect_all(&s, COORD_CLOSING, FORM_FAILED);
    assert_true(coord_forming_is_over(&f));
    assert_true(reply(&f, 1, COORD_CLOSING, FORM_LOCKED)); /* it crossed FAILED */
    expect_nothing(&s);
    coord_forming_fini(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpus_are_locked_in_the_order_of_world_ranks),
        cmocka_unit_test(handles_are_formed_one_after_the_other),
        cmocka_unit_test(it_begins_when_all_ranks_take_part),
        cmocka_unit_test(a_failure_ends_one_handle),
        cmocka_unit_test(after_a_rank_has_left_nothing_is_formed),
        cmocka_unit_test(malformed_frames_are_refused),
        cmocka_unit_test(directions_concern_two_ranks_and_are_formed_side_by_side),
        cmocka_unit_test(all_close_when_all_gpus_are_locked),
        cmocka_unit_test(a_busy_gpu_puts_closing_off),
        cmocka_unit_test(closing_waits_for_what_is_being_formed),
        cmocka_unit_test(when_a_rank_has_gone_each_closes_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
