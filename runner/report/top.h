/* SPDX-License-Identifier: Apache-2.0
 *
 * collrun top: shows a running job until it ends, in the alternate screen of the terminal.
 *
 * - It reads the states that the job's runner sends through the socket of the run directory
 *   (run/status_request.h), and draws each of them, and again when the terminal has another size.
 * - Keys: q or Ctrl-C end it; up and down, page up and page down, home move through the ranks.
 * - Ctrl-Z restores the terminal before it stops the process, and fg draws the screen again.
 * However it ends, except by SIGKILL, the terminal is left as it was.
 * - If stdout is no terminal, or with --json, it prints one state and ends.
 */
#ifndef RUNNER_REPORT_TOP_H
#define RUNNER_REPORT_TOP_H

#include "base/diag.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

struct top_options {
    const char *folder; /* the run directory */
    bool json, color;
};

/* 0; 128 + a signal that ended it; or negative: the run is not going on, or cannot be reached. */
int top_command(const struct top_options *options, struct diag *d);

/* ---- the screen ----
 *
 * The screen of `collrun top`: the state of a job (report/top_json.h) as lines of text.
 *
 *   demo  20261123-0158-05e7  12s  4/4 ranks up
 *   3/4 wait in world#1042 for rank 1
 *   train 35% steps
 *
 *   GROUP   RANKS  BACKEND   OP/S     B/S  LATENCY  LONGEST  LAST TO ARRIVE
 *   world       4  shm       230   942 kB    12 us    80 us  rank 3, 80% of calls, 1.2 ms late
 *
 *   RANK  HOST    PID  STATE     CPU  MEMORY  DOING
 *      0  node1  4711  running  98 %   12 MB  allreduce world#1200 (8 x float32, sum), for 0.1 s
 *
 * Colours: yellow for waits and for a rank that is often late, red for ranks that failed or were
 * stopped. Everything that job files and ranks have named is made harmless (base/quote.h).
 */

struct top_view {
    size_t width, height; /* columns and lines; 0: any number */
    size_t first;         /* the first rank that is shown */
    bool color;
};

/* Writes lines that end with \n; `height` of them at most. A state that lacks members is shown as
 * far as it can be. Returns how many ranks were shown. */
size_t top_screen_draw(const json_t *state, const struct top_view *view, FILE *out);

#endif
