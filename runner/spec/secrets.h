/* SPDX-License-Identifier: Apache-2.0
 *
 * Values of env.secrets that ${env:NAME} inserts elsewhere in the job file.
 *   - They may stand where collrun shows no value: params, options, variables, and the arguments of
 *     a program. The reader refuses them elsewhere: names, hosts and paths are in titles of
 *     processes, command lines, messages and all files of a run.
 *   - In plan.json and resolved.yaml ${env:NAME} replaces them; and in errors, which quote values.
 * The replacement is one pass over a text. At each place the longest value that matches counts, so
 * that a secret which contains another one, or is a part of ${env:NAME}, changes nothing. A value
 * of less than 4 bytes stays: it would hide other text.
 */
#ifndef RUNNER_SPEC_SECRETS_H
#define RUNNER_SPEC_SECRETS_H

#include "base/diag.h"
#include "spec/job.h"
#include "spec/node.h"

#include <jansson.h>

/* The first of the names (a list of scalars, or NULL) that a scalar refers to; NULL: none. */
const char *secrets_find(const struct node *scalar, const struct node *names);

/* In all strings of the value; `dollar` is written for the dollar sign of ${env:NAME}. */
void secrets_mask(json_t *value, const struct job_strs *names, char dollar);

void secrets_mask_plan(json_t *plan, const struct job_strs *names); /* in what may contain one */

/* In the errors, hints and commands of an object, at any depth. In errors a value is found in the
 * form that quote() gives it, too, and where it is cut. */
void secrets_mask_errors(json_t *object, const struct job_strs *names);
void secrets_mask_diag(struct diag *d, const struct job_strs *names);
void secrets_mask_line(const void *names, char *line, size_t size); /* for debug_set_mask */

#endif
