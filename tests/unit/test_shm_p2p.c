/* SPDX-License-Identifier: Apache-2.0
 *
 * The shm backend's point to point, through the harness: the suite of all backends, then what is
 * shm's: sizes around every border of the protocol, thousands of calls at once, heap memory on
 * either side, its credit, and handles that fail together.
 */
#include "p2p_suite.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

static struct harness_options shm_options(uint32_t nranks)
{
    return (struct harness_options){
        .path = harness_backend_path("shm"), .nranks = nranks, .limit_s = 180};
}

static unsigned char byte_of(uint32_t from, uint32_t to, uint32_t tag, size_t i)
{
    return (unsigned char)(from * 31 + to * 17 + tag * 7 + i % 251 + i / 251);
}

static void fill_from(unsigned char *buf, size_t len, uint32_t from, uint32_t to, uint32_t tag)
{
    for (size_t i = 0; i < len; i++)
        buf[i] = byte_of(from, to, tag, i);
}

static bool is_filled(const unsigned char *buf, size_t len, uint32_t from, uint32_t to,
                      uint32_t tag)
{
    for (size_t i = 0; i < len; i++)
        if (buf[i] != byte_of(from, to, tag, i))
            return false;
    return true;
}

static unsigned char *memory(struct harness_rank *r, bool heap, size_t len)
{
    void *p = NULL;
    if (!heap)
        return malloc(len + 1);
    return r->backend->alloc(r->group->handle, len + 1, &p) == COLLRUN_OK ? p : NULL;
}

static void release(struct harness_rank *r, bool heap, void *p)
{
    if (heap)
        r->backend->free(r->group->handle, p);
    else
        free(p);
}

/* ---- messages ---- */

/* Every rank sends to the next rank and receives from the one before, in one call array; two ranks
 * send to each other, and one to itself. Buffers of either side in and out of the heap. */
static int ring(struct harness_rank *r, size_t len, bool send_heap, bool recv_heap)
{
    const uint32_t next = (r->rank + 1) % r->nranks;
    const uint32_t before = (r->rank + r->nranks - 1) % r->nranks;
    unsigned char *out = memory(r, send_heap, len);
    unsigned char *in = memory(r, recv_heap, len);
    HARNESS_CHECK(r, out && in);
    fill_from(out, len, r->rank, next, 0);
    memset(in, 0, len);
    in[len] = 0x5a;
    const struct collrun_call calls[2] = {harness_message(COLLRUN_SEND, out, len, next, 0),
                                          harness_message(COLLRUN_RECV, in, len, before, 0)};
    HARNESS_CHECK(r, harness_exec(r->group, calls, 2) == COLLRUN_OK);
    HARNESS_CHECK(r, is_filled(in, len, before, r->rank, 0));
    HARNESS_CHECK(r, is_filled(out, len, r->rank, next, 0));
    HARNESS_CHECK(r, in[len] == 0x5a);
    release(r, send_heap, out);
    release(r, recv_heap, in);
    return 0;
}

static int all_sizes(struct harness_rank *r)
{
    static const size_t sizes[] = {0,     1,      40,     41,     1000,   32767,   32768,  32769,
                                   65536, 100000, 262144, 262145, 300000, 1 << 20, 5 << 20};
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++)
        for (int heaps = 0; heaps < 4; heaps++)
            if (ring(r, sizes[s], heaps & 1, heaps & 2) != 0)
                return 1;
    return 0;
}

static void every_size_head_to_head(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 4; n++) {
        struct harness_options options = shm_options(n);
        assert_int_equal(harness_run(&options, all_sizes), 0);
        options.ncpus = 64;
        assert_int_equal(harness_run(&options, all_sizes), 0);
        options.threads = true;
        assert_int_equal(harness_run(&options, all_sizes), 0);
    }
}

/* Blocking calls one by one: send, then receive; one of three in the way of all other receives,
 * which must not see a message whose sender is still writing. */
