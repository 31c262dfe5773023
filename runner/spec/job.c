/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading a job: text, tree, --set, schema, then what the schema cannot say: host ranges and
 * defaults, names that follow from others, the group `world`. Last come the checks across keys.
 */
#include "spec/job.h"

#include "spec/check.h"
#include "spec/names.h"
#include "spec/schema.h"
#include "spec/set.h"
#include "spec/slurm.h"
#include "spec/walk.h"
#include "spec/yaml.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool job_is_auto(const struct job_str *backend)
{
    return backend->v && !strcasecmp(backend->v, "auto");
}

bool job_ranks_has(const struct job_ranks *ranks, uint32_t rank)
{
    for (uint32_t i = 0; i < ranks->n; i++) {
        const struct parse_range *range = &ranks->parts[i].range;
        if (rank >= range->first && rank <= range->last && (rank - range->first) % range->step == 0)
            return true;
    }
    return ranks->all;
}

/* ---- names that follow from others ---- */

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* `s` without `suffix`, if it ends so and more is left. */
static const char *without(struct arena *arena, const char *s, const char *suffix)
{
    size_t len = strlen(s), cut = strlen(suffix);
    if (len <= cut || strcmp(s + len - cut, suffix) != 0)
        return s;
    return arena_strndup(arena, s, len - cut);
}

static void name_job(struct job *job, struct arena *arena)
{
    if (job->name.v)
        return;
    const char *name = without(arena, base_name(job->file), ".yaml");
    job->name.v = name ? without(arena, name, ".yml") : NULL;
}

static const char *plugin_name(struct arena *arena, const char *plugin)
{
    const char *name = without(arena, base_name(plugin), ".so");
    return name && !strncmp(name, "lib", 3) && name[3] ? name + 3 : name;
}

/* "hello", and "hello#2" for the second that names the same plugin. */
static void name_workload(struct job *job, uint32_t index, struct arena *arena)
{
    struct job_workload *workload = &job->workloads[index];
    if (workload->name.v || !workload->plugin.v)
        return;
    uint32_t number = 1;
    for (uint32_t i = 0; i < index; i++) {
        const struct job_workload *other = &job->workloads[i];
        number += !other->name.loc.line && other->plugin.v &&
                  !strcmp(other->plugin.v, workload->plugin.v);
    }
    const char *name = plugin_name(arena, workload->plugin.v);
    workload->name.v = number == 1 || !name ? name : arena_printf(arena, "%s#%u", name, number);
}

/* ---- the implicit group ---- */

static struct node *add_entry(const struct node *map, struct node_entry entry, struct arena *arena)
{
    struct node *copy = arena_memdup(arena, map, sizeof *map);
    struct node_entry *entries = arena_calloc(arena, map->n + 1, sizeof *entries);
    if (!copy || !entries)
        return NULL;
    entries[0] = entry;
    if (map->n)
        memcpy(entries + 1, map->entries, map->n * sizeof *entries);
    copy->entries = entries;
    copy->n = map->n + 1;
    return copy;
}

/* Puts `world:` at the head of `groups`, unless it is there; the schema then gives it its defaults.
 */
static struct node *add_world(struct node *root, struct arena *arena)
{
    static const struct node none = {.kind = NODE_MAP, .weight = 1};
    const struct node *groups = root->kind == NODE_MAP ? node_get(root, "groups") : &none;
    if (root->kind != NODE_MAP ||
        (groups && (groups->kind != NODE_MAP || node_get(groups, "world"))))
        return root;
    struct node_entry world = {.key = "world", .value = node_scalar(arena, "")};
    struct node *with = world.value ? add_entry(groups ? groups : &none, world, arena) : NULL;
    if (!with)
        return NULL;
    if (!groups)
        return add_entry(root, (struct node_entry){.key = "groups", .value = with}, arena);
    struct node *copy = node_copy(root, arena);
    for (uint32_t i = 0; copy && i < copy->n; i++)
        if (!strcmp(copy->entries[i].key, "groups"))
            copy->entries[i].value = with;
    return copy;
}

/* ---- hosts ---- */

static void merge_str(struct job_str *to, const struct job_str *from)
{
    if (!to->loc.line)
        *to = *from;
}

static void merge_num(struct job_num *to, const struct job_num *from)
{
    if (!to->loc.line)
        *to = *from;
}

static void name_command(struct job_transport *transport)
{
    if (!transport->command.loc.line)
        return;
    transport->kind.v = JOB_TRANSPORT_COMMAND;
    transport->kind.loc = transport->command.loc;
}

static void merge_host(struct job_host *host, const struct job_host *defaults)
{
    merge_str(&host->user, &defaults->user);
    merge_str(&host->workdir, &defaults->workdir);
    merge_num(&host->port, &defaults->port);
    merge_num(&host->slots, &defaults->slots);
    if (!host->gpus.count.loc.line && !host->gpus.list.loc.line)
        host->gpus = defaults->gpus;
    name_command(&host->transport);
    if (!host->transport.kind.loc.line)
        host->transport = defaults->transport;
    if (!host->loc.line)
        host->loc = host->name.loc;
}

