/* SPDX-License-Identifier: Apache-2.0
 *
 * Long messages of the Gloo backend, and what may hold them up: receivers that make no progress,
 * peers that stop, end or fail in the middle, and a network that is slow at the worst place.
 */
#include "gloo_messages.h"
#include "progress/p2p.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { LONG = EAGER_BYTES + 1000, END_BYTES = 3 };
/* What the network of a rank does: it does not carry the end of a long message, or anything; or it
 * changes the length, or the credit, in packets of SPOILED_BYTES. */
enum held { NOTHING, END, ALL, LENGTH, CREDIT };
enum { SPOILED_BYTES = 100, SPOILED_PACKET = 168, LENGTH_AT = 48, CREDIT_AT = 16 };

/* What the ranks of a test tell each other; zero at its start. */
struct board {
    _Atomic int step, stopped; /* stopped: the process that is about to stop itself */
    _Atomic enum held holds_back;
    uint64_t ns[2];
};

static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static struct harness_options limited(uint32_t nranks)
{
    struct harness_options options = options_for(nranks);
    options.limit_s = 40;
    return options;
}

/* Until another rank wakes it. */
static void stand_still(struct board *board)
{
    atomic_store(&board->stopped, getpid());
    kill(getpid(), SIGSTOP);
}

static bool is_stopped(const struct board *board)
{
    char path[64], state = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)atomic_load(&board->stopped));
    FILE *f = fopen(path, "re");
    const bool read = f && fscanf(f, "%*d (%*[^)]) %c", &state) == 1;
    if (f)
        fclose(f);
    return read && state == 'T';
}

/* The Gloo of `to` then knows of all receives that `from` has posted, so that its packets leave at
 * once. */
static int meet(struct harness_rank *r, uint32_t from, uint32_t to)
{
    char byte = 0;
    if (r->rank == from)
        return send_to(r, &byte, 1, to, 99);
    return r->rank == to ? recv_from(r, &byte, 1, from, 99) : COLLRUN_OK;
}

static void wake(const struct board *board)
{
    kill(atomic_load(&board->stopped), SIGCONT);
}

/* How a rank makes progress: it waits, is woken before it waits, or polls. */
enum progress { BY_WAITING, WOKEN, BY_POLLING, MANNERS };

/* Progress until the batch is over. */
static int finish(struct harness_rank *r, struct p2p_batch *batch, enum progress progress)
{
    int rc;
    while ((rc = p2p_check(r->group->p2p, batch)) == COLLRUN_AGAIN) {
        if (progress == WOKEN)
            p2p_wake(r->group->p2p);
        const int moved = p2p_wait(r->group->p2p, progress == BY_POLLING ? 0 : 10 * MS);
        if (moved < 0)
            return moved;
    }
    return rc;
}

static int start(struct harness_rank *r, struct collrun_call *call, uint64_t timeout_ms,
                 struct p2p_batch *batch)
{
    call->timeout_ns = timeout_ms * MS;
    return p2p_start(r->group->p2p, call, 1, batch);
}

/* ---- sends beside receives ---- */

/* Rank 1 has the long message, and does not call again. The sender also waits for an answer. */
static int silent_receiver(struct harness_rank *r)
{
    const enum progress progress = *(const enum progress *)r->arg;
    struct board *board = r->scratch;
    static char data[LONG], answer;
    fill(data, LONG, r->rank);
    if (r->rank == 1) {
        for (unsigned i = 0; i < 2; i++)
            HARNESS_CHECK(r, recv_from(r, data, LONG, 0, 0) == COLLRUN_OK);
        HARNESS_UNTIL(r, atomic_load(&board->step));
        HARNESS_CHECK(r, send_to(r, &answer, 1, 0, 1) == COLLRUN_OK);
    } else {
        struct collrun_call in = harness_message(COLLRUN_RECV, &answer, 1, 1, 1);
        struct collrun_call out = harness_message(COLLRUN_SEND, data, LONG, 1, 0);
        struct p2p_batch batches[2];
        HARNESS_CHECK(r, send_to(r, data, LONG, 1, 0) == COLLRUN_OK);
        HARNESS_CHECK(r, start(r, &in, 20000, &batches[0]) == COLLRUN_OK);
        HARNESS_CHECK(r, start(r, &out, 5000, &batches[1]) == COLLRUN_OK);
        const int status = finish(r, &batches[1], progress);
        atomic_store(&board->step, 1);
        HARNESS_CHECK(r, status == COLLRUN_OK);
        HARNESS_CHECK(r, finish(r, &batches[0], progress) == COLLRUN_OK);
    }
    harness_sync(r);
    return 0;
}

