/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of all keys. It is read from the bottom: schema_job, then the sections in the order of
 * the file (hosts and processes: schema_hosts.c), then the types that they share.
 */
#include "spec/schema.h"

#include "base/desc.h"
#include "base/devices.h"
#include "base/record.h"
#include "base/template.h"
#include "spec/job.h"
#include "spec/names.h"
#include "spec/schema_table.h"

#include <signal.h>
#include <stddef.h>

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

static const struct schema_type title = {
    .kind = SCHEMA_STR, .expects = "a string", .check = name_check_title};
static const struct schema_type path = {
    .kind = SCHEMA_STR, .expects = "a path", .check = name_check_text, .relative = PATH_RELATIVE};
static const struct schema_type workdir = {
    .kind = SCHEMA_STR, .expects = "a path", .check = name_check_text, .relative = PATH_WORKDIR};
static const struct schema_type plugin = {
    .kind = SCHEMA_STR, .expects = "a path", .check = name_check_text, .relative = PATH_WITH_SLASH};
static const struct schema_type template_text = {
    .kind = SCHEMA_STR, .expects = "a string", .check = check_template};
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
static const struct schema_type rank_count = {
    .kind = SCHEMA_INT, .expects = "an integer", .min = 1, .max = JOB_RANKS_MAX};
static const struct schema_type options = {.kind = SCHEMA_PAIRS,
                                           .expects = "a mapping of names to values"};

/* ---- ssh, stage, network ---- */

static const struct schema_choice known_hosts_choices[] = {
    {"strict", JOB_KNOWN_HOSTS_STRICT},
    {"accept-new", JOB_KNOWN_HOSTS_ACCEPT_NEW},
    {"off", JOB_KNOWN_HOSTS_OFF},
    {0}};
static const struct schema_type known_hosts = {.kind = SCHEMA_CHOICE,
                                               .choices = known_hosts_choices};
static const struct schema_type retries = {.kind = SCHEMA_INT,
                                           .expects = "an integer",
                                           .example = "options: {NAME: value}",
                                           .min = 0,
                                           .max = 100};
static const struct schema_type parallel = {
    .kind = SCHEMA_INT, .expects = "an integer", .min = 1, .max = 1024};
static const struct schema_key ssh_keys[] = {
    {KEY("known_hosts", known_hosts, AT(job_ssh, known_hosts), "strict",
         "Handling of unknown host keys: reject (strict), store (accept-new) or ignore (off); "
         "collrun "
         "never prompts")},
    {KEY("identity", path, AT(job_ssh, identity), NULL,
         "Private key file; default: the keys that ssh tries")},
    {KEY("config", path, AT(job_ssh, config), NULL,
         "SSH configuration file; default: the files that ssh reads")},
    {KEY("connect_timeout", time_out, AT(job_ssh, connect_timeout), "10s",
         "Time limit for one attempt to connect and log in")},
    {KEY("retries", retries, AT(job_ssh, retries), "3", "Number of attempts after the first one")},
    {KEY("parallel", parallel, AT(job_ssh, parallel), "32",
         "Number of hosts that are connected at the same time")},
    {0},
};
static const struct schema_type ssh = {.kind = SCHEMA_MAP,
                                       .expects = "a mapping",
                                       .example = "ssh: {known_hosts: accept-new}",
                                       .keys = ssh_keys,
                                       LOC(job_ssh)};

static const struct schema_choice stage_choices[] = {
    {"auto", JOB_STAGE_AUTO}, {"never", JOB_STAGE_NEVER}, {0}};
static const struct schema_type stage = {.kind = SCHEMA_CHOICE, .choices = stage_choices};

static const struct schema_type interface = {
    .kind = SCHEMA_STR,
    .expects = "an interface name, a network such as 10.2.0.0/16, or default-route",
    .check = name_check_interface};
static const struct schema_type ports = {.kind = SCHEMA_STR,
                                         .expects = "a range of ports such as 20000-20999",
                                         .check = name_check_ports};
static const struct schema_key network_keys[] = {
    {KEY("interface", interface, AT(job_network, interface), "default-route",
         "Interface for data between hosts: an interface name, a network that contains one of its "
         "addresses, or default-route; resolved on each host; if all ranks share one host: "
         "loopback")},
    {KEY("ports", ports, AT(job_network, ports), NULL,
         "Ports that the ranks listen on for data of other ranks, as in 20000-20999; each rank "
         "needs at least one, and MASTER_PORT one; default: any")},
    {0},
};
static const struct schema_type network = {.kind = SCHEMA_MAP,
                                           .expects = "a mapping",
                                           .example = "network: {interface: 10.2.0.0/16}",
                                           .keys = network_keys,
                                           .loc_at = NO_LOC};

/* ---- backends ---- */

static const struct schema_key backend_keys[] = {
    {KEY("path", path, AT(job_backend, path), NULL,
         "Shared object of a third-party backend, relative to the job file; built-in backends need "
         "none")},
    {KEY("options", options, AT(job_backend, options), NULL,
         "Options of the backend for all groups; collrun backends lists them")},
    {0},
};
static const struct schema_type backend = {.kind = SCHEMA_MAP,
                                           .expects = "a mapping",
                                           .example = "{path: ./libcollrun_mine.so}",
                                           .size = sizeof(struct job_backend),
                                           .keys = backend_keys,
                                           LOC(job_backend)};
