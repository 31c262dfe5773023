/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads a job: text, tree, --set, schema, then the rest: host ranges and host defaults, derived
 * names, the group `world`, and the checks across keys.
 */
#include "spec/job.h"

#include "base/quote.h"
#include "spec/allocation.h"
#include "spec/check.h"
#include "spec/env_file.h"
#include "spec/host_table.h"
#include "spec/layers.h"
#include "spec/names.h"
#include "spec/path.h"
#include "spec/ranks.h"
#include "spec/schema.h"
#include "spec/walk.h"
#include "spec/yaml.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- derived names ---- */

static const char *job_base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* `s` without `suffix`, unless nothing would be left. */
static const char *job_strip(struct arena *arena, const char *s, const char *suffix)
{
    size_t len = strlen(s), cut = strlen(suffix);
    if (len <= cut || strcmp(s + len - cut, suffix) != 0)
        return s;
    return arena_strndup(arena, s, len - cut);
}

/* The name of a file may have any bytes; that of a job stands in JSON, which has UTF-8 only. */
static const char *job_utf8(struct arena *arena, const char *s)
{
    char *out = arena_strdup(arena, s);
    for (size_t i = 0, n, len = strlen(s); i < len; i += n) {
        n = utf8_len(out + i, len - i);
        if (!n)
            out[i] = '?', n = 1;
    }
    return out;
}

static void job_set_name(struct job *job, const char *by_default, struct arena *arena)
{
    if (job->name.v)
        return;
    const char *file = by_default ? by_default : job->file;
    const char *name = job_strip(arena, job_base_name(file), ".yaml");
    job->name.v = job_utf8(arena, job_strip(arena, name, ".yml"));
}

static const char *job_plugin_name(struct arena *arena, const char *plugin)
{
    const char *name = job_strip(arena, job_base_name(plugin), ".so");
    return strncmp(name, "lib", 3) == 0 && name[3] ? name + 3 : name;
}

/* The file of a workload: its plugin, or the program of its command. NULL: it was refused. */
static const char *job_workload_file(const struct job_workload *workload)
{
    return workload->command.n ? workload->command.items[0].v : workload->plugin.v;
}

/* "hello", and "hello#2" for the second workload with the same plugin or program. */
static void job_name_workload(struct job *job, uint32_t index, struct arena *arena)
{
    struct job_workload *workload = &job->workloads[index];
    const char *file = job_workload_file(workload);
    if (workload->name.v || !file)
        return;
    uint32_t number = 1;
    for (uint32_t i = 0; i < index; i++) {
        const struct job_workload *other = &job->workloads[i];
        const char *others = job_workload_file(other);
        number += !other->name.loc.line && others && strcmp(others, file) == 0;
    }
    const char *name = workload->command.n ? job_base_name(file) : job_plugin_name(arena, file);
    workload->name.v = number == 1 ? name : arena_printf(arena, "%s#%u", name, number);
}

/* ---- the implicit group ---- */

static struct node *job_add_entry(const struct node *map, struct node_entry entry,
                                  struct arena *arena)
{
    struct node *copy = arena_memdup(arena, map, sizeof *map);
    struct node_entry *entries = arena_calloc(arena, map->n + 1, sizeof *entries);
    entries[0] = entry;
    if (map->n)
        memcpy(entries + 1, map->entries, map->n * sizeof *entries);
    copy->entries = entries;
    copy->n = map->n + 1;
    return copy;
}

/* Puts `world:` before the other groups unless it is listed; the schema adds its defaults. */
static struct node *job_add_world(struct node *root, struct arena *arena)
{
    static const struct node none = {.kind = NODE_MAP, .weight = 1};
    const struct node *groups = root->kind == NODE_MAP ? node_get(root, "groups") : &none;
    if (root->kind != NODE_MAP ||
        (groups && (groups->kind != NODE_MAP || node_get(groups, "world"))))
        return root;
    struct node_entry world = {.key = "world", .value = node_scalar(arena, "")};
    struct node *with = job_add_entry(groups ? groups : &none, world, arena);
    if (!groups)
        return job_add_entry(root, (struct node_entry){.key = "groups", .value = with}, arena);
    struct node *copy = node_copy(root, arena);
    for (uint32_t i = 0; i < copy->n; i++)
        if (strcmp(copy->entries[i].key, "groups") == 0)
            copy->entries[i].value = with;
    return copy;
}

/* ---- hosts ---- */

/* This machine, or in place of refused hosts: a remote one, about which nothing is known. */
static void job_default_host(struct job_hosts *hosts, struct arena *arena)
{
    char name[HOST_NAME_MAX + 1] = "localhost";
    gethostname(name, sizeof name - 1);
    hosts->nodes = arena_calloc(arena, 1, sizeof *hosts->nodes);
    hosts->nodes[0].name.v = arena_strdup(arena, name);
    hosts->nodes[0].transport.kind.v = hosts->refused ? JOB_TRANSPORT_SSH : JOB_TRANSPORT_LOCAL;
    hosts->n = 1;
}

