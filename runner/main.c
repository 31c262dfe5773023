/* SPDX-License-Identifier: Apache-2.0
 *
 * collrun, the command. Every subcommand goes the same way as far as it needs to: read the job, ask
 * the plugins, plan, launch. All errors of the first three are printed together, and nothing is
 * started then.
 */
#include "build_id.h"
#include "launch/doctor.h"
#include "launch/launch.h"
#include "opts.h"
#include "plan/scout.h"
#include "prefix.h"
#include "spec/schema_text.h"
#include "tell/report.h"
#include "tell/show.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

enum { EXIT_JOB = 2, EXIT_INTERNAL = 125, EXIT_PLUGIN = 126 };

struct session { /* what one call of collrun holds */
    struct arena arena;
    struct opts opts;
    struct report report;
    struct diag_list diags;
    struct job job;
    struct prefix_plugins backends, workloads;
    struct plan_input in;
    struct desc desc;
};

/* Prints an error that has nothing to do with the job; returns the exit code. */
static int fail(struct session *s, const struct diag *d, int exit_code)
{
    report_diag(&s->report, d);
    return exit_code;
}

/* Prints what has been collected; 126 when plugins are all that is wrong. */
static int fail_all(struct session *s)
{
    int exit_code = s->opts.command == OPTS_CHECK ? EXIT_JOB : EXIT_PLUGIN;
    for (uint32_t i = 0; i < s->diags.n; i++)
        if (s->diags.items[i].code != COLLRUN_ERR_UNAVAILABLE)
            exit_code = EXIT_JOB;
    report_diags(&s->report, &s->diags);
    return exit_code;
}

/* "20261121-053012-3f9a": sorts by time, and two runs of one second differ. */
static const char *make_run_id(struct arena *arena)
{
    char text[32];
    struct tm tm;
    time_t now = time(NULL);
    uint16_t random = (uint16_t)getpid();
    if (getrandom(&random, sizeof random, GRND_NONBLOCK) != sizeof random)
        random = (uint16_t)getpid();
    localtime_r(&now, &tm);
    strftime(text, sizeof text, "%Y%m%d-%H%M%S", &tm);
    return arena_printf(arena, "%s-%04x", text, random);
}

static bool wants_gpus(const struct job *job)
{
    bool wants = job->processes.gpus_per_process.v > 0;
    for (uint32_t i = 0; i < job->ngroups; i++)
        wants = wants || job->groups[i].gpus_per_process.v > 0;
    return wants;
}

/* The GPUs of this machine, if the job asks for any; those of others are not known here. */
static int read_gpus(struct session *s, struct diag *d)
{
    const struct job *job = &s->job;
    struct gpus all, *here = arena_alloc(&s->arena, sizeof *here);
    const struct gpus **list = arena_calloc(&s->arena, job->hosts.n, sizeof *list);
    if (!wants_gpus(job))
        return 0;
    if (!list || !here)
        return diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory");
    int code = gpus_find(&all, "/proc/driver/nvidia", "/sys", &s->arena, d);
    if (code == 0)
        code = gpus_pool(&all, getenv("CUDA_VISIBLE_DEVICES"), &s->arena, here, d);
    for (uint32_t i = 0; code == 0 && i < job->hosts.n; i++)
        if (job->hosts.nodes[i].transport.kind.v == JOB_TRANSPORT_LOCAL)
            list[i] = here;
    s->in.gpus = list;
    return code;
}

/* The processors of this machine matter only if ranks are bound; those of others are not known. */
static int read_topologies(struct session *s, struct diag *d)
{
    const struct job *job = &s->job;
    const struct topology **list = arena_calloc(&s->arena, job->hosts.n, sizeof *list);
    struct topology *here = arena_alloc(&s->arena, sizeof *here);
    if (!list || !here)
        return diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory");
    s->in.topologies = list;
    if (job->processes.bind.v == JOB_BIND_NONE)
        return 0;
    int code = topology_read(here, "/sys", NULL, &s->arena, d);
    for (uint32_t i = 0; code == 0 && i < job->hosts.n; i++)
        if (job->hosts.nodes[i].transport.kind.v == JOB_TRANSPORT_LOCAL)
            list[i] = here;
    return code;
}

