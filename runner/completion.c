/* SPDX-License-Identifier: Apache-2.0
 *
 * In all three shells, the first word may be a command or a job file; the words that follow are
 * completed for the command that was given, or for `run`. The scripts are completion.bash,
 * completion.zsh and completion.fish, in which marks such as @NAMES@ stand for what the tables of
 * commands and options say; a mark in a comment stands for lines, and the comment goes. The scripts
 * ask this program for the names of plugins and the keys of the job file: `collrun completion
 * plugins`, `collrun completion keys`.
 */
#include "completion.h"

#include "completion_scripts.h"
#include "opts_table.h"
#include "spec/schema.h"

#include <string.h>

/* ---- what follows ---- */

enum completion_files { COMPLETION_NONE, COMPLETION_JOBS, COMPLETION_FOLDERS, COMPLETION_ALL };

static enum completion_files completion_of_word(enum opts_word word)
{
    switch (word) {
    case OPTS_JOB_OPTIONAL:
    case OPTS_JOB_REQUIRED:
        return COMPLETION_JOBS;
    case OPTS_FOLDER_OPTIONAL:
    case OPTS_FOLDER_REQUIRED:
        return COMPLETION_FOLDERS;
    case OPTS_PLUGIN_REQUIRED:
        return COMPLETION_ALL;
    default:
        return COMPLETION_NONE;
    }
}

static enum completion_files completion_of_value(const struct opts_option_row *o)
{
    return strcmp(o->value, "DIR") == 0 ? COMPLETION_FOLDERS
           : strstr(o->value, "FILE")   ? COMPLETION_ALL
                                        : COMPLETION_NONE;
}

/* The shells know that --hosts of plan which has no value: it need not have one. */
static bool completion_has(const struct opts_option_row *o, int command)
{
    if (o == &opts_options[OPTION_HOST_LIST] && command == OPTS_PLAN)
        return false;
    return o->commands & OPTS_FOR(command);
}

static void completion_put_names(const char *between, FILE *out)
{
    for (int i = 0; i < OPTS_NCOMMANDS; i++)
        fprintf(out, "%s%s", i ? between : "", opts_commands[i].name);
}

static void completion_names(FILE *out)
{
    completion_put_names(" ", out);
}

/* ---- bash ---- */

static void completion_bash_pattern(FILE *out)
{
    completion_put_names("|", out);
}

static void completion_bash_options_of(int command, FILE *out)
{
    char text[32];
    for (int i = 0; i < OPTS_NOPTIONS; i++) {
        if (completion_has(&opts_options[i], command))
            fprintf(out, "%s ", opts_option_text(&opts_options[i], text));
    }
}

static void completion_bash_values(FILE *out)
{
    static const char *const actions[] = {[COMPLETION_NONE] = "return",
                                          [COMPLETION_FOLDERS] = "files=-d",
                                          [COMPLETION_ALL] = "files=-f"};
    char text[32];
    for (int i = 0; i < OPTS_NOPTIONS; i++) {
        const struct opts_option_row *o = &opts_options[i];
        if (o == &opts_options[OPTION_SET])
            fputs("    --set) mapfile -t COMPREPLY < <(compgen -W \"$(\"$program\" completion keys "
                  "2>/dev/null)\" -- \"$current\")\n"
                  "        compopt -o nospace 2>/dev/null; return ;;\n",
                  out);
        else if (o->value)
            fprintf(out, "    %s) %s ;;\n", opts_option_text(o, text),
                    actions[completion_of_value(o)]);
    }
}

static void completion_bash_options(FILE *out)
{
    static const char *const actions[] = {[COMPLETION_NONE] = "",
                                          [COMPLETION_JOBS] = "files=yaml",
                                          [COMPLETION_FOLDERS] = "files=-d",
                                          [COMPLETION_ALL] = "files=-f"};
    for (int i = 0; i < OPTS_NCOMMANDS; i++) {
        fprintf(out, "    %s) words=\"", opts_commands[i].name);
        completion_bash_options_of(i, out);
        fprintf(out, "\" %s ;;\n", actions[completion_of_word(opts_commands[i].word)]);
    }
}

/* ---- zsh ---- */

/* As zsh quotes: in '...' a quote is '\''; in _arguments [ ] : are escaped. */
static void completion_zsh_text(const char *text, FILE *out)
{
    for (; *text; text++) {
        if (*text == '\'')
            fputs("'\\''", out);
        else if (strchr("[]:", *text))
            fprintf(out, "\\%c", *text);
        else
            fputc(*text, out);
    }
}

