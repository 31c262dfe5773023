/* SPDX-License-Identifier: Apache-2.0
 *
 * collrun, the command. Every subcommand takes the same steps as far as it needs them: read the
 * job, query the plugins, plan, run. The errors of the first three steps are printed together, and
 * then nothing is started.
 */
#include "base/debug.h"
#include "base/exit_codes.h"
#include "base/template.h"
#include "build_id.h"
#include "completion.h"
#include "connect/doctor.h"
#include "connect/placed.h"
#include "connect/spawn.h"
#include "html/page.h"
#include "matrix_run.h"
#include "new.h"
#include "opts.h"
#include "plan/engine_child.h"
#include "plan/params.h"
#include "plan/plugin_query.h"
#include "plan/wrap.h"
#include "prefix.h"
#include "report/evidence_json.h"
#include "report/report.h"
#include "report/show.h"
#include "report/show_plugin.h"
#include "report/top.h"
#include "run/run.h"
#include "run/stdin_feed.h"
#include "spec/emit.h"
#include "spec/matrix.h"
#include "spec/names.h"
#include "spec/path.h"
#include "spec/program.h"
#include "spec/schema_text.h"
#include "spec/secrets.h"
#include "xalloc.h"

#include <collrun/types.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MATRIX_WITHOUT_YES = 1000 }; /* combinations */

struct session { /* one invocation of collrun */
    struct arena arena;
    struct opts opts;
    struct report report;
    struct diag_list diags;
    struct job job;
    struct prefix_plugins backends, workloads;
    struct plan_input in;
    struct desc desc;
    uint32_t combination; /* of the matrix */
    bool *selected;       /* each combination; NULL: the job has no matrix */
};

/* Prints an error that is not about the job; returns the exit code. */
static int fail(struct session *s, const struct diag *d, int exit_code)
{
    report_diag(&s->report, d);
    return exit_code;
}

