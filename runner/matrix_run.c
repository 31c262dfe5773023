/* SPDX-License-Identifier: Apache-2.0 */
#include "matrix_run.h"

#include "base/arena.h"
#include "base/exit_codes.h"
#include "report/rundir.h"
#include "spec/matrix.h"
#include "xalloc.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* One matrix while it runs. */
struct matrix_state {
    const struct matrix_run *m;
    const struct job_matrix *matrix;
    struct arena arena;
    json_t *rows;      /* of matrix.json */
    uint32_t selected; /* combinations */
    uint32_t ended;    /* of these, with those that were left out */
    uint32_t run;      /* of these, those that were run, in `seconds` */
    double seconds;
    int exit_code;
    bool stopped; /* by a signal */
};

static double matrix_now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static const char *matrix_path(struct matrix_state *s, uint32_t combination, const char *suffix)
{
    return arena_printf(&s->arena, "%s/%s%s", s->m->dir,
                        matrix_folder(s->matrix, combination, &s->arena), suffix);
}

static int matrix_fail(struct matrix_state *s, int err, const char *what, const char *path)
{
    struct diag d;
    diag_sys(&d, err, "matrix: cannot %s %s", what, path);
    report_diag(s->m->report, &d);
    return s->exit_code = EXIT_INTERNAL;
}

/* ---- results ---- */

/* The mean over the ranks that have reported it, for each metric. */
static json_t *matrix_metrics(const json_t *result)
{
    json_t *sums = json_object(), *counts = json_object(), *value, *rank;
    const char *name;
    size_t i;
    json_array_foreach(json_object_get(result, "ranks"), i, rank)
    {
        json_object_foreach(json_object_get(rank, "metrics"), name, value)
        {
            const double sum = json_number_value(json_object_get(sums, name));
            const json_int_t n = json_integer_value(json_object_get(counts, name));
            json_object_set_new(sums, name, json_real(sum + json_number_value(value)));
            json_object_set_new(counts, name, json_integer(n + 1));
        }
    }
    json_object_foreach(sums, name, value)
    {
        json_real_set(value, json_real_value(value) /
                                 (double)json_integer_value(json_object_get(counts, name)));
    }
    json_decref(counts);
    return sums;
}

static json_t *matrix_values(const struct job_matrix *matrix, uint32_t combination)
{
    json_t *values = json_object();
    for (uint32_t i = 0; i < matrix->naxes; i++)
        json_object_set_new(values, matrix->axes[i].name,
                            json_string(matrix_value(matrix, combination, i)->text));
    return values;
}

/* The class of a run without a result: it was not started, or its collrun was killed. */
static const char *matrix_class(int exit_code)
{
    return exit_code == EXIT_JOB ? "job" : exit_code == EXIT_LOAD ? "plugin" : "lost";
}

/* The row of a combination. `result`: of its run; NULL: the run was not started. */
static json_t *matrix_row(struct matrix_state *s, uint32_t combination, json_t *result,
                          int exit_code, double seconds)
{
    json_t *verdict = json_object_get(result, "verdict");
    const char *class = json_string_value(json_object_get(verdict, "class"));
    json_t *took = json_object_get(result, "seconds");
    json_t *row = json_pack("{si so ss ss si so sO? so}", "number", (int)combination + 1, "values",
                            matrix_values(s->matrix, combination), "dir",
                            matrix_folder(s->matrix, combination, &s->arena), "class",
                            class ? class : matrix_class(exit_code), "exit_code", exit_code,
                            "seconds", took ? json_incref(took) : json_real(seconds), "verdict",
                            verdict, "metrics", matrix_metrics(result));
    return row;
}

static json_t *matrix_result(struct matrix_state *s, uint32_t combination)
{
    return json_load_file(matrix_path(s, combination, "/result.json"), 0, NULL);
}

static bool matrix_is_ok(const json_t *row)
{
    return strcmp(json_string_value(json_object_get(row, "class")), "ok") == 0;
}

/* The names of all metrics, in the order in which they first came. */
static json_t *matrix_metric_names(const json_t *rows)
{
    json_t *names = json_object(), *row, *value;
    const char *name;
    size_t i;
    json_array_foreach(rows, i, row)
    {
        json_object_foreach(json_object_get(row, "metrics"), name, value)
        {
            json_object_set_new(names, name, json_true());
        }
    }
    return names;
}

