/* SPDX-License-Identifier: Apache-2.0
 *
 * The survey of a process that waits in every way: a child has one thread for each, and the system
 * call in which /proc shows the thread is the precondition of each check.
 */
#include "agent/task_survey.h"
#include "base/loop.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define SECOND_NS UINT64_C(1000000000)

enum { LIMIT = 20 /* s */, WAYS = 16, ANY_CALL = -2, RUNNING = -1 };

/* ---- what threads of the child do ---- */

static uint32_t private_word;
static uint32_t *shared_word; /* in memory that the parent maps, too */

static void futex_wait(uint32_t *word, int op, const struct timespec *timeout)
{
    for (;;)
        syscall(SYS_futex, word, op, 0, timeout, NULL, FUTEX_BITSET_MATCH_ANY);
}

static void way_private(void)
{
    futex_wait(&private_word, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, NULL);
}

static void way_private_mapping(void)
{
    futex_wait(&private_word, FUTEX_WAIT, NULL);
}

static void way_shared(void)
{
    futex_wait(shared_word, FUTEX_WAIT, NULL);
}

static void way_timed(void)
{
    futex_wait(&private_word, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, &(struct timespec){.tv_sec = 3600});
}

static void way_condition(void)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
    pthread_mutex_lock(&lock);
    for (;;)
        pthread_cond_wait(&never, &lock);
}

static void way_semaphore(void)
{
    sem_t never;
    sem_init(&never, 0, 0);
    for (;;)
        sem_wait(&never);
}

static void *pauses(void *arg)
{
    (void)arg;
    for (;;)
        pause();
    return NULL;
}

static void way_join(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, pauses, NULL);
    pthread_join(thread, NULL);
}

static void way_sleep(void)
{
    for (;;)
        sleep(3600);
}

static void way_epoll(void)
{
    struct epoll_event event;
    const int fd = epoll_create1(0);
    for (;;)
        epoll_wait(fd, &event, 1, -1);
}

static void way_signal(void)
{
    sigset_t set;
    int sig;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    for (;;)
        sigwait(&set, &sig);
}

static void way_pipe(void)
{
    int fds[2];
    char byte;
    if (pipe(fds) == 0 && read(fds[0], &byte, 1) < 0)
        abort();
}

static void way_compute(void)
{
    for (volatile unsigned n = 0;; n++)
        ;
}

struct way {
    const char *name;
    void (*go)(void);
    long call; /* RUNNING: it has a CPU; ANY_CALL */
    enum record_task_state state;
};

static const struct way ways[] = {
    {"private futex", way_private, SYS_futex, RECORD_TASK_SLEEPS},
    {"futex of a private mapping", way_private_mapping, SYS_futex, RECORD_TASK_SLEEPS},
    {"condition variable", way_condition, SYS_futex, RECORD_TASK_SLEEPS},
    {"semaphore", way_semaphore, SYS_futex, RECORD_TASK_SLEEPS},
    {"join", way_join, SYS_futex, RECORD_TASK_SLEEPS},
    {"futex with a time-out", way_timed, SYS_futex, RECORD_TASK_TIMED},
    {"shared futex", way_shared, SYS_futex, RECORD_TASK_RUNS},
    {"nanosleep", way_sleep, SYS_clock_nanosleep, RECORD_TASK_RUNS},
    {"epoll", way_epoll, ANY_CALL, RECORD_TASK_RUNS},
    {"sigwait", way_signal, SYS_rt_sigtimedwait, RECORD_TASK_RUNS},
    {"pipe", way_pipe, SYS_read, RECORD_TASK_RUNS},
    {"loop", way_compute, RUNNING, RECORD_TASK_RUNS},
};
enum { NWAYS = sizeof ways / sizeof ways[0] };

/* ---- the child ---- */

static struct shared {
    uint32_t word;
    _Atomic uint32_t tids[WAYS];
    _Atomic uint32_t go; /* the child goes on */
} * shared;

static struct record_head *head;
static int record;
static struct task_survey survey;
static struct arena arena;
static pid_t child;

static int setup(void **state)
{
    (void)state;
    arena_init(&arena);
    record = record_make(0, 16);
    head = record_map(record);
    assert_non_null(head);
    task_survey_init(&survey, head, record);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
    shared_word = &shared->word;
    return 0;
}

static void end_child(void)
{
    if (child > 0) {
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
    }
    child = 0;
}

