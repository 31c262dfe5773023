/* SPDX-License-Identifier: Apache-2.0
 *
 * Values of env.secrets that ${env:NAME} has inserted elsewhere in the job file are not shown.
 */
#ifndef RUNNER_SPEC_SECRETS_H
#define RUNNER_SPEC_SECRETS_H

#include "spec/job.h"

#include <jansson.h>

/* Writes ${env:NAME} for the value of each of these variables, in all strings of the object, with
 * this character for the dollar sign. A value of less than 4 bytes stays: it would hide other text.
 */
void secrets_mask(json_t *value, const struct job_strs *names, char dollar);

#endif
