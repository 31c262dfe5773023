/* SPDX-License-Identifier: Apache-2.0 */
#include "spec/env_file.h"

#include "base/quote.h"
#include "base/template.h"
#include "spec/names.h"
#include "spec/path.h"

#include <string.h>

/* A line at its place in a file. */
struct env_line {
    const struct source *source;
    const char *text; /* without blanks around it */
    struct diag_loc loc;
};

static bool env_file_is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* The line without blanks around it and without "export ". False: it has no variable. */
static bool env_file_line(const struct source *source, uint32_t number, struct arena *arena,
                          struct env_line *line)
{
    size_t len, skipped = 0;
    const char *text = source_line(source, number, &len);
    while (len && env_file_is_blank(text[len - 1]))
        len--;
    while (skipped < len && env_file_is_blank(text[skipped]))
        skipped++;
    if (len - skipped > 7 && strncmp(text + skipped, "export ", 7) == 0)
        skipped += 7;
    line->source = source;
    line->text = arena_strndup(arena, text + skipped, len - skipped);
    line->loc =
        (struct diag_loc){source->name, number, (uint32_t)skipped + 1, (uint32_t)(len - skipped)};
    return *line->text && *line->text != '#';
}

/* The value, whose quotes are left out. INVALID: they are not closed. */
static int env_file_value(const struct env_line *line, const char *text, struct arena *arena,
                          const char **out, struct diag *d)
{
    const size_t len = strlen(text);
    const char quoted = *text == '"' || *text == '\'' ? *text : '\0';
    if (quoted && (len < 2 || text[len - 1] != quoted))
        return diag_at(d, line->loc, "env.files: the quotes of the value are not closed");
    *out = quoted ? arena_strndup(arena, text + 1, len - 2) : text;
    return 0;
}

static int env_file_add(const struct env_line *line, struct job_pairs *pairs, struct arena *arena,
                        struct diag *d)
{
    const char *equals = strchr(line->text, '='), *value = NULL;
    if (!equals) {
        diag_at(d, line->loc, "env.files: expected NAME=VALUE, found %s",
                quote(line->text, (char[QUOTE_SIZE]){0}));
        return d->code;
    }
    const char *name = arena_strndup(arena, line->text, (size_t)(equals - line->text));
    int code = name_check_env(name, d);
    if (code == 0)
        code = env_file_value(line, equals + 1, arena, &value, d);
    if (code < 0) {
        d->loc = line->loc;
        return code;
    }
    pairs->items[pairs->n++] = (struct job_pair){.key = name,
                                                 .value = template_literal(value, arena),
                                                 .key_loc = line->loc,
                                                 .loc = line->loc,
                                                 .quoted = true};
    return 0;
}

static void env_file_read(struct job *job, const struct job_str *file, struct arena *arena,
                          struct diag_list *diags)
{
    struct job_pairs *pairs = &job->env.from_files;
    struct source *source;
    struct env_line line;
    struct diag d;
    const char *path = path_join(job->dir, file->v, arena);
    diag_init(&d);
    if (source_read(&job->sources, arena, path, "file of variables", &source, &d) < 0) {
        diag_wrap(&d, "env.files: %s", path);
        d.loc = file->loc;
        diag_list_add(diags, &d);
        return;
    }
    struct job_pair *items = arena_calloc(arena, (size_t)pairs->n + source->nlines, sizeof *items);
    if (pairs->n)
        memcpy(items, pairs->items, pairs->n * sizeof *items);
    pairs->items = items;
    for (uint32_t i = 1; i <= source->nlines; i++)
        if (env_file_line(source, i, arena, &line) && env_file_add(&line, pairs, arena, &d) < 0)
            diag_list_add(diags, &d);
}

void env_files_read(struct job *job, struct arena *arena, struct diag_list *diags)
{
    for (uint32_t i = 0; i < job->env.files.n; i++)
        if (job->env.files.items[i].v)
            env_file_read(job, &job->env.files.items[i], arena, diags);
}
