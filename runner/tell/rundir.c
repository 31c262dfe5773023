/* SPDX-License-Identifier: Apache-2.0
 *
 * The files of a rank are made when it starts, and held open from their first byte on. result.json
 * is written beside its name and then renamed: whoever sees it, sees all of it.
 */
#include "tell/rundir.h"

#include "base/loop.h"
#include "tell/result.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define RESULT "result.json" /* whose loss is always told */

struct log_file {
    int fd; /* -1: not open */
    bool dead;
    uint64_t len;
};

struct rundir {
    const struct job *job;
    const struct desc *desc;
    int dir;
    uint64_t begin_ns;
    uint32_t attempt;       /* that the files below belong to */
    struct log_file *files; /* two per rank */
    struct log_file events;
    time_t begin_realtime;
    json_t *metrics;  /* rank -> name -> last value */
    json_t *attempts; /* how each ended */
    json_t *result;   /* as it was last written; NULL: not yet */
    FILE *voice;
    bool complained;
};

static void complain(struct rundir *rd, const char *what)
{
    if (!rd->complained || strcmp(what, RESULT) == 0)
        fprintf(rd->voice, "collrun: warning: %s/%s: %s; the job goes on, its log does not\n",
                rd->desc->run_dir, what, strerror(errno));
    rd->complained = true;
}

/* mkdir -p */
static int make_dirs(const char *path)
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

