/* SPDX-License-Identifier: Apache-2.0 */
#include "html/run_files.h"

#include "base/mpi_names.h"
#include "base/names.h"
#include "base/quote.h"
#include "base/record_view.h"
#include "report/evidence_json.h"
#include "xalloc.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    RUN_FILES_EVENTS = 400,         /* kept of the beginning of events.jsonl, and of its end */
    RUN_FILES_MOST = 256 * 1048576, /* bytes of a file that is read as a whole */
    RUN_FILES_BENCH = 64,
    RUN_FILES_REFUSED = 16
};

FILE *run_files_find(const struct run_files *f, const char *name)
{
    struct diag d;
    FILE *in = run_file_open(f->folder, name, &d);
    if (!in && d.sys_errno == ELOOP && json_array_size(f->refused) < RUN_FILES_REFUSED)
        json_array_append_new(f->refused, json_string(name));
    return in;
}

static json_t *run_files_json(const struct run_files *f, const char *name)
{
    FILE *in = run_files_find(f, name);
    json_t *o = in ? json_loadf(in, 0, NULL) : NULL;
    if (in)
        fclose(in);
    if (json_is_object(o))
        return o;
    json_decref(o);
    return NULL;
}

static char *run_files_whole(const struct run_files *f, const char *name)
{
    char *text = NULL;
    size_t size = 0;
    FILE *in = run_files_find(f, name), *out = in ? text_stream_open(&text, &size) : NULL;
    char part[4096];
    size_t n;
    while (out && ftell(out) < RUN_FILES_MOST && (n = fread(part, 1, sizeof part, in)) > 0)
        fwrite(part, 1, n, out);
    if (in)
        fclose(in);
    text_stream_close(out, &text);
    return text;
}

static void run_files_read_events(struct run_files *f)
{
    char *line = NULL;
    size_t size = 0;
    FILE *in = run_files_find(f, "events.jsonl");
    while (in && getline(&line, &size, in) > 0) {
        json_t *o = json_loads(line, 0, NULL);
        if (!json_is_object(o)) { /* the last line of a run that was killed */
            json_decref(o);
            continue;
        }
        json_array_append_new(f->events, o);
        if (json_array_size(f->events) > 2 * (size_t)RUN_FILES_EVENTS) {
            json_array_remove(f->events, RUN_FILES_EVENTS);
            f->events_left_out++;
        }
    }
    free(line);
    if (in)
        fclose(in);
}

static int run_files_is_bench(const struct dirent *entry)
{
    const char *end = strrchr(entry->d_name, '.');
    return strncmp(entry->d_name, "bench-", 6) == 0 && end && strcmp(end, ".json") == 0;
}

static void run_files_read_bench(struct run_files *f)
{
    struct dirent **list = NULL;
    int n = scandir(f->folder, &list, run_files_is_bench, alphasort);
    for (int i = 0; i < n; i++) {
        json_t *o = i < RUN_FILES_BENCH ? run_files_json(f, list[i]->d_name) : NULL;
        if (o && json_is_array(json_object_get(o, "results")))
            json_array_append(f->bench, o);
        json_decref(o);
        free(list[i]);
    }
    free(list);
}

static void run_files_read_evidence(struct run_files *f)
{
    struct diag d;
    f->has_evidence = evidence_read(&f->evidence, f->folder, true, &d) == COLLRUN_OK;
    if (!f->has_evidence && d.sys_errno == ELOOP)
        json_array_append_new(f->refused, json_string("diag"));
    if (!f->has_evidence)
        evidence_files_fini(&f->evidence);
}

static int run_files_none(const char *folder, struct diag *d)
{
    struct stat st;
    if (stat(folder, &st) < 0)
        diag_sys(d, errno, "cannot read the run directory %s", folder);
    else if (!S_ISDIR(st.st_mode))
        diag_set(d, COLLRUN_ERR_INVALID, "%s is not a run directory, but a file", folder);
    else
        diag_set(d, COLLRUN_ERR_INVALID,
                 "%s is not a run directory: it has neither result.json nor plan.json", folder);
    return diag_hint(d, "logging.dir in job.yaml, or --run-dir, names the run directory");
}