static int teardown(void **state)
{
    (void)state;
    end_child();
    record_unmap(head, record_len(head));
    munmap(shared, sizeof *shared);
    close(record);
    arena_fini(&arena);
    return 0;
}

static void *run_way(void *arg)
{
    const struct way *w = arg;
    atomic_store(&shared->tids[w - ways], (uint32_t)syscall(SYS_gettid));
    w->go();
    return NULL;
}

/* The child runs `body`, then sleeps in a private futex. */
static void start(void (*body)(void))
{
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        body();
        way_private();
    }
    atomic_store(&head->pid, (uint32_t)child);
}

static void start_way(const struct way *w)
{
    pthread_t thread;
    pthread_create(&thread, NULL, run_way, (void *)(uintptr_t)w);
}

static bool is_in_call(uint32_t tid, long call)
{
    char path[64], text[256] = "";
    long number;
    snprintf(path, sizeof path, "/proc/%d/task/%u/syscall", (int)child, tid);
    FILE *f = fopen(path, "re");
    const bool has = f && fgets(text, sizeof text, f);
    if (f)
        fclose(f);
    if (call == RUNNING)
        return has && strncmp(text, "running", 7) == 0;
    return has && sscanf(text, "%ld", &number) == 1 && (call == ANY_CALL || number == call);
}

static void await(uint32_t tid, long call)
{
    const uint64_t end = now_ns() + LIMIT * SECOND_NS;
    while (!is_in_call(tid, call)) {
        assert_true(now_ns() < end);
        usleep(1000);
    }
}

/* Until the process does not change any more. */
static struct record_survey take(void)
{
    const uint64_t end = now_ns() + LIMIT * SECOND_NS;
    struct record_survey out;
    while (!task_survey_take(&survey, &arena, &out)) {
        assert_true(now_ns() < end);
        usleep(1000);
    }
    return out;
}

static const struct record_task *task_of(const struct record_survey *s, uint32_t tid)
{
    for (uint32_t i = 0; i < s->ntasks; i++)
        if (s->tasks[i].tid == tid)
            return &s->tasks[i];
    return NULL;
}

static enum record_task_state main_state(void)
{
    await((uint32_t)child, SYS_futex);
    const struct record_survey s = take();
    assert_non_null(task_of(&s, (uint32_t)child));
    return task_of(&s, (uint32_t)child)->state;
}

/* A thread that was stopped, or has a CPU no more, may take a moment until it sleeps. */
static bool main_sleeps(void)
{
    const uint64_t end = now_ns() + LIMIT * SECOND_NS;
    while (main_state() != RECORD_TASK_SLEEPS && now_ns() < end)
        usleep(1000);
    return now_ns() < end;
}

static bool may_be_surveyed(void)
{
    struct record_survey out;
    await((uint32_t)child, ANY_CALL);
    return task_survey_take(&survey, &arena, &out);
}

/* ---- threads ---- */

static const struct way *way; /* of the thread that the child makes */

static void start_one(void)
{
    start_way(way);
}

static void each_way_of_waiting_has_its_state(void **state)
{
    (void)state;
    for (size_t i = 0; i < NWAYS; i++) {
        way = &ways[i];
        atomic_store(&shared->tids[i], 0);
        start(start_one);
        while (!atomic_load(&shared->tids[i]))
            usleep(1000);
        await((uint32_t)child, SYS_futex);
        await(shared->tids[i], way->call);
        assert_true(main_sleeps());
        const uint64_t end = now_ns() + LIMIT * SECOND_NS;
        struct record_survey s = take();
        const struct record_task *t = task_of(&s, shared->tids[i]);
        for (; t && t->state != way->state && now_ns() < end; t = task_of(&s, shared->tids[i]))
            s = take(); /* it is on its way into the call */
        assert_non_null(t);
        if (t->state != way->state)
            fail_msg("%s: state %d", way->name, (int)t->state);
        assert_true(t->slices > 0 || t->state == RECORD_TASK_RUNS);
        assert_int_equal(task_of(&s, (uint32_t)child)->state, RECORD_TASK_SLEEPS);
        end_child();
    }
}

static void compute_beside_a_sleeper(void)
{
    start_way(&ways[NWAYS - 1]);
    while (!atomic_load(&shared->tids[NWAYS - 1]))
        usleep(1000);
    start_way(&ways[0]);
}

