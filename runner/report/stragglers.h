/* SPDX-License-Identifier: Apache-2.0
 *
 * Which ranks were late for the collectives of their groups (diagnose/straggler.h): in result.json
 *
 *   "stragglers": [{"group": "train", "compared": 500,
 *                   "ranks": [{"rank": 3, "last": 470, "late_ms": 37.1, "cost": 0.41}]}]
 *
 * the groups whose calls were compared, and of each the ranks that came last, the most frequent one
 * first: in how many of the compared operations; by how much on average in these; which share of
 * the time that cost. "stragglers_left_out" is the number of groups that ended long ago and are not
 * listed; it is there if there are any. And a line for each group in which one rank is a straggler.
 */
#ifndef RUNNER_REPORT_STRAGGLERS_H
#define RUNNER_REPORT_STRAGGLERS_H

#include "diagnose/straggler_list.h"

#include <jansson.h>
#include <stdio.h>

/* The members of result.json. */
json_t *stragglers_json(const struct straggler_list *list);
void stragglers_print(const struct straggler_list *list, FILE *out);

#endif