static void a_send_ends_without_its_receiver(void **state)
{
    (void)state;
    for (unsigned i = 0; i < MANNERS; i++) {
        enum progress arg = (enum progress)i;
        struct harness_options options = limited(2);
        options.arg = &arg;
        assert_int_equal(harness_run(&options, silent_receiver), 0);
    }
}

/* Rank 1 stops before the data of its message leaves. Meanwhile what rank 0 sends to rank 2 ends.
 */
static int stopped_sender(struct harness_rank *r)
{
    const enum progress progress = *(const enum progress *)r->arg;
    struct board *board = r->scratch;
    static char data[LONG], in[LONG];
    HARNESS_CHECK(r, meet(r, 0, 1) == COLLRUN_OK);
    fill(data, LONG, r->rank);
    struct collrun_call from = harness_message(COLLRUN_RECV, in, LONG, 1, 0);
    struct collrun_call to = harness_message(COLLRUN_SEND, data, LONG, r->rank == 1 ? 0 : 2, 0);
    struct p2p_batch batches[2];
    if (r->rank == 1) {
        HARNESS_CHECK(r, start(r, &to, 20000, &batches[0]) == COLLRUN_OK);
        stand_still(board);
        HARNESS_CHECK(r, finish(r, &batches[0], progress) == COLLRUN_OK);
    } else if (r->rank == 2) {
        for (unsigned i = 0; i < 2; i++)
            HARNESS_CHECK(r, recv_from(r, in, LONG, 0, 0) == COLLRUN_OK);
    } else {
        HARNESS_CHECK(r, send_to(r, data, LONG, 2, 0) == COLLRUN_OK);
        HARNESS_UNTIL(r, is_stopped(board));
        HARNESS_CHECK(r, start(r, &from, 20000, &batches[0]) == COLLRUN_OK);
        while (memcmp(in + LONG - 8, (char[8]){0}, 8) == 0) /* until Gloo has the memory */
            HARNESS_CHECK(r, p2p_progress(r->group->p2p) >= 0);
        HARNESS_CHECK(r, start(r, &to, 5000, &batches[1]) == COLLRUN_OK);
        const int status = finish(r, &batches[1], progress);
        wake(board);
        HARNESS_CHECK(r, status == COLLRUN_OK);
        HARNESS_CHECK(r, finish(r, &batches[0], progress) == COLLRUN_OK && holds(in, LONG, 1));
    }
    harness_sync(r);
    return 0;
}

static void a_send_ends_before_an_earlier_receive(void **state)
{
    (void)state;
    for (unsigned i = 0; i < MANNERS; i++) {
        enum progress arg = (enum progress)i;
        struct harness_options options = limited(3);
        options.arg = &arg;
        assert_int_equal(harness_run(&options, stopped_sender), 0);
    }
}

/* Rank 1 does not receive the long message yet. Meanwhile small ones flow to rank 2, as fast as
 * without it. */
