/* SPDX-License-Identifier: Apache-2.0
 *
 * The text before each line that ranks print, made of the template `logging.console.label`.
 * - Of one rank, its values: "[3]".
 * - Of several ranks that printed one line (report/fold.h), their sets: "[0-3,6]". {local_rank} is
 *   the set of their numbers on their hosts; {host} lists the hosts, or says how many they are if
 *   more than LABEL_HOSTS_MAX.
 */
#ifndef RUNNER_REPORT_LABEL_H
#define RUNNER_REPORT_LABEL_H

#include "base/desc.h"

enum { LABEL_HOSTS_MAX = 4 };

/* With a space at its end, unless the template gives no text. `ranks` are ascending, n >= 1. */
int label_make(const struct desc *desc, const char *template, const uint32_t *ranks, uint32_t n,
               struct arena *arena, const char **out);

#endif