static void a_thread_that_runs_may_wake_all_later_ones(void **state)
{
    (void)state;
    start(compute_beside_a_sleeper);
    while (!atomic_load(&shared->tids[0]))
        usleep(1000);
    await(shared->tids[0], SYS_futex);
    const struct record_survey s = take();
    assert_int_equal(s.ntasks, 3);
    assert_int_equal(task_of(&s, shared->tids[0])->state, RECORD_TASK_RUNS);
}

/* The main thread of the child is in a call of the record, which says nothing about others. */
static void a_thread_in_a_call_is_not_looked_at(void **state)
{
    struct record_thread *threads = (void *)((unsigned char *)head + record_layout(head).threads);
    (void)state;
    way = &ways[0];
    atomic_store(&shared->tids[0], 0);
    start(start_one);
    while (!atomic_load(&shared->tids[0]))
        usleep(1000);
    await(shared->tids[0], SYS_futex);
    atomic_store(&threads[1].tid, (uint32_t)child);
    atomic_store(&threads[1].word, 4 + RECORD_INSIDE);
    atomic_store(&head->threads_used, 1);
    struct record_survey s = take();
    assert_int_equal(task_of(&s, (uint32_t)child)->state, RECORD_TASK_RUNS);
    assert_int_equal(task_of(&s, shared->tids[0])->state, RECORD_TASK_SLEEPS);
    atomic_store(&threads[1].word, 4 + RECORD_LEAVING + 1);
    s = take();
    assert_int_equal(task_of(&s, (uint32_t)child)->state, RECORD_TASK_SLEEPS);
}

static void do_nothing(void)
{
}

static void on_signal(int sig)
{
    (void)sig;
}

static void catch_usr2(void)
{
    signal(SIGUSR2, on_signal);
}

static void a_thread_that_has_run_has_more_slices(void **state)
{
    (void)state;
    start(catch_usr2);
    await((uint32_t)child, SYS_futex);
    const uint64_t end = now_ns() + LIMIT * SECOND_NS;
    const struct record_survey first = take();
    assert_int_equal(take().tasks[0].slices, first.tasks[0].slices);
    kill(child, SIGUSR2);
    /* The slices of a thread that runs at the moment are not read. */
    while (take().tasks[0].slices <= first.tasks[0].slices)
        assert_true(now_ns() < end);
}

static void a_stopped_thread_may_have_been_woken(void **state)
{
    int status;
    (void)state;
    start(do_nothing);
    assert_true(main_sleeps());
    kill(child, SIGSTOP);
    waitpid(child, &status, WUNTRACED);
    assert_true(WIFSTOPPED(status));
    assert_int_equal(take().tasks[0].state, RECORD_TASK_RUNS);
    kill(child, SIGCONT);
    waitpid(child, &status, WCONTINUED);
    assert_true(main_sleeps());
}

static void name_as_engine(void)
{
    prctl(PR_SET_NAME, "collrun/service");
}

static void threads_of_the_engine_are_inert_in_its_records(void **state)
{
    (void)state;
    start(name_as_engine);
    atomic_store(&head->tap, RECORD_TAP_MPI);
    assert_true(main_sleeps());
    atomic_store(&head->tap, RECORD_TAP_ENGINE);
    assert_int_equal(main_state(), RECORD_TASK_INERT);
}

/* ---- what the kernel and drivers may do ---- */

static const char *device; /* that can be opened here; NULL: none */

static void find_device(void)
{
    static const char *const all[] = {"/dev/fuse", "/dev/kvm", "/dev/loop-control", "/dev/kmsg",
                                      "/dev/vsock"};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        const int fd = open(all[i], O_RDONLY | O_NONBLOCK | O_CLOEXEC);
        if (fd >= 0)
            close(fd);
        device = fd >= 0 ? all[i] : device;
    }
}

static void open_device(void)
{
    if (open(device, O_RDONLY | O_NONBLOCK) < 0)
        abort();
}

static void a_driver_may_call_back(void **state)
{
    (void)state;
    find_device();
    if (!device)
        skip();
    start(open_device);
    assert_int_equal(main_state(), RECORD_TASK_RUNS);
}

static void open_ring(void)
{
    char parameters[256] = {0};
    syscall(SYS_io_uring_setup, 4, parameters);
}

static void an_io_uring_may_wake_a_futex(void **state)
{
    char parameters[256] = {0};
    (void)state;
    const long fd = syscall(SYS_io_uring_setup, 4, parameters);
    if (fd < 0)
        skip();
    close((int)fd);
    start(open_ring);
    assert_int_equal(main_state(), RECORD_TASK_RUNS);
}

/* ---- signals and children ---- */

