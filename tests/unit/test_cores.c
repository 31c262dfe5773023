/* SPDX-License-Identifier: Apache-2.0
 *
 * runner/agent/placement.h: claims of cores, and the shares of ranks.
 */
#include "agent/placement.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static struct cores a, b;

/* No claim of another program has this name. */
static const char *name_of(pid_t pid)
{
    static char text[64];
    snprintf(text, sizeof text, "collrun-test-%d/", (int)pid);
    return text;
}

static const char *name(void)
{
    return name_of(getpid());
}

static void cores_are_claimed_once(void **state)
{
    (void)state;
    cores_open(&a, name());
    assert_true(a.n > 0 && a.claimed);
    cores_open(&b, name());
    assert_int_equal(b.n, a.n);
    assert_false(b.claimed);
    cores_close(&a);
    cores_close(&b);
    cores_open(&b, name());
    assert_true(b.claimed);
    cores_close(&b);
}

/* Another program, of any user, can bind the names; it does not take the cores from jobs. */
static void other_programs_claim_nothing(void **state)
{
    int ready[2], done[2];
    char byte = 0;
    (void)state;
    assert_int_equal(pipe(ready) + pipe(done), 0);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_NAME, "squatter");
        cores_open(&b, name_of(getppid()));
        _exit(write(ready[1], &byte, 1) + read(done[0], &byte, 1) < 0);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    cores_open(&a, name());
    const bool claimed = a.claimed;
    cores_open(&b, name());
    const bool again = b.claimed;
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    cores_close(&a);
    cores_close(&b);
    assert_true(claimed);
    assert_false(again); /* the claim of an agent holds, also by its second name */
}

/* Four cores of two hardware threads each: 0 and 4, 1 and 5, ... */
static void four_cores(struct cores *c)
{
    *c = (struct cores){.n = 4, .claimed = true};
    for (unsigned i = 0; i < 4; i++) {
        CPU_SET(i, &c->items[i].cpus);
        CPU_SET(i + 4, &c->items[i].cpus);
    }
}

static void ranks_get_equal_shares(void **state)
{
    (void)state;
    struct arena arena;
    arena_init(&arena);
    four_cores(&a);
    assert_string_equal(cores_share(&a, 2, 0, &arena), "0,1,4,5");
    assert_string_equal(cores_share(&a, 2, 1, &arena), "2,3,6,7");
    assert_string_equal(cores_share(&a, 3, 0, &arena), "0,4");
    assert_string_equal(cores_share(&a, 3, 1, &arena), "1,5");
    assert_string_equal(cores_share(&a, 3, 2, &arena), "2,3,6,7");
    assert_string_equal(cores_share(&a, 4, 3, &arena), "3,7");
    arena_fini(&arena);
}

static void ranks_are_not_bound(void **state)
{
    (void)state;
    struct arena arena;
    arena_init(&arena);
    four_cores(&a);
    assert_string_equal(cores_share(&a, 1, 0, &arena), ""); /* it has all cores anyway */
    assert_string_equal(cores_share(&a, 5, 0, &arena), "");
    a.claimed = false;
    assert_string_equal(cores_share(&a, 2, 0, &arena), "");
    arena_fini(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cores_are_claimed_once),
        cmocka_unit_test(other_programs_claim_nothing),
        cmocka_unit_test(ranks_get_equal_shares),
        cmocka_unit_test(ranks_are_not_bound),
    };
    return cmocka_run_group_tests_name("cores", tests, NULL, NULL);
}
