/* SPDX-License-Identifier: Apache-2.0
 *
 * The calls of a rank's threads, as record_writer.h stores them and record_cut.h reads them: where
 * tables are full, a call was left, a thread has ended, the process forks, or was killed. What
 * follows from cuts is in test_proof.c and test_proof_traces.c.
 */
#include "base/buf.h"
#include "base/record_cut.h"
#include "base/record_writer.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { PEER = 1, TAG = 3, GROUP_ID = 40 };

static struct record_head *head;
static struct record_writer *w;
static struct record_queue group;
static struct arena arena;
static struct record_survey process; /* what a survey returns */
static struct record_task tasks[4];
static int surveys; /* how many there were */

static const uint32_t world[] = {0, 1, 2, 3};

static int setup(void **state)
{
    (void)state;
    const int fd = record_make(0, 16);
    head = record_map(fd);
    close(fd);
    assert_non_null(head);
    record_queue_thread = 0; /* that of the last record */
    w = record_writer_open(head, RECORD_TAP_MPI, RECORD_LEVEL_MULTIPLE);
    assert_non_null(w);
    record_queue_open(
        &group, head,
        &(struct record_queue_info){
            .name = "world", .scope = "world", .members = 4, .id = GROUP_ID, .world = world});
    tasks[0] = (struct record_task){.tid = (uint32_t)syscall(SYS_gettid)};
    process = (struct record_survey){.tasks = tasks, .ntasks = 1};
    surveys = 0;
    arena_init(&arena);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    record_writer_close(w);
    record_unmap(head, record_len(head));
    arena_fini(&arena);
    return 0;
}

static bool survey(void *ctx, struct arena *a, struct record_survey *out)
{
    void (*between)(void) = (void (*)(void))(uintptr_t)ctx;
    (void)a;
    if (surveys++ % 2 == 1 && between) /* the tables have been read */
        between();
    *out = process;
    return true;
}

static struct record_cut cut_of(const void *bytes, size_t len, bool ended, void (*between)(void))
{
    struct record_view v;
    struct record_cut cut;
    assert_int_equal(record_view_init(&v, bytes, len, NULL), COLLRUN_OK);
    assert_true(record_cut_take(&v, ended, survey, (void *)(uintptr_t)between, &arena, &cut));
    return cut;
}

static struct record_cut take(void)
{
    return cut_of(head, record_len(head), false, NULL);
}

static struct record_part part(uint8_t kind, uint32_t tag)
{
    return (struct record_part){
        .group = group.group, .peer = PEER, .tag = tag, .count = 1, .kind = kind};
}

static const struct record_at at = {.site = 99};

/* The thread enters a blocking operation. */
static struct record_thread *enter(uint8_t kind, uint32_t tag)
{
    const struct record_part p = part(kind, tag);
    struct record_thread *t = record_enter(w);
    assert_non_null(t);
    record_begin(w, t, &p);
    record_inside(t, RECORD_ALL, &at);
    return t;
}

static void leave(struct record_thread *t)
{
    record_leave(t);
    record_outside(t);
}

static uint32_t post(uint8_t kind, uint32_t tag)
{
    const struct record_part p = part(kind, tag);
    struct record_thread *t = record_enter(w);
    const uint32_t handle = record_post(w, t, &p, &at);
    record_inside(t, RECORD_NONE, &at);
    leave(t);
    return handle;
}

static void complete(uint32_t handle)
{
    struct record_thread *t = record_enter(w);
    record_inside(t, RECORD_NONE, &at);
    record_leave(t);
    record_close(w, handle);
    record_outside(t);
}

/* ---- calls ---- */

static void a_blocked_call_is_read_with_what_was_counted(void **state)
{
    (void)state;
    leave(enter(COLLRUN_SEND, TAG));
    struct record_thread *t = enter(COLLRUN_RECV, TAG);
    const struct record_part p = part(COLLRUN_RECV, TAG);
    record_leave(t);
    record_take(w, t, &p);
    record_outside(t);
    leave(enter(COLLRUN_BARRIER, 0));
    enter(COLLRUN_SEND, TAG);
    const struct record_cut cut = take();
    assert_int_equal(cut.state, RECORD_CUT_STILL);
    assert_int_equal(cut.nthreads, 1);
    assert_int_equal(cut.threads[0].role, RECORD_CUT_BLOCKED);
    assert_int_equal(cut.threads[0].mode, RECORD_ALL);
    assert_int_equal(cut.threads[0].site, 99);
    assert_int_equal(cut.threads[0].ops[0].kind, COLLRUN_SEND);
    assert_int_equal(cut.threads[0].ops[0].order, 1);
    assert_int_equal(cut.nchannels, 1);
    assert_int_equal(cut.channels[0].sent, 2);
    assert_int_equal(cut.channels[0].taken, 1);
    assert_int_equal(cut.takes, 1);
    assert_int_equal(cut.groups[0].called, 1);
    assert_int_equal(cut.groups[0].members[3], 3);
    assert_string_equal(cut.groups[0].name, "world");
}

