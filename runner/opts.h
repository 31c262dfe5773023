/* SPDX-License-Identifier: Apache-2.0
 *
 * The command line: a subcommand, a job file, options. What is wrong with it is said in one
 * sentence that names the word.
 */
#ifndef RUNNER_OPTS_H
#define RUNNER_OPTS_H

#include "base/arena.h"
#include "base/diag.h"

#include <stdio.h>

enum opts_command {
    OPTS_RUN,
    OPTS_CHECK,
    OPTS_PLAN,
    OPTS_BACKENDS,
    OPTS_DOCTOR,
    OPTS_DIAG,
    OPTS_SCHEMA,
    OPTS_NONE /* nothing but options */
};

struct opts {
    enum opts_command command;
    const char *job; /* NULL = none given */
    const char **sets;
    uint32_t nsets;
    const char
        *run_dir; /* NULL = as the job says; may hold {run_id}; relative to where collrun stands */
    bool json, man, quiet, verbose, no_color, help, version;
};

int opts_parse(int argc, char **argv, struct arena *arena, struct opts *out, struct diag *d);

/* What `collrun COMMAND --help` prints; OPTS_NONE: the page about all of them. */
void opts_help(enum opts_command command, FILE *out);

#endif
