/* SPDX-License-Identifier: Apache-2.0 */
#include "spec/host_file.h"

#include "base/parse.h"
#include "base/quote.h"
#include "spec/path.h"

#include <stdlib.h>
#include <string.h>

#define QUOTED(s) quote((s), (char[QUOTE_SIZE]){0})

static const char blanks[] = " \t\r\f\v";

struct host_file_line {
    struct host_table *table;
    struct source *source;
    char *at; /* the rest of the line */
    char *begin;
    uint32_t number;
};

/* The next word of the line, NUL-terminated, or NULL. */
static char *host_file_word(struct host_file_line *line, struct diag_loc *loc)
{
    char *word = line->at + strspn(line->at, blanks);
    if (!*word)
        return NULL;
    size_t len = strcspn(word, blanks);
    *loc = (struct diag_loc){line->source->name, line->number, (uint32_t)(word - line->begin) + 1,
                             (uint32_t)len};
    line->at = word + len + (word[len] != '\0');
    word[len] = '\0';
    return word;
}

static int host_file_slots(const char *text, struct diag_loc loc, struct job_num *slots,
                           struct diag *d)
{
    int64_t n = 0;
    if (parse_int(text, &n, NULL) < 0 || n < 1 || n > JOB_RANKS_MAX)
        return diag_at(d, loc, "%s: a number of slots from 1 to %d is expected", QUOTED(text),
                       JOB_RANKS_MAX);
    *slots = (struct job_num){n, loc};
    return 0;
}

/* `[fd00::2]`, `[fd00::2]:4` or `fd00::2`, which no host file of MPI can tell from `name:4`. */
static bool host_file_is_address(const char *name)
{
    const char *colon = strchr(name, ':');
    return colon && (name[0] == '[' || strchr(colon + 1, ':'));
}

static int host_file_line(struct host_file_line *line, struct diag *d)
{
    struct diag_loc loc;
    char *name = host_file_word(line, &loc);
    int code = 0;
    if (!name)
        return 0;
    struct job_host host = {.name = {.v = name, .loc = loc}, .loc = loc, .port.v = 22};
    if (host_file_is_address(name)) {
        diag_at(d, loc, "%s: an IPv6 address cannot be in a host file", QUOTED(name));
        return diag_hint(d, "give it a name in the job file: nodes: [{name: n1, address: "
                            "\"fd00::2\", slots: 4}]");
    }
    char *colon = strchr(name, ':');
    if (colon) {
        *colon = '\0';
        code = host_file_slots(colon + 1, loc, &host.slots, d);
    }
    for (char *word; code == 0 && (word = host_file_word(line, &loc));) {
        if (strncmp(word, "slots=", 6) != 0) {
            diag_at(d, loc, "%s is not known in a host file", QUOTED(word));
            return diag_hint(d, "a line is `name`, `name slots=4` or `name:4`");
        }
        if (host.slots.v)
            return diag_at(d, loc, "the line has a number of slots already");
        code = host_file_slots(word + 6, loc, &host.slots, d);
    }
    if (code == 0)
        code = host_table_add_slots(line->table, &host, d);
    if (code < 0 && !d->loc.line)
        d->loc = host.loc;
    return code;
}

int host_file_read(struct host_table *table, const char *dir, struct source **sources,
                   struct diag *d)
{
    const struct job_str *file = &table->hosts->file;
    const char *path = path_join(dir, file->v, table->arena);
    struct source *source;
    int code = source_read(sources, table->arena, path, "host file", &source, d);
    if (code < 0) {
        d->loc = file->loc;
        return diag_wrap(d, "hosts.file: %s", path);
    }
    for (uint32_t i = 1; i <= source->nlines && code == 0; i++) {
        size_t len;
        const char *text = source_line(source, i, &len);
        char *copy = arena_strndup(table->arena, text, len);
        copy[strcspn(copy, "#")] = '\0';
        struct host_file_line line = {table, source, copy, copy, i};
        code = host_file_line(&line, d);
    }
    if (code == 0 && !table->hosts->n)
        return diag_at(d, file->loc, "hosts.file: %s names no host", QUOTED(file->v));
    return code;
}
