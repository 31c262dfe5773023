/* SPDX-License-Identifier: Apache-2.0
 *
 * Which threads are taken for the engine's: those that a backend starts, also if they get another
 * name afterwards, as UCX's do; never one that a thread of the program may have started meanwhile.
 */
#include "core/threads.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

/* A thread that takes the name "async", and ends when it may. */
struct helper {
    pthread_t thread;
    atomic_int id; /* 0: it has not got so far */
    atomic_uint rounds;
    atomic_bool ends;
};

static void *helper_run(void *arg)
{
    struct helper *h = arg;
    prctl(PR_SET_NAME, "async");
    atomic_store(&h->id, (int)syscall(SYS_gettid));
    while (!atomic_load(&h->ends)) {
        usleep(1000);
        atomic_fetch_add(&h->rounds, 1);
    }
    return NULL;
}

static void helper_start(struct helper *h)
{
    atomic_init(&h->id, 0);
    atomic_init(&h->ends, false);
    atomic_init(&h->rounds, 0);
    assert_int_equal(pthread_create(&h->thread, NULL, helper_run, h), 0);
    while (!atomic_load(&h->id))
        sched_yield();
}

static void helper_end(struct helper *h)
{
    atomic_store(&h->ends, true);
    pthread_join(h->thread, NULL);
}

/* A line about a thread of this process: its name, "comm", or its system call, "syscall". */
static const char *line_of(int thread, const char *what, char out[256])
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/%s", thread, what);
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    assert_non_null(fgets(out, 256, f));
    fclose(f);
    out[strcspn(out, "\n")] = '\0';
    return out;
}

/* A thread of the program: asleep until it has to start a helper; then asleep again. */
struct program {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t cond;
    int id;
    bool starts, started, ends;
    struct helper helper;
};

static void *program_run(void *arg)
{
    struct program *p = arg;
    pthread_mutex_lock(&p->lock);
    p->id = (int)syscall(SYS_gettid);
    pthread_cond_broadcast(&p->cond);
    while (!p->starts && !p->ends)
        pthread_cond_wait(&p->cond, &p->lock);
    if (p->starts)
        helper_start(&p->helper);
    p->started = true;
    pthread_cond_broadcast(&p->cond);
    while (!p->ends)
        pthread_cond_wait(&p->cond, &p->lock);
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

static void program_start_helper(struct program *p)
{
    pthread_mutex_lock(&p->lock);
    p->starts = true;
    pthread_cond_broadcast(&p->cond);
    while (!p->started)
        pthread_cond_wait(&p->cond, &p->lock);
    pthread_mutex_unlock(&p->lock);
}

static void program_begin(struct program *p)
{
    char line[256], futex[16];
    *p = (struct program){.lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER};
    assert_int_equal(pthread_create(&p->thread, NULL, program_run, p), 0);
    pthread_mutex_lock(&p->lock);
    while (!p->id)
        pthread_cond_wait(&p->cond, &p->lock);
    pthread_mutex_unlock(&p->lock);
    snprintf(futex, sizeof futex, "%d ", SYS_futex);
    while (strncmp(line_of(p->id, "syscall", line), futex, strlen(futex)) != 0)
        sched_yield();
}

static void program_end(struct program *p)
{
    pthread_mutex_lock(&p->lock);
    p->ends = true;
    pthread_cond_broadcast(&p->cond);
    pthread_mutex_unlock(&p->lock);
    pthread_join(p->thread, NULL);
}

/* What this thread starts between begin and end is the backend's; what `program` starts is not. */
static void tagged(struct helper *own, struct program *program, bool renames)
{
    struct thread_tag tag;
    thread_tag_begin(&tag, "ucx", renames);
    helper_start(own);
    if (program)
        program_start_helper(program);
    thread_tag_end(&tag);
}

static void a_thread_that_renames_itself_is_the_backends(void **state)
{
    char line[256];
    struct helper own;
    struct program sleeps;
    (void)state;
    program_begin(&sleeps);
    tagged(&own, NULL, true);
    assert_string_equal(line_of(atomic_load(&own.id), "comm", line), "collrun/ucx");
    assert_string_equal(line_of(sleeps.id, "comm", line), "test_threads");
    assert_string_equal(line_of((int)syscall(SYS_gettid), "comm", line), "test_threads");
    program_end(&sleeps);
    helper_end(&own);
    tagged(&own, NULL, false);
    assert_string_equal(line_of(atomic_load(&own.id), "comm", line), "async");
    helper_end(&own);
}

static void a_thread_that_the_program_may_have_started_is_not(void **state)
{
    char line[256];
    struct helper own;
    struct program starts;
    (void)state;
    program_begin(&starts);
    tagged(&own, &starts, true);
    assert_string_equal(line_of(atomic_load(&starts.helper.id), "comm", line), "async");
    assert_string_equal(line_of(atomic_load(&own.id), "comm", line), "async");
    helper_end(&starts.helper);
    program_end(&starts);
    helper_end(&own);
}

/* It may start a thread at any time, also one that is seen while it runs. */
static void beside_a_thread_that_runs_nothing_is_renamed(void **state)
{
    char line[256];
    struct helper own, polls;
    (void)state;
    helper_start(&polls);
    for (int i = 0; i < 20; i++) { /* it wakes each millisecond */
        struct thread_tag tag;
        thread_tag_begin(&tag, "ucx", true);
        helper_start(&own);
        const unsigned before = atomic_load(&polls.rounds);
        while (atomic_load(&polls.rounds) == before)
            sched_yield();
        thread_tag_end(&tag);
        assert_string_equal(line_of(atomic_load(&own.id), "comm", line), "async");
        helper_end(&own);
    }
    helper_end(&polls);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thread_that_renames_itself_is_the_backends),
        cmocka_unit_test(a_thread_that_the_program_may_have_started_is_not),
        cmocka_unit_test(beside_a_thread_that_runs_nothing_is_renamed),
    };
    threads_main_is_caller(); /* as in a program */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
