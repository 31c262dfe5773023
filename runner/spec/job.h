/* SPDX-License-Identifier: Apache-2.0
 *
 * struct job: job.yaml as written. Every key of version 1 is typed, checked and has its default;
 * every value keeps its place for later errors. Host ranges are expanded and host defaults applied;
 * the plan resolves the rest into struct desc.
 */
#ifndef RUNNER_SPEC_JOB_H
#define RUNNER_SPEC_JOB_H

#include "base/arena.h"
#include "base/diag.h"
#include "base/parse.h"
#include "spec/diag_list.h"
#include "spec/node.h"
#include "spec/source.h"

enum { JOB_RANKS_MAX = 65536 };

/* A value and its place; loc.line 0: not written, the default. */
struct job_str {
    const char *v; /* NULL = not written and no default */
    struct diag_loc loc;
    bool quoted; /* it has quotes, so it is no number */
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
    bool quoted;  /* as in struct job_str */
    bool is_list; /* of params: the value is `list`, and `value` is "" */
    struct job_strs list;
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
    bool refused;                /* an error was reported; the set is its default */
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
    bool text;               /* it carries output as lines of text only, input as bytes */
};

struct job_pool {         /* the devices of a host: a number, or a list of indices */
    struct job_num count; /* loc.line 0 = not written */
    struct job_nums list;
};
struct job_host_devices { /* one entry of a host's `devices` */
    const char *kind;     /* of memory, as written */
    struct diag_loc kind_loc;
    struct job_pool pool;
};
struct job_need { /* one entry of the `devices` of processes or of a group */
    const char *kind;
    struct diag_loc kind_loc;
    struct job_num count;
};
struct job_needs {
    struct job_need *items;
    uint32_t n;
};

struct job_host { /* host ranges expanded, hosts.defaults applied; desc.hosts has the same order and
                     indices */
    struct job_str name, address, user, workdir;
    struct job_num port;
    struct job_num slots;             /* 0 = not written */
    struct job_pool gpus;             /* of the kind whose devices are GPUs */
    struct job_host_devices *devices; /* without those of hosts.defaults */
    uint32_t ndevices;
    struct job_transport transport;
    struct diag_loc loc;
};

