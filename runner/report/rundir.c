/* SPDX-License-Identifier: Apache-2.0
 *
 * What is in the files. A thread writes them (report/disk.h): two for each rank, with the numbers
 * 2 * rank and 2 * rank + 1, the events, and debug.log.
 */
#include "report/rundir.h"

#include "base/debug.h"
#include "base/loop.h"
#include "report/disk.h"
#include "report/evidence_json.h"
#include "report/json_value.h"
#include "report/result.h"
#include "spec/secrets.h"
#include "xalloc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define RESULT "result.json" /* its loss is always reported */
#define EVENTS "events.jsonl"
#define DEBUG_FILE "debug.log"

/* At the end of a run, the disk has so long for what is left. */
enum { RUNDIR_WAIT_MS = 2000, RUNDIR_CLOSE_MS = 3000 };

struct log_file {
    bool dead;    /* logging.max_file is reached */
    uint64_t len; /* as queued */
};

struct rundir {
    const struct job *job;
    const struct desc *desc;
    struct disk *disk;
    uint64_t begin_ns;
    uint32_t attempt;       /* the attempt of the files below */
    struct log_file *files; /* two per rank */
    time_t begin_realtime;
    json_t *metrics; /* rank -> name -> last value */
    json_t *stragglers;
    json_t *attempts; /* how each ended */
    json_t *internal; /* lines for developers */
    json_t *stalls;   /* that have passed, in all attempts */
    json_t *result;   /* as it was last written; NULL: not yet */
    FILE *warnings;
    int debug[2]; /* the pipe of the copies of log lines; -1: none */
    bool warned;
    bool has_diag; /* diag/ exists, of this attempt: */
    uint32_t diag_attempt;
};

static void rundir_warn(struct rundir *rd, const struct disk_error *e)
{
    if (!rd->warned || strcmp(e->name, RESULT) == 0)
        fprintf(rd->warnings, "collrun: warning: %s/%s: %s; the job continues without it\n",
                rd->desc->run_dir, e->name,
                e->err == ENOBUFS ? "the disk is too slow; a part is lost" : strerror(e->err));
    rd->warned = true;
}

void rundir_not_made(struct rundir *rd, const char *name)
{
    struct disk_error e = {.err = EILSEQ};
    snprintf(e.name, sizeof e.name, "%s", name);
    if (rd)
        rundir_warn(rd, &e);
}

void rundir_take_errors(struct rundir *rd)
{
    struct disk_error e;
    if (!rd)
        return;
    disk_acknowledge(rd->disk);
    while (disk_take_error(rd->disk, &e))
        rundir_warn(rd, &e);
}

int rundir_make_dirs(const char *path)
{
    char part[4096];
    size_t len = strlen(path);
    if (len >= sizeof part)
        return ENAMETOOLONG;
    for (size_t i = 1; i <= len; i++) {
        if (path[i] != '/' && path[i] != '\0')
            continue;
        memcpy(part, path, i);
        part[i] = '\0';
        if (mkdir(part, 0777) < 0 && errno != EEXIST)
            return errno;
    }
    return 0;
}

static void rundir_free(struct rundir *rd)
{
    json_decref(rd->metrics);
    json_decref(rd->stragglers);
    json_decref(rd->attempts);
    json_decref(rd->stalls);
    json_decref(rd->internal);
    json_decref(rd->result);
    free(rd->files);
    free(rd);
}

/* NULL: errno is set. */
static struct rundir *rundir_new(const struct job *job, const struct desc *desc, int dir)
{
    struct rundir *rd = xcalloc(1, sizeof *rd);
    *rd = (struct rundir){.job = job,
                          .desc = desc,
                          .begin_ns = now_ns(),
                          .begin_realtime = time(NULL),
                          .attempt = UINT32_MAX,
                          .debug = {-1, -1}};
    rd->files = xcalloc(desc->nranks * 2, sizeof *rd->files);
    rd->metrics = json_object();
    rd->attempts = json_array();
    rd->stalls = json_array();
    rd->internal = json_array();
    rd->disk = disk_open(dir, desc->nranks * 2 + 2);
    if (rd->disk)
        return rd;
    int err = errno;
    rundir_free(rd);
    errno = err;
    return NULL;
}

struct rundir *rundir_open(const struct job *job, const struct desc *desc, FILE *warnings,
                           struct diag *d)
{
    diag_init(d);
    if (!desc->run_dir[0])
        return NULL;
    int err = rundir_make_dirs(desc->run_dir);
    int dir = err ? -1 : open(desc->run_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir >= 0 && faccessat(dir, RESULT, F_OK, 0) == 0)
        err = EEXIST;
    else if (dir >= 0 && faccessat(dir, ".", W_OK | X_OK, AT_EACCESS) < 0)
        err = errno;
    if (dir < 0 || err) {
        const struct diag_loc loc = job->logging.dir.loc; /* line 0: --run-dir */
        diag_sys(d, err ? err : errno, "%s: %s", loc.line ? "logging.dir" : "--run-dir",
                 desc->run_dir);
        d->loc = loc;
        if (err == EEXIST)
            diag_hint(d, "the folder contains another run; put {run_id} into its name");
        if (dir >= 0)
            close(dir);
        return NULL;
    }
    struct rundir *rd = rundir_new(job, desc, dir);
    if (!rd) {
        diag_sys(d, errno, "cannot start the thread that writes the run directory");
        diag_hint_processes(d);
        close(dir);
        return NULL;
    }
    rd->warnings = warnings;
    if (debug_areas() && pipe2(rd->debug, O_CLOEXEC | O_NONBLOCK) == 0)
        debug_set_output(STDERR_FILENO, rd->debug[1]);
    return rd;
}

