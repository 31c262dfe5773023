/* SPDX-License-Identifier: Apache-2.0
 *
 * Random programs of collectives, in one of which one rank makes one mistake. The records of the
 * ranks, as the engine would write them, are aligned; the generator knows the rank, the number and
 * the argument. Programs without a mistake have no difference, also if ranks stopped at different
 * places, records have wrapped, or several groups overlap.
 */
#include "base/buf.h"
#include "base/record_queue.h"
#include "diagnose/align.h"
#include "diagnose/verdict.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { MOST_RANKS = 8, LENGTH = 40, PROGRAMS = 1500, ENTRIES = 64 };

static struct desc_host host = {.name = "here", .nranks = MOST_RANKS};
static struct desc_rank places[MOST_RANKS];

static uint32_t seed;
static uint32_t random_below(uint32_t n)
{
    seed = seed * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)seed * n >> 32);
}

/* ---- programs ---- */

struct step {
    uint8_t kind, dtype, op;
    int root;
    uint64_t count;
    size_t sent[MOST_RANKS], expected[MOST_RANKS]; /* alltoallv, allgatherv */
};

struct program {
    uint32_t nranks;
    struct step steps[MOST_RANKS][LENGTH + 1];
    uint32_t n[MOST_RANKS];
};

static const uint8_t plain[] = {COLLRUN_ALLREDUCE, COLLRUN_BROADCAST,      COLLRUN_REDUCE,
                                COLLRUN_ALLGATHER, COLLRUN_REDUCE_SCATTER, COLLRUN_ALLTOALL};

/* Step i; the count is different in all steps, so that no two are equal. */
static struct step make_step(uint32_t i, uint32_t nranks)
{
    struct step s = {.kind = plain[random_below(sizeof plain)],
                     .dtype = (uint8_t)random_below(4),
                     .count = 100 + i,
                     .root = -1};
    if (collrun_kind_reduces((enum collrun_kind)s.kind))
        s.op = (uint8_t)random_below(3);
    if (collrun_kind_has_root((enum collrun_kind)s.kind))
        s.root = (int)random_below(nranks);
    return s;
}

static void make_program(struct program *p, uint32_t nranks)
{
    p->nranks = nranks;
    for (uint32_t i = 0; i < LENGTH; i++) {
        struct step s = make_step(i, nranks);
        uint8_t vector = random_below(8)   ? 0
                         : random_below(2) ? COLLRUN_ALLTOALLV
                                           : COLLRUN_ALLGATHERV;
        size_t counts[MOST_RANKS][MOST_RANKS];
        for (uint32_t a = 0; a < nranks; a++)
            for (uint32_t b = 0; b < nranks; b++)
                counts[a][b] = 1 + random_below(9);
        for (uint32_t r = 0; r < nranks; r++) {
            struct step *own = &p->steps[r][i];
            *own = s;
            if (!vector)
                continue;
            own->kind = vector;
            own->op = 0;
            own->root = -1;
            own->count = counts[r][0];
            for (uint32_t k = 0; k < nranks; k++) {
                own->sent[k] = counts[r][k];
                own->expected[k] = vector == COLLRUN_ALLTOALLV ? counts[k][r] : counts[k][0];
            }
        }
    }
    for (uint32_t r = 0; r < nranks; r++)
        p->n[r] = LENGTH;
}

static void insert(struct program *p, uint32_t rank, uint32_t at, struct step s)
{
    memmove(&p->steps[rank][at + 1], &p->steps[rank][at], (p->n[rank] - at) * sizeof s);
    p->steps[rank][at] = s;
    p->n[rank]++;
}

static void leave_out(struct program *p, uint32_t rank, uint32_t at)
{
    p->n[rank]--;
    memmove(&p->steps[rank][at], &p->steps[rank][at + 1],
            (p->n[rank] - at) * sizeof p->steps[0][0]);
}

/* ---- records ---- */

static void record_step(struct record_queue *q, const struct step *s, uint32_t nranks,
                        uint64_t number, enum record_state state)
{
    struct record_call c = {.count = s->count,
                            .root_or_peer = s->root,
                            .kind = s->kind,
                            .dtype = s->dtype,
                            .op = s->op};
    const struct record_counts counts = {
        .sent = s->sent,
        .nsent = s->kind == COLLRUN_ALLTOALLV ? nranks : 0,
        .expected = s->expected,
        .nexpected = nranks,
    };
    if (collrun_kind_is_vector((enum collrun_kind)s->kind))
        c.tag = record_queue_keep_counts(q, &counts);
    uint64_t index = record_queue_reserve(q, 1), ticks = record_ticks(q->head);
    record_queue_write(q, index, &c, number, RECORD_STARTED, ticks);
    record_queue_enter(q, &c, number, 0, ticks);
    if (state == RECORD_STARTED)
        return;
    record_queue_leave(q, number);
    record_queue_end(q, index, state, ticks);
}

