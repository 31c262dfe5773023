/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares the audit with a comparison of the whole lists of calls, which the test knows and the
 * audit does not: it gets some marks of each rank, in frames that arrive in any order.
 * - Equal calls are never reported, wherever the ranks are.
 * - A report is right about the operation (after < first difference <= number), about which ranks
 *   agree, and about whether results may be wrong.
 * - Once all ranks have sent their last 64 marks at nearly the same number, a difference among them
 *   is found, with its exact number.
 */
#include "diagnose/audit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 5, CALLS = 300, PROGRAMS = 20000 };

static uint32_t seed;

static uint32_t random_below(uint32_t n)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % n;
}

/* ---- programs ---- */

struct program {                                   /* of one rank */
    uint32_t calls[CALLS + 1];                     /* from 1; any number is a call */
    uint32_t sent[CALLS + 1], expected[CALLS + 1]; /* elements from and to the next rank */
    uint64_t called, done;
};

struct world {
    struct program ranks[RANKS];
    uint32_t nranks;
};

static void make_programs(struct world *w)
{
    *w = (struct world){.nranks = 2 + random_below(RANKS - 1)};
    for (uint32_t i = 1; i <= CALLS; i++) {
        uint32_t call = random_below(4);
        for (uint32_t r = 0; r < w->nranks; r++)
            w->ranks[r].calls[i] = call;
        for (uint32_t r = 0; r < w->nranks; r++) {
            uint32_t count = random_below(3);
            w->ranks[r].sent[i] = count;
            w->ranks[(r + 1) % w->nranks].expected[i] = count;
        }
    }
}

/* Equal programs without v-forms. */
static void make_even_programs(struct world *w, uint32_t nranks)
{
    *w = (struct world){.nranks = nranks};
    for (uint32_t i = 1; i <= CALLS; i++) {
        uint32_t call = random_below(4);
        for (uint32_t r = 0; r < nranks; r++)
            w->ranks[r].calls[i] = call;
    }
}

/* Insertion, deletion, swap, one other call; or other counts. */
static void spoil_program(struct world *w)
{
    struct program *p = &w->ranks[random_below(w->nranks)];
    uint32_t at = 1 + random_below(CALLS - 1), other = p->calls[at + 1];
    switch (random_below(5)) {
    case 0:
        memmove(&p->calls[at + 1], &p->calls[at], (CALLS - at) * sizeof *p->calls);
        break;
    case 1:
        memmove(&p->calls[at], &p->calls[at + 1], (CALLS - at) * sizeof *p->calls);
        break;
    case 2:
        p->calls[at + 1] = p->calls[at];
        p->calls[at] = other;
        break;
    case 3:
        p->calls[at] ^= 1;
        break;
    default:
        p->expected[at] += 1 + random_below(2);
    }
}

/* Each rank is somewhere near the same operation. */
static void advance_programs(struct world *w, uint32_t around, uint32_t spread)
{
    for (uint32_t r = 0; r < w->nranks; r++) {
        uint64_t at = around + random_below(spread), before = w->ranks[r].called;
        at = at < before ? before : at;
        w->ranks[r].called = at < CALLS ? at : CALLS;
        w->ranks[r].done = w->ranks[r].called - random_below(2);
    }
}

/* ---- the oracle ---- */

static bool same_calls(const struct world *w, uint32_t a, uint32_t b, uint64_t upto)
{
    return memcmp(w->ranks[a].calls + 1, w->ranks[b].calls + 1, upto * sizeof(uint32_t)) == 0;
}

static bool pairs_agree(const struct world *w, uint64_t at)
{
    for (uint32_t r = 0; r < w->nranks; r++) {
        if (w->ranks[r].sent[at] != w->ranks[(r + 1) % w->nranks].expected[at])
            return false;
    }
    return true;
}

static uint64_t least_called(const struct world *w)
{
    uint64_t least = w->ranks[0].called;
    for (uint32_t r = 1; r < w->nranks; r++)
        least = w->ranks[r].called < least ? w->ranks[r].called : least;
    return least;
}

/* The first operation about which ranks differ that have called it; 0: none. Pairs can be compared
 * only where all ranks have called. */
static uint64_t first_difference(const struct world *w)
{
    for (uint64_t at = 1; at <= CALLS; at++) {
        for (uint32_t a = 0; a < w->nranks; a++) {
            for (uint32_t b = 0; b < a; b++) {
                if (at <= w->ranks[a].called && at <= w->ranks[b].called &&
                    w->ranks[a].calls[at] != w->ranks[b].calls[at])
                    return at;
            }
        }
        if (at <= least_called(w) && !pairs_agree(w, at))
            return at;
    }
    return 0;
}

