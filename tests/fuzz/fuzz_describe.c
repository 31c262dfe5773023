/* SPDX-License-Identifier: Apache-2.0
 *
 * libFuzzer target for what plugins make the engine say about them: the lines of its child process
 * that describes a backend and a workload, noise of the plugins among them. What was read is shown
 * in every way, and a job that uses both is planned. The sanitizers and the time limit are the
 * oracle, and: no text is missing that others rely on, and a job is either refused with an error or
 * planned.
 */
#include "plan/describe.c" /* describe_read_lines, which needs no child process */
#include "plan/plan.h"
#include "plan/planner.h"
#include "report/report.h"
#include "report/show_plugin.h"
#include "spec/job.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

enum { PLUGINS = 2 };

static struct prefix_plugin backend_file = {"b", "/b.so"}, workload_file = {"w", "/w.so"};
static struct prefix_plugins backends = {&backend_file, 1};
static struct prefix_plugins workloads = {&workload_file, 1};
static struct topology_cpu cpus[] = {{0, {0}}, {1, {1}}};
static const struct topology machine = {cpus, 2, {2, 1, 1, 1}};
static const char *const variables[] = {"PATH=/bin", NULL};
static FILE *nowhere;
static struct job job;
static struct arena job_arena;

static void must(bool held, const char *rule)
{
    if (held)
        return;
    fprintf(stderr, "broken rule: %s\n", rule);
    abort();
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    static const char text[] =
        "version: 1\nprocesses: {count: 2}\n"
        "backends: {b: {options: {depth: 4}}}\n"
        "groups: {g: {ranks: [0, 1], backend: auto}, h: {backend: b}}\n"
        "workloads: [{plugin: w, params: {bytes: 4KiB, op: sum, list: [1]}}]\n";
    struct diag_list diags;
    struct report report;
    char path[64];
    int fd = memfd_create("job", MFD_CLOEXEC);
    (void)argc, (void)argv;
    must(fd >= 0 && write(fd, text, sizeof text - 1) > 0, "there is memory");
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    diag_list_init(&diags);
    arena_init(&job_arena);
    must((nowhere = fopen("/dev/null", "we")) != NULL, "there is /dev/null");
    int code = job_read(&job, &(struct job_request){.file = path}, &job_arena, &diags);
    report_init(&report, stderr, true, job.sources);
    report_diags(&report, &diags);
    must(code == 0, "the job is good");
    diag_list_fini(&diags);
    close(fd);
    return 0;
}

static void check_plugin(const struct described *p)
{
    must(p->name && p->hint, "a plugin has a name");
    must(p->kind == DESCRIBE_WORKLOAD || (p->version && p->found && p->reason),
         "a backend has a version");
    for (uint32_t i = 0; i < p->nparams; i++)
        must(p->params[i].name && p->params[i].help, "a parameter has a name");
}

static void plan(const struct described *items, struct arena *arena)
{
    const struct topology *topologies[] = {&machine};
    const struct plan_input in = {.topologies = topologies,
                                  .backends = &backends,
                                  .workloads = &workloads,
                                  .plugins = items,
                                  .nplugins = PLUGINS,
                                  .environ = variables,
                                  .run_id = "r"};
    struct diag_list diags;
    struct report report;
    struct desc desc;
    diag_list_init(&diags);
    int code = plan_make(&job, &in, arena, &desc, &diags);
    must((code == 0) == (diag_list_count(&diags) == 0), "a refusal comes with an error");
    report_init(&report, nowhere, true, job.sources);
    report_diags(&report, &diags);
    diag_list_fini(&diags);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct described items[PLUGINS] = {
        {.kind = DESCRIBE_BACKEND, .path = "/b.so", .hint = ""},
        {.kind = DESCRIBE_WORKLOAD, .path = "/w.so", .hint = ""},
    };
    struct arena arena;
    struct buf in;
    arena_init(&arena);
    buf_init(&in);
    buf_put(&in, data, size);
    uint32_t done = describe_read_lines(&in, items, PLUGINS, 0, &arena);
    must(done <= PLUGINS, "each plugin is described once");
    for (uint32_t i = done; i < PLUGINS; i++)
        items[i].error = "no description";
    for (uint32_t i = 0; i < PLUGINS; i++) {
        if (items[i].error)
            continue;
        check_plugin(&items[i]);
        show_plugin(&items[i], nowhere);
        show_plugin_json(&items[i], nowhere);
    }
    plan(items, &arena);
    buf_fini(&in);
    arena_fini(&arena);
    return 0;
}
