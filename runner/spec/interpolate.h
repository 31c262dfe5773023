/* SPDX-License-Identifier: Apache-2.0
 *
 * ${env:NAME} and ${env:NAME:-default} in the scalars of job.yaml; `$$` is a dollar sign, and so is
 * one that no brace follows.
 */
#ifndef SPEC_INTERPOLATE_H
#define SPEC_INTERPOLATE_H

#include "base/arena.h"
#include "base/diag.h"

/* `text` itself when there is nothing to fill in. */
int interpolate(const char *text, struct arena *arena, const char **out, struct diag *d);

#endif
