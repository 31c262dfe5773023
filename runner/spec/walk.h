/* SPDX-License-Identifier: Apache-2.0
 *
 * The reader that the schema table drives: a node tree in, a C struct out. Every error is reported
 * with its place, and reading continues. A wrong or missing value has its default, so that checks
 * across keys are still possible.
 */
#ifndef RUNNER_SPEC_WALK_H
#define RUNNER_SPEC_WALK_H

#include "base/parse.h"
#include "spec/diag_list.h"
#include "spec/node.h"
#include "spec/schema.h"

/* Fills `out`, zeroed by the caller, from `root`. Errors go to `diags`. `names`: of rank sets. */
void walk_read(const struct schema_type *type, const struct node *root, void *out,
               const struct parse_rank_names *names, struct arena *arena, struct diag_list *diags);

/* Reports the keys that a part of a job has, and the schema does not. Values are not read: they may
 * have variables, and a null removes what lies below. `path`: of the part, for messages. */
void walk_check_keys(const struct schema_type *type, const struct node *part, const char *path,
                     struct arena *arena, struct diag_list *diags);

#endif