static int flow_beside(struct harness_rank *r)
{
    enum { N = 10000 };
    struct board *board = r->scratch;
    static char data[LONG], byte;
    struct p2p_batch batch;
    struct collrun_call first = harness_message(COLLRUN_SEND, data, LONG, 1, 0);
    for (unsigned turn = 0; turn < 2; turn++) {
        if (r->rank == 0 && turn == 1)
            HARNESS_CHECK(r, start(r, &first, 20000, &batch) == COLLRUN_OK);
        harness_sync(r);
        const uint64_t begin = harness_now_ns();
        for (unsigned i = 0; i < N && r->rank == 0; i++)
            HARNESS_CHECK(r, send_to(r, &byte, 1, 2, 0) == COLLRUN_OK);
        for (unsigned i = 0; i < N && r->rank == 2; i++)
            HARNESS_CHECK(r, recv_from(r, &byte, 1, 0, 0) == COLLRUN_OK);
        if (r->rank == 0)
            board->ns[turn] = harness_now_ns() - begin;
        harness_sync(r);
    }
    if (r->rank == 0)
        HARNESS_CHECK(r, finish(r, &batch, false) == COLLRUN_OK);
    if (r->rank == 1)
        HARNESS_CHECK(r, recv_from(r, data, LONG, 0, 0) == COLLRUN_OK);
    harness_sync(r);
    return 0;
}

static void small_messages_flow_beside_a_long_one(void **state)
{
    (void)state;
    struct harness_options options = limited(3);
    assert_int_equal(harness_run(&options, flow_beside), 0);
    const struct board *board = harness_scratch();
    print_message("# %.1f ms, beside a long message %.1f ms\n", (double)board->ns[0] / 1e6,
                  (double)board->ns[1] / 1e6);
    assert_true(board->ns[1] < 4 * board->ns[0] + 200 * MS);
}

/* ---- data at the end of the memory ---- */

struct imitation {
    char *sent;   /* the sender's data, which the receiver can reach */
    size_t bytes; /* of the mark, from its end, that are the data */
    enum progress progress;
    bool leaves; /* the sender, before the receiver looks */
};

/* Until the data arrives, the end of the memory is a mark. Here the data is just that, or the last
 * byte is. */
static int imitate(struct harness_rank *r)
{
    const struct imitation *test = r->arg;
    struct board *board = r->scratch;
    static char in[LONG];
    char *data = r->rank == 0 ? test->sent : in;
    struct p2p_batch batch;
    HARNESS_CHECK(r, meet(r, 1, 0) == COLLRUN_OK);
    struct collrun_call call =
        harness_message(r->rank == 0 ? COLLRUN_SEND : COLLRUN_RECV, data, LONG, 1 - r->rank, 0);
    HARNESS_CHECK(r, start(r, &call, 5000, &batch) == COLLRUN_OK);
    if (r->rank == 0) {
        stand_still(board);
    } else {
        HARNESS_UNTIL(r, is_stopped(board));
        while (memcmp(data + LONG - 8, (char[8]){0}, 8) == 0) /* until Gloo has the memory */
            HARNESS_CHECK(r, p2p_progress(r->group->p2p) >= 0);
        memcpy(test->sent + LONG - test->bytes, data + LONG - test->bytes, test->bytes);
        test->sent[0] = 1;
        wake(board);
        HARNESS_UNTIL(r, !test->leaves || harness_is_gone(r, 0));
    }
    HARNESS_CHECK(r, finish(r, &batch, test->progress) == COLLRUN_OK);
    HARNESS_CHECK(r, r->rank == 0 || memcmp(test->sent, data, LONG) == 0);
    if (!test->leaves)
        harness_sync(r);
    return 0;
}

