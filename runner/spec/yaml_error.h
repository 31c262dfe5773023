/* SPDX-License-Identifier: Apache-2.0
 *
 * Turns a syntax error of libyaml into a message for the author of a job file.
 */
#ifndef RUNNER_SPEC_YAML_ERROR_H
#define RUNNER_SPEC_YAML_ERROR_H

#include "base/diag.h"
#include "spec/source.h"

/* `problem` is at `loc`, inside `context` (or NULL), which began at `context_loc`. */
void yaml_error_explain(const struct source *source, const char *problem, struct diag_loc loc,
                        const char *context, struct diag_loc context_loc, struct diag *d);

#endif
