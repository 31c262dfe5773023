/* SPDX-License-Identifier: Apache-2.0
 *
 * Which cuts an agent sends, and when. The process of this test is also the rank: its only thread
 * is in a call of the record while the agent looks.
 */
#include "agent/agent.h"
#include "base/cut_frame.h"
#include "base/record_writer.h"
#include "base/wire_fields.h"

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

enum { RANK = 3, RANKS = 5, PEER = 1, FRAMES = 16 };

static struct agent *agent;
static struct rank_proc *rank;
static struct record_writer *w;
static struct record_queue group;
static struct record_thread *thread;
static int runner; /* its end of the stream */
static struct arena arena;

/* What has arrived since the last call of `look`. */
static struct {
    struct cut_frame frames[FRAMES];
    struct record_cut cuts[FRAMES];
    uint32_t nframes, ncuts;
} got;

static const uint32_t world[] = {0, 1, 2, 3, 4};

static int setup(void **state)
{
    int fds[2];
    struct diag d;
    (void)state;
    arena_init(&arena);
    agent = calloc(1, sizeof *agent);
    rank = calloc(1, sizeof *rank);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    runner = fds[1];
    fcntl(runner, F_SETFL, O_NONBLOCK);
    agent->loop = loop_new();
    agent->ranks = rank;
    agent->nranks = agent->nrunning = 1;
    agent->desc.nranks = RANKS;
    assert_int_equal(conn_open(&agent->runner, agent->loop, fds[0], fds[0], &d), COLLRUN_OK);
    const int fd = record_make(RANK, 16);
    rank->agent = agent;
    rank->rank = RANK;
    rank->pid = getpid();
    rank->record = record_map(fd);
    rank->record_len = record_len(rank->record);
    task_survey_init(&rank->survey, rank->record, fd);
    close(fd);
    record_queue_thread = 0; /* that of the last record */
    cut_sender_start(&agent->cuts, agent);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    cut_sender_stop(&agent->cuts);
    record_writer_close(w);
    w = NULL;
    conn_close(&agent->runner);
    close(runner);
    loop_free(agent->loop);
    record_unmap(rank->record, rank->record_len);
    free(rank);
    free(agent);
    arena_fini(&arena);
    return 0;
}

/* A library begins to write the calls. */
static void open_writer(void)
{
    w = record_writer_open(rank->record, RECORD_TAP_MPI, RECORD_LEVEL_MULTIPLE);
    assert_non_null(w);
    record_queue_open(
        &group, rank->record,
        &(struct record_queue_info){
            .name = "world", .scope = "world", .members = RANKS, .id = 9, .world = world});
}

static void enter(void)
{
    const struct record_at at = {0};
    const struct record_part part = {
        .group = group.group, .peer = PEER, .count = 1, .kind = COLLRUN_RECV};
    thread = record_enter(w);
    record_begin(w, thread, &part);
    record_inside(thread, RECORD_ALL, &at);
}

static void leave(void)
{
    record_leave(thread);
    record_outside(thread);
}

static void receive(void)
{
    static unsigned char bytes[1 << 20];
    struct wire_frame f;
    struct diag d;
    struct buf in;
    buf_init(&in);
    memset(&got, 0, sizeof got);
    for (ssize_t n; (n = read(runner, bytes, sizeof bytes)) > 0;)
        buf_put(&in, bytes, (size_t)n);
    while (wire_next(&in, &f, &d) > 0) {
        struct reader r;
        assert_int_equal(f.type, WIRE_SNAPSHOT);
        assert_int_equal(f.rank, WIRE_HOST);
        reader_init(&r, f.payload, f.len);
        got.frames[got.nframes] = cut_frame_read(&r);
        for (uint32_t i = 0; i < got.frames[got.nframes].n; i++)
            cut_frame_read_cut(&r, RANKS, &arena, &got.cuts[got.ncuts++]);
        assert_true(reader_done(&r));
        got.nframes++;
        wire_next_done(&in, &f);
    }
    buf_fini(&in);
}

/* The next look, with all retries due. */
static void look(void)
{
    agent->cuts.ranks[0].due_ns = 0;
    agent->cuts.timer.fired(&agent->cuts.timer);
    receive();
}

static void asks(uint64_t number)
{
    struct buf b;
    buf_init(&b);
    wire_put_look(&b, &(struct wire_look){number});
    const struct wire_frame f = {.type = WIRE_LOOK, .payload = b.data, .len = b.len};
    cut_sender_on_look(&agent->cuts, &f);
    buf_fini(&b);
    receive();
}

static uint32_t word_of(const struct record_cut *cut)
{
    assert_int_equal(cut->nthreads, 1);
    assert_int_equal(cut->threads[0].tid, syscall(SYS_gettid));
    return cut->threads[0].word;
}

static uint32_t word(void)
{
    return atomic_load(&thread->word);
}

static void still(void) /* the rank is in a call, and the runner knows it */
{
    open_writer();
    enter();
    look();
    assert_int_equal(got.nframes, 0); /* it may be moving */
    look();
    assert_int_equal(got.ncuts, 1);
}

/* ---- a rank ---- */

static void a_rank_without_a_writer_sends_nothing(void **state)
{
    (void)state;
    look();
    look();
    assert_int_equal(got.nframes, 0);
}

