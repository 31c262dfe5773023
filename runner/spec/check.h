/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks between keys of one job that need no plugin. Each contradiction is reported with both
 * places.
 */
#ifndef RUNNER_SPEC_CHECK_H
#define RUNNER_SPEC_CHECK_H

#include "spec/diag_list.h"
#include "spec/job.h"

void job_check(const struct job *job, struct arena *arena, struct diag_list *diags);

/* ---- processes.map as a list ---- */

/* The ranks of the rows exist. */
void check_map(const struct job *job, struct arena *arena, struct diag_list *diags);

/* The index of a row's host among hosts.nodes, or its number if there is none. */
uint32_t check_map_host(const struct job_hosts *hosts, const struct job_map_row *row);

#endif
