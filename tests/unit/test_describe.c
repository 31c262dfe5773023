/* SPDX-License-Identifier: Apache-2.0
 *
 * Asking plugins through a child process, here a shell script: good answers, noise between them, a
 * child that dies at one plugin, one that hangs, one that cannot be started. And reading a host's
 * processors from a pretended /sys.
 */
#include "plan/describe.h"
#include "plan/topology.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/collrun-test-XXXXXX";

static void write_file(const char *name, const char *text)
{
    char path[512], part[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    for (char *slash = strchr(path + strlen(folder) + 1, '/'); slash;
         slash = strchr(slash + 1, '/')) {
        snprintf(part, sizeof part, "%.*s", (int)(slash - path), path);
        mkdir(part, 0700);
    }
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int drop_folder(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

static const char script[] =
    "#!/bin/sh\n"
    "shift\n"
    "for arg; do\n"
    "  case $arg in\n"
    "  *crash*) kill -ABRT $$ ;;\n"
    "  *exit*) exit 3 ;;\n"
    "  *hang*) exec sleep 60 ;;\n"
    "  *bad*) echo '{\"kind\":\"workload\",\"path\":\"'${arg#*:}'\",\"error\":\"no "
    "symbol\",\"hint\":\"add it\"}' ;;\n"
    "  backend*) echo 'noise'; echo '{\"path\":\"/elsewhere\"}'; echo '[1'\n"
    "    echo "
    "'{\"kind\":\"backend\",\"path\":\"'${arg#*:}'\",\"name\":\"b\",\"version\":\"2\",\"abi\":1,"
    "\"available\":false,'\\\n"
    "    "
    "'\"reason\":\"r\",\"flags\":[\"one_host\",\"recv_any\",\"new_one\"],\"operations\":{\"send\":"
    "\"native\",\"gather\":\"emulated\"}}' ;;\n"
    "  *) echo "
    "'{\"kind\":\"workload\",\"path\":\"'${arg#*:}'\",\"name\":\"w\",\"summary\":\"s\",\"params\":["
    "{\"name\":\"n\",\"type\":'\\\n"
    "    "
    "'\"size\",\"default\":null,\"min\":\"1\",\"max\":null,\"help\":\"h\"},{\"name\":\"m\","
    "\"type\":\"bool\",\"default\":\"true\"}]}' ;;\n"
    "  esac\n"
    "done\n";

static const char *engine(void)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/engine", folder);
    write_file("engine", script);
    chmod(path, 0700);
    return path;
}

static void test_answers(void **state)
{
    (void)state;
    struct arena arena;
    struct diag d;
    struct described items[] = {{.kind = DESCRIBE_BACKEND, .path = "/b.so"},
                                {.kind = DESCRIBE_WORKLOAD, .path = "/w.so"},
                                {.kind = DESCRIBE_WORKLOAD, .path = "/bad.so"}};
    arena_init(&arena);
    assert_int_equal(describe(engine(), 10000, items, 3, &arena, &d), 0);
    assert_null(items[0].error);
    assert_string_equal(items[0].name, "b");
    assert_false(items[0].available);
    assert_string_equal(items[0].reason, "r");
    assert_int_equal(items[0].flags, COLLRUN_BACKEND_ONE_HOST | COLLRUN_BACKEND_RECV_ANY);
    assert_int_equal(items[0].operations[COLLRUN_SEND], DESCRIBE_NATIVE);
    assert_int_equal(items[0].operations[COLLRUN_GATHER], DESCRIBE_EMULATED);
    assert_int_equal(items[0].operations[COLLRUN_RECV], DESCRIBE_UNSUPPORTED);
    assert_int_equal(items[1].nparams, 2);
    assert_int_equal(items[1].params[0].type, COLLRUN_PARAM_SIZE);
    assert_null(items[1].params[0].def);
    assert_string_equal(items[1].params[0].min, "1");
    assert_string_equal(items[1].params[1].def, "true");
    assert_string_equal(items[1].params[1].help, "");
    assert_string_equal(items[2].error, "no symbol");
    assert_string_equal(items[2].hint, "add it");
    arena_fini(&arena);
}

static void test_deaths(void **state)
{
    (void)state;
    struct arena arena;
    struct diag d;
    struct described items[] = {{.kind = DESCRIBE_WORKLOAD, .path = "/crash.so"},
                                {.kind = DESCRIBE_WORKLOAD, .path = "/w.so"},
                                {.kind = DESCRIBE_WORKLOAD, .path = "/exit.so"},
                                {.kind = DESCRIBE_WORKLOAD, .path = "/hang.so"},
                                {.kind = DESCRIBE_BACKEND, .path = "/b.so"}};
    arena_init(&arena);
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    assert_int_equal(describe(engine(), 1500, items, 5, &arena, &d), 0);
    clock_gettime(CLOCK_MONOTONIC, &end);
    assert_string_equal(items[0].error, "it crashes when it is loaded (SIGABRT)");
    assert_null(items[1].error);
    assert_string_equal(items[1].name, "w");
    assert_string_equal(items[2].error, "it ends the process that loads it (exit code 3)");
    assert_string_equal(items[3].error, "it does not finish loading within 1.5 seconds");
    assert_null(items[4].error);
    assert_string_equal(items[4].name, "b");
    assert_in_range(end.tv_sec - begin.tv_sec, 1, 30);
    arena_fini(&arena);
}

static void test_no_engine(void **state)
{
    (void)state;
    struct arena arena;
    struct diag d;
    struct described item = {.kind = DESCRIBE_BACKEND, .path = "/b.so"};
    arena_init(&arena);
    assert_int_equal(describe("/no/such/engine", 1000, &item, 1, &arena, &d), COLLRUN_ERR_SYSTEM);
    assert_int_equal(d.sys_errno, ENOENT);
    assert_int_equal(describe("/no/such/engine", 1000, &item, 0, &arena, &d),
                     0); /* nobody to ask */
    arena_fini(&arena);
}

static void test_topology(void **state)
{
    (void)state;
    struct arena arena;
    struct topology t;
    struct diag d;
    static const char *const siblings[] = {"0,4\n", "1,5\n", "2,6\n", "3,7\n",
                                           "0,4\n", "1,5\n", "2,6\n", "3,7\n"};
    for (int cpu = 0; cpu < 8; cpu++) {
        char name[128];
        snprintf(name, sizeof name, "devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
        write_file(name, siblings[cpu]);
    }
    write_file("devices/system/node/node1/cpulist", "0-1,4-5\n");
    write_file("devices/system/node/node3/cpulist", "2-3,6-7\n");
    arena_init(&arena);
    assert_int_equal(topology_read(&t, folder, "0-7", &arena, &d), 0);
    assert_int_equal(t.ncpus, 8);
    assert_int_equal(t.ncores, 4);
    assert_int_equal(t.nnumas, 2);
    static const struct topology_cpu want[] = {{0, 0, 0}, {4, 0, 0}, {1, 1, 0}, {5, 1, 0},
                                               {2, 2, 1}, {6, 2, 1}, {3, 3, 1}, {7, 3, 1}};
    assert_memory_equal(t.cpus, want, sizeof want);
    assert_int_equal(topology_read(&t, folder, "3,5-6", &arena, &d), 0); /* an affinity mask */
    static const struct topology_cpu some[] = {{5, 0, 0}, {6, 1, 1}, {3, 2, 1}};
    assert_int_equal(t.ncpus, 3);
    assert_memory_equal(t.cpus, some, sizeof some);
    assert_int_equal(topology_read(&t, "/no/sys", "2-4", &arena, &d),
                     0); /* a kernel that tells nothing */
    assert_int_equal(t.ncores, 3);
    assert_int_equal(t.nnumas, 1);
    assert_int_equal(topology_read(&t, "/no/sys", "2-", &arena, &d), COLLRUN_ERR_INVALID);
    assert_int_equal(topology_read(&t, "/sys", NULL, &arena, &d), 0); /* this machine */
    assert_in_range(t.ncpus, 1, 8192);
    arena_fini(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_deaths),
        cmocka_unit_test(test_no_engine),
        cmocka_unit_test(test_topology),
    };
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
