/* SPDX-License-Identifier: Apache-2.0
 *
 * The job file of a program on the command line: `collrun -n 8 -- python3 train.py`.
 */
#ifndef RUNNER_SPEC_PROGRAM_H
#define RUNNER_SPEC_PROGRAM_H

#include "base/arena.h"
#include "base/diag.h"

/* Where places in it lie, and what stands for the name of its file. */
#define PROGRAM_FILE "command line"

struct program {
    char *const *command; /* ends with NULL */
    const char *count;    /* of -n, as written; NULL: none */
    const char *gpus;     /* of --gpus; NULL: none */
    const char *hosts;    /* of --hosts: a list, a host file, or the name of a scheduler; NULL */
};

/* The text of the job file. NULL, with an error in *d: a word is no text. */
const char *program_job(const struct program *program, struct arena *arena, struct diag *d);

#endif
