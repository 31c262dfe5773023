/* SPDX-License-Identifier: Apache-2.0
 *
 * The keys of `hosts`: the hosts, their transports and the devices that ranks may use there; and
 * the keys of `processes`: the number of ranks, their placement, binding and limits.
 */
#include "base/devices.h"
#include "spec/job.h"
#include "spec/names.h"
#include "spec/schema_table.h"

static const struct schema_type text = {
    .kind = SCHEMA_STR, .expects = "a string", .check = name_check_text};
static const struct schema_type absolute_path = {
    .kind = SCHEMA_STR, .expects = "an absolute path", .check = name_check_absolute};

/* ---- transports ---- */

static const struct schema_choice transport_choices[] = {
    {"local", JOB_TRANSPORT_LOCAL},
    {"ssh", JOB_TRANSPORT_SSH},
    {"slurm", JOB_TRANSPORT_SLURM},
    {0},
};
static const struct schema_type transport_name = {.kind = SCHEMA_CHOICE,
                                                  .choices = transport_choices};
static const struct schema_type argument = {.kind = SCHEMA_STR,
                                            .expects = "a string",
                                            .size = sizeof(struct job_str),
                                            .check = name_check_text};
static const struct schema_type argv = {.kind = SCHEMA_LIST,
                                        .expects = "a list of arguments",
                                        .item = &argument,
                                        .program = true,
                                        .not_empty = true,
                                        LOC(job_strs)};
static const struct schema_key transport_keys[] = {
    {KEY("command", argv, AT(job_transport, command), NULL,
         "Program and arguments that connect to a host and start the agent there; {host} is its "
         "name"),
     .required = true},
    {0},
};
static const struct schema_type transport_map = {
    .kind = SCHEMA_MAP, .expects = "{command: [...]}", .keys = transport_keys, .loc_at = NO_LOC};
static const struct schema_type transport = {.kind = SCHEMA_EITHER,
                                             .expects = "local, ssh, slurm or {command: [...]}",
                                             .scalar = &transport_name,
                                             .map = &transport_map};

/* ---- devices ---- */

const struct schema_type schema_device_count = {
    .kind = SCHEMA_INT, .expects = "an integer", .min = 0, .max = DEVICES_MAX};
static const struct schema_type device_ordinal = {.kind = SCHEMA_INT,
                                                  .expects = "an integer",
                                                  .size = sizeof(struct job_num),
                                                  .min = 0,
                                                  .max = DEVICES_MAX - 1};
static const struct schema_type device_list = {.kind = SCHEMA_LIST,
                                               .expects = "a list of device indices",
                                               .at = AT(job_pool, list),
                                               .item = &device_ordinal,
                                               LOC(job_nums)};
static const struct schema_type gpus = {.kind = SCHEMA_EITHER,
                                        .expects = "a number of GPUs, or a list of their indices",
                                        .example = "gpus: [0, 1]",
                                        .scalar = &schema_device_count,
                                        .list = &device_list};
static const struct schema_type pool = {.kind = SCHEMA_EITHER,
                                        .expects =
                                            "a number of devices, or a list of their indices",
                                        .size = sizeof(struct job_host_devices),
                                        .at = AT(job_host_devices, pool),
                                        .scalar = &schema_device_count,
                                        .list = &device_list};
static const struct schema_type pools = {.kind = SCHEMA_NAMED,
                                         .expects = "a mapping of kinds of memory to devices",
                                         .example = "devices: {hpu: 4}",
                                         .item = &pool,
                                         .check_key = name_check_kind};

/* ---- hosts ---- */

static const struct schema_type host_pattern = {
    .kind = SCHEMA_STR, .expects = "a host name", .check = name_check_hosts};
static const struct schema_type port = {
    .kind = SCHEMA_INT, .expects = "an integer", .min = 1, .max = 65535};
static const struct schema_type slots = {
    .kind = SCHEMA_INT, .expects = "an integer", .min = 1, .max = JOB_RANKS_MAX};

