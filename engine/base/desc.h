/* SPDX-License-Identifier: Apache-2.0
 *
 * struct desc: the planned job, as the runner's plan produces it, the wire carries it, and agent
 * and engine read it. It is resolved: host names and splits are expanded, `auto` is replaced,
 * params are checked, paths are absolute. All its memory is in one arena (or borrowed from one) and
 * does not change, except for plan_choose_rdma. desc_encode and desc_decode convert it to and from
 * bytes; decode checks every index and length, so a decoded description is safe to use.
 */
#ifndef ENGINE_BASE_DESC_H
#define ENGINE_BASE_DESC_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/diag.h"

struct desc_item {
    const char *value;
    struct diag_loc loc;
};

struct desc_kv {
    const char *key, *value;
    struct diag_loc loc; /* of the value in job.yaml */
    bool is_list;        /* of a parameter: the value is `items`, and `value` is "" */
    struct desc_item *items;
    uint32_t nitems;
};

struct desc_kvs {
    struct desc_kv *items;
    uint32_t n;
};

struct desc_ranks {
    uint32_t *items; /* world ranks, in order */
    uint32_t n;
};

struct desc_strs {
    const char **items;
    uint32_t n;
};

struct desc_backend {
    const char *name; /* lower case */
    const char *path; /* absolute, on the hosts */
    struct desc_kvs options;
    struct diag_loc loc; /* where job.yaml first asks for it; line 0 when only `auto` does */
    bool unused; /* by the groups: it declares a kind of memory, or `auto` has another choice */
    /* What the devices of a group hold for it; for `collrun plan`. */
    const char *device_kind; /* the kind of memory of these devices; "" = it needs none */
    uint32_t communicators;  /* of a group on each device, at most */
    bool on_demand;          /* as COLLRUN_BACKEND_ON_DEMAND says */
    /* The option, and its value, with which a device of a group takes one more for each direction
     * of messages; "" = there is none. */
    const char *direction_option, *direction_value;
};

/* A kind of memory beside that of the host: of devices of a rank, or of the backend of a group. */
struct desc_kind {
    const char *name;  /* "cuda" */
    const char *title; /* in messages: "GPU" */
    const char *mask;  /* the variable that lists a process's devices; "" = there is none */
    uint32_t backend;  /* index into desc.backends: the one that declares it */
    bool gpus;         /* job.yaml calls its devices GPUs */
};

struct desc_need { /* devices that each member drives */
    uint32_t kind; /* index into desc.kinds */
    uint32_t count;
    bool own; /* no two members may have one in common */
};

struct desc_route { /* the backend of a group for one kind of memory */
    uint32_t kind, backend;
};

struct desc_group {
    const char *name;
    uint32_t backend; /* index into desc.backends; of the one for host memory, if several */
    struct desc_route *routes; /* of those for other kinds of memory; none: one for all */
    uint32_t nroutes;
    bool is_auto;   /* `auto` has selected the backend */
    bool on_demand; /* no part of job.yaml names it, so it may never be used */
    /* What `auto` takes where every host of the job has an active RDMA device, and elsewhere.
     * Equal if that makes no difference. Not encoded: the runner decides before it encodes. */
    uint32_t backend_rdma, backend_plain;
    struct desc_ranks ranks; /* index = group rank */
    uint64_t timeout_ns;
    uint32_t check;            /* enum collrun_check */
    struct desc_need *devices; /* at most one row per kind */
    uint32_t ndevices;
    struct desc_kvs options;
    struct diag_loc loc;
};

struct desc_override { /* workloads[].per_ranks[] */
    struct desc_ranks ranks;
    struct desc_kvs params;
};

/* The libraries whose calls in a command are recorded: bits of desc_workload.observe. LEAKS: what
 * MPI_Finalize finds fails the job. */
enum { DESC_OBSERVE_MPI = 1, DESC_OBSERVE_TORCH = 2, DESC_OBSERVE_LEAKS = 128 };

struct desc_workload {
    const char *name;
    const char *plugin; /* absolute path; "" = it is a command */
    struct desc_ranks ranks;
    uint32_t *groups; /* indices into desc.groups: those that this workload may use; a rank uses
                         those it is in */
    uint32_t ngroups;
    struct desc_kvs params; /* as written; checked against the plugin's table */
    struct desc_override *overrides;
    uint32_t noverrides;
    bool background;
    uint64_t timeout_ns; /* 0 = none */
    struct diag_loc loc; /* of `plugin` or `command` */
    /* The program and its arguments; n = 0: it is a plugin. The program is an absolute path, or a
     * name without a slash, which is looked up in PATH on the host. */
    struct desc_strs command;
    const char *folder; /* of a command: relative paths start there unless its host has a workdir */
    const char *workdir; /* of a command; relative to the workdir of its host, or to `folder` */
    struct diag_loc workdir_loc;
    struct desc_kvs env; /* of a command; added to desc.env_set */
    uint8_t observe;     /* of a command */
    /* Files and folders that the command needs, as absolute paths. Staging reads them; they are not
     * encoded. */
    struct desc_item *stage_files;
    uint32_t nstage_files;
};

struct desc_device {
    uint32_t kind;  /* index into desc.kinds */
    uint32_t index; /* in the pool of its host */
    const char *id; /* "" = only the host itself knows it */
};

/* desc_rank.cpus: those near the rank's devices, which only the host itself knows. */
#define DESC_CPUS_NEAR_DEVICES "gpu"
/* A name of topology_level_name: a share of the host by its own topology. Otherwise: */
/* A share of the host's cores, if these are free when the ranks start. */
#define DESC_CPUS_AUTO "auto"

