/* SPDX-License-Identifier: Apache-2.0
 *
 * The table. Read it from the bottom: schema_job, then the sections in the order of the file, then
 * the types that they share. A key whose function this build lacks says LATER (or ONLY_DEFAULT) in
 * its last field; taking that word away lifts the refusal.
 */
#include "spec/schema.h"

#include "base/template.h"
#include "spec/job.h"
#include "spec/names.h"

#include <stddef.h>

#define AT(type, member) offsetof(struct type, member)
#define SECOND INT64_C(1000000000)
#define LOC(type) .loc_at = offsetof(struct type, loc)
#define MAX_RANKS 65536

static int check_template(const char *text, struct diag *d)
{
    return template_check(text, TEMPLATE_ALL, d);
}

static int check_run_template(const char *text, struct diag *d)
{
    return template_check(text, TEMPLATE_RUN_ID, d);
}

/* ---- types that several keys share ---- */

static const struct schema_type text = {
    .kind = SCHEMA_STR, .expects = "a text", .check = name_check_text};
static const struct schema_type path = {
    .kind = SCHEMA_STR, .expects = "a path", .check = name_check_text};
static const struct schema_type absolute_path = {
    .kind = SCHEMA_STR, .expects = "an absolute path", .check = name_check_absolute};
static const struct schema_type template_text = {
    .kind = SCHEMA_STR, .expects = "a text", .check = check_template};
static const struct schema_type flag = {.kind = SCHEMA_FLAG, .expects = "true or false"};
static const struct schema_type duration = {
    .kind = SCHEMA_DURATION, .expects = "a duration such as 500ms, 30s or 1h30m", .max = INT64_MAX};
static const struct schema_type time_out = {.kind = SCHEMA_DURATION,
                                            .expects = "a duration such as 500ms, 30s or 1h30m",
                                            .min = 1,
                                            .max = INT64_MAX,
                                            .range = "a time-out must be longer than 0"};
static const struct schema_type size = {.kind = SCHEMA_SIZE,
                                        .expects = "a size such as 64KiB, 1GiB or 1000",
                                        .min = 1,
                                        .max = INT64_MAX,
                                        .range = "must be more than 0"};
static const struct schema_type ranks = {
    .kind = SCHEMA_RANKS, .expects = "a rank set such as 0-3,8-15:2, all, or a list of ranks"};
static const struct schema_type gpu_count = {
    .kind = SCHEMA_INT, .expects = "an integer", .min = 0, .max = 1024};
static const struct schema_type options = {.kind = SCHEMA_PAIRS,
                                           .expects = "a mapping of names to values"};

/* ---- hosts ---- */

const struct schema_choice schema_transports[] = {
    {"local", JOB_TRANSPORT_LOCAL, NOW},
    {"ssh", JOB_TRANSPORT_SSH, NOW},
    {"slurm", JOB_TRANSPORT_SLURM, NOW},
    {0},
};
static const struct schema_type transport_name = {.kind = SCHEMA_CHOICE,
                                                  .choices = schema_transports};
static const struct schema_type argument = {.kind = SCHEMA_STR,
                                            .expects = "a text",
                                            .size = sizeof(struct job_str),
                                            .check = name_check_text};
static const struct schema_type argv = {.kind = SCHEMA_LIST,
                                        .expects = "a list of arguments",
                                        .item = &argument,
                                        .not_empty = true,
                                        LOC(job_strs)};
static const struct schema_key transport_keys[] = {
    {.name = "command",
     .type = &argv,
     .at = AT(job_transport, command),
     .help = "The command that reaches a host and starts the agent there, argument by argument; "
             "{host} is its name",
     .required = true},
    {0},
};
static const struct schema_type transport_map = {
    .kind = SCHEMA_MAP, .expects = "{command: [...]}", .keys = transport_keys, .loc_at = NO_LOC};
static const struct schema_type transport = {.kind = SCHEMA_EITHER,
                                             .expects = "local, ssh, slurm or {command: [...]}",
                                             .scalar = &transport_name,
                                             .map = &transport_map};

