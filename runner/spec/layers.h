/* SPDX-License-Identifier: Apache-2.0
 *
 * A job in several layers: the files that `include` names, the file itself, the profiles that
 * --profile names, --var, --set. What comes later wins (merge.h). The result is one tree without
 * `include`, `vars`, `profiles` and `matrix`, in which every value keeps the place that it came
 * from.
 */
#ifndef RUNNER_SPEC_LAYERS_H
#define RUNNER_SPEC_LAYERS_H

#include "spec/diag_list.h"
#include "spec/job.h"
#include "spec/node.h"

enum {
    LAYERS_DEPTH_MAX = 8, /* files between the job file and an included one, that one included */
    LAYERS_FILES_MAX = 64 /* each time that a file is included counts */
};

/* Adds all layers to the tree of the job file. 0, or a negative code if there is no tree to check;
 * errors are in `diags`. */
int layers_add(struct node **root, const struct job_request *request, struct job_matrix *matrix,
               struct source **sources, struct arena *arena, struct diag_list *diags);

#endif
