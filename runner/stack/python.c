/* SPDX-License-Identifier: Apache-2.0 */
#include "stack/python.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *python_base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static enum python_owner python_owner_of(const char *path)
{
    if (path[0] == '<' || strstr(path, "/collrun/python/collrun/") ||
        strstr(path, "/collrun/taps/python/") || strstr(path, "-packages/collrun/"))
        return PYTHON_LIBRARY;
    if (strstr(path, "/site-packages/") || strstr(path, "/dist-packages/"))
        return PYTHON_PACKAGE;
    return strstr(path, "/lib/python3") || strstr(path, "/lib64/python3") ? PYTHON_LIBRARY
                                                                          : PYTHON_USER;
}

/* The last `", line ` of the line, since a path may contain one. */
static char *python_path_end(char *path)
{
    char *end = NULL;
    for (char *p = path; (p = strstr(p, "\", line ")); p++)
        end = p;
    return end;
}

/* `File "PATH", line N in FUNCTION` */
static bool python_parse_frame(char *line, struct python_frame *frame)
{
    static const char begin[] = "  File \"";
    char *end, *rest;
    if (strncmp(line, begin, sizeof begin - 1) != 0)
        return false;
    char *path = line + sizeof begin - 1;
    end = python_path_end(path);
    if (!end)
        return false;
    long number = strtol(end + strlen("\", line "), &rest, 10);
    if (number <= 0 || number > 1 << 30 || strncmp(rest, " in ", 4) != 0 || !rest[4])
        return false;
    *end = '\0';
    *frame = (struct python_frame){
        .path = path, .function = rest + 4, .line = (int)number, .owner = python_owner_of(path)};
    return true;
}

/* "Thread 0xIDENT ..." or "Current thread 0xIDENT ..." */
static bool python_parse_thread(const char *line, unsigned long long *ident)
{
    return (sscanf(line, "Thread 0x%llx", ident) == 1 ||
            sscanf(line, "Current thread 0x%llx", ident) == 1) &&
           strstr(line, "(most recent call first):");
}

static void python_parse_line(struct python_stacks *s, char *line, struct python_frame **next)
{
    struct python_thread *t = s->nthreads ? &s->threads[s->nthreads - 1] : NULL;
    unsigned long long ident;
    if (python_parse_thread(line, &ident)) {
        if (s->nthreads < PYTHON_THREADS_MAX)
            s->threads[s->nthreads++] = (struct python_thread){.ident = ident, .frames = *next};
    } else if (t && python_parse_frame(line, *next)) {
        if ((*next)->owner < s->places)
            s->places = (*next)->owner;
        t->nframes++;
        (*next)++;
    }
}

void python_parse(struct python_stacks *s, char *text)
{
    size_t lines = 1;
    *s = (struct python_stacks){.text = text, .places = PYTHON_LIBRARY};
    for (const char *p = text; *p; p++)
        lines += *p == '\n';
    struct python_frame *next = s->frames = calloc(lines, sizeof *s->frames);
    for (char *line = text, *end; next && (end = strchr(line, '\n')); line = end + 1) {
        *end = '\0';
        python_parse_line(s, line, &next);
    }
}

void python_fini(struct python_stacks *s)
{
    free(s->text);
    free(s->frames);
    *s = (struct python_stacks){.places = PYTHON_LIBRARY};
}

const struct python_thread *python_find(const struct python_stacks *s, pid_t tid)
{
    for (int i = 0; i < s->nthreads; i++) {
        if (s->threads[i].tid == tid && s->threads[i].nframes)
            return &s->threads[i];
    }
    return NULL;
}

void python_format(const struct python_stacks *s, const struct python_frame *frame, char *out,
                   size_t size)
{
    const char *form = frame->owner <= s->places ? "%s (%s:%d)" : "%s in %s:%d";
    snprintf(out, size, form, frame->function, python_base_name(frame->path), frame->line);
}

const struct python_frame *python_place(const struct python_stacks *s,
                                        const struct python_thread *thread)
{
    for (int i = 0; i < thread->nframes; i++) {
        if (thread->frames[i].owner <= s->places)
            return &thread->frames[i];
    }
    return NULL;
}

bool python_is_interpreter(const char *object)
{
    const char *name = python_base_name(object ? object : "");
    return strncmp(name, "python", 6) == 0 || strncmp(name, "libpython", 9) == 0;
}
