/* SPDX-License-Identifier: Apache-2.0
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
 * stopped. Everything that job files and ranks have named is made harmless (report/units.h).
 */
#ifndef RUNNER_REPORT_TOP_SCREEN_H
#define RUNNER_REPORT_TOP_SCREEN_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

struct top_view {
    size_t width, height; /* columns and lines; 0: any number */
    size_t first;         /* the first rank that is shown */
    bool color;
};

/* Writes lines that end with \n; `height` of them at most. A state that lacks members is shown as
 * far as it can be. Returns how many ranks were shown. */
size_t top_screen_draw(const json_t *state, const struct top_view *view, FILE *out);

#endif
