/* SPDX-License-Identifier: Apache-2.0
 *
 * What an agent finds out about its host, on hosts that are not at hand: one with 2048 CPUs, two
 * virtual machines of one snapshot; and what it adds to a long LD_LIBRARY_PATH.
 */
#include "agent/address.h"
#include "agent/engine_query.h"
#include "agent/placement.h"
#include "base/topology.h"

#include <errno.h>
#include <linux/mempolicy.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/collrun-test-XXXXXX";

/* In place of the C library's: a kernel with 2048 CPUs, which refuses smaller sets. */
int sched_getaffinity(pid_t pid, size_t size, cpu_set_t *set)
{
    (void)pid;
    if (size < 2048 / 8) {
        errno = EINVAL;
        return -1;
    }
    memset(set, 0, size);
    CPU_SET_S(3, size, set);
    CPU_SET_S(1500, size, set);
    return 0;
}

static void a_host_may_have_more_cpus_than_a_cpu_set(void **state)
{
    struct cpus cpus;
    struct topology t;
    struct arena arena;
    struct diag d;
    static struct cores cores;
    (void)state;
    arena_init(&arena);
    assert_int_equal(cpus_usable(0), 2);
    assert_int_equal(cpus_read(&cpus, 0), 0);
    assert_true(cpus_has(&cpus, 3) && cpus_has(&cpus, 1500));
    assert_false(cpus_has(&cpus, 1499) || cpus_has(&cpus, CPUS_MAX));
    cpus_add(&cpus, 4000);
    cpus_add(&cpus, CPUS_MAX);
    assert_true(cpus_has(&cpus, 4000));
    assert_int_equal(topology_read(&t, "/no/sys", NULL, &arena, &d), 0);
    assert_int_equal(t.ncpus, 2);
    assert_int_equal(t.cpus[1].cpu, 1500);
    cores_open(&cores, "collrun-test-host-facts");
    assert_string_equal(cores_share(&cores, 2, 0, &arena), "");
    assert_non_null(strstr(cores_why_not(&cores, 2, &arena), "a host with more than"));
    cores_close(&cores);
    arena_fini(&arena);
}

static void make(const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = text ? fopen(path, "we") : NULL;
    if (f) {
        fputs(text, f);
        fclose(f);
    } else {
        assert_int_equal(mkdir(path, 0700), 0);
    }
}

static void machines_of_one_snapshot_differ(void **state)
{
    char boot[256], one[256], two[256], first[160], again[160], second[160];
    (void)state;
    make("boot_id", "f00\n");
    make("one", NULL);
    make("one/eth0", NULL);
    make("one/eth0/device", NULL);
    make("one/eth0/address", "52:54:00:00:00:01\n");
    make("two", NULL);
    make("two/eth0", NULL);
    make("two/eth0/device", NULL);
    make("two/eth0/address", "52:54:00:00:00:02\n");
    snprintf(boot, sizeof boot, "%s/boot_id", folder);
    snprintf(one, sizeof one, "%s/one", folder);
    snprintf(two, sizeof two, "%s/two", folder);
    machine_name(boot, one, first, sizeof first);
    make("one/docker0", NULL); /* a bridge that appears is no other machine */
    make("one/docker0/address", "02:42:00:00:00:01\n");
    machine_name(boot, one, again, sizeof again);
    machine_name(boot, two, second, sizeof second);
    assert_memory_equal(first, "f00/", 4);
    assert_string_equal(first, again);
    assert_string_not_equal(first, second);
    machine_name("/no/boot_id", one, first, sizeof first);
    assert_string_equal(first, "");
    machine_name(boot, "/no/net", first, sizeof first);
    assert_string_not_equal(first, "");
}

static int node_of(const char *list)
{
    struct cpus cpus = {0};
    char sys[256];
    snprintf(sys, sizeof sys, "%s/sys", folder);
    cpus_add_list(&cpus, list);
    return memory_policy_node(sys, &cpus);
}

