/* SPDX-License-Identifier: Apache-2.0
 *
 * Parses the command line by two tables (opts_table.h). Options may be anywhere on it; a
 * value follows "=" or is the next word. `collrun JOB.yaml` is `collrun run JOB.yaml`.
 */
#include "opts.h"

#include "base/quote.h"
#include "base/suggest.h"
#include "opts_table.h"
#include "spec/path.h"

#include <string.h>
#include <unistd.h>

#define QUOTED(s) quote((s), (char[QUOTE_SIZE]){0})

/* ---- errors ---- */

/* What users of other launchers type. */
static const struct {
    const char *word, *hint;
} foreign[] = {
    {"-np", "-n N sets the number of ranks"},
    {"--np", "-n N sets the number of ranks"},
    {"--ntasks", "-n N sets the number of ranks"},
    {"--nproc-per-node", "-n N sets the number of ranks; hosts.nodes[].slots limits them per host"},
    {"--nproc_per_node", "-n N sets the number of ranks; hosts.nodes[].slots limits them per host"},
    {"--nnodes", "the job file lists the hosts: hosts.nodes"},
    {"--host", "the job file lists the hosts: hosts.nodes"},
    {"--hosts", "the job file lists the hosts: hosts.nodes"},
    {"--hostfile", "the job file lists the hosts: hosts.nodes"},
    {"-H", "the job file lists the hosts: hosts.nodes"},
    {"-N", "the job file lists the hosts: hosts.nodes"},
    {"-x", "the job file sets the environment: env.set, env.pass"},
    {"--dry-run", "collrun plan JOB.yaml shows the placement and starts nothing"},
    {"help", "collrun --help lists the commands, collrun COMMAND --help the options of one"},
};

/* NULL: not known. */
static const char *opts_foreign_hint(const char *word)
{
    size_t len = strcspn(word, "=");
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        if (strlen(foreign[i].word) == len && strncmp(foreign[i].word, word, len) == 0)
            return foreign[i].hint;
    }
    return NULL;
}

const char *opts_option_text(const struct opts_option_row *o, char text[32])
{
    if (o->name)
        snprintf(text, 32, "--%s", o->name);
    else
        snprintf(text, 32, "-%c", o->letter);
    return text;
}

static int opts_unknown_option(const char *word, struct diag *d)
{
    const char *names[OPTS_NOPTIONS], *foreign_hint = opts_foreign_hint(word);
    char name[64];
    size_t n = 0;
    for (int i = 0; i < OPTS_NOPTIONS; i++) {
        if (opts_options[i].name)
            names[n++] = opts_options[i].name;
    }
    const char *bare = word + strspn(word, "-");
    snprintf(name, sizeof name, "%.*s", (int)strcspn(bare, "="), bare);
    const char *meant = suggest(name, names, n);
    diag_set(d, COLLRUN_ERR_INVALID, "unknown option %s", QUOTED(word));
    if (foreign_hint)
        return diag_hint(d, "%s", foreign_hint);
    if (meant)
        return diag_hint(d, "did you mean --%s?", meant);
    return diag_hint(d, "collrun --help lists the options");
}

static int opts_unknown_command(const char *word, struct diag *d)
{
    const char *names[OPTS_NCOMMANDS];
    for (int i = 0; i < OPTS_NCOMMANDS; i++)
        names[i] = opts_commands[i].name;
    const char *meant = suggest(word, names, OPTS_NCOMMANDS);
    diag_set(d, COLLRUN_ERR_INVALID, "%s is neither a command nor a file", QUOTED(word));
    if (opts_foreign_hint(word))
        return diag_hint(d, "%s", opts_foreign_hint(word));
    if (meant)
        return diag_hint(d, "did you mean \"collrun %s\"?", meant);
    return diag_hint(d, "collrun --help lists the commands");
}

/* ---- options and words ---- */

static int opts_apply(struct opts *o, enum opts_option id, const char *value, struct arena *arena)
{
    bool *const flags[] = {[OPTION_JSON] = &o->json,         [OPTION_HOSTS] = &o->hosts,
                           [OPTION_MAN] = &o->man,           [OPTION_PYTHON] = &o->python,
                           [OPTION_QUIET] = &o->quiet,       [OPTION_VERBOSE] = &o->verbose,
                           [OPTION_NO_COLOR] = &o->no_color, [OPTION_VERSION] = &o->version,
                           [OPTION_HELP] = &o->help};
    if (id == OPTION_COUNT)
        value = arena_printf(arena, "processes.count=%s", value);
    if (id == OPTION_SET || id == OPTION_COUNT)
        o->sets[o->nsets++] = value;
    else if (id == OPTION_RUN_DIR)
        o->run_dir = value;
    else if (id == OPTION_OUTPUT)
        o->output = value;
    else if (id == OPTION_COMPARE)
        o->compare = value;
    else if (id == OPTION_TRACE)
        o->trace = value;
    else if (id >= OPTION_JSON)
        *flags[id] = true;
    return id == OPTION_COUNT && !value ? COLLRUN_ERR_NO_MEMORY : COLLRUN_OK;
}