static int job_add_written(struct host_table *table, const struct job_host *written, uint32_t n)
{
    struct job_hosts *hosts = table->hosts;
    int code = 0;
    for (uint32_t i = 0; i < n && code == 0; i++) {
        hosts->refused = hosts->refused || !written[i].name.v;
        code = written[i].name.v ? host_table_add(table, &written[i], NULL) : 0;
    }
    return code;
}

/* The hosts are in the job file, or in a host file. */
static void job_check_hosts(struct job *job, struct diag_list *diags)
{
    struct job_hosts *hosts = &job->hosts;
    const struct node *map = node_get(job->tree, "hosts");
    struct diag d;
    bool nodes = map && node_get(map, "nodes"), file = map && node_get(map, "file");
    if (hosts->all.v || nodes != file || hosts->refused)
        return;
    if (file)
        diag_at(&d, hosts->file.loc, "hosts: `file` and `nodes` exclude each other");
    else
        diag_at(&d, hosts->loc, "hosts: `nodes` is missing");
    if (!file)
        diag_hint(&d, "nodes: [HOST, ...] lists the hosts; file: FILE names a host file of MPI");
    diag_list_add(diags, &d);
    hosts->refused = true;
}

/* Hosts from outside the job file. */
static void job_read_hosts(struct job *job, struct host_table *table, struct diag_list *diags)
{
    struct diag d;
    diag_init(&d);
    int code = job->hosts.all.v ? allocation_read(table, &d)
                                : host_file_read(table, job->dir, &job->sources, &d);
    if (code < 0) {
        diag_list_add(diags, &d);
        job->hosts.n = 0;
    }
}

/* The last hosts.spare nodes. */
static void job_take_spares(struct job_hosts *hosts, struct diag_list *diags)
{
    struct diag d;
    if (!hosts->spare.v || !hosts->n)
        return;
    if (hosts->spare.v >= hosts->n) {
        diag_at(&d, hosts->spare.loc, "hosts.spare: %d of %u host%s would leave none for the ranks",
                (int)hosts->spare.v, hosts->n, hosts->n == 1 ? "" : "s");
        diag_list_add(diags, &d);
        return;
    }
    hosts->nspares = (uint32_t)hosts->spare.v;
    hosts->n -= hosts->nspares;
    hosts->spares = hosts->nodes + hosts->n;
}

static void job_expand_hosts(struct job *job, struct arena *arena, struct diag_list *diags)
{
    struct job_hosts *hosts = &job->hosts;
    struct host_table table = {.hosts = hosts, .arena = arena};
    const struct job_host *written = hosts->nodes;
    uint32_t n = hosts->n;
    if (hosts->defaults.transport.command.loc.line)
        hosts->defaults.transport.kind =
            (struct job_num){JOB_TRANSPORT_COMMAND, hosts->defaults.transport.command.loc};
    hosts->nodes = NULL;
    hosts->n = 0;
    if (!hosts->loc.line && !hosts->all.loc.line) {
        job_default_host(hosts, arena);
        return;
    }
    job_check_hosts(job, diags);
    if (hosts->all.v || (hosts->file.v && !n))
        job_read_hosts(job, &table, diags);
    else
        job_add_written(&table, written, n);
    job_take_spares(hosts, diags);
    if (!hosts->n) {
        hosts->refused = true;
        job_default_host(hosts, arena);
    }
}

/* A program with a slash is relative to the folder of the job file, as that of a workload. */
static void job_find_transport(struct job_transport *transport, const char *dir,
                               struct arena *arena)
{
    struct job_str *program = transport->command.n ? &transport->command.items[0] : NULL;
    if (program && program->v && strchr(program->v, '/'))
        program->v = path_join(dir, program->v, arena);
}

static void job_find_transports(struct job *job, struct arena *arena)
{
    job_find_transport(&job->hosts.defaults.transport, job->dir, arena);
    for (uint32_t i = 0; i < job->hosts.n; i++)
        job_find_transport(&job->hosts.nodes[i].transport, job->dir, arena);
}

/* ---- the number of ranks ---- */

static uint32_t job_end_of_ranks(const struct job_ranks *ranks, uint32_t nranks)
{
    for (uint32_t i = 0; i < ranks->n; i++) {
        const struct parse_range *range = &ranks->parts[i].range;
        uint64_t last = range->first + (parse_range_count(range) - 1) * range->step;
        if (last >= nranks && last < JOB_RANKS_MAX)
            nranks = (uint32_t)last + 1;
    }
    return nranks;
}

