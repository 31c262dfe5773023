/* SPDX-License-Identifier: Apache-2.0
 *
 * The keys of `hosts`: the hosts, their transports and the devices that ranks may use there.
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