static void run_imitations(size_t bytes, bool leaves)
{
    char *sent = mmap(NULL, LONG, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(sent != MAP_FAILED);
    for (unsigned i = 0; i < MANNERS; i++) {
        struct imitation test = {sent, bytes, (enum progress)i, leaves};
        struct harness_options options = limited(2);
        options.arg = &test;
        assert_int_equal(harness_run(&options, imitate), 0);
    }
    munmap(sent, LONG);
}

static void data_that_looks_like_the_mark_arrives(void **state)
{
    (void)state;
    run_imitations(8, false);
}

static void data_that_looks_like_the_mark_arrives_from_a_rank_that_has_left(void **state)
{
    (void)state;
    run_imitations(1, true);
    run_imitations(8, true);
}

static const struct board *network; /* of this process; NULL: nothing is held back */

/* Gloo's. */
__attribute__((visibility("default"))) ssize_t writev(int fd, const struct iovec *iov, int n)
{
    const enum held held = network && n <= 2 ? atomic_load(&network->holds_back) : NOTHING;
    struct iovec most[2] = {iov[0], iov[n - 1]};
    size_t len = 0;
    for (int i = 0; i < n; i++)
        len += iov[i].iov_len;
    if (held >= LENGTH && n == 2 && iov[1].iov_len == SPOILED_PACKET) {
        static char packet[SPOILED_PACKET];
        memcpy(packet, iov[1].iov_base, sizeof packet);
        packet[(held == LENGTH ? LENGTH_AT : CREDIT_AT) + 1] ^= 1;
        most[1].iov_base = packet;
        return syscall(SYS_writev, fd, most, n);
    }
    errno = EAGAIN;
    if (held == ALL || (held == END && len == END_BYTES))
        return -1;
    if (held == END && len > EAGER_BYTES + 200) {
        most[n - 1].iov_len -= END_BYTES;
        return syscall(SYS_writev, fd, most, n);
    }
    return syscall(SYS_writev, fd, iov, n);
}

/* Part of the mark is overwritten when the network stops: the receive ends by its time-out, or by
 * an abort. */
static int half_a_mark(struct harness_rank *r)
{
    const bool is_abort = *(const bool *)r->arg;
    struct board *board = r->scratch;
    static char data[LONG];
    fill(data, LONG, r->rank);
    network = r->rank == 0 ? board : NULL;
    if (r->rank == 0)
        atomic_store(&board->holds_back, END);
    harness_sync(r);
    const uint64_t begin = harness_now_ns();
    struct collrun_call call =
        harness_message(r->rank == 0 ? COLLRUN_SEND : COLLRUN_RECV, data, LONG, 1 - r->rank, 0);
    call.timeout_ns = (r->rank == 0 || is_abort ? 60000ull : 300ull) * MS;
    if (r->rank == 1 && is_abort)
        harness_abort_after(r, 200);
    if (r->rank == 1) {
        const int status = harness_exec(r->group, &call, 1);
        HARNESS_CHECK(r, harness_now_ns() - begin < HARNESS_AT_ONCE_NS);
        HARNESS_CHECK(r, status == (is_abort ? COLLRUN_ERR_ABORTED : COLLRUN_ERR_TIMEOUT));
        atomic_store(&board->holds_back, NOTHING);
    } else {
        struct p2p_batch batch;
        HARNESS_CHECK(r, p2p_start(r->group->p2p, &call, 1, &batch) == COLLRUN_OK);
        HARNESS_UNTIL(r, atomic_load(&board->holds_back) == NOTHING);
    }
    harness_sync(r);
    return 0;
}

static void a_network_that_stops_inside_the_mark_holds_up_nobody(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        bool is_abort = i == 1;
        struct harness_options options = limited(2);
        options.arg = &is_abort;
        assert_int_equal(harness_run(&options, half_a_mark), 0);
    }
}

static int spoiled(struct harness_rank *r)
{
    struct board *board = r->scratch;
    char data[SPOILED_BYTES + 1] = {0};
    network = r->rank == 0 ? board : NULL;
    atomic_store(&board->holds_back, *(const enum held *)r->arg);
    harness_sync(r);
    if (r->rank == 0) {
        HARNESS_CHECK(r, send_to(r, data, SPOILED_BYTES, 1, 0) == COLLRUN_OK);
    } else {
        HARNESS_CHECK(r, recv_from(r, data, SPOILED_BYTES, 0, 0) == COLLRUN_ERR_BACKEND);
        HARNESS_CHECK(r, strstr(harness_error(), "malformed packet from rank 0 (world rank 0)"));
    }
    harness_sync(r);
    return 0;
}

static void a_packet_of_another_length_or_credit_is_refused(void **state)
{
    (void)state;
    for (enum held held = LENGTH; held <= CREDIT; held++) {
        struct harness_options options = limited(2);
        options.arg = &held;
        assert_int_equal(harness_run(&options, spoiled), 0);
    }
}

/* ---- peers that end ---- */

/* Rank 1 dies after it has announced its message. The next receive, which is shorter, has nothing
 * to do with it. */