/* The keys of hosts.defaults and of every host. */
#define HOST_KEYS                                                                                  \
    {KEY("user", text, AT(job_host, user), NULL, "User name for the login")},                      \
        {KEY("port", port, AT(job_host, port), "22", "Port of the SSH server")},                   \
        {KEY("slots", slots, AT(job_host, slots), NULL, "Maximum number of ranks on the host")},   \
        {KEY("gpus", gpus, AT(job_host, gpus), NULL,                                               \
             "Number of GPUs that ranks may use, or a list of their indices")},                    \
        {KEY("devices", pools, AT(job_host, devices), NULL,                                        \
             "Devices of each kind of memory that ranks may use, as in {hpu: 4}")},                \
        {KEY("transport", transport, AT(job_host, transport), "ssh",                               \
             "Connection to the host: local is this machine, slurm uses srun, command any "        \
             "program")},                                                                          \
    {                                                                                              \
        KEY("workdir", absolute_path, AT(job_host, workdir), NULL,                                 \
            "Working directory of the ranks")                                                      \
    }

static const struct schema_key default_keys[] = {HOST_KEYS, {0}};
static const struct schema_type host_defaults = {.kind = SCHEMA_MAP,
                                                 .expects = "a mapping",
                                                 .example = "defaults: {slots: 4}",
                                                 .keys = default_keys,
                                                 LOC(job_host)};
static const struct schema_key host_keys[] = {
    {KEY("name", host_pattern, AT(job_host, name), NULL,
         "Name of the host in plans, labels and messages; gpu[01-02] names several hosts"),
     .required = true},
    {KEY("address", text, AT(job_host, address), NULL,
         "Network address, if it differs from the name")},
    HOST_KEYS,
    {0},
};
static const struct schema_type host_map = {.kind = SCHEMA_MAP,
                                            .expects = "a mapping",
                                            .example = "{name: node1, slots: 4}",
                                            .keys = host_keys,
                                            LOC(job_host)};
static const struct schema_type host = {.kind = SCHEMA_EITHER,
                                        .expects = "a host name, or a mapping",
                                        .example = "{name: node1, slots: 4}",
                                        .size = sizeof(struct job_host),
                                        .scalar = &host_pattern,
                                        .map = &host_map};
static const struct schema_type nodes = {.kind = SCHEMA_LIST,
                                         .expects = "a list of hosts",
                                         .example = "nodes: [node1, node2]",
                                         .item = &host,
                                         .not_empty = true,
                                         .loc_at = NO_LOC};
static const struct schema_type host_file = {
    .kind = SCHEMA_STR, .expects = "a path", .check = name_check_text, .relative = PATH_RELATIVE};
static const struct schema_type spare = {
    .kind = SCHEMA_INT, .expects = "an integer", .min = 0, .max = HOSTS_MAX};
static const struct schema_key hosts_keys[] = {
    {KEY("defaults", host_defaults, AT(job_hosts, defaults), NULL,
         "Values for all hosts that do not set their own")},
    {KEY("nodes", nodes, AT(job_hosts, nodes), NULL,
         "The hosts, in the order in which ranks are placed on them")},
    {KEY("file", host_file, AT(job_hosts, file), NULL,
         "Host file of MPI in place of nodes; its lines are `name`, `name slots=4` or `name:4`")},
    {KEY("spare", spare, AT(job_hosts, spare), "0",
         "Number of hosts, the last ones, without ranks; a restart puts one in the place of each "
         "lost host")},
    {0},
};
static const struct schema_choice host_lists[] = {
    {"slurm", JOB_ALLOCATION_SLURM}, {"pbs", JOB_ALLOCATION_PBS},   {"lsf", JOB_ALLOCATION_LSF},
    {"sge", JOB_ALLOCATION_SGE},     {"flux", JOB_ALLOCATION_FLUX}, {0}};