static void a_rank_that_enters_or_leaves_is_moving(void **state)
{
    (void)state;
    struct record_thread *t = record_enter(w);
    assert_int_equal(take().state, RECORD_CUT_MOVING);
    record_inside(t, RECORD_NONE, &at);
    assert_int_equal(take().state, RECORD_CUT_STILL);
    record_leave(t);
    assert_int_equal(take().state, RECORD_CUT_MOVING);
    record_outside(t);
    assert_int_equal(take().state, RECORD_CUT_STILL);
}

static void call_once(void)
{
    leave(enter(COLLRUN_BARRIER, 0));
}

static void a_rank_that_calls_between_the_readings_is_moving(void **state)
{
    (void)state;
    call_once();
    assert_int_equal(cut_of(head, record_len(head), false, call_once).state, RECORD_CUT_MOVING);
}

static void *call_in_thread(void *arg)
{
    (void)arg;
    call_once();
    return NULL;
}

static void run_thread(void)
{
    pthread_t t;
    assert_int_equal(pthread_create(&t, NULL, call_in_thread, NULL), 0);
    pthread_join(t, NULL);
}

static void a_new_thread_between_the_readings_is_movement(void **state)
{
    (void)state;
    call_once();
    assert_int_equal(cut_of(head, record_len(head), false, run_thread).state, RECORD_CUT_MOVING);
}

static void a_receive_that_was_left_may_yet_take_a_message(void **state)
{
    (void)state;
    enter(COLLRUN_RECV, TAG);
    struct record_thread *t = record_enter(w); /* by longjmp */
    record_inside(t, RECORD_NONE, &at);
    const struct record_cut cut = take();
    assert_int_equal(cut.nreceives, 1);
    assert_int_equal(cut.receives[0].state, RECORD_ABANDONED);
}

/* ---- requests ---- */

static void a_request_that_was_closed_is_complete(void **state)
{
    (void)state;
    const uint32_t first = post(COLLRUN_RECV, TAG);
    complete(first);
    const uint32_t second = post(COLLRUN_RECV, TAG);
    assert_int_equal(first % RECORD_HANDLE_SLOT, second % RECORD_HANDLE_SLOT);
    assert_int_not_equal(first, second);
    complete(first); /* an old handle closes nothing */
    struct record_thread *t = record_enter(w);
    record_wait(w, t, first);
    record_wait(w, t, second);
    record_inside(t, RECORD_ANY, &at);
    const struct record_cut cut = take();
    assert_int_equal(cut.threads[0].nops, 2);
    assert_int_equal(cut.threads[0].ops[0].state, RECORD_FREE);
    assert_int_equal(cut.threads[0].ops[1].state, RECORD_OPEN);
    assert_int_equal(cut.threads[0].ops[1].post, 1);
    assert_int_equal(cut.nreceives, 1);
}

static void a_full_table_of_requests_is_reported(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < RECORD_REQUESTS; i++)
        assert_int_not_equal(post(COLLRUN_RECV, TAG), 0);
    assert_int_equal(take().lost, 0);
    assert_int_equal(post(COLLRUN_RECV, TAG), 0);
    assert_int_equal(take().lost, RECORD_LOST_REQUESTS);
}

static void a_long_list_of_requests_is_cut(void **state)
{
    (void)state;
    struct record_thread *t = record_enter(w);
    const struct record_part p = part(COLLRUN_RECV, TAG);
    for (int i = 0; i < RECORD_WAITS + 3; i++)
        record_wait(w, t, record_post(w, t, &p, &at));
    record_inside(t, RECORD_ANY, &at);
    const struct record_cut cut = take();
    assert_int_equal(cut.threads[0].nops, RECORD_WAITS);
    assert_true(cut.threads[0].cut);
}

