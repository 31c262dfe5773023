/* SPDX-License-Identifier: Apache-2.0
 *
 * What the parts of the plan share: place.c (ranks on hosts and cpus), gpus.c, groups.c (groups and
 * their backends), work.c (workloads and parameters), and the names that the job gives to plugins
 * (lookup.c). Only files of this folder include it.
 */
#ifndef PLAN_MAKER_H
#define PLAN_MAKER_H

#include "plan/plan.h"

struct maker {
    const struct job *job;
    const struct plan_input *in;
    struct arena *arena;
    struct desc *desc;
    struct diag_list *diags;
    uint64_t members; /* of all rank sets so far */
    uint32_t *seen;   /* by rank: the last set, numbered by `sets`, that held it */
    uint32_t sets;
};

void maker_note(struct maker *m, const struct diag *d);

/* Ranks of the job in the order written; what does not exist or repeats is left out. */
void maker_ranks(struct maker *m, const struct job_ranks *ranks, struct desc_ranks *out);

void maker_pairs(struct maker *m, const struct job_pairs *from, struct desc_kvs *to);

void maker_check_backends(struct maker *m);
/* Which buffers of its group a backend is for. */
enum backend_slot { BACKEND_ALL, BACKEND_HOST, BACKEND_CUDA };
/* Where its members run. */
struct backend_where {
    bool one_host, here; /* here: some on this machine */
};
/* The index of the group's backend in the description; negative = none, and that has been said. */
int64_t maker_backend(struct maker *m, const struct job_group *group, enum backend_slot slot,
                      struct backend_where where);
/* A group's options against those of its backends in the description; `cuda` < 0: it has one. */
void maker_check_options(struct maker *m, const struct job_group *group, uint32_t backend,
                         int64_t cuda);
/* Whether every member of a group on this backend must own a GPU. */
bool maker_needs_device(const struct maker *m, uint32_t backend);

void maker_place(struct maker *m);
void maker_gpus(struct maker *m);
/* For a group whose backend needs a GPU for every member: refuses it if two members have the same
 * one. */
void maker_own_gpus(struct maker *m, const struct job_group *group, struct desc_group *planned,
                    uint32_t backend);
void maker_groups(struct maker *m);
void maker_workloads(struct maker *m);

/* ---- lookup.c ---- */

/* The file that a backend's name stands for: a path of job.yaml, or an installed one. NULL = none;
 * then the diag has the words and the hint, but neither path nor place. The name's own spelling
 * goes to *name if it is not NULL. */
const char *lookup_backend(const struct job *job, const struct prefix_plugins *installed,
                           const char *written, struct arena *arena, const char **name,
                           struct diag *d);
/* The same for `plugin:` of a workload: a path relative to the job file, or the name of an
 * installed one. */
const char *lookup_workload(const struct job *job, const struct prefix_plugins *installed,
                            const char *written, struct arena *arena, struct diag *d);
/* "allreduce, bench, hello" */
const char *lookup_list(const struct prefix_plugins *installed, struct arena *arena);
const struct described *lookup_described(const struct plan_input *in, enum describe_kind kind,
                                         const char *path);

#endif