int run_files_open(struct run_files *f, const char *folder, struct diag *d)
{
    *f = (struct run_files){.folder = folder};
    f->refused = json_array();
    f->events = json_array();
    f->bench = json_array();
    f->result = run_files_json(f, "result.json");
    f->plan = run_files_json(f, "plan.json");
    if (!f->result && !f->plan)
        f->matrix = run_files_json(f, "matrix.json");
    if (!f->result && !f->plan && !f->matrix)
        return run_files_none(folder, d);
    f->result = f->result ? f->result : json_object();
    f->plan = f->plan ? f->plan : json_object();
    f->job = run_files_whole(f, "resolved.yaml");
    run_files_read_events(f);
    run_files_read_bench(f);
    run_files_read_evidence(f);
    return COLLRUN_OK;
}

void run_files_close(struct run_files *f)
{
    json_decref(f->result);
    json_decref(f->plan);
    json_decref(f->matrix);
    json_decref(f->refused);
    json_decref(f->events);
    json_decref(f->bench);
    free(f->job);
    if (f->has_evidence)
        evidence_files_fini(&f->evidence);
    *f = (struct run_files){0};
}

size_t run_files_tail(const struct run_files *f, const char *name, char *bytes, size_t size,
                      uint64_t *total)
{
    FILE *in = run_files_find(f, name);
    size_t n = 0;
    *total = 0;
    if (in && fseeko(in, 0, SEEK_END) == 0) {
        off_t end = ftello(in);
        *total = end > 0 ? (uint64_t)end : 0;
        if (fseeko(in, *total > size ? end - (off_t)size : 0, SEEK_SET) == 0)
            n = fread(bytes, 1, size, in);
    }
    if (in)
        fclose(in);
    return n;
}

const char *run_files_text(const json_t *o, const char *key)
{
    const char *text = json_string_value(json_object_get(o, key));
    return text ? text : "";
}

/* ---- trace file ---- */

enum {
    TRACE_FILE_INSTANTS = 500,
    TRACE_FILE_QUEUES = 16 /* tracks of one group */
};

static double trace_file_number(const json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}

static uint64_t trace_file_integer(const json_t *o, const char *key)
{
    json_int_t n = json_integer_value(json_object_get(o, key));
    return n > 0 ? (uint64_t)n : 0;
}

static void trace_file_operation(const json_t *event, struct ops *ops)
{
    const json_t *args = json_object_get(event, "args");
    uint64_t track = trace_file_integer(event, "tid");
    const char *state = run_files_text(args, "state");
    const struct op op = {.rank = (uint32_t)trace_file_integer(event, "pid"),
                          .group = run_files_text(args, "Process Group Name"),
                          .scope = (uint32_t)(track / TRACE_FILE_QUEUES),
                          .queue = (uint32_t)(track % TRACE_FILE_QUEUES),
                          .members = (uint32_t)trace_file_integer(args, "Group size"),
                          .kind = run_files_text(event, "name"),
                          .message = strcmp(run_files_text(event, "cat"), "p2p") == 0,
                          .state = *state ? state : "done",
                          .number = trace_file_integer(args, "seq"),
                          .bytes = trace_file_integer(args, "bytes"),
                          .begin_us = trace_file_number(event, "ts"),
                          .length_us = trace_file_number(event, "dur")};
    ops_take(ops, &op);
}

static void trace_file_instant(struct trace_file *t, const json_t *event)
{
    const json_t *args = json_object_get(event, "args");
    bool of_rank = strcmp(run_files_text(event, "s"), "p") == 0;
    if (strcmp(run_files_text(event, "name"), "dropped") == 0)
        t->dropped += trace_file_integer(args, "operations");
    if (json_array_size(t->instants) < TRACE_FILE_INSTANTS)
        json_array_append_new(
            t->instants, json_pack("[f, i, s, s]", trace_file_number(event, "ts"),
                                   of_rank ? (int)trace_file_integer(event, "pid") : -1,
                                   run_files_text(event, "name"), run_files_text(args, "text")));
}

static void trace_file_end(struct trace_file *t, const json_t *event)
{
    uint64_t dropped = trace_file_integer(json_object_get(event, "args"), "dropped");
    if (strcmp(run_files_text(event, "name"), "trace_end") == 0)
        t->dropped = dropped;
}

static void trace_file_line(struct trace_file *t, const char *line, size_t len, struct ops *ops)
{
    while (len && strchr("\r\n, ]", line[len - 1]))
        len--;
    json_t *event = len && *line == '{' ? json_loadb(line, len, 0, NULL) : NULL;
    const char *phase = run_files_text(event, "ph");
    if (strcmp(phase, "X") == 0)
        trace_file_operation(event, ops);
    else if (strcmp(phase, "i") == 0)
        trace_file_instant(t, event);
    else if (strcmp(phase, "M") == 0)
        trace_file_end(t, event);
    json_decref(event);
}

