/* SPDX-License-Identifier: Apache-2.0
 *
 * ${var:NAME}, with the variables that `vars` of the merged job declares. A value that is one
 * reference becomes the variable's value, of any kind, with the place where the variable was
 * defined; in a longer text, the variable is a scalar.
 */
#ifndef RUNNER_SPEC_VARS_H
#define RUNNER_SPEC_VARS_H

#include "spec/diag_list.h"
#include "spec/node.h"

/* Fills in all references outside `vars` and `profiles`. Reports undefined variables, those
 * without a value, and if `warn` is set, with a warning, those of the job file that nothing refers
 * to. */
int vars_fill(struct node **root, bool warn, struct arena *arena, struct diag_list *diags);

#endif