struct desc_rank {
    uint32_t host;               /* index into desc.hosts */
    uint32_t local_rank;         /* among the ranks of that host */
    const char *cpus;            /* cpu list such as "0-3,8", "" = not bound */
    struct desc_device *devices; /* by kind; those of one kind in the rank's order */
    uint32_t ndevices;
    const char *memory; /* "node 0", "any"; NULL: its host was not asked. Not sent */
};

struct desc_host {
    const char *name;
    uint32_t nranks;
    const char *workdir; /* "" = the working directory of the agent */
    struct diag_loc workdir_loc;
    struct diag_loc devices_loc; /* the key of job.yaml that asks for its devices; line 0 = none */
};

enum desc_limit_kind { DESC_LIMIT_STACK, DESC_LIMIT_CORE, DESC_LIMIT_MEMORY, DESC_LIMITS };
struct desc_limit {
    uint64_t bytes;      /* INT64_MAX: unlimited */
    struct diag_loc loc; /* line 0: as the agent has it */
};

/* The rank that has the terminal of collrun. */
struct desc_terminal {
    bool used;
    uint32_t rank;
    bool shell;             /* `wrap` is one, and gets the program in a variable */
    uint16_t rows, columns; /* at first; see WIRE_WINDOW */
    const char *type;       /* TERM; "" = not set */
};

struct desc_role { /* consecutive ranks */
    const char *name;
    uint32_t first, n;
};

struct desc_axis {
    const char *name;
    uint32_t size;
};
/* Ranks as a grid: the last axis varies fastest. */
struct desc_mesh {
    struct desc_axis *axes;
    uint32_t naxes;          /* 0 = there is none, and no ranks */
    struct desc_ranks ranks; /* as many as the product of the axes */
};

struct desc {
    const char *run_id, *run_dir; /* run_dir "" without logging.dir */
    const char *job_name, *job_file;
    const char *interface; /* network.interface as written */
    struct diag_loc interface_loc;
    uint16_t first_port, last_port; /* network.ports; 0: any */
    uint32_t attempt;
    struct desc_host *hosts;
    uint32_t nhosts;
    struct desc_rank *ranks; /* index = world rank; n = processes.count */
    uint32_t nranks;
    struct desc_role *roles;
    uint32_t nroles;
    struct desc_mesh mesh;
    struct desc_backend *backends;
    uint32_t nbackends;
    struct desc_kind *kinds;
    uint32_t nkinds;
    struct desc_group *groups; /* in file order, splits expanded in place */
    uint32_t ngroups;
    struct desc_workload *workloads;
    uint32_t nworkloads;
    struct desc_kvs
        env_pass; /* names and values taken from the runner's environment; includes secrets */
    struct desc_kvs env_set;    /* values may hold {rank} {local_rank} {host} {run_id} {attempt} */
    struct desc_kvs env_unset;  /* keys only */
    struct desc_item *activate; /* commands of a shell, which each host runs once */
    uint32_t nactivate;
    const char *job_dir; /* where these start, unless their host has a workdir */
    bool may_continue;   /* on_failure may be `continue`: the runner, not the agent, decides what a
                          death means */
    uint64_t start_timeout_ns, rendezvous_timeout_ns, grace_ns;
    uint32_t cpus_per_process; /* cores; for ranks that their host binds */
    uint32_t max_restarts;     /* on_failure.max_restarts, for programs that ask; 0: no restart */
    struct diag_loc bind_loc;  /* of processes.bind */
    struct desc_limit limits[DESC_LIMITS]; /* of each rank */
    struct desc_ranks with_stdin;          /* these ranks read the standard input of collrun */
    struct desc_ranks wrapped; /* --wrap: these ranks' processes run under the command `wrap` */
    struct desc_strs wrap;     /* looked up in PATH of the rank */
    struct desc_terminal terminal;
    uint32_t record_entries; /* of each rank's flight recorder; 0 or a power of 2 */
    bool trace;              /* agents send TRACE */
};

static inline bool desc_has_terminal(const struct desc *desc, uint32_t rank)
{
    return desc->terminal.used && desc->terminal.rank == rank;
}

/* The role of a rank; NULL: it has none. */
const struct desc_role *desc_find_role(const struct desc *desc, uint32_t rank);

/* The group of the job with this name. NULL: it has none; a workload can have made it. */
const struct desc_group *desc_find_group(const struct desc *desc, const char *name);
/* The same, or else the part of that group that has the rank: "tp/dp=1" for "tp". */
const struct desc_group *desc_find_own_group(const struct desc *desc, const char *name,
                                             uint32_t rank);

/* The index of the command that a rank runs; nworkloads: it runs plugins. */
uint32_t desc_find_command(const struct desc *desc, uint32_t rank);

/* The text in job.yaml of a rank's parameter: that of the last override of the rank, or of all
 * ranks. NULL: job.yaml does not set it. */
const struct desc_kv *desc_find_param(const struct desc_workload *w, uint32_t rank,
                                      const char *name);

/* The index of a rank in the list; -1: it is not in it. */
int desc_ranks_find(const struct desc_ranks *ranks, uint32_t rank);

/* How many devices of a kind a rank owns; how many each member of a group drives. */
uint32_t desc_rank_devices(const struct desc_rank *rank, uint32_t kind);
uint32_t desc_group_devices(const struct desc_group *group, uint32_t kind);

/* Whether a workload may use the group. If none may, it is not formed. */
bool desc_group_is_used(const struct desc *desc, uint32_t group);

void desc_encode(const struct desc *desc, struct buf *out);
int desc_decode(struct arena *arena, struct desc *desc, const void *bytes, size_t len,
                struct diag *d);

#endif