/* Prints the collected errors. Returns EXIT_LOAD if only plugins are wrong. */
static int fail_all(struct session *s)
{
    int exit_code = s->opts.command == OPTS_CHECK ? EXIT_JOB : EXIT_LOAD;
    for (uint32_t i = 0; i < s->diags.n; i++)
        if (!s->diags.items[i].warning && s->diags.items[i].code != COLLRUN_ERR_UNAVAILABLE)
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

/* Reads the CPUs of this machine, if ranks are bound; those of other hosts are unknown here. */
static int read_topologies(struct session *s, struct diag *d)
{
    const struct job *job = &s->job;
    const struct topology **list = arena_calloc(&s->arena, job->hosts.n, sizeof *list);
    struct topology *here = arena_alloc(&s->arena, sizeof *here);
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

/* --run-dir and --trace are relative to the working directory, logging.dir to the job file. */
static const char *path_here(struct session *s, const char *path, bool template)
{
    char here[4096];
    if (path[0] == '/' || !getcwd(here, sizeof here))
        return path;
    const char *folder = template ? template_literal(here, &s->arena) : here;
    return arena_printf(&s->arena, "%s/%s", folder, path);
}

/* It is a template, as logging.dir is. */
static int set_run_dir(struct session *s, const char *dir, struct diag *d)
{
    if (name_check_text(dir, d) < 0 || template_check(dir, TEMPLATE_RUN_ID, d) < 0)
        return diag_wrap(d, "--run-dir");
    s->job.logging.dir = (struct job_str){.v = path_here(s, dir, true)};
    return COLLRUN_OK;
}

static int examine_plugins(struct session *s, const char *engine, struct diag *d)
{
    struct loader_env saved;
    loader_env_set(&s->job, &saved);
    int code = plugin_query(&s->job, engine, &s->arena, &s->in, d);
    if (code == 0)
        code = device_query(&s->job, engine, &s->arena, &s->in, d);
    loader_env_restore(&saved);
    return code < 0 ? code : read_topologies(s, d);
}

static int check_plan(struct session *s, const char *engine, struct diag *d)
{
    struct loader_env saved;
    loader_env_set(&s->job, &saved);
    int code = checks_run(&s->desc, &s->in, engine, CHECKS_DEADLINE_MS, &s->diags, d);
    loader_env_restore(&saved);
    return code;
}

static void show_warnings(struct session *s)
{
    if (!s->opts.quiet)
        report_diags(&s->report, &s->diags);
}

/* Forgets the job, so that another combination of its matrix can be read. */
static void reset_job(struct session *s)
{
    diag_list_fini(&s->diags);
    diag_list_init(&s->diags);
    s->job = (struct job){0};
}

/* Reads the job file, or makes one of the program on the command line. Returns 0, or the exit code
 * after it has printed why there is none; errors in the job are in `diags`. */
static int read_job(struct session *s)
{
    struct diag d;
    struct job_request request = {.file = s->opts.job,
                                  .profiles = s->opts.profiles,
                                  .nprofiles = s->opts.nprofiles,
                                  .vars = s->opts.vars,
                                  .nvars = s->opts.nvars,
                                  .sets = s->opts.sets,
                                  .nsets = s->opts.nsets,
                                  .combination = s->combination};
    if (!s->opts.program || s->opts.nsets) /* else the job file of the program has it */
        request.count = s->opts.count;
    const struct program program = {s->opts.program, s->opts.count, s->opts.gpus,
                                    s->opts.host_list};
    if (program.command) {
        s->opts.job = request.file = PROGRAM_FILE;
        request.name = program.command[0];
        request.text = program_job(&program, &s->arena, &d);
        if (!request.text)
            return fail(s, &d, EXIT_JOB);
    }
    job_read(&s->job, &request, &s->arena, &s->diags);
    s->report.sources = s->job.sources;
    s->report.secrets = &s->job.env.secrets;
    if (s->job.env.secrets.n)
        debug_set_mask(secrets_mask_line, &s->job.env.secrets);
    return 0;
}

/* Finds the combinations that --only leaves. Returns 0, or the exit code. */
static int select_combinations(struct session *s)
{
    const struct job_matrix *matrix = &s->job.matrix;
    const struct opts *o = &s->opts;
    struct diag d;
    uint32_t n = 0;
    if (!matrix->n && !matrix->refused && (o->nonly || o->resume || o->yes)) {
        diag_set(&d, COLLRUN_ERR_INVALID, "--%s: the job has no matrix",
                 o->nonly    ? "only"
                 : o->resume ? "resume"
                             : "yes");
        return fail(s, &d, EXIT_JOB);
    }
    if (!matrix->n)
        return 0;
    s->selected = arena_calloc(&s->arena, matrix->n, sizeof *s->selected);
    memset(s->selected, true, matrix->n * sizeof *s->selected);
    for (uint32_t i = 0; i < o->nonly; i++)
        if (matrix_select(matrix, o->only[i], s->selected, &s->arena, &d) < 0)
            return fail(s, &d, EXIT_JOB);
    for (uint32_t i = 0; i < matrix->n; i++)
        n += s->selected[i];
    if (n)
        return 0;
    diag_set(&d, COLLRUN_ERR_INVALID,
             "--only: no combination of the matrix has all of these values");
    return fail(s, &d, EXIT_JOB);
}

/* Plans the job that was read. Returns 0, or the exit code after it has printed the errors. */
static int plan_job(struct session *s)
{
    struct diag d;
    const char *engine;
    if (!s->job.complete)
        return fail_all(s);
    diag_init(&d);
    if (s->opts.run_dir && set_run_dir(s, s->opts.run_dir, &d) < 0)
        diag_list_add(&s->diags, &d);
    if (s->opts.trace) {
        s->job.logging.trace = (struct job_num){.v = 1};
        s->job.logging.trace_file = path_here(s, s->opts.trace, false);
    }
    s->in.environ = (const char *const *)environ;
    s->in.run_id = make_run_id(&s->arena);
    if (find_plugins(s, &engine, &d) < 0 || examine_plugins(s, engine, &d) < 0)
        return fail(s, &d, EXIT_INTERNAL);
    /* A plugin's check needs a plan of a job without errors: with others it would see ranks that
     * have no host, and values that stand in for refused ones. */
    if (plan_make(&s->job, &s->in, &s->arena, &s->desc, &s->diags) == 0 &&
        !diag_list_count(&s->diags) && check_plan(s, engine, &d) < 0)
        return fail(s, &d, EXIT_INTERNAL);
    if (diag_list_count(&s->diags))
        return fail_all(s);
    if (s->opts.command != OPTS_RUN)
        show_warnings(s);
    if (!s->opts.wrap)
        return 0;
    struct desc_terminal terminal;
    bool any = terminal_describe(&terminal);
    int rc =
        wrap_plan(s->opts.wrap_ranks, &s->job.rank_names, s->opts.wrap, &s->arena, &s->desc, &d);
    if (rc == 0)
        rc = wrap_use_terminal(&s->desc, &s->job, any ? &terminal : NULL, &d);
    return rc < 0 ? fail(s, &d, EXIT_JOB) : 0;
}

/* Reads the job and plans it; of a matrix, the first combination that --only leaves. */
static int make_plan(struct session *s)
{
    int exit_code = read_job(s);
    if (!exit_code)
        exit_code = select_combinations(s);
    while (!exit_code && s->selected && !s->selected[s->combination])
        s->combination++;
    if (!exit_code && s->combination) {
        reset_job(s);
        exit_code = read_job(s);
    }
    return exit_code ? exit_code : plan_job(s);
}

/* ---- subcommands ---- */

/* A command succeeds only if its result could be written to stdout. */
static int finish(struct session *s)
{
    struct diag d;
    if (fflush(stdout) != EOF && !ferror(stdout))
        return 0;
    diag_set(&d, COLLRUN_ERR_SYSTEM, "cannot write to stdout");
    return fail(s, &d, EXIT_INTERNAL);
}

/* SIGUSR1 asks for the status; until the run handles it, it must not end the process. */
static void on_usr1(int sig)
{
    (void)sig;
}

/* Runs the job that was read. */
static int run_planned(struct session *s)
{
    int exit_code = plan_job(s);
    struct run_options options = {
        .report = &s->report, .quiet = s->opts.quiet, .verbose = s->opts.verbose};
    if (exit_code)
        return exit_code;
    /* Without a terminal a good job prints nothing but what its ranks do. What the job file's
     * warnings say may be why another one has failed. */
    const bool at_once = s->opts.verbose || isatty(STDERR_FILENO);
    if (at_once)
        show_warnings(s);
    exit_code = run_job(&s->job, &s->desc, &options);
    if (!at_once && exit_code)
        show_warnings(s);
    return exit_code;
}

/* In the process of a combination. */
static int run_combination(void *context, uint32_t combination, const char *dir)
{
    struct session *s = context;
    s->combination = combination;
    s->opts.run_dir = template_literal(dir, &s->arena);
    s->report.color = false;
    reset_job(s);
    const int exit_code = read_job(s);
    return exit_code ? exit_code : run_planned(s);
}

/* Reads every combination, so that errors are found before the first one runs. */
static int check_combinations(struct session *s)
{
    for (uint32_t i = 0; i < s->job.matrix.n; i++) {
        if (!s->selected[i])
            continue;
        s->combination = i;
        reset_job(s);
        int exit_code = read_job(s);
        if (!exit_code && diag_list_count(&s->diags))
            exit_code = fail_all(s);
        if (!exit_code)
            continue;
        report_line(&s->report, arena_printf(&s->arena, "this is the job with %s",
                                             matrix_text(&s->job.matrix, i, &s->arena)));
        return exit_code;
    }
    return 0;
}

/* The folder of the matrix. NULL: an error in *d. */
static const char *matrix_dir(struct session *s, struct diag *d)
{
    const struct opts *o = &s->opts;
    if (o->run_dir && set_run_dir(s, o->run_dir, d) < 0)
        return NULL;
    const char *text = s->job.logging.dir.v, *dir = NULL;
    if (!text) {
        diag_at(d, s->job.matrix.loc, "matrix: its runs need a folder");
        diag_hint(d, "add `dir` to logging, or use --run-dir DIR");
        return NULL;
    }
    const struct template_values values = {.run_id = make_run_id(&s->arena)};
    if (template_expand(text, &values, &s->arena, &dir, d) < 0)
        return NULL;
    if (o->resume && strstr(text, "{run_id}")) {
        diag_set(d, COLLRUN_ERR_INVALID, "--resume: every run of this job has another folder");
        diag_hint(d, "--run-dir DIR names the one of the matrix that is continued");
        return NULL;
    }
    return path_join(s->job.dir, dir, &s->arena);
}

static int run_matrix(struct session *s)
{
    const struct job_matrix *matrix = &s->job.matrix;
    struct diag d;
    uint32_t n = 0;
    for (uint32_t i = 0; i < matrix->n; i++)
        n += s->selected[i];
    diag_init(&d);
    if (n > MATRIX_WITHOUT_YES && !s->opts.yes) {
        diag_at(&d, matrix->loc, "matrix: %u combinations", n);
        diag_hint(&d, "--yes runs more than %d; --only AXIS=VALUE selects some",
                  MATRIX_WITHOUT_YES);
        return fail(s, &d, EXIT_JOB);
    }
    if (s->opts.trace || s->opts.wrap) {
        diag_set(&d, COLLRUN_ERR_INVALID, "--%s: a matrix has more than one run",
                 s->opts.trace ? "trace" : "wrap");
        diag_hint(&d, s->opts.trace ? "logging.trace writes one in each run directory"
                                    : "--print-job of a job without the matrix");
        return fail(s, &d, EXIT_JOB);
    }
    int exit_code = check_combinations(s);
    const char *dir = exit_code ? NULL : matrix_dir(s, &d);
    if (!dir)
        return exit_code ? exit_code : fail(s, &d, EXIT_JOB);
    const struct job job = s->job; /* run_combination reads it anew, in another process */
    show_warnings(s);
    const struct matrix_run run = {.job = &job,
                                   .dir = dir,
                                   .selected = s->selected,
                                   .resume = s->opts.resume,
                                   .report = &s->report,
                                   .run = run_combination,
                                   .context = s};
    exit_code = matrix_run(&run);
    const int written = finish(s);
    return exit_code ? exit_code : written;
}

static int command_run(struct session *s)
{
    sigaction(SIGUSR1, &(struct sigaction){.sa_handler = on_usr1, .sa_flags = SA_RESTART}, NULL);
    spawn_raise_file_limit();
    int exit_code = read_job(s);
    if (!exit_code)
        exit_code = select_combinations(s);
    if (exit_code)
        return exit_code;
    return s->selected ? run_matrix(s) : run_planned(s);
}

/* --print-job: the file of the program on the command line, with what --set has changed; and
 * --resolved: a job from all of its files, with the origin of each line. */
static int command_print_job(struct session *s)
{
    const int exit_code = read_job(s);
    if (exit_code)
        return exit_code;
    if (diag_list_count(&s->diags))
        return fail_all(s);
    show_warnings(s);
    if (s->opts.resolved)
        emit_with_origins(s->job.written, s->job.file, stdout);
    else
        emit_tree(s->job.written, stdout);
    return finish(s);
}

/* The other combinations after the first one, each in a process. */
static int check_matrix(struct session *s)
{
    for (uint32_t i = s->combination + 1; i < s->job.matrix.n; i++) {
        int status;
        if (!s->selected[i])
            continue;
        fflush(NULL);
        const pid_t child = fork();
        if (child == 0) {
            s->combination = i;
            reset_job(s);
            int exit_code = read_job(s);
            exit_code = exit_code ? exit_code : plan_job(s);
            if (exit_code)
                report_line(&s->report, arena_printf(&s->arena, "this is the job with %s",
                                                     matrix_text(&s->job.matrix, i, &s->arena)));
            exit(exit_code);
        }
        if (child < 0 || waitpid(child, &status, 0) < 0 || !WIFEXITED(status))
            return EXIT_INTERNAL;
        if (WEXITSTATUS(status))
            return WEXITSTATUS(status);
    }
    return 0;
}

static int command_check(struct session *s)
{
    int exit_code = make_plan(s);
    if (!exit_code && s->selected)
        exit_code = check_matrix(s);
    if (exit_code)
        return exit_code;
    if (!s->opts.quiet && s->diags.n)
        printf("%s: no errors, %u warning%s\n", s->opts.job, s->diags.n,
               s->diags.n == 1 ? "" : "s");
    else if (!s->opts.quiet)
        printf("%s: no errors\n", s->opts.job);
    return finish(s);
}

static int command_plan(struct session *s)
{
    int exit_code = make_plan(s);
    if (!exit_code && s->opts.hosts)
        exit_code = placed_ask(&s->job, &s->desc, &s->arena, &s->report, s->opts.verbose);
    if (exit_code)
        return exit_code;
    if (s->selected && !s->opts.quiet)
        report_line(&s->report,
                    arena_printf(&s->arena, "a matrix of %u combinations: this is the plan of %s",
                                 s->job.matrix.n,
                                 matrix_text(&s->job.matrix, s->combination, &s->arena)));
    if (s->opts.json)
        show_plan_json(&s->desc, &s->job.env.secrets, &s->arena, stdout);
    else
        show_plan(&s->desc, &s->arena, stdout);
    return finish(s);
}

static int command_backends(struct session *s)
{
    struct diag d;
    const char *engine;
    struct plan_pools pools;
    const struct job *job = NULL;
    if (s->opts.job) {
        job = &s->job;
        const int exit_code = read_job(s);
        if (exit_code)
            return exit_code;
        if (diag_list_count(&s->diags))
            return fail_all(s);
    }
    if (find_plugins(s, &engine, &d) < 0 ||
        plugin_query_backends(job, engine, &s->arena, &s->in, &d) < 0 ||
        device_query_all(engine, &s->in, &s->arena, &pools, &d) < 0)
        return fail(s, &d, EXIT_INTERNAL);
    if (s->opts.json)
        show_backends_json(&s->in, &pools, stdout);
    else
        show_backends(&s->in, &pools, &s->arena, stdout);
    return finish(s);
}

static int command_describe(struct session *s)
{
    struct diag d;
    const char *engine;
    struct described what;
    if (find_plugins(s, &engine, &d) < 0)
        return fail(s, &d, EXIT_INTERNAL);
    int code = plugin_query_one(s->opts.job, engine, &s->in, &s->arena, &what, &d);
    if (code < 0)
        return fail(s, &d,
                    code == COLLRUN_ERR_NOT_FOUND     ? EXIT_JOB
                    : code == COLLRUN_ERR_UNAVAILABLE ? EXIT_LOAD
                                                      : EXIT_INTERNAL);
    if (s->opts.json)
        show_plugin_json(&what, stdout);
    else
        show_plugin(&what, stdout);
    return finish(s);
}

/* A job for `collrun doctor` without a job file: one rank on this machine. NULL: see *d. */
static const char *smallest_job(struct session *s, struct diag *d)
{
    static const char text[] = "version: 1\nprocesses: {count: 1}\nworkloads: [{plugin: hello}]\n";
    int fd = memfd_create("smallest.yaml", MFD_CLOEXEC);
    if (fd < 0 || write(fd, text, sizeof text - 1) != (ssize_t)sizeof text - 1) {
        diag_sys(d, errno, "cannot make a memory file");
        return NULL;
    }
    return arena_printf(&s->arena, "/proc/self/fd/%d", fd);
}

static int command_doctor(struct session *s)
{
    struct diag d;
    bool alone = !s->opts.job;
    if (alone && !(s->opts.job = smallest_job(s, &d)))
        return fail(s, &d, EXIT_INTERNAL);
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
    int written = finish(s);
    return exit_code ? exit_code : written;
}

static int command_diag(struct session *s)
{
    struct diag d;
    struct report out = s->report;
    out.out = stdout;
    diag_init(&d);
    if (diag_command(s->opts.job, s->opts.json, &out, &d) < 0)
        return fail(s, &d, EXIT_JOB);
    return finish(s);
}

static int command_top(struct session *s)
{
    struct diag d;
    struct report out;
    diag_init(&d);
    report_init(&out, stdout, s->opts.no_color, NULL);
    const struct top_options options = {
        .folder = s->opts.job, .json = s->opts.json, .color = out.color};
    int rc = top_command(&options, &d);
    return rc < 0 ? fail(s, &d, EXIT_JOB) : rc ? rc : finish(s);
}

static int command_report(struct session *s)
{
    struct diag d;
    char path[4096];
    const struct html_request request = {
        .folder = s->opts.job, .compare = s->opts.compare, .file = s->opts.output};
    diag_init(&d);
    if (html_command(&request, path, &d) < 0)
        return fail(s, &d, EXIT_JOB);
    if (!s->opts.quiet && strcmp(path, "-") != 0)
        printf("%s\n", path);
    return finish(s);
}

static int command_new(struct session *s)
{
    struct diag d;
    diag_init(&d);
    int rc = new_project(s->opts.job ? s->opts.job : ".", s->opts.python ? "python" : "c",
                         &s->arena, stdout, &d);
    if (rc < 0)
        return fail(s, &d, rc == COLLRUN_ERR_INVALID ? EXIT_JOB : EXIT_INTERNAL);
    return finish(s);
}

static int command_completion(struct session *s)
{
    struct diag d;
    const char *engine;
    bool plugins = strcmp(s->opts.job, "plugins") == 0;
    if (plugins && find_plugins(s, &engine, &d) < 0)
        return fail(s, &d, EXIT_INTERNAL);
    for (uint32_t i = 0; plugins && i < s->workloads.n; i++)
        printf("%s\n", s->workloads.items[i].name);
    for (uint32_t i = 0; plugins && i < s->backends.n; i++)
        printf("%s\n", s->backends.items[i].name);
    if (plugins || completion_write(s->opts.job, stdout))
        return finish(s);
    diag_init(&d);
    diag_set(&d, COLLRUN_ERR_INVALID, "no completion for the shell \"%s\"", s->opts.job);
    diag_hint(&d, "known: bash, zsh, fish");
    return fail(s, &d, EXIT_JOB);
}

static int command_schema(struct session *s)
{
    if (s->opts.man)
        schema_write_man(stdout);
    else
        schema_write_json(stdout);
    return finish(s);
}

static int run_command(struct session *s)
{
    if (s->opts.version) {
        printf("collrun %s (build %s)\n", COLLRUN_VERSION, COLLRUN_BUILD_ID);
        return finish(s);
    }
    if (s->opts.help) {
        opts_help(s->opts.command, stdout);
        return finish(s);
    }
    if (s->opts.print_job || s->opts.resolved)
        return command_print_job(s);
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
    case OPTS_DESCRIBE:
        return command_describe(s);
    case OPTS_DIAG:
        return command_diag(s);
    case OPTS_TOP:
        return command_top(s);
    case OPTS_REPORT:
        return command_report(s);
    case OPTS_NEW:
        return command_new(s);
    case OPTS_SCHEMA:
        return command_schema(s);
    case OPTS_COMPLETION:
        return command_completion(s);
    default: /* rejected by opts_parse */
        return EXIT_INTERNAL;
    }
}

_Noreturn static void end_early(const char *text)
{
    const ssize_t ignored = write(STDERR_FILENO, text, strlen(text));
    (void)ignored;
    _exit(EXIT_INTERNAL);
}

/* If the caller closed a standard descriptor, the next file opened here would get its number, and
 * output for the terminal would be written there. /dev/null takes its place, opened in the
 * direction that fails, as the closed descriptor did. */
static void keep_standard_descriptors(void)
{
    for (int fd = 0; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF &&
            open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd)
            end_early("collrun: error: cannot open /dev/null in place of a closed descriptor\n");
    }
}

