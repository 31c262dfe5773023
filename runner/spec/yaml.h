/* SPDX-License-Identifier: Apache-2.0
 *
 * From text to node tree; the only file that sees yaml.h is yaml.c. Plain YAML: one document, core
 * tags only, no merge keys, keys that differ. What could hurt is bounded: nesting (64), values with
 * aliases followed (100,000), anchors (256).
 * ${env:NAME} is filled in on the way.
 */
#ifndef SPEC_YAML_H
#define SPEC_YAML_H

#include "spec/diag_list.h"
#include "spec/node.h"
#include "spec/source.h"

enum { YAML_DEPTH_MAX = 64, YAML_NODES_MAX = 100000, YAML_ANCHORS_MAX = 256 };

/* The root in *root. Errors go to `diags`; a text that YAML cannot read on from fails (negative),
 * lesser ones only count. `file` is what the places say: NULL for the job file. */
int yaml_read(const struct source *source, const char *file, struct arena *arena,
              struct node **root, struct diag_list *diags);

#endif
