/* SPDX-License-Identifier: Apache-2.0
 *
 * struct desc: what a job is, once it is planned: the one description that the runner's plan
 * produces, the wire carries, and agent and engine read. It is resolved: host names expanded,
 * `auto` replaced, splits expanded, params checked, paths absolute. Everything in it lives in one
 * arena (or is borrowed from one) and is never changed after it is made. desc_encode/desc_decode
 * turn it into bytes and back; decode checks every index and length, so that a description that
 * decodes is safe to walk.
 */
#ifndef BASE_DESC_H
#define BASE_DESC_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/diag.h"

struct desc_kv {
    const char *key, *value;
    struct diag_loc loc; /* of the value in job.yaml */
};

struct desc_kvs {
    struct desc_kv *items;
    uint32_t n;
};

struct desc_ranks {
    uint32_t *items; /* world ranks, in order */
    uint32_t n;
};

enum desc_check { DESC_CHECK_ASYNC, DESC_CHECK_STRICT, DESC_CHECK_OFF };

struct desc_backend {
    const char *name; /* lower case */
    const char *path; /* absolute, on the hosts */
    struct desc_kvs options;
    struct diag_loc loc; /* where job.yaml first asks for it; line 0 when only `auto` does */
};

struct desc_group {
    const char *name;
    uint32_t backend;        /* index into desc.backends; of the one for host memory, if two */
    uint32_t cuda_backend;   /* of the one for buffers on a GPU, plus 1; 0: one for all */
    bool chosen;             /* by `auto`; of `backend` */
    struct desc_ranks ranks; /* index = group rank */
    uint64_t timeout_ns;
    uint32_t check; /* enum desc_check */
    uint32_t gpus_per_process;
    bool own_gpus; /* no two members may have a GPU in common */
    struct desc_kvs options;
    struct diag_loc loc;
};

struct desc_override { /* workloads[].per_ranks[] */
    struct desc_ranks ranks;
    struct desc_kvs params;
};

struct desc_workload {
    const char *name;
    const char *plugin; /* absolute path */
    struct desc_ranks ranks;
    uint32_t *groups; /* indices into desc.groups: those that this workload may use; a rank uses
                         those it is in */
    uint32_t ngroups;
    struct desc_kvs params; /* as written; checked against the plugin's table */
    struct desc_override *overrides;
    uint32_t noverrides;
    bool background;
    uint64_t timeout_ns; /* 0 = none */
    struct diag_loc loc; /* of `plugin` */
};

struct desc_gpu {
    uint32_t index;   /* in the pool of its host (base/gpus.h) */
    const char *uuid; /* "" = only the host itself knows it */
};

/* desc_rank.cpus: those near the rank's GPUs, which only the host itself knows. */
#define DESC_CPUS_NEAR_GPUS "gpu"

struct desc_rank {
    uint32_t host;       /* index into desc.hosts */
    uint32_t local_rank; /* among the ranks of that host */
    const char *cpus;    /* cpu list such as "0-3,8", "" = not bound */
    struct desc_gpu *gpus;
    uint32_t ngpus;
};

struct desc_host {
    const char *name;
    uint32_t nranks;
    const char *workdir;      /* "" = where the agent stands */
    struct diag_loc gpus_loc; /* what of job.yaml asks for its GPUs; line 0 = nothing does */
};

struct desc {
    const char *run_id, *run_dir; /* run_dir "" without logging.dir */
    const char *job_name, *job_file;
    const char *interface; /* network.interface as written */
    uint32_t attempt;
    struct desc_host *hosts;
    uint32_t nhosts;
    struct desc_rank *ranks; /* index = world rank; n = processes.count */
    uint32_t nranks;
    struct desc_backend *backends;
    uint32_t nbackends;
    struct desc_group *groups; /* in file order, splits expanded in place */
    uint32_t ngroups;
    struct desc_workload *workloads;
    uint32_t nworkloads;
    struct desc_kvs
        env_pass; /* names and values taken from the runner's environment; includes secrets */
    struct desc_kvs env_set;   /* values may hold {rank} {local_rank} {host} {run_id} {attempt} */
    struct desc_kvs env_unset; /* keys only */
    bool keep_going; /* on_failure may say `continue`: the agent leaves it to the runner what a
                        death means */
    uint64_t start_timeout_ns, rendezvous_timeout_ns, grace_ns;
};

void desc_encode(const struct desc *desc, struct buf *out);
int desc_decode(struct arena *arena, struct desc *desc, const void *bytes, size_t len,
                struct diag *d);

#endif
