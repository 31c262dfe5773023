/* SPDX-License-Identifier: Apache-2.0
 *
 * Parses the command line by two tables (opts_table.h). Options may be anywhere on it; a
 * value follows "=" or is the next word. `collrun JOB.yaml` is `collrun run JOB.yaml`. The words
 * after "--" are a program and its arguments, unless a job file or a command without one stands
 * before: then they are no options.
 */
#include "opts.h"

#include "base/quote.h"
#include "base/suggest.h"
#include "opts_table.h"
#include "prefix.h"
#include "spec/path.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define QUOTED(s) quote((s), (char[QUOTE_SIZE]){0})

/* ---- errors ---- */

/* What users of other launchers type; "%s" is the value of the option. */
#define FOREIGN_HOSTS                                                                              \
    "--hosts node1,node2 or --hosts FILE names the hosts of a program; a job file lists them: "    \
    "hosts: {nodes: [node1, node2]}, or {file: FILE}"
#define FOREIGN_PER_HOST                                                                           \
    "-n N sets the number of ranks on all hosts; slots limit them per host: --hosts "              \
    "node1:4,node2:4, or hosts.nodes[].slots in a job file"
#define FOREIGN_VARIABLE                                                                           \
    "ranks here inherit all variables; --set env.pass=[NAME] sends one to other hosts, --set "     \
    "env.set.NAME=VALUE sets one"
#define FOREIGN_BIND                                                                               \
    "the job file places ranks on cores: processes.bind, processes.cpus_per_process"
#define FOREIGN_RENDEZVOUS                                                                         \
    "collrun needs no address and no port: groups form by its own connections"
#define FOREIGN_GPUS                                                                               \
    "--gpus K assigns GPUs to each rank of a program, processes.gpus_per_process to those of a "   \
    "job file"
