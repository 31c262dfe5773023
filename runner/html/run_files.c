/* SPDX-License-Identifier: Apache-2.0 */
#include "html/run_files.h"

#include "base/text_stream.h"
#include "report/run_file.h"

#include <dirent.h>
#include <errno.h>
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