static bool catches(int sig)
{
    await((uint32_t)child, SYS_futex);
    return take().caught >> (sig - 1) & 1;
}

static void catch_alarm(void)
{
    signal(SIGALRM, on_signal);
}

static void block_alarm(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
}

static void catch_blocked_alarm(void)
{
    catch_alarm();
    block_alarm();
}

static void catch_alarm_in_one_thread(void)
{
    catch_alarm();
    start_way(&ways[0]);
    block_alarm();
}

static void a_handler_counts_if_a_thread_takes_its_signal(void **state)
{
    (void)state;
    start(do_nothing);
    assert_false(catches(SIGALRM));
    end_child();
    start(catch_alarm);
    assert_true(catches(SIGALRM));
    assert_false(catches(SIGUSR1));
    end_child();
    start(catch_blocked_alarm);
    assert_false(catches(SIGALRM));
    end_child();
    /* A thread that begins blocks all signals for a moment. */
    atomic_store(&shared->tids[0], 0);
    start(catch_alarm_in_one_thread);
    while (!atomic_load(&shared->tids[0]))
        usleep(1000);
    await(shared->tids[0], SYS_futex);
    assert_true(catches(SIGALRM));
}

static void make_child(void)
{
    signal(SIGCHLD, on_signal);
    if (fork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        way_sleep();
    }
}

static void make_child_in_a_thread(void)
{
    make_child();
    start_way(&ways[0]);
}

static void catch_child(void)
{
    signal(SIGCHLD, on_signal);
}

static void children_count_where_their_end_is_caught(void **state)
{
    (void)state;
    start(catch_child);
    await((uint32_t)child, SYS_futex);
    assert_false(take().children);
    end_child();
    start(make_child);
    await((uint32_t)child, SYS_futex);
    assert_true(take().children);
    end_child();
    start(make_child_in_a_thread);
    await((uint32_t)child, SYS_futex);
    assert_true(take().children);
}

/* ---- what cannot be read ---- */

static void unmap_record(void)
{
    munmap(head, record_len(head));
}

static void another_process_is_not_taken_for_the_writer(void **state)
{
    (void)state;
    start(unmap_record);
    assert_int_equal(may_be_surveyed(), false);
    end_child();
    atomic_store(&head->pid, 0);
    struct record_survey out;
    assert_false(task_survey_take(&survey, &arena, &out));
}

static void a_process_with_another_record_is_not_the_writer(void **state)
{
    (void)state;
    const int other = record_make(1, 16);
    start(do_nothing);
    assert_true(may_be_surveyed());
    task_survey_init(&survey, head, other);
    assert_false(may_be_surveyed());
    close(other);
}

static void a_process_that_has_ended_cannot_be_surveyed(void **state)
{
    siginfo_t info;
    struct record_survey out;
    (void)state;
    start(do_nothing);
    assert_true(may_be_surveyed());
    kill(child, SIGKILL);
    waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT); /* a zombie */
    assert_false(task_survey_take(&survey, &arena, &out));
    end_child();
    assert_false(task_survey_take(&survey, &arena, &out));
}

static void a_debugger_can_do_anything(void **state)
{
    (void)state;
    start(do_nothing);
    assert_true(may_be_surveyed());
    if (ptrace(PTRACE_SEIZE, child, NULL, NULL) < 0)
        skip();
    assert_false(may_be_surveyed());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_way_of_waiting_has_its_state, setup, teardown),
        cmocka_unit_test_setup_teardown(a_thread_that_runs_may_wake_all_later_ones, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_thread_in_a_call_is_not_looked_at, setup, teardown),
        cmocka_unit_test_setup_teardown(a_thread_that_has_run_has_more_slices, setup, teardown),
        cmocka_unit_test_setup_teardown(a_stopped_thread_may_have_been_woken, setup, teardown),
        cmocka_unit_test_setup_teardown(threads_of_the_engine_are_inert_in_its_records, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_driver_may_call_back, setup, teardown),
        cmocka_unit_test_setup_teardown(an_io_uring_may_wake_a_futex, setup, teardown),
        cmocka_unit_test_setup_teardown(a_handler_counts_if_a_thread_takes_its_signal, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(children_count_where_their_end_is_caught, setup, teardown),
        cmocka_unit_test_setup_teardown(another_process_is_not_taken_for_the_writer, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_process_with_another_record_is_not_the_writer, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_process_that_has_ended_cannot_be_surveyed, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_debugger_can_do_anything, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