void trace_file_read(struct trace_file *t, FILE *in, struct ops *ops)
{
    char *line = NULL;
    size_t size = 0;
    ssize_t n;
    *t = (struct trace_file){.instants = json_array()};
    while ((n = getline(&line, &size, in)) > 0)
        trace_file_line(t, line, (size_t)n, ops);
    free(line);
}

void trace_file_fini(struct trace_file *t)
{
    json_decref(t->instants);
    *t = (struct trace_file){0};
}

/* ---- flight records ---- */

enum { FLIGHT_RECORDS_SCOPES = 4096 };

struct flight_scopes { /* the scopes of groups, as numbers */
    char names[FLIGHT_RECORDS_SCOPES][64];
    uint32_t n;
};

static uint32_t flight_records_scope(struct flight_scopes *s, const char *scope)
{
    for (uint32_t i = s->n; i-- > 0;) {
        if (strcmp(s->names[i], scope) == 0)
            return i;
    }
    if (s->n == FLIGHT_RECORDS_SCOPES)
        return s->n;
    snprintf(s->names[s->n], sizeof s->names[0], "%s", scope);
    return s->n++;
}

static const char *flight_records_state(enum record_state state)
{
    static const char *const names[] = {
        [RECORD_POSTED] = "posted", [RECORD_STARTED] = "started", [RECORD_DONE] = "done",
        [RECORD_FAILED] = "failed", [RECORD_ABORTED] = "aborted", [RECORD_CANCELED] = "canceled"};
    return names[state];
}

/* Bytes of an element. */
struct flight_span { /* of all that is in records */
    uint64_t first_ns, last_ns;
};

static void flight_records_span(const struct record_view *v, struct flight_span *span)
{
    struct record_view_op op;
    for (uint64_t i = record_view_first(v); i < record_view_end(v); i++) {
        if (!record_view_op(v, i, &op) || !op.called_ns)
            continue;
        uint64_t last = op.ended_ns > op.called_ns ? op.ended_ns : op.called_ns;
        span->first_ns = op.called_ns < span->first_ns ? op.called_ns : span->first_ns;
        span->last_ns = last > span->last_ns ? last : span->last_ns;
    }
}

/* What has not ended is drawn a little longer than the last thing that happened. */
static uint64_t flight_records_end(const struct flight_span *span)
{
    return span->last_ns + (span->last_ns - span->first_ns) / 12 + 1000;
}

static void flight_records_rank(const struct record_view *v, uint32_t rank, uint64_t end_ns,
                                struct flight_scopes *scopes, struct ops *ops)
{
    struct record_view_op op;
    struct record_view_group g;
    for (uint64_t i = record_view_first(v); i < record_view_end(v); i++) {
        if (!record_view_op(v, i, &op) || !op.called_ns)
            continue;
        if (!op.is_current || !record_view_group(v, op.slot, &g))
            continue;
        uint64_t end = op.ended_ns ? op.ended_ns : end_ns;
        ops_take(
            ops,
            &(struct op){.rank = rank,
                         .group = g.name,
                         .scope = flight_records_scope(scopes, g.scope),
                         .queue = g.messages,
                         .members = g.members,
                         .kind = op.function             ? mpi_function_name(op.function)
                                 : op.kind == KIND_PROBE ? "probe"
                                                         : kind_name(op.kind),
                         .message = g.messages,
                         .state = flight_records_state(op.state),
                         .number = op.number,
                         .bytes = op.count * record_view_op_size(&op),
                         .begin_us = (double)op.called_ns / 1e3,
                         .length_us = end > op.called_ns ? (double)(end - op.called_ns) / 1e3 : 0});
    }
}

uint64_t flight_records_read(const struct evidence *e, struct ops *ops)
{
    struct record_view v;
    struct diag d;
    uint64_t lost = 0;
    struct flight_span span = {UINT64_MAX, 0};
    struct flight_scopes *scopes = xcalloc(1, sizeof *scopes);
    for (uint32_t pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < e->desc->nranks; i++) {
            const struct rank_state *r = &e->ranks[i];
            if (!r->record_bytes || record_view_init(&v, r->record_bytes, r->record_len, &d) < 0)
                continue;
            lost += pass == 0 ? record_view_first(&v) : 0;
            if (pass == 0)
                flight_records_span(&v, &span);
            else
                flight_records_rank(&v, i, flight_records_end(&span), scopes, ops);
        }
    }
    free(scopes);
    return lost;
}