static int ping_pong(struct harness_rank *r)
{
    unsigned char buf[300000];
    for (uint32_t turn = 0; turn < 2000; turn++) {
        const size_t len = turn * (turn % 4 == 3 ? 977 : 7) % sizeof(buf);
        struct collrun_call call = harness_message(COLLRUN_SEND, buf, len, 1 - r->rank, turn);
        if (r->rank != turn % 2)
            call = harness_message(turn % 3 == 0 ? COLLRUN_RECV_ANY : COLLRUN_RECV, buf, len,
                                   1 - r->rank, turn);
        else
            fill_from(buf, len, r->rank, 1 - r->rank, turn);
        int source;
        call.source = &source;
        HARNESS_CHECK(r, harness_exec(r->group, &call, 1) == COLLRUN_OK);
        HARNESS_CHECK(r, is_filled(buf, len, turn % 2, 1 - turn % 2, turn));
    }
    return 0;
}

static void blocking_calls(void **state)
{
    (void)state;
    struct harness_options options = shm_options(2);
    assert_int_equal(harness_run(&options, ping_pong), 0);
    options.ncpus = 1;
    assert_int_equal(harness_run(&options, ping_pong), 0);
}

/* Every rank sends to every rank: 100 messages per pair, of all sizes, in one call array. */
static int all_pairs(struct harness_rank *r)
{
    enum { PER_PAIR = 100 };
    const uint32_t ncalls = 2 * PER_PAIR * r->nranks;
    struct collrun_call *calls = calloc(ncalls, sizeof(*calls));
    unsigned char **bufs = calloc(ncalls, sizeof(*bufs));
    HARNESS_CHECK(r, calls && bufs);
    uint32_t n = 0;
    for (uint32_t k = 0; k < PER_PAIR; k++)
        for (uint32_t peer = 0; peer < r->nranks; peer++)
            for (int sends = 0; sends < 2; sends++, n++) {
                const size_t len = k % 10 == 9 ? 50000 : k * 5;
                bufs[n] = malloc(len + 1);
                if (sends)
                    fill_from(bufs[n], len, r->rank, peer, k);
                calls[n] =
                    harness_message(sends ? COLLRUN_SEND : COLLRUN_RECV, bufs[n], len, peer, k % 4);
            }
    HARNESS_CHECK(r, harness_exec(r->group, calls, ncalls) == COLLRUN_OK);
    for (uint32_t i = 0; i < ncalls; i++) {
        const uint32_t k = i / (2 * r->nranks);
        const uint32_t peer = i / 2 % r->nranks;
        if (i % 2 == 0)
            HARNESS_CHECK(r, is_filled(bufs[i], calls[i].count, peer, r->rank, k));
        free(bufs[i]);
    }
    free(bufs);
    free(calls);
    return 0;
}

static void thousands_at_once(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 5; n += 2) {
        struct harness_options options = shm_options(n);
        assert_int_equal(harness_run(&options, all_pairs), 0);
        options.threads = true;
        assert_int_equal(harness_run(&options, all_pairs), 0);
    }
}

/* Point to point between collectives, with slow ranks: neither disturbs the other's memory. */
static int mixed(struct harness_rank *r)
{
    for (uint32_t turn = 0; turn < 60; turn++) {
        if (turn % 7 == r->rank)
            harness_lag_us(200);
        if (ring(r, turn * 997 % 70000, false, false) != 0)
            return 1;
        float in = (float)r->rank;
        float out = -1;
        struct collrun_call call = COLLRUN_CALL(COLLRUN_ALLREDUCE);
        call.send = &in;
        call.recv = &out;
        call.count = 1;
        call.dtype = COLLRUN_FLOAT32;
        HARNESS_CHECK(r, harness_exec(r->group, &call, 1) == COLLRUN_OK);
        HARNESS_CHECK(r, out == (float)(r->nranks * (r->nranks - 1) / 2));
    }
    return 0;
}

static void collectives_between(void **state)
{
    (void)state;
    const struct harness_options options = shm_options(5);
    assert_int_equal(harness_run_each(&options, 2, mixed), 0);
}