static int find_plugins(struct session *s, const char **engine, struct diag *d)
{
    *engine = prefix_path(&s->arena, "libexec/collrun/collrun-engine", d);
    int code = *engine ? prefix_plugins(PREFIX_BACKENDS, &s->arena, &s->backends, d) : d->code;
    if (code == 0)
        code = prefix_plugins(PREFIX_WORKLOADS, &s->arena, &s->workloads, d);
    s->in.backends = &s->backends;
    s->in.workloads = &s->workloads;
    return code;
}

/* --run-dir is relative to where collrun was called, logging.dir to the job file. */
static const char *run_dir_here(struct session *s)
{
    char here[4096];
    if (s->opts.run_dir[0] == '/' || !getcwd(here, sizeof here))
        return s->opts.run_dir;
    return arena_printf(&s->arena, "%s/%s", here, s->opts.run_dir);
}

/* Reads and plans; 0, or the exit code once everything has been said. */
static int make_plan(struct session *s)
{
    struct diag d;
    const char *engine;
    job_read(&s->job, s->opts.job, s->opts.sets, s->opts.nsets, &s->arena, &s->diags);
    s->report.sources = s->job.sources;
    if (!s->job.complete)
        return fail_all(s);
    if (find_plugins(s, &engine, &d) < 0 || scout(&s->job, engine, &s->arena, &s->in, &d) < 0 ||
        read_topologies(s, &d) < 0 || read_gpus(s, &d) < 0)
        return fail(s, &d, EXIT_INTERNAL);
    if (s->opts.run_dir)
        s->job.logging.dir = (struct job_str){.v = run_dir_here(s)};
    s->in.environ = (const char *const *)environ;
    s->in.run_id = make_run_id(&s->arena);
    plan_make(&s->job, &s->in, &s->arena, &s->desc, &s->diags);
    return diag_list_count(&s->diags) ? fail_all(s) : 0;
}

/* ---- subcommands ---- */

/* A result on stdout counts only once it has been written. */
static int finish(struct session *s, int code)
{
    struct diag d;
    if (code < 0)
        diag_set(&d, code, "out of memory");
    else if (fflush(stdout) == EOF || ferror(stdout))
        diag_set(&d, COLLRUN_ERR_SYSTEM, "cannot write to stdout");
    else
        return 0;
    return fail(s, &d, EXIT_INTERNAL);
}

/* For the time until the run itself heeds it: it asks for news, not for the end. */
static void on_usr1(int sig)
{
    (void)sig;
}

static int command_run(struct session *s)
{
    sigaction(SIGUSR1, &(struct sigaction){.sa_handler = on_usr1, .sa_flags = SA_RESTART}, NULL);
    int exit_code = make_plan(s);
    struct launch_options options = {
        .report = &s->report, .quiet = s->opts.quiet, .verbose = s->opts.verbose};
    return exit_code ? exit_code : launch_run(&s->job, &s->desc, &options);
}

static int command_check(struct session *s)
{
    int exit_code = make_plan(s);
    if (exit_code)
        return exit_code;
    if (!s->opts.quiet)
        printf("%s: no errors\n", s->opts.job);
    return finish(s, 0);
}

static int command_plan(struct session *s)
{
    int exit_code = make_plan(s);
    if (exit_code)
        return exit_code;
    return finish(s, s->opts.json ? show_plan_json(&s->desc, &s->arena, stdout)
                                  : show_plan(&s->desc, &s->arena, stdout));
}