static const struct schema_type gpu_ordinal = {.kind = SCHEMA_INT,
                                               .expects = "an integer",
                                               .size = sizeof(struct job_num),
                                               .min = 0,
                                               .max = 1023};
static const struct schema_type gpu_list = {.kind = SCHEMA_LIST,
                                            .expects = "a list of GPU numbers",
                                            .at = AT(job_gpus, list),
                                            .item = &gpu_ordinal,
                                            LOC(job_nums)};
static const struct schema_type gpus = {.kind = SCHEMA_EITHER,
                                        .expects = "how many GPUs, or a list of their numbers",
                                        .scalar = &gpu_count,
                                        .list = &gpu_list};

static const struct schema_type host_pattern = {
    .kind = SCHEMA_STR, .expects = "a host name", .check = name_check_hosts};
static const struct schema_type port = {
    .kind = SCHEMA_INT, .expects = "an integer", .min = 1, .max = 65535};
static const struct schema_type slots = {
    .kind = SCHEMA_INT, .expects = "an integer", .min = 1, .max = MAX_RANKS};

#define HOST_KEYS                                                                                  \
    {.name = "user", .type = &text, .at = AT(job_host, user), .help = "The user to log in as"},    \
        {.name = "port",                                                                           \
         .type = &port,                                                                            \
         .at = AT(job_host, port),                                                                 \
         .def = "22",                                                                              \
         .help = "The port of its SSH server"},                                                    \
        {.name = "slots",                                                                          \
         .type = &slots,                                                                           \
         .at = AT(job_host, slots),                                                                \
         .help = "How many ranks it may run"},                                                     \
        {.name = "gpus",                                                                           \
         .type = &gpus,                                                                            \
         .at = AT(job_host, gpus),                                                                 \
         .help = "How many GPUs it has, or which may be used"},                                    \
        {.name = "transport",                                                                      \
         .type = &transport,                                                                       \
         .at = AT(job_host, transport),                                                            \
         .def = "ssh",                                                                             \
         .help = "How it is reached: local is this machine, slurm is srun, command is any other"}, \
    {                                                                                              \
        .name = "workdir", .type = &absolute_path, .at = AT(job_host, workdir),                    \
        .help = "The folder that its ranks start in"                                               \
    }

static const struct schema_key default_keys[] = {HOST_KEYS, {0}};
static const struct schema_type host_defaults = {
    .kind = SCHEMA_MAP, .expects = "a mapping", .keys = default_keys, LOC(job_host)};
static const struct schema_key host_keys[] = {
    {.name = "name",
     .type = &host_pattern,
     .at = AT(job_host, name),
     .help = "Its name in plan, labels and messages; gpu[01-02] stands for several hosts",
     .required = true},
    {.name = "address",
     .type = &text,
     .at = AT(job_host, address),
     .help = "Where it is reached, if not by its name"},
    HOST_KEYS,
    {0},
};
static const struct schema_type host_map = {
    .kind = SCHEMA_MAP, .expects = "a mapping", .keys = host_keys, LOC(job_host)};
static const struct schema_type host = {.kind = SCHEMA_EITHER,
                                        .expects = "a host name, or a mapping",
                                        .size = sizeof(struct job_host),
                                        .scalar = &host_pattern,
                                        .map = &host_map};
static const struct schema_type nodes = {.kind = SCHEMA_LIST,
                                         .expects = "a list of hosts",
                                         .item = &host,
                                         .not_empty = true,
                                         .loc_at = NO_LOC};
static const struct schema_key hosts_keys[] = {
    {.name = "defaults",
     .type = &host_defaults,
     .at = AT(job_hosts, defaults),
     .help = "What holds for every host that does not say otherwise"},
    {.name = "nodes",
     .type = &nodes,
     .at = AT(job_hosts, nodes),
     .help = "The hosts, in the order that ranks are placed on them",
     .required = true},
    {0},
};
static const struct schema_choice host_lists[] = {{"slurm", 1, NOW}, {0}};
static const struct schema_type hosts_name = {.kind = SCHEMA_CHOICE, .choices = host_lists};
static const struct schema_type hosts_map = {
    .kind = SCHEMA_MAP, .expects = "a mapping", .keys = hosts_keys, LOC(job_hosts)};
