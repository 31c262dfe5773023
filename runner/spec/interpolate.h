/* SPDX-License-Identifier: Apache-2.0
 *
 * ${env:NAME} and ${env:NAME:-default} in the scalars of job.yaml. `$$` is a dollar sign, and so is
 * `$` without a brace.
 */
#ifndef RUNNER_SPEC_INTERPOLATE_H
#define RUNNER_SPEC_INTERPOLATE_H

#include "base/arena.h"
#include "base/diag.h"

enum { INTERPOLATE_MAX = 4 << 20 }; /* of one value, and of all of a job file: as large as a file */

/* *out is `text` itself if it has no reference. */
int interpolate(const char *text, struct arena *arena, const char **out, struct diag *d);

#endif
