/* SPDX-License-Identifier: Apache-2.0
 *
 * What a replay has measured: a table by kind of operation on standard output, and the same as
 * JSON, in a file.
 */
#ifndef REPLAY_REPORT_H
#define REPLAY_REPORT_H

#include "play.h"

/* Collective over the processes; rank 0 prints and writes. speed, as the job gives it; ns: from
 * the first to the last call of all iterations. */
int report(const struct cast *c, const struct player *p, const char *speed, uint64_t ns);
#endif
