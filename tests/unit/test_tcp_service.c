/* SPDX-License-Identifier: Apache-2.0
 *
 * Who sends on the TCP backend: the thread of an operation, while the service thread sleeps, which
 * would take the core or the lock from it. Not with ThreadSanitizer, which has a thread that wakes
 * up by the clock.
 */
#include "p2p_suite.h"

#include <dirent.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

enum { ROUNDS = 40, ATTEMPTS = 5 };

static long switches_of(const char *tid)
{
    char path[64], line[128];
    long n = 0;
    snprintf(path, sizeof path, "/proc/self/task/%.16s/status", tid);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "voluntary_ctxt_switches: %ld", &n) == 1)
            break;
    }
    if (file)
        fclose(file);
    return n;
}

/* How often the other threads of this process have gone to sleep. */
static long others_slept(void)
{
    DIR *tasks = opendir("/proc/self/task");
    long n = 0;
    for (const struct dirent *entry; tasks && (entry = readdir(tasks));) {
        if (entry->d_name[0] != '.' && atoi(entry->d_name) != (int)gettid())
            n += switches_of(entry->d_name);
    }
    if (tasks)
        closedir(tasks);
    return n;
}

/* Runs the calls again and again: the other threads sleep meanwhile. On a machine with much else to
 * do the thread of the operation may lose its core, and the service thread helps: some attempt is
 * without that. */
static int repeat(struct harness_rank *r, const struct collrun_call *calls, uint32_t ncalls)
{
    HARNESS_CHECK(r, harness_exec(r->group, calls, ncalls) == COLLRUN_OK); /* connects */
    long least = LONG_MAX;
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        const long before = others_slept();
        for (int i = 0; i < ROUNDS; i++)
            HARNESS_CHECK(r, harness_exec(r->group, calls, ncalls) == COLLRUN_OK);
        const long slept = others_slept() - before;
        least = slept < least ? slept : least;
    }
    if (least >= ROUNDS / 2)
        return harness_fail(r, "the other threads have run %ld times in %d operations", least,
                            ROUNDS);
    return 0;
}

static int reduce_long(struct harness_rank *r)
{
    const size_t count = (4u << 20) / sizeof(float);
    float *memory = calloc(2 * count, sizeof *memory);
    struct collrun_call call = COLLRUN_CALL(COLLRUN_REDUCE);
    HARNESS_CHECK(r, memory);
    call.send = memory;
    call.recv = r->rank == 0 ? memory + count : NULL;
    call.count = count;
    call.dtype = COLLRUN_FLOAT32;
    call.op = COLLRUN_SUM;
    const int failed = repeat(r, &call, 1);
    free(memory);
    return failed;
}

/* Some pieces are granted before they are sent, so that they leave later than they are sent. */
static void the_service_thread_sleeps_during_an_operation(void **state)
{
#ifdef __SANITIZE_THREAD__
    skip();
#endif
    const struct harness_options options = options_for(state, 2);
    assert_int_equal(harness_run(&options, reduce_long), 0);
}

static int exchange_long(struct harness_rank *r)
{
    const size_t len = 4u << 20;
    char *memory = calloc(2, len);
    HARNESS_CHECK(r, memory);
    const struct collrun_call calls[2] = {
        harness_message(COLLRUN_SEND, memory, len, 1 - r->rank, 0),
        harness_message(COLLRUN_RECV, memory + len, len, 1 - r->rank, 0)};
    const int failed = repeat(r, calls, 2);
    free(memory);
    return failed;
}

static void the_service_thread_sleeps_during_messages(void **state)
{
#ifdef __SANITIZE_THREAD__
    skip();
#endif
    const struct harness_options options = options_for(state, 2);
    assert_int_equal(harness_run(&options, exchange_long), 0);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_service_thread_sleeps_during_an_operation),
        cmocka_unit_test(the_service_thread_sleeps_during_messages),
    };
    return cmocka_run_group_tests(tests, each_alone, NULL);
}
