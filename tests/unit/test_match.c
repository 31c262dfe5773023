/* SPDX-License-Identifier: Apache-2.0
 *
 * The matching engine beside an oracle that scans plain arrays: random programs of posts, arrivals,
 * probes and withdrawals, with any source and any tag; order; tens of thousands of queued entries
 * in linear time; and the ops that are lent to backends.
 */
#include "core/match.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint64_t seed;

static uint32_t draw(uint32_t below)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33) % below;
}

/* ---- random programs ---- */

enum { MOST = 4000 };

/* What is queued, in order: scanned from the front. */
struct oracle {
    struct match_entry *queue[MOST];
    size_t n;
};

static bool oracle_fits(const struct match_entry *receive, uint32_t source, uint32_t tag)
{
    bool any_tag = receive->tag == MATCH_ANY_TAG && tag < 1u << 31;
    return (receive->tag == tag || any_tag) &&
           (receive->source == MATCH_ANY_SOURCE || receive->source == source);
}

static struct match_entry *oracle_take(struct oracle *o, size_t i)
{
    struct match_entry *found = o->queue[i];
    memmove(&o->queue[i], &o->queue[i + 1], (--o->n - i) * sizeof o->queue[0]);
    return found;
}

static struct match_entry *oracle_take_posted(struct oracle *o, uint32_t source, uint32_t tag)
{
    for (size_t i = 0; i < o->n; i++)
        if (oracle_fits(o->queue[i], source, tag))
            return oracle_take(o, i);
    return NULL;
}

static struct match_entry *oracle_find_unexpected(struct oracle *o, bool takes,
                                                  const struct match_entry *receive)
{
    for (size_t i = 0; i < o->n; i++)
        if (oracle_fits(receive, o->queue[i]->source, o->queue[i]->tag))
            return takes ? oracle_take(o, i) : o->queue[i];
    return NULL;
}

struct program {
    uint32_t sources, tags, any_percent, any_tag_percent, post_percent;
    uint32_t probe_percent, withdraw_percent;
};

static void probe_at_random(struct match *m, struct oracle *unexpected, const struct program *p)
{
    struct match_entry probe = {.source = draw(2) ? MATCH_ANY_SOURCE : draw(p->sources),
                                .tag = draw(p->tags) * 0x10000001u};
    if (draw(100) < p->any_tag_percent)
        probe.tag = MATCH_ANY_TAG;
    assert_ptr_equal(match_find_unexpected(m, probe.source, probe.tag),
                     oracle_find_unexpected(unexpected, false, &probe));
}

static void withdraw_at_random(struct match *m, struct oracle *posted)
{
    if (posted->n)
        match_withdraw_posted(m, oracle_take(posted, draw((uint32_t)posted->n)));
}

static void run_program(const struct program *p, size_t length)
{
    static struct match_entry entries[MOST];
    static struct oracle posted, unexpected;
    struct match m;
    posted.n = unexpected.n = 0;
    match_init(&m);
    for (size_t i = 0; i < length; i++) {
        struct match_entry *e = &entries[i], *got;
        bool posts = draw(100) < p->post_percent;
        e->source = posts && draw(100) < p->any_percent ? MATCH_ANY_SOURCE : draw(p->sources);
        e->tag = draw(p->tags) * 0x10000001u; /* high bits, too */
        if (posts && draw(100) < p->any_tag_percent)
            e->tag = MATCH_ANY_TAG;
        if (draw(100) < p->probe_percent)
            probe_at_random(&m, &unexpected, p);
        if (draw(100) < p->withdraw_percent)
            withdraw_at_random(&m, &posted);
        if (posts) {
            got = match_take_unexpected(&m, e->source, e->tag);
            assert_ptr_equal(got, oracle_find_unexpected(&unexpected, true, e));
            if (!got) {
                match_add_posted(&m, e);
                posted.queue[posted.n++] = e;
            }
        } else {
            got = match_take_posted(&m, e->source, e->tag);
            assert_ptr_equal(got, oracle_take_posted(&posted, e->source, e->tag));
            if (!got) {
                match_add_unexpected(&m, e);
                unexpected.queue[unexpected.n++] = e;
            }
        }
        assert_int_equal(m.nposted, posted.n);
        assert_int_equal(m.nunexpected, unexpected.n);
    }
    match_fini(&m, NULL, NULL, NULL);
}

static void random_programs_agree_with_the_oracle(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 600; i++) {
        seed = i;
        struct program p = {.sources = 1 + draw(i % 3 ? 4 : 300),
                            .tags = 1 + draw(i % 5 ? 4 : 300),
                            .any_percent = draw(3) * 40,
                            .any_tag_percent = draw(3) * 20,
                            .post_percent = 20 + draw(61),
                            .probe_percent = draw(3) * 10,
                            .withdraw_percent = draw(3) * 5};
        run_program(&p, i % 50 ? 300 : MOST);
    }
}