static int announced_and_dead(struct harness_rank *r)
{
    struct board *board = r->scratch;
    static char data[LONG], byte;
    HARNESS_CHECK(r, meet(r, 0, 1) == COLLRUN_OK);
    struct p2p_batch batch;
    if (r->rank == 1) {
        struct collrun_call call = harness_message(COLLRUN_SEND, data, LONG, 0, 0);
        HARNESS_CHECK(r, start(r, &call, 10000, &batch) == COLLRUN_OK);
        harness_sync(r);
        HARNESS_UNTIL(r, atomic_load(&board->step));
        harness_kill(r, 1);
    }
    harness_sync(r);
    harness_lag_us(200000); /* until Gloo has the announcement */
    atomic_store(&board->step, 1);
    HARNESS_UNTIL(r, harness_is_gone(r, 1));
    harness_lag_us(200000); /* until Gloo knows that the connection is lost */
    struct collrun_call calls[2] = {harness_message(COLLRUN_RECV, data, LONG, 1, 0),
                                    harness_message(COLLRUN_RECV, &byte, 1, 1, 0)};
    calls[0].timeout_ns = calls[1].timeout_ns = 10000ull * MS;
    const uint64_t begin = harness_now_ns();
    HARNESS_CHECK(r, p2p_start(r->group->p2p, calls, 2, &batch) == COLLRUN_OK);
    HARNESS_CHECK(r, finish(r, &batch, *(const enum progress *)r->arg) == COLLRUN_ERR_PEER_FAILED);
    HARNESS_CHECK(r, strstr(harness_error(), "rank 1 (world rank 1) closed its connection"));
    HARNESS_CHECK(r, harness_now_ns() - begin < HARNESS_AT_ONCE_NS);
    return 0;
}

static void the_death_of_a_sender_is_no_mismatch(void **state)
{
    (void)state;
    const bool may_die[2] = {false, true};
    for (unsigned i = 0; i < MANNERS; i++) {
        enum progress progress = (enum progress)i;
        struct harness_options options = limited(2);
        options.may_die = may_die;
        options.arg = &progress;
        assert_int_equal(harness_run(&options, announced_and_dead), 0);
    }
}

/* Rank 1 fails alone after it has announced its message, and closes its connections. Rank 0 waits
 * until its own time-out, without using the CPU. */
static int announced_and_failed(struct harness_rank *r)
{
    static char data[LONG];
    struct collrun_call call =
        harness_message(r->rank == 0 ? COLLRUN_RECV : COLLRUN_SEND, data, LONG, 1 - r->rank, 0);
    call.timeout_ns = (r->rank == 0 ? 3000ull : 60000ull) * MS;
    if (r->rank == 1) {
        harness_abort_after(r, 100);
        HARNESS_CHECK(r, harness_exec(r->group, &call, 1) == COLLRUN_ERR_ABORTED);
        harness_lag_us(100000); /* the connections are closed a second later */
        harness_sync(r);
    } else {
        harness_sync(r);
        const uint64_t cpu = cpu_ns();
        HARNESS_CHECK(r, harness_exec(r->group, &call, 1) == COLLRUN_ERR_TIMEOUT);
        HARNESS_CHECK(r, strstr(harness_error(), "waited 3.0 s for rank 1"));
        HARNESS_CHECK(r, cpu_ns() - cpu < 600 * MS);
    }
    harness_sync(r);
    return 0;
}

static void a_wait_for_a_failed_sender_burns_no_core(void **state)
{
    (void)state;
    struct harness_options options = limited(2);
    assert_int_equal(harness_run(&options, announced_and_failed), 0);
}

/* Rank 0 has waited in vain now and then. It sends while the network stands still, and ends: what
 * it has sent leaves first. */
