/* SPDX-License-Identifier: Apache-2.0
 *
 * env.activate: a login shell of bash runs the commands of the job file once, before the ranks of
 * this host start. What they change in the environment is kept, and each rank gets it.
 * - The shell starts in the workdir of the host, or in the folder of the job file, with the
 *   variables of env.pass. What its profile changes is not counted.
 * - A command that fails, or a shell that needs longer than half of timeouts.start, is an error at
 * the command's line, with the last line of what was written to stderr.
 */
#ifndef RUNNER_AGENT_ACTIVATE_H
#define RUNNER_AGENT_ACTIVATE_H

#include "base/diag.h"

struct agent;

struct activate_change {
    const char *name, *value; /* NULL: the variable is removed */
};

/* Fills in a->changes. */
int activate_run(struct agent *a, struct diag *d);

/* In a rank's process, before exec. */
void activate_apply(const struct agent *a);

#endif
