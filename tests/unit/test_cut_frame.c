/* SPDX-License-Identifier: Apache-2.0
 *
 * Cuts on their way from an agent to the runner: what was put is read, field by field, and bytes
 * that are no cut are refused wherever they end or are changed.
 */
#include "base/cut_frame.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 5 };

static const uint32_t even[] = {0, 2, 4}, odd[] = {3, 0, 1}, two[] = {4, 1};

static struct record_cut_op ops[] = {{.state = RECORD_WITHDRAWN,
                                      .kind = COLLRUN_SEND,
                                      .flags = RECORD_SYNC,
                                      .dtype = 3,
                                      .op = 2,
                                      .thread = 513,
                                      .group = 1,
                                      .peer = RECORD_ANY_RANK,
                                      .tag = RECORD_ANY_TAG,
                                      .number = UINT64_MAX,
                                      .count = 1ull << 40,
                                      .site = 0x401234},
                                     {.state = RECORD_OPEN,
                                      .kind = COLLRUN_ALLTOALLV,
                                      .group = RECORD_CUT_NO_GROUP,
                                      .peer = 3,
                                      .needs = two,
                                      .nneeds = 2}};
static struct record_cut_thread threads[] = {{.role = RECORD_CUT_BLOCKED,
                                              .mode = RECORD_ANY,
                                              .number = 7,
                                              .tid = 4711,
                                              .word = 4 * 99 + RECORD_INSIDE,
                                              .calls = true,
                                              .cut = true,
                                              .nops = 2,
                                              .ops = ops,
                                              .since_ns = 5,
                                              .timeout_ns = 6,
                                              .site = 7},
                                             {.role = RECORD_CUT_ASLEEP, .tid = 4712}};
static struct record_cut_group groups[] = {
    {.id = 9, .name = "", .called = 12, .nmembers = 3, .members = even},
    {.id = 1ull << 63,
     .name = "a name of sixty-two bytes: as many as those of groups may have",
     .closed = true,
     .nmembers = 2,
     .nremote = 1,
     .members = odd}};
static struct record_cut_channel channels[] = {{.group = 1,
                                                .peer = 4,
                                                .tag = RECORD_ANY_TAG - 1,
                                                .folded = true,
                                                .sent = 1ull << 33,
                                                .taken = 1ull << 34}};

static struct record_cut full(void)
{
    return (struct record_cut){.state = RECORD_CUT_STILL,
                               .rank = 4,
                               .epoch = 2,
                               .tap = RECORD_TAP_MPI,
                               .lost = RECORD_LOST_REQUESTS,
                               .forgotten = 3,
                               .takes = 1ull << 50,
                               .threads = threads,
                               .groups = groups,
                               .channels = channels,
                               .receives = ops,
                               .nthreads = 2,
                               .ngroups = 2,
                               .nchannels = 1,
                               .nreceives = 2};
}

static void same_op(const struct record_cut_op *a, const struct record_cut_op *b)
{
    assert_int_equal(a->state, b->state);
    assert_int_equal(a->kind, b->kind);
    assert_int_equal(a->flags, b->flags);
    assert_int_equal(a->dtype, b->dtype);
    assert_int_equal(a->op, b->op);
    assert_int_equal(a->thread, b->thread);
    assert_int_equal(a->group, b->group);
    assert_int_equal(a->peer, b->peer);
    assert_int_equal(a->tag, b->tag);
    assert_true(a->number == b->number);
    assert_true(a->count == b->count);
    assert_true(a->site == b->site);
    assert_int_equal(a->nneeds, b->nneeds);
    for (uint32_t i = 0; i < a->nneeds; i++)
        assert_int_equal(a->needs[i], b->needs[i]);
}

static void same_thread(const struct record_cut_thread *a, const struct record_cut_thread *b)
{
    assert_int_equal(a->role, b->role);
    assert_int_equal(a->mode, b->mode);
    assert_int_equal(a->number, b->number);
    assert_int_equal(a->tid, b->tid);
    assert_int_equal(a->word, b->word);
    assert_int_equal(a->calls, b->calls);
    assert_int_equal(a->cut, b->cut);
    assert_true(a->since_ns == b->since_ns);
    assert_true(a->timeout_ns == b->timeout_ns);
    assert_true(a->site == b->site);
    assert_int_equal(a->nops, b->nops);
    for (uint32_t i = 0; i < a->nops; i++)
        same_op(&a->ops[i], &b->ops[i]);
}

static void same_group(const struct record_cut_group *a, const struct record_cut_group *b)
{
    assert_true(a->id == b->id);
    assert_string_equal(a->name, b->name);
    assert_int_equal(a->closed, b->closed);
    assert_true(a->called == b->called);
    assert_int_equal(a->nmembers, b->nmembers);
    assert_int_equal(a->nremote, b->nremote);
    for (uint32_t i = 0; i < a->nmembers + a->nremote; i++)
        assert_int_equal(a->members[i], b->members[i]);
}

