/* SPDX-License-Identifier: Apache-2.0
 *
 * `hosts: {file: FILE}`: a host file as mpirun (Open MPI) and mpiexec (MPICH) read them. A line is
 * `name`, `name slots=N` or `name:N`; the name may be a pattern such as gpu[01-04]. A host without
 * a number takes any number of ranks; if it has several lines, their slots add up, each line
 * without a number as one. `#` begins a comment.
 */
#ifndef RUNNER_SPEC_HOST_FILE_H
#define RUNNER_SPEC_HOST_FILE_H

#include "spec/host_table.h"
#include "spec/source.h"

/* Reads hosts->file, relative to `dir`, and appends its hosts. Errors carry their place in it. */
int host_file_read(struct host_table *table, const char *dir, struct source **sources,
                   struct diag *d);

#endif
