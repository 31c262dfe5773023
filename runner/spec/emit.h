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

/* How a dollar sign of a text is written. */
enum emit_dollars {
    EMIT_DOLLARS,   /* twice: it is no reference */
    EMIT_SECRETS,   /* the same; EMIT_SECRET_DOLLAR before "{env:" is that of a reference */
    EMIT_AS_WRITTEN /* once: the text has references */
};

/* A scalar, in quotes unless all of its characters are plain in YAML. */
void emit_text(const char *text, enum emit_dollars dollars, FILE *out);

/* A whole job: a line for each top-level key, and one for each item of its lists. A reference that
 * was replaced is written as it was. */
void emit_tree(const struct node *root, FILE *out);

/* The same with a line for each value, and a comment that names its place; `file` is the name of
 * the job file. */
void emit_with_origins(const struct node *root, const char *file, FILE *out);

#endif