static void same_cut(const struct record_cut *a, const struct record_cut *b)
{
    assert_int_equal(a->state, b->state);
    assert_int_equal(a->rank, b->rank);
    assert_int_equal(a->epoch, b->epoch);
    assert_int_equal(a->tap, b->tap);
    assert_int_equal(a->lost, b->lost);
    assert_true(a->forgotten == b->forgotten);
    assert_true(a->takes == b->takes);
    assert_int_equal(a->nthreads, b->nthreads);
    assert_int_equal(a->ngroups, b->ngroups);
    assert_int_equal(a->nchannels, b->nchannels);
    assert_int_equal(a->nreceives, b->nreceives);
    for (uint32_t i = 0; i < a->nthreads; i++)
        same_thread(&a->threads[i], &b->threads[i]);
    for (uint32_t i = 0; i < a->ngroups; i++)
        same_group(&a->groups[i], &b->groups[i]);
    for (uint32_t i = 0; i < a->nreceives; i++)
        same_op(&a->receives[i], &b->receives[i]);
    for (uint32_t i = 0; i < a->nchannels; i++) {
        assert_int_equal(a->channels[i].group, b->channels[i].group);
        assert_int_equal(a->channels[i].peer, b->channels[i].peer);
        assert_int_equal(a->channels[i].tag, b->channels[i].tag);
        assert_int_equal(a->channels[i].folded, b->channels[i].folded);
        assert_true(a->channels[i].sent == b->channels[i].sent);
        assert_true(a->channels[i].taken == b->channels[i].taken);
    }
}

/* False: the bytes are no cut of a job of so many ranks. */
static bool reads(const struct buf *b, size_t len, uint32_t nranks)
{
    struct arena arena;
    struct record_cut cut;
    struct reader r;
    arena_init(&arena);
    reader_init(&r, b->data, len);
    cut_frame_read_cut(&r, nranks, &arena, &cut);
    const bool good = reader_done(&r);
    arena_fini(&arena);
    return good;
}

static void what_was_put_is_read(void **state)
{
    const struct record_cut in = full(),
                            moving = {.rank = 2, .nthreads = 1, .threads = &threads[1]};
    const struct cut_frame head = {.now_ns = 1ull << 40, .look = 8, .n = 2};
    struct record_cut out;
    struct arena arena;
    struct reader r;
    struct buf b;
    (void)state;
    arena_init(&arena);
    buf_init(&b);
    cut_frame_put(&b, &head);
    cut_frame_put_cut(&b, &in);
    cut_frame_put_cut(&b, &moving);
    reader_init(&r, b.data, b.len);
    const struct cut_frame read = cut_frame_read(&r);
    assert_true(read.now_ns == head.now_ns && read.look == head.look && read.n == head.n);
    cut_frame_read_cut(&r, RANKS, &arena, &out);
    same_cut(&in, &out);
    cut_frame_read_cut(&r, RANKS, &arena, &out);
    same_cut(&moving, &out);
    assert_true(reader_done(&r));
    buf_fini(&b);
    arena_fini(&arena);
}

static void the_smallest_of_each_is_read(void **state)
{
    static const uint32_t self[] = {0};
    struct record_cut_op op = {.group = RECORD_CUT_NO_GROUP};
    struct record_cut_thread thread = {.tid = 1};
    struct record_cut_group group = {.id = 1, .nmembers = 0, .members = self};
    struct record_cut_channel channel = {.peer = 1};
    struct record_cut cuts[] = {
        {.nthreads = 1, .threads = &thread},
        {.ngroups = 1, .groups = &group},
        {.ngroups = 1, .groups = &group, .nchannels = 1, .channels = &channel},
        {.nreceives = 1, .receives = &op}};
    (void)state;
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
        struct buf b;
        buf_init(&b);
        cut_frame_put_cut(&b, &cuts[i]);
        assert_true(reads(&b, b.len, 1));
        buf_fini(&b);
    }
}

static void other_bytes_are_refused(void **state)
{
    const struct record_cut in = full();
    struct buf b;
    (void)state;
    buf_init(&b);
    cut_frame_put_cut(&b, &in);
    assert_true(reads(&b, b.len, RANKS));
    for (size_t len = 0; len < b.len; len++)
        assert_false(reads(&b, len, RANKS));
    assert_false(reads(&b, b.len, RANKS - 1)); /* a member is not in the job */
    for (size_t i = 0; i < b.len; i++)         /* the sanitizers judge */
        for (int bit = 0; bit < 8; bit++) {
            b.data[i] ^= (unsigned char)(1 << bit);
            reads(&b, b.len, RANKS);
            b.data[i] ^= (unsigned char)(1 << bit);
        }
    buf_fini(&b);
}

static void numbers_are_in_range(void **state)
{
    struct record_cut in = full();
    struct buf b;
    (void)state;
    buf_init(&b);
    channels[0].group = 2; /* there are two groups */
    cut_frame_put_cut(&b, &in);
    assert_false(reads(&b, b.len, RANKS));
    channels[0].group = 1;
    buf_clear(&b);
    ops[0].group = 2;
    cut_frame_put_cut(&b, &in);
    assert_false(reads(&b, b.len, RANKS));
    ops[0].group = 1;
    buf_clear(&b);
    in.rank = RANKS;
    cut_frame_put_cut(&b, &in);
    assert_false(reads(&b, b.len, RANKS));
    buf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_put_is_read),
        cmocka_unit_test(the_smallest_of_each_is_read),
        cmocka_unit_test(other_bytes_are_refused),
        cmocka_unit_test(numbers_are_in_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