static const struct schema_type hosts_name = {
    .kind = SCHEMA_CHOICE, .example = "hosts: {nodes: [node1, node2]}", .choices = host_lists};
static const struct schema_type hosts_map = {.kind = SCHEMA_MAP,
                                             .expects = "a mapping",
                                             .example = "hosts: {nodes: [node1, node2]}",
                                             .keys = hosts_keys,
                                             LOC(job_hosts)};
const struct schema_type schema_hosts = {.kind = SCHEMA_EITHER,
                                         .expects =
                                             "slurm, pbs, lsf, sge, flux, or a mapping with nodes",
                                         .example = "hosts: {nodes: [node1, node2]}",
                                         .scalar = &hosts_name,
                                         .map = &hosts_map};

/* ---- processes ---- */

static const struct schema_type ranks = {
    .kind = SCHEMA_RANKS, .expects = "a rank set such as 0-3,8-15:2, all, or a list of ranks"};
static const struct schema_type cpus = {
    .kind = SCHEMA_STR, .expects = "a list of CPUs such as 0-3,8", .check = name_check_cpus};
static const struct schema_type need = {.kind = SCHEMA_INT,
                                        .expects = "an integer",
                                        .size = sizeof(struct job_need),
                                        .at = AT(job_need, count),
                                        .min = 0,
                                        .max = DEVICES_MAX};
const struct schema_type schema_device_needs = {
    .kind = SCHEMA_NAMED,
    .expects = "a mapping of kinds of memory to numbers of devices",
    .example = "devices: {hpu: 1}",
    .item = &need,
    .check_key = name_check_kind};

static const struct schema_type rank_count = {
    .kind = SCHEMA_INT, .expects = "an integer", .min = 1, .max = JOB_RANKS_MAX};
static const struct schema_type cpu_count = {
    .kind = SCHEMA_INT, .expects = "an integer", .min = 1, .max = 4096};
static const struct schema_choice map_choices[] = {
    {"block", JOB_MAP_BLOCK}, {"cyclic", JOB_MAP_CYCLIC}, {0}};
static const struct schema_type map_name = {.kind = SCHEMA_CHOICE, .choices = map_choices};
static const struct schema_key map_row_keys[] = {
    {KEY("ranks", ranks, AT(job_map_row, ranks), NULL, "Ranks"), .required = true},
    {KEY("host", text, AT(job_map_row, host), NULL, "Their host, a name of hosts.nodes"),
     .required = true},
    {KEY("cpus", cpus, AT(job_map_row, cpus), NULL,
         "CPUs that each of these ranks may use, in place of processes.bind")},
    {0},
};
static const struct schema_type map_row = {.kind = SCHEMA_MAP,
                                           .expects = "a mapping",
                                           .example = "{ranks: 0-3, host: node1}",
                                           .size = sizeof(struct job_map_row),
                                           .keys = map_row_keys,
                                           LOC(job_map_row)};
static const struct schema_type map_rows = {.kind = SCHEMA_LIST,
                                            .expects = "a list of rows",
                                            .at = AT(job_map, rows),
                                            .item = &map_row,
                                            .not_empty = true,
                                            .loc_at = NO_LOC};
static const struct schema_type map = {
    .kind = SCHEMA_EITHER,
    .expects = "block, cyclic, or a list of {ranks: 0-3, host: NAME, cpus: 0-7}",
    .scalar = &map_name,
    .list = &map_rows};
static const struct schema_choice bind_choices[] = {
    {"auto", JOB_BIND_AUTO}, {"none", JOB_BIND_NONE},
    {"core", JOB_BIND_CORE}, {"l3", JOB_BIND_L3},
    {"numa", JOB_BIND_NUMA}, {"socket", JOB_BIND_SOCKET},
    {"gpu", JOB_BIND_GPU},   {0}};
static const struct schema_type bind = {.kind = SCHEMA_CHOICE, .choices = bind_choices};
static const struct schema_type stack_size = {.kind = SCHEMA_SIZE,
                                              .expects = "a size such as 64KiB, 1GiB or 1000",
                                              .min = 64 << 10,
                                              .max = INT64_MAX,
                                              .range = "a stack needs at least 64KiB"};