static const struct schema_type backends = {.kind = SCHEMA_NAMED,
                                            .expects = "a mapping of backend names",
                                            .example =
                                                "backends: {mine: {path: ./libcollrun_mine.so}}",
                                            .item = &backend,
                                            .check_key = name_check_backend};

/* ---- groups ---- */

static const struct schema_type backend_name = {
    .kind = SCHEMA_STR, .expects = "a backend's name", .check = name_check_backend};
static const struct schema_type backend_for_kind = {.kind = SCHEMA_STR,
                                                    .expects = "a backend's name",
                                                    .size = sizeof(struct job_kind_backend),
                                                    .at = AT(job_kind_backend, backend),
                                                    .check = name_check_backend};
static const struct schema_type backend_by_kind = {
    .kind = SCHEMA_NAMED,
    .expects = "a mapping of kinds of memory to backends, such as {host: gloo, cuda: nccl}",
    .at = AT(job_group, backends) - AT(job_group, backend),
    .item = &backend_for_kind,
    .not_empty = true,
    .check_key = name_check_kind};
static const struct schema_type group_backend = {.kind = SCHEMA_EITHER,
                                                 .expects =
                                                     "a backend's name, or {host: ..., KIND: ...}",
                                                 .scalar = &backend_name,
                                                 .map = &backend_by_kind};
static const struct schema_choice split_choices[] = {{"host", JOB_SPLIT_HOST}, {0}};
static const struct schema_type split = {.kind = SCHEMA_CHOICE, .choices = split_choices};
static const struct schema_choice check_choices[] = {{"async", COLLRUN_CHECK_ASYNC},
                                                     {"strict", COLLRUN_CHECK_STRICT},
                                                     {"off", COLLRUN_CHECK_OFF},
                                                     {0}};
static const struct schema_type check = {.kind = SCHEMA_CHOICE, .choices = check_choices};
/* What groups of `groups` and of the mesh have in common. */
#define GROUP_KEYS                                                                                 \
    {KEY("backend", group_backend, AT(job_group, backend), "auto",                                 \
         "Backend of the group; auto selects one by devices and hosts; {host: gloo, cuda: nccl} "  \
         "selects by the kind of memory of the buffer")},                                          \
        {KEY("gpus_per_process", schema_device_count, AT(job_group, gpus_per_process), NULL,       \
             "Number of GPUs of each member; default: processes.gpus_per_process")},               \
        {KEY("devices", schema_device_needs, AT(job_group, devices), NULL,                         \
             "Number of devices of each member and kind of memory; default: processes.devices")},  \
        {KEY("timeout", time_out, AT(job_group, timeout), "10m", "Time limit for one operation")}, \
        {KEY("check", check, AT(job_group, check), "async",                                        \
             "Detection of calls that differ between ranks: async ends the job soon after ranks "  \
             "have "                                                                               \
             "called different operations, on any backend; strict compares the calls before data " \
             "moves; "                                                                             \
             "off leaves it to the backend")},                                                     \
    {                                                                                              \
        KEY("options", options, AT(job_group, options), NULL,                                      \
            "Options of the group's backend; they override those under backends")                  \
    }
static const struct schema_key group_keys[] = {
    {KEY("ranks", ranks, AT(job_group, ranks), "all",
         "Members of the group; their order is the order of the group ranks")},
    {KEY("world_size", rank_count, AT(job_group, world_size), NULL,
         "Expected number of members; a check on ranks")},
    {KEY("split", split, AT(job_group, split), NULL, "host: one group per host, named GROUP/HOST")},
    GROUP_KEYS,
    {0},
};
static const struct schema_type group = {.kind = SCHEMA_MAP,
                                         .expects = "a mapping",
                                         .example = "{ranks: [0, 1]}",
                                         .size = sizeof(struct job_group),
                                         .keys = group_keys,
                                         LOC(job_group)};
static const struct schema_type groups = {.kind = SCHEMA_NAMED,
                                          .expects = "a mapping of group names",
                                          .example = "groups: {train: {ranks: 0-3}}",
                                          .item = &group,
                                          .check_key = name_check_group};

/* ---- roles and mesh ---- */

static int check_role_name(const char *text, struct diag *d)
{
    if (parse_is_role_name(text))
        return 0;
    diag_set(d, COLLRUN_ERR_INVALID, "\"%.64s\" is no name of a role", text);
    return diag_hint(d, "letters, digits and _, no digit first; all, last and rest are words");
}

static const struct schema_choice rest[] = {{"rest", 0}, {0}};
static const struct schema_type role = {.kind = SCHEMA_INT,
                                        .expects = "a number of ranks, or rest",
                                        .size = sizeof(struct job_role),
                                        .at = AT(job_role, size),
                                        .min = 1,
                                        .max = JOB_RANKS_MAX,
                                        .choices = rest};