static int end_after_waits(struct harness_rank *r)
{
    enum { WAITS = 40, N = 16 };
    const uint32_t both[2] = {0, 1};
    struct board *board = r->scratch;
    struct harness_group *g = NULL;
    static char data[1000];
    HARNESS_CHECK(r, harness_group_open(r, "end", both, 2, &g) == COLLRUN_OK);
    for (unsigned i = 0; i < 2 * WAITS; i++) {
        const bool sends = i % 2 == r->rank;
        if (r->rank == 1 && sends)
            harness_lag_us(15000); /* longer than a wait of rank 0 */
        const struct collrun_call call =
            harness_message(sends ? COLLRUN_SEND : COLLRUN_RECV, data, 1, 1 - r->rank, 0);
        HARNESS_CHECK(r, harness_exec(g, &call, 1) == COLLRUN_OK);
    }
    network = r->rank == 0 ? board : NULL;
    if (r->rank == 0)
        atomic_store(&board->holds_back, ALL);
    harness_sync(r);
    for (unsigned i = 0; i < N; i++) {
        const struct collrun_call call = harness_message(r->rank == 0 ? COLLRUN_SEND : COLLRUN_RECV,
                                                         data, sizeof data, 1 - r->rank, 1);
        if (r->rank == 1 && i == 0) {
            harness_lag_us(300000); /* rank 0 ends meanwhile */
            atomic_store(&board->holds_back, NOTHING);
        }
        fill(data, sizeof data, r->rank == 0 ? i : 99);
        HARNESS_CHECK(r, harness_exec(g, &call, 1) == COLLRUN_OK);
        HARNESS_CHECK(r, holds(data, sizeof data, i));
    }
    harness_group_close(g);
    return 0;
}

static void a_slow_network_loses_nothing_of_a_rank_that_ends(void **state)
{
    (void)state;
    struct harness_options options = limited(2);
    options.no_group = true;
    assert_int_equal(harness_run(&options, end_after_waits), 0);
}

/* Rank 1 does not run while rank 0 sends all that it may, and ends. Half of it is still in rank
 * 0's kernel when rank 1 runs again, and answers. */
static int flood_and_end(struct harness_rank *r)
{
    enum { N = 16 };
    const uint32_t both[2] = {0, 1};
    struct board *board = r->scratch;
    struct harness_group *g = NULL;
    static char data[EAGER_BYTES];
    if (r->rank == 2) {
        HARNESS_UNTIL(r, is_stopped(board) && atomic_load(&board->step));
        harness_lag_us(200000);
        wake(board);
        return 0;
    }
    HARNESS_CHECK(r, harness_group_open(r, "flood", both, 2, &g) == COLLRUN_OK);
    if (r->rank == 1)
        stand_still(board);
    else
        HARNESS_UNTIL(r, is_stopped(board));
    for (unsigned i = 0; i < N; i++) {
        const struct collrun_call call = harness_message(r->rank == 0 ? COLLRUN_SEND : COLLRUN_RECV,
                                                         data, sizeof data, 1 - r->rank, 0);
        fill(data, sizeof data, r->rank == 0 ? i : 99);
        HARNESS_CHECK(r, harness_exec(g, &call, 1) == COLLRUN_OK);
        HARNESS_CHECK(r, holds(data, sizeof data, i));
    }
    atomic_store(&board->step, 1);
    harness_group_close(g);
    return 0;
}

static void a_peer_that_stands_still_loses_nothing_of_a_rank_that_ends(void **state)
{
    (void)state;
    struct harness_options options = limited(3);
    options.no_group = true;
    assert_int_equal(harness_run(&options, flood_and_end), 0);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_send_ends_without_its_receiver),
        cmocka_unit_test(a_send_ends_before_an_earlier_receive),
        cmocka_unit_test(small_messages_flow_beside_a_long_one),
        cmocka_unit_test(data_that_looks_like_the_mark_arrives),
        cmocka_unit_test(data_that_looks_like_the_mark_arrives_from_a_rank_that_has_left),
        cmocka_unit_test(a_network_that_stops_inside_the_mark_holds_up_nobody),
        cmocka_unit_test(a_packet_of_another_length_or_credit_is_refused),
        cmocka_unit_test(the_death_of_a_sender_is_no_mismatch),
        cmocka_unit_test(a_wait_for_a_failed_sender_burns_no_core),
        cmocka_unit_test(a_slow_network_loses_nothing_of_a_rank_that_ends),
        cmocka_unit_test(a_peer_that_stands_still_loses_nothing_of_a_rank_that_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