static const struct schema_choice unlimited[] = {{"unlimited", INT64_MAX}, {0}};
static const struct schema_type core_size = {.kind = SCHEMA_SIZE,
                                             .expects = "a size such as 1GiB or 0, or unlimited",
                                             .min = 0,
                                             .max = INT64_MAX,
                                             .choices = unlimited};
static const struct schema_type memory_size = {.kind = SCHEMA_SIZE,
                                               .expects = "a size such as 8GiB",
                                               .min = 16 << 20,
                                               .max = INT64_MAX,
                                               .range = "a rank needs at least 16MiB"};
static const struct schema_key limits_keys[] = {
    {KEY("stack", stack_size, AT(job_limits, stack), NULL,
         "Size of the stack of each thread of a rank, also of the thread that runs a workload; "
         "default: that of ulimit -s where collrun-agent runs")},
    {KEY("core", core_size, AT(job_limits, core), NULL,
         "Size of a core file, as with ulimit -c; default: that where collrun-agent runs")},
    {KEY("memory", memory_size, AT(job_limits, memory), NULL,
         "Size of the data of a rank, as with ulimit -d: its heap, stacks and private memory; a "
         "larger allocation fails; default: none")},
    {0},
};
static const struct schema_type limits = {.kind = SCHEMA_MAP,
                                          .expects = "a mapping",
                                          .example = "limits: {stack: 64MiB}",
                                          .keys = limits_keys,
                                          LOC(job_limits)};
static const struct schema_choice stdin_choices[] = {
    {"none", JOB_STDIN_NONE}, {"all", JOB_STDIN_ALL}, {0}};
static const struct schema_type stdin_rank = {.kind = SCHEMA_INT,
                                              .expects = "a rank, none or all",
                                              .min = 0,
                                              .max = JOB_RANKS_MAX - 1,
                                              .choices = stdin_choices};
static const struct schema_key processes_keys[] = {
    {KEY("count", rank_count, AT(job_processes, count), NULL, "Number of ranks"), .required = true,
     .example = "count: 4"},
    {KEY("gpus_per_process", schema_device_count, AT(job_processes, gpus_per_process), "0",
         "Minimum number of GPUs per rank; raised to the largest gpus_per_process of its groups")},
    {KEY("devices", schema_device_needs, AT(job_processes, devices), NULL,
         "Minimum number of devices per rank of each kind of memory, as in {hpu: 1}; raised as "
         "gpus_per_process is, which is the same for the kind whose devices are GPUs")},
    {KEY(
        "map", map, AT(job_processes, map), "block",
        "Placement of ranks on hosts: block fills one host after the other, cyclic gives each host "
        "one rank in turn; a list places every rank on a host")},
    {KEY(
        "bind", bind, AT(job_processes, bind), "auto",
        "CPU binding of each rank: an equal share of its host's cores if there is one for each "
        "rank and no other job of collrun uses them (auto), cpus_per_process cores (core), the "
        "cores that share a level 3 cache (l3), those of a NUMA node (numa) or socket (socket), or "
        "the CPUs near its devices (gpu); on each host by its own topology")},
    {KEY("cpus_per_process", cpu_count, AT(job_processes, cpus_per_process), "1",
         "Number of cores per rank with bind: core")},
    {KEY("stdin", stdin_rank, AT(job_processes, stdin_rank), "none",
         "The rank that reads the standard input of collrun, or all: each rank gets a copy; the "
         "others read /dev/null")},
    {KEY("limits", limits, AT(job_processes, limits), NULL, "Resource limits of each rank")},
    {0},
};
const struct schema_type schema_processes = {.kind = SCHEMA_MAP,
                                             .expects = "a mapping",
                                             .example = "processes: {count: 4}",
                                             .keys = processes_keys,
                                             LOC(job_processes)};