static void memory_is_that_of_the_only_node_of_the_cpus(void **state)
{
    struct cpus some = {0};
    (void)state;
    make("sys", NULL);
    make("sys/devices", NULL);
    make("sys/devices/system", NULL);
    make("sys/devices/system/node", NULL);
    assert_int_equal(node_of("0"), -1); /* a kernel without NUMA */
    make("sys/devices/system/node/online", "0,8-9\n");
    make("sys/devices/system/node/node0", NULL);
    make("sys/devices/system/node/node0/cpulist", "0-3,16-19\n");
    make("sys/devices/system/node/node8", NULL);
    make("sys/devices/system/node/node8/cpulist", "4-7,1500\n");
    make("sys/devices/system/node/node9", NULL);
    make("sys/devices/system/node/node9/cpulist", "\n"); /* memory without CPUs */
    assert_int_equal(node_of("0-3"), 0);
    assert_int_equal(node_of("2,17"), 0);
    assert_int_equal(node_of("7,1500"), 8);
    assert_int_equal(node_of("3-4"), -1);
    assert_int_equal(node_of("99"), -1);
    assert_int_equal(node_of(""), -1);
    cpus_add_list(&some, "3-4,x");
    cpus_keep(&some, &(struct cpus){0});
    assert_false(cpus_has(&some, 3));
}

/* In a process with another policy nothing is changed, as numactl expects. */
static void a_chosen_policy_stays(void **state)
{
    unsigned long node = 1;
    int mode = -1;
    (void)state;
    if (!memory_policy_is_open() || memory_policy_node("/sys", &(struct cpus){0}) != -1)
        skip();
    memory_policy_set(-1);
    assert_true(memory_policy_is_open());
    assert_int_equal(syscall(SYS_set_mempolicy, MPOL_INTERLEAVE, &node, 64), 0);
    memory_policy_set(0);
    assert_int_equal(syscall(SYS_get_mempolicy, &mode, NULL, 0, NULL, 0), 0);
    assert_int_equal(mode, MPOL_INTERLEAVE);
    assert_int_equal(syscall(SYS_set_mempolicy, MPOL_DEFAULT, NULL, 0), 0);
    memory_policy_set(0);
    assert_int_equal(syscall(SYS_get_mempolicy, &mode, NULL, 0, NULL, 0), 0);
    assert_int_equal(mode, MPOL_PREFERRED);
    assert_int_equal(syscall(SYS_set_mempolicy, MPOL_DEFAULT, NULL, 0), 0);
}

static void a_long_library_path_stays_whole(void **state)
{
    enum { LEN = 20000 };
    static char old[LEN + 8];
    char engine[256];
    (void)state;
    make("libexec", NULL);
    make("libexec/collrun", NULL);
    make("lib", NULL);
    make("lib/collrun", NULL);
    make("lib/collrun/private", NULL);
    memset(old, 'a', LEN);
    memcpy(old + LEN, ":/last", 7);
    setenv("LD_LIBRARY_PATH", old, 1);
    snprintf(engine, sizeof engine, "%s/libexec/collrun/collrun-engine", folder);
    engine_path_set_libraries(engine);
    const char *path = getenv("LD_LIBRARY_PATH"), *colon = strchr(path, ':');
    assert_non_null(colon);
    assert_memory_equal(colon - 8, "/private", 8);
    assert_string_equal(colon + 1, old);
    unsetenv("LD_LIBRARY_PATH");
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int drop_folder(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_host_may_have_more_cpus_than_a_cpu_set),
        cmocka_unit_test(machines_of_one_snapshot_differ),
        cmocka_unit_test(memory_is_that_of_the_only_node_of_the_cpus),
        cmocka_unit_test(a_chosen_policy_stays),
        cmocka_unit_test(a_long_library_path_stays_whole),
    };
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