struct rundir *rundir_open(const struct job *job, const struct desc *desc, FILE *voice,
                           struct diag *d)
{
    diag_init(d);
    if (!desc->run_dir[0])
        return NULL;
    int err = make_dirs(desc->run_dir);
    struct rundir *rd = err ? NULL : calloc(1, sizeof *rd);
    int dir = rd ? open(desc->run_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (dir >= 0 && faccessat(dir, RESULT, F_OK, 0) == 0)
        err = EEXIST;
    else if (dir >= 0 && faccessat(dir, ".", W_OK | X_OK, AT_EACCESS) < 0)
        err = errno;
    if (dir < 0 || err) {
        const struct diag_loc loc = job->logging.dir.loc; /* none: it comes from the command line */
        diag_sys(d, err ? err : errno, "%s: %s", loc.line ? "logging.dir" : "--run-dir",
                 desc->run_dir);
        d->loc = loc;
        if (err == EEXIST)
            diag_hint(d, "another run is in it; put {run_id} into the name");
        if (dir >= 0)
            close(dir);
        free(rd);
        return NULL;
    }
    *rd = (struct rundir){.job = job,
                          .desc = desc,
                          .dir = dir,
                          .voice = voice,
                          .begin_ns = now_ns(),
                          .begin_realtime = time(NULL),
                          .attempt = UINT32_MAX,
                          .events = {.fd = -1}};
    rd->files = calloc(desc->nranks * 2, sizeof *rd->files);
    rd->metrics = json_object();
    rd->attempts = json_array();
    for (uint32_t i = 0; rd->files && i < desc->nranks * 2; i++)
        rd->files[i].fd = -1;
    if (!rd->files || !rd->metrics || !rd->attempts) {
        diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory for the run directory");
        rundir_close(rd);
        return NULL;
    }
    return rd;
}

static void close_files(struct rundir *rd)
{
    for (uint32_t i = 0; rd->files && i < rd->desc->nranks * 2; i++) {
        if (rd->files[i].fd >= 0)
            close(rd->files[i].fd);
        rd->files[i] = (struct log_file){.fd = -1};
    }
}

void rundir_close(struct rundir *rd)
{
    if (!rd)
        return;
    close_files(rd);
    if (rd->events.fd >= 0)
        close(rd->events.fd);
    json_decref(rd->metrics);
    json_decref(rd->attempts);
    json_decref(rd->result);
    free(rd->files);
    close(rd->dir);
    free(rd);
}

/* False, with errno: it is dead from now on. */
static bool put(const struct rundir *rd, struct log_file *f, const char *name, const void *bytes,
                size_t len)
{
    if (f->fd < 0)
        f->fd = openat(rd->dir, name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    const char *p = bytes;
    while (f->fd >= 0 && len) {
        ssize_t n = write(f->fd, p, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            break;
        p += n;
        len -= (size_t)n;
        f->len += (uint64_t)n;
    }
    f->dead = f->fd < 0 || len;
    return !f->dead;
}

static void append(struct rundir *rd, struct log_file *f, const char *name, const void *bytes,
                   size_t len)
{
    if (!f->dead && !put(rd, f, name, bytes, len))
        complain(rd, name);
}

void rundir_file(struct rundir *rd, const char *name, const char *text, size_t len)
{
    char temporary[128];
    if (!rd)
        return;
    snprintf(temporary, sizeof temporary, ".%s.new", name);
    struct log_file f = {.fd = -1};
    if (!put(rd, &f, temporary, text, len) || renameat(rd->dir, temporary, rd->dir, name) < 0) {
        complain(rd, name);
        unlinkat(rd->dir, temporary, 0);
    }
    if (f.fd >= 0)
        close(f.fd);
}

static void enter_attempt(struct rundir *rd, uint32_t attempt)
{
    char name[32];
    if (rd->attempt == attempt)
        return;
    snprintf(name, sizeof name, "attempt-%u", attempt);
    close_files(rd);
    rd->attempt = attempt;
    if (mkdirat(rd->dir, name, 0777) < 0 && errno != EEXIST)
        complain(rd, name);
}

static void output_name(char *out, size_t size, uint32_t attempt, uint32_t rank, uint8_t stream)
{
    snprintf(out, size, "attempt-%u/rank-%u.%s", attempt, rank, stream == 1 ? "stdout" : "stderr");
}

void rundir_rank(struct rundir *rd, uint32_t attempt, uint32_t rank)
{
    if (!rd)
        return;
    enter_attempt(rd, attempt);
    for (uint8_t stream = 1; stream <= 2; stream++) {
        char name[64];
        output_name(name, sizeof name, attempt, rank, stream);
        int fd = openat(rd->dir, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
        if (fd < 0)
            complain(rd, name);
        else
            close(fd);
    }
}

void rundir_output(struct rundir *rd, uint32_t attempt, uint32_t rank, uint8_t stream,
                   const void *bytes, size_t len)
{
    char name[64];
    if (!rd)
        return;
    enter_attempt(rd, attempt);
    struct log_file *f = &rd->files[rank * 2 + stream - 1u];
    uint64_t limit = (uint64_t)rd->job->logging.max_file.v;
    bool cut = f->len + len > limit;
    output_name(name, sizeof name, attempt, rank, stream);
    if (!f->dead)
        append(rd, f, name, bytes, cut ? limit - f->len : len);
    if (cut && !f->dead) {
        static const char note[] =
            "\n[collrun: logging.max_file is reached; the rest is not kept]\n";
        append(rd, f, name, note, sizeof note - 1);
        f->dead = true;
    }
}

void rundir_event(struct rundir *rd, const char *event, json_t *fields)
{
    if (rd) {
        json_t *line = json_pack("{s:f, s:s, s:i}", "t", (double)(now_ns() - rd->begin_ns) / 1e9,
                                 "event", event, "attempt", (int)rd->desc->attempt);
        if (fields)
            json_object_update(line, fields);
        char *text = line ? json_dumps(line, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
        if (text) {
            append(rd, &rd->events, "events.jsonl", text, strlen(text));
            append(rd, &rd->events, "events.jsonl", "\n", 1);
        }
        free(text);
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
    char *full = NULL;
    if (asprintf(&full, "%s.%s", owner, name) > 0)
        json_object_set_new(of_rank, full, json_real(value));
    free(full);
    rundir_event(rd, "metric",
                 json_pack("{s:i, s:s, s:s, s:f}", "rank", (int)rank, "workload", owner, "name",
                           name, "value", value));
}

static struct result result_of(const struct rundir *rd, const struct verdict *v, int exit_code)
{
    return (struct result){.desc = rd->desc,
                           .verdict = v,
                           .exit_code = exit_code,
                           .begin_ns = rd->begin_ns,
                           .begin_realtime = rd->begin_realtime,
                           .metrics = rd->metrics};
}

static void write_result(struct rundir *rd)
{
    char *text = json_dumps(rd->result, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    if (text)
        rundir_file(rd, RESULT, text, strlen(text));
    free(text);
}

void rundir_result(struct rundir *rd, const struct rank_state *ranks, const struct verdict *v,
                   int exit_code)
{
    if (!rd)
        return;
    struct result result = result_of(rd, v, exit_code);
    result.ranks = ranks;
    json_array_append_new(rd->attempts, result_attempt(&result));
    json_decref(rd->result);
    rd->result = result_json(&result, rd->attempts);
    write_result(rd);
}

void rundir_amend(struct rundir *rd, const struct verdict *v, int exit_code)
{
    if (!rd || !rd->result)
        return;
    struct result result = result_of(rd, v, exit_code);
    result_put_end(&result, rd->result);
    write_result(rd);
}
