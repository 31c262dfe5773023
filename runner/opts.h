/* SPDX-License-Identifier: Apache-2.0
 *
 * The command line: a command, a job file or a program, options. An error names the word that is
 * wrong.
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
    OPTS_DESCRIBE,
    OPTS_DIAG,
    OPTS_TOP,
    OPTS_REPORT,
    OPTS_NEW,
    OPTS_SCHEMA,
    OPTS_COMPLETION,
    OPTS_NONE /* options only */
};

struct opts {
    enum opts_command command;
    const char
        *job; /* NULL = none given; or what is there in its place: a plugin, a folder, a shell */
    char *const *program;  /* after "--", in place of a job file; ends with NULL. NULL: none */
    const char *count;     /* -n, as written */
    const char *host_list; /* --hosts of a program */
    const char *gpus;      /* --gpus of a program */
    const char **sets, **vars, **profiles, **only;
    uint32_t nsets, nvars, nprofiles, nonly;
    /* NULL = logging.dir of the job. May contain {run_id}; relative to the working directory. */
    const char *run_dir;
    const char *output;     /* -o; NULL = not given */
    const char *compare;    /* --compare; NULL = not given */
    const char *trace;      /* --trace; NULL = not given */
    const char *wrap_ranks; /* --wrap: NULL = not given */
    char *const *wrap;      /* its command, which ends with NULL */
    bool json, hosts, print_job, resolved, resume, yes, man, python, quiet, verbose, no_color, help,
        version;
};

int opts_parse(int argc, char **argv, struct arena *arena, struct opts *out, struct diag *d);

/* Prints the help of one command; OPTS_NONE: of all. */
void opts_help(enum opts_command command, FILE *out);

#endif
