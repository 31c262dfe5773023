/* SPDX-License-Identifier: Apache-2.0
 *
 * The commands and the options of collrun, as tables: for the parser, --help, and the completion of
 * shells.
 */
#ifndef RUNNER_OPTS_TABLE_H
#define RUNNER_OPTS_TABLE_H

#include "opts.h"

/* The word after a command. */
enum opts_word {
    OPTS_WORD_NONE,
    OPTS_JOB_OPTIONAL,
    OPTS_FOLDER_OPTIONAL,
    OPTS_JOB_REQUIRED,
    OPTS_PLUGIN_REQUIRED,
    OPTS_FOLDER_REQUIRED,
    OPTS_SHELL_REQUIRED
};

struct opts_command_row {
    const char *name, *usage, *help;
    enum opts_word word;
    const char *examples; /* lines for --help */
};

enum { OPTS_NCOMMANDS = OPTS_NONE };
extern const struct opts_command_row opts_commands[OPTS_NCOMMANDS];

struct opts_option_row {
    const char *name, *value, *help; /* name NULL: a letter only; value NULL: it takes none */
    char letter;
    unsigned commands; /* a bit for each */
};
#define OPTS_FOR(command) (1u << (command))
/* Commands that take a program in place of a job file. */
#define OPTS_PROGRAMS (OPTS_FOR(OPTS_RUN) | OPTS_FOR(OPTS_CHECK) | OPTS_FOR(OPTS_PLAN))

enum opts_option {
    OPTION_SET,
    OPTION_VAR,
    OPTION_PROFILE,
    OPTION_COUNT,
    OPTION_HOST_LIST,
    OPTION_GPUS,
    OPTION_RUN_DIR,
    OPTION_TRACE,
    OPTION_OUTPUT,
    OPTION_COMPARE,
    OPTION_ONLY,
    OPTION_WRAP,
    OPTION_JSON,
    OPTION_HOSTS,
    OPTION_PRINT_JOB,
    OPTION_RESOLVED,
    OPTION_RESUME,
    OPTION_YES,
    OPTION_MAN,
    OPTION_PYTHON,
    OPTION_QUIET,
    OPTION_VERBOSE,
    OPTION_NO_COLOR,
    OPTION_VERSION,
    OPTION_HELP,
    OPTS_NOPTIONS
};
extern const struct opts_option_row opts_options[OPTS_NOPTIONS];

/* "--set" or "-n". */
const char *opts_option_text(const struct opts_option_row *o, char text[32]);

#endif
