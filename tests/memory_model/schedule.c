/* SPDX-License-Identifier: Apache-2.0
 *
 * The threads, which are stacks in one thread of the kernel; the choices; time. A run is the
 * sequence of its choices: drawn at random from its number, or all in turn (depth first).
 */
#include "memory_model/inside.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

enum { STACK_BYTES = 512 << 10, CHOICES_MAX = 1 << 16, STEPS_MAX = 4000000 };

struct fiber {
    ucontext_t start;
    jmp_buf at;
    char *stack;
    bool started, done;
    const volatile uint32_t *asleep; /* on this word; NULL: runs */
    uint64_t wake_ns, slept_ns;      /* when the sleep ends, and how long it is */
};

static struct {
    const struct model_test *test;
    struct fiber fibers[MODEL_THREADS];
    jmp_buf end;
    bool failed;
    char text[512];
    uint64_t now_ns, steps;
    /* exhaustive */
    struct {
        uint32_t picked, n;
    } choices[CHOICES_MAX];
    uint32_t nchoices, at;
    /* random */
    uint64_t state;
    uint32_t switch_in, old_in; /* one in so many */
} now;

bool model_watching;
uint32_t model_thread;

/* ---- choices ---- */

static uint64_t schedule_random(void)
{
    now.state ^= now.state << 13;
    now.state ^= now.state >> 7;
    now.state ^= now.state << 17;
    return now.state;
}

bool schedule_is_exhaustive(void)
{
    return now.test->exhaustive;
}

uint32_t schedule_choose(uint32_t n)
{
    if (n <= 1)
        return 0;
    if (!now.test->exhaustive)
        return (uint32_t)(schedule_random() >> 11) % n;
    if (now.at == now.nchoices) {
        if (now.nchoices == CHOICES_MAX)
            model_fail("more than %d choices in a run", CHOICES_MAX);
        now.choices[now.nchoices].picked = 0;
        now.choices[now.nchoices++].n = n;
    }
    return now.choices[now.at++].picked;
}

bool schedule_wants_old(void)
{
    return now.test->exhaustive || schedule_choose(now.old_in) == 0;
}

/* The next run of an exhaustive test; false: that was the last. */
static bool schedule_advance(void)
{
    while (now.nchoices &&
           now.choices[now.nchoices - 1].picked + 1 == now.choices[now.nchoices - 1].n)
        now.nchoices--;
    if (now.nchoices)
        now.choices[now.nchoices - 1].picked++;
    return now.nchoices > 0;
}

/* ---- threads ---- */

static void schedule_resume(uint32_t to)
{
    model_thread = to;
    struct fiber *f = &now.fibers[to];
    if (f->started)
        _longjmp(f->at, 1);
    f->started = true;
    setcontext(&f->start);
}

/* Whether the end of its sleep by the clock is a failure. */
static bool schedule_is_lost(const struct fiber *f)
{
    return now.test->strict || f->slept_ns > MODEL_SHORT_SLEEP_NS;
}

/* All sleep: time passes until the first one wakes. */
static void schedule_pass(void)
{
    struct fiber *first = NULL;
    for (uint32_t i = 0; i < now.test->nthreads; i++) {
        struct fiber *f = &now.fibers[i];
        if (!f->done && (!first || f->wake_ns < first->wake_ns))
            first = f;
    }
    if (!first)
        _longjmp(now.end, 1);
    if (schedule_is_lost(first)) {
        model_thread = (uint32_t)(first - now.fibers);
        model_fail("a lost wake-up: all threads sleep, thread %u for %.1f ms more", model_thread,
                   (double)(first->wake_ns - now.now_ns) / 1e6);
    }
    now.now_ns = now.now_ns > first->wake_ns ? now.now_ns : first->wake_ns;
    first->asleep = NULL;
    memory_settle();
}

static uint32_t schedule_runnable(uint32_t list[MODEL_THREADS])
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < now.test->nthreads; i++)
        if (!now.fibers[i].done && !now.fibers[i].asleep)
            list[n++] = i;
    return n;
}

/* Another thread goes on, or this one. */
static void schedule_switch(void)
{
    uint32_t list[MODEL_THREADS], n, to, from = model_thread;
    while ((n = schedule_runnable(list)) == 0)
        schedule_pass();
    to = list[schedule_choose(n)];
    if (to == from && !now.fibers[from].done)
        return;
    if (now.fibers[from].done || _setjmp(now.fibers[from].at) == 0)
        schedule_resume(to);
}

void schedule_point(void)
{
    if (++now.steps > STEPS_MAX)
        model_fail("the run does not end: %d accesses", STEPS_MAX);
    if (now.test->exhaustive || schedule_choose(now.switch_in) == 0)
        schedule_switch();
}