/* ---- order ---- */

static void a_receive_of_any_source_keeps_its_turn(void **state)
{
    (void)state;
    struct match m;
    struct match_entry any = {.source = MATCH_ANY_SOURCE, .tag = 7}, one = {.source = 1, .tag = 7},
                       later = {.source = MATCH_ANY_SOURCE, .tag = 7};
    match_init(&m);
    match_add_posted(&m, &any);
    match_add_posted(&m, &one);
    match_add_posted(&m, &later);
    assert_null(match_take_posted(&m, 1, 8));
    assert_ptr_equal(match_take_posted(&m, 1, 7), &any);
    assert_ptr_equal(match_take_posted(&m, 1, 7), &one);
    assert_ptr_equal(match_take_posted(&m, 2, 7), &later);
    assert_null(match_take_posted(&m, 1, 7));
    match_fini(&m, NULL, NULL, NULL);
}

static void any_tag_takes_messages_in_order_of_arrival(void **state)
{
    (void)state;
    struct match m;
    struct match_entry engine = {.source = 1, .tag = MATCH_ENGINE_TAG},
                       first = {.source = 1, .tag = 7}, other = {.source = 2, .tag = 7},
                       second = {.source = 1, .tag = 8}, last = {.source = 1, .tag = 7};
    match_init(&m);
    match_add_unexpected(&m, &engine);
    match_add_unexpected(&m, &first);
    match_add_unexpected(&m, &other);
    match_add_unexpected(&m, &second);
    assert_ptr_equal(match_find_unexpected(&m, 1, MATCH_ANY_TAG), &first);
    match_add_unexpected(&m, &last);
    assert_ptr_equal(match_take_unexpected(&m, 1, MATCH_ANY_TAG), &first);
    assert_ptr_equal(match_take_unexpected(&m, 1, MATCH_ANY_TAG), &second);
    assert_ptr_equal(match_take_unexpected(&m, MATCH_ANY_SOURCE, MATCH_ANY_TAG), &other);
    assert_ptr_equal(match_take_unexpected(&m, 1, 7), &last);
    assert_null(match_take_unexpected(&m, MATCH_ANY_SOURCE, MATCH_ANY_TAG));
    assert_ptr_equal(match_take_unexpected(&m, 1, MATCH_ENGINE_TAG), &engine);
    match_fini(&m, NULL, NULL, NULL);
}

static void a_withdrawn_receive_gives_its_turn_to_the_next(void **state)
{
    (void)state;
    for (int n = 1; n <= 3; n++) {
        struct match m;
        struct match_entry r[3] = {{.source = 1, .tag = 7},
                                   {.source = MATCH_ANY_SOURCE, .tag = MATCH_ANY_TAG},
                                   {.source = 1, .tag = 7}};
        match_init(&m);
        for (int i = 0; i < n; i++)
            match_add_posted(&m, &r[i]);
        match_withdraw_posted(&m, &r[0]);
        assert_ptr_equal(match_take_posted(&m, 1, 7), n > 1 ? &r[1] : NULL);
        assert_ptr_equal(match_take_posted(&m, 1, 7), n > 2 ? &r[2] : NULL);
        assert_int_equal(m.nposted, 0);
        match_fini(&m, NULL, NULL, NULL);
    }
}

/* ---- many ---- */

enum { MANY = 200000 };

/* Quadratic work would take minutes: the limit is the test's. */
static void many_entries_cost_linear_time(void **state)
{
    (void)state;
    struct match m;
    struct match_entry *e = calloc(MANY, sizeof *e);
    match_init(&m);
    for (uint32_t round = 0; round < 4; round++) {
        bool one_key = round & 1, unexpected = round & 2;
        for (uint32_t i = 0; i < MANY; i++) {
            e[i].source = one_key ? 0 : i % 100;
            e[i].tag = one_key ? 0 : i / 100;
            if (unexpected)
                match_add_unexpected(&m, &e[i]);
            else
                match_add_posted(&m, &e[i]);
        }
        for (uint32_t i = 0; i < MANY; i++) { /* one key: in order; else the last first */
            struct match_entry *want = one_key ? &e[i] : &e[MANY - 1 - i];
            struct match_entry *got = unexpected
                                          ? match_take_unexpected(&m, want->source, want->tag)
                                          : match_take_posted(&m, want->source, want->tag);
            assert_ptr_equal(got, want);
        }
        assert_int_equal(m.nposted + m.nunexpected, 0);
    }
    match_fini(&m, NULL, NULL, NULL);
    free(e);
}

/* ---- the end ---- */

