/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks in JSON, in two forms: a list of numbers, and a rank set as in job.yaml.
 */
#ifndef RUNNER_REPORT_RANKS_JSON_H
#define RUNNER_REPORT_RANKS_JSON_H

#include "base/desc.h"

#include <jansson.h>

/* [0, 1, 2, 8] */
json_t *ranks_json_list(const struct desc_ranks *ranks);
/* "0-2,8" */
json_t *ranks_json_set(const struct desc_ranks *ranks);

#endif
