/* SPDX-License-Identifier: Apache-2.0
 *
 * `matrix`: axes with lists of values, and one run for each combination that `exclude` leaves.
 * ${matrix:AXIS} is the value of an axis; vars.h fills it in.
 */
#ifndef RUNNER_SPEC_MATRIX_H
#define RUNNER_SPEC_MATRIX_H

#include "spec/diag_list.h"
#include "spec/job.h"

enum {
    MATRIX_MAX = 100000, /* combinations */
    MATRIX_AXES_MAX = 16
};

/* Reads the mapping, in which variables are filled in. After an error `out` is `refused`, and has
 * the axes that are right. */
void matrix_read(const struct node *map, struct job_matrix *out, struct arena *arena,
                 struct diag_list *diags);

/* The value of an axis in a combination. */
const struct node *matrix_value(const struct job_matrix *matrix, uint32_t combination,
                                uint32_t axis);
/* "algo=Ring,n=2" */
const char *matrix_text(const struct job_matrix *matrix, uint32_t combination, struct arena *arena);
/* "003-algo=Ring,n=2": the folder of the third combination. What could be no part of a file's name
 * is "_" in it. */
const char *matrix_folder(const struct job_matrix *matrix, uint32_t combination,
                          struct arena *arena);

/* Clears the combinations in `selected` that differ from "AXIS=VALUE". INVALID: there is no such
 * axis or value. */
int matrix_select(const struct job_matrix *matrix, const char *only, bool *selected,
                  struct arena *arena, struct diag *d);

#endif