static const struct schema_type hosts = {.kind = SCHEMA_EITHER,
                                         .expects = "slurm, or a mapping with nodes",
                                         .scalar = &hosts_name,
                                         .map = &hosts_map};

/* ---- ssh, stage, network ---- */

static const struct schema_choice known_hosts_choices[] = {
    {"strict", JOB_KNOWN_HOSTS_STRICT, NOW},
    {"accept-new", JOB_KNOWN_HOSTS_ACCEPT_NEW, NOW},
    {"off", JOB_KNOWN_HOSTS_OFF, NOW},
    {0}};
static const struct schema_type known_hosts = {.kind = SCHEMA_CHOICE,
                                               .choices = known_hosts_choices};
static const struct schema_type retries = {
    .kind = SCHEMA_INT, .expects = "an integer", .min = 0, .max = 100};
static const struct schema_type parallel = {
    .kind = SCHEMA_INT, .expects = "an integer", .min = 1, .max = 1024};
static const struct schema_key ssh_keys[] = {
    {.name = "known_hosts",
     .type = &known_hosts,
     .at = AT(job_ssh, known_hosts),
     .def = "strict",
     .help = "What to do about a host key that is not known yet; there is never a prompt"},
    {.name = "identity",
     .type = &path,
     .at = AT(job_ssh, identity),
     .help = "The private key; without it, those that ssh would try"},
    {.name = "config",
     .type = &path,
     .at = AT(job_ssh, config),
     .help = "The configuration to follow; without it, ssh's"},
    {.name = "connect_timeout",
     .type = &time_out,
     .at = AT(job_ssh, connect_timeout),
     .def = "10s",
     .help = "How long one attempt to connect and log in may take"},
    {.name = "retries",
     .type = &retries,
     .at = AT(job_ssh, retries),
     .def = "3",
     .help = "How many more attempts after the first"},
    {.name = "parallel",
     .type = &parallel,
     .at = AT(job_ssh, parallel),
     .def = "32",
     .help = "How many hosts to connect to at once"},
    {0},
};
static const struct schema_type ssh = {
    .kind = SCHEMA_MAP, .expects = "a mapping", .keys = ssh_keys, LOC(job_ssh)};

static const struct schema_choice stage_choices[] = {
    {"auto", JOB_STAGE_AUTO, NOW}, {"never", JOB_STAGE_NEVER, NOW}, {0}};
static const struct schema_type stage = {.kind = SCHEMA_CHOICE, .choices = stage_choices};

static const struct schema_type interface = {
    .kind = SCHEMA_STR,
    .expects = "an interface name, a network such as 10.2.0.0/16, or default-route",
    .check = name_check_interface};
static const struct schema_key network_keys[] = {
    {.name = "interface",
     .type = &interface,
     .def = "default-route",
     .help = "Where the ranks of different hosts meet: an interface's name, a network that one of "
             "its addresses is in, or "
             "default-route; resolved on each host, and the loopback when all ranks share one"},
    {0},
};
static const struct schema_type network = {
    .kind = SCHEMA_MAP, .expects = "a mapping", .keys = network_keys, .loc_at = NO_LOC};

/* ---- processes ---- */

static const struct schema_type rank_count = {
    .kind = SCHEMA_INT, .expects = "an integer", .min = 1, .max = MAX_RANKS};
static const struct schema_type cpu_count = {
    .kind = SCHEMA_INT, .expects = "an integer", .min = 1, .max = 4096};
static const struct schema_choice map_choices[] = {
    {"block", JOB_MAP_BLOCK, NOW}, {"cyclic", JOB_MAP_CYCLIC, NOW}, {0}};
static const struct schema_type map = {.kind = SCHEMA_CHOICE, .choices = map_choices};
static const struct schema_choice bind_choices[] = {{"none", JOB_BIND_NONE, NOW},
                                                    {"core", JOB_BIND_CORE, NOW},
                                                    {"numa", JOB_BIND_NUMA, NOW},
                                                    {"gpu", JOB_BIND_GPU, LATER},
                                                    {0}};
