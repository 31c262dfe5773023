/* SPDX-License-Identifier: Apache-2.0 */
#include "html/trace_file.h"

#include "html/run_files.h"

#include <stdlib.h>
#include <string.h>

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
