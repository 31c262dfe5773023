/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether this host can execute the program of a command, for `collrun doctor`: it exists, is
 * executable, and its interpreter exists: that of a script's first line, also behind /usr/bin/env,
 * or the dynamic loader of an ELF file. Nothing is executed.
 */
#ifndef RUNNER_AGENT_PROGRAM_H
#define RUNNER_AGENT_PROGRAM_H

#include "base/diag.h"

/* `program`: absolute, or a name that is looked up in `path` ("": PATH of this process). */
int program_check(const char *program, const char *path, struct diag *d);

#endif
