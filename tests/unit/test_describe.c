/* SPDX-License-Identifier: Apache-2.0
 *
 * Querying plugins through a child process, here a shell script: good answers, noise between them,
 * a child that dies at one plugin, one that hangs, one that cannot be started. The checks of
 * workloads, likewise. And reading a host's
 * processors from a simulated /sys.
 */
#include "base/loop.h"
#include "base/standstill.h"
#include "base/topology.h"
#include "plan/describe.h"
#include "plan/params.h"

#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
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
    "\"native\",\"gather\":\"emulated\"},'\\\n"
    "    "
    "'\"memory\":[\"device\"],\"memory_kind\":{\"name\":\"hpu\",\"title\":\"HPU\",\"mask\":null,"
    "\"gpus\":false,\"declares\":true}}' ;;\n"
    "  *) echo "
    "'{\"kind\":\"workload\",\"path\":\"'${arg#*:}'\",\"name\":\"w\",\"summary\":\"s\",\"params\":["
    "{\"name\":\"n\",\"type\":'\\\n"
    "    "
    "'\"size\",\"default\":null,\"min\":\"1\",\"max\":null,\"help\":\"h\"},{\"name\":\"m\","
    "\"type\":\"bool\",\"default\":\"true\"},{\"name\":\"e\",\"type\":\"enum\",\"choices\":\"a|b\"}"
    "]}' ;;\n"
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

static void every_plugin_is_described(void **state)
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
    assert_string_equal(items[0].memory.name, "hpu");
    assert_string_equal(items[0].memory.mask, ""); /* none */
    assert_true(items[0].memory.declares && !items[0].memory.gpus);
    assert_int_equal(items[0].works_on, COLLRUN_MEMORY_DEVICE);
    assert_null(items[1].memory.name);
    assert_int_equal(items[0].operations[COLLRUN_SEND], DESCRIBE_NATIVE);
    assert_int_equal(items[0].operations[COLLRUN_GATHER], DESCRIBE_EMULATED);
    assert_int_equal(items[0].operations[COLLRUN_RECV], DESCRIBE_UNSUPPORTED);
    assert_int_equal(items[1].nparams, 3);
    assert_int_equal(items[1].params[0].type, COLLRUN_PARAM_SIZE);
    assert_null(items[1].params[0].def);
    assert_string_equal(items[1].params[0].min, "1");
    assert_string_equal(items[1].params[1].def, "true");
    assert_string_equal(items[1].params[1].help, "");
    assert_null(items[1].params[1].choices);
    assert_int_equal(items[1].params[2].type, COLLRUN_PARAM_ENUM);
    assert_string_equal(items[1].params[2].choices, "a|b");
    assert_string_equal(items[2].error, "no symbol");
    assert_string_equal(items[2].hint, "add it");
    arena_fini(&arena);
}

static void a_plugin_that_kills_the_engine_costs_only_itself(void **state)
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
    assert_string_equal(items[0].error, "the plugin crashes while it is loaded (SIGABRT)");
    assert_null(items[1].error);
    assert_string_equal(items[1].name, "w");
    assert_string_equal(items[2].error,
                        "the plugin ends the process while it is loaded (exit code 3)");
    assert_string_equal(items[3].error, "loading the plugin takes longer than 1.5 seconds");
    assert_null(items[4].error);
    assert_string_equal(items[4].name, "b");
    assert_true(end.tv_sec - begin.tv_sec >= 1 && end.tv_sec - begin.tv_sec <= 30);
    arena_fini(&arena);
}

/* ---- a busy machine ---- */