/* With less, a program of collrun would end by SIGSEGV. This function itself needs hardly any. */
static void need_stack(void)
{
    struct rlimit stack;
    if (getrlimit(RLIMIT_STACK, &stack) == 0 && stack.rlim_cur < 56u << 10)
        end_early("collrun: error: the limit of the stack is below 56 KiB\n"
                  "hint: raise it: ulimit -s\n");
}

/* COLLRUN_DEBUG=help: the areas. */
static int list_debug_areas(struct session *s)
{
    for (unsigned i = 0; i < DEBUG_AREA_COUNT; i++)
        printf("%-9s %s\n", debug_area_name(i), debug_area_text(i));
    printf("%-9s all of them\n", "all");
    return finish(s);
}

/* 0, or what collrun exits with. */
static int start_debug(struct session *s, const char *text)
{
    uint64_t areas = 0;
    struct diag d;
    if (debug_parse(text, &areas, &d) < 0)
        return fail(s, &d, EXIT_JOB);
    if (areas)
        debug_start(areas, 0, "collrun");
    return EXIT_OK;
}

int main(int argc, char **argv)
{
    keep_standard_descriptors();
    need_stack();
    json_set_alloc_funcs(xmalloc, free);
    struct session s = {0};
    struct diag d;
    int exit_code;
    arena_init(&s.arena);
    diag_list_init(&s.diags);
    report_init(&s.report, stderr, false, NULL);
    if (opts_parse(argc, argv, &s.arena, &s.opts, &d) < 0) {
        exit_code = fail(&s, &d, EXIT_JOB);
    } else {
        const char *debug = getenv("COLLRUN_DEBUG");
        report_init(&s.report, stderr, s.opts.no_color, NULL);
        if (s.opts.help || s.opts.version)
            exit_code = run_command(&s);
        else if (debug && strcmp(debug, "help") == 0)
            exit_code = list_debug_areas(&s);
        else if ((exit_code = start_debug(&s, debug)) == EXIT_OK)
            exit_code = run_command(&s);
    }
    diag_list_fini(&s.diags);
    arena_fini(&s.arena);
    return exit_code;
}