static unsigned dropped;

static void drop_and_free(struct match_entry *entry, void *ctx)
{
    (void)ctx;
    dropped++;
    free(entry);
}

static void the_end_drops_every_entry_once(void **state)
{
    (void)state;
    struct match m;
    match_init(&m);
    for (uint32_t i = 0; i < 1000; i++) {
        struct match_entry *e = calloc(1, sizeof *e);
        e->source = i % 7 == 0 && i % 2 ? MATCH_ANY_SOURCE : i % 7;
        e->tag = i % 30 == 3 ? MATCH_ANY_TAG : i % 30;
        if (i % 2)
            match_add_posted(&m, e);
        else
            match_add_unexpected(&m, e);
    }
    dropped = 0;
    match_fini(&m, drop_and_free, drop_and_free, NULL);
    assert_int_equal(dropped, 1000);
}

/* ---- lent to backends ---- */

static unsigned closed;

static void count_closed(void *item)
{
    *(unsigned *)item += 1;
    closed++;
}

static void lent_ops_match_items(void **state)
{
    (void)state;
    const struct collrun_match_ops *ops = &match_ops;
    unsigned items[100] = {0};
    void *got = &got;
    struct collrun_match *m = ops->open();
    assert_non_null(m);
    assert_int_equal(ops->post(m, COLLRUN_ANY_SOURCE, 3, &items[0], &got), COLLRUN_OK);
    assert_null(got);
    assert_int_equal(ops->arrive(m, 5, 3, &items[1], &got), COLLRUN_OK);
    assert_ptr_equal(got, &items[0]);
    assert_int_equal(ops->arrive(m, 5, 3, &items[2], &got), COLLRUN_OK);
    assert_null(got);
    assert_int_equal(ops->post(m, 5, 3, &items[3], &got), COLLRUN_OK);
    assert_ptr_equal(got, &items[2]);
    for (uint32_t i = 10; i < 100; i++) {
        if (i % 2)
            ops->post(m, i, i, &items[i], &got);
        else
            ops->arrive(m, i, i, &items[i], &got);
        assert_null(got);
    }
    closed = 0;
    ops->close(m, count_closed);
    assert_int_equal(closed, 90);
    for (uint32_t i = 10; i < 100; i++)
        assert_int_equal(items[i], 1);
}

static void lent_ops_probe_and_withdraw(void **state)
{
    (void)state;
    const struct collrun_match_ops *ops = &match_ops;
    unsigned items[4] = {0};
    void *got;
    struct collrun_match *m = ops->open();
    assert_non_null(m);
    for (int i = 0; i < 3; i++)
        assert_int_equal(ops->post(m, 1, COLLRUN_ANY_TAG, &items[i], &got), COLLRUN_OK);
    assert_int_equal(ops->withdraw(m, 1, 5, &items[1]), COLLRUN_ERR_NOT_FOUND);
    assert_int_equal(ops->withdraw(m, 1, COLLRUN_ANY_TAG, &items[1]), COLLRUN_OK);
    assert_int_equal(ops->withdraw(m, 1, COLLRUN_ANY_TAG, &items[1]), COLLRUN_ERR_NOT_FOUND);
    assert_int_equal(ops->arrive(m, 1, 5, &items[3], &got), COLLRUN_OK);
    assert_ptr_equal(got, &items[0]);
    assert_int_equal(ops->arrive(m, 1, 6, &items[3], &got), COLLRUN_OK);
    assert_ptr_equal(got, &items[2]);
    assert_null(ops->probe(m, COLLRUN_ANY_SOURCE, COLLRUN_ANY_TAG));
    assert_int_equal(ops->arrive(m, 1, 6, &items[3], &got), COLLRUN_OK);
    assert_null(ops->probe(m, 1, 5));
    assert_int_equal(ops->arrive(m, 1, COLLRUN_ANY_TAG, &items[0], &got), COLLRUN_ERR_BACKEND);
    assert_ptr_equal(ops->probe(m, COLLRUN_ANY_SOURCE, 6), &items[3]);
    assert_ptr_equal(ops->probe(m, 1, COLLRUN_ANY_TAG), &items[3]);
    ops->close(m, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_programs_agree_with_the_oracle),
        cmocka_unit_test(a_receive_of_any_source_keeps_its_turn),
        cmocka_unit_test(any_tag_takes_messages_in_order_of_arrival),
        cmocka_unit_test(a_withdrawn_receive_gives_its_turn_to_the_next),
        cmocka_unit_test(many_entries_cost_linear_time),
        cmocka_unit_test(the_end_drops_every_entry_once),
        cmocka_unit_test(lent_ops_match_items),
        cmocka_unit_test(lent_ops_probe_and_withdraw),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