/* All words after the ranks are the command; "--" may stand before it. */
static int opts_read_wrap(struct opts *o, const char *ranks, char ***argv, struct diag *d)
{
    char **command = *argv + 1;
    if (*command && strcmp(*command, "--") == 0)
        command++;
    if (!*command) {
        diag_set(d, COLLRUN_ERR_INVALID, "--wrap needs a command: --wrap RANKS COMMAND...");
        return diag_hint(d, "collrun JOB.yaml --wrap 2 gdb -batch -ex run -ex bt --args");
    }
    o->wrap_ranks = ranks;
    o->wrap = command;
    while ((*argv)[1])
        ++*argv;
    return 0;
}

static const struct opts_option_row *opts_find(const char *word)
{
    bool dashes = word[1] == '-';
    size_t len = strcspn(word + 2, "=");
    for (int i = 0; i < OPTS_NOPTIONS; i++) {
        const struct opts_option_row *o = &opts_options[i];
        if (!dashes && o->letter == word[1] && (!word[2] || o->value))
            return o;
        if (dashes && o->name && strlen(o->name) == len && strncmp(o->name, word + 2, len) == 0)
            return o;
    }
    return NULL;
}

/* What users of other launchers mean by it, unless the command has an option of that name. */
static bool opts_is_foreign(const struct opts *o, const struct opts_option_row *option,
                            const char *word)
{
    return opts_foreign_hint(word) &&
           (word[1] != '-' || !(option->commands & OPTS_FOR(o->command)));
}

/* Parses the option at *argv and steps over its value. `seen` collects the options that were given.
 */
static int opts_read_option(struct opts *o, char ***argv, unsigned *seen, struct arena *arena,
                            struct diag *d)
{
    const char *word = **argv, *equals = strchr(word, '=');
    const struct opts_option_row *option = opts_find(word);
    char text[32];
    if (!option || opts_is_foreign(o, option, word))
        return opts_unknown_option(word, d);
    const char *value = NULL;
    if (!option->value && equals) {
        diag_set(d, COLLRUN_ERR_INVALID, "--%s takes no value", option->name);
        return opts_foreign_hint(word) ? diag_hint(d, "%s", opts_foreign_hint(word)) : d->code;
    }
    if (option->value) {
        bool attached = word[1] != '-' && word[2]; /* "-n4" */
        value = attached ? word + 2 + (word[2] == '=') : equals ? equals + 1 : *++*argv;
        opts_option_text(option, text);
        if (!value || (!*value && option != &opts_options[OPTION_SET]))
            return diag_set(d, COLLRUN_ERR_INVALID, "%s needs a value: %s %s", text, text,
                            option->value);
        bool path = strcmp(option->value, "DIR") == 0 || strcmp(option->value, "FILE") == 0;
        bool template = option == &opts_options[OPTION_RUN_DIR];
        /* A shell leaves "~/" in --run-dir=~/runs to the program. */
        if (path && path_expand_home(value, template, arena, &value, d) < 0)
            return diag_wrap(d, "%s", text);
    }
    *seen |= 1u << (option - opts_options);
    if (option == &opts_options[OPTION_WRAP])
        return opts_read_wrap(o, value, argv, d);
    int rc = opts_apply(o, (enum opts_option)(option - opts_options), value, arena);
    return rc == COLLRUN_OK ? rc : diag_set(d, rc, "out of memory");
}

static const char *opts_word_text(enum opts_word word)
{
    static const char *const names[] = {
        [OPTS_WORD_NONE] = "word",         [OPTS_JOB_OPTIONAL] = "job file",
        [OPTS_FOLDER_OPTIONAL] = "folder", [OPTS_JOB_REQUIRED] = "job file",
        [OPTS_PLUGIN_REQUIRED] = "plugin", [OPTS_FOLDER_REQUIRED] = "run directory",
        [OPTS_SHELL_REQUIRED] = "shell"};
    return names[word];
}