static void job_count_ranks(struct job *job)
{
    job->nranks = (uint32_t)job->processes.count.v;
    if (job->nranks)
        return;
    job->nranks = 1;
    for (uint32_t i = 0; i < job->ngroups; i++)
        job->nranks = job_end_of_ranks(&job->groups[i].ranks, job->nranks);
    for (uint32_t i = 0; i < job->nworkloads; i++)
        job->nranks = job_end_of_ranks(&job->workloads[i].ranks, job->nranks);
}

/* ---- the ranks of a plugin without `ranks` ---- */

/* A rank that runs a command has no other workload. */
static bool *job_find_commands(const struct job *job, struct arena *arena)
{
    bool *command = arena_calloc(arena, job->nranks, sizeof *command);
    for (uint32_t i = 0; i < job->nworkloads; i++) {
        const struct job_workload *w = &job->workloads[i];
        for (uint32_t r = 0; w->command.n && !w->ranks.refused && r < job->nranks; r++)
            command[r] = command[r] || job_ranks_has(&w->ranks, r);
    }
    return command;
}

/* All; of a plugin those that run no command, or if all run one, all: an error. */
static void job_set_default_ranks(struct job *job, struct arena *arena)
{
    for (uint32_t i = 0; i < job->nworkloads; i++)
        job->workloads[i].ranks.all = job->workloads[i].ranks.all || !job->workloads[i].ranks.n;
    const bool *command = job_find_commands(job, arena);
    struct job_rank_part *parts = arena_calloc(arena, job->nranks, sizeof *parts);
    uint32_t n = 0, left_out = 0;
    for (uint32_t r = 0; r < job->nranks; r++) {
        left_out += command[r];
        if (!command[r] && (r == 0 || command[r - 1]))
            parts[n++].range = (struct parse_range){.first = r, .step = 1};
        if (!command[r])
            parts[n - 1].range.last = r;
    }
    for (uint32_t i = 0; n && left_out && i < job->nworkloads; i++) {
        struct job_workload *w = &job->workloads[i];
        if (!w->command.n && !w->ranks.loc.line)
            w->ranks = (struct job_ranks){.parts = parts, .n = n};
    }
}

/* What rank sets may name, for the reader of the whole file, which reports the errors. */
static void job_place_roles(struct job *job, const struct node *root, struct arena *arena)
{
    static const struct parse_rank_names none = {0};
    struct job head = {0};
    struct diag_list ignored;
    diag_list_init(&ignored);
    walk_read(&schema_head, root, &head, &none, arena, &ignored);
    ranks_place_roles(&head, arena, &ignored);
    diag_list_fini(&ignored);
    job->rank_names = head.rank_names;
    if (node_get(root, "roles") && !head.nroles)
        job->rank_names.unknown = true; /* they are no mapping, which is reported */
}

/* ---- reading ---- */

static int job_fail(struct diag_list *diags, const struct diag *d)
{
    diag_list_add(diags, d);
    return d->code;
}

static int job_read_tree(struct job *job, const struct job_request *request, struct arena *arena,
                         struct node **root, struct diag_list *diags)
{
    struct diag d;
    struct source *source;
    if (request->text)
        source = source_add(&job->sources, arena, job->file, request->text, strlen(request->text));
    else if (source_read(&job->sources, arena, job->file, "job file", &source, &d) < 0)
        return job_fail(diags, &d);
    int code = yaml_read(source, NULL, arena, root, diags);
    return code < 0 ? code : layers_add(root, request, &job->matrix, &job->sources, arena, diags);
}

int job_read(struct job *job, const struct job_request *request, struct arena *arena,
             struct diag_list *diags)
{
    *job = (struct job){.file = request->file};
    uint32_t before = diag_list_count(diags);
    struct node *root = NULL;
    int code = job_read_tree(job, request, arena, &root, diags);
    if (code < 0)
        return code;
    job->written = root;
    root = ranks_add_mesh_groups(job_add_world(root, arena), arena);
    job->tree = root;
    job_place_roles(job, root, arena);
    const struct parse_rank_names names = job->rank_names;
    walk_read(&schema_job, root, job, &names, arena, diags);
    ranks_place_roles(job, arena, diags);
    ranks_resolve_mesh(job, arena, diags);
    job->dir = path_folder(request->text ? NULL : job->file, arena);
    job_set_name(job, request->name, arena);
    for (uint32_t i = 0; i < job->nworkloads; i++)
        job_name_workload(job, i, arena);
    for (uint32_t i = 0; i < job->ngroups; i++)
        if (job->groups[i].nbackends)
            job->groups[i].backend.v = NULL;
    job->hosts.refused =
        !job->hosts.loc.line && !job->hosts.all.loc.line && node_get(root, "hosts");
    env_files_read(job, arena, diags);
    job_find_transports(job, arena);
    job_expand_hosts(job, arena, diags);
    job_count_ranks(job);
    job_set_default_ranks(job, arena);
    job->complete = true;
    job_check(job, arena, diags);
    return diag_list_count(diags) > before ? COLLRUN_ERR_INVALID : 0;
}
