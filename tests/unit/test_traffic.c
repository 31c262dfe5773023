/* SPDX-License-Identifier: Apache-2.0
 *
 * Counts of messages by member and tag, held against a plain list: through growth, with tags of all
 * sizes, and what is said when there are too many.
 */
#include "traffic.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { COUNTS = 200000 };

struct expected {
    uint32_t member, tag;
    uint64_t sent, received;
};

static struct collrun_call message(enum collrun_kind kind, uint32_t member, uint32_t tag)
{
    struct collrun_call call = COLLRUN_CALL(kind);
    call.peer = (int)member;
    call.tag = tag;
    return call;
}

/* Spread out, the extremes among them. */
static struct expected pair_of(uint32_t i)
{
    static const uint32_t tags[] = {0, 1, UINT32_MAX, 0x80000000u, 64, 4096};
    if (i < 36)
        return (struct expected){.member = i / 6, .tag = tags[i % 6]};
    return (struct expected){.member = i % 7, .tag = i * 2654435761u};
}

static const struct traffic_entry *entry_of(struct traffic *t, uint32_t member, uint32_t tag)
{
    struct traffic_table *table = t->table;
    const struct traffic_entry *found = NULL;
    for (uint32_t i = 0; i < table->size; i++) {
        const struct traffic_entry *e = &table->entries[i];
        if (!e->key || traffic_member(e) != member || traffic_tag(e) != tag)
            continue;
        assert_null(found);
        found = e;
    }
    return found;
}

static void count_and_compare(uint32_t npairs)
{
    struct traffic t = {0};
    static struct expected pairs[TRAFFIC_MOST];
    uint32_t seed = npairs;
    for (uint32_t i = 0; i < npairs; i++)
        pairs[i] = pair_of(i);
    for (uint32_t n = 0; n < COUNTS; n++) {
        seed = seed * 1664525u + 1013904223u;
        struct expected *p = &pairs[(seed >> 8) % npairs];
        int who = (int)p->member;
        struct collrun_call call = message(seed >> 30 == 0   ? COLLRUN_RECV_ANY
                                           : seed >> 30 == 1 ? COLLRUN_RECV
                                                             : COLLRUN_SEND,
                                           p->member, p->tag);
        if (call.kind == COLLRUN_RECV_ANY)
            call.peer = -1;
        call.source = &who;
        traffic_count(&t, &call);
        *(call.kind == COLLRUN_SEND ? &p->sent : &p->received) += 1;
    }
    assert_false(t.lost);
    for (uint32_t i = 0; i < npairs; i++) {
        const struct traffic_entry *e = entry_of(&t, pairs[i].member, pairs[i].tag);
        assert_int_equal(e ? e->sent : 0, pairs[i].sent);
        assert_int_equal(e ? e->received : 0, pairs[i].received);
    }
    traffic_fini(&t);
}

static void test_counts(void **state)
{
    (void)state;
    count_and_compare(1);
    count_and_compare(36);
    count_and_compare(TRAFFIC_FEW / 4 * 3);
    count_and_compare(TRAFFIC_FEW);
    count_and_compare(TRAFFIC_MOST / 4 * 3);
}

static void test_too_many(void **state)
{
    (void)state;
    struct traffic t = {0};
    for (uint32_t tag = 0; tag < TRAFFIC_MOST / 4 * 3; tag++) {
        struct collrun_call call = message(COLLRUN_SEND, 1, tag);
        traffic_count(&t, &call);
        assert_false(t.lost);
    }
    struct collrun_call again = message(COLLRUN_SEND, 1, 7), new = message(COLLRUN_SEND, 1, 70000);
    traffic_count(&t, &again);
    assert_false(t.lost);
    traffic_count(&t, &new);
    assert_true(t.lost);
    traffic_count(&t, &again);
    traffic_fini(&t);
}

static void test_sender_unknown(void **state)
{
    (void)state;
    struct traffic t = {0};
    struct collrun_call call = message(COLLRUN_RECV_ANY, 0, 0);
    traffic_count(&t, &call);
    assert_true(t.lost);
    traffic_fini(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_too_many),
        cmocka_unit_test(test_sender_unknown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
