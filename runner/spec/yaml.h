/* SPDX-License-Identifier: Apache-2.0
 *
 * From text to node tree; yaml.c is the only file that includes yaml.h of libyaml. Accepted is
 * plain YAML: one document, core tags, no merge keys, no duplicate keys. Limits: nesting 64, values
 * with aliases expanded 100,000, anchors 256. ${env:NAME} is replaced on the way.
 */
#ifndef RUNNER_SPEC_YAML_H
#define RUNNER_SPEC_YAML_H

#include "spec/diag_list.h"
#include "spec/node.h"
#include "spec/source.h"

enum { YAML_DEPTH_MAX = 64, YAML_NODES_MAX = 100000, YAML_ANCHORS_MAX = 256 };

/* Stores the root in *root; errors go to `diags`. Returns a negative code after a syntax error, 0
 * after other errors. `file` is the file of all places: NULL for the job file. */
int yaml_read(const struct source *source, const char *file, struct arena *arena,
              struct node **root, struct diag_list *diags);

#endif