static const struct schema_type roles = {.kind = SCHEMA_NAMED,
                                         .expects = "a mapping of names to numbers of ranks",
                                         .example = "roles: {ps: 2, worker: rest}",
                                         .item = &role,
                                         .not_empty = true,
                                         .check_key = check_role_name};
static const struct schema_type axis = {.kind = SCHEMA_INT,
                                        .expects = "a size, or rest",
                                        .size = sizeof(struct job_axis),
                                        .at = AT(job_axis, size),
                                        .min = 1,
                                        .max = JOB_RANKS_MAX,
                                        .choices = rest};
static const struct schema_type axes = {.kind = SCHEMA_NAMED,
                                        .expects = "a mapping of names to sizes",
                                        .example = "axes: {dp: rest, tp: 8}",
                                        .item = &axis,
                                        .not_empty = true,
                                        .check_key = name_check_group};
static const struct schema_type axis_name = {.kind = SCHEMA_STR,
                                             .expects = "the name of an axis",
                                             .size = sizeof(struct job_str),
                                             .check = name_check_text};
static const struct schema_type axis_names = {.kind = SCHEMA_LIST,
                                              .expects = "a list of axes",
                                              .example = "[dp, tp]",
                                              .item = &axis_name,
                                              .not_empty = true,
                                              LOC(job_strs)};
static const struct schema_key mesh_group_keys[] = {
    {KEY("axes", axis_names, AT(job_group, axes), NULL,
         "Axes along which the ranks of one group differ; NAME: [AXIS, ...] is short for it; "
         "default: the axis that has the name of the group")},
    GROUP_KEYS,
    {0},
};
static const struct schema_type mesh_group = {.kind = SCHEMA_MAP,
                                              .expects = "a list of axes, or keys of a group",
                                              .example = "groups: {dp_tp: [dp, tp]}",
                                              .size = sizeof(struct job_group),
                                              .keys = mesh_group_keys,
                                              LOC(job_group)};
static const struct schema_type mesh_group_axes = {.kind = SCHEMA_LIST,
                                                   .expects = "a list of axes",
                                                   .at = AT(job_group, axes),
                                                   .item = &axis_name,
                                                   .not_empty = true,
                                                   LOC(job_strs)};
/* ranks_add_mesh_groups has replaced each list. */
static const struct schema_type mesh_group_either = {.kind = SCHEMA_EITHER,
                                                     .expects =
                                                         "a list of axes, or keys of a group",
                                                     .example = "groups: {dp_tp: [dp, tp]}",
                                                     .size = sizeof(struct job_group),
                                                     .list = &mesh_group_axes,
                                                     .map = &mesh_group};
static const struct schema_type mesh_groups = {.kind = SCHEMA_NAMED,
                                               .expects = "a mapping of group names",
                                               .example = "groups: {dp_tp: [dp, tp]}",
                                               .item = &mesh_group_either,
                                               .check_key = name_check_group};
static const struct schema_key mesh_keys[] = {
    {KEY("axes", axes, AT(job_mesh, axes), NULL,
         "Axes and their sizes, the last one varies fastest; one size may be rest, and their "
         "product is the number of ranks"),
     .required = true, .example = "axes: {dp: rest, tp: 8}"},
    {KEY("ranks", ranks, AT(job_mesh, ranks), "all", "Ranks of the mesh, in this order")},
    {KEY("inside_host", axis_names, AT(job_mesh, inside_host), NULL,
         "Axes, or groups of the mesh, whose ranks must be on one host")},
    {KEY("groups", mesh_groups, AT(job_mesh, groups), NULL,
         "Groups of several axes, and keys of the groups of single axes, which always exist")},
    {0},
};
static const struct schema_type mesh = {.kind = SCHEMA_MAP,
                                        .expects = "a mapping",
                                        .example = "mesh: {axes: {dp: rest, tp: 8}}",
                                        .keys = mesh_keys,
                                        LOC(job_mesh)};

/* ---- workloads ---- */

static const struct schema_type params = {.kind = SCHEMA_PAIRS,
                                          .expects = "a mapping of names to values",
                                          .example = "params: {iters: 10}",
                                          .lists = true};
static const struct schema_key override_keys[] = {
    {KEY("ranks", ranks, AT(job_override, ranks), NULL, "Ranks that get these parameters"),
     .required = true},
    {KEY("params", params, AT(job_override, params), NULL, "Parameters for these ranks"),
     .required = true},
    {0},
};
static const struct schema_type override = {.kind = SCHEMA_MAP,
                                            .expects = "a mapping",
                                            .example = "{ranks: 0, params: {iters: 10}}",
                                            .size = sizeof(struct job_override),
                                            .keys = override_keys,
                                            LOC(job_override)};
static const struct schema_type overrides = {.kind = SCHEMA_LIST,
                                             .expects = "a list of mappings",
                                             .example =
                                                 "per_ranks: [{ranks: 0, params: {iters: 10}}]",
                                             .item = &override,
                                             .loc_at = NO_LOC};