static const struct schema_type bind = {.kind = SCHEMA_CHOICE, .choices = bind_choices};
static const struct schema_key processes_keys[] = {
    {.name = "count",
     .type = &rank_count,
     .at = AT(job_processes, count),
     .help = "How many ranks",
     .required = true,
     .example = "count: 4"},
    {.name = "gpus_per_process",
     .type = &gpu_count,
     .at = AT(job_processes, gpus_per_process),
     .def = "0",
     .help = "How many GPUs each rank owns",
     .when = ONLY_DEFAULT},
    {.name = "map",
     .type = &map,
     .at = AT(job_processes, map),
     .def = "block",
     .help =
         "How ranks go to hosts: block fills one after the other, cyclic deals them out in turn"},
    {.name = "bind",
     .type = &bind,
     .at = AT(job_processes, bind),
     .def = "none",
     .help = "What each rank is bound to: cpus_per_process cores of its own, the cores of one NUMA "
             "node, or those near its GPUs"},
    {.name = "cpus_per_process",
     .type = &cpu_count,
     .at = AT(job_processes, cpus_per_process),
     .def = "1",
     .help = "How many cores each rank gets with bind: core"},
    {0},
};
static const struct schema_type processes = {
    .kind = SCHEMA_MAP, .expects = "a mapping", .keys = processes_keys, LOC(job_processes)};

/* ---- backends ---- */

static const struct schema_key backend_keys[] = {
    {.name = "path",
     .type = &path,
     .at = AT(job_backend, path),
     .help = "The shared object of a third-party backend, relative to this file; built-in ones "
             "need none"},
    {.name = "options",
     .type = &options,
     .at = AT(job_backend, options),
     .help = "Handed to the backend as they are"},
    {0},
};
static const struct schema_type backend = {.kind = SCHEMA_MAP,
                                           .expects = "a mapping",
                                           .size = sizeof(struct job_backend),
                                           .keys = backend_keys,
                                           LOC(job_backend)};
static const struct schema_type backends = {.kind = SCHEMA_NAMED,
                                            .expects = "a mapping of backend names",
                                            .item = &backend,
                                            .check_key = name_check_backend};

/* ---- groups ---- */

static const struct schema_type backend_name = {
    .kind = SCHEMA_STR, .expects = "a backend's name", .check = name_check_backend};
#define BY_MEMORY(member) (AT(job_group, member) - AT(job_group, backend))
static const struct schema_key memory_keys[] = {
    {.name = "host",
     .type = &backend_name,
     .at = BY_MEMORY(backend_host),
     .help = "The backend for buffers in host memory",
     .required = true,
     .when = LATER},
    {.name = "cuda",
     .type = &backend_name,
     .at = BY_MEMORY(backend_cuda),
     .help = "The backend for buffers in GPU memory",
     .required = true,
     .when = LATER},
    {0},
};
static const struct schema_type backend_by_memory = {
    .kind = SCHEMA_MAP, .expects = "a mapping", .keys = memory_keys, .loc_at = NO_LOC};
static const struct schema_type group_backend = {.kind = SCHEMA_EITHER,
                                                 .expects =
                                                     "a backend's name, or {host: ..., cuda: ...}",
                                                 .scalar = &backend_name,
                                                 .map = &backend_by_memory};
static const struct schema_choice split_choices[] = {{"host", JOB_SPLIT_HOST, NOW}, {0}};
static const struct schema_type split = {.kind = SCHEMA_CHOICE, .choices = split_choices};
static const struct schema_choice check_choices[] = {{"async", JOB_CHECK_ASYNC, NOW},
                                                     {"strict", JOB_CHECK_STRICT, LATER},
                                                     {"off", JOB_CHECK_OFF, NOW},
                                                     {0}};