enum job_allocation {
    JOB_ALLOCATION_NONE,
    JOB_ALLOCATION_SLURM,
    JOB_ALLOCATION_PBS,
    JOB_ALLOCATION_LSF,
    JOB_ALLOCATION_SGE,
    JOB_ALLOCATION_FLUX
};
struct job_hosts {
    struct job_num all;       /* enum job_allocation: `hosts: slurm` */
    struct job_str file;      /* of hosts, as written */
    struct job_host defaults; /* as written */
    struct job_host *nodes;   /* never empty after job_read: without `hosts`, this machine, local */
    uint32_t n;
    struct job_num spare;    /* how many of the last nodes are spares */
    struct job_host *spares; /* they are not among `nodes` after job_read */
    uint32_t nspares;
    bool refused; /* an error was reported: hosts are missing, or an unknown one replaces them */
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

enum job_map_kind { JOB_MAP_BLOCK, JOB_MAP_CYCLIC };
struct job_map_row { /* ranks on one host */
    struct job_ranks ranks;
    struct job_str host, cpus;
    struct diag_loc loc;
};
struct job_map {         /* one of the two */
    struct job_num kind; /* enum job_map_kind */
    struct job_map_row *rows;
    uint32_t n;
};
enum job_bind {
    JOB_BIND_AUTO,
    JOB_BIND_NONE,
    JOB_BIND_CORE,
    JOB_BIND_L3,
    JOB_BIND_NUMA,
    JOB_BIND_SOCKET,
    JOB_BIND_GPU
};
enum { JOB_STDIN_NONE = -1, JOB_STDIN_ALL = -2 };
struct job_limits {
    struct job_num stack, core, memory; /* bytes; loc.line 0 = not written; INT64_MAX: unlimited */
    struct diag_loc loc;
};

struct job_processes {
    struct job_num count, gpus_per_process;
    struct job_needs devices;
    struct job_map map;
    struct job_num bind; /* enum job_bind */
    struct job_num cpus_per_process;
    struct job_limits limits;
    struct job_num stdin_rank; /* which rank reads collrun's standard input; JOB_STDIN_ALL, _NONE */
    struct diag_loc loc;
};

struct job_backend {
    const char *name; /* as written */
    struct diag_loc name_loc;
    struct job_str path;
    struct job_pairs options;
    struct diag_loc loc;
};

struct job_kind_backend { /* one entry of `backend: {host: ..., KIND: ...}` */
    const char *kind;
    struct diag_loc kind_loc;
    struct job_str backend;
};

enum job_split { JOB_SPLIT_NONE, JOB_SPLIT_HOST };
struct job_group { /* of `groups`, or of the mesh */
    const char *name;
    struct diag_loc name_loc; /* line 0 = the implicit `world` */
    struct job_ranks ranks;
    struct job_num world_size; /* 0 = not written */
    struct job_str backend;    /* "auto", or NULL when by kind of memory */
    struct job_kind_backend *backends;
    uint32_t nbackends;              /* by kind of memory; 0 = one for all */
    struct job_num gpus_per_process; /* not written: that of processes */
    struct job_needs devices;        /* likewise, each kind */
    struct job_num timeout;
    struct job_num split, check; /* enum job_split, enum collrun_check */
    struct job_pairs options;
    struct job_strs axes; /* of a group of the mesh, as written; n = 0: of the axis of its name */
    uint32_t mesh_axes;   /* its axes, as bits; 0 = it is no group of the mesh */
    struct diag_loc loc;
};

/* One entry of `roles`: consecutive ranks, in the order of the file. */
struct job_role {
    const char *name;
    struct diag_loc name_loc;
    struct job_num size; /* 0: `rest` */
};

enum { JOB_AXES_MAX = 8 };
struct job_axis { /* one entry of mesh.axes */
    const char *name;
    struct diag_loc name_loc;
    struct job_num size; /* 0: `rest`, until mesh_resolve has replaced it */
};
struct job_mesh {
    struct job_axis *axes; /* the last one varies fastest */
    uint32_t naxes;        /* 0 = there is no mesh */
    struct job_ranks ranks;
    struct job_strs inside_host; /* names of groups of the mesh */
    struct job_group *groups;    /* one of each axis, and those with `axes` */
    uint32_t ngroups;
    bool refused; /* an error was reported: sizes of axes, or axes of groups, are unknown */
    struct diag_loc loc;
};

struct job_matrix_axis {
    const char *name;
    struct diag_loc name_loc;
    struct node **values; /* scalars, all different */
    uint32_t n;
};
/* One run for each combination of values; the first axis changes slowest. */
struct job_matrix {
    struct job_matrix_axis *axes;
    uint32_t naxes;
    uint32_t *chosen; /* of each combination, for each axis: the index of its value */
    uint32_t n;       /* combinations; 0 = there is no matrix */
    bool keep_going;
    bool refused; /* an error was reported */
    struct diag_loc loc;
};

struct job_override {
    struct job_ranks ranks;
    struct job_pairs params;
    struct diag_loc loc;
};

enum job_observe_mode { JOB_OBSERVE_AUTO, JOB_OBSERVE_OFF };
enum job_observe_leaks { JOB_OBSERVE_LEAKS_WARNING, JOB_OBSERVE_LEAKS_ERROR };
struct job_observe_mpi {
    struct job_num leaks; /* what is left in MPI_Finalize */
};
/* Which libraries' calls are recorded: a word, or a list of them; or `auto`, with options. */
struct job_observe {
    struct job_num mode;  /* without a list */
    struct job_nums taps; /* n = 0: there is no list; DESC_OBSERVE_MPI */
    struct job_observe_mpi mpi;
};

struct job_workload {
    struct job_str name; /* default: the plugin's file name without lib and .so, or the program's */
    struct job_str plugin;
    struct job_strs command;    /* n = 0: not written; a workload has a plugin or a command */
    struct job_str workdir;     /* of the command */
    struct job_pairs env;       /* of the command */
    struct job_observe observe; /* of the command */
    struct job_strs stage_files;
    struct job_ranks ranks;
    struct job_strs groups; /* loc.line 0 = all groups of a rank */
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
    struct job_strs files, activate;
    struct job_pairs from_files; /* what `files` contain */
    struct diag_loc loc;
};

struct job_warn {
    struct job_num signal, before; /* before = 0: not written */
    struct diag_loc loc;
};
struct job_timeouts {
    struct job_num start, rendezvous;
    struct job_num run;   /* 0 = none */
    struct job_num stall; /* 0 = off */
    struct job_num silence;
    struct job_warn warn;
    struct job_num grace;
    struct diag_loc loc;
};

enum job_action { JOB_ACTION_STOP, JOB_ACTION_CONTINUE, JOB_ACTION_RESTART };
enum job_cause {                /* the classes of a verdict */
                 JOB_CAUSE_ANY, /* not written */
                 JOB_CAUSE_JOB,
                 JOB_CAUSE_PLUGIN,
                 JOB_CAUSE_OOM,
                 JOB_CAUSE_SIGNAL,
                 JOB_CAUSE_EXIT,
                 JOB_CAUSE_ERROR,
                 JOB_CAUSE_HOST_LOST,
                 JOB_CAUSE_MISMATCH,
                 JOB_CAUSE_DEADLOCK,
                 JOB_CAUSE_MISSING,
                 JOB_CAUSE_TIMEOUT
};
struct job_rule {
    struct job_num cause;      /* enum job_cause */
    struct job_nums exit_code; /* n = 0: not written */
    struct job_str exception;  /* NULL: not written */
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
    struct job_ranks ranks;          /* ranks whose output is shown */
    struct job_str label;            /* a template; "" = no label */
    struct job_num timestamps, fold; /* flags */
    struct diag_loc loc;
};
struct job_logging {
    struct job_str dir; /* a template; NULL = nothing is written */
    struct job_console console;
    struct job_num max_file; /* bytes */
    struct job_num trace;    /* flag: the run is traced */
    const char *trace_file;  /* --trace; NULL: trace.json in the run directory */
    struct diag_loc loc;
};

struct job_record {
    struct job_num entries;
    struct diag_loc loc;
};

struct job_network {
    struct job_str interface;
    struct job_str ports; /* NULL: any */
};

struct job {
    const char *file; /* as given on the command line */
    const char *dir;  /* the absolute folder of the file; relative paths start there */
    struct source *sources;
    const struct node *tree;    /* of the file, after every --set, with the implicit group */
    const struct node *written; /* the same without that group */
    bool complete;              /* every part has been read, with or without errors: see job_read */
    struct job_num version;
    struct job_str name;
    struct job_hosts hosts;
    struct job_ssh ssh;
    struct job_num stage; /* enum job_stage */
    struct job_network network;
    struct job_processes processes;
    /* processes.count; if that is wrong or missing: one more than the largest rank that a group or
     * workload names, so that the rest of the job can be checked. */
    uint32_t nranks;
    struct job_role *roles;
    uint32_t nroles;
    struct parse_rank_names rank_names; /* the roles, and the number of ranks */
    struct job_mesh mesh;
    struct job_matrix matrix;
    struct job_backend *backends;
    uint32_t nbackends;
    struct job_group *groups; /* in file order; an implicit `world` is first, those of the mesh
                                 are last */
    uint32_t ngroups;
    struct job_workload *workloads;
    uint32_t nworkloads;
    struct job_env env;
    struct job_timeouts timeouts;
    struct job_on_failure on_failure;
    struct job_logging logging;
    struct job_record record;
};

/* What to read. */
struct job_request {
    const char *file;
    const char *text; /* of the file; NULL: it is read. A text without a file has its paths in the
                         working directory */
    const char *name; /* the default of the job's name; NULL: that of the file */
    const char *const *profiles; /* of --profile, in order */
    uint32_t nprofiles;
    const char *const *vars; /* "name=value" of --var */
    uint32_t nvars;
    const char *const *sets; /* "path=value" of --set */
    uint32_t nsets;
    const char *count;    /* -n, which overrides them; NULL: none */
    uint32_t combination; /* of the matrix, from 0 */
};

/* Reads a job, adds its layers (layers.h), and makes all checks that need no plugin. Everything is
 * allocated in `arena`; `job->sources` is valid even on failure. 0, or a negative code with the
 * errors in `diags`. A job with errors must not be run; if it is `complete`, it can still be
 * planned to find the errors that only plugins can report: a refused value has its default, a
 * missing one without default is NULL or 0. */
int job_read(struct job *job, const struct job_request *request, struct arena *arena,
             struct diag_list *diags);

/* True if a rank is in a set that has passed job_read. */
bool job_ranks_has(const struct job_ranks *ranks, uint32_t rank);
/* "mesh." for a group of the mesh, else "": what its path in the file begins with. */
static inline const char *job_group_section(const struct job_group *group)
{
    return group->mesh_axes ? "mesh." : "";
}
/* True for `auto`. */
bool job_is_auto(const struct job_str *backend);
/* The backend that a group lists for a kind of memory; NULL: none. */
const struct job_kind_backend *job_backend_for(const struct job_group *group, const char *kind);

#endif
