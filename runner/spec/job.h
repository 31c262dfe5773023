/* SPDX-License-Identifier: Apache-2.0
 *
 * struct job: job.yaml as it was written: every key of version 1, typed, in range, with defaults
 * filled in, each value with its place so that a later failure can still point at it. Host ranges
 * are expanded and host defaults applied; nothing else is resolved: that is the plan's work, whose
 * product is struct desc.
 */
#ifndef SPEC_JOB_H
#define SPEC_JOB_H

#include "base/arena.h"
#include "base/diag.h"
#include "base/parse.h"
#include "spec/diag_list.h"
#include "spec/source.h"

/* A value and where it stands; loc.line 0: not written, the default. */
struct job_str {
    const char *v; /* NULL = not written and no default */
    struct diag_loc loc;
};
struct job_num { /* integers, sizes (bytes), durations (ns), choices (an enum), flags (0 or 1) */
    int64_t v;
    struct diag_loc loc;
};
struct job_strs {
    struct job_str *items;
    uint32_t n;
    struct diag_loc loc;
};
struct job_nums {
    struct job_num *items;
    uint32_t n;
    struct diag_loc loc;
};
struct job_pair { /* one `KEY: value` of params, options, env.set */
    const char *key, *value;
    struct diag_loc key_loc, loc;
};
struct job_pairs {
    struct job_pair *items;
    uint32_t n;
    struct diag_loc loc;
};
struct job_rank_part {
    struct parse_range range;
    struct diag_loc loc;
};
struct job_ranks {
    bool all;
    struct job_rank_part *parts; /* in the order written */
    uint32_t n;
    struct diag_loc loc;
};

enum job_transport_kind {
    JOB_TRANSPORT_LOCAL,
    JOB_TRANSPORT_SSH,
    JOB_TRANSPORT_SLURM,
    JOB_TRANSPORT_COMMAND
};
struct job_transport {
    struct job_num kind;     /* enum job_transport_kind */
    struct job_strs command; /* JOB_TRANSPORT_COMMAND: argv, with {host} in it */
};

struct job_gpus {         /* of a host: so many, or these ordinals */
    struct job_num count; /* loc.line 0 = not written */
    struct job_nums list;
};

struct job_host { /* host ranges expanded, hosts.defaults applied; desc.hosts has the same order and
                     indices */
    struct job_str name, address, user, workdir;
    struct job_num port;
    struct job_num slots; /* 0 = not written */
    struct job_gpus gpus;
    struct job_transport transport;
    struct diag_loc loc;
};

struct job_hosts {
    struct job_num all;       /* 1 = `hosts: slurm` */
    struct job_host defaults; /* as written */
    struct job_host *nodes;   /* never empty after job_read: without `hosts`, this machine, local */
    uint32_t n;
    struct diag_loc loc; /* line 0 = no `hosts` in the file */
};

enum job_known_hosts { JOB_KNOWN_HOSTS_STRICT, JOB_KNOWN_HOSTS_ACCEPT_NEW, JOB_KNOWN_HOSTS_OFF };
struct job_ssh {
    struct job_num known_hosts; /* enum job_known_hosts */
    struct job_str identity, config;
    struct job_num connect_timeout, retries, parallel;
    struct diag_loc loc;
};

enum job_stage { JOB_STAGE_AUTO, JOB_STAGE_NEVER };

enum job_map { JOB_MAP_BLOCK, JOB_MAP_CYCLIC };
enum job_bind { JOB_BIND_NONE, JOB_BIND_CORE, JOB_BIND_NUMA, JOB_BIND_GPU };
struct job_processes {
    struct job_num count, gpus_per_process;
    struct job_num map, bind; /* enum job_map, enum job_bind */
    struct job_num cpus_per_process;
    struct diag_loc loc;
};

struct job_backend {
    const char *name; /* as written */
    struct diag_loc name_loc;
    struct job_str path;
    struct job_pairs options;
    struct diag_loc loc;
};

enum job_split { JOB_SPLIT_NONE, JOB_SPLIT_HOST };
enum job_check { JOB_CHECK_ASYNC, JOB_CHECK_STRICT, JOB_CHECK_OFF };
struct job_group {
    const char *name;
    struct diag_loc name_loc; /* line 0 = the implicit `world` */
    struct job_ranks ranks;
    struct job_num world_size; /* 0 = not written */
    struct job_str backend;    /* "auto", or NULL when by memory */
    struct job_str backend_host, backend_cuda;
    struct job_num gpus_per_process, timeout;
    struct job_num split, check; /* enum job_split, enum job_check */
    struct job_pairs options;
    struct diag_loc loc;
};