static const struct schema_type check = {.kind = SCHEMA_CHOICE, .choices = check_choices};
static const struct schema_key group_keys[] = {
    {.name = "ranks",
     .type = &ranks,
     .at = AT(job_group, ranks),
     .def = "all",
     .help = "Its members; their order is the order of group ranks"},
    {.name = "world_size",
     .type = &rank_count,
     .at = AT(job_group, world_size),
     .help = "How many members there must be, as a check on ranks"},
    {.name = "backend",
     .type = &group_backend,
     .at = AT(job_group, backend),
     .def = "auto",
     .help = "What carries its operations; auto chooses by GPUs and hosts; {host: ..., cuda: ...} "
             "by where a buffer lives"},
    {.name = "gpus_per_process",
     .type = &gpu_count,
     .at = AT(job_group, gpus_per_process),
     .def = "0",
     .help = "How many GPUs each member brings",
     .when = ONLY_DEFAULT},
    {.name = "timeout",
     .type = &time_out,
     .at = AT(job_group, timeout),
     .def = "10m",
     .help = "How long one operation may take"},
    {.name = "split",
     .type = &split,
     .at = AT(job_group, split),
     .help = "host: one group per host, named NAME/HOST"},
    {.name = "check",
     .type = &check,
     .at = AT(job_group, check),
     .def = "async",
     .help = "How ranks that disagree about a call are found: beside the operations, before each "
             "one, or not at all"},
    {.name = "options",
     .type = &options,
     .at = AT(job_group, options),
     .help = "Handed to the backend as they are; they come before the backend's own"},
    {0},
};
static const struct schema_type group = {.kind = SCHEMA_MAP,
                                         .expects = "a mapping",
                                         .size = sizeof(struct job_group),
                                         .keys = group_keys,
                                         LOC(job_group)};
static const struct schema_type groups = {.kind = SCHEMA_NAMED,
                                          .expects = "a mapping of group names",
                                          .item = &group,
                                          .check_key = name_check_group};

/* ---- workloads ---- */

static const struct schema_type params = {.kind = SCHEMA_PAIRS,
                                          .expects = "a mapping of names to values"};
static const struct schema_key override_keys[] = {
    {.name = "ranks",
     .type = &ranks,
     .at = AT(job_override, ranks),
     .help = "Which ranks",
     .required = true},
    {.name = "params",
     .type = &params,
     .at = AT(job_override, params),
     .help = "What differs for them",
     .required = true},
    {0},
};
static const struct schema_type override = {.kind = SCHEMA_MAP,
                                            .expects = "a mapping",
                                            .size = sizeof(struct job_override),
                                            .keys = override_keys,
                                            LOC(job_override)};
static const struct schema_type overrides = {
    .kind = SCHEMA_LIST, .expects = "a list of mappings", .item = &override, .loc_at = NO_LOC};
static const struct schema_type group_name = {.kind = SCHEMA_STR,
                                              .expects = "a group's name",
                                              .size = sizeof(struct job_str),
                                              .check = name_check_text};
static const struct schema_type group_names = {
    .kind = SCHEMA_LIST, .expects = "a list of group names", .item = &group_name, LOC(job_strs)};
static const struct schema_key workload_keys[] = {
    {.name = "name",
     .type = &text,
     .at = AT(job_workload, name),
     .help = "Its name in messages; default: the plugin's"},
    {.name = "plugin",
     .type = &path,
     .at = AT(job_workload, plugin),
     .help = "The shared object: a path relative to this file, or the bare name of an installed "
             "workload",
     .required = true,
     .example = "plugin: hello"},
    {.name = "ranks",
     .type = &ranks,
     .at = AT(job_workload, ranks),
     .def = "all",
     .help = "Which ranks run it"},
    {.name = "groups",
     .type = &group_names,
     .at = AT(job_workload, groups),
     .help = "The groups it may use; default: all that a rank is in"},
    {.name = "params",
     .type = &params,
     .at = AT(job_workload, params),
     .help = "Its parameters, checked against its own table"},
    {.name = "per_ranks",
     .type = &overrides,
     .at = AT(job_workload, overrides),
     .help = "Parameters that differ for some of its ranks; later entries win"},
    {.name = "timeout",
     .type = &time_out,
     .at = AT(job_workload, timeout),
     .help = "How long it may run; default: no limit"},
    {.name = "background",
     .type = &flag,
     .at = AT(job_workload, background),
     .def = "false",
     .help = "Whether it runs beside the others and is stopped when they are done"},
    {0},
};
static const struct schema_type workload = {.kind = SCHEMA_MAP,
                                            .expects = "a mapping",
                                            .size = sizeof(struct job_workload),
                                            .keys = workload_keys,
                                            LOC(job_workload)};