#define FOREIGN_TIME "the job file limits the time: --set timeouts.run=%s"
#define FOREIGN_LABEL "lines have the label of their rank; logging.console.label changes it"
static const struct {
    const char *word, *hint;
} foreign[] = {
    {"--num-processes", "-n N sets the number of ranks"},
    {"--num_processes", "-n N sets the number of ranks"},
    {"-np", "-n N sets the number of ranks"},
    {"--np", "-n N sets the number of ranks"},
    {"--n", "-n N sets the number of ranks"},
    {"--ntasks", "-n N sets the number of ranks"},
    {"--nproc", "-n N sets the number of ranks"},
    {"--nproc-per-node", FOREIGN_PER_HOST},
    {"--nproc_per_node", FOREIGN_PER_HOST},
    {"--npernode", FOREIGN_PER_HOST},
    {"--ntasks-per-node", FOREIGN_PER_HOST},
    {"-ppn", FOREIGN_PER_HOST},
    {"-perhost", FOREIGN_PER_HOST},
    {"--oversubscribe", "a host takes any number of ranks, unless its slots limit them"},
    {"-oversubscribe", "a host takes any number of ranks, unless its slots limit them"},
    {"--nnodes", FOREIGN_HOSTS},
    {"--nodes", FOREIGN_HOSTS},
    {"--nodelist", FOREIGN_HOSTS},
    {"--host", FOREIGN_HOSTS},
    {"--hostfile", FOREIGN_HOSTS},
    {"-hostfile", FOREIGN_HOSTS},
    {"--machinefile", FOREIGN_HOSTS},
    {"-machinefile", FOREIGN_HOSTS},
    {"-host", FOREIGN_HOSTS},
    {"-hosts", FOREIGN_HOSTS},
    {"-H", FOREIGN_HOSTS},
    {"-f", FOREIGN_HOSTS},
    {"-N", FOREIGN_HOSTS},
    {"-x", FOREIGN_VARIABLE},
    {"--env", FOREIGN_VARIABLE},
    {"-env", FOREIGN_VARIABLE},
    {"-genv", FOREIGN_VARIABLE},
    {"--export", FOREIGN_VARIABLE},
    {"-wdir", "the job file has the working directory: workloads[].workdir"},
    {"--wdir", "the job file has the working directory: workloads[].workdir"},
    {"--chdir", "the job file has the working directory: workloads[].workdir"},
    {"--bind-to", FOREIGN_BIND},
    {"-bind-to", FOREIGN_BIND},
    {"--cpu-bind", FOREIGN_BIND},
    {"--cpus-per-task", FOREIGN_BIND},
    {"-c", FOREIGN_BIND},
    {"--map-by", "the job file places ranks on hosts: processes.map"},
    {"-map-by", "the job file places ranks on hosts: processes.map"},
    {"--distribution", "the job file places ranks on hosts: processes.map"},
    {"--report-bindings", "collrun plan JOB.yaml shows the CPUs of each rank"},
    {"--mca", "the job file has the options of a backend: groups.NAME.options"},
    {"-mca", "the job file has the options of a backend: groups.NAME.options"},
    {"--allow-run-as-root", "collrun needs no such option"},
    {"--tag-output", FOREIGN_LABEL},
    {"-l", FOREIGN_LABEL},
    {"--label", FOREIGN_LABEL},
    {"--output", "--run-dir DIR keeps the output of each rank in a file"},
    {"--log-dir", "--run-dir DIR keeps the output of each rank in a file"},
    {"--log_dir", "--run-dir DIR keeps the output of each rank in a file"},
    {"--rdzv-endpoint", FOREIGN_RENDEZVOUS},
    {"--rdzv_endpoint", FOREIGN_RENDEZVOUS},
    {"--rdzv-backend", FOREIGN_RENDEZVOUS},
    {"--rdzv_backend", FOREIGN_RENDEZVOUS},
    {"--rdzv-id", FOREIGN_RENDEZVOUS},
    {"--rdzv_id", FOREIGN_RENDEZVOUS},
    {"--master-addr", FOREIGN_RENDEZVOUS},
    {"--master_addr", FOREIGN_RENDEZVOUS},
    {"--master-port", FOREIGN_RENDEZVOUS},
    {"--master_port", FOREIGN_RENDEZVOUS},
    {"--node-rank", FOREIGN_RENDEZVOUS},
    {"--node_rank", FOREIGN_RENDEZVOUS},
    {"--standalone", "without hosts, a job runs on this machine"},
    {"--max-restarts", "--set on_failure.action=restart --set on_failure.max_restarts=%s"},
    {"--max_restarts", "--set on_failure.action=restart --set on_failure.max_restarts=%s"},
    {"--gpus-per-task", FOREIGN_GPUS},
    {"--gpus-per-node", FOREIGN_GPUS},
    {"--gres", FOREIGN_GPUS},
    {"--time", FOREIGN_TIME},
    {"--timeout", FOREIGN_TIME},
    {"-timeout", FOREIGN_TIME},
    {"--backend", "--set groups.world.backend=%s"},
    {"--stdin", "--set processes.stdin=%s"},
    {"--job-name", "--set name=%s"},
    {"--dry-run", "collrun plan shows the placement and starts nothing"},
    {"help", "collrun --help lists the commands, collrun COMMAND --help the options of one"},
    {"version", "collrun --version prints the version"},
    {"init", "collrun new DIR writes a job file and a workload to start from"},
    {"create", "collrun new DIR writes a job file and a workload to start from"},
    {"validate", "collrun check JOB.yaml reports every error"},
    {"lint", "collrun check JOB.yaml reports every error"},
    {"list", "collrun backends lists the backends, collrun describe NAME shows a workload"},
    {"ls", "collrun backends lists the backends, collrun describe NAME shows a workload"},
    {"status", "collrun top RUN_DIR shows a running job"},
    {"ps", "collrun top RUN_DIR shows a running job"},
    {"start", "collrun JOB.yaml runs a job, collrun -n N -- PROGRAM a program"},
    {"launch", "collrun JOB.yaml runs a job, collrun -n N -- PROGRAM a program"},
    {"exec", "collrun JOB.yaml runs a job, collrun -n N -- PROGRAM a program"},
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

/* Puts the value of the option into the hint. */
static int opts_foreign(const char *word, const char *hint, struct diag *d)
{
    const char *equals = strchr(word, '='), *at = strstr(hint, "%s");
    if (!at)
        return diag_hint(d, "%s", hint);
    return diag_hint(d, "%.*s%.64s%s", (int)(at - hint), hint, equals ? equals + 1 : "VALUE",
                     at + 2);
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
        return opts_foreign(word, foreign_hint, d);
    if (meant)
        return diag_hint(d, "did you mean --%s?", meant);
    return diag_hint(d, "collrun --help lists the options");
}

/* True if PATH has a program of this name. */
static bool opts_is_program(const char *word, struct arena *arena)
{
    const char *path = getenv("PATH");
    for (size_t len; path && *path; path += len + (path[len] == ':')) {
        len = strcspn(path, ":");
        const char *file = arena_printf(arena, "%.*s/%s", (int)len, path, word);
        if (len && access(file, X_OK) == 0)
            return true;
    }
    return false;
}

static bool opts_is_workload(const char *word, struct arena *arena)
{
    struct prefix_plugins installed;
    if (prefix_plugins(PREFIX_WORKLOADS, arena, &installed, NULL) < 0)
        return false;
    for (uint32_t i = 0; i < installed.n; i++)
        if (strcmp(installed.items[i].name, word) == 0)
            return true;
    return false;
}

static int opts_unknown_command(const char *word, struct arena *arena, struct diag *d)
{
    const char *names[OPTS_NCOMMANDS];
    for (int i = 0; i < OPTS_NCOMMANDS; i++)
        names[i] = opts_commands[i].name;
    const char *meant = suggest(word, names, OPTS_NCOMMANDS);
    diag_set(d, COLLRUN_ERR_INVALID, "%s is neither a command nor a file", QUOTED(word));
    if (opts_foreign_hint(word))
        return diag_hint(d, "%s", opts_foreign_hint(word));
    if (opts_is_workload(word, arena))
        return diag_hint(d,
                         "it is a workload, which a job file runs: {version: 1, processes: {count: "
                         "4}, workloads: [{plugin: %s}]}; collrun new DIR writes a first one",
                         word);
    if (meant)
        return diag_hint(d, "did you mean \"collrun %s\"?", meant);
    if (opts_is_program(word, arena))
        return diag_hint(d, "a program stands after --: collrun -n 4 -- %s", word);
    return diag_hint(d, "collrun --help lists the commands");
}

/* True for a file that is run, and is no job file: an ELF file, or a script, unless collrun reads
 * it. A pipe is not opened, since what is read of it is gone. */
static bool opts_is_executable(const char *file)
{
    struct stat st;
    char first[256] = "";
    if (stat(file, &st) < 0 || !S_ISREG(st.st_mode))
        return false;
    FILE *in = fopen(file, "re");
    const size_t n = in ? fread(first, 1, sizeof first - 1, in) : 0;
    if (in)
        fclose(in);
    first[n] = '\0';
    first[strcspn(first, "\n")] = '\0';
    return strncmp(first,
                   "\x7f"
                   "ELF",
                   4) == 0 ||
           (strncmp(first, "#!", 2) == 0 && !strstr(first, "collrun"));
}

static int opts_program_without_dashes(const char *word, struct diag *d)
{
    diag_set(d, COLLRUN_ERR_INVALID, "%s is a program, not a job file", QUOTED(word));
    return diag_hint(d, "a program and its arguments stand after --: collrun -n 4 -- %s", word);
}

/* ---- options and words ---- */

static void opts_apply(struct opts *o, enum opts_option id, const char *value)
{
    bool *const flags[] = {[OPTION_JSON] = &o->json,
                           [OPTION_HOSTS] = &o->hosts,
                           [OPTION_PRINT_JOB] = &o->print_job,
                           [OPTION_RESOLVED] = &o->resolved,
                           [OPTION_RESUME] = &o->resume,
                           [OPTION_YES] = &o->yes,
                           [OPTION_MAN] = &o->man,
                           [OPTION_PYTHON] = &o->python,
                           [OPTION_QUIET] = &o->quiet,
                           [OPTION_VERBOSE] = &o->verbose,
                           [OPTION_NO_COLOR] = &o->no_color,
                           [OPTION_VERSION] = &o->version,
                           [OPTION_HELP] = &o->help};
    if (id == OPTION_SET)
        o->sets[o->nsets++] = value;
    else if (id == OPTION_VAR)
        o->vars[o->nvars++] = value;
    else if (id == OPTION_PROFILE)
        o->profiles[o->nprofiles++] = value;
    else if (id == OPTION_ONLY)
        o->only[o->nonly++] = value;
    else if (id == OPTION_COUNT)
        o->count = value;
    else if (id == OPTION_HOST_LIST)
        o->host_list = value;
    else if (id == OPTION_GPUS)
        o->gpus = value;
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
}

static bool opts_takes_program(const struct opts *o)
{
    return !o->job && (o->command == OPTS_NONE || OPTS_PROGRAMS & OPTS_FOR(o->command));
}

static char **opts_find_dashes(char **argv)
{
    while (*argv && strcmp(*argv, "--") != 0)
        argv++;
    return *argv ? argv : NULL;
}

/* The words after "--" at *argv, which becomes the last word. */
static int opts_read_program(struct opts *o, char ***argv, struct diag *d)
{
    if (!(*argv)[1]) {
        diag_set(d, COLLRUN_ERR_INVALID, "no program after --");
        return diag_hint(d, "collrun -n 4 -- python3 train.py");
    }
    if (o->command == OPTS_NONE)
        o->command = OPTS_RUN;
    o->program = *argv + 1;
    while ((*argv)[1])
        ++*argv;
    return 0;
}

/* All words after the ranks are the command, up to "--" and a program if no job file was given;
 * "--" may stand before it. */
static int opts_read_wrap(struct opts *o, const char *ranks, char ***argv, struct diag *d)
{
    char **command = *argv + 1;
    if (*command && strcmp(*command, "--") == 0)
        command++;
    char **dashes = opts_takes_program(o) ? opts_find_dashes(command) : NULL;
    if (!*command || command == dashes) {
        diag_set(d, COLLRUN_ERR_INVALID, "--wrap needs a command: --wrap RANKS COMMAND...");
        return diag_hint(d, "collrun JOB.yaml --wrap 2 gdb -batch -ex run -ex bt --args");
    }
    o->wrap_ranks = ranks;
    o->wrap = command;
    if (dashes) {
        *dashes = NULL; /* the end of the command */
        *argv = dashes;
        return opts_read_program(o, argv, d);
    }
    while ((*argv)[1])
        ++*argv;
    return 0;
}

/* --hosts names the hosts of a program. Of `plan` it is also a flag: without a program, and where
 * no list follows. */
static bool opts_names_hosts(const struct opts *o, char **argv)
{
    const char *next = argv[1];
    if (argv[0][strlen("--hosts")] == '=')
        return true;
    if (o->command != OPTS_PLAN && o->command != OPTS_NONE)
        return true;
    return !o->job && next && *next != '-' && opts_find_dashes(argv + 1);
}

static const struct opts_option_row *opts_find(const struct opts *given, char **argv)
{
    const char *word = *argv;
    bool dashes = word[1] == '-';
    size_t len = strcspn(word + 2, "=");
    for (int i = 0; i < OPTS_NOPTIONS; i++) {
        const struct opts_option_row *o = &opts_options[i];
        if (!dashes && o->letter == word[1] && (!word[2] || o->value))
            return o;
        if (!dashes || !o->name || strlen(o->name) != len || strncmp(o->name, word + 2, len) != 0)
            continue;
        if (i != OPTION_HOST_LIST || opts_names_hosts(given, argv))
            return o;
    }
    return NULL;
}

/* What users of other launchers mean by it, unless the command has an option of that name. */
static bool opts_is_foreign(const struct opts *o, const struct opts_option_row *option,
                            const char *word)
{
    const enum opts_command command = o->command == OPTS_NONE ? OPTS_RUN : o->command;
    return opts_foreign_hint(word) && (word[1] != '-' || !(option->commands & OPTS_FOR(command)));
}

/* Parses the option at *argv and steps over its value. `seen` collects the options that were given.
 */
static int opts_read_option(struct opts *o, char ***argv, unsigned *seen, struct arena *arena,
                            struct diag *d)
{
    const char *word = **argv, *equals = strchr(word, '=');
    const struct opts_option_row *option = opts_find(o, *argv);
    char text[32];
    if (!option || opts_is_foreign(o, option, word))
        return opts_unknown_option(word, d);
    const char *value = NULL;
    if (!option->value && equals) {
        diag_set(d, COLLRUN_ERR_INVALID, "--%s takes no value", option->name);
        return opts_foreign_hint(word) ? opts_foreign(word, opts_foreign_hint(word), d) : d->code;
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
    opts_apply(o, (enum opts_option)(option - opts_options), value);
    return COLLRUN_OK;
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
static int opts_read_word(struct opts *o, const char *word, bool only_words, struct arena *arena,
                          struct diag *d)
{
    if (o->command == OPTS_NONE) {
        for (int i = 0; i < OPTS_NCOMMANDS; i++) {
            if (strcmp(opts_commands[i].name, word) != 0)
                continue;
            o->command = (enum opts_command)i;
            return 0;
        }
        if (strcmp(word, "-") != 0 && !strpbrk(word, "./") && access(word, F_OK) < 0)
            return opts_unknown_command(word, arena, d);
        o->command = OPTS_RUN;
    }
    enum opts_word kind = opts_commands[o->command].word;
    bool job = kind == OPTS_JOB_OPTIONAL || kind == OPTS_JOB_REQUIRED;
    if (job && opts_is_executable(o->job ? o->job : word))
        return opts_program_without_dashes(o->job ? o->job : word, d);
    if (o->job) {
        diag_set(d, COLLRUN_ERR_INVALID, "%s: only one %s is allowed", QUOTED(word),
                 opts_word_text(kind));
        return only_words ? diag_hint(d, "a program stands in place of a %s: collrun -n 4 -- %s",
                                      opts_word_text(kind), word)
                          : d->code;
    }
    o->job = job && strcmp(word, "-") == 0 ? "/dev/stdin" : word;
    return 0;
}

/* What only a program or only a job file has. */
static int opts_check_program(const struct opts *o, struct diag *d)
{
    bool counted = o->count != NULL;
    for (uint32_t i = 0; i < o->nsets; i++)
        counted = counted || strncmp(o->sets[i], "processes=", strlen("processes=")) == 0 ||
                  strncmp(o->sets[i], "processes.count=", strlen("processes.count=")) == 0;
    if (o->program && !counted) {
        diag_set(d, COLLRUN_ERR_INVALID, "no number of ranks");
        return diag_hint(d, "-n N sets it: collrun -n 4 -- %s", o->program[0]);
    }
    if (o->program || (!o->host_list && !o->gpus && !o->print_job))
        return 0;
    diag_set(d, COLLRUN_ERR_INVALID, "%s needs a program: collrun -n N [OPTIONS] -- PROGRAM",
             o->host_list ? "--hosts LIST"
             : o->gpus    ? "--gpus"
                          : "--print-job");
    return diag_hint(d, "%s",
                     o->host_list ? FOREIGN_HOSTS
                     : o->gpus    ? "of a job file: --set processes.gpus_per_process=K"
                                  : "collrun plan JOB.yaml --resolved prints a job file");
}

/* Compares what was given with what the command takes. */
static int opts_check(const struct opts *o, unsigned seen, struct diag *d)
{
    if (o->help || o->version)
        return 0;
    if (o->command == OPTS_NONE) {
        diag_set(d, COLLRUN_ERR_INVALID, "no job file");
        return diag_hint(d, "collrun new DIR writes a first job, collrun JOB.yaml runs it, collrun "
                            "-n 4 -- PROGRAM runs a program without one; collrun --help and man "
                            "collrun.yaml say more");
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
    if (command->word >= OPTS_JOB_REQUIRED && !o->job && !o->program) {
        diag_set(d, COLLRUN_ERR_INVALID, "no %s", opts_word_text(command->word));
        return diag_hint(d, "usage: collrun %s", command->usage);
    }
    if (command->word == OPTS_WORD_NONE && o->job)
        return diag_set(d, COLLRUN_ERR_INVALID, "collrun %s takes no job file", command->name);
    return opts_check_program(o, d);
}

int opts_parse(int argc, char **argv, struct arena *arena, struct opts *out, struct diag *d)
{
    struct opts o = {.command = OPTS_NONE};
    o.sets = arena_calloc(arena, (size_t)argc, sizeof *o.sets);
    o.vars = arena_calloc(arena, (size_t)argc, sizeof *o.vars);
    o.profiles = arena_calloc(arena, (size_t)argc, sizeof *o.profiles);
    o.only = arena_calloc(arena, (size_t)argc, sizeof *o.only);
    unsigned seen = 0;
    bool only_words = false;
    for (argv++; argc > 0 && *argv; argv++) {
        bool dash = !only_words && **argv == '-' && (*argv)[1];
        int code = 0;
        if (dash && strcmp(*argv, "--") == 0 && opts_takes_program(&o))
            code = opts_read_program(&o, &argv, d);
        else if (dash && strcmp(*argv, "--") == 0)
            only_words = true;
        else
            code = dash ? opts_read_option(&o, &argv, &seen, arena, d)
                        : opts_read_word(&o, *argv, only_words, arena, d);
        if (code < 0)
            return code;
    }
    *out = o;
    return opts_check(&o, seen, d);
}

static void opts_help_options(enum opts_command command, FILE *out)
{
    for (int i = 0; i < OPTS_NOPTIONS; i++) {
        const struct opts_option_row *o = &opts_options[i];
        char left[40], letter[8] = "    ";
        if (!(o->commands & OPTS_FOR(command)))
            continue;
        if (o->letter)
            snprintf(letter, sizeof letter, "-%c%s", o->letter, o->name ? ", " : "");
        snprintf(left, sizeof left, "%s%s%s%s%s", letter, o->name ? "--" : "",
                 o->name ? o->name : "", o->value ? " " : "", o->value ? o->value : "");
        fprintf(out, "  %-28s %s\n", left, o->help);
    }
}

void opts_help(enum opts_command command, FILE *out)
{
    if (command != OPTS_NONE) {
        const struct opts_command_row *row = &opts_commands[command];
        fprintf(out, "usage: collrun %s [OPTIONS]\n", row->usage);
        if (OPTS_PROGRAMS & OPTS_FOR(command))
            fprintf(out, "       collrun %s%s-n N [OPTIONS] -- PROGRAM [ARGUMENTS]\n",
                    command == OPTS_RUN ? "" : row->name, command == OPTS_RUN ? "" : " ");
        fprintf(out, "\n%s\n\nexamples\n", row->help);
        for (const char *line = row->examples; *line; line += strcspn(line, "\n") + 1)
            fprintf(out, "  $ %.*s\n", (int)strcspn(line, "\n"), line);
        fputs("\noptions\n", out);
        opts_help_options(command, out);
        return;
    }
    fputs("usage: collrun JOB.yaml [OPTIONS]\n"
          "       collrun -n N [OPTIONS] -- PROGRAM [ARGUMENTS]\n"
          "       collrun COMMAND [ARGUMENT] [OPTIONS]\n\n"
          "examples\n"
          "  $ collrun new first          write a first job and workload into the folder first\n"
          "  $ collrun check job.yaml     find its mistakes\n"
          "  $ collrun job.yaml -n 8      run it with 8 ranks\n"
          "  $ collrun -n 8 -- ./program  run a program without a job file\n\n"
          "commands\n",
          out);
    for (int i = 0; i < OPTS_NCOMMANDS; i++) {
        const char *usage = opts_commands[i].usage, *option = strstr(usage, " [-");
        fprintf(out, "  %-28.*s %s\n", (int)(option ? (size_t)(option - usage) : strlen(usage)),
                usage, opts_commands[i].help);
    }
    fputs("\noptions of run\n", out);
    opts_help_options(OPTS_RUN, out);
    fputs("\ncollrun COMMAND --help shows the options of a command. Manual pages: collrun(1), "
          "collrun.yaml(5),\ncollrun-workload(7) for plugins in C, collrun-backend(7).\n",
          out);
}