struct job_override {
    struct job_ranks ranks;
    struct job_pairs params;
    struct diag_loc loc;
};

struct job_workload {
    struct job_str name; /* default: the plugin's, without folder, lib and .so */
    struct job_str plugin;
    struct job_ranks ranks;
    struct job_strs groups; /* loc.line 0 = all that a rank is in */
    struct job_pairs params;
    struct job_override *overrides; /* per_ranks */
    uint32_t noverrides;
    struct job_num timeout;    /* 0 = none */
    struct job_num background; /* flag */
    struct diag_loc loc;
};

struct job_env {
    struct job_strs pass; /* names and patterns */
    struct job_pairs set;
    struct job_strs unset, secrets;
    struct diag_loc loc;
};

struct job_timeouts {
    struct job_num start, rendezvous;
    struct job_num run;   /* 0 = none */
    struct job_num stall; /* 0 = none */
    struct job_num grace;
    struct diag_loc loc;
};

enum job_action { JOB_ACTION_STOP, JOB_ACTION_CONTINUE, JOB_ACTION_RESTART };
enum job_cause {
    JOB_CAUSE_ANY, /* not written */
    JOB_CAUSE_LAUNCH,
    JOB_CAUSE_PLUGIN,
    JOB_CAUSE_OOM,
    JOB_CAUSE_SIGNAL,
    JOB_CAUSE_EXIT,
    JOB_CAUSE_HOST_LOST,
    JOB_CAUSE_TIMEOUT,
    JOB_CAUSE_STALL,
    JOB_CAUSE_MISMATCH
};
struct job_rule {
    struct job_num cause;      /* enum job_cause */
    struct job_nums exit_code; /* n = 0: not written */
    struct job_num action;
    struct diag_loc loc;
};
struct job_on_failure {
    struct job_num action; /* enum job_action */
    struct job_num max_restarts, backoff, min_uptime;
    struct job_rule *rules;
    uint32_t nrules;
    struct diag_loc loc;
};

struct job_console {
    struct job_ranks ranks;          /* whose output is shown */
    struct job_str label;            /* a template; "" = no label */
    struct job_num timestamps, fold; /* flags */
    struct diag_loc loc;
};
struct job_logging {
    struct job_str dir; /* a template; NULL = nothing is written */
    struct job_console console;
    struct job_num max_file; /* bytes */
    struct diag_loc loc;
};

struct job {
    const char *file; /* as given on the command line */
    const char *dir;  /* absolute: the folder it stands in, which relative paths start from */
    struct source *sources;
    const struct node *tree; /* of the file, with every --set and the implicit group */
    bool complete; /* every part has been read, whatever errors were found: see job_read */
    struct job_num version;
    struct job_str name;
    struct job_hosts hosts;
    struct job_ssh ssh;
    struct job_num stage;     /* enum job_stage */
    struct job_str interface; /* network.interface */
    struct job_processes processes;
    struct job_backend *backends;
    uint32_t nbackends;
    struct job_group *groups; /* in file order; an implicit `world` comes first */
    uint32_t ngroups;
    struct job_workload *workloads;
    uint32_t nworkloads;
    struct job_env env;
    struct job_timeouts timeouts;
    struct job_on_failure on_failure;
    struct job_logging logging;
};

/* Reads `file`, applies the `nsets` texts "path=value" of --set, checks what can be checked without
 * loading any plugin. Everything lives in `arena`, `job->sources` even when it fails. 0, or a
 * negative code with the errors in `diags`. A job with errors must not be run; if it is `complete`,
 * it can still be planned, to find the errors that only plugins know of: what was refused stands at
 * its default, and what is missing and has none is NULL or 0. */
int job_read(struct job *job, const char *file, const char *const *sets, uint32_t nsets,
             struct arena *arena, struct diag_list *diags);

/* Whether a rank is in a set, once the set has passed job_read. */
bool job_ranks_has(const struct job_ranks *ranks, uint32_t rank);
/* Whether a backend is collrun's to choose. */
bool job_is_auto(const struct job_str *backend);

#endif