/* ---- frames ---- */

struct marks {     /* which marks of a rank a frame has */
    uint32_t keep; /* of 8 of the last 64; 8: all */
    bool ended, destroyed;
    int status; /* of the group */
};

static uint64_t mixed(uint64_t x)
{
    x = (x ^ x >> 31) * 0xff51afd7ed558ccdu;
    return x ^ x >> 29;
}

static void put_mark(struct buf *b, const struct world *w, uint32_t rank, uint64_t upto)
{
    const struct program *p = &w->ranks[rank];
    uint64_t signature = 7, pairs = 0;
    for (uint64_t i = 1; i <= upto; i++) {
        uint32_t before = (rank + w->nranks - 1) % w->nranks;
        signature = mixed(signature + p->calls[i]);
        pairs += mixed(mixed(i) + rank * 100 + p->sent[i]);
        pairs -= mixed(mixed(i) + before * 100 + p->expected[i]);
    }
    buf_put_u64(b, upto);
    buf_put_u64(b, signature);
    buf_put_u64(b, pairs);
    buf_put_u64(b, 1000 * upto + rank);
}

static bool wants_mark(const struct program *p, uint64_t number, const struct marks *which)
{
    return number == p->called || (number % 64 == 0 && number) ||
           (number + 64 > p->called && random_below(8) < which->keep);
}

static void put_group(struct buf *b, const struct world *w, uint32_t rank, const char *scope,
                      const struct marks *which)
{
    const struct program *p = &w->ranks[rank];
    struct buf marks;
    uint32_t n = 0;
    buf_init(&marks);
    for (uint64_t i = 1; i <= p->called; i++) {
        if (!wants_mark(p, i, which))
            continue;
        put_mark(&marks, w, rank, i);
        n++;
    }
    buf_put_str(b, scope);
    buf_put_str(b, "train");
    buf_put_u32(b, w->nranks);
    buf_put_u64(b, p->called);
    buf_put_u64(b, p->done);
    buf_put_u32(b, (uint32_t)which->status);
    buf_put_u8(b, (uint8_t)((which->ended ? WIRE_AUDIT_ENDED : 0) |
                            (which->destroyed ? WIRE_AUDIT_DESTROYED : 0)));
    buf_put_u32(b, n);
    buf_put(b, marks.data, marks.len);
    buf_fini(&marks);
}

static bool send_marks(struct audit *a, const struct world *w, uint32_t rank, const char *scope,
                       const struct marks *which)
{
    struct buf b;
    buf_init(&b);
    buf_put_u32(&b, 1);
    put_group(&b, w, rank, scope, which);
    bool good = audit_take(a, &(struct wire_frame){.rank = rank, .payload = b.data, .len = b.len},
                           &(int64_t){0});
    buf_fini(&b);
    return good;
}

static void send_all(struct audit *a, const struct world *w, const struct marks *which)
{
    uint32_t first = random_below(w->nranks);
    for (uint32_t i = 0; i < w->nranks; i++)
        assert_true(send_marks(a, w, (first + i) % w->nranks, "train#0:1", which));
}

/* ---- cases ---- */

static void check_finding(const struct world *w, const struct audit_finding *f)
{
    uint64_t first = first_difference(w);
    bool completed = false;
    assert_string_equal(f->group, "train");
    assert_true(first && f->after < first && first <= f->number);
    assert_int_equal(f->nmembers, w->nranks);
    for (uint32_t r = 0; r < w->nranks; r++)
        completed = completed || w->ranks[r].done >= f->number;
    assert_int_equal(f->completed, completed);
    uint32_t largest = 0;
    for (uint32_t i = 0; i < f->nranks; i++) {
        uint32_t alike = 0;
        for (uint32_t k = 0; k < f->nranks; k++) {
            bool same = same_calls(w, f->ranks[i].rank, f->ranks[k].rank, f->number);
            assert_int_equal(same, f->ranks[i].class == f->ranks[k].class);
            alike += same;
        }
        largest = alike > largest ? alike : largest;
        if (f->ranks[i].class == f->majority)
            assert_true(alike * 2 > f->nranks);
    }
    assert_int_equal(f->majority != UINT32_MAX, f->nclasses > 1 && largest * 2 > f->nranks);
    assert_int_equal(f->difference, f->nclasses > 1 ? AUDIT_CALLS : AUDIT_COUNTS);
}