/* A word that is not an option: the command, if it is the first, else the job file. */
static int opts_read_word(struct opts *o, const char *word, struct diag *d)
{
    if (o->command == OPTS_NONE) {
        for (int i = 0; i < OPTS_NCOMMANDS; i++) {
            if (strcmp(opts_commands[i].name, word) != 0)
                continue;
            o->command = (enum opts_command)i;
            return 0;
        }
        if (strcmp(word, "-") != 0 && !strpbrk(word, "./") && access(word, F_OK) < 0)
            return opts_unknown_command(word, d);
        o->command = OPTS_RUN;
    }
    if (o->job)
        return diag_set(d, COLLRUN_ERR_INVALID, "%s: only one %s is allowed", QUOTED(word),
                        opts_word_text(opts_commands[o->command].word));
    enum opts_word kind = opts_commands[o->command].word;
    bool job = kind == OPTS_JOB_OPTIONAL || kind == OPTS_JOB_REQUIRED;
    o->job = job && strcmp(word, "-") == 0 ? "/dev/stdin" : word;
    return 0;
}

/* Compares what was given with what the command takes. */
static int opts_check(const struct opts *o, unsigned seen, struct diag *d)
{
    if (o->help || o->version)
        return 0;
    if (o->command == OPTS_NONE) {
        diag_set(d, COLLRUN_ERR_INVALID, "no job file");
        return diag_hint(d, "usage: collrun JOB.yaml; see collrun --help");
    }
    const struct opts_command_row *command = &opts_commands[o->command];
    for (int i = 0; i < OPTS_NOPTIONS; i++) {
        char what[32];
        if (!(seen & 1u << i))
            continue;
        if (!(opts_options[i].commands & OPTS_FOR(o->command)))
            return diag_set(d, COLLRUN_ERR_INVALID, "collrun %s has no option %s", command->name,
                            opts_option_text(&opts_options[i], what));
    }
    if (command->word >= OPTS_JOB_REQUIRED && !o->job) {
        diag_set(d, COLLRUN_ERR_INVALID, "no %s", opts_word_text(command->word));
        return diag_hint(d, "usage: collrun %s", command->usage);
    }
    if (command->word == OPTS_WORD_NONE && o->job)
        return diag_set(d, COLLRUN_ERR_INVALID, "collrun %s takes no job file", command->name);
    return 0;
}

int opts_parse(int argc, char **argv, struct arena *arena, struct opts *out, struct diag *d)
{
    struct opts o = {.command = OPTS_NONE};
    o.sets = arena_calloc(arena, (size_t)argc, sizeof *o.sets);
    if (!o.sets)
        return diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory");
    unsigned seen = 0;
    bool only_words = false;
    for (argv++; argc > 0 && *argv; argv++) {
        bool dash = !only_words && **argv == '-' && (*argv)[1];
        int code = 0;
        if (dash && strcmp(*argv, "--") == 0)
            only_words = true;
        else
            code =
                dash ? opts_read_option(&o, &argv, &seen, arena, d) : opts_read_word(&o, *argv, d);
        if (code < 0)
            return code;
    }
    *out = o;
    return opts_check(&o, seen, d);
}

void opts_help(enum opts_command command, FILE *out)
{
    if (command == OPTS_NONE) {
        fputs("usage: collrun [COMMAND] JOB.yaml [OPTIONS]\n\ncommands\n", out);
        for (int i = 0; i < OPTS_NCOMMANDS; i++)
            fprintf(out, "  %-30s %s\n", opts_commands[i].usage, opts_commands[i].help);
    } else {
        fprintf(out, "usage: collrun %s [OPTIONS]\n\n%s\n", opts_commands[command].usage,
                opts_commands[command].help);
    }
    fputs("\noptions\n", out);
    for (int i = 0; i < OPTS_NOPTIONS; i++) {
        const struct opts_option_row *o = &opts_options[i];
        if (command != OPTS_NONE && !(o->commands & OPTS_FOR(command)))
            continue;
        char left[40], letter[8] = "    ";
        if (o->letter)
            snprintf(letter, sizeof letter, "-%c%s", o->letter, o->name ? ", " : "");
        snprintf(left, sizeof left, "%s%s%s%s%s", letter, o->name ? "--" : "",
                 o->name ? o->name : "", o->value ? " " : "", o->value ? o->value : "");
        fprintf(out, "  %-30s %s\n", left, o->help);
    }
}