static void a_request_that_was_given_up_stays_listed(void **state)
{
    (void)state;
    const uint32_t freed = post(COLLRUN_RECV, TAG), canceled = post(COLLRUN_RECV, TAG + 1);
    record_give_up(w, freed, RECORD_ABANDONED);
    record_give_up(w, canceled, RECORD_WITHDRAWN);
    const struct record_cut cut = take();
    assert_int_equal(cut.nreceives, 2);
    assert_int_equal(cut.receives[0].state, RECORD_ABANDONED);
    assert_int_equal(cut.receives[1].state, RECORD_WITHDRAWN);
}

/* ---- channels ---- */

static void many_tags_are_folded_and_their_counts_stay_right(void **state)
{
    (void)state;
    const uint32_t exact = RECORD_CHANNELS / 4 * 3, all = exact + 1000;
    uint64_t sent = 0, folded = 0;
    for (uint32_t tag = 0; tag < all; tag++)
        leave(enter(COLLRUN_SEND, tag));
    leave(enter(COLLRUN_SEND, all - 1));
    const struct record_cut cut = take();
    assert_int_equal(cut.lost, 0);
    assert_int_equal(cut.nchannels, exact + RECORD_FOLDS);
    for (uint32_t i = 0; i < cut.nchannels; i++) {
        sent += cut.channels[i].sent;
        folded += cut.channels[i].folded ? cut.channels[i].sent : 0;
        assert_true(cut.channels[i].folded || i < exact); /* they come last */
    }
    assert_int_equal(sent, all + 1);
    assert_int_equal(folded, 1001);
    enter(COLLRUN_SEND, all - 1); /* how many of this tag precede it is not known */
    assert_int_equal(take().threads[0].ops[0].order, 0);
}

static void a_full_table_of_channels_is_reported(void **state)
{
    (void)state;
    for (uint32_t peer = 0; peer <= RECORD_CHANNELS; peer++) {
        struct record_part p = part(COLLRUN_SEND, 0);
        struct record_thread *t = record_enter(w);
        p.peer = (int32_t)peer;
        record_begin(w, t, &p);
        record_inside(t, RECORD_ALL, &at);
        leave(t);
    }
    assert_int_equal(take().lost, RECORD_LOST_CHANNELS);
}

static void *send_in_thread(void *arg)
{
    struct record_thread *t = enter(COLLRUN_SEND, TAG);
    *(uint64_t *)arg = t->ops[0].order;
    leave(t);
    return NULL;
}

static void a_second_thread_has_no_order(void **state)
{
    (void)state;
    pthread_t thread;
    leave(enter(COLLRUN_SEND, TAG));
    leave(enter(COLLRUN_SEND, TAG));
    struct record_thread *t = enter(COLLRUN_SEND, TAG);
    assert_int_equal(take().threads[0].ops[0].order, 2);
    leave(t);
    for (int i = 0; i < 2; i++) {
        uint64_t order = 99;
        assert_int_equal(pthread_create(&thread, NULL, send_in_thread, &order), 0);
        pthread_join(thread, NULL);
        assert_int_equal(order, 0);
    }
    enter(COLLRUN_SEND, TAG);
    const struct record_cut cut = take();
    assert_int_equal(cut.threads[0].ops[0].order, 3);
    assert_int_equal(cut.channels[0].sent, 6);
}

static void a_canceled_send_ends_the_order(void **state)
{
    (void)state;
    const struct record_part p = part(COLLRUN_SEND, TAG);
    leave(enter(COLLRUN_SEND, TAG));
    record_cancel_send(w, &p);
    enter(COLLRUN_SEND, TAG);
    assert_int_equal(take().threads[0].ops[0].order, 0);
}

/* ---- threads and processes ---- */

static void the_slots_of_threads_that_have_ended_are_used_again(void **state)
{
    (void)state;
    call_once();
    for (int i = 0; i < RECORD_THREADS + 20; i++)
        run_thread();
    assert_int_equal(take().lost, 0);
    assert_int_equal(take().groups[0].called, RECORD_THREADS + 21);
}

static void a_child_of_fork_records_nothing(void **state)
{
    (void)state;
    enter(COLLRUN_BARRIER, 0);
    const pid_t child = fork();
    if (child == 0)
        _exit(record_enter(w) == NULL ? 0 : 1);
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(take().groups[0].called, 1);
}