static struct world world;

static void equal_calls_are_never_reported(void **state)
{
    (void)state;
    for (seed = 1; seed < PROGRAMS / 20; seed += 7) {
        uint32_t kept = seed;
        struct audit *a = audit_new(RANKS);
        struct audit_finding f;
        make_programs(&world);
        for (uint32_t i = 0; i < 5; i++) {
            advance_programs(&world, i * 60, 1 + random_below(200));
            send_all(a, &world, &(struct marks){.keep = random_below(9)});
            assert_false(audit_find(a, true, &f));
        }
        assert_false(audit_find_extra(a, &f));
        audit_free(a);
        seed = kept;
    }
}

static void a_difference_is_reported_as_it_is(void **state)
{
    uint32_t found = 0;
    (void)state;
    for (uint32_t i = 1; i < PROGRAMS / 20; i++) {
        struct audit *a = audit_new(RANKS);
        struct audit_finding f;
        seed = i * 7919;
        make_programs(&world);
        spoil_program(&world);
        for (uint32_t k = 0; k < 6; k++) {
            advance_programs(&world, k * 55, 1 + random_below(90));
            send_all(a, &world, &(struct marks){.keep = random_below(9)});
            if (!audit_find(a, true, &f))
                continue;
            check_finding(&world, &f);
            found++;
            break;
        }
        audit_free(a);
    }
    assert_true(found > PROGRAMS / 20 * 8 / 10); /* some spoiled programs are equal */
}

/* With the last 64 marks of all ranks, which are at nearly the same operation. */
static void the_last_marks_show_the_exact_operation(void **state)
{
    (void)state;
    for (uint32_t i = 1; i < PROGRAMS / 20; i++) {
        struct audit *a = audit_new(RANKS);
        struct audit_finding f;
        seed = i * 104729;
        make_programs(&world);
        spoil_program(&world);
        uint32_t around = 1;
        do
            advance_programs(&world, around++, 1);
        while (!first_difference(&world) && around < CALLS);
        uint64_t first = first_difference(&world);
        advance_programs(&world, (uint32_t)first + random_below(20), 1 + random_below(20));
        send_all(a, &world, &(struct marks){.keep = 8});
        assert_int_equal(audit_find(a, true, &f), first != 0);
        if (first) {
            check_finding(&world, &f);
            assert_int_equal(f.number, first);
            assert_int_equal(f.after, first - 1);
        }
        audit_free(a);
    }
}

/* Ranks that are 1,000 operations apart have no number but multiples of 64 in common. */
static void ranks_that_are_far_apart_meet(void **state)
{
    struct audit *a = audit_new(2);
    struct audit_finding f;
    (void)state;
    seed = 5;
    make_even_programs(&world, 2);
    world.ranks[1].calls[100] ^= 1;
    world.ranks[0].called = world.ranks[0].done = 130;
    world.ranks[1].called = world.ranks[1].done = 299;
    assert_true(send_marks(a, &world, 1, "train#0:1", &(struct marks){.keep = 0}));
    assert_false(audit_find(a, true, &f));
    assert_true(send_marks(a, &world, 0, "train#0:1", &(struct marks){.keep = 8}));
    assert_true(audit_find(a, true, &f));
    assert_int_equal(f.number, 128);
    assert_int_equal(f.after, 64);
    assert_true(f.completed);
    assert_int_equal(f.majority, UINT32_MAX);
    audit_free(a);
}

/* Groups that are used one after the other under one name have different scopes. */
static void formations_of_one_name_are_separate(void **state)
{
    struct audit *a = audit_new(RANKS);
    struct audit_finding f;
    (void)state;
    seed = 9;
    make_even_programs(&world, 2);
    advance_programs(&world, 20, 1);
    world.ranks[0].done = world.ranks[1].done = 20;
    assert_true(send_marks(a, &world, 0, "train#0:1", &(struct marks){.keep = 8, .ended = true}));
    assert_true(send_marks(a, &world, 1, "train#0:1", &(struct marks){.keep = 8, .ended = true}));
    world.ranks[0].calls[3] ^= 1;
    world.ranks[1].calls[3] ^= 1;
    assert_true(send_marks(a, &world, 0, "train#1:1", &(struct marks){.keep = 8}));
    assert_false(audit_find(a, true, &f));
    assert_true(send_marks(a, &world, 1, "train#1:1", &(struct marks){.keep = 8}));
    assert_false(audit_find(a, true, &f));
    assert_false(audit_find_extra(a, &f));
    audit_free(a);
}

