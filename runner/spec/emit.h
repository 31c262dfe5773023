/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes values as YAML: what is written reads as the same text.
 */
#ifndef RUNNER_SPEC_EMIT_H
#define RUNNER_SPEC_EMIT_H

#include "spec/node.h"

#include <stdio.h>

/* The dollar sign of a ${env:NAME} that stands for a secret; any other one is written twice. */
#define EMIT_SECRET_DOLLAR '\x1a'

/* A scalar, in quotes unless all of its characters are plain in YAML. `secrets`: a
 * EMIT_SECRET_DOLLAR before "{env:" is the dollar sign of a reference. */
void emit_text(const char *text, bool secrets, FILE *out);

/* A whole job: a line for each top-level key, and one for each item of its lists. A reference that
 * was replaced is written as it was. */
void emit_tree(const struct node *root, FILE *out);

/* The same with a line for each value, and a comment that names its place; `file` is the name of
 * the job file. */
void emit_with_origins(const struct node *root, const char *file, FILE *out);

#endif