/* Two processes that take all the time of one CPU, which this process moves to. */
static void occupy_cpu(pid_t hogs[2])
{
    cpu_set_t one, all;
    CPU_ZERO(&one);
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    for (size_t cpu = 0; !CPU_COUNT(&one); cpu++) {
        if (CPU_ISSET(cpu, &all))
            CPU_SET(cpu, &one);
    }
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    for (int i = 0; i < 2; i++) {
        hogs[i] = fork();
        if (hogs[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            for (;;)
                continue;
        }
    }
}

/* A process of a lower priority than this one must be possible. */
static void skip_if_nice(void)
{
    if (getpriority(PRIO_PROCESS, 0) > 10)
        skip();
}

/* A nice value that leaves little beside processes of this one's. */
static int much_nicer(void)
{
    int mine = getpriority(PRIO_PROCESS, 0);
    return mine + 10 < 19 ? mine + 10 : 19;
}

/* This program as the child that is asked. It lowers its own priority, and needs as much CPU time
 * as the test wants: a child that slept meanwhile, until another program had done either, would be
 * late itself. */
static int answer_at_low_priority(const char *how)
{
    int nicer = 0, cpu_ms = 0;
    struct timespec used;
    if (sscanf(how, "%d %d", &nicer, &cpu_ms) != 2 ||
        (nicer ? setpriority(PRIO_PROCESS, 0, nicer)
               : sched_setscheduler(0, SCHED_IDLE, &(struct sched_param){0})) < 0)
        return 1;
    do {
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    } while (used.tv_sec * 1000 + used.tv_nsec / 1000000 < cpu_ms);
    puts("{\"kind\":\"workload\",\"path\":\"/w.so\",\"name\":\"w\",\"summary\":\"s\","
         "\"params\":[]}");
    return 0;
}

/* Describes a plugin that needs CPU_MS of CPU time, on such a CPU, at the nice value NICER, or, if
 * that is 0, only when no other process wants the CPU (SCHED_IDLE). Returns how long it took, in
 * seconds. */
static double describe_on_busy_cpu(int nicer, int cpu_ms, uint32_t deadline_ms,
                                   struct described *item, struct arena *arena)
{
    struct diag d;
    cpu_set_t all;
    pid_t hogs[2];
    char how[32];
    snprintf(how, sizeof how, "%d %d", nicer, cpu_ms);
    setenv("ANSWER_AT_LOW_PRIORITY", how, 1);
    sched_getaffinity(0, sizeof all, &all);
    occupy_cpu(hogs);
    uint64_t begin = now_ns();
    int rc = describe("/proc/self/exe", deadline_ms, item, 1, arena, &d);
    double seconds = (double)(now_ns() - begin) / 1e9;
    for (int i = 0; i < 2; i++) {
        kill(hogs[i], SIGKILL);
        waitpid(hogs[i], NULL, 0);
    }
    sched_setaffinity(0, sizeof all, &all);
    unsetenv("ANSWER_AT_LOW_PRIORITY");
    assert_int_equal(rc, 0);
    return seconds;
}

static void waiting_for_a_cpu_is_not_taken_for_a_plugin_that_hangs(void **state)
{
    struct described item;
    struct arena arena;
    double seconds = 0;
    (void)state;
    skip_if_nice();
    arena_init(&arena);
    /* Where the other CPUs are as busy, it waits for longer than is allowed. */
    for (uint32_t deadline_ms = 600; deadline_ms <= 9600; deadline_ms *= 4) {
        item = (struct described){.kind = DESCRIBE_WORKLOAD, .path = "/w.so"};
        seconds = describe_on_busy_cpu(much_nicer(), 100, deadline_ms, &item, &arena);
        print_message("it took %.1f s\n", seconds);
        if (!item.error || !strstr(item.error, "this machine is busy"))
            break;
    }
    assert_null(item.error);
    assert_string_equal(item.name, "w");
    assert_true(seconds > 0.6); /* else the CPU was not occupied */
    arena_fini(&arena);
}

static void a_machine_that_is_too_busy_is_named(void **state)
{
    struct described item = {.kind = DESCRIBE_WORKLOAD, .path = "/w.so"};
    struct arena arena;
    (void)state;
    skip_if_nice();
    arena_init(&arena);
    describe_on_busy_cpu(0, 1000, 200, &item, &arena);
    assert_non_null(item.error);
    assert_non_null(strstr(item.error, " seconds, most of which it waits for a CPU: this machine "
                                       "is busy"));
    arena_fini(&arena);
}

static void a_plugin_that_loops_is_named(void **state)
{
    static const char loop[] = "#!/bin/sh\nwhile :; do :; done\n";
    struct described item = {.kind = DESCRIBE_WORKLOAD, .path = "/w.so"};
    struct arena arena;
    struct diag d;
    char path[128];
    (void)state;
    arena_init(&arena);
    snprintf(path, sizeof path, "%s/loop", folder);
    write_file("loop", loop);
    chmod(path, 0700);
    assert_int_equal(describe(path, 500, &item, 1, &arena, &d), 0);
    if (!strstr(item.error, "this machine is busy"))
        assert_string_equal(item.error, "loading the plugin takes longer than 0.5 seconds");
    arena_fini(&arena);
}

static void what_counts_is_running_and_sleeping(void **state)
{
    enum { MS = 1000000 };
    static const struct {
        struct child_sample from, to;
        uint64_t wall_ms, want_ms;
    } cases[] = {
        {{0}, {.runnable = false}, 100, 100},                                 /* it sleeps */
        {{0}, {.runnable = true, .cpu_ns = 95 * MS}, 100, 95},                /* it loops */
        {{0}, {.runnable = true, .cpu_ns = 3 * MS}, 100, 3},                  /* it waits */
        {{0}, {.cpu_ns = 3 * MS, .delay_ns = 90 * MS}, 100, 10},              /* it has waited */
        {{0}, {.cpu_ns = 30 * MS, .delay_ns = 300 * MS}, 100, 30},            /* many threads */
        {{.cpu_ns = 5 * MS, .delay_ns = 9 * MS}, {.cpu_ns = 5 * MS}, 50, 50}, /* one has ended */
        {{0}, {.runnable = false}, 60000, 200}, /* the caller stood still as well */
        {{0}, {.runnable = true, .cpu_ns = 800 * MS}, 200, 200}, /* on several CPUs */
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(child_time_between(&cases[i].from, &cases[i].to, cases[i].wall_ms * MS) /
                             MS,
                         cases[i].want_ms);
}

static void a_missing_engine_is_an_error(void **state)
{
    (void)state;
    struct arena arena;
    struct diag d;
    struct described item = {.kind = DESCRIBE_BACKEND, .path = "/b.so"};
    arena_init(&arena);
    assert_int_equal(describe("/no/such/engine", 1000, &item, 1, &arena, &d), COLLRUN_ERR_SYSTEM);
    assert_int_equal(d.sys_errno, ENOENT);
    assert_int_equal(describe("/no/such/engine", 1000, &item, 0, &arena, &d),
                     0); /* nothing to ask for */
    arena_fini(&arena);
}

static void parts_of_a_host_are_read(void **state)
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
    assert_int_equal(t.nparts[TOPOLOGY_CORE], 4);
    assert_int_equal(t.nparts[TOPOLOGY_NUMA], 2);
    static const struct topology_cpu want[] = {
        {0, {0, 0, 0, 0}}, {4, {0, 0, 0, 0}}, {1, {1, 0, 0, 0}}, {5, {1, 0, 0, 0}},
        {2, {2, 1, 1, 0}}, {6, {2, 1, 1, 0}}, {3, {3, 1, 1, 0}}, {7, {3, 1, 1, 0}}};
    assert_memory_equal(t.cpus, want, sizeof want);
    assert_string_equal(topology_share(&t, TOPOLOGY_CORE, 2, 2, 1, &arena), "2,6,3,7");
    assert_string_equal(topology_share(&t, TOPOLOGY_NUMA, 1, 4, 1, &arena), "0,4,1,5");
    assert_string_equal(topology_share(&t, TOPOLOGY_SOCKET, 1, 4, 3, &arena), "0,4,1,5,2,6,3,7");
    for (int cpu = 0; cpu < 8; cpu++) { /* a cache per core, and a socket per node */
        char name[128];
        snprintf(name, sizeof name, "devices/system/cpu/cpu%d/cache/index3/level", cpu);
        write_file(name, "3\n");
        snprintf(name, sizeof name, "devices/system/cpu/cpu%d/cache/index3/shared_cpu_list", cpu);
        write_file(name, siblings[cpu]);
        snprintf(name, sizeof name, "devices/system/cpu/cpu%d/topology/physical_package_id", cpu);
        write_file(name, cpu % 4 < 2 ? "1\n" : "0\n");
    }
    assert_int_equal(topology_read(&t, folder, "0-7", &arena, &d), 0);
    assert_int_equal(t.nparts[TOPOLOGY_L3], 4);
    assert_int_equal(t.nparts[TOPOLOGY_SOCKET], 2);
    assert_string_equal(topology_share(&t, TOPOLOGY_SOCKET, 1, 2, 0, &arena), "2,6,3,7");
    assert_string_equal(topology_share(&t, TOPOLOGY_L3, 1, 4, 3, &arena), "1,5");
    for (int cpu = 0; cpu < 8; cpu++) {
        char name[128];
        snprintf(name, sizeof name, "devices/system/cpu/cpu%d/topology/physical_package_id", cpu);
        write_file(name, "0\n");
        snprintf(name, sizeof name, "devices/system/cpu/cpu%d/cache/index3/level", cpu);
        write_file(name, "2\n");
    }
    assert_int_equal(topology_read(&t, folder, "3,5-6", &arena, &d), 0); /* an affinity mask */
    static const struct topology_cpu some[] = {
        {5, {0, 0, 0, 0}}, {6, {1, 1, 1, 0}}, {3, {2, 1, 1, 0}}};
    assert_int_equal(t.ncpus, 3);
    assert_memory_equal(t.cpus, some, sizeof some);
    assert_int_equal(topology_read(&t, "/no/sys", "2-4", &arena, &d),
                     0); /* a kernel that reports no topology */
    assert_int_equal(t.nparts[TOPOLOGY_CORE], 3);
    assert_int_equal(t.nparts[TOPOLOGY_NUMA], 1);
    assert_int_equal(topology_read(&t, "/no/sys", "2-", &arena, &d), COLLRUN_ERR_INVALID);
    assert_int_equal(topology_read(&t, "/sys", NULL, &arena, &d), 0); /* this machine */
    assert_true(t.ncpus >= 1 && t.ncpus <= 8192);
    arena_fini(&arena);
}

/* ---- checks ---- */

/* Workload 0 accepts all ranks, 1 refuses some, 2 crashes, 3 hangs. */
static const char check_script[] =
    "#!/bin/sh\n"
    "[ \"$1\" = --check ] && [ \"$(head -c 4)\" = desc ] || exit 2\n"
    "shift\n"
    "echo noise\n"
    "for i; do\n"
    "  case $i in\n"
    "  1) echo '{\"workload\":1,\"rank\":0,\"param\":\"n\",\"error\":\"odd\"}'\n"
    "     echo '{\"workload\":1,\"rank\":1,\"param\":\"n\",\"error\":\"odd\"}'\n"
    "     echo '{\"workload\":1,\"rank\":2,\"param\":\"n\",\"error\":\"odd\"}'\n"
    "     echo '{\"workload\":1,\"rank\":2,\"param\":null,\"error\":\"no\"}'\n"
    "     echo '{\"workload\":1,\"rank\":2,\"param\":\"m\",\"error\":\"is not set\"}' ;;\n"
    "  2) kill -ABRT $$ ;;\n"
    "  3) exec sleep 60 ;;\n"
    "  esac\n"
    "  echo '{\"workload\":'$i',\"done\":true}'\n"
    "done\n";

static struct desc_kv some_kv = {.key = "n", .value = "3", .loc = {.line = 7}},
                      own_kv = {.key = "n", .value = "5", .loc = {.line = 9}};
static uint32_t rank_two[] = {2};
static struct desc_override own = {.ranks = {rank_two, 1}, .params = {&own_kv, 1}};
static struct desc_host check_host = {.name = "h", .nranks = 3, .workdir = ""};

/* A job whose only workload with a check is workload `index`. */
static void run_checks(uint32_t index, uint32_t deadline_ms, struct diag_list *diags)
{
    char path[128];
    struct described items[4];
    struct desc_workload workloads[4];
    struct desc_rank ranks[3] = {{.cpus = ""}, {.cpus = ""}, {.cpus = ""}};
    static const char *const paths[] = {"/0.so", "/1.so", "/2.so", "/3.so"};
    for (uint32_t i = 0; i < 4; i++) {
        items[i] = (struct described){
            .kind = DESCRIBE_WORKLOAD, .path = paths[i], .has_check = i == 0 || i == index};
        workloads[i] = (struct desc_workload){.name = "w",
                                              .plugin = paths[i],
                                              .params = {&some_kv, 1},
                                              .overrides = &own,
                                              .noverrides = 1,
                                              .loc = {.line = 4}};
    }
    struct desc desc = {.run_id = "",
                        .run_dir = "",
                        .job_name = "",
                        .job_file = "",
                        .interface = "",
                        .hosts = &check_host,
                        .nhosts = 1,
                        .ranks = ranks,
                        .nranks = 3,
                        .workloads = workloads,
                        .nworkloads = 4};
    struct plan_input in = {.plugins = items, .nplugins = 4};
    struct diag d;
    snprintf(path, sizeof path, "%s/checker", folder);
    write_file("checker", check_script);
    chmod(path, 0700);
    assert_int_equal(checks_run(&desc, &in, path, deadline_ms, diags, &d), 0);
}

static void what_a_check_refuses_is_reported_once_at_its_line(void **state)
{
    (void)state;
    struct diag_list diags;
    diag_list_init(&diags);
    run_checks(0, 10000, &diags);
    assert_int_equal(diag_list_count(&diags), 0);
    run_checks(1, 10000, &diags);
    assert_int_equal(diag_list_count(&diags), 4);
    assert_string_equal(diags.items[0].text, "workloads[1].params.n: odd");
    assert_int_equal(diags.items[0].loc.line, 7);
    assert_string_equal(diags.items[1].text, "workloads[1].per_ranks[0].params.n: odd");
    assert_int_equal(diags.items[1].loc.line, 9);
    assert_string_equal(diags.items[2].text, "workloads[1].params: no");
    assert_int_equal(diags.items[2].loc.line, 4);
    assert_string_equal(diags.items[3].text, "workloads[1].params.m: is not set");
    assert_int_equal(diags.items[3].loc.line, 4);
    diag_list_fini(&diags);
}

static void a_check_that_crashes_or_hangs_is_reported(void **state)
{
    (void)state;
    struct diag_list diags;
    diag_list_init(&diags);
    run_checks(2, 10000, &diags);
    run_checks(3, 500, &diags);
    assert_int_equal(diag_list_count(&diags), 2);
    assert_string_equal(diags.items[0].text, "workloads[2].plugin: the plugin crashes while it "
                                             "checks the parameters (SIGABRT)");
    assert_int_equal(diags.items[0].loc.line, 4);
    assert_string_equal(
        diags.items[1].text,
        "workloads[3].plugin: the check of the parameters takes longer than 0.5 seconds");
    diag_list_fini(&diags);
}

int main(void)
{
    const char *how = getenv("ANSWER_AT_LOW_PRIORITY");
    if (how)
        return answer_at_low_priority(how);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_plugin_is_described),
        cmocka_unit_test(a_plugin_that_kills_the_engine_costs_only_itself),
        cmocka_unit_test(waiting_for_a_cpu_is_not_taken_for_a_plugin_that_hangs),
        cmocka_unit_test(a_machine_that_is_too_busy_is_named),
        cmocka_unit_test(a_plugin_that_loops_is_named),
        cmocka_unit_test(what_counts_is_running_and_sleeping),
        cmocka_unit_test(a_missing_engine_is_an_error),
        cmocka_unit_test(what_a_check_refuses_is_reported_once_at_its_line),
        cmocka_unit_test(a_check_that_crashes_or_hangs_is_reported),
        cmocka_unit_test(parts_of_a_host_are_read),
    };
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
