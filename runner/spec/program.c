/* SPDX-License-Identifier: Apache-2.0
 *
 * From a command line to the text of a job file, which is then read as any other one: all of its
 * checks apply, and an error shows the line.
 *
 * --hosts is a host file if it has a slash or is the name of a file here, the name of a scheduler,
 * or else a list as mpirun takes it: node1,node2:4,gpu[01-16].
 */
#include "spec/program.h"

#include "base/quote.h"
#include "spec/emit.h"
#include "xalloc.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* YAML has no text for bytes that are no UTF-8. */
static int program_check_text(const char *word, struct diag *d)
{
    for (size_t left = strlen(word), n; left; word += n, left -= n) {
        n = utf8_len(word, left);
        if (n)
            continue;
        diag_set(d, COLLRUN_ERR_INVALID, "an argument of the program is no UTF-8: the byte 0x%02x",
                 (unsigned char)*word);
        return diag_hint(d, "a script can hold such an argument");
    }
    return 0;
}

/* ---- hosts ---- */

static bool program_is_scheduler(const char *hosts)
{
    static const char *const names[] = {"slurm", "pbs", "lsf", "sge", "flux"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(hosts, names[i]) == 0)
            return true;
    return false;
}

static bool program_is_host_file(const char *hosts)
{
    struct stat st;
    return strchr(hosts, '/') || (stat(hosts, &st) == 0 && !S_ISDIR(st.st_mode));
}

/* The length of the first item of a list: up to a comma outside brackets. */
static size_t program_item_len(const char *list)
{
    size_t len = 0;
    for (int depth = 0; list[len] && (depth || list[len] != ','); len++)
        depth += (list[len] == '[') - (list[len] == ']');
    return len;
}

/* "node2:4" has 4 slots; a name with more than one colon is an address of IPv6. */
static void program_put_host(const char *item, struct arena *arena, FILE *out)
{
    const char *colon = strchr(item, ':');
    if (!colon || strchr(colon + 1, ':') || !colon[1] ||
        colon[1 + strspn(colon + 1, "0123456789")]) {
        emit_text(item, EMIT_DOLLARS, out);
        return;
    }
    fputs("{name: ", out);
    emit_text(arena_strndup(arena, item, (size_t)(colon - item)), EMIT_DOLLARS, out);
    fprintf(out, ", slots: %s}", colon + 1);
}

static void program_put_hosts(const char *hosts, struct arena *arena, FILE *out)
{
    if (program_is_scheduler(hosts)) {
        fprintf(out, "hosts: %s\n", hosts);
        return;
    }
    if (program_is_host_file(hosts)) {
        fputs("hosts: {file: ", out);
        emit_text(hosts, EMIT_DOLLARS, out);
        fputs("}\n", out);
        return;
    }
    fputs("hosts: {nodes: [", out);
    for (const char *at = hosts; *at;) {
        const size_t len = program_item_len(at);
        fputs(at == hosts ? "" : ", ", out);
        program_put_host(arena_strndup(arena, at, len), arena, out);
        at += len;
        if (*at == ',' && !at[1])
            fputs(", \"\"", out); /* the reader refuses it at its place */
        at += *at == ',';
    }
    fputs("]}\n", out);
}

/* ---- the file ---- */

/* Not in quotes, in which it would be no number. */
static void program_put_number(const char *word, FILE *out)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789.+-";
    if (word[strspn(word, plain)] || strcmp(word, "-") == 0)
        emit_text(word, EMIT_DOLLARS, out);
    else
        fputs(word, out);
}

static void program_put(const struct program *program, struct arena *arena, FILE *out)
{
    fputs("version: 1\nprocesses: {", out);
    if (program->count) {
        fputs("count: ", out);
        program_put_number(program->count, out);
    }
    if (program->gpus) {
        fprintf(out, "%sgpus_per_process: ", program->count ? ", " : "");
        program_put_number(program->gpus, out);
    }
    fputs("}\n", out);
    if (program->hosts)
        program_put_hosts(program->hosts, arena, out);
    fputs("workloads: [{command: [", out);
    for (uint32_t i = 0; program->command[i]; i++) {
        fputs(i ? ", " : "", out);
        emit_text(program->command[i], EMIT_DOLLARS, out);
    }
    fputs("]}]\n", out);
}

const char *program_job(const struct program *program, struct arena *arena, struct diag *d)
{
    const char *const words[] = {program->count, program->gpus, program->hosts};
    int code = 0;
    for (size_t i = 0; i < sizeof words / sizeof *words && code == 0; i++)
        code = words[i] ? program_check_text(words[i], d) : 0;
    for (uint32_t i = 0; program->command[i] && code == 0; i++)
        code = program_check_text(program->command[i], d);
    if (code < 0)
        return NULL;
    char *text = NULL;
    size_t len = 0;
    FILE *out = text_stream_open(&text, &len);
    program_put(program, arena, out);
    text_stream_close(out, &text);
    const char *copy = arena_strndup(arena, text, len);
    free(text);
    return copy;
}