static void matrix_put_csv(FILE *out, const char *text)
{
    if (!strpbrk(text, ",\"\r\n")) {
        fputs(text, out);
        return;
    }
    fputc('"', out);
    for (; *text; text++)
        fputs(*text == '"' ? "\"\"" : (char[]){*text, '\0'}, out);
    fputc('"', out);
}

static void matrix_write_csv(struct matrix_state *s, FILE *out)
{
    json_t *names = matrix_metric_names(s->rows), *row, *value;
    const char *name;
    size_t i;
    fputs("number", out);
    for (uint32_t a = 0; a < s->matrix->naxes; a++)
        fprintf(out, ",%s", s->matrix->axes[a].name);
    fputs(",class,exit_code,seconds", out);
    json_object_foreach(names, name, value)
    {
        fputc(',', out);
        matrix_put_csv(out, name);
    }
    json_array_foreach(s->rows, i, row)
    {
        fprintf(out, "\n%d", (int)json_integer_value(json_object_get(row, "number")));
        for (uint32_t a = 0; a < s->matrix->naxes; a++) {
            fputc(',', out);
            matrix_put_csv(out, json_string_value(json_object_get(json_object_get(row, "values"),
                                                                  s->matrix->axes[a].name)));
        }
        fprintf(out, ",%s,%d,%.6f", json_string_value(json_object_get(row, "class")),
                (int)json_integer_value(json_object_get(row, "exit_code")),
                json_number_value(json_object_get(row, "seconds")));
        json_object_foreach(names, name, value)
        {
            const json_t *metric = json_object_get(json_object_get(row, "metrics"), name);
            fputc(',', out);
            if (metric)
                fprintf(out, "%.9g", json_number_value(metric));
        }
    }
    fputc('\n', out);
    json_decref(names);
}