static void sleepers_and_signals_decide_what_a_thread_is(void **state)
{
    (void)state;
    call_once();
    tasks[1] = (struct record_task){.tid = 1, .state = RECORD_TASK_SLEEPS};
    tasks[2] = (struct record_task){.tid = 2, .state = RECORD_TASK_TIMED};
    tasks[3] = (struct record_task){.tid = 3, .state = RECORD_TASK_RUNS};
    process.ntasks = 4;
    atomic_store(&head->library[5], 3);
    struct record_cut cut = take();
    assert_int_equal(cut.nthreads, 3); /* that of the library is none */
    assert_int_equal(cut.threads[0].role, RECORD_CUT_ACTOR);
    assert_int_equal(cut.threads[1].role, RECORD_CUT_ASLEEP);
    assert_int_equal(cut.threads[2].role, RECORD_CUT_ACTOR);
    process.caught = UINT64_C(1) << (SIGALRM - 1) | UINT64_C(1) << (SIGCHLD - 1);
    assert_int_equal(take().threads[1].role, RECORD_CUT_ACTOR);
    atomic_store(&head->harmless, UINT64_C(1) << (SIGALRM - 1));
    assert_int_equal(take().threads[1].role, RECORD_CUT_ASLEEP); /* there are no children */
    process.children = true;
    assert_int_equal(take().threads[1].role, RECORD_CUT_ACTOR);
    process.caught = UINT64_C(1) << (SIGTERM - 1); /* any process may send it */
    assert_int_equal(take().threads[1].role, RECORD_CUT_ACTOR);
    process.caught = UINT64_C(1) << (SIGRTMIN - 1);
    assert_int_equal(take().threads[1].role, RECORD_CUT_ACTOR);
    process.caught = UINT64_C(1) << (SIGSEGV - 1); /* a blocked thread does not raise it */
    process.caught |= UINT64_C(1) << 32;           /* the C library handles signal 33 */
    assert_int_equal(take().threads[1].role, RECORD_CUT_ASLEEP);
}

static void a_rank_that_was_killed_while_it_left_may_have_received(void **state)
{
    (void)state;
    struct record_thread *t = enter(COLLRUN_RECV, TAG);
    struct record_cut cut = cut_of(head, record_len(head), true, NULL);
    assert_int_equal(cut.state, RECORD_CUT_ENDED);
    assert_int_equal(cut.lost, 0);
    assert_int_equal(cut.nreceives, 1);
    record_leave(t);
    assert_int_equal(cut_of(head, record_len(head), true, NULL).lost, RECORD_LOST_REQUESTS);
    assert_int_equal(surveys, 0);
}

static void after_finalize_nothing_is_called(void **state)
{
    (void)state;
    struct record_thread *t = record_enter(w);
    record_finish(w);
    assert_int_equal(take().state, RECORD_CUT_MOVING);
    record_inside(t, RECORD_NONE, &at);
    assert_int_equal(take().state, RECORD_CUT_ENDED);
}

static void a_copy_has_the_calls(void **state)
{
    (void)state;
    const struct record_view_part all = {.entries = 16, .marks = true};
    struct buf b;
    buf_init(&b);
    leave(enter(COLLRUN_SEND, TAG));
    post(COLLRUN_RECV, TAG);
    assert_true(record_view_save(head, record_len(head), &all, &b));
    const struct record_cut cut = cut_of(b.data, b.len, true, NULL);
    assert_int_equal(cut.nreceives, 1);
    assert_int_equal(cut.channels[0].sent, 1);
    assert_int_equal(cut.groups[0].id, GROUP_ID);
    assert_true(b.len < 64 * 1024);
    buf_fini(&b);
}

/* ---- groups ---- */

static struct record_queue open_group(uint64_t id, const uint32_t *ranks, uint32_t n, uint32_t far)
{
    struct record_queue q;
    record_queue_open(
        &q, head,
        &(struct record_queue_info){
            .name = "g", .scope = "g", .members = n, .id = id, .world = ranks, .nremote = far});
    return q;
}

static void lists_of_members_are_shared_or_ranges(void **state)
{
    (void)state;
    const uint32_t some[] = {0, 2, 7}, even[] = {4, 6, 8, 10, 12}, far[] = {0, 2, 5};
    const uint32_t used = atomic_load(&head->members_used);
    open_group(1, some, 3, 0);
    open_group(2, some, 3, 0);
    open_group(3, even, 5, 0);
    open_group(4, far, 2, 1);
    assert_int_equal(used, 2); /* the world: a range */
    assert_int_equal(atomic_load(&head->members_used), 2 + 3 + 2 + 3);
    call_once();
    const struct record_cut cut = take();
    assert_memory_equal(record_cut_group(&cut, 2)->members, some, sizeof some);
    assert_memory_equal(record_cut_group(&cut, 3)->members, even, sizeof even);
    assert_memory_equal(record_cut_group(&cut, 4)->members, far, sizeof far);
    assert_int_equal(record_cut_group(&cut, 4)->nremote, 1);
}

