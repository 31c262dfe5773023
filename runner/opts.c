/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading the command line by two tables. Options may stand anywhere; their values follow "=" or
 * are the next word. `collrun JOB.yaml` is `collrun run JOB.yaml`.
 */
#include "opts.h"

#include "base/quote.h"
#include "base/suggest.h"

#include <string.h>
#include <unistd.h>

#define QUOTED(s) quote((s), (char[QUOTE_SIZE]){0})

enum job_file { JOB_NONE, JOB_OPTIONAL, JOB_REQUIRED };

struct command {
    const char *name, *usage, *help;
    enum job_file job;
    bool later;
};

static const struct command commands[] = {
    [OPTS_RUN] = {"run", "[run] JOB.yaml", "run the job", JOB_REQUIRED, false},
    [OPTS_CHECK] = {"check", "check JOB.yaml",
                    "say everything that is wrong with it; start nothing", JOB_REQUIRED, false},
    [OPTS_PLAN] = {"plan", "plan JOB.yaml [--json]",
                   "show ranks, hosts, cpus, groups, workloads; start nothing", JOB_REQUIRED,
                   false},
    [OPTS_BACKENDS] = {"backends", "backends [JOB.yaml] [--json]",
                       "list the backends that are known here", JOB_OPTIONAL, false},
    [OPTS_DOCTOR] = {"doctor", "doctor [JOB.yaml]", "examine hosts, backends and plugins",
                     JOB_OPTIONAL, false},
    [OPTS_DIAG] = {"diag", "diag RUN_DIR", "repeat the verdict on a saved run", JOB_REQUIRED, true},
    [OPTS_SCHEMA] = {"schema", "schema", "print the JSON Schema of job.yaml, for editors", JOB_NONE,
                     false},
};
enum { NCOMMANDS = sizeof commands / sizeof commands[0] };

#define FOR(command) (1u << (command))
#define JOBS                                                                                       \
    (FOR(OPTS_RUN) | FOR(OPTS_CHECK) | FOR(OPTS_PLAN) | FOR(OPTS_BACKENDS) | FOR(OPTS_DOCTOR))
#define EVERY (FOR(NCOMMANDS) - 1)

struct option {
    const char *name, *value, *help; /* value NULL: it takes none */
    char letter;
    unsigned commands;
    bool later;
};

enum option_id { SET, RUN_DIR, TRACE, JSON, MAN, QUIET, VERBOSE, NO_COLOR, VERSION, HELP };

static const struct option options[] = {
    [SET] = {"set", "PATH=VALUE",
             "change the job, as in --set groups.world.backend=gloo; repeatable", 0, JOBS, false},
    [RUN_DIR] = {"run-dir", "DIR", "keep results and output in DIR", 0, FOR(OPTS_RUN), false},
    [TRACE] = {"trace", "FILE", "write a trace of all operations", 0, FOR(OPTS_RUN), true},
    [JSON] = {"json", NULL, "print JSON", 0, FOR(OPTS_PLAN) | FOR(OPTS_BACKENDS), false},
    [MAN] = {"man", NULL, "print the keys for the manual page instead", 0, FOR(OPTS_SCHEMA), false},
    [QUIET] = {"quiet", NULL, "say nothing but errors", 'q', EVERY, false},
    [VERBOSE] = {"verbose", NULL, "say more", 'v', EVERY, false},
    [NO_COLOR] = {"no-color", NULL, "no colours; also NO_COLOR in the environment", 0, EVERY,
                  false},
    [VERSION] = {"version", NULL, "print the version", 0, EVERY, false},
    [HELP] = {"help", NULL, "print this", 'h', EVERY, false},
};
enum { NOPTIONS = sizeof options / sizeof options[0] };

/* ---- errors ---- */

static int unknown_option(const char *word, struct diag *d)
{
    const char *names[NOPTIONS];
    char name[64];
    for (int i = 0; i < NOPTIONS; i++)
        names[i] = options[i].name;
    const char *bare = word + strspn(word, "-");
    snprintf(name, sizeof name, "%.*s", (int)strcspn(bare, "="), bare);
    const char *meant = suggest(name, names, NOPTIONS);
    diag_set(d, COLLRUN_ERR_INVALID, "no option %s", QUOTED(word));
    if (meant)
        return diag_hint(d, "did you mean --%s?", meant);
    return diag_hint(d, "collrun --help lists them");
}

static int unknown_command(const char *word, struct diag *d)
{
    const char *names[NCOMMANDS];
    for (int i = 0; i < NCOMMANDS; i++)
        names[i] = commands[i].name;
    const char *meant = suggest(word, names, NCOMMANDS);
    diag_set(d, COLLRUN_ERR_INVALID, "%s is neither a command nor a file", QUOTED(word));
    if (meant)
        return diag_hint(d, "did you mean \"collrun %s\"?", meant);
    return diag_hint(d, "collrun --help lists the commands");
}

static int not_supported(const char *what, struct diag *d)
{
    return diag_set(d, COLLRUN_ERR_UNSUPPORTED, "%s is not supported by this build", what);
}

/* ---- words ---- */