static void matrix_write_json(struct matrix_state *s, FILE *out)
{
    json_t *axes = json_array();
    for (uint32_t a = 0; a < s->matrix->naxes; a++) {
        json_t *values = json_array();
        for (uint32_t i = 0; i < s->matrix->axes[a].n; i++)
            json_array_append_new(values, json_string(s->matrix->axes[a].values[i]->text));
        json_array_append_new(
            axes, json_pack("{ss so}", "name", s->matrix->axes[a].name, "values", values));
    }
    json_t *root = json_pack("{ss so si sO}", "job", s->m->job->name.v, "axes", axes, "selected",
                             (int)s->selected, "combinations", s->rows);
    json_dumpf(root, out, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    fputc('\n', out);
    json_decref(root);
}

/* Replaces a file of the matrix as a whole, so that a reader never sees a part of it. */
static int matrix_write(struct matrix_state *s, const char *name,
                        void (*write)(struct matrix_state *s, FILE *out))
{
    const char *path = arena_printf(&s->arena, "%s/%s", s->m->dir, name);
    const char *part = arena_printf(&s->arena, "%s.part", path);
    FILE *out = fopen(part, "we");
    if (!out)
        return matrix_fail(s, errno, "write", path);
    write(s, out);
    const bool good = !ferror(out);
    if (fclose(out) == EOF || !good || rename(part, path) < 0)
        return matrix_fail(s, errno, "write", path);
    return 0;
}

/* ---- the terminal ---- */

/* "12.3 s", "4m05s" */
static const char *matrix_duration(double seconds, char out[32])
{
    const int whole = (int)(seconds + 0.5);
    if (seconds < 100)
        snprintf(out, 32, "%.1f s", seconds);
    else if (whole < 6000)
        snprintf(out, 32, "%dm%02ds", whole / 60, whole % 60);
    else
        snprintf(out, 32, "%dh%02dm", whole / 3600, whole / 60 % 60);
    return out;
}

/* "[3/12] algo=Ring,n=2: ok, 12.3 s; 1m50s left" */
static void matrix_show_row(struct matrix_state *s, uint32_t combination, const json_t *row,
                            bool kept)
{
    char took[32], rest[32];
    const uint32_t left = s->selected - s->ended;
    FILE *out = stdout;
    fprintf(out, "[%u/%u] %s: %s, %s", s->ended, s->selected,
            matrix_text(s->matrix, combination, &s->arena),
            json_string_value(json_object_get(row, "class")),
            kept ? "kept"
                 : matrix_duration(json_number_value(json_object_get(row, "seconds")), took));
    if (left && s->run)
        fprintf(out, "; about %s left", matrix_duration(s->seconds / s->run * left, rest));
    fputc('\n', out);
    const char *text = json_string_value(json_object_get(json_object_get(row, "verdict"), "text"));
    if (text)
        fprintf(out, "    %s\n", text);
    if (!kept && !matrix_is_ok(row))
        fprintf(out, "    output: %s\n", matrix_path(s, combination, ".log"));
    fflush(out);
}

/* A run that was not started has no verdict: what collrun printed says why. */
static void matrix_show_log(struct matrix_state *s, uint32_t combination)
{
    char line[512];
    FILE *log = fopen(matrix_path(s, combination, ".log"), "re");
    for (int lines = 0; log && lines < 40 && fgets(line, sizeof line, log); lines++)
        fputs(line, stdout);
    if (log)
        fclose(log);
}

/* A column is as wide as its widest cell; what does not fit is in matrix.csv. */
static void matrix_show_table(struct matrix_state *s)
{
    enum { METRICS = 4 };
    FILE *out = stdout;
    json_t *names = matrix_metric_names(s->rows), *row, *value;
    const char *name;
    size_t i;
    int widths[MATRIX_AXES_MAX] = {0}, metrics = 0;
    for (uint32_t a = 0; a < s->matrix->naxes; a++) {
        const struct job_matrix_axis *axis = &s->matrix->axes[a];
        widths[a] = (int)strlen(axis->name);
        for (uint32_t v = 0; v < axis->n; v++)
            if ((int)strlen(axis->values[v]->text) > widths[a])
                widths[a] = (int)strlen(axis->values[v]->text);
        fprintf(out, "%s%-*s  ", a ? "" : "\n", widths[a], axis->name);
    }
    fprintf(out, "%-10s  %10s", "verdict", "seconds");
    json_object_foreach(names, name, value)
    {
        if (metrics++ < METRICS)
            fprintf(out, "  %20.20s", name);
    }
    json_array_foreach(s->rows, i, row)
    {
        fputc('\n', out);
        for (uint32_t a = 0; a < s->matrix->naxes; a++)
            fprintf(out, "%-*s  ", widths[a],
                    json_string_value(
                        json_object_get(json_object_get(row, "values"), s->matrix->axes[a].name)));
        fprintf(out, "%-10s  %10.3f", json_string_value(json_object_get(row, "class")),
                json_number_value(json_object_get(row, "seconds")));
        metrics = 0;
        json_object_foreach(names, name, value)
        {
            const json_t *metric = json_object_get(json_object_get(row, "metrics"), name);
            if (metrics++ < METRICS && metric)
                fprintf(out, "  %20.6g", json_number_value(metric));
            else if (metrics <= METRICS)
                fprintf(out, "  %20s", "-");
        }
    }
    fprintf(out, "\n%s/matrix.csv and matrix.json have them%s\n", s->m->dir,
            metrics > METRICS ? ", with all metrics" : "");
    fflush(out);
    json_decref(names);
}

/* ---- one run ---- */

static const int matrix_forwarded[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGTSTP, SIGCONT};

static void matrix_signals(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGCHLD);
    for (size_t i = 0; i < sizeof matrix_forwarded / sizeof *matrix_forwarded; i++)
        sigaddset(set, matrix_forwarded[i]);
}

/* The process of a combination leads a process group, so that Ctrl-C comes once, from here.
 * Never returns. */
