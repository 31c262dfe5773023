/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks by name: roles are consecutive ranks; a mesh arranges ranks along axes, with a group for
 * each axis and for each combination that has a name.
 */
#ifndef RUNNER_SPEC_RANKS_H
#define RUNNER_SPEC_RANKS_H

#include "spec/diag_list.h"
#include "spec/job.h"
#include "spec/node.h"

/* Fills in job->rank_names from `roles` and processes.count. After an error it has no roles. */
void ranks_place_roles(struct job *job, struct arena *arena, struct diag_list *diags);

/* The tree with a mapping below mesh.groups for each axis and in place of each list of axes. */
struct node *ranks_add_mesh_groups(struct node *root, struct arena *arena);

/* Replaces the size `rest`, finds the axes of each group of the mesh, and appends these groups to
 * job->groups. After an error the mesh is `refused`. */
void ranks_resolve_mesh(struct job *job, struct arena *arena, struct diag_list *diags);

/* How many parts the group of the mesh has, and the part of the rank at a position of the mesh. */
uint32_t mesh_parts(const struct job_mesh *mesh, uint32_t axes);
uint32_t mesh_part_of(const struct job_mesh *mesh, uint32_t axes, uint32_t position);
/* "tp/pp=0,dp=3", after the axes that a group does not have; without any: the name alone. */
const char *mesh_part_name(const struct job_mesh *mesh, const struct job_group *group,
                           uint32_t part, struct arena *arena);

#endif