/* ---- failures ---- */

struct disagreement {
    size_t sent, expected;
    enum collrun_dtype expected_type;
};

/* The sender of a short message has returned before the receiver finds the mismatch; its next call
 * fails. */
static int sizes_differ(struct harness_rank *r)
{
    const struct disagreement *d = r->arg;
    unsigned char *buf = calloc(1, d->sent + d->expected);
    char sender[80];
    char receiver[80];
    snprintf(sender, sizeof(sender), "rank 0 calls send(%zu x uint8, to 1, tag 9)", d->sent);
    snprintf(receiver, sizeof(receiver), "rank 1 calls recv(%zu x %s, from 0, tag 9)", d->expected,
             d->expected_type == COLLRUN_INT8 ? "int8" : "uint8");
    struct collrun_call call = harness_message(COLLRUN_SEND, buf, d->sent, 1, 9);
    if (r->rank == 1) {
        call = harness_message(COLLRUN_RECV, buf, d->expected, 0, 9);
        call.dtype = d->expected_type;
    }
    int status = COLLRUN_ERR_MISMATCH;
    if (r->rank < 2)
        status = harness_exec(r->group, &call, 1);
    if (r->rank == 0 && status == COLLRUN_OK && d->sent <= 262144) {
        call = harness_message(COLLRUN_RECV, buf, 1, 1, 9);
        status = harness_exec(r->group, &call, 1);
    }
    free(buf);
    HARNESS_CHECK(r, status == COLLRUN_ERR_MISMATCH);
    HARNESS_CHECK(r, r->rank == 2 ||
                         (strstr(harness_error(), sender) && strstr(harness_error(), receiver)));
    return 0;
}

static void disagreement_is_explained_to_both(void **state)
{
    (void)state;
    static struct disagreement all[] = {
        {10, 12, COLLRUN_UINT8},    {10, 10, COLLRUN_INT8},          {1000, 1200, COLLRUN_UINT8},
        {1000, 1000, COLLRUN_INT8}, {400000, 420000, COLLRUN_UINT8}, {400000, 400000, COLLRUN_INT8},
    };
    struct harness_options options = shm_options(3);
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        options.arg = &all[i];
        assert_int_equal(harness_run(&options, sizes_differ), 0);
    }
}

/* A group's handles fail together: a collective, begun or not, fails with the mismatch of two other
 * ranks' messages; and a message fails after a collective. */
static int handles_share_failure(struct harness_rank *r)
{
    const bool in_message = *(const bool *)r->arg;
    const uint32_t all[3] = {0, 1, 2};
    unsigned char buf[16] = {0};
    struct harness_group *messages = NULL;
    HARNESS_CHECK(r, harness_group_open_beside(r->group, "world/messages", all, &messages) ==
                         COLLRUN_OK);
    struct collrun_call wrong = harness_message(r->rank ? COLLRUN_RECV : COLLRUN_SEND, buf,
                                                r->rank ? 12 : 10, r->rank ? 0 : 1, 9);
    struct collrun_call other = COLLRUN_CALL(COLLRUN_BARRIER);
    if (!in_message) {
        wrong = (struct collrun_call)COLLRUN_CALL(r->rank ? COLLRUN_BROADCAST : COLLRUN_BARRIER);
        wrong.recv = buf;
        other = harness_message(COLLRUN_RECV, buf, 1, (r->rank + 1) % 3, 9);
    }
    if (r->rank < 2 || !in_message)
        (void)harness_exec(in_message ? messages : r->group, &wrong, 1);
    const int status = harness_exec(in_message ? r->group : messages, &other, 1);
    HARNESS_CHECK(r, status == COLLRUN_ERR_MISMATCH);
    HARNESS_CHECK(
        r, strstr(harness_error(), in_message ? "rank 0 calls send" : "rank 0 calls barrier"));
    harness_group_close(messages);
    return 0;
}