static void apply(struct opts *o, enum option_id id, const char *value)
{
    bool *const flags[] = {
        [JSON] = &o->json,       [MAN] = &o->man,           [QUIET] = &o->quiet,
        [VERBOSE] = &o->verbose, [NO_COLOR] = &o->no_color, [VERSION] = &o->version,
        [HELP] = &o->help};
    if (id == SET)
        o->sets[o->nsets++] = value;
    else if (id == RUN_DIR)
        o->run_dir = value;
    else if (id >= JSON)
        *flags[id] = true;
}

static const struct option *find_option(const char *word)
{
    bool dashes = word[1] == '-';
    size_t len = strcspn(word + 2, "=");
    for (int i = 0; i < NOPTIONS; i++) {
        bool letter = !dashes && options[i].letter == word[1] && !word[2];
        if (letter ||
            (dashes && strlen(options[i].name) == len && !strncmp(options[i].name, word + 2, len)))
            return &options[i];
    }
    return NULL;
}

/* An option at *argv; steps over its value. `seen` collects the options that were given. */
static int read_option(struct opts *o, char ***argv, unsigned *seen, struct diag *d)
{
    const char *word = **argv, *equals = strchr(word, '=');
    const struct option *option = find_option(word);
    if (!option)
        return unknown_option(word, d);
    const char *value = NULL;
    if (!option->value && equals)
        return diag_set(d, COLLRUN_ERR_INVALID, "--%s takes no value", option->name);
    if (option->value) {
        value = equals ? equals + 1 : *++*argv;
        if (!value || (!*value && option != &options[SET]))
            return diag_set(d, COLLRUN_ERR_INVALID, "--%s needs a value: --%s %s", option->name,
                            option->name, option->value);
    }
    *seen |= 1u << (option - options);
    apply(o, (enum option_id)(option - options), value);
    return 0;
}

/* A word that is no option: the command, if it is the first, or the job file. */
static int read_word(struct opts *o, const char *word, struct diag *d)
{
    if (o->command == OPTS_NONE) {
        for (int i = 0; i < NCOMMANDS; i++) {
            if (strcmp(commands[i].name, word) != 0)
                continue;
            o->command = (enum opts_command)i;
            return 0;
        }
        if (!strpbrk(word, "./") && access(word, F_OK) < 0)
            return unknown_command(word, d);
        o->command = OPTS_RUN;
    }
    if (o->job)
        return diag_set(d, COLLRUN_ERR_INVALID, "one job at a time: %s is one too many",
                        QUOTED(word));
    o->job = word;
    return 0;
}

/* What was given against what the command takes. */
static int check(const struct opts *o, unsigned seen, struct diag *d)
{
    if (o->help || o->version)
        return 0;
    if (o->command == OPTS_NONE) {
        diag_set(d, COLLRUN_ERR_INVALID, "no job file");
        return diag_hint(d, "collrun JOB.yaml runs one; collrun --help says more");
    }
    const struct command *command = &commands[o->command];
    if (command->later) {
        char what[32];
        snprintf(what, sizeof what, "collrun %s", command->name);
        return not_supported(what, d);
    }
    for (int i = 0; i < NOPTIONS; i++) {
        char what[32];
        if (!(seen & 1u << i))
            continue;
        if (!(options[i].commands & FOR(o->command)))
            return diag_set(d, COLLRUN_ERR_INVALID, "collrun %s has no option --%s", command->name,
                            options[i].name);
        snprintf(what, sizeof what, "--%s", options[i].name);
        if (options[i].later)
            return not_supported(what, d);
    }
    if (command->job == JOB_REQUIRED && !o->job) {
        diag_set(d, COLLRUN_ERR_INVALID, "no job file");
        return diag_hint(d, "usage: collrun %s", command->usage);
    }
    if (command->job == JOB_NONE && o->job)
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
        if (dash && !strcmp(*argv, "--"))
            only_words = true;
        else
            code = dash ? read_option(&o, &argv, &seen, d) : read_word(&o, *argv, d);
        if (code < 0)
            return code;
    }
    *out = o;
    return check(&o, seen, d);
}

void opts_help(enum opts_command command, FILE *out)
{
    if (command == OPTS_NONE) {
        fputs("usage: collrun [COMMAND] JOB.yaml [OPTIONS]\n\ncommands\n", out);
        for (int i = 0; i < NCOMMANDS; i++)
            if (!commands[i].later)
                fprintf(out, "  %-30s %s\n", commands[i].usage, commands[i].help);
    } else {
        fprintf(out, "usage: collrun %s [OPTIONS]\n\n%s\n", commands[command].usage,
                commands[command].help);
    }
    fputs("\noptions\n", out);
    for (int i = 0; i < NOPTIONS; i++) {
        const struct option *o = &options[i];
        if (o->later || (command != OPTS_NONE && !(o->commands & FOR(command))))
            continue;
        char left[40];
        char letter[8] = "    ";
        if (o->letter)
            snprintf(letter, sizeof letter, "-%c, ", o->letter);
        snprintf(left, sizeof left, "%s--%s%s%s", letter, o->name, o->value ? " " : "",
                 o->value ? o->value : "");
        fprintf(out, "  %-30s %s\n", left, o->help);
    }
}
