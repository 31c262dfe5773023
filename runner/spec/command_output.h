/* SPDX-License-Identifier: Apache-2.0
 *
 * The output of a short program of PATH, for what a resource manager tells only by a command.
 */
#ifndef RUNNER_SPEC_COMMAND_OUTPUT_H
#define RUNNER_SPEC_COMMAND_OUTPUT_H

#include "base/arena.h"
#include "base/diag.h"

/* Runs `argv` (ends with NULL) with /dev/null as its stdin and stderr; `out` is its stdout,
 * NUL-terminated, in the arena. An error: it cannot be started, fails, prints 1 MiB, or takes
 * longer than 10 seconds, and is killed then. */
int command_output(char *const *argv, struct arena *arena, char **out, struct diag *d);

#endif