static void handles_fail_together(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        bool in_message = i == 0;
        struct harness_options options = shm_options(3);
        options.arg = &in_message;
        assert_int_equal(harness_run(&options, handles_share_failure), 0);
    }
}

/* Messages that their sender does not wait for: far more than there is room for, taken in another
 * order of tags by a receiver that comes late, and when the sender has left the group. */
static int sender_goes(struct harness_rank *r)
{
    enum { EACH = 12, TAGS = 3 };
    const uint32_t both[2] = {0, 1};
    struct harness_group *group = NULL;
    static const size_t lens[] = {0, 8, 40, 1000, 32768, 100000};
    HARNESS_CHECK(r, harness_group_open(r, "goes", both, 2, &group) == COLLRUN_OK);
    for (size_t i = 0; i < EACH * TAGS && r->rank == 0; i++) {
        unsigned char buf[100000];
        const size_t len = lens[i / TAGS % 6];
        const struct collrun_call call =
            harness_message(COLLRUN_SEND, buf, len, 1, (uint32_t)(i % TAGS));
        if (i == 24) /* the receiver makes room */
            harness_sync(r);
        fill_from(buf, len, 0, 1, (uint32_t)i);
        HARNESS_CHECK(r, harness_exec(group, &call, 1) == COLLRUN_OK);
    }
    if (r->rank == 0) {
        harness_group_close(group);
        harness_sync(r);
        return 0;
    }
    harness_sync(r);
    for (uint32_t tag = TAGS; tag-- > 0;)
        for (size_t k = 0; k < EACH; k++) {
            unsigned char buf[100000];
            const size_t len = lens[k % 6];
            const struct collrun_call call = harness_message(COLLRUN_RECV, buf, len, 0, tag);
            if (tag == 0 && k == 0)
                harness_sync(r);
            HARNESS_CHECK(r, harness_exec(group, &call, 1) == COLLRUN_OK);
            HARNESS_CHECK(r, is_filled(buf, len, 0, 1, (uint32_t)k * TAGS + tag));
        }
    harness_group_close(group);
    return 0;
}

static void short_messages_outlive_their_sender(void **state)
{
    (void)state;
    struct harness_options options = shm_options(2);
    options.no_group = true;
    assert_int_equal(harness_run(&options, sender_goes), 0);
    options.threads = true;
    assert_int_equal(harness_run(&options, sender_goes), 0);
}

/* Blocking sends while blocks run out: three messages of eight blocks and up to seven of one leave
 * without their receiver; of the next two, all, the first block, or none can leave early. */
static int blocks_run_out(struct harness_rank *r)
{
    enum { LONG = 262144, BLOCK = 32768, MOST = 12 };
    static const uint32_t both[2] = {0, 1};
    static unsigned char bufs[2][LONG];
    unsigned char *buf = bufs[r->rank];
    for (uint32_t few = 0; few < 8; few++) {
        const uint32_t n = 3 + few + 2;
        struct harness_group *group = NULL;
        char name[8];
        snprintf(name, sizeof(name), "few%u", few);
        HARNESS_CHECK(r, harness_group_open(r, name, both, 2, &group) == COLLRUN_OK);
        for (uint32_t i = 0; i < n; i++) {
            const size_t len = i < 3 || i == n - 1 ? LONG : i == n - 2 ? 100000 : BLOCK;
            const struct collrun_call call = harness_message(
                r->rank == 0 ? COLLRUN_SEND : COLLRUN_RECV, buf, len, 1 - r->rank, i);
            if (i == (r->rank == 0 ? n - 2 : 0))
                harness_sync(r);
            if (r->rank == 0)
                fill_from(buf, len, 0, 1, few * MOST + i);
            HARNESS_CHECK(r, harness_exec(group, &call, 1) == COLLRUN_OK);
            HARNESS_CHECK(r, r->rank == 0 || is_filled(buf, len, 0, 1, few * MOST + i));
        }
        harness_group_close(group);
    }
    return 0;
}

