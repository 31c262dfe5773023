/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON values of what ranks and hosts sent: JSON has no bytes that are not UTF-8, and no NaN.
 */
#ifndef RUNNER_REPORT_JSON_VALUE_H
#define RUNNER_REPORT_JSON_VALUE_H

#include "base/desc.h"

#include <jansson.h>

/* A string; "?" replaces each byte that is not part of a UTF-8 character. */
json_t *json_value_text(const char *text);
/* A number; "NaN", "Infinity" or "-Infinity" as a string if it is not finite. */
json_t *json_value_number(double value);

/* ---- ranks ----
 *
 * Ranks in JSON, in two forms: a list of numbers, and a rank set as in job.yaml.
 */

/* [0, 1, 2, 8] */
json_t *ranks_json_list(const struct desc_ranks *ranks);
/* "0-2,8" */
json_t *ranks_json_set(const struct desc_ranks *ranks);

#endif
