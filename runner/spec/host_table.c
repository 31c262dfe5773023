/* SPDX-License-Identifier: Apache-2.0 */
#include "spec/host_table.h"

#include "base/parse.h"
#include "base/quote.h"
#include "spec/names.h"
#include "spec/path.h"

#include <stdlib.h>
#include <string.h>

static void host_table_merge_str(struct job_str *to, const struct job_str *from)
{
    if (!to->loc.line)
        *to = *from;
}

static void host_table_merge_num(struct job_num *to, const struct job_num *from)
{
    if (!to->loc.line)
        *to = *from;
}

static void host_table_merge(struct job_host *host, const struct job_host *defaults)
{
    host_table_merge_str(&host->user, &defaults->user);
    host_table_merge_str(&host->workdir, &defaults->workdir);
    host_table_merge_num(&host->port, &defaults->port);
    host_table_merge_num(&host->slots, &defaults->slots);
    if (!host->gpus.count.loc.line && !host->gpus.list.loc.line)
        host->gpus = defaults->gpus;
    if (host->transport.command.loc.line)
        host->transport.kind = (struct job_num){JOB_TRANSPORT_COMMAND, host->transport.command.loc};
    if (!host->transport.kind.loc.line)
        host->transport = defaults->transport;
    if (!host->loc.line)
        host->loc = host->name.loc;
}

/* Makes room for `n` more hosts. */
static void host_table_reserve(struct host_table *table, uint32_t n)
{
    struct job_hosts *hosts = table->hosts;
    if (hosts->n + n <= table->capacity)
        return;
    table->capacity = 2 * (hosts->n + n);
    struct job_host *grown = arena_calloc(table->arena, table->capacity, sizeof *grown);
    if (hosts->n)
        memcpy(grown, hosts->nodes, hosts->n * sizeof *grown);
    hosts->nodes = grown;
}

static struct job_host *host_table_find(const struct host_table *table, const char *name)
{
    for (uint32_t i = 0; i < table->hosts->n; i++) {
        if (strcmp(table->hosts->nodes[i].name.v, name) == 0)
            return &table->hosts->nodes[i];
    }
    return NULL;
}

static int64_t host_table_slots(const struct job_host *host)
{
    return host->slots.v ? host->slots.v : 1;
}

/* What becomes of a name that is there already. */
enum host_table_repeat {
    HOST_TABLE_APPEND, /* the check of the job refuses it */
    HOST_TABLE_SKIP,
    HOST_TABLE_ADD_SLOTS
};

static int host_table_put(struct host_table *table, const struct job_host *written,
                          enum host_table_repeat repeat, struct diag *d)
{
    struct job_hosts *hosts = table->hosts;
    const char **names;
    uint32_t n;
    if (hosts->n > HOSTS_MAX)
        return 0;
    int code = name_expand_hosts(written->name.v, table->arena, &names, &n, d);
    if (code == 0)
        host_table_reserve(table, n);
    for (uint32_t i = 0; i < n && code == 0; i++) {
        struct job_host *host =
            repeat != HOST_TABLE_APPEND ? host_table_find(table, names[i]) : NULL;
        if (host && repeat == HOST_TABLE_SKIP)
            continue;
        if (host) {
            host->slots.v = host_table_slots(host) + host_table_slots(written);
            host->slots.loc = written->loc;
            continue;
        }
        host = &hosts->nodes[hosts->n++];
        *host = *written;
        host->name.v = names[i];
        host_table_merge(host, &hosts->defaults);
    }
    return code;
}

int host_table_add(struct host_table *table, const struct job_host *written, struct diag *d)
{
    return host_table_put(table, written, HOST_TABLE_APPEND, d);
}

int host_table_add_once(struct host_table *table, const struct job_host *written, struct diag *d)
{
    return host_table_put(table, written, HOST_TABLE_SKIP, d);
}

int host_table_add_slots(struct host_table *table, const struct job_host *written, struct diag *d)
{
    return host_table_put(table, written, HOST_TABLE_ADD_SLOTS, d);
}

/* ---- host files ---- */

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
