/* SPDX-License-Identifier: Apache-2.0
 *
 * The keys of `processes`: the number of ranks, their placement, binding and limits.
 */
#include "base/devices.h"
#include "spec/job.h"
#include "spec/names.h"
#include "spec/schema_table.h"

static const struct schema_type text = {
    .kind = SCHEMA_STR, .expects = "a string", .check = name_check_text};
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