static const struct schema_type workloads = {.kind = SCHEMA_LIST,
                                             .expects = "a list of workloads",
                                             .item = &workload,
                                             .not_empty = true,
                                             .loc_at = NO_LOC};

/* ---- env ---- */

static const struct schema_type env_name = {.kind = SCHEMA_STR,
                                            .expects = "a variable's name",
                                            .size = sizeof(struct job_str),
                                            .check = name_check_env};
static const struct schema_type env_pattern = {.kind = SCHEMA_STR,
                                               .expects = "a variable's name",
                                               .size = sizeof(struct job_str),
                                               .check = name_check_env_pattern};
static const struct schema_type env_names = {
    .kind = SCHEMA_LIST, .expects = "a list of variable names", .item = &env_name, LOC(job_strs)};
static const struct schema_type env_patterns = {.kind = SCHEMA_LIST,
                                                .expects = "a list of variable names",
                                                .item = &env_pattern,
                                                LOC(job_strs)};
static const struct schema_type env_values = {.kind = SCHEMA_PAIRS,
                                              .expects = "a mapping of variable names to values",
                                              .check = check_template,
                                              .check_key = name_check_env};
static const struct schema_key env_keys[] = {
    {.name = "pass",
     .type = &env_patterns,
     .at = AT(job_env, pass),
     .help = "Variables that ranks get from collrun's environment; * stands for any letters"},
    {.name = "set",
     .type = &env_values,
     .at = AT(job_env, set),
     .help = "Variables with their values, which may hold {rank} {local_rank} {host} {run_id} "
             "{attempt}"},
    {.name = "unset",
     .type = &env_names,
     .at = AT(job_env, unset),
     .help = "Variables that ranks shall not see"},
    {.name = "secrets",
     .type = &env_names,
     .at = AT(job_env, secrets),
     .help = "Variables that are passed like those of pass, must be set, and are shown nowhere"},
    {0},
};
static const struct schema_type env = {
    .kind = SCHEMA_MAP, .expects = "a mapping", .keys = env_keys, LOC(job_env)};

/* ---- timeouts ---- */

static const struct schema_key timeouts_keys[] = {
    {.name = "start",
     .type = &time_out,
     .at = AT(job_timeouts, start),
     .def = "2m",
     .help = "Until every rank has loaded its plugins, formed its groups and returned from init"},
    {.name = "rendezvous",
     .type = &time_out,
     .at = AT(job_timeouts, rendezvous),
     .def = "2m",
     .help = "Until one group has formed"},
    {.name = "run",
     .type = &time_out,
     .at = AT(job_timeouts, run),
     .help = "How long the workloads may run; default: no limit"},
    {.name = "stall",
     .type = &time_out,
     .at = AT(job_timeouts, stall),
     .help = "How long a group may stand still before its job is diagnosed",
     .when = LATER},
    {.name = "grace",
     .type = &duration,
     .at = AT(job_timeouts, grace),
     .def = "5s",
     .help = "Between the request to end and the kill"},
    {0},
};
static const struct schema_type timeouts = {
    .kind = SCHEMA_MAP, .expects = "a mapping", .keys = timeouts_keys, LOC(job_timeouts)};

/* ---- on_failure ---- */

static const struct schema_choice action_choices[] = {{"stop", JOB_ACTION_STOP, NOW},
                                                      {"continue", JOB_ACTION_CONTINUE, NOW},
                                                      {"restart", JOB_ACTION_RESTART, NOW},
                                                      {0}};