static const struct schema_type group_name = {.kind = SCHEMA_STR,
                                              .expects = "a group's name",
                                              .size = sizeof(struct job_str),
                                              .check = name_check_text};
static const struct schema_type group_names = {.kind = SCHEMA_LIST,
                                               .expects = "a list of group names",
                                               .example = "groups: [world]",
                                               .item = &group_name,
                                               LOC(job_strs)};
static const struct schema_type argument = {.kind = SCHEMA_STR,
                                            .expects = "a string",
                                            .size = sizeof(struct job_str),
                                            .may_be_secret = true};
static const struct schema_type command = {.kind = SCHEMA_LIST,
                                           .expects = "a list of a program and its arguments",
                                           .example = "command: [python3, train.py]",
                                           .item = &argument,
                                           .program = true,
                                           .not_empty = true,
                                           LOC(job_strs)};
static const struct schema_type workload_env = {.kind = SCHEMA_PAIRS,
                                                .expects = "a mapping of variable names to values",
                                                .example = "env: {NAME: value}",
                                                .check = check_template,
                                                .check_key = name_check_env};
static const struct schema_type stage_file = {.kind = SCHEMA_STR,
                                              .expects = "a path",
                                              .size = sizeof(struct job_str),
                                              .relative = PATH_RELATIVE,
                                              .check = name_check_text};
static const struct schema_type stage_files = {.kind = SCHEMA_LIST,
                                               .expects = "a list of paths",
                                               .example = "stage_files: [train.py, data]",
                                               .item = &stage_file,
                                               LOC(job_strs)};
static const struct schema_choice observe_words[] = {
    {"auto", JOB_OBSERVE_AUTO}, {"off", JOB_OBSERVE_OFF}, {0}};
static const struct schema_type observe_word = {.kind = SCHEMA_CHOICE, .choices = observe_words};
static const struct schema_choice observe_libraries[] = {
    {"mpi", DESC_OBSERVE_MPI}, {"torch", DESC_OBSERVE_TORCH}, {0}};
static const struct schema_type observe_library = {
    .kind = SCHEMA_CHOICE, .choices = observe_libraries, .size = sizeof(struct job_num)};
static const struct schema_type observe_list = {.kind = SCHEMA_LIST,
                                                .expects = "a list of libraries: mpi, torch",
                                                .at = AT(job_observe, taps),
                                                .item = &observe_library,
                                                .not_empty = true,
                                                LOC(job_nums)};
static const struct schema_choice leaks_choices[] = {
    {"warning", JOB_OBSERVE_LEAKS_WARNING}, {"error", JOB_OBSERVE_LEAKS_ERROR}, {0}};
static const struct schema_type leaks = {.kind = SCHEMA_CHOICE, .choices = leaks_choices};
static const struct schema_key observe_mpi_keys[] = {
    {KEY("leaks", leaks, AT(job_observe_mpi, leaks), "warning",
         "What requests, communicators, datatypes, operators, groups and windows are that the "
         "program has not freed before MPI_Finalize: warnings in result.json, or an error that "
         "fails the job")},
    {0},
};
static const struct schema_type observe_mpi = {.kind = SCHEMA_MAP,
                                               .expects = "a mapping",
                                               .example = "mpi: {leaks: error}",
                                               .keys = observe_mpi_keys,
                                               .loc_at = NO_LOC};
static const struct schema_key observe_keys[] = {
    {KEY("mpi", observe_mpi, AT(job_observe, mpi), NULL, "How calls of MPI are judged")},
    {0},
};
static const struct schema_type observe_map = {.kind = SCHEMA_MAP,
                                               .expects = "a mapping",
                                               .example = "observe: {mpi: {leaks: error}}",
                                               .keys = observe_keys,
                                               .loc_at = NO_LOC};
static const struct schema_type observe = {
    .kind = SCHEMA_EITHER,
    .expects = "auto, off, a list of libraries (mpi, torch), or options",
    .example = "observe: [mpi]",
    .scalar = &observe_word,
    .list = &observe_list,
    .map = &observe_map};
