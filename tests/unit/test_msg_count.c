/* SPDX-License-Identifier: Apache-2.0
 *
 * Counts of messages by member and tag, compared with a plain list: growth, tags of all sizes, and
 * the loss of the counts when there are too many.
 */
#include "progress/msg_count.h"

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
    static const uint32_t tags[] = {0, 1, UINT32_MAX - 1, 0x80000000u, 64, 4096};
    if (i < 36)
        return (struct expected){.member = i / 6, .tag = tags[i % 6]};
    return (struct expected){.member = i % 7, .tag = i * 2654435761u};
}

static const struct msg_count_entry *entry_of(struct msg_count *t, uint32_t member, uint32_t tag)
{
    struct msg_count_table *table = t->table;
    const struct msg_count_entry *found = NULL;
    for (uint32_t i = 0; i < table->size; i++) {
        const struct msg_count_entry *e = &table->entries[i];
        if (!e->key || msg_count_member(e) != member || msg_count_tag(e) != tag)
            continue;
        assert_null(found);
        found = e;
    }
    return found;
}

static void count_and_compare(uint32_t npairs)
{
    struct msg_count t = {NULL, NULL, false};
    static struct expected pairs[MSG_COUNT_MOST];
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
        msg_count_add_call(&t, &call);
        *(call.kind == COLLRUN_SEND ? &p->sent : &p->received) += 1;
    }
    assert_false(t.lost);
    for (uint32_t i = 0; i < npairs; i++) {
        const struct msg_count_entry *e = entry_of(&t, pairs[i].member, pairs[i].tag);
        assert_int_equal(e ? e->sent : 0, pairs[i].sent);
        assert_int_equal(e ? e->received : 0, pairs[i].received);
    }
    msg_count_fini(&t);
}

static void counts_are_exact_up_to_the_limit(void **state)
{
    (void)state;
    count_and_compare(1);
    count_and_compare(36);
    count_and_compare(MSG_COUNT_FEW / 4 * 3);
    count_and_compare(MSG_COUNT_FEW);
    count_and_compare(MSG_COUNT_MOST / 4 * 3);
}

static void counts_are_lost_beyond_the_limit(void **state)
{
    (void)state;
    struct msg_count t = {NULL, NULL, false};
    for (uint32_t tag = 0; tag < MSG_COUNT_MOST / 4 * 3; tag++) {
        struct collrun_call call = message(COLLRUN_SEND, 1, tag);
        msg_count_add_call(&t, &call);
        assert_false(t.lost);
    }
    struct collrun_call again = message(COLLRUN_SEND, 1, 7), new = message(COLLRUN_SEND, 1, 70000);
    msg_count_add_call(&t, &again);
    assert_false(t.lost);
    msg_count_add_call(&t, &new);
    assert_true(t.lost);
    msg_count_add_call(&t, &again);
    msg_count_fini(&t);
}

static void receives_of_any_that_do_not_tell_lose_the_counts(void **state)
{
    (void)state;
    struct msg_count t = {NULL, NULL, false};
    uint32_t tag = 9;
    struct collrun_call calls[2] = {message(COLLRUN_RECV_ANY, 0, 0),
                                    message(COLLRUN_RECV, 3, COLLRUN_ANY_TAG)};
    for (int i = 0; i < 2; i++) {
        msg_count_add_call(&t, &calls[i]);
        assert_true(t.lost);
        msg_count_fini(&t);
    }
    calls[1].received_tag = &tag;
    msg_count_add_call(&t, &calls[1]);
    assert_false(t.lost);
    assert_int_equal(entry_of(&t, 3, 9)->received, 1);
    msg_count_fini(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_are_exact_up_to_the_limit),
        cmocka_unit_test(counts_are_lost_beyond_the_limit),
        cmocka_unit_test(receives_of_any_that_do_not_tell_lose_the_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
