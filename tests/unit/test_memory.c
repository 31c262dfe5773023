/* SPDX-License-Identifier: Apache-2.0
 *
 * What the agent reads from a cgroup, on made-up trees of both versions.
 */
#include "agent/memory_watch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char root[] = "/tmp/test_memory.XXXXXX";

static const char *path(const char *name)
{
    static char text[2][256];
    static int turn;
    turn = !turn;
    snprintf(text[turn], sizeof text[turn], "%s/%s", root, name);
    return text[turn];
}

static void file(const char *name, const char *content)
{
    FILE *f = fopen(path(name), "w");
    assert_non_null(f);
    fputs(content, f);
    fclose(f);
}

/* Expects that a kill was recorded since the last call, with this text; NULL: none was. */
static void expect_kill(struct memory_watch *w, const char *reason)
{
    char text[96] = "";
    assert_int_equal(memory_watch_claim_kill(w, text, sizeof text), reason != NULL);
    if (reason)
        assert_string_equal(text, reason);
}

static void version_2(void **state)
{
    struct memory_watch w;
    (void)state;
    mkdir(path("job"), 0700);
    file("proc", "1:name=systemd:/x\n0::/job\n");
    file("job/memory.events", "low 0\nhigh 0\nmax 3\noom 2\noom_kill 4\noom_group_kill 0\n");
    file("job/memory.max", "67108864\n");
    memory_watch_init(&w, path("proc"), root);
    expect_kill(&w, NULL);
    file("job/memory.events", "oom 3\noom_kill 6\n");
    expect_kill(&w, "the memory limit of its cgroup is 64MiB");
    file("job/memory.max", "max\n");
    expect_kill(&w, "the host ran out of memory");
    expect_kill(&w, NULL); /* two kills, two ranks */
}

/* A child of a rank was killed, and much later something else kills a rank. */
static void a_kill_that_no_rank_has_claimed_is_forgotten(void **state)
{
    const uint64_t second = 1000000000;
    struct memory_watch w;
    (void)state;
    file("job/memory.events", "oom_kill 4\n");
    file("job/memory.max", "max\n");
    memory_watch_init(&w, path("proc"), root);
    file("job/memory.events", "oom_kill 6\n");
    memory_watch_expire(&w, 100 * second); /* sees both */
    expect_kill(&w, "the host ran out of memory");
    memory_watch_expire(&w, 101 * second);
    memory_watch_expire(&w, 131 * second);
    expect_kill(&w, NULL);
    file("job/memory.events", "oom_kill 7\n");
    memory_watch_expire(&w, 132 * second);
    memory_watch_expire(&w, 161 * second); /* sees the third, */
    memory_watch_expire(&w, 190 * second);
    expect_kill(&w, "the host ran out of memory"); /* which is young enough */
    memory_watch_expire(&w, 191 * second);
    expect_kill(&w, NULL);
}

static void version_1(void **state)
{
    struct memory_watch w;
    (void)state;
    mkdir(path("memory"), 0700);
    mkdir(path("memory/job"), 0700);
    file("proc", "8:cpu:/\n4:memory:/job\n0::/\n");
    file("memory/job/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n");
    file("memory/job/memory.limit_in_bytes", "1048576\n");
    memory_watch_init(&w, path("proc"), root);
    expect_kill(&w, NULL);
    file("memory/job/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n");
    expect_kill(&w, "the memory limit of its cgroup is 1MiB");
}

/* A container sees its own cgroup as the root, under a path that is only the host's. */
static void container(void **state)
{
    struct memory_watch w;
    (void)state;
    file("proc", "0::/kubepods/pod1\n");
    file("memory.events", "oom_kill 1\n");
    file("memory.max", "max\n");
    memory_watch_init(&w, path("proc"), root);
    expect_kill(&w, NULL);
    file("memory.events", "oom_kill 2\n");
    expect_kill(&w, "the host ran out of memory");
}

static void nothing_to_read(void **state)
{
    struct memory_watch w;
    (void)state;
    memory_watch_init(&w, path("absent"), root);
    expect_kill(&w, NULL);
    file("proc", "garbage\n:\n::\n");
    unlink(path("memory.events"));
    memory_watch_init(&w, path("proc"), root);
    expect_kill(&w, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(version_2),
        cmocka_unit_test(a_kill_that_no_rank_has_claimed_is_forgotten),
        cmocka_unit_test(version_1),
        cmocka_unit_test(container),
        cmocka_unit_test(nothing_to_read),
    };
    if (!mkdtemp(root))
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    char command[300];
    snprintf(command, sizeof command, "rm -rf %s", root);
    return system(command) == 0 ? failed : 1;
}