int rundir_debug_fd(const struct rundir *rd)
{
    return rd ? rd->debug[0] : -1;
}

void rundir_take_debug(struct rundir *rd)
{
    char lines[4096];
    ssize_t n;
    while (rundir_debug_fd(rd) >= 0 && (n = read(rd->debug[0], lines, sizeof lines)) > 0)
        if (!disk_full(rd->disk)) /* a log makes no job wait for the disk */
            disk_append(rd->disk, rd->desc->nranks * 2 + 1, DEBUG_FILE, lines, (size_t)n);
}

static void rundir_close_debug(struct rundir *rd)
{
    if (rd->debug[0] < 0)
        return;
    debug_set_output(STDERR_FILENO, -1);
    rundir_take_debug(rd);
    close(rd->debug[0]);
    close(rd->debug[1]);
}

bool rundir_is_full(const struct rundir *rd)
{
    return rd && disk_full(rd->disk);
}

bool rundir_is_written(const struct rundir *rd)
{
    return !rd || disk_is_idle(rd->disk);
}

int rundir_event_fd(const struct rundir *rd)
{
    return rd ? disk_event(rd->disk) : -1;
}

void rundir_close(struct rundir *rd)
{
    if (!rd)
        return;
    rundir_close_debug(rd);
    disk_wait(rd->disk, RUNDIR_CLOSE_MS);
    rundir_take_errors(rd);
    if (!disk_close(rd->disk, 0))
        fprintf(
            rd->warnings,
            "collrun: warning: %s: the disk does not answer; the last files may be incomplete\n",
            rd->desc->run_dir);
    rundir_free(rd);
}

void rundir_file(struct rundir *rd, const char *name, const void *bytes, size_t len)
{
    if (rd)
        disk_replace(rd->disk, name, bytes, len);
}

static void rundir_enter_attempt(struct rundir *rd, uint32_t attempt)
{
    char name[32];
    if (rd->attempt == attempt)
        return;
    snprintf(name, sizeof name, "attempt-%u", attempt);
    disk_end_files(rd->disk, 0, rd->desc->nranks * 2 - 1);
    memset(rd->files, 0, rd->desc->nranks * 2 * sizeof *rd->files);
    rd->attempt = attempt;
    disk_make_folder(rd->disk, name);
}

static void rundir_output_name(char *out, size_t size, uint32_t attempt, uint32_t rank,
                               uint8_t stream)
{
    snprintf(out, size, "attempt-%u/rank-%u.%s", attempt, rank, stream == 1 ? "stdout" : "stderr");
}

void rundir_rank(struct rundir *rd, uint32_t attempt, uint32_t rank)
{
    if (!rd)
        return;
    rundir_enter_attempt(rd, attempt);
    for (uint8_t stream = 1; stream <= 2; stream++) {
        char name[64];
        rundir_output_name(name, sizeof name, attempt, rank, stream);
        disk_create(rd->disk, name);
    }
}

void rundir_output(struct rundir *rd, uint32_t attempt, uint32_t rank, uint8_t stream,
                   const void *bytes, size_t len)
{
    char name[64];
    if (!rd)
        return;
    rundir_enter_attempt(rd, attempt);
    uint32_t file = rank * 2 + stream - 1u;
    struct log_file *f = &rd->files[file];
    uint64_t limit = (uint64_t)rd->job->logging.max_file.v;
    bool cut = f->len + len > limit;
    if (f->dead)
        return;
    rundir_output_name(name, sizeof name, attempt, rank, stream);
    disk_append(rd->disk, file, name, bytes, cut ? limit - f->len : len);
    f->len += len;
    if (cut) {
        static const char note[] =
            "\n[collrun: logging.max_file is reached; the rest is not stored]\n";
        disk_append(rd->disk, file, name, note, sizeof note - 1);
        f->dead = true;
    }
}

static void rundir_put_event(struct rundir *rd, const json_t *line)
{
    char *text = json_dumps(line, JSON_COMPACT | JSON_REAL_PRECISION(9));
    size_t len = text ? strlen(text) : 0;
    if (text) {
        text[len] = '\n'; /* in place of the terminator */
        disk_append(rd->disk, rd->desc->nranks * 2, EVENTS, text, len + 1);
    } else {
        rundir_not_made(rd, EVENTS);
    }
    free(text);
}