static void a_group_that_forms_is_shown_to_proofs_alone(void **state)
{
    (void)state;
    struct record_view v;
    struct record_view_group shown;
    struct record_queue q;
    record_queue_open(&q, head,
                      &(struct record_queue_info){.name = "new",
                                                  .scope = "new",
                                                  .members = 4,
                                                  .id = 50,
                                                  .world = world,
                                                  .forming = true});
    const struct record_part p = {.group = q.group, .peer = -1, .kind = RECORD_FORM};
    struct record_thread *t = record_enter(w);
    record_begin(w, t, &p);
    record_inside(t, RECORD_ALL, &at);
    struct record_cut cut = take();
    assert_int_equal(record_cut_group(&cut, 50)->called, 1);
    assert_int_not_equal(cut.threads[0].ops[0].group, RECORD_CUT_NO_GROUP);
    assert_int_equal(record_view_init(&v, head, record_len(head), NULL), COLLRUN_OK);
    assert_false(record_view_group(&v, q.slot, &shown));
    record_queue_formed(&q);
    assert_true(record_view_group(&v, q.slot, &shown));
}

static void the_next_process_image_begins_anew(void **state)
{
    (void)state;
    post(COLLRUN_RECV, TAG);
    leave(enter(COLLRUN_SEND, TAG));
    enter(COLLRUN_BARRIER, 0);
    const uint32_t epoch = take().epoch;
    record_writer_close(w); /* exec */
    w = record_writer_open(head, RECORD_TAP_MPI, RECORD_LEVEL_MULTIPLE);
    const struct record_cut cut = take();
    assert_int_equal(cut.state, RECORD_CUT_STILL);
    assert_int_not_equal(cut.epoch, epoch);
    assert_int_equal(cut.threads[0].role, RECORD_CUT_ACTOR);
    assert_int_equal(cut.nchannels + cut.nreceives + cut.ngroups, 0);
    atomic_fetch_add(&head->epoch, 1); /* another one begins */
    assert_int_equal(take().state, RECORD_CUT_MOVING);
}

static void a_closed_group_is_kept_until_its_slot_is_used_again(void **state)
{
    (void)state;
    call_once();
    record_queue_close(&group);
    assert_true(record_cut_group(&(struct record_cut){0}, GROUP_ID) == NULL);
    struct record_cut cut = take();
    assert_true(record_cut_group(&cut, GROUP_ID)->closed);
    assert_int_equal(record_cut_group(&cut, GROUP_ID)->called, 1);
    for (uint32_t i = 0; i < RECORD_GROUPS; i++)
        open_group(1000 + i, world, 4, 0);
    cut = take();
    assert_null(record_cut_group(&cut, GROUP_ID));
    assert_int_equal(cut.forgotten, 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_blocked_call_is_read_with_what_was_counted),
        TEST(a_rank_that_enters_or_leaves_is_moving),
        TEST(a_rank_that_calls_between_the_readings_is_moving),
        TEST(a_new_thread_between_the_readings_is_movement),
        TEST(a_receive_that_was_left_may_yet_take_a_message),
        TEST(a_request_that_was_closed_is_complete),
        TEST(a_full_table_of_requests_is_reported),
        TEST(a_long_list_of_requests_is_cut),
        TEST(a_request_that_was_given_up_stays_listed),
        TEST(many_tags_are_folded_and_their_counts_stay_right),
        TEST(a_full_table_of_channels_is_reported),
        TEST(a_second_thread_has_no_order),
        TEST(a_canceled_send_ends_the_order),
        TEST(the_slots_of_threads_that_have_ended_are_used_again),
        TEST(a_child_of_fork_records_nothing),
        TEST(sleepers_and_signals_decide_what_a_thread_is),
        TEST(a_rank_that_was_killed_while_it_left_may_have_received),
        TEST(after_finalize_nothing_is_called),
        TEST(a_copy_has_the_calls),
        TEST(lists_of_members_are_shared_or_ranges),
        TEST(a_group_that_forms_is_shown_to_proofs_alone),
        TEST(the_next_process_image_begins_anew),
        TEST(a_closed_group_is_kept_until_its_slot_is_used_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
