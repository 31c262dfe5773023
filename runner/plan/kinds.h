/* SPDX-License-Identifier: Apache-2.0
 *
 * Kinds of memory, such as "cuda", are names that backends declare; a kind has devices, and the
 * devices of at most one kind of a job are what job.yaml calls GPUs. These functions connect the
 * keys of job.yaml (devices, gpus_per_process, gpus, the keys of backend) with the declarations.
 */
#ifndef RUNNER_PLAN_KINDS_H
#define RUNNER_PLAN_KINDS_H

#include "plan/describe.h"
#include "spec/job.h"

/* The first backend that declares a kind. `name` NULL: a kind whose devices are GPUs, first of a
 * backend that is available here. NULL: none. */
const struct described *kinds_find(const struct described *plugins, uint32_t n, const char *name);

/* A demand for devices: of how many, at which key. */
struct kinds_need {
    uint32_t count;
    struct diag_loc loc; /* line 0: not written */
    const char *group;   /* NULL: written under processes */
    bool gpus;           /* written as gpus_per_process */
};

/* Whether gpus_per_process and gpus are about this kind: it is the one that kinds_find(NULL)
 * finds. */
struct kinds_kind {
    const char *name;
    bool gpus;
};

struct kinds_need kinds_of_processes(const struct job *job, struct kinds_kind kind);
/* A group uses all devices of its members unless the job file says how many. */
struct kinds_need kinds_of_group(const struct job *job, const struct job_group *group,
                                 struct kinds_kind kind);
/* The largest demand of the job. */
struct kinds_need kinds_of_job(const struct job *job, struct kinds_kind kind);
/* True if any key of the job asks for devices of any kind. */
bool kinds_any_of_job(const struct job *job);
/* True if a key asks for GPUs, which is no name of a kind. */
bool kinds_gpus_of_job(const struct job *job);
/* True if a key of the job, or one of the backends described, names a kind that none of them
 * declares. */
bool kinds_missing(const struct job *job, const struct described *plugins, uint32_t n);

/* The devices that job.yaml gives a host; `path` is "gpus" or "devices". A pool that is not written
 * has line 0 in both of its places. */
struct kinds_pool {
    const struct job_pool *pool;
    const char *path;
};
struct diag_loc kinds_written_at(const struct job_pool *pool);
struct kinds_pool kinds_of_host(const struct job *job, uint32_t host, struct kinds_kind kind);

#endif