static void blocking_sends_with_few_blocks(void **state)
{
    (void)state;
    struct harness_options options = shm_options(2);
    options.no_group = true;
    assert_int_equal(harness_run(&options, blocks_run_out), 0);
    options.threads = true;
    assert_int_equal(harness_run(&options, blocks_run_out), 0);
}

static int aborted(struct harness_rank *r)
{
    unsigned char buf[100];
    const struct collrun_call call = harness_message(COLLRUN_RECV, buf, 100, 1 - r->rank, 0);
    harness_abort_after(r, 30);
    HARNESS_CHECK(r, harness_exec(r->group, &call, 1) == COLLRUN_ERR_ABORTED);
    return 0;
}

static void abort_unblocks_both(void **state)
{
    (void)state;
    struct harness_options options = shm_options(2);
    assert_int_equal(harness_run(&options, aborted), 0);
    options.threads = true;
    assert_int_equal(harness_run(&options, aborted), 0);
}

/* Pages that the shared segments of this process take, in bytes. */
static size_t shared_bytes(void)
{
    size_t sum = 0;
    for (int fd = 3; fd < 64; fd++) {
        struct stat st;
        if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
            sum += (size_t)st.st_blocks * 512;
    }
    return sum;
}

/* Sends `len` bytes; by how much the segments have grown, to *grown. */
static int send_through(struct harness_group *g, unsigned char *buf, size_t len, size_t *grown)
{
    struct harness_rank *r = g->owner;
    const struct collrun_call call =
        harness_message(r->rank == 0 ? COLLRUN_SEND : COLLRUN_RECV, buf, len, 1 - r->rank, 0);
    fill_from(buf, len, r->rank, 1, 0);
    harness_sync(r);
    const size_t before = shared_bytes();
    harness_sync(r);
    HARNESS_CHECK(r, harness_exec(g, &call, 1) == COLLRUN_OK);
    harness_sync(r);
    *grown = shared_bytes() - before;
    HARNESS_CHECK(r, is_filled(buf, len, 0, 1, 0));
    return 0;
}

/* What one handle has allocated, the other one moves without a copy: nothing of the message ever
 * lies in the segments but in that memory itself. */
static int share_heap(struct harness_rank *r)
{
    const uint32_t both[2] = {0, 1};
    const size_t len = 8u << 20;
    struct harness_group *messages;
    HARNESS_CHECK(r,
                  harness_group_open_beside(r->group, "messages", both, &messages) == COLLRUN_OK);
    unsigned char *heap = memory(r, true, len), *plain = memory(r, false, len);
    size_t by_heap, by_copy;
    HARNESS_CHECK(r, heap && plain);
    int result = send_through(messages, heap, len, &by_heap);
    if (result == 0)
        result = send_through(messages, plain, len / 16, &by_copy);
    r->backend->free(r->group->handle, heap);
    free(plain);
    harness_group_close(messages);
    HARNESS_CHECK(r, result == 0 && by_heap < (128u << 10) && by_copy > (256u << 10));
    return 0;
}

static void both_handles_share_the_heap(void **state)
{
    (void)state;
    const struct harness_options options = shm_options(2);
    assert_int_equal(harness_run(&options, share_heap), 0);
}

/* With an argument: only the tests whose names match that pattern. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_size_head_to_head),
        cmocka_unit_test(blocking_calls),
        cmocka_unit_test(thousands_at_once),
        cmocka_unit_test(collectives_between),
        cmocka_unit_test(disagreement_is_explained_to_both),
        cmocka_unit_test(handles_fail_together),
        cmocka_unit_test(short_messages_outlive_their_sender),
        cmocka_unit_test(blocking_sends_with_few_blocks),
        cmocka_unit_test(abort_unblocks_both),
        cmocka_unit_test(both_handles_share_the_heap),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    static const struct p2p_suite suite = {.backend = "shm", .placement = P2P_ONE_HOST};
    return cmocka_run_group_tests(tests, NULL, NULL) +
           p2p_suites_run(&suite, 1, argc > 1 ? argv[1] : NULL);
}