static int add_hosts(struct job_hosts *hosts, const struct job_host *written, uint32_t *capacity,
                     struct arena *arena)
{
    const char **names;
    uint32_t n;
    if (!written->name.v || hosts->n > HOSTS_MAX)
        return 0;
    int code = name_expand_hosts(written->name.v, arena, &names, &n, NULL);
    if (code < 0)
        return code;
    if (hosts->n + n > *capacity) {
        *capacity = 2 * (hosts->n + n);
        struct job_host *grown = arena_calloc(arena, *capacity, sizeof *grown);
        if (!grown)
            return COLLRUN_ERR_NO_MEMORY;
        if (hosts->n)
            memcpy(grown, hosts->nodes, hosts->n * sizeof *grown);
        hosts->nodes = grown;
    }
    for (uint32_t i = 0; i < n; i++) {
        struct job_host *host = &hosts->nodes[hosts->n++];
        *host = *written;
        host->name.v = names[i];
        merge_host(host, &hosts->defaults);
    }
    return 0;
}

static int this_machine(struct job_hosts *hosts, struct arena *arena)
{
    char name[HOST_NAME_MAX + 1] = "localhost";
    gethostname(name, sizeof name - 1);
    hosts->nodes = arena_calloc(arena, 1, sizeof *hosts->nodes);
    if (!hosts->nodes)
        return COLLRUN_ERR_NO_MEMORY;
    hosts->nodes[0].name.v = arena_strdup(arena, name);
    hosts->nodes[0].transport.kind.v = JOB_TRANSPORT_LOCAL;
    hosts->n = 1;
    return 0;
}

static int expand_hosts(struct job_hosts *hosts, struct arena *arena, struct diag_list *diags)
{
    struct job_host *written = hosts->nodes;
    uint32_t n = hosts->n, capacity = 0;
    name_command(&hosts->defaults.transport);
    hosts->nodes = NULL;
    hosts->n = 0;
    if (!hosts->loc.line && !hosts->all.loc.line)
        return this_machine(hosts, arena);
    if (hosts->all.v) {
        struct diag d;
        diag_init(&d);
        if (slurm_hosts(hosts, getenv("SLURM_JOB_NODELIST"), getenv("SLURM_TASKS_PER_NODE"), arena,
                        &d) == 0)
            return 0;
        diag_list_add(diags, &d);
        return this_machine(hosts, arena);
    }
    int code = 0;
    for (uint32_t i = 0; i < n && code == 0; i++)
        code = add_hosts(hosts, &written[i], &capacity, arena);
    return code;
}

/* A group brings all the GPUs of its members, unless it says otherwise. */
static void settle_group(struct job_group *group, const struct job_processes *processes)
{
    merge_num(&group->gpus_per_process, &processes->gpus_per_process);
    if (group->backend_host.v || group->backend_cuda.v)
        group->backend.v = NULL;
}

/* ---- reading ---- */

static int fail(struct diag_list *diags, const struct diag *d)
{
    diag_list_add(diags, d);
    return d->code;
}

static int out_of_memory(struct diag_list *diags)
{
    struct diag d;
    diag_set(&d, COLLRUN_ERR_NO_MEMORY, "out of memory");
    return fail(diags, &d);
}

static const char *folder_of(const char *file, struct arena *arena)
{
    char *real = realpath(file, NULL);
    char *slash = real ? strrchr(real, '/') : NULL;
    const char *dir = !real           ? ""
                      : slash == real ? "/"
                                      : arena_strndup(arena, real, (size_t)(slash - real));
    free(real);
    return dir;
}

static int read_tree(struct job *job, const char *const *sets, uint32_t nsets, struct arena *arena,
                     struct node **root, struct diag_list *diags)
{
    struct diag d;
    struct source *source;
    if (source_read(&job->sources, arena, job->file, &source, &d) < 0)
        return fail(diags, &d);
    int code = yaml_read(source, NULL, arena, root, diags);
    for (uint32_t i = 0; i < nsets && code == 0; i++)
        set_apply(root, sets[i], i + 1, &job->sources, arena, diags);
    return code;
}

int job_read(struct job *job, const char *file, const char *const *sets, uint32_t nsets,
             struct arena *arena, struct diag_list *diags)
{
    *job = (struct job){.file = file};
    uint32_t before = diag_list_count(diags);
    struct node *root = NULL;
    int code = read_tree(job, sets, nsets, arena, &root, diags);
    if (code < 0)
        return code;
    root = add_world(root, arena);
    if (!root)
        return out_of_memory(diags);
    job->tree = root;
    walk_read(&schema_job, root, job, arena, diags);
    job->dir = folder_of(file, arena);
    name_job(job, arena);
    for (uint32_t i = 0; i < job->nworkloads; i++)
        name_workload(job, i, arena);
    for (uint32_t i = 0; i < job->ngroups; i++)
        settle_group(&job->groups[i], &job->processes);
    if (expand_hosts(&job->hosts, arena, diags) < 0 || arena_failed(arena))
        return out_of_memory(diags);
    job->complete = true;
    job_check(job, arena, diags);
    return diag_list_count(diags) > before ? COLLRUN_ERR_INVALID : 0;
}