static const struct schema_key workload_keys[] = {
    {KEY("name", title, AT(job_workload, name), NULL,
         "Name of the workload in messages; default: the name of the plugin or program")},
    {KEY("plugin", plugin, AT(job_workload, plugin), NULL,
         "Shared object of the workload: a path relative to the job file, or the name of an "
         "installed workload"),
     .required = true, .instead = "command", .example = "plugin: hello"},
    {KEY("command", command, AT(job_workload, command), NULL,
         "Program that each rank runs, and its arguments: a path relative "
         "to the job file, or a name that is looked up in PATH on the host")},
    {KEY("workdir", workdir, AT(job_workload, workdir), NULL,
         "Working directory of the command, relative to the folder of the job file, or to the "
         "workdir of its host; default: that folder")},
    {KEY("env", workload_env, AT(job_workload, env), NULL,
         "Variables of the command, added to env.set")},
    {KEY("observe", observe, AT(job_workload, observe), "auto",
         "Whether the calls of a command that does not use collrun are recorded, so that mistakes "
         "in them are explained: auto (those of MPI and torch.distributed, where that is "
         "possible), off, a list: "
         "[mpi], or auto with options: {mpi: {leaks: error}}")},
    {KEY("stage_files", stage_files, AT(job_workload, stage_files), NULL,
         "Files and folders that the command needs, relative to the job file. A host reached "
         "by ssh or a command gets copies, and the command starts in the copy of its folder")},
    {KEY("ranks", ranks, AT(job_workload, ranks), NULL,
         "Ranks that run the workload; default: all, of a plugin those that no command names")},
    {KEY("groups", group_names, AT(job_workload, groups), NULL,
         "Groups that the workload may use; default: all groups of a rank")},
    {KEY("params", params, AT(job_workload, params), NULL,
         "Parameters, checked against the table that the plugin declares")},
    {KEY("per_ranks", overrides, AT(job_workload, overrides), NULL,
         "Parameters that differ for some ranks; later entries override earlier ones")},
    {KEY("timeout", time_out, AT(job_workload, timeout), NULL,
         "Time limit for the workload; default: none")},
    {KEY("background", flag, AT(job_workload, background), "false",
         "True: stop the workload when all other workloads are done")},
    {0},
};
static const struct schema_type workload = {.kind = SCHEMA_MAP,
                                            .expects = "a mapping",
                                            .example = "{plugin: hello}",
                                            .size = sizeof(struct job_workload),
                                            .keys = workload_keys,
                                            LOC(job_workload)};