static const struct schema_type action = {.kind = SCHEMA_CHOICE, .choices = action_choices};
static const struct schema_choice cause_choices[] = {
    {"launch", JOB_CAUSE_LAUNCH, NOW},     {"plugin", JOB_CAUSE_PLUGIN, NOW},
    {"oom", JOB_CAUSE_OOM, NOW},           {"signal", JOB_CAUSE_SIGNAL, NOW},
    {"exit", JOB_CAUSE_EXIT, NOW},         {"host_lost", JOB_CAUSE_HOST_LOST, NOW},
    {"timeout", JOB_CAUSE_TIMEOUT, NOW},   {"stall", JOB_CAUSE_STALL, NOW},
    {"mismatch", JOB_CAUSE_MISMATCH, NOW}, {0}};
static const struct schema_type cause = {.kind = SCHEMA_CHOICE, .choices = cause_choices};
static const struct schema_type exit_code = {.kind = SCHEMA_INT,
                                             .expects = "an integer",
                                             .size = sizeof(struct job_num),
                                             .min = 1,
                                             .max = 255};
static const struct schema_type exit_codes = {.kind = SCHEMA_LIST,
                                              .expects = "a list of exit codes",
                                              .item = &exit_code,
                                              .not_empty = true,
                                              LOC(job_nums)};
static const struct schema_key when_keys[] = {
    {.name = "cause",
     .type = &cause,
     .at = AT(job_rule, cause),
     .help = "What ended the rank that failed first"},
    {.name = "exit_code",
     .type = &exit_codes,
     .at = AT(job_rule, exit_code),
     .help = "Its exit code, any of these"},
    {0},
};
static const struct schema_type when = {
    .kind = SCHEMA_MAP, .expects = "a mapping", .keys = when_keys, .loc_at = NO_LOC};
static const struct schema_key rule_keys[] = {
    {.name = "when",
     .type = &when,
     .help = "What the failure must have been; all that is written must hold",
     .required = true},
    {.name = "action",
     .type = &action,
     .at = AT(job_rule, action),
     .help = "What to do then",
     .required = true},
    {0},
};
static const struct schema_type rule = {.kind = SCHEMA_MAP,
                                        .expects = "a mapping",
                                        .size = sizeof(struct job_rule),
                                        .keys = rule_keys,
                                        LOC(job_rule)};
static const struct schema_type rules = {
    .kind = SCHEMA_LIST, .expects = "a list of rules", .item = &rule, .loc_at = NO_LOC};
static const struct schema_type restarts = {
    .kind = SCHEMA_INT, .expects = "an integer", .min = 0, .max = 1000};
static const struct schema_key failure_keys[] = {
    {.name = "action",
     .type = &action,
     .at = AT(job_on_failure, action),
     .def = "stop",
     .help = "What to do when a rank fails: stop the others, let them continue, or restart the "
             "whole job"},
    {.name = "max_restarts",
     .type = &restarts,
     .at = AT(job_on_failure, max_restarts),
     .def = "2",
     .help = "How often in a row a job that ran for less than min_uptime is restarted"},
    {.name = "backoff",
     .type = &duration,
     .at = AT(job_on_failure, backoff),
     .def = "1s",
     .help = "The pause before the first restart; it doubles each time, up to a minute"},
    {.name = "min_uptime",
     .type = &duration,
     .at = AT(job_on_failure, min_uptime),
     .def = "30s",
     .help = "A job that ran for this long before it failed starts the count of restarts afresh"},
    {.name = "rules",
     .type = &rules,
     .at = AT(job_on_failure, rules),
     .help = "What to do for some causes; the first rule that holds decides"},
    {0},
};
static const struct schema_type on_failure = {
    .kind = SCHEMA_MAP, .expects = "a mapping", .keys = failure_keys, LOC(job_on_failure)};

/* ---- logging ---- */

static const struct schema_type run_template = {
    .kind = SCHEMA_STR, .expects = "a path", .check = check_run_template};