/* Rank r executes its first n[r] steps, and is inside the last of them; between them it uses
 * another group. */
static void make_record(const struct program *p, uint32_t rank, uint32_t n, struct rank_state *out)
{
    struct record_queue q, other;
    struct buf b;
    int fd = record_make(rank, ENTRIES);
    struct record_head *head = record_map(fd);
    assert_non_null(head);
    close(fd);
    struct record_queue_info info = {
        .name = "other", .scope = "other#0:1", .members = p->nranks, .rank = rank};
    record_queue_open(&other, head, &info);
    info.name = "dp";
    info.scope = "dp#0:2";
    record_queue_open(&q, head, &info);
    const struct step barrier = {.kind = COLLRUN_BARRIER, .root = -1};
    for (uint32_t i = 0; i < n; i++) {
        record_step(&q, &p->steps[rank][i], p->nranks, i + 1,
                    i + 1 < n ? RECORD_DONE : RECORD_STARTED);
        if (random_below(4) == 0)
            record_step(&other, &barrier, p->nranks, other.group->started + 1, RECORD_DONE);
    }
    buf_init(&b);
    assert_true(
        record_view_save(head, record_len(head), &(struct record_view_part){ENTRIES, false}, &b));
    assert_true(rank_record_set(out, b.data, b.len));
    buf_fini(&b);
    record_unmap(head, record_len(head));
}

static bool align(const struct program *p, const uint32_t n[MOST_RANKS], struct arena *arena,
                  struct align_difference *d)
{
    struct rank_state ranks[MOST_RANKS] = {{0}};
    const struct desc desc = {.hosts = &host, .nhosts = 1, .ranks = places, .nranks = p->nranks};
    const struct evidence e = {&desc, ranks, {.class = CAUSE_NONE}};
    for (uint32_t r = 0; r < p->nranks; r++)
        make_record(p, r, n[r], &ranks[r]);
    bool found = align_find(&e, NULL, arena, d);
    for (uint32_t r = 0; r < p->nranks; r++)
        rank_record_fini(&ranks[r]);
    return found;
}

/* ---- the tests ---- */

static void programs_without_a_mistake_have_no_difference(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < PROGRAMS / 5; i++) {
        struct program p;
        struct arena arena;
        struct align_difference d;
        uint32_t n[MOST_RANKS];
        arena_init(&arena);
        seed = i;
        make_program(&p, 2 + random_below(MOST_RANKS - 1));
        for (uint32_t r = 0; r < p.nranks; r++)
            n[r] = LENGTH - random_below(LENGTH);
        if (align(&p, n, &arena, &d))
            fail_msg("program %u: %s#%llu differs in %s", i, d.group, (unsigned long long)d.number,
                     d.field);
        arena_fini(&arena);
    }
}

enum mistake { DTYPE, OP, ROOT, COUNT, KIND, EXTRA, LEFT_OUT, SWAP, COUNTS, MISTAKES };

/* Makes the mistake; returns the argument, or NULL: this step has no such argument. */
static const char *mistake(struct program *p, enum mistake what, uint32_t rank, uint32_t at)
{
    struct step *s = &p->steps[rank][at];
    bool vector = collrun_kind_is_vector((enum collrun_kind)s->kind);
    bool next = collrun_kind_is_vector((enum collrun_kind)s[1].kind);
    switch (what) {
    case DTYPE:
        s->dtype++;
        return "dtype";
    case OP:
        s->op++;
        return collrun_kind_reduces((enum collrun_kind)s->kind) ? "op" : NULL;
    case ROOT:
        s->root = (s->root + 1) % (int)p->nranks;
        return collrun_kind_has_root((enum collrun_kind)s->kind) ? "root" : NULL;
    case COUNT:
        s->count += 1000;
        return vector ? NULL : "count";
    case KIND:
        s->kind = COLLRUN_SCAN;
        return "kind";
    case EXTRA:
        insert(p, rank, at, (struct step){.kind = COLLRUN_BARRIER, .root = -1});
        return "kind";
    case LEFT_OUT:
        if (vector || next)
            return NULL;
        leave_out(p, rank, at);
        return "";
    case SWAP: {
        struct step kept = *s;
        if (vector || next)
            return NULL;
        s[0] = s[1];
        s[1] = kept;
        return "";
    }
    case COUNTS:
        if (s->kind == COLLRUN_ALLTOALLV) {
            for (uint32_t k = 0; k < p->nranks; k++)
                s->sent[k] += k != rank;
            return "counts";
        }
        s->expected[(rank + 1) % p->nranks]++;
        return s->kind == COLLRUN_ALLGATHERV ? "counts" : NULL;
    default:
        return NULL;
    }
}

