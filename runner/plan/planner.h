/* SPDX-License-Identifier: Apache-2.0
 *
 * The state that the passes of the plan share, and the passes:
 *   place.c       ranks on hosts and cpus
 *   kind_rows.c   the kinds of memory that the job uses; kinds.c: what job.yaml says about them
 *   devices.c     devices of each rank
 *   groups.c      groups; backends.c: the backend of each
 *   workloads.c   workloads, their programs, the environment of the ranks; params.c: parameters
 *   lookup.c      from names of backends and workloads to files
 * Only files of this folder include it.
 */
#ifndef RUNNER_PLAN_PLANNER_H
#define RUNNER_PLAN_PLANNER_H

#include "plan/kinds.h"
#include "plan/plan.h"

struct planner {
    const struct job *job;
    const struct plan_input *in;
    struct arena *arena;
    struct desc *desc;
    struct diag_list *diags;
    uint64_t members;   /* total size of all rank sets expanded so far */
    uint32_t *last_set; /* per rank: the last set that contained it, numbered by `sets` */
    uint32_t sets;
    bool lacks_devices; /* an error was reported: a host has fewer devices than its ranks need */
};

/* ---- planner.c ---- */

void planner_add_error(struct planner *pl, const struct diag *d);
/* The ranks of a set in the order written; ranks outside the job and repetitions are left out. */
void planner_ranks(struct planner *pl, const struct job_ranks *ranks, struct desc_ranks *out);
void planner_pairs(struct planner *pl, const struct job_pairs *from, struct desc_kvs *to);

/* ---- backends.c ---- */

/* Reports wrong entries of `backends`. */
void plan_check_backends(struct planner *pl);
/* Where the members of a group run. */
struct backend_where {
    bool one_host;
    bool here; /* at least one member runs on this machine */
};
/* Returns the index in the description of the group's backend for a kind of memory (NULL: for all);
 * negative: none, and the error has been reported. */
int64_t plan_backend(struct planner *pl, const struct job_group *group, const char *kind,
                     struct backend_where where);
/* The index of the backend that `auto` prefers to `backend` where every host has an RDMA device;
 * without one, `backend`. */
uint32_t plan_backend_rdma(struct planner *pl, const struct job_group *group, uint32_t backend,
                           struct backend_where where);
/* The index of a backend in the description; it is added if it is not there. `unused`: no
 * group uses it so far. */
uint32_t plan_add_backend(struct planner *pl, const char *name, const char *path,
                          struct diag_loc loc, bool unused);
/* Checks a group's options against the tables of its backends in the description. */
void plan_check_options(struct planner *pl, const struct job_group *group,
                        const struct desc_group *planned);

/* ---- kind_rows.c ---- */

/* Fills in desc.kinds, and reports kinds that no backend declares. */
void plan_kinds(struct planner *pl);
/* Adds the kinds of the backends that the groups use. */
void plan_kinds_of_backends(struct planner *pl);
/* The index in desc.kinds; nkinds: none. */
uint32_t plan_find_kind(const struct planner *pl, const char *name);
/* "processes.gpus_per_process", "groups.train.devices.hpu" */
const char *plan_need_path(struct planner *pl, const struct kinds_need *need, const char *kind);

/* ---- the passes ---- */

void plan_place(struct planner *pl);
void plan_devices(struct planner *pl);
/* The devices of a kind that a host offers; NULL: unknown here. */
const struct devices *plan_known_devices(const struct planner *pl, uint32_t host, const char *kind);
/* If the backend of a group needs a device per member: notes it in planned->devices, and reports
 * members that share a device. */
void plan_check_own_devices(struct planner *pl, const struct job_group *group,
                            struct desc_group *planned, uint32_t backend);
void plan_groups(struct planner *pl);
void plan_workloads(struct planner *pl);
void plan_env(struct planner *pl);

/* ---- programs (workloads.c) ---- */

/* Fills in the command of a workload whose ranks are known. A program that does not exist here is
 * an error if a rank of the workload runs on this machine. */
void plan_command(struct planner *pl, uint32_t index, struct desc_workload *out);

/* Reports programs of transports and working directories that do not exist on this machine. */
void plan_check_hosts(struct planner *pl);

/* ---- warnings.c ---- */

void plan_warn(struct planner *pl);

/* ---- lookup.c ---- */

/* The file of a backend: the path that job.yaml declares, or an installed one. The name as declared
 * is stored in *name if that is not NULL. Returns NULL on error; `d` then has text and hint, but
 * neither path nor place. */
const char *lookup_backend(const struct job *job, const struct prefix_plugins *installed,
                           const char *written, struct arena *arena, const char **name,
                           struct diag *d);
/* "this build has no ucx: install libucx-dev and build again"; "" if that is not so. */
const char *lookup_left_out(const char *written, struct arena *arena);
/* The file of a workload's `plugin:`: a path relative to the job file, or the name of an installed
 * workload. */
const char *lookup_workload(const struct job *job, const struct prefix_plugins *installed,
                            const char *written, struct arena *arena, struct diag *d);
/* "allreduce, bench, hello" */
const char *lookup_list(const struct prefix_plugins *installed, struct arena *arena);
const struct described *lookup_described(const struct plan_input *in, enum describe_kind kind,
                                         const char *path);

#endif
