/* SPDX-License-Identifier: Apache-2.0
 *
 * --set PATH=VALUE: changes a node tree before the schema sees it, so that what it sets is checked
 * like the file itself. PATH is keys joined by dots; an item of a list is [N], or its `name`:
 * workloads[0].params.iters, hosts.nodes.gpu03.slots. VALUE is YAML. Missing maps on the path are
 * created.
 */
#ifndef RUNNER_SPEC_SET_H
#define RUNNER_SPEC_SET_H

#include "spec/diag_list.h"
#include "spec/node.h"
#include "spec/source.h"

/* Applies the `number`th --set (from 1). Its places are in a separate source, "--set #1". */
int set_apply(struct node **root, const char *text, uint32_t number, struct source **sources,
              struct arena *arena, struct diag_list *diags);

/* The same for --var NAME=VALUE: sets a variable that the job declares. */
int set_variable(struct node **root, const char *text, uint32_t number, struct source **sources,
                 struct arena *arena, struct diag_list *diags);

/* -n: sets processes.count. Its place is in the source "-n". */
int set_count(struct node **root, const char *text, struct source **sources, struct arena *arena,
              struct diag_list *diags);

#endif