static void one_mistake_is_found(void **state)
{
    (void)state;
    static const enum align_edit edits[MISTAKES] = {
        [EXTRA] = ALIGN_EXTRA, [LEFT_OUT] = ALIGN_LEFT_OUT, [SWAP] = ALIGN_SWAPPED};
    uint32_t made[MISTAKES] = {0};
    for (uint32_t i = 0; i < PROGRAMS; i++) {
        struct program p;
        struct arena arena;
        struct align_difference d;
        uint32_t n[MOST_RANKS];
        arena_init(&arena);
        seed = 7000 + i;
        make_program(&p, 2 + random_below(MOST_RANKS - 1));
        enum mistake what = (enum mistake)(i % MISTAKES);
        uint32_t rank = random_below(p.nranks), at = LENGTH - 12 + random_below(8);
        bool ahead = random_below(2); /* the ranks continue with wrong data; else all block */
        const char *field = mistake(&p, what, rank, at);
        for (uint32_t r = 0; r < p.nranks; r++)
            n[r] = ahead ? p.n[r] : at + 1;
        if (!field)
            continue;
        made[what]++;
        if (!align(&p, n, &arena, &d))
            fail_msg("program %u: mistake %d is not found", i, (int)what);
        assert_int_equal(d.number, at + 1);
        if (field[0])
            assert_string_equal(d.field, field);
        assert_int_equal(d.completed, ahead);
        if (p.nranks == 2 && what != COUNTS) {
            assert_int_equal(d.wrong.n, 0);
            assert_int_equal(d.suspects.n, 2);
        } else if (p.nranks > 2) {
            assert_int_equal(d.wrong.n, 1);
            assert_int_equal(d.wrong.items[0], rank);
            if (ahead)
                assert_int_equal(d.edit, edits[what]);
        }
        arena_fini(&arena);
    }
    for (int m = 0; m < MISTAKES; m++)
        assert_true(made[m] > 5);
}

/* All members list the counts of all: 1, 2, 3. One of them has another count in its list; if that
 * is its own, it also sends or expects as much. */
static void counts_are_those_of_two_members(void **state)
{
    static const struct {
        uint8_t kind;
        uint32_t rank, of, count;
        struct align_counts found;
    } cases[] = {{COLLRUN_ALLGATHERV, 2, 2, 4, {2, 0, 4, 3}},
                 {COLLRUN_ALLGATHERV, 1, 2, 9, {2, 1, 3, 9}},
                 {COLLRUN_REDUCE_SCATTERV, 2, 2, 4, {0, 2, 3, 4}},
                 {COLLRUN_REDUCE_SCATTERV, 1, 2, 9, {1, 2, 9, 3}}};
    (void)state;
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct program p = {.nranks = 3};
        struct align_difference d;
        struct arena arena;
        uint32_t n[MOST_RANKS] = {1, 1, 1};
        arena_init(&arena);
        for (uint32_t r = 0; r < 3; r++) {
            struct step *s = &p.steps[r][0];
            *s = (struct step){.kind = cases[i].kind, .root = -1};
            for (uint32_t k = 0; k < 3; k++)
                s->expected[k] = r == cases[i].rank && k == cases[i].of ? cases[i].count : k + 1;
            s->count = s->expected[r];
        }
        assert_true(align(&p, n, &arena, &d));
        assert_string_equal(d.field, "counts");
        assert_int_equal(d.wrong.n, 1);
        assert_int_equal(d.wrong.items[0], cases[i].rank);
        assert_int_equal(d.counts.sender, cases[i].found.sender);
        assert_int_equal(d.counts.receiver, cases[i].found.receiver);
        assert_int_equal(d.counts.sent, cases[i].found.sent);
        assert_int_equal(d.counts.expected, cases[i].found.expected);
        arena_fini(&arena);
    }
}

/* Sets what the last rank recorded for the group as if it had written at random: `started` of its
 * group, or the number of its first operation. */
static void damage(struct rank_state *rank, uint64_t started, bool group)
{
    struct record_view v;
    unsigned char *bytes = rank->record_bytes;
    assert_int_equal(record_view_init(&v, bytes, rank->record_len, NULL), 0);
    struct record_group *g = (void *)(bytes + v.at.groups);
    if (group)
        g[1].started = started;
    struct record_entry *e = (void *)(bytes + v.at.entries);
    for (uint32_t i = 0; !group && i < v.head.entries; i++)
        if (e[i].group == 1 && e[i].number == 1)
            e[i].number = (uint32_t)started;
}