static void completion_zsh_option(const struct opts_option_row *o, FILE *out)
{
    static const char *const actions[] = {
        [COMPLETION_NONE] = "", [COMPLETION_FOLDERS] = "_files -/", [COMPLETION_ALL] = "_files"};
    char text[32];
    fprintf(out, " \\\n        '%s%s[", o->value ? "*" : "", opts_option_text(o, text));
    completion_zsh_text(o->help, out);
    fputc(']', out);
    if (o == &opts_options[OPTION_SET])
        fputs(":key:{compadd -S \"\" -- $($words[1] completion keys)}", out);
    else if (o->value)
        fprintf(out, ":%s:%s", o->value, actions[completion_of_value(o)]);
    fputc('\'', out);
}

static void completion_zsh_commands(FILE *out)
{
    for (int i = 0; i < OPTS_NCOMMANDS; i++) {
        fprintf(out, "    '%s:", opts_commands[i].name);
        completion_zsh_text(opts_commands[i].help, out);
        fputs("'\n", out);
    }
}

static void completion_zsh_arguments(FILE *out)
{
    static const char *const words[] = {[COMPLETION_NONE] = "",
                                        [COMPLETION_JOBS] = " '*:job file:_files -g \"*.y(|a)ml\"'",
                                        [COMPLETION_FOLDERS] = " '*:folder:_files -/'",
                                        [COMPLETION_ALL] =
                                            (" '*:plugin:{compadd -- $($words[1] completion "
                                             "plugins); _files}'")};
    for (int i = OPTS_NCOMMANDS; i-- > 0;) { /* run, the first command, is also the default */
        fprintf(out, "%s)\n    _arguments -s%s", i == OPTS_RUN ? "*" : opts_commands[i].name,
                i == OPTS_COMPLETION ? " '*:shell:(bash zsh fish)'"
                                     : words[completion_of_word(opts_commands[i].word)]);
        for (int k = 0; k < OPTS_NOPTIONS; k++) {
            if (completion_has(&opts_options[k], i))
                completion_zsh_option(&opts_options[k], out);
        }
        fputs(" ;;\n", out);
    }
}

/* ---- fish ---- */

static void completion_fish_text(const char *text, FILE *out)
{
    fputc('\'', out);
    for (; *text; text++)
        fprintf(out, "%s%c", strchr("'\\", *text) ? "\\" : "", *text);
    fputc('\'', out);
}

static void completion_fish_option(const struct opts_option_row *o, FILE *out)
{
    fputs("complete -c collrun -n '", out);
    bool run = o->commands & OPTS_FOR(OPTS_RUN);
    if (o->commands != OPTS_FOR(OPTS_NCOMMANDS) - 1) {
        fputs("__fish_seen_subcommand_from", out);
        for (int i = 0; i < OPTS_NCOMMANDS; i++) {
            if (completion_has(o, i))
                fprintf(out, " %s", opts_commands[i].name);
        }
        fputs(run ? "; or not __fish_seen_subcommand_from $__collrun_commands" : "", out);
    }
    fputc('\'', out);
    if (o->letter)
        fprintf(out, " -s %c", o->letter);
    if (o->name)
        fprintf(out, " -l %s", o->name);
    if (o == &opts_options[OPTION_SET])
        fputs(" -x -a '(collrun completion keys)'", out);
    else if (o->value)
        fputs(completion_of_value(o) == COMPLETION_FOLDERS
                  ? " -x -a '(__fish_complete_directories)'"
              : completion_of_value(o) == COMPLETION_ALL ? " -r -F"
                                                         : " -x",
              out);
    fputs(" -d ", out);
    completion_fish_text(o->help, out);
    fputc('\n', out);
}

static void completion_fish_commands(FILE *out)
{
    for (int i = 0; i < OPTS_NCOMMANDS; i++) {
        fprintf(out, "complete -c collrun -n __fish_use_subcommand -a %s -d ",
                opts_commands[i].name);
        completion_fish_text(opts_commands[i].help, out);
        fputc('\n', out);
    }
}

/* The commands whose words are such files. */
static void completion_fish_of(enum completion_files files, FILE *out)
{
    const char *between = "";
    for (int i = 0; i < OPTS_NCOMMANDS; i++) {
        if (completion_of_word(opts_commands[i].word) != files)
            continue;
        fprintf(out, "%s%s", between, opts_commands[i].name);
        between = " ";
    }
}

static void completion_fish_of_jobs(FILE *out)
{
    completion_fish_of(COMPLETION_JOBS, out);
}

static void completion_fish_of_folders(FILE *out)
{
    completion_fish_of(COMPLETION_FOLDERS, out);
}

static void completion_fish_of_plugins(FILE *out)
{
    completion_fish_of(COMPLETION_ALL, out);
}

