/* SPDX-License-Identifier: Apache-2.0
 *
 * libFuzzer target for everything between the bytes of a job file and its plan: YAML, --set,
 * schema, checks, plan, the description's codec, and the printing of what was found. A first line
 * "#set PATH=VALUE" becomes a --set. The sanitizers and libFuzzer's own time limit are the oracle,
 * and two rules: a job is either refused with an error or planned; and what has been planned can be
 * encoded and decoded.
 */
#include "plan/plan.h"
#include "plan/planner.h"
#include "report/report.h"
#include "spec/job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct prefix_plugin backend_files[] = {{"gloo", "/gloo.so"}, {"shm", "/shm.so"}};
static struct prefix_plugins backends = {backend_files, 2};
static struct prefix_plugin workload_files[] = {{"allreduce", "/allreduce.so"},
                                                {"hello", "/hello.so"}};
static struct prefix_plugins workloads = {workload_files, 2};
static struct describe_param params[] = {
    {.name = "bytes", .min = "4", .max = "1GiB", .help = "size", .type = COLLRUN_PARAM_SIZE},
    {.name = "iters", .def = "10", .min = "1", .help = "count", .type = COLLRUN_PARAM_INT},
    {.name = "scale",
     .def = "1",
     .min = "0.5",
     .max = "2",
     .help = "",
     .type = COLLRUN_PARAM_FLOAT},
    {.name = "tag", .def = "-", .help = "", .type = COLLRUN_PARAM_STRING},
    {.name = "op",
     .def = "sum",
     .help = "",
     .type = COLLRUN_PARAM_ENUM,
     .choices = "sum|prod|min"}};
static const struct described installed[] = {
    {.kind = DESCRIBE_BACKEND, .path = "/gloo.so", .name = "gloo", .available = true, .hint = ""},
    {.kind = DESCRIBE_BACKEND,
     .path = "/shm.so",
     .name = "shm",
     .available = true,
     .hint = "",
     .flags = COLLRUN_BACKEND_ONE_HOST},
    {.kind = DESCRIBE_WORKLOAD,
     .path = "/allreduce.so",
     .name = "allreduce",
     .hint = "",
     .params = params,
     .nparams = 5},
    {.kind = DESCRIBE_WORKLOAD, .path = "/hello.so", .name = "hello", .hint = ""},
};
static const char *const variables[] = {"PATH=/bin", "OMP_NUM_THREADS=4", NULL};
static struct topology_cpu cpus[] = {{0, {0}}, {1, {1}}};
static const struct topology machine = {cpus, 2, {2, 1, 1, 1}};

static void must(bool held, const char *rule)
{
    if (held)
        return;
    fprintf(stderr, "broken rule: %s\n", rule);
    abort();
}

static void check_codec(const struct desc *desc, struct arena *arena)
{
    struct buf bytes;
    struct desc back;
    buf_init(&bytes);
    desc_encode(desc, &bytes);
    must(desc_decode(arena, &back, bytes.data, bytes.len, NULL) == 0,
         "a plan can be encoded and decoded");
    buf_fini(&bytes);
}

/* What is installed, and a word from every plugin that the job names by a path. */
static const struct described *describe_all(const struct job *job, struct arena *arena, uint32_t *n)
{
    struct diag d;
    const char *name = NULL;
    *n = sizeof installed / sizeof *installed;
    struct described *all =
        arena_calloc(arena, (size_t)*n + job->nbackends + job->nworkloads, sizeof *all);
    if (!all)
        return NULL;
    memcpy(all, installed, sizeof installed);
    for (uint32_t i = 0; i < job->nbackends; i++) {
        const struct job_backend *b = &job->backends[i];
        const char *path = lookup_backend(job, &backends, b->name, arena, &name, &d);
        if (path && b->path.v)
            all[(*n)++] = (struct described){.kind = DESCRIBE_BACKEND,
                                             .path = path,
                                             .name = b->name,
                                             .available = true,
                                             .hint = ""};
    }
    for (uint32_t i = 0; i < job->nworkloads; i++) {
        const char *written = job->workloads[i].plugin.v;
        const char *path = written && strchr(written, '/')
                               ? lookup_workload(job, &workloads, written, arena, &d)
                               : NULL;
        if (path)
            all[(*n)++] = (struct described){
                .kind = DESCRIBE_WORKLOAD, .path = path, .name = "other", .hint = ""};
    }
    return all;
}

static void plan(const struct job *job, struct arena *arena, struct diag_list *diags)
{
    struct desc desc;
    uint32_t nplugins;
    const struct described *plugins = describe_all(job, arena, &nplugins);
    const struct topology **topologies = arena_calloc(arena, job->hosts.n, sizeof *topologies);
    if (!topologies || !plugins)
        return;
    for (uint32_t i = 0; i < job->hosts.n; i++)
        topologies[i] =
            job->hosts.nodes[i].transport.kind.v == JOB_TRANSPORT_LOCAL ? &machine : NULL;
    struct plan_input in = {.topologies = topologies,
                            .backends = &backends,
                            .workloads = &workloads,
                            .plugins = plugins,
                            .nplugins = nplugins,
                            .environ = variables,
                            .run_id = "r"};
    int code = plan_make(job, &in, arena, &desc, diags);
    if (code == 0 && diag_list_count(diags) == 0)
        check_codec(&desc, arena);
}

/* The text of a leading "#set ..." line, or NULL. */
static const char *find_set(const uint8_t *data, size_t size, struct arena *arena)
{
    const uint8_t *end = size > 5 && !memcmp(data, "#set ", 5) ? memchr(data, '\n', size) : NULL;
    return end ? arena_strndup(arena, (const char *)data + 5, (size_t)(end - data) - 5) : NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static FILE *nowhere;
    if (!nowhere)
        nowhere = fopen("/dev/null", "we");
    struct arena arena;
    struct diag_list diags;
    struct report report;
    struct job job;
    char path[64];
    arena_init(&arena);
    diag_list_init(&diags);
    int fd = memfd_create("job", MFD_CLOEXEC);
    if (fd < 0 || !nowhere || write(fd, data, size) != (ssize_t)size)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    const char *set = find_set(data, size, &arena);
    int code =
        job_read(&job, &(struct job_request){.file = path, .sets = &set, .nsets = set != NULL},
                 &arena, &diags);
    close(fd);
    must((code == 0) == (diag_list_count(&diags) == 0),
         "a refusal comes with an error, an error with a refusal");
    must(code < 0 || job.complete, "what is not refused is complete");
    if (job.complete)
        plan(&job, &arena, &diags);
    report_init(&report, nowhere, true, job.sources);
    report_diags(&report, &diags);
    diag_list_fini(&diags);
    arena_fini(&arena);
    return 0;
}