/* Numbers that are 2^61 apart, of which each is looked at, would take years. */
static void damaged_numbers_do_not_delay(void **state)
{
    static const uint64_t started[] = {
        1, 1u << 31, UINT32_MAX, UINT64_C(1) << 40, RECORD_NUMBER_MAX / 2, RECORD_NUMBER_MAX};
    (void)state;
    for (uint32_t i = 0; i < 2 * sizeof started / sizeof *started; i++) {
        struct rank_state ranks[2] = {{0}};
        const struct desc desc = {.hosts = &host, .nhosts = 1, .ranks = places, .nranks = 2};
        const struct evidence e = {&desc, ranks, {.class = CAUSE_NONE}};
        struct align_difference d;
        struct program p;
        struct arena arena;
        arena_init(&arena);
        seed = 1;
        make_program(&p, 2);
        p.steps[1][20].count++; /* a mistake, which is found despite one bad entry */
        for (uint32_t r = 0; r < 2; r++)
            make_record(&p, r, LENGTH, &ranks[r]);
        damage(&ranks[1], started[i / 2], i % 2);
        bool found = align_find(&e, NULL, &arena, &d);
        if (i % 2 == 0)
            assert_true(found && (i < 2 || d.number == 21));
        for (uint32_t r = 0; r < 2; r++)
            rank_record_fini(&ranks[r]);
        arena_fini(&arena);
    }
}

/* Memory for the counts of each member would be 64 GiB. */
static void a_group_of_more_members_than_ranks_is_ignored(void **state)
{
    (void)state;
    for (uint32_t members = 2; members; members = members == 2 ? UINT32_MAX : 0) {
        struct rank_state ranks[2] = {{0}};
        const struct desc desc = {.hosts = &host, .nhosts = 1, .ranks = places, .nranks = 2};
        const struct evidence e = {&desc, ranks, {.class = CAUSE_NONE}};
        struct align_difference d;
        struct record_view v;
        struct program p;
        struct arena arena;
        arena_init(&arena);
        seed = 1;
        make_program(&p, 2);
        p.steps[1][20].count++;
        for (uint32_t r = 0; r < 2; r++) {
            make_record(&p, r, LENGTH, &ranks[r]);
            assert_int_equal(record_view_init(&v, ranks[r].record_bytes, ranks[r].record_len, NULL),
                             0);
            struct record_group *g = (void *)((unsigned char *)ranks[r].record_bytes + v.at.groups);
            for (uint32_t i = 0; i < record_view_ngroups(&v); i++)
                g[i].members = members;
        }
        assert_int_equal(align_find(&e, NULL, &arena, &d), members == 2);
        for (uint32_t r = 0; r < 2; r++)
            rank_record_fini(&ranks[r]);
        arena_fini(&arena);
    }
}

/* A send gets the error of a collective of its group: the collective is the mistake. */
static void a_message_that_a_collective_has_failed(void **state)
{
    (void)state;
    struct program p = {.nranks = 3};
    struct rank_state ranks[3] = {{0}};
    const struct desc desc = {.hosts = &host, .nhosts = 1, .ranks = places, .nranks = 3};
    const struct evidence e = {&desc, ranks, {.class = CAUSE_NONE}};
    struct verdict v;
    struct arena arena;
    arena_init(&arena);
    for (uint32_t r = 0; r < 3; r++) {
        for (uint32_t i = 0; i < 2; i++)
            p.steps[r][i] = (struct step){.kind = COLLRUN_GATHER, .root = 1, .count = 8};
        p.steps[r][1].dtype = r == 1 ? COLLRUN_FLOAT64 : COLLRUN_INT16;
        make_record(&p, r, 2, &ranks[r]);
    }
    struct rank_state *r = &ranks[2];
    r->phase = PHASE_RUNNING;
    r->first_failure_ns = 5;
    r->first_failure_phase = PHASE_RUNNING;
    r->failed = FAILURE_REPORTED;
    r->failed_phase = WIRE_PHASE_RUN;
    r->operation = 11;
    snprintf(r->group, sizeof r->group, "dp");
    diag_set(&r->failure, COLLRUN_ERR_MISMATCH,
             "send dp#11: gather dp#2: rank 0 calls gather(8 x int16, root 1), rank 1 calls "
             "gather(8 x float64, root 1)");
    verdict_find(&e, &arena, &v);
    assert_int_equal(v.class, CAUSE_MISMATCH);
    assert_int_equal(v.number, 2);
    assert_string_equal(v.kind, "gather");
    assert_string_equal(v.field, "dtype");
    assert_int_equal(v.culprits.n, 1);
    assert_int_equal(v.culprits.items[0], 1);
    for (uint32_t i = 0; i < 3; i++)
        rank_record_fini(&ranks[i]);
    arena_fini(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(programs_without_a_mistake_have_no_difference),
        cmocka_unit_test(one_mistake_is_found),
        cmocka_unit_test(counts_are_those_of_two_members),
        cmocka_unit_test(a_message_that_a_collective_has_failed),
        cmocka_unit_test(damaged_numbers_do_not_delay),
        cmocka_unit_test(a_group_of_more_members_than_ranks_is_ignored),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
