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
#define KEY(name_, type_, at_, def_, help_)                                                        \
    .name = (name_), .type = &(type_), .at = (at_), .def = (def_), .help = (help_)

static int check_template(const char *text, struct diag *d)
{
    return template_check(text, TEMPLATE_ALL, d);
}

static int check_run_template(const char *text, struct diag *d)
{
    int code = name_check_text(text, d);
    return code == 0 ? template_check(text, TEMPLATE_RUN_ID, d) : code;
}

/* ---- types that several keys share ---- */

static const struct schema_type text = {
    .kind = SCHEMA_STR, .expects = "a text", .check = name_check_text};
static const struct schema_type path = {
    .kind = SCHEMA_STR, .expects = "a path", .check = name_check_text, .relative = PATH_RELATIVE};
static const struct schema_type plugin = {
    .kind = SCHEMA_STR, .expects = "a path", .check = name_check_text, .relative = PATH_WITH_SLASH};
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
    {KEY("command", argv, AT(job_transport, command), NULL,
         "The command that reaches a host and starts the agent there, argument by argument; {host} "
         "is its name"),
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

/* What hosts.defaults and every host may say. */
#define HOST_KEYS                                                                                  \
    {KEY("user", text, AT(job_host, user), NULL, "The user to log in as")},                        \
        {KEY("port", port, AT(job_host, port), "22", "The port of its SSH server")},               \
        {KEY("slots", slots, AT(job_host, slots), NULL, "How many ranks it may run")},             \
        {KEY("gpus", gpus, AT(job_host, gpus), NULL,                                               \
             "How many GPUs it has, or which may be used")},                                       \
        {KEY("transport", transport, AT(job_host, transport), "ssh",                               \
             "How it is reached: local is this machine, slurm is srun, command is any other")},    \
    {                                                                                              \
        KEY("workdir", absolute_path, AT(job_host, workdir), NULL,                                 \
            "The folder that its ranks start in")                                                  \
    }

static const struct schema_key default_keys[] = {HOST_KEYS, {0}};
static const struct schema_type host_defaults = {
    .kind = SCHEMA_MAP, .expects = "a mapping", .keys = default_keys, LOC(job_host)};
static const struct schema_key host_keys[] = {
    {KEY("name", host_pattern, AT(job_host, name), NULL,
         "Its name in plan, labels and messages; gpu[01-02] stands for several hosts"),
     .required = true},
    {KEY("address", text, AT(job_host, address), NULL, "Where it is reached, if not by its name")},
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
    {KEY("defaults", host_defaults, AT(job_hosts, defaults), NULL,
         "What holds for every host that does not say otherwise")},
    {KEY("nodes", nodes, AT(job_hosts, nodes), NULL,
         "The hosts, in the order that ranks are placed on them"),
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
    {KEY("known_hosts", known_hosts, AT(job_ssh, known_hosts), "strict",
         "What to do about a host key that is not known yet; there is never a prompt")},
    {KEY("identity", path, AT(job_ssh, identity), NULL,
         "The private key; without it, those that ssh would try")},
    {KEY("config", path, AT(job_ssh, config), NULL,
         "The configuration to follow; without it, ssh's")},
    {KEY("connect_timeout", time_out, AT(job_ssh, connect_timeout), "10s",
         "How long one attempt to connect and log in may take")},
    {KEY("retries", retries, AT(job_ssh, retries), "3", "How many more attempts after the first")},
    {KEY("parallel", parallel, AT(job_ssh, parallel), "32",
         "How many hosts to connect to at once")},
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
    {KEY("interface", interface, 0, "default-route",
         "Where the ranks of different hosts meet: an interface's name, a network that one of its "
         "addresses is in, or default-route; resolved on each host, and the loopback when all "
         "ranks share one")},
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
                                                    {"gpu", JOB_BIND_GPU, NOW},
                                                    {0}};
static const struct schema_type bind = {.kind = SCHEMA_CHOICE, .choices = bind_choices};
static const struct schema_key processes_keys[] = {
    {KEY("count", rank_count, AT(job_processes, count), NULL, "How many ranks"), .required = true,
     .example = "count: 4"},
    {KEY("gpus_per_process", gpu_count, AT(job_processes, gpus_per_process), "0",
         "How many GPUs each rank owns at least: what its greediest group brings counts, too")},
    {KEY("map", map, AT(job_processes, map), "block",
         "How ranks go to hosts: block fills one after the other, cyclic deals them out in turn")},
    {KEY("bind", bind, AT(job_processes, bind), "none",
         "What each rank is bound to: cpus_per_process cores of its own, the cores of one NUMA "
         "node, or those near its GPUs")},
    {KEY("cpus_per_process", cpu_count, AT(job_processes, cpus_per_process), "1",
         "How many cores each rank gets with bind: core")},
    {0},
};
static const struct schema_type processes = {
    .kind = SCHEMA_MAP, .expects = "a mapping", .keys = processes_keys, LOC(job_processes)};

/* ---- backends ---- */

static const struct schema_key backend_keys[] = {
    {KEY("path", path, AT(job_backend, path), NULL,
         "The shared object of a third-party backend, relative to this file; built-in ones need "
         "none")},
    {KEY("options", options, AT(job_backend, options), NULL,
         "Options of the backend, for all groups; collrun backends lists which it has")},
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
    {KEY("host", backend_name, BY_MEMORY(backend_host), NULL,
         "The backend for buffers in host memory"),
     .required = true},
    {KEY("cuda", backend_name, BY_MEMORY(backend_cuda), NULL,
         "The backend for buffers in GPU memory"),
     .required = true},
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
                                                     {"strict", JOB_CHECK_STRICT, NOW},
                                                     {"off", JOB_CHECK_OFF, NOW},
                                                     {0}};
static const struct schema_type check = {.kind = SCHEMA_CHOICE, .choices = check_choices};
static const struct schema_key group_keys[] = {
    {KEY("ranks", ranks, AT(job_group, ranks), "all",
         "Its members; their order is the order of group ranks")},
    {KEY("world_size", rank_count, AT(job_group, world_size), NULL,
         "How many members there must be, as a check on ranks")},
    {KEY("backend", group_backend, AT(job_group, backend), "auto",
         "What carries its operations; auto chooses by GPUs and hosts; {host: ..., cuda: ...} by "
         "where a buffer lives")},
    {KEY("gpus_per_process", gpu_count, AT(job_group, gpus_per_process), NULL,
         "How many of its GPUs each member brings; by default what processes says")},
    {KEY("timeout", time_out, AT(job_group, timeout), "10m", "How long one operation may take")},
    {KEY("split", split, AT(job_group, split), NULL, "host: one group per host, named NAME/HOST")},
    {KEY("check", check, AT(job_group, check), "async",
         "How ranks that disagree about a call are found: beside the operations (async), before "
         "each "
         "one, by exchanging the calls, on any backend (strict), or not at all (off)")},
    {KEY("options", options, AT(job_group, options), NULL,
         "Options of the group's backend; they come before those in backends")},
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
    {KEY("ranks", ranks, AT(job_override, ranks), NULL, "Which ranks"), .required = true},
    {KEY("params", params, AT(job_override, params), NULL, "What differs for them"),
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
    {KEY("name", text, AT(job_workload, name), NULL,
         "Its name in messages; default: the plugin's")},
    {KEY("plugin", plugin, AT(job_workload, plugin), NULL,
         "The shared object: a path relative to this file, or the bare name of an installed "
         "workload"),
     .required = true, .example = "plugin: hello"},
    {KEY("ranks", ranks, AT(job_workload, ranks), "all", "Which ranks run it")},
    {KEY("groups", group_names, AT(job_workload, groups), NULL,
         "The groups it may use; default: all that a rank is in")},
    {KEY("params", params, AT(job_workload, params), NULL,
         "Its parameters, checked against its own table")},
    {KEY("per_ranks", overrides, AT(job_workload, overrides), NULL,
         "Parameters that differ for some of its ranks; later entries win")},
    {KEY("timeout", time_out, AT(job_workload, timeout), NULL,
         "How long it may run; default: no limit")},
    {KEY("background", flag, AT(job_workload, background), "false",
         "Whether it runs beside the others and is stopped when they are done")},
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
    {KEY("pass", env_patterns, AT(job_env, pass), NULL,
         "Variables of collrun's environment that ranks on other hosts get too; those on this "
         "machine have all of it; * stands for any letters")},
    {KEY("set", env_values, AT(job_env, set), NULL,
         "Variables with their values, which may hold {rank} {local_rank} {host} {run_id} "
         "{attempt}")},
    {KEY("unset", env_names, AT(job_env, unset), NULL, "Variables that ranks shall not see")},
    {KEY("secrets", env_names, AT(job_env, secrets), NULL,
         "Variables that are passed like those of pass, must be set, and are shown nowhere")},
    {0},
};
static const struct schema_type env = {
    .kind = SCHEMA_MAP, .expects = "a mapping", .keys = env_keys, LOC(job_env)};

/* ---- timeouts ---- */

static const struct schema_key timeouts_keys[] = {
    {KEY("start", time_out, AT(job_timeouts, start), "2m",
         "Until every rank has loaded its plugins, formed its groups and returned from init")},
    {KEY("rendezvous", time_out, AT(job_timeouts, rendezvous), "2m", "Until one group has formed")},
    {KEY("run", time_out, AT(job_timeouts, run), NULL,
         "How long the workloads of one attempt may run; default: no limit")},
    {KEY("stall", time_out, AT(job_timeouts, stall), NULL,
         "How long a group may stand still before its job is diagnosed"),
     .when = LATER},
    {KEY("grace", duration, AT(job_timeouts, grace), "5s",
         "Between the request to end and the kill")},
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
    {KEY("cause", cause, AT(job_rule, cause), NULL, "What ended the rank that failed first")},
    {KEY("exit_code", exit_codes, AT(job_rule, exit_code), NULL, "Its exit code, any of these")},
    {0},
};
static const struct schema_type when = {
    .kind = SCHEMA_MAP, .expects = "a mapping", .keys = when_keys, .loc_at = NO_LOC};
static const struct schema_key rule_keys[] = {
    {KEY("when", when, 0, NULL, "What the failure must have been; all that is written must hold"),
     .required = true},
    {KEY("action", action, AT(job_rule, action), NULL, "What to do then"), .required = true},
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
    {KEY("action", action, AT(job_on_failure, action), "stop",
         "What to do when a rank fails: stop the others, let them continue, or restart the whole "
         "job")},
    {KEY("max_restarts", restarts, AT(job_on_failure, max_restarts), "2",
         "How often in a row a job that ran for less than min_uptime is restarted")},
    {KEY("backoff", duration, AT(job_on_failure, backoff), "1s",
         "The pause before the first restart; it doubles each time, up to a minute")},
    {KEY("min_uptime", duration, AT(job_on_failure, min_uptime), "30s",
         "A job that ran for this long before it failed starts the count of restarts afresh")},
    {KEY("rules", rules, AT(job_on_failure, rules), NULL,
         "What to do for some causes; the first rule that holds decides")},
    {0},
};
static const struct schema_type on_failure = {
    .kind = SCHEMA_MAP, .expects = "a mapping", .keys = failure_keys, LOC(job_on_failure)};

/* ---- logging ---- */

static const struct schema_type run_template = {.kind = SCHEMA_STR,
                                                .expects = "a path",
                                                .check = check_run_template,
                                                .relative = PATH_RELATIVE};
static const struct schema_key console_keys[] = {
    {KEY("ranks", ranks, AT(job_console, ranks), "all", "Whose output is shown")},
    {KEY("label", template_text, AT(job_console, label), "[{rank}]",
         "What stands before each line; empty: nothing")},
    {KEY("timestamps", flag, AT(job_console, timestamps), "false",
         "Whether each line shows its time")},
    {KEY("fold", flag, AT(job_console, fold), "false",
         "Whether a line that several ranks print is shown once"),
     .when = ONLY_DEFAULT},
    {0},
};
static const struct schema_type console = {
    .kind = SCHEMA_MAP, .expects = "a mapping", .keys = console_keys, LOC(job_console)};
static const struct schema_key logging_keys[] = {
    {KEY("dir", run_template, AT(job_logging, dir), NULL,
         "The folder that takes result, events and output; may hold {run_id}; default: nothing is "
         "written")},
    {KEY("console", console, AT(job_logging, console), NULL,
         "What the ranks' output looks like on collrun's stdout and stderr")},
    {KEY("max_file", size, AT(job_logging, max_file), "256MiB",
         "How much of one rank's output a file keeps")},
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
    {KEY("version", version, AT(job, version), NULL, "The version of this format"),
     .required = true, .example = "version: 1"},
    {KEY("name", text, AT(job, name), NULL, "The job's name; default: the file's, without .yaml")},
    {KEY("hosts", hosts, AT(job, hosts), NULL, "Where ranks run; default: this machine")},
    {KEY("ssh", ssh, AT(job, ssh), NULL, "How hosts are reached by SSH")},
    {KEY("stage", stage, AT(job, stage), "auto",
         "Whether this build is sent to hosts that lack it")},
    {KEY("network", network, AT(job, interface), NULL, "Which network the ranks use")},
    {KEY("processes", processes, AT(job, processes), NULL,
         "How many ranks there are, and where they go"),
     .required = true, .example = "processes: {count: 4}"},
    {KEY("backends", backends, AT(job, backends), NULL,
         "Backends from elsewhere, and options of any")},
    {KEY("groups", groups, AT(job, groups), NULL,
         "The named collective groups; a group world of all ranks is there even if it is not "
         "named")},
    {KEY("workloads", workloads, AT(job, workloads), NULL,
         "What the ranks run; a rank that several name runs them at the same time"),
     .required = true, .example = "workloads: [{plugin: hello}]"},
    {KEY("env", env, AT(job, env), NULL, "The environment of the ranks")},
    {KEY("timeouts", timeouts, AT(job, timeouts), NULL, "When to give up")},
    {KEY("on_failure", on_failure, AT(job, on_failure), NULL, "What to do when a rank fails")},
    {KEY("logging", logging, AT(job, logging), NULL, "What is shown and what is kept")},
    {0},
};
const struct schema_type schema_job = {.kind = SCHEMA_MAP,
                                       .expects = "a mapping of keys such as version and processes",
                                       .size = sizeof(struct job),
                                       .keys = job_keys,
                                       .loc_at = NO_LOC};