static const struct schema_key console_keys[] = {
    {.name = "ranks",
     .type = &ranks,
     .at = AT(job_console, ranks),
     .def = "all",
     .help = "Whose output is shown"},
    {.name = "label",
     .type = &template_text,
     .at = AT(job_console, label),
     .def = "[{rank}]",
     .help = "What stands before each line; empty: nothing"},
    {.name = "timestamps",
     .type = &flag,
     .at = AT(job_console, timestamps),
     .def = "false",
     .help = "Whether each line shows its time"},
    {.name = "fold",
     .type = &flag,
     .at = AT(job_console, fold),
     .def = "false",
     .help = "Whether a line that several ranks print is shown once",
     .when = ONLY_DEFAULT},
    {0},
};
static const struct schema_type console = {
    .kind = SCHEMA_MAP, .expects = "a mapping", .keys = console_keys, LOC(job_console)};
static const struct schema_key logging_keys[] = {
    {.name = "dir",
     .type = &run_template,
     .at = AT(job_logging, dir),
     .help = "The folder that takes result, events and output; may hold {run_id}; default: nothing "
             "is written"},
    {.name = "console",
     .type = &console,
     .at = AT(job_logging, console),
     .help = "What the ranks' output looks like on collrun's stdout and stderr"},
    {.name = "max_file",
     .type = &size,
     .at = AT(job_logging, max_file),
     .def = "256MiB",
     .help = "How much of one rank's output a file keeps"},
    {0},
};
static const struct schema_type logging = {
    .kind = SCHEMA_MAP, .expects = "a mapping", .keys = logging_keys, LOC(job_logging)};

/* ---- the file ---- */

static const struct schema_type version = {.kind = SCHEMA_INT,
                                           .expects = "an integer",
                                           .min = 1,
                                           .max = 1,
                                           .range = "this build reads version 1"};
static const struct schema_key job_keys[] = {
    {.name = "version",
     .type = &version,
     .at = AT(job, version),
     .help = "The version of this format",
     .required = true,
     .example = "version: 1"},
    {.name = "name",
     .type = &text,
     .at = AT(job, name),
     .help = "The job's name; default: the file's, without .yaml"},
    {.name = "hosts",
     .type = &hosts,
     .at = AT(job, hosts),
     .help = "Where ranks run; default: this machine"},
    {.name = "ssh",
     .type = &ssh,
     .at = AT(job, ssh),
     .help = "How hosts are reached by SSH"},
    {.name = "stage",
     .type = &stage,
     .at = AT(job, stage),
     .def = "auto",
     .help = "Whether this build is sent to hosts that lack it"},
    {.name = "network",
     .type = &network,
     .at = AT(job, interface),
     .help = "Which network the ranks use"},
    {.name = "processes",
     .type = &processes,
     .at = AT(job, processes),
     .help = "How many ranks there are, and where they go",
     .required = true,
     .example = "processes: {count: 4}"},
    {.name = "backends",
     .type = &backends,
     .at = AT(job, backends),
     .help = "Backends from elsewhere, and options of any"},
    {.name = "groups",
     .type = &groups,
     .at = AT(job, groups),
     .help = "The named collective groups; a group world of all ranks is there even if it is not "
             "named"},
    {.name = "workloads",
     .type = &workloads,
     .at = AT(job, workloads),
     .help = "What the ranks run; a rank that several name runs them at the same time",
     .required = true,
     .example = "workloads: [{plugin: hello}]"},
    {.name = "env", .type = &env, .at = AT(job, env), .help = "The environment of the ranks"},
    {.name = "timeouts", .type = &timeouts, .at = AT(job, timeouts), .help = "When to give up"},
    {.name = "on_failure",
     .type = &on_failure,
     .at = AT(job, on_failure),
     .help = "What to do when a rank fails"},
    {.name = "logging",
     .type = &logging,
     .at = AT(job, logging),
     .help = "What is shown and what is kept"},
    {0},
};
const struct schema_type schema_job = {.kind = SCHEMA_MAP,
                                       .expects = "a mapping of keys such as version and processes",
                                       .size = sizeof(struct job),
                                       .keys = job_keys,
                                       .loc_at = NO_LOC};