static const struct schema_type workloads = {.kind = SCHEMA_LIST,
                                             .expects = "a list of workloads",
                                             .example = "workloads: [{plugin: hello}]",
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
static const struct schema_type env_names = {.kind = SCHEMA_LIST,
                                             .expects = "a list of variable names",
                                             .example = "[NAME]",
                                             .item = &env_name,
                                             LOC(job_strs)};
static const struct schema_type env_patterns = {.kind = SCHEMA_LIST,
                                                .expects = "a list of variable names",
                                                .example = "pass: [PATH, NAME]",
                                                .item = &env_pattern,
                                                LOC(job_strs)};
static const struct schema_type env_values = {.kind = SCHEMA_PAIRS,
                                              .expects = "a mapping of variable names to values",
                                              .example = "env: {set: {NAME: value}}",
                                              .check = check_template,
                                              .check_key = name_check_env};
static const struct schema_type env_file = {.kind = SCHEMA_STR,
                                            .expects = "a path",
                                            .size = sizeof(struct job_str),
                                            .check = name_check_text,
                                            .relative = PATH_RELATIVE};
static const struct schema_type env_files = {.kind = SCHEMA_LIST,
                                             .expects = "a list of files",
                                             .example = "files: [cluster.env]",
                                             .item = &env_file,
                                             LOC(job_strs)};
static const struct schema_type env_step = {.kind = SCHEMA_STR,
                                            .expects = "a command of a shell",
                                            .size = sizeof(struct job_str),
                                            .check = name_check_text};
static const struct schema_type env_steps = {.kind = SCHEMA_LIST,
                                             .expects = "a list of commands of a shell",
                                             .example = "activate: [source venv/bin/activate]",
                                             .item = &env_step,
                                             LOC(job_strs)};
static const struct schema_key env_keys[] = {
    {KEY("pass", env_patterns, AT(job_env, pass), NULL,
         "Variables of collrun's environment that ranks on other hosts get; ranks on this machine "
         "inherit all of them; * matches any characters")},
    {KEY("files", env_files, AT(job_env, files), NULL,
         "Files with lines NAME=VALUE, relative to the job file; a later file wins, and set wins "
         "over all")},
    {KEY("activate", env_steps, AT(job_env, activate), NULL,
         "Commands of a shell that are run once on each host, before its ranks start, by a login "
         "shell of bash; what they change in the environment is that of the ranks")},
    {KEY("set", env_values, AT(job_env, set), NULL,
         "Variables and their values; a value may contain {rank} {local_rank} {host} {run_id} "
         "{attempt}")},
    {KEY("unset", env_names, AT(job_env, unset), NULL,
         "Variables that are removed from the environment of the ranks")},
    {KEY("secrets", env_names, AT(job_env, secrets), NULL,
         "Variables that are passed like those of pass; they must be set, and their values are "
         "not shown; ${env:NAME} of one may stand in params, options, variables and arguments of a "
         "command only")},
    {0},
};
static const struct schema_type env = {.kind = SCHEMA_MAP,
                                       .expects = "a mapping",
                                       .example = "env: {set: {NAME: value}}",
                                       .keys = env_keys,
                                       LOC(job_env)};

/* ---- timeouts ---- */

static const struct schema_choice stall_choices[] = {{"off", 0}, {0}};
static const struct schema_type stall = {.kind = SCHEMA_DURATION,
                                         .expects =
                                             "a duration such as 500ms, 30s or 1h30m, or off",
                                         .min = 1,
                                         .max = INT64_MAX,
                                         .range = "a time-out must be longer than 0",
                                         .choices = stall_choices};
static const struct schema_type silence = {.kind = SCHEMA_DURATION,
                                           .expects = "a duration such as 30s or 2m",
                                           .min = 2000000000,
                                           .max = 86400000000000,
                                           .range = "2s to 24h: heartbeats are a second apart"};
static const struct schema_choice warn_signals[] = {
    {"USR1", SIGUSR1}, {"USR2", SIGUSR2}, {"TERM", SIGTERM}, {"INT", SIGINT}, {"HUP", SIGHUP}, {0}};
static const struct schema_type warn_signal = {.kind = SCHEMA_CHOICE, .choices = warn_signals};
static const struct schema_key warn_keys[] = {
    {KEY("signal", warn_signal, AT(job_warn, signal), "TERM",
         "The signal; a rank that does not handle it ends")},
    {KEY("before", time_out, AT(job_warn, before), NULL, "How long before the end"),
     .required = true},
    {0},
};
static const struct schema_type warn = {.kind = SCHEMA_MAP,
                                        .expects = "a mapping",
                                        .example = "warn: {signal: USR1, before: 60s}",
                                        .keys = warn_keys,
                                        LOC(job_warn)};
static const struct schema_key timeouts_keys[] = {
    {KEY("start", time_out, AT(job_timeouts, start), "2m",
         "Time limit until every rank has loaded its plugins, formed its groups and returned from "
         "init")},
    {KEY("rendezvous", time_out, AT(job_timeouts, rendezvous), "2m",
         "Time limit for forming one group")},
    {KEY("run", time_out, AT(job_timeouts, run), NULL,
         "Time limit for the workloads of one attempt; default: none")},
    {KEY("stall", stall, AT(job_timeouts, stall), "10s",
         "Time without progress in a group after which collrun reports the ranks that have not "
         "called and what they are doing, and again after 2, 4, ... times as long; the job "
         "continues")},
    {KEY(
        "silence", silence, AT(job_timeouts, silence), "30s",
        "How long a host may send nothing, not even a heartbeat, before it counts as lost, and how "
        "long its ranks continue without a word from collrun (10 s at least)")},
    {KEY("warn", warn, AT(job_timeouts, warn), NULL,
         "A signal to all ranks some time before timeouts.run has passed: to the process that has "
         "called collrun_init, else to the first below the command that handles the signal")},
    {KEY("grace", duration, AT(job_timeouts, grace), "5s",
         "Time between the request to stop and SIGTERM; SIGKILL follows")},
    {0},
};
static const struct schema_type timeouts = {.kind = SCHEMA_MAP,
                                            .expects = "a mapping",
                                            .example = "timeouts: {run: 1h}",
                                            .keys = timeouts_keys,
                                            LOC(job_timeouts)};

/* ---- on_failure ---- */

static const struct schema_choice action_choices[] = {{"stop", JOB_ACTION_STOP},
                                                      {"continue", JOB_ACTION_CONTINUE},
                                                      {"restart", JOB_ACTION_RESTART},
                                                      {0}};
static const struct schema_type action = {.kind = SCHEMA_CHOICE, .choices = action_choices};
static const struct schema_choice cause_choices[] = {{"job", JOB_CAUSE_JOB},
                                                     {"plugin", JOB_CAUSE_PLUGIN},
                                                     {"oom", JOB_CAUSE_OOM},
                                                     {"signal", JOB_CAUSE_SIGNAL},
                                                     {"exit", JOB_CAUSE_EXIT},
                                                     {"error", JOB_CAUSE_ERROR},
                                                     {"host_lost", JOB_CAUSE_HOST_LOST},
                                                     {"mismatch", JOB_CAUSE_MISMATCH},
                                                     {"deadlock", JOB_CAUSE_DEADLOCK},
                                                     {"missing", JOB_CAUSE_MISSING},
                                                     {"timeout", JOB_CAUSE_TIMEOUT},
                                                     {0}};
static const struct schema_renamed cause_renamed[] = {
    {"launch",
     "a job that cannot be started has the cause \"plugin\", or \"job\" for the job file"},
    {"stall",
     "ranks that wait for each other have the cause \"deadlock\", and ranks that do not come "
     "have \"missing\""},
    {0}};
static const struct schema_type cause = {
    .kind = SCHEMA_CHOICE, .choices = cause_choices, .renamed = cause_renamed};
static const struct schema_type exit_code = {.kind = SCHEMA_INT,
                                             .expects = "an integer",
                                             .size = sizeof(struct job_num),
                                             .min = 1,
                                             .max = 255};
static const struct schema_type exit_codes = {.kind = SCHEMA_LIST,
                                              .expects = "a list of exit codes",
                                              .example = "exit_code: [75]",
                                              .item = &exit_code,
                                              .not_empty = true,
                                              LOC(job_nums)};
static const struct schema_type exception = {.kind = SCHEMA_STR,
                                             .expects = "the type of an exception of Python",
                                             .example = "exception: torch.OutOfMemoryError",
                                             .check = name_check_text};
static const struct schema_key when_keys[] = {
    {KEY("cause", cause, AT(job_rule, cause), NULL,
         "Class of the failure, as in collrun-failures(7)")},
    {KEY("exit_code", exit_codes, AT(job_rule, exit_code), NULL,
         "Exit codes, one of which must match")},
    {KEY("exception", exception, AT(job_rule, exception), NULL,
         "Type of the exception that has ended a program of Python, as the last line of its "
         "traceback names it; without its module, if it has no dot")},
    {0},
};
static const struct schema_type when = {.kind = SCHEMA_MAP,
                                        .expects = "a mapping",
                                        .example = "when: {exit_code: [75]}",
                                        .keys = when_keys,
                                        .loc_at = NO_LOC};
static const struct schema_key rule_keys[] = {
    {KEY("when", when, 0, NULL, "Conditions on the failure; all of them must match"),
     .required = true},
    {KEY("action", action, AT(job_rule, action), NULL, "Action for a failure that matches"),
     .required = true},
    {0},
};
static const struct schema_type rule = {.kind = SCHEMA_MAP,
                                        .expects = "a mapping",
                                        .example = "{when: {cause: oom}, action: stop}",
                                        .size = sizeof(struct job_rule),
                                        .keys = rule_keys,
                                        LOC(job_rule)};
static const struct schema_type rules = {.kind = SCHEMA_LIST,
                                         .expects = "a list of rules",
                                         .example = "rules: [{when: {cause: oom}, action: stop}]",
                                         .item = &rule,
                                         .loc_at = NO_LOC};
static const struct schema_type restarts = {
    .kind = SCHEMA_INT, .expects = "an integer", .min = 0, .max = 1000};
static const struct schema_key failure_keys[] = {
    {KEY("action", action, AT(job_on_failure, action), "stop",
         "Action when a rank fails: stop the other ranks, let them continue, or restart the whole "
         "job")},
    {KEY("max_restarts", restarts, AT(job_on_failure, max_restarts), "2",
         "Maximum number of restarts in a row; an attempt that runs for min_uptime resets the "
         "count")},
    {KEY("backoff", duration, AT(job_on_failure, backoff), "1s",
         "Pause before the first restart; doubled each time, up to one minute")},
    {KEY("min_uptime", duration, AT(job_on_failure, min_uptime), "30s",
         "Run time after which an attempt resets the count of restarts")},
    {KEY("rules", rules, AT(job_on_failure, rules), NULL,
         "Actions for certain failures; the first rule that matches decides")},
    {0},
};
static const struct schema_type on_failure = {.kind = SCHEMA_MAP,
                                              .expects = "a mapping",
                                              .example = "on_failure: {action: restart}",
                                              .keys = failure_keys,
                                              LOC(job_on_failure)};

/* ---- logging ---- */

static const struct schema_type run_template = {.kind = SCHEMA_STR,
                                                .expects = "a path",
                                                .check = check_run_template,
                                                .is_template = true,
                                                .relative = PATH_RELATIVE};
static const struct schema_key console_keys[] = {
    {KEY("ranks", ranks, AT(job_console, ranks), "all", "Ranks whose output is shown")},
    {KEY("label", template_text, AT(job_console, label), "[{rank}]",
         "Text before each line, a template; empty: none")},
    {KEY("timestamps", flag, AT(job_console, timestamps), "false",
         "True: show the time before each line")},
    {KEY("fold", flag, AT(job_console, fold), "false",
         "True: show equal lines of several ranks once")},
    {0},
};
static const struct schema_type console = {.kind = SCHEMA_MAP,
                                           .expects = "a mapping",
                                           .example = "console: {ranks: 0}",
                                           .keys = console_keys,
                                           LOC(job_console)};
static const struct schema_key logging_keys[] = {
    {KEY("dir", run_template, AT(job_logging, dir), NULL,
         "Folder for result, events and output; may contain {run_id}; default: no files are "
         "written")},
    {KEY("console", console, AT(job_logging, console), NULL,
         "Format of the ranks' output on stdout and stderr of collrun")},
    {KEY("max_file", size, AT(job_logging, max_file), "256MiB",
         "Maximum size of a file with the output of one rank")},
    {KEY("trace", flag, AT(job_logging, trace), "false",
         "True: write trace.json, every operation of every rank on one timeline (needs dir)")},
    {0},
};
static const struct schema_type logging = {.kind = SCHEMA_MAP,
                                           .expects = "a mapping",
                                           .example = "logging: {dir: runs}",
                                           .keys = logging_keys,
                                           LOC(job_logging)};

/* ---- record ---- */

static const struct schema_type entries = {
    .kind = SCHEMA_INT, .expects = "an integer", .min = 0, .max = RECORD_ENTRIES_MAX};
static const struct schema_key record_keys[] = {
    {KEY("entries", entries, AT(job_record, entries), "4096",
         "Operations that the flight recorder of each rank keeps, rounded up to a power of 2; 64 "
         "bytes each; 0: none")},
    {0},
};
static const struct schema_type record = {.kind = SCHEMA_MAP,
                                          .expects = "a mapping",
                                          .example = "record: {entries: 4096}",
                                          .keys = record_keys,
                                          LOC(job_record)};

/* ---- layers ---- */

static const struct schema_type include = {
    .kind = SCHEMA_LAYER,
    .expects = "a list of files",
    .json = "{\"type\": \"array\", \"items\": {\"type\": \"string\"}}"};
static const struct schema_type vars = {
    .kind = SCHEMA_LAYER,
    .expects = "a mapping of names to values",
    .json = "{\"type\": \"object\", \"propertyNames\": {\"pattern\": "
            "\"^[A-Za-z_][A-Za-z0-9_-]*$\"}}"};
static const struct schema_type profiles = {
    .kind = SCHEMA_LAYER,
    .expects = "a mapping of names to keys of the job",
    .json = "{\"type\": \"object\", \"additionalProperties\": {\"$ref\": "
            "\"#/definitions/profile\"}}"};

static const struct schema_type matrix = {
    .kind = SCHEMA_LAYER,
    .expects = "a mapping of names to lists",
    .json =
        "{\"type\": \"object\", \"properties\": {\"exclude\": {\"type\": \"array\", \"items\": "
        "{\"type\": \"object\"}}, \"keep_going\": {\"type\": \"boolean\"}}, "
        "\"additionalProperties\": {\"anyOf\": [{\"type\": \"array\", \"minItems\": 1}, {\"$ref\": "
        "\"#/definitions/env\"}]}}"};

/* ---- the file ---- */

static const struct schema_type version = {.kind = SCHEMA_INT,
                                           .expects = "an integer",
                                           .min = 1,
                                           .max = 1,
                                           .range = "this build reads version 1"};
static const struct schema_key job_keys[] = {
    {KEY("version", version, AT(job, version), NULL, "Version of the file format"),
     .required = true, .example = "version: 1"},
    {KEY("name", title, AT(job, name), NULL,
         "Name of the job; default: the file name without .yaml")},
    {KEY("include", include, 0, NULL,
         "Files that are read first, in order, and over which this one is merged; paths are "
         "relative to the folder of this file; at most 8 deep")},
    {KEY("vars", vars, 0, NULL,
         "Variables, for ${var:NAME} in any value; a value that is one reference keeps the type of "
         "the variable; null: --var must set it")},
    {KEY("profiles", profiles, 0, NULL,
         "Named sets of keys that are merged over the job by --profile NAME")},
    {KEY("matrix", matrix, 0, NULL,
         "Axes with lists of values: one run for each combination, with ${matrix:AXIS} in any "
         "value; exclude: [{AXIS: VALUE}] leaves combinations out, and with keep_going: false the "
         "first failure is the end")},
    {KEY("hosts", schema_hosts, AT(job, hosts), NULL, "Hosts of the job; default: this machine")},
    {KEY("ssh", ssh, AT(job, ssh), NULL, "SSH connections to the hosts")},
    {KEY("stage", stage, AT(job, stage), "auto",
         "auto: send this build to hosts that lack it; never: it must be installed there")},
    {KEY("network", network, AT(job, network), NULL, "Network of the ranks")},
    {KEY("processes", schema_processes, AT(job, processes), NULL,
         "Number of ranks and their placement"),
     .required = true, .example = "processes: {count: 4}"},
    {KEY("backends", backends, AT(job, backends), NULL,
         "Third-party backends, and options of any backend")},
    {KEY("groups", groups, AT(job, groups), NULL,
         "Named groups of ranks; the group world of all ranks always exists")},
    {KEY("roles", roles, AT(job, roles), NULL,
         "Names of consecutive ranks, in the order of the file, for rank sets; one may have the "
         "rest")},
    {KEY("mesh", mesh, AT(job, mesh), NULL,
         "Ranks as a grid of named axes, and a group for each axis")},
    {KEY("workloads", workloads, AT(job, workloads), NULL,
         "Workloads of the ranks; a rank that several workloads list runs them at the same time"),
     .required = true, .example = "workloads: [{plugin: hello}]"},
    {KEY("env", env, AT(job, env), NULL, "Environment of the ranks")},
    {KEY("timeouts", timeouts, AT(job, timeouts), NULL, "Time limits")},
    {KEY("on_failure", on_failure, AT(job, on_failure), NULL, "Handling of failures")},
    {KEY("logging", logging, AT(job, logging), NULL, "Output and files of a run")},
    {KEY("record", record, AT(job, record), NULL,
         "Flight recorder: the last operations of each rank, for reports of failures")},
    {0},
};
const struct schema_type schema_job = {
    .kind = SCHEMA_MAP,
    .expects = "a mapping of keys such as version and processes",
    .example = "{version: 1, processes: {count: 4}, workloads: [{plugin: hello}]}",
    .size = sizeof(struct job),
    .keys = job_keys,
    .loc_at = NO_LOC};

static const struct schema_key head_keys[] = {
    {KEY("processes", schema_processes, AT(job, processes), NULL, "")},
    {KEY("roles", roles, AT(job, roles), NULL, "")},
    {0},
};
const struct schema_type schema_head = {.kind = SCHEMA_MAP,
                                        .expects = "a mapping",
                                        .size = sizeof(struct job),
                                        .keys = head_keys,
                                        .loc_at = NO_LOC};