static void a_rank_that_stands_still_is_sent_once(void **state)
{
    (void)state;
    still();
    const struct record_cut *cut = &got.cuts[0];
    assert_int_equal(cut->state, RECORD_CUT_STILL);
    assert_int_equal(cut->rank, RANK);
    assert_int_equal(cut->tap, RECORD_TAP_MPI);
    assert_int_equal(word_of(cut), word());
    assert_int_equal(cut->threads[0].role, RECORD_CUT_BLOCKED);
    assert_int_equal(cut->threads[0].ops[0].kind, COLLRUN_RECV);
    assert_int_equal(cut->groups[0].nmembers, RANKS);
    for (int i = 0; i < 3; i++) {
        look();
        assert_int_equal(got.nframes, 0);
    }
    assert_int_equal(agent->cuts.ranks[0].state, CUT_SENDER_SETTLED);
}

static void a_rank_that_goes_on_is_sent_once(void **state)
{
    (void)state;
    still();
    leave();
    look();
    assert_int_equal(got.ncuts, 1);
    assert_int_equal(got.cuts[0].state, RECORD_CUT_MOVING);
    assert_int_equal(word_of(&got.cuts[0]), word());
    enter();
    look();
    leave();
    look();
    assert_int_equal(got.nframes, 0);
    enter();
    look();
    look();
    assert_int_equal(got.cuts[0].state, RECORD_CUT_STILL);
    assert_int_equal(word_of(&got.cuts[0]), word());
}

static void *computes(void *arg)
{
    _Atomic bool *ends = arg;
    while (!atomic_load(ends))
        ;
    return NULL;
}

static void a_rank_with_a_thread_that_acts_is_looked_at_again(void **state)
{
    static _Atomic bool ends;
    pthread_t helper;
    (void)state;
    atomic_store(&ends, false);
    pthread_create(&helper, NULL, computes, &ends);
    still();
    assert_int_equal(got.cuts[0].nthreads, 2);
    const struct cut_sender_rank *r = &agent->cuts.ranks[0];
    assert_int_equal(r->state, CUT_SENDER_STILL);
    assert_int_equal(r->pause_ms, 200);
    const unsigned pauses[] = {400, 800, 1000, 1000};
    for (int i = 0; i < 4; i++) {
        look(); /* the same cut is not sent again */
        assert_int_equal(got.nframes, 0);
        assert_int_equal(r->pause_ms, pauses[i]);
    }
    const uint64_t before = r->due_ns;
    agent->cuts.timer.fired(&agent->cuts.timer); /* it is not due */
    assert_true(r->due_ns == before);
    atomic_store(&ends, true);
    pthread_join(helper, NULL);
    look();
    assert_int_equal(got.cuts[0].nthreads, 1);
    assert_int_equal(r->state, CUT_SENDER_SETTLED);
}

static void outside_of_calls_nothing_is_sent(void **state)
{
    (void)state;
    open_writer();
    enter();
    leave();
    for (int i = 0; i < 4; i++) {
        look();
        assert_int_equal(got.nframes, 0);
    }
    assert_int_equal(agent->cuts.ranks[0].state, CUT_SENDER_STILL);
}

static void members_that_do_not_exist_are_not_sent(void **state)
{
    (void)state;
    agent->desc.nranks = RANKS - 1;
    open_writer();
    enter();
    look();
    look();
    assert_int_equal(got.nframes, 0);
}

/* ---- LOOK ---- */

static void a_look_is_answered_at_once(void **state)
{
    (void)state;
    asks(7);
    assert_int_equal(got.nframes, 1);
    assert_true(got.frames[0].look == 7 && got.frames[0].n == 0);
    still();
    asks(8);
    assert_true(got.nframes == 1 && got.frames[0].look == 8 && got.frames[0].n == 0);
    leave();
    asks(9);
    assert_true(got.nframes == 1 && got.frames[0].look == 9 && got.frames[0].n == 1);
    assert_int_equal(got.cuts[0].state, RECORD_CUT_MOVING);
    assert_int_equal(word_of(&got.cuts[0]), word());
    asks(10);
    assert_int_equal(got.ncuts, 0);
}

/* ---- the end ---- */

static void ends(bool well, bool writer_runs)
{
    if (!writer_runs)
        atomic_store(&rank->record->pid, 0);
    cut_sender_end_rank(&agent->cuts, rank, well);
    receive();
}

static void a_rank_that_ends_well_is_sent_as_ended(void **state)
{
    (void)state;
    still();
    ends(true, false);
    assert_int_equal(got.ncuts, 1);
    assert_int_equal(got.cuts[0].state, RECORD_CUT_ENDED);
    assert_int_equal(got.cuts[0].ngroups, 1);
    leave();
    look();
    assert_int_equal(got.nframes, 0);
}

static void after_another_end_nothing_is_known(void **state)
{
    (void)state;
    still();
    ends(false, false);
    assert_int_equal(got.cuts[0].state, RECORD_CUT_MOVING);
}

static void a_child_that_writes_goes_on(void **state)
{
    (void)state;
    still();
    ends(true, true);
    assert_int_equal(got.cuts[0].state, RECORD_CUT_MOVING);
}

static void a_job_that_stops_needs_no_cuts(void **state)
{
    (void)state;
    open_writer();
    enter();
    look();
    agent->aborted = true;
    look();
    assert_int_equal(got.nframes, 0);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_rank_without_a_writer_sends_nothing),
        TEST(a_rank_that_stands_still_is_sent_once),
        TEST(a_rank_that_goes_on_is_sent_once),
        TEST(a_rank_with_a_thread_that_acts_is_looked_at_again),
        TEST(outside_of_calls_nothing_is_sent),
        TEST(members_that_do_not_exist_are_not_sent),
        TEST(a_look_is_answered_at_once),
        TEST(a_rank_that_ends_well_is_sent_as_ended),
        TEST(after_another_end_nothing_is_known),
        TEST(a_child_that_writes_goes_on),
        TEST(a_job_that_stops_needs_no_cuts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