static void matrix_child(struct matrix_state *s, uint32_t combination, const sigset_t *before,
                         pid_t parent)
{
    const char *log = matrix_path(s, combination, ".log");
    const int in = open("/dev/null", O_RDONLY | O_CLOEXEC);
    const int out = open(log, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        exit(128 + SIGTERM);
    if (in < 0 || out < 0)
        exit(matrix_fail(s, errno, "write", log));
    dup2(in, STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    dup2(out, STDERR_FILENO);
    sigprocmask(SIG_SETMASK, before, NULL);
    const int code = s->m->run(s->m->context, combination, matrix_path(s, combination, ""));
    fflush(NULL);
    exit(code);
}

/* Waits for the child, and hands signals on. */
static int matrix_wait(struct matrix_state *s, pid_t child, const sigset_t *set)
{
    int status;
    for (;;) {
        const int sig = sigwaitinfo(set, NULL);
        if (waitpid(child, &status, WNOHANG) == child)
            break;
        if (sig <= 0 || sig == SIGCHLD)
            continue;
        kill(child, sig);
        s->stopped = s->stopped || sig == SIGINT || sig == SIGTERM || sig == SIGHUP;
        if (sig == SIGTSTP)
            raise(SIGSTOP);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* A run that failed is kept beside the new one, under a name that no combination has. */
static int matrix_set_aside(struct matrix_state *s, uint32_t combination)
{
    const char *path = matrix_path(s, combination, "");
    for (int i = 1; access(path, F_OK) == 0; i++) {
        const char *old = matrix_path(s, combination, arena_printf(&s->arena, ".old%d", i));
        if (access(old, F_OK) != 0 && rename(path, old) < 0)
            return matrix_fail(s, errno, "rename", path);
    }
    return 0;
}

static void matrix_run_one(struct matrix_state *s, uint32_t combination)
{
    sigset_t set, before;
    json_t *result = s->m->resume ? matrix_result(s, combination) : NULL;
    json_t *row = result ? matrix_row(s, combination, result, 0, 0) : NULL;
    const bool kept = row && matrix_is_ok(row);
    if (!kept) {
        json_decref(row);
        json_decref(result);
        if (matrix_set_aside(s, combination) != 0)
            return;
        matrix_signals(&set);
        sigprocmask(SIG_BLOCK, &set, &before);
        fflush(NULL);
        const double begin = matrix_now_s();
        const pid_t parent = getpid(), child = fork();
        if (child == 0)
            matrix_child(s, combination, &before, parent);
        const int code = child < 0 ? EXIT_INTERNAL : matrix_wait(s, child, &set);
        if (child < 0)
            matrix_fail(s, errno, "start a process for", matrix_path(s, combination, ""));
        sigprocmask(SIG_SETMASK, &before, NULL);
        result = matrix_result(s, combination);
        row = matrix_row(s, combination, result, code, matrix_now_s() - begin);
        s->seconds += matrix_now_s() - begin;
        s->run++;
        s->exit_code = s->exit_code ? s->exit_code : code;
    }
    s->ended++;
    json_array_append_new(s->rows, row);
    matrix_show_row(s, combination, row, kept);
    if (!result)
        matrix_show_log(s, combination);
    json_decref(result);
    if (matrix_write(s, "matrix.json", matrix_write_json) == 0)
        matrix_write(s, "matrix.csv", matrix_write_csv);
}

/* ---- all runs ---- */

/* Makes the folder, which must not have another matrix. */
static int matrix_open(struct matrix_state *s)
{
    const char *dir = s->m->dir;
    const int err = rundir_make_dirs(dir);
    if (err)
        return matrix_fail(s, err, "make", dir);
    if (s->m->resume || access(arena_printf(&s->arena, "%s/matrix.json", dir), F_OK) != 0)
        return 0;
    struct diag d;
    diag_set(&d, COLLRUN_ERR_INVALID, "matrix: %s contains another one", dir);
    diag_hint(&d, "--resume continues it; or put {run_id} into the name");
    report_diag(s->m->report, &d);
    return s->exit_code = EXIT_JOB;
}

int matrix_run(const struct matrix_run *m)
{
    struct matrix_state s = {.m = m, .matrix = &m->job->matrix, .rows = json_array()};
    arena_init(&s.arena);
    for (uint32_t i = 0; i < s.matrix->n; i++)
        s.selected += m->selected[i];
    if (matrix_open(&s) == 0) {
        for (uint32_t i = 0; i < s.matrix->n && !s.stopped; i++) {
            if (m->selected[i])
                matrix_run_one(&s, i);
            if (s.exit_code && !s.matrix->keep_going)
                break;
        }
        matrix_show_table(&s);
    }
    json_decref(s.rows);
    arena_fini(&s.arena);
    return s.exit_code;
}