static void completion_fish_options(FILE *out)
{
    for (int i = 0; i < OPTS_NOPTIONS; i++)
        completion_fish_option(&opts_options[i], out);
}

/* ---- keys ---- */

/* The type of the value as a mapping, or NULL. */
static const struct schema_type *completion_map(const struct schema_type *type)
{
    if (type->kind == SCHEMA_EITHER)
        type = type->map;
    if (type && (type->kind == SCHEMA_LIST || type->kind == SCHEMA_NAMED))
        return type->item->kind == SCHEMA_EITHER ? type->item->map : type->item;
    return type;
}

/* Every key as --set takes it: "timeouts.run=", "workloads[0].plugin=", "groups.world.backend=". */
static void completion_keys_of(const struct schema_type *type, const char *path, FILE *out)
{
    for (const struct schema_key *key = type->keys; key->name; key++) {
        if (key->type->kind == SCHEMA_LAYER)
            continue;
        const struct schema_type *value = completion_map(key->type);
        char below[256];
        bool list = key->type->kind == SCHEMA_LIST, named = key->type->kind == SCHEMA_NAMED;
        bool map = value && value->kind == SCHEMA_MAP && value->keys;
        snprintf(below, sizeof below, "%s%s%s", path, key->name,
                 !map    ? ""
                 : list  ? "[0]."
                 : named ? ".world."
                         : ".");
        map = map && !(named && strcmp(key->name, "groups") != 0); /* names are not known here */
        if (!map || key->type->kind == SCHEMA_EITHER)
            fprintf(out, "%s%s=\n", path, key->name);
        if (map && strlen(below) < 200)
            completion_keys_of(value, below, out);
    }
}

static void completion_keys(FILE *out)
{
    completion_keys_of(&schema_job, "", out);
}

/* ---- scripts ---- */

struct completion_mark {
    const char *name;
    void (*write)(FILE *out);
};

/* Writes the script up to its next mark; the rest, behind the mark. NULL: there is none. */
static const char *completion_next(const char *script, const struct completion_mark *marks,
                                   const struct completion_mark **mark, FILE *out)
{
    for (const char *at = strchr(script, '@'); at; at = strchr(at + 1, '@')) {
        const struct completion_mark *m = marks;
        while (m->name && strncmp(at, m->name, strlen(m->name)) != 0)
            m++;
        if (!m->name)
            continue;
        const char *begin = at, *end = at + strlen(m->name);
        while (begin > script && (begin[-1] == ' ' || begin[-1] == '#'))
            begin--;
        const bool alone = (begin == script || begin[-1] == '\n') && *end == '\n';
        fwrite(script, 1, (size_t)((alone ? begin : at) - script), out);
        *mark = m;
        return end + alone;
    }
    fputs(script, out);
    return NULL;
}

bool completion_write(const char *shell, FILE *out)
{
    static const struct completion_mark bash[] = {{"@PATTERN@", completion_bash_pattern},
                                                  {"@VALUES@", completion_bash_values},
                                                  {"@OPTIONS@", completion_bash_options},
                                                  {"@NAMES@", completion_names},
                                                  {NULL, NULL}},
                                        zsh[] = {{"@COMMANDS@", completion_zsh_commands},
                                                 {"@ARGUMENTS@", completion_zsh_arguments},
                                                 {NULL, NULL}},
                                        fish[] = {{"@NAMES@", completion_names},
                                                  {"@COMMANDS@", completion_fish_commands},
                                                  {"@OF_JOBS@", completion_fish_of_jobs},
                                                  {"@OF_FOLDERS@", completion_fish_of_folders},
                                                  {"@OF_PLUGINS@", completion_fish_of_plugins},
                                                  {"@OPTIONS@", completion_fish_options},
                                                  {NULL, NULL}},
                                        keys[] = {{"@KEYS@", completion_keys}, {NULL, NULL}};
    static const struct {
        const char *shell, *script;
        const struct completion_mark *marks;
    } shells[] = {{"bash", script_completion_bash, bash},
                  {"zsh", script_completion_zsh, zsh},
                  {"fish", script_completion_fish, fish},
                  {"keys", "@KEYS@", keys}};
    for (size_t i = 0; i < sizeof shells / sizeof *shells; i++) {
        if (strcmp(shells[i].shell, shell) != 0)
            continue;
        const struct completion_mark *mark = NULL;
        for (const char *at = shells[i].script; at;) {
            mark = NULL;
            at = completion_next(at, shells[i].marks, &mark, out);
            if (mark)
                mark->write(out);
        }
        return true;
    }
    return false;
}
