/* SPDX-License-Identifier: Apache-2.0
 *
 * What libyaml says of a syntax error, in the words of someone who writes a job file.
 */
#ifndef SPEC_YAML_WORDS_H
#define SPEC_YAML_WORDS_H

#include "base/diag.h"
#include "spec/source.h"

/* `problem` at `loc`, met in `context` (or NULL) that began at `context_loc`. */
void yaml_explain(const struct source *source, const char *problem, struct diag_loc loc,
                  const char *context, struct diag_loc context_loc, struct diag *d);

#endif
