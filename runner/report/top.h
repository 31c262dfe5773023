/* SPDX-License-Identifier: Apache-2.0
 *
 * collrun top: shows a running job until it ends, in the alternate screen of the terminal.
 *
 * - It reads the states that the job's runner sends through the socket of the run directory
 *   (run/top_server.h), and draws each of them, and again when the terminal has another size.
 * - Keys: q or Ctrl-C end it; up and down, page up and page down, home move through the ranks.
 * - Ctrl-Z restores the terminal before it stops the process, and fg draws the screen again.
 * However it ends, except by SIGKILL, the terminal is left as it was.
 * - If stdout is no terminal, or with --json, it prints one state and ends.
 */
#ifndef RUNNER_REPORT_TOP_H
#define RUNNER_REPORT_TOP_H

#include "base/diag.h"

#include <stdbool.h>

struct top_options {
    const char *folder; /* the run directory */
    bool json, color;
};

/* 0; 128 + a signal that ended it; or negative: the run is not going on, or cannot be reached. */
int top_command(const struct top_options *options, struct diag *d);

#endif
