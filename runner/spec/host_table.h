/* SPDX-License-Identifier: Apache-2.0
 *
 * The hosts of a job while they are read: from hosts.nodes, a host file or an allocation. Patterns
 * are expanded, and hosts.defaults applies to what a host leaves out.
 */
#ifndef RUNNER_SPEC_HOST_TABLE_H
#define RUNNER_SPEC_HOST_TABLE_H

#include "spec/job.h"
#include "spec/source.h"

struct host_table {
    struct job_hosts *hosts; /* nodes and n are filled in; the caller has emptied them */
    struct arena *arena;
    uint32_t capacity;
};

/* Appends the hosts that written->name names. Beyond HOSTS_MAX it appends none: the check of the
 * job reports the number. */
int host_table_add(struct host_table *table, const struct job_host *written, struct diag *d);

/* As host_table_add, but a host that is there already stays as it is. */
int host_table_add_once(struct host_table *table, const struct job_host *written, struct diag *d);

/* As host_table_add, but a host that is there already gets the slots of `written` added; either
 * counts as one slot if it has no number. */
int host_table_add_slots(struct host_table *table, const struct job_host *written, struct diag *d);

/* ---- host files ---- */

/* `hosts: {file: FILE}`: a host file as mpirun (Open MPI) and mpiexec (MPICH) read them. A line is
 * `name`, `name slots=N` or `name:N`; the name may be a pattern such as gpu[01-04]. A host without
 * a number takes any number of ranks; if it has several lines, their slots add up, each line
 * without a number as one. `#` begins a comment. */

/* Reads hosts->file, relative to `dir`, and appends its hosts. Errors carry their place in it. */
int host_file_read(struct host_table *table, const char *dir, struct source **sources,
                   struct diag *d);

#endif