void rundir_event(struct rundir *rd, const char *event, json_t *fields)
{
    if (rd) {
        json_t *line = json_pack("{s:f, s:s, s:i}", "t", (double)(now_ns() - rd->begin_ns) / 1e9,
                                 "event", event, "attempt", (int)rd->desc->attempt);
        if (fields)
            json_object_update(line, fields);
        secrets_mask_errors(line, &rd->job->env.secrets);
        rundir_put_event(rd, line);
        json_decref(line);
    }
    json_decref(fields);
}

void rundir_metric(struct rundir *rd, uint32_t rank, uint32_t workload, const char *name,
                   double value)
{
    char key[16];
    if (!rd)
        return;
    snprintf(key, sizeof key, "%u", rank);
    json_t *of_rank = json_object_get(rd->metrics, key);
    if (!of_rank) {
        of_rank = json_object();
        json_object_set_new(rd->metrics, key, of_rank);
    }
    const char *owner = workload < rd->desc->nworkloads ? rd->desc->workloads[workload].name : "";
    char *full = xasprintf("%s.%s", owner, name);
    json_t *text = json_value_text(full);
    json_object_set_new(of_rank, json_string_value(text), json_value_number(value));
    json_decref(text);
    free(full);
    rundir_event(rd, "metric",
                 json_pack("{s:i, s:s, s:o, s:o}", "rank", (int)rank, "workload", owner, "name",
                           json_value_text(name), "value", json_value_number(value)));
}

void rundir_internal(struct rundir *rd, const char *text)
{
    if (rd)
        json_array_append_new(rd->internal, json_value_text(text));
}

void rundir_stall(struct rundir *rd, json_t *stall)
{
    if (rd)
        json_array_append(rd->stalls, stall);
    json_decref(stall);
}

static struct result rundir_end(const struct rundir *rd, const struct verdict *v, int exit_code)
{
    return (struct result){.desc = rd->desc,
                           .verdict = v,
                           .exit_code = exit_code,
                           .begin_ns = rd->begin_ns,
                           .begin_realtime = rd->begin_realtime,
                           .metrics = rd->metrics,
                           .stalls = rd->stalls,
                           .internal = rd->internal,
                           .stragglers = rd->stragglers};
}

static void rundir_write_result(struct rundir *rd)
{
    secrets_mask_errors(rd->result, &rd->job->env.secrets);
    char *text = json_dumps(rd->result, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    if (text)
        rundir_file(rd, RESULT, text, strlen(text));
    else
        rundir_not_made(rd, RESULT);
    free(text);
    disk_wait(rd->disk, RUNDIR_WAIT_MS);
    rundir_take_errors(rd);
}

void rundir_stragglers(struct rundir *rd, json_t *stragglers)
{
    if (!rd) {
        json_decref(stragglers);
        return;
    }
    json_decref(rd->stragglers);
    rd->stragglers = stragglers;
}

void rundir_trace(struct rundir *rd, json_t *trace)
{
    if (rd && rd->result && json_object_set(rd->result, "trace", trace) == 0)
        rundir_write_result(rd);
    json_decref(trace);
}

void rundir_result(struct rundir *rd, const struct rank_state *ranks, const struct verdict *v,
                   int exit_code)
{
    if (!rd)
        return;
    struct result result = rundir_end(rd, v, exit_code);
    result.ranks = ranks;
    json_array_append_new(rd->attempts, result_attempt(&result));
    json_decref(rd->result);
    rd->result = result_json(&result, rd->attempts);
    rundir_write_result(rd);
}

/* Renames the diag folder of an earlier attempt. */
static void rundir_move_diag(struct rundir *rd)
{
    char name[64];
    if (!rd->has_diag)
        return;
    snprintf(name, sizeof name, "attempt-%u/diag", rd->diag_attempt);
    disk_rename(rd->disk, "diag", name);
    rd->has_diag = false;
}

void rundir_diag(struct rundir *rd, const struct evidence *e)
{
    char name[64];
    if (!rd)
        return;
    rundir_move_diag(rd);
    if (!e)
        return;
    rd->has_diag = true;
    rd->diag_attempt = e->desc->attempt;
    disk_make_folder(rd->disk, "diag");
    json_t *o = evidence_json(e);
    secrets_mask_errors(o, &rd->job->env.secrets);
    char *text = json_dumps(o, JSON_INDENT(1));
    if (text)
        rundir_file(rd, "diag/evidence.json", text, strlen(text));
    else
        rundir_not_made(rd, "diag/evidence.json");
    for (uint32_t i = 0; i < e->desc->nranks; i++) {
        snprintf(name, sizeof name, "diag/rank-%u.record", i);
        if (e->ranks[i].record_bytes)
            rundir_file(rd, name, e->ranks[i].record_bytes, e->ranks[i].record_len);
    }
    free(text);
    json_decref(o);
}

void rundir_amend(struct rundir *rd, const struct verdict *v, int exit_code)
{
    if (!rd || !rd->result)
        return;
    struct result result = rundir_end(rd, v, exit_code);
    result_put_end(&result, rd->result);
    rundir_write_result(rd);
}
