/* SPDX-License-Identifier: Apache-2.0
 *
 * The hosts of a job while they are read: from hosts.nodes, a host file or an allocation. Patterns
 * are expanded, and hosts.defaults applies to what a host leaves out.
 */
#ifndef RUNNER_SPEC_HOST_TABLE_H
#define RUNNER_SPEC_HOST_TABLE_H

#include "spec/job.h"

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

#endif