static void an_operation_too_many_is_found_at_the_end(void **state)
{
    struct audit *a = audit_new(RANKS);
    struct audit_finding f;
    (void)state;
    seed = 13;
    make_even_programs(&world, 3);
    for (uint32_t r = 0; r < 3; r++)
        world.ranks[r].called = world.ranks[r].done = r == 1 ? 11 : 10;
    for (uint32_t r = 0; r < 3; r++) {
        assert_false(audit_find_extra(a, &f));
        assert_true(send_marks(a, &world, r, "t#0:1", &(struct marks){.keep = 8, .ended = true}));
    }
    assert_false(audit_find(a, true, &f));
    assert_true(audit_find_extra(a, &f));
    assert_int_equal(f.difference, AUDIT_EXTRA);
    assert_int_equal(f.number, 11);
    assert_int_equal(f.after, 10);
    assert_int_equal(f.ranks[0].class, f.majority);
    assert_int_not_equal(f.ranks[1].class, f.majority);
    audit_free(a);
    /* The same if it started the operation and closed the group, but not if that failed. */
    const int statuses[] = {COLLRUN_OK, COLLRUN_ERR_ABORTED, COLLRUN_ERR_PEER_FAILED};
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++) {
        a = audit_new(RANKS);
        world.ranks[1].done = 10;
        for (uint32_t r = 0; r < 3; r++)
            assert_true(send_marks(
                a, &world, r, "t#0:1",
                &(struct marks){.keep = 8, .ended = true, .status = r == 1 ? statuses[i] : 0}));
        assert_int_equal(audit_find_extra(a, &f), statuses[i] != COLLRUN_ERR_PEER_FAILED);
        audit_free(a);
    }
}

