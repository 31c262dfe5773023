/* SPDX-License-Identifier: Apache-2.0
 *
 * ${env:NAME} and ${env:NAME:-default} in the scalars of job.yaml, and ${var:NAME} and
 * ${matrix:AXIS}, which are filled in later, when all files have been read (vars.h). `$$` is a
 * dollar sign, and so is `$` without a brace.
 */
#ifndef RUNNER_SPEC_INTERPOLATE_H
#define RUNNER_SPEC_INTERPOLATE_H

#include "base/arena.h"
#include "base/diag.h"

enum { INTERPOLATE_MAX = 4 << 20 }; /* of one value, and of all of a job file: as large as a file */

/* The first ${var:NAME} or ${matrix:AXIS} in a text: its length, with *at at its "$" and *name at
 * the "var:NAME" inside. 0: there is none. */
size_t interpolate_find_var(const char *text, const char **at, const char **name);

/* A name of a variable: letters, digits, "_" and "-", and no digit first. */
bool interpolate_is_var_name(const char *name, size_t len);

/* Fills in ${env:...}. *out is `text` itself if it has no reference. */
int interpolate(const char *text, struct arena *arena, const char **out, struct diag *d);

#endif