void model_yield(void)
{
    model_watching = false;
    schedule_switch();
    model_watching = true;
}

uint32_t model_choose(uint32_t n)
{
    return schedule_choose(n);
}

uint32_t model_self(void)
{
    return model_thread;
}

/* ---- time ---- */

uint64_t model_now_ns(void)
{
    return now.now_ns;
}

void model_pass(uint64_t ns)
{
    const bool settled = (now.now_ns + ns) / MODEL_VISIBLE_NS != now.now_ns / MODEL_VISIBLE_NS;
    now.now_ns += ns;
    if (settled)
        memory_settle();
    for (uint32_t i = 0; i < now.test->nthreads; i++)
        if (now.fibers[i].asleep && now.fibers[i].wake_ns <= now.now_ns &&
            !schedule_is_lost(&now.fibers[i]))
            now.fibers[i].asleep = NULL;
}

void model_sleep(const volatile uint32_t *at, uint32_t value, uint64_t ns)
{
    model_watching = false;
    schedule_point();
    if (*at == value) {
        struct fiber *f = &now.fibers[model_thread];
        f->asleep = at;
        f->slept_ns = ns;
        f->wake_ns = now.now_ns + ns;
        schedule_switch();
    }
    model_watching = true;
}

void model_wake(const volatile uint32_t *at)
{
    for (uint32_t i = 0; i < now.test->nthreads; i++)
        if (now.fibers[i].asleep == at)
            now.fibers[i].asleep = NULL;
}

/* ---- runs ---- */

void model_fail(const char *format, ...)
{
    va_list ap;
    model_watching = false;
    va_start(ap, format);
    int n = snprintf(now.text, sizeof now.text, "thread %u: ", model_thread);
    vsnprintf(now.text + n, sizeof now.text - (size_t)n, format, ap);
    va_end(ap);
    now.failed = true;
    _longjmp(now.end, 1);
}

static void schedule_main(void)
{
    model_watching = true;
    now.test->thread(model_thread);
    model_watching = false;
    now.fibers[model_thread].done = true;
    schedule_switch();
}

static void schedule_prepare(uint32_t i)
{
    struct fiber *f = &now.fibers[i];
    char *stack = f->stack ? f->stack : malloc(STACK_BYTES);
    *f = (struct fiber){.stack = stack};
    getcontext(&f->start);
    f->start.uc_stack.ss_sp = stack;
    f->start.uc_stack.ss_size = STACK_BYTES;
    makecontext(&f->start, schedule_main, 0);
}

/* Executes one run. The probabilities vary from run to run. */
static void schedule_execute(uint64_t number)
{
    static const uint32_t one_in[] = {2, 4, 16, 64};
    now.state = (number + 1) * 0x9e3779b97f4a7c15u;
    now.at = 0;
    now.now_ns = 1000000000;
    now.steps = 0;
    for (int i = 0; i < 8; i++)
        schedule_random();
    now.switch_in = one_in[number % 4];
    now.old_in = one_in[number / 4 % 4];
    model_thread = 0;
    memory_begin();
    if (now.test->setup)
        now.test->setup();
    for (uint32_t i = 0; i < now.test->nthreads; i++)
        schedule_prepare(i);
    if (_setjmp(now.end) == 0)
        schedule_resume(schedule_choose(now.test->nthreads));
    model_watching = false;
    if (!now.failed && now.test->check && _setjmp(now.end) == 0)
        now.test->check();
}

bool model_run(const struct model_test *test, uint32_t runs_wanted)
{
    static uint32_t number;
    const char *only = getenv("RUN"); /* repeats one run */
    uint64_t run = only ? strtoull(only, NULL, 10) : 0, runs = 0;
    now.test = test;
    now.failed = false;
    now.nchoices = 0;
    do {
        schedule_execute(run++);
        runs++;
    } while (!now.failed && !only && (test->exhaustive ? schedule_advance() : run < runs_wanted));
    const bool passed = now.failed == test->must_fail;
    printf("%sok %u - %s: %" PRIu64 " runs\n", passed ? "" : "not ", ++number, test->name, runs);
    if (!passed && now.failed)
        printf("# run %" PRIu64 ": %s\n", run - 1, now.text);
    fflush(stdout);
    return passed;
}

int model_main(int argc, char **argv, const struct model_test *tests, size_t n)
{
    const uint32_t runs = argc > 1 ? (uint32_t)atoi(argv[1]) : 3000;
    bool good = true;
    for (size_t i = 0; i < n; i++)
        good =
            model_run(&tests[i], runs / (tests[i].runs_one_in ? tests[i].runs_one_in : 1)) && good;
    return !good;
}