/* Rank 1 has destroyed the group after 10 calls, and others have called more. */
static void a_group_that_is_destroyed_too_early_is_found(void **state)
{
    static const struct {
        uint32_t nranks, called[RANKS]; /* 0: no frame has come */
        struct marks of_one;
        int status; /* of rank 0 */
        bool found, decided;
        const char *text;
    } cases[] = {
        {4,
         {11, 10, 11, 12},
         {.ended = true, .destroyed = true},
         0,
         true,
         true,
         "rank 1 has destroyed group train after train#10, ranks 0 and 2-3 have called train#11"},
        /* Ranks 2 and 3 are late: they may call the operation, or destroy the group. */
        {4,
         {11, 10, 10, 0},
         {.ended = true, .destroyed = true},
         0,
         true,
         false,
         "rank 1 has destroyed group train after train#10, rank 0 has called train#11"},
        {2,
         {11, 10},
         {.ended = true, .destroyed = true},
         0,
         true,
         false,
         "rank 1 has destroyed group train after train#10, rank 0 has called train#11"},
        /* The others are inside the last operation of all, or late. */
        {4, {10, 10, 10, 9}, {.ended = true, .destroyed = true}, 0, false, false, NULL},
        /* Rank 1 has ended, perhaps by a signal; it may still call; the group has failed. */
        {4, {11, 10, 11, 11}, {.ended = true}, 0, false, false, NULL},
        {4, {11, 10, 11, 11}, {.ended = false}, 0, false, false, NULL},
        {4,
         {11, 10, 11, 11},
         {.ended = true, .destroyed = true},
         COLLRUN_ERR_PEER_FAILED,
         false,
         false,
         NULL},
        {4,
         {11, 10, 11, 11},
         {.ended = true, .destroyed = true, .status = COLLRUN_ERR_ABORTED},
         0,
         false,
         false,
         NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct audit *a = audit_new(RANKS);
        struct audit_finding f;
        struct diag d;
        make_even_programs(&world, cases[i].nranks);
        for (uint32_t r = 0; r < cases[i].nranks; r++) {
            world.ranks[r].called = cases[i].called[r];
            world.ranks[r].done = 10;
            const struct marks others = {.keep = 8, .status = r ? 0 : cases[i].status};
            struct marks which = r == 1 ? cases[i].of_one : others;
            which.keep = 8;
            if (world.ranks[r].called)
                assert_true(send_marks(a, &world, r, "t#0:1", &which));
        }
        assert_int_equal(audit_find_destroyed(a, &f), cases[i].found);
        assert_false(audit_find(a, true, &f) || audit_find_extra(a, &f));
        if (audit_find_destroyed(a, &f)) {
            diag_init(&d);
            audit_text(&f, &d);
            assert_string_equal(d.text, cases[i].text);
            assert_int_equal(f.number, 11);
            assert_int_equal(f.majority != UINT32_MAX, cases[i].decided);
            assert_true(!cases[i].decided || f.ranks[1].class != f.majority);
            /* The job ends, and the calls in flight fail. */
            assert_true(send_marks(
                a, &world, 0, "t#0:1",
                &(struct marks){.keep = 8, .ended = true, .status = COLLRUN_ERR_ABORTED}));
            assert_true(audit_find_destroyed(a, &f));
        }
        audit_free(a);
    }
}

/* The agent sends what a rank has written, perhaps at random, into its record. */
static void a_group_of_more_members_than_ranks_is_ignored(void **state)
{
    struct audit *a = audit_new(2);
    struct audit_finding f;
    (void)state;
    seed = 17;
    make_programs(&world);
    world.nranks = 3;
    advance_programs(&world, 70, 1);
    for (uint32_t r = 0; r < 2; r++) {
        world.ranks[r].calls[1] = r;
        assert_true(send_marks(a, &world, r, "t#0:1", &(struct marks){.keep = 8, .ended = true}));
    }
    assert_false(audit_find(a, true, &f));
    assert_false(audit_find_extra(a, &f));
    audit_free(a);
}

static void malformed_frames_are_refused(void **state)
{
    struct buf b;
    (void)state;
    seed = 17;
    make_programs(&world);
    advance_programs(&world, 70, 1);
    buf_init(&b);
    buf_put_u32(&b, 1);
    put_group(&b, &world, 0, "train#0:1", &(struct marks){.keep = 8});
    for (size_t len = 0; len <= b.len; len++) {
        struct audit *a = audit_new(RANKS);
        unsigned char *copy = malloc(len + 1);
        memcpy(copy, b.data, len);
        const struct wire_frame f = {.rank = 0, .payload = copy, .len = len};
        assert_int_equal(audit_take(a, &f, NULL), len == b.len);
        free(copy);
        audit_free(a);
    }
    buf_fini(&b);
}

/* ---- stragglers ---- */

static void stragglers_of_equal_formations_are_added(void **state)
{
    struct audit *a = audit_new(RANKS);
    const char *scopes[] = {"train#0:1", "train#1:1"};
    (void)state;
    seed = 21;
    make_even_programs(&world, 2);
    for (uint32_t r = 0; r < 2; r++)
        world.ranks[r].called = world.ranks[r].done = 30;
    for (uint32_t i = 0; i < 2; i++)
        for (uint32_t r = 0; r < 2; r++) /* the second time in the other order */
            assert_true(send_marks(a, &world, r ^ i, scopes[i],
                                   &(struct marks){.keep = 8, .ended = i == 0}));
    struct straggler_finding last;
    assert_false(audit_last(a, "other", &last));
    assert_true(audit_last(a, "train", &last)); /* the formation that is open */
    assert_int_equal(last.rank, 1);
    assert_int_equal(last.last, last.compared);
    const struct straggler_list *list = audit_stragglers(a);
    assert_int_equal(list->n, 1);
    assert_string_equal(list->items[0].group, "train");
    const struct straggler_group *g = &list->items[0].sums;
    assert_int_equal(g->compared, 58);
    assert_int_equal(g->ranks[0].last, 0);
    assert_int_equal(g->ranks[1].rank, 1);
    assert_int_equal(g->ranks[1].last, 58);
    assert_int_equal(g->ranks[1].late_ns, 58);
    assert_int_equal(audit_stragglers(a)->n, 1);
    audit_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_calls_are_never_reported),
        cmocka_unit_test(a_difference_is_reported_as_it_is),
        cmocka_unit_test(the_last_marks_show_the_exact_operation),
        cmocka_unit_test(ranks_that_are_far_apart_meet),
        cmocka_unit_test(formations_of_one_name_are_separate),
        cmocka_unit_test(an_operation_too_many_is_found_at_the_end),
        cmocka_unit_test(a_group_that_is_destroyed_too_early_is_found),
        cmocka_unit_test(a_group_of_more_members_than_ranks_is_ignored),
        cmocka_unit_test(malformed_frames_are_refused),
        cmocka_unit_test(stragglers_of_equal_formations_are_added),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
