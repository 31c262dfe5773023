/* SPDX-License-Identifier: Apache-2.0
 *
 * ${var:NAME}, with the variables that `vars` of the merged job declares. A value that is one
 * reference becomes the variable's value, of any kind, with the place where the variable was
 * defined; in a longer text, the variable is a scalar. ${matrix:AXIS} likewise, with the values of
 * one combination of `matrix`.
 */
#ifndef RUNNER_SPEC_VARS_H
#define RUNNER_SPEC_VARS_H

#include "spec/diag_list.h"
#include "spec/job.h"
#include "spec/node.h"

/* Reads `matrix`, and fills in all references outside `vars` and `profiles`. Reports undefined
 * variables, those without a value, and if `warn` is set, with a warning, those of the job file,
 * and axes, that nothing refers to. `combination`: of the matrix; one that it does not have counts
 * as the first. */
int vars_fill(struct node **root, bool warn, uint32_t combination, struct job_matrix *matrix,
              struct arena *arena, struct diag_list *diags);

#endif
