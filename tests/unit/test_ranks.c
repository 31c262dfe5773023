/* SPDX-License-Identifier: Apache-2.0
 *
 * Signals of the agent to its ranks: each process of a rank gets a signal once. Real-time signals
 * are counted, since they do not merge.
 */
#include "agent/ranks.h"
#include "unit/emulated.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { MANY = 9 };

/* Exits with the number of signals SIGRTMIN that have arrived before SIGRTMAX. */
_Noreturn static void count_signals(const sigset_t *set)
{
    int n = 0;
    while (n < MANY && sigwaitinfo(set, NULL) == SIGRTMIN)
        n++;
    _exit(n);
}

/* How often a rank gets a signal that is sent once. */
static int signals_of(bool has_group)
{
    struct rank_proc rank = {.rank = 3};
    struct agent a = {.ranks = &rank, .nranks = 1};
    sigset_t set;
    int status;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN);
    sigaddset(&set, SIGRTMAX);
    sigprocmask(SIG_BLOCK, &set, NULL);
    rank.pid = fork();
    assert_true(rank.pid >= 0);
    if (rank.pid == 0)
        count_signals(&set);
    if (has_group)
        assert_int_equal(setpgid(rank.pid, rank.pid), 0);
    ranks_signal(&a, 3, SIGRTMIN);
    assert_int_equal(kill(rank.pid, SIGRTMAX), 0);
    assert_int_equal(waitpid(rank.pid, &status, 0), rank.pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void a_rank_gets_a_signal_once(void **state)
{
    (void)state;
    if (emulated()) /* qemu counts no real-time signals */
        skip();
    assert_int_equal(signals_of(true), 1);
}

static void also_before_it_has_a_process_group(void **state)
{
    (void)state;
    if (emulated())
        skip();
    assert_int_equal(signals_of(false), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_gets_a_signal_once),
        cmocka_unit_test(also_before_it_has_a_process_group),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