static int command_backends(struct session *s)
{
    struct diag d;
    const char *engine;
    const struct job *job = NULL;
    if (s->opts.job) {
        job = &s->job;
        job_read(&s->job, s->opts.job, s->opts.sets, s->opts.nsets, &s->arena, &s->diags);
        s->report.sources = s->job.sources;
        if (diag_list_count(&s->diags))
            return fail_all(s);
    }
    if (find_plugins(s, &engine, &d) < 0 || scout_backends(job, engine, &s->arena, &s->in, &d) < 0)
        return fail(s, &d, EXIT_INTERNAL);
    if (s->opts.json)
        return finish(s, show_backends_json(&s->in, stdout));
    show_backends(&s->in, stdout);
    return finish(s, 0);
}

/* A job for `doctor` alone: one rank here. NULL: no memory. */
static const char *smallest_job(struct session *s)
{
    static const char text[] = "version: 1\nprocesses: {count: 1}\nworkloads: [{plugin: hello}]\n";
    int fd = memfd_create("smallest.yaml", MFD_CLOEXEC);
    if (fd < 0 || write(fd, text, sizeof text - 1) != (ssize_t)sizeof text - 1)
        return NULL;
    return arena_printf(&s->arena, "/proc/self/fd/%d", fd);
}

static int command_doctor(struct session *s)
{
    struct diag d;
    bool alone = !s->opts.job;
    if (alone && !(s->opts.job = smallest_job(s)))
        return fail(s, (diag_set(&d, COLLRUN_ERR_NO_MEMORY, "out of memory"), &d), EXIT_INTERNAL);
    s->in.examined = true;
    int exit_code = make_plan(s);
    if (exit_code)
        return exit_code;
    exit_code = doctor_run(&s->job, &s->desc, &s->report, s->opts.verbose);
    if (alone) {
        putchar('\n');
        s->opts.job = NULL;
        s->in = (struct plan_input){0};
        int code = command_backends(s);
        exit_code = exit_code ? exit_code : code;
    }
    int written = finish(s, 0);
    return exit_code ? exit_code : written;
}

static int command_schema(struct session *s)
{
    if (!s->opts.man)
        return finish(s, schema_write_json(stdout));
    schema_write_man(stdout);
    return finish(s, 0);
}

static int run_command(struct session *s)
{
    if (s->opts.version) {
        printf("collrun %s (build %s)\n", COLLRUN_VERSION, COLLRUN_BUILD_ID);
        return finish(s, 0);
    }
    if (s->opts.help) {
        opts_help(s->opts.command, stdout);
        return finish(s, 0);
    }
    switch (s->opts.command) {
    case OPTS_RUN:
        return command_run(s);
    case OPTS_CHECK:
        return command_check(s);
    case OPTS_PLAN:
        return command_plan(s);
    case OPTS_BACKENDS:
        return command_backends(s);
    case OPTS_DOCTOR:
        return command_doctor(s);
    case OPTS_SCHEMA:
        return command_schema(s);
    default: /* refused while the command line was read */
        return EXIT_INTERNAL;
    }
}

/* A standard descriptor that the caller closed would be the number of the first file opened here,
 * and what is meant for the terminal would go there. Reading and writing in the wrong direction
 * fail, as they would have. */
static void keep_standard_descriptors(void)
{
    for (int fd = 0; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF &&
            open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd)
            _exit(EXIT_INTERNAL);
    }
}

int main(int argc, char **argv)
{
    keep_standard_descriptors();
    struct session s = {0};
    struct diag d;
    int exit_code;
    arena_init(&s.arena);
    diag_list_init(&s.diags);
    report_init(&s.report, stderr, false, NULL);
    if (opts_parse(argc, argv, &s.arena, &s.opts, &d) < 0) {
        exit_code = fail(&s, &d, EXIT_JOB);
    } else {
        report_init(&s.report, stderr, s.opts.no_color, NULL);
        exit_code = run_command(&s);
    }
    diag_list_fini(&s.diags);
    arena_fini(&s.arena);
    return exit_code;
}
