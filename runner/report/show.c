/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints tables with columns as wide as their widest cell, and the same data as JSON.
 */
#include "report/show.h"

#include "base/names.h"
#include "base/parse.h"
#include "report/json_value.h"
#include "spec/secrets.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* ---- how many communicators the devices of the ranks will hold: each takes memory of its device
 * ---- */

struct communicators {
    uint32_t at_start; /* when the groups have been formed */
    uint32_t at_most;  /* with those that are formed when they are first used */
};

static bool communicators_has_member(const struct desc_group *group, uint32_t rank)
{
    for (uint32_t i = 0; i < group->ranks.n; i++)
        if (group->ranks.items[i] == rank)
            return true;
    return false;
}

/* The value of an option of the group, which goes before that of its backend; "": it has none. */
static const char *communicators_option(const struct desc_group *group,
                                        const struct desc_backend *backend, const char *key)
{
    const struct desc_kvs *const sources[] = {&group->options, &backend->options};
    for (int s = 0; s < 2; s++)
        for (uint32_t i = 0; i < sources[s]->n; i++)
            if (strcmp(sources[s]->items[i].key, key) == 0)
                return sources[s]->items[i].value;
    return "";
}

/* Adds the communicators of one group on one of its backends. */
static void communicators_add(const struct desc_group *group, const struct desc_backend *backend,
                              uint32_t ndevices, struct communicators *out)
{
    bool alone = group->ranks.n * ndevices == 1; /* one handle, which is formed at once */
    uint32_t most = alone ? 1 : backend->communicators;
    bool later = backend->on_demand && !alone;
    const char *option = backend->direction_option;
    if (*option &&
        strcmp(communicators_option(group, backend, option), backend->direction_value) == 0)
        most += 2 * (group->ranks.n * ndevices - 1); /* to and from each other device */
    out->at_most += most;
    out->at_start += !later ? most : group->on_demand ? 0 : 1;
}

/* Whether the rank's device of that index is one of the group's, which a workload may use. */
static bool communicators_has_device(const struct desc *desc, uint32_t group, uint32_t rank,
                                     uint32_t kind, uint32_t device, uint32_t *ndevices)
{
    uint32_t wanted = desc_group_devices(&desc->groups[group], kind);
    *ndevices = wanted ? wanted : 1;
    return device < *ndevices && communicators_has_member(&desc->groups[group], rank) &&
           desc_group_is_used(desc, group);
}

/* The communicators of one device, over all groups of job.yaml; `device` is an index into the
 * devices of the kind that the rank has. Groups that a workload creates are not known to the plan.
 */
static struct communicators communicators_on(const struct desc *desc, uint32_t rank, uint32_t kind,
                                             uint32_t device)
{
    struct communicators n = {0};
    uint32_t ndevices;
    for (uint32_t i = 0; i < desc->ngroups; i++) {
        const struct desc_group *group = &desc->groups[i];
        if (!communicators_has_device(desc, i, rank, kind, device, &ndevices))
            continue;
        for (uint32_t k = 0; k <= group->nroutes; k++) {
            uint32_t backend = k ? group->routes[k - 1].backend : group->backend;
            if (strcmp(desc->backends[backend].device_kind, desc->kinds[kind].name) == 0)
                communicators_add(group, &desc->backends[backend], ndevices, &n);
        }
    }
    return n;
}

/* ---- the plan ---- */

/* ---- tables ---- */

enum { COLUMNS_MAX = 16 };

struct table {
    const char *const *cells; /* the heads first, row after row */
    uint32_t rows, columns;
};

static size_t show_width_of(const char *s)
{
    size_t n = 0;
    for (; *s; s++)
        n += ((unsigned char)*s & 0xc0) != 0x80;
    return n;
}

static void show_print_table(const struct table *t, FILE *out)
{
    size_t widths[COLUMNS_MAX] = {0};
    for (uint32_t i = 0; i < t->rows * t->columns; i++) {
        size_t width = show_width_of(t->cells[i]);
        if (width > widths[i % t->columns])
            widths[i % t->columns] = width;
    }
    for (uint32_t i = 0; i < t->rows * t->columns; i++) {
        bool last = (i + 1) % t->columns == 0;
        size_t pad = last ? 0 : widths[i % t->columns] - show_width_of(t->cells[i]) + 2;
        fprintf(out, "%s%*s%s", t->cells[i], (int)pad, "", last ? "\n" : "");
    }
}

/* ---- the plan ---- */

/* The number of ranks from `i` on with equal steps; two ranks count only with step 1. */
static uint32_t show_run_length(const struct desc_ranks *ranks, uint32_t i)
{
    uint32_t k = i + 1;
    if (k == ranks->n || ranks->items[k] <= ranks->items[i])
        return 1;
    uint32_t step = ranks->items[k] - ranks->items[i];
    while (k < ranks->n && ranks->items[k] > ranks->items[k - 1] &&
           ranks->items[k] - ranks->items[k - 1] == step)
        k++;
    return k - i > 2 || step == 1 ? k - i : 1;
}

/* "0-3,8-14:2" for ranks in any order that begins so. */
static const char *show_ranks(const struct desc_ranks *ranks, struct arena *arena)
{
    struct buf text;
    buf_init(&text);
    for (uint32_t i = 0; i < ranks->n;) {
        char part[64];
        uint32_t n = show_run_length(ranks, i), first = ranks->items[i],
                 last = ranks->items[i + n - 1];
        uint32_t step = n > 1 ? ranks->items[i + 1] - first : 1;
        int len = snprintf(part, sizeof part, "%s%u", i ? "," : "", first);
        if (n > 1)
            len += snprintf(part + len, sizeof part - (size_t)len, "-%u", last);
        if (step > 1)
            len += snprintf(part + len, sizeof part - (size_t)len, ":%u", step);
        buf_put(&text, part, (size_t)len);
        i += n;
    }
    const char *copy = text.data ? arena_strndup(arena, (char *)text.data, text.len) : "";
    buf_fini(&text);
    return copy;
}

/* The members of groups or workloads: has[group][rank]. */
struct members {
    const char **names;
    bool **has;
    uint32_t n;
};

static void members_add(struct members *members, const char *name, const struct desc_ranks *ranks,
                        bool *has)
{
    for (uint32_t i = 0; i < ranks->n; i++)
        has[ranks->items[i]] = true;
    members->names[members->n] = name;
    members->has[members->n++] = has;
}

static void members_init(struct members *members, uint32_t n, struct arena *arena)
{
    *members = (struct members){.names = arena_calloc(arena, n, sizeof *members->names),
                                .has = arena_calloc(arena, n, sizeof(bool *))};
}

static void members_find(const struct desc *desc, struct arena *arena, struct members *groups,
                         struct members *workloads)
{
    members_init(groups, desc->ngroups, arena);
    members_init(workloads, desc->nworkloads, arena);
    for (uint32_t i = 0; i < desc->ngroups; i++)
        members_add(groups, desc->groups[i].name, &desc->groups[i].ranks,
                    arena_calloc(arena, desc->nranks, sizeof(bool)));
    for (uint32_t i = 0; i < desc->nworkloads; i++)
        members_add(workloads, desc->workloads[i].name, &desc->workloads[i].ranks,
                    arena_calloc(arena, desc->nranks, sizeof(bool)));
}

/* "world, train", or "-". */
static const char *show_join(const struct members *members, uint32_t rank, struct arena *arena)
{
    const char *list = "";
    for (uint32_t i = 0; i < members->n; i++)
        if (members->has[i][rank])
            list =
                *list ? arena_printf(arena, "%s, %s", list, members->names[i]) : members->names[i];
    return *list ? list : "-";
}

/* "0,1", or "-". */
static const char *show_devices(const struct desc_rank *rank, uint32_t kind, struct arena *arena)
{
    const char *list = "";
    for (uint32_t i = 0; i < rank->ndevices; i++)
        if (rank->devices[i].kind == kind)
            list = arena_printf(arena, "%s%s%u", list, *list ? "," : "", rank->devices[i].index);
    return *list ? list : "-";
}

/* "GPUS": the head of a kind's column. */
static const char *show_kind_head(const struct desc_kind *kind, struct arena *arena)
{
    char *head = arena_printf(arena, "%ss", kind->title);
    for (char *p = head; *p; p++)
        *p = (char)(*p >= 'a' && *p <= 'z' ? *p - ('a' - 'A') : *p);
    return head;
}

/* The kinds of memory of which a rank has devices; at most `max`. */
static uint32_t show_kinds(const struct desc *desc, uint32_t *kinds, uint32_t max)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < desc->nkinds; i++) {
        uint32_t rank = 0;
        while (rank < desc->nranks && !desc_rank_devices(&desc->ranks[rank], i))
            rank++;
        if (rank < desc->nranks && n < max)
            kinds[n++] = i;
    }
    return n;
}

static const char *show_cpus(const struct desc_rank *rank)
{
    if (strcmp(rank->cpus, DESC_CPUS_NEAR_DEVICES) == 0)
        return "near its devices";
    return *rank->cpus && strcmp(rank->cpus, DESC_CPUS_AUTO) != 0 ? rank->cpus : "any";
}

/* 1 if a host was asked. */
static uint32_t show_knows_memory(const struct desc *desc)
{
    for (uint32_t rank = 0; rank < desc->nranks; rank++)
        if (desc->ranks[rank].memory)
            return 1;
    return 0;
}

static void show_ranks_table(const struct desc *desc, struct arena *arena, FILE *out)
{
    enum { FIXED = 6 };
    uint32_t kinds[COLUMNS_MAX - FIXED], nkinds = show_kinds(desc, kinds, COLUMNS_MAX - FIXED);
    const uint32_t memory = show_knows_memory(desc), columns = FIXED - 1 + memory + nkinds;
    const char **cells = arena_calloc(arena, ((size_t)desc->nranks + 1) * columns, sizeof *cells);
    struct members groups, workloads;
    members_find(desc, arena, &groups, &workloads);
    static const char *const heads[] = {"RANK", "HOST", "CPUS", "MEMORY"};
    memcpy(cells, heads, (3 + memory) * sizeof *heads);
    for (uint32_t k = 0; k < nkinds; k++)
        cells[3 + memory + k] = show_kind_head(&desc->kinds[kinds[k]], arena);
    cells[columns - 2] = "GROUPS";
    cells[columns - 1] = "WORKLOADS";
    for (uint32_t rank = 0; rank < desc->nranks; rank++) {
        const char **row = cells + ((size_t)rank + 1) * columns;
        row[0] = arena_printf(arena, "%u", rank);
        row[1] = desc->hosts[desc->ranks[rank].host].name;
        row[2] = show_cpus(&desc->ranks[rank]);
        if (memory)
            row[3] = desc->ranks[rank].memory ? desc->ranks[rank].memory : "";
        for (uint32_t k = 0; k < nkinds; k++)
            row[3 + memory + k] = show_devices(&desc->ranks[rank], kinds[k], arena);
        row[columns - 2] = show_join(&groups, rank, arena);
        row[columns - 1] = show_join(&workloads, rank, arena);
    }
    show_print_table(&(struct table){cells, desc->nranks + 1, columns}, out);
}

/* "shm", or "gloo, nccl" for the host and other kinds of memory. */
static const char *show_group_backends(const struct desc *desc, const struct desc_group *group,
                                       struct arena *arena)
{
    const char *list = desc->backends[group->backend].name;
    for (uint32_t i = 0; i < group->nroutes; i++)
        list = arena_printf(arena, "%s, %s", list, desc->backends[group->routes[i].backend].name);
    return list;
}

static void show_groups_table(const struct desc *desc, struct arena *arena, FILE *out)
{
    enum { COLUMNS = 5 };
    const char **cells = arena_calloc(arena, ((size_t)desc->ngroups + 1) * COLUMNS, sizeof *cells);
    static const char *const heads[] = {"GROUP", "BACKEND", "SIZE", "TIMEOUT", "RANKS"};
    memcpy(cells, heads, sizeof heads);
    for (uint32_t i = 0; i < desc->ngroups; i++) {
        const struct desc_group *group = &desc->groups[i];
        const char **row = cells + ((size_t)i + 1) * COLUMNS;
        char duration[32];
        row[0] = group->name;
        row[1] = show_group_backends(desc, group, arena);
        row[2] = arena_printf(arena, "%u", group->ranks.n);
        row[3] = arena_strdup(arena, format_duration(group->timeout_ns, duration));
        row[4] = show_ranks(&group->ranks, arena);
    }
    show_print_table(&(struct table){cells, desc->ngroups + 1, COLUMNS}, out);
}

/* "mpi, torch": the libraries whose calls are recorded, where the program allows that. */
static const char *show_observe(const struct desc_workload *w, struct arena *arena)
{
    const bool mpi = w->observe & DESC_OBSERVE_MPI, torch = w->observe & DESC_OBSERVE_TORCH;
    return !mpi && !torch ? "off"
                          : arena_printf(arena, "%s%s%s", mpi ? "mpi" : "",
                                         mpi && torch ? ", " : "", torch ? "torch" : "");
}

/* Commands, and by which libraries they are observed. */
static void show_commands_table(const struct desc *desc, struct arena *arena, FILE *out)
{
    uint32_t rows = 1;
    const char **cells = arena_calloc(arena, 2 * ((size_t)desc->nworkloads + 1), sizeof *cells);
    cells[0] = "COMMAND";
    cells[1] = "OBSERVE";
    for (uint32_t i = 0; i < desc->nworkloads; i++) {
        if (!desc->workloads[i].command.n)
            continue;
        cells[2 * (size_t)rows] = desc->workloads[i].name;
        cells[2 * (size_t)rows + 1] = show_observe(&desc->workloads[i], arena);
        rows++;
    }
    if (rows == 1)
        return;
    fputc('\n', out);
    show_print_table(&(struct table){cells, rows, 2}, out);
}

/* "pp=0, dp=1": the coordinates of a line of a mesh on all axes but the last. */
static const char *show_mesh_line(const struct desc_mesh *mesh, uint32_t line, struct arena *arena)
{
    const char *text = "";
    for (uint32_t i = mesh->naxes - 1; i-- > 0;) {
        const struct desc_axis *axis = &mesh->axes[i];
        text = arena_printf(arena, "%s=%u%s%s", axis->name, line % axis->size, *text ? ", " : "",
                            text);
        line /= axis->size;
    }
    return text;
}

/* "node1, node2": the hosts of consecutive ranks of a mesh, in their order. */
static const char *show_mesh_hosts(const struct desc *desc, const uint32_t *ranks, uint32_t n,
                                   struct arena *arena)
{
    const char *list = "";
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t host = desc->ranks[ranks[i]].host;
        if (i == 0 || desc->ranks[ranks[i - 1]].host != host)
            list = arena_printf(arena, "%s%s%s", list, *list ? ", " : "", desc->hosts[host].name);
    }
    return list;
}

/* A row for each line along the last axis: its ranks, or as a list where there is no room. */
static void show_mesh_table(const struct desc *desc, struct arena *arena, FILE *out)
{
    const struct desc_mesh *mesh = &desc->mesh;
    const struct desc_axis *last = &mesh->axes[mesh->naxes - 1];
    const uint32_t lines = mesh->ranks.n / last->size;
    const uint32_t width = last->size <= COLUMNS_MAX - 2 ? last->size : 1, columns = width + 2;
    const char **cells = arena_calloc(arena, ((size_t)lines + 1) * columns, sizeof *cells);
    cells[0] = "MESH";
    for (uint32_t i = 0; i < width; i++)
        cells[1 + i] = width == last->size
                           ? arena_printf(arena, "%s=%u", last->name, i)
                           : arena_printf(arena, "%s=0-%u", last->name, last->size - 1);
    cells[columns - 1] = "HOSTS";
    for (uint32_t line = 0; line < lines; line++) {
        const char **row = cells + ((size_t)line + 1) * columns;
        uint32_t *ranks = mesh->ranks.items + (size_t)line * last->size;
        row[0] = show_mesh_line(mesh, line, arena);
        for (uint32_t i = 0; i < width; i++)
            row[1 + i] = width == last->size
                             ? arena_printf(arena, "%u", ranks[i])
                             : show_ranks(&(struct desc_ranks){ranks, last->size}, arena);
        row[columns - 1] = show_mesh_hosts(desc, ranks, last->size, arena);
    }
    fputc('\n', out);
    show_print_table(&(struct table){cells, lines + 1, columns}, out);
}

static void show_roles_table(const struct desc *desc, struct arena *arena, FILE *out)
{
    const char **cells = arena_calloc(arena, ((size_t)desc->nroles + 1) * 2, sizeof *cells);
    cells[0] = "ROLE";
    cells[1] = "RANKS";
    for (uint32_t i = 0; i < desc->nroles; i++) {
        const struct desc_role *role = &desc->roles[i];
        cells[2 * (size_t)i + 2] = role->name;
        cells[2 * (size_t)i + 3] =
            role->n == 1 ? arena_printf(arena, "%u", role->first)
                         : arena_printf(arena, "%u-%u", role->first, role->first + role->n - 1);
    }
    fputc('\n', out);
    show_print_table(&(struct table){cells, desc->nroles + 1, 2}, out);
}

/* "1 at the start, 2 at most", of each of the rank's devices if they differ; "": it has none. */
static const char *show_communicators(const struct desc *desc, uint32_t rank, uint32_t kind,
                                      struct arena *arena)
{
    const char *list = "", *last = "";
    bool any = false;
    for (uint32_t i = 0; i < desc_rank_devices(&desc->ranks[rank], kind); i++) {
        struct communicators n = communicators_on(desc, rank, kind, i);
        const char *text =
            arena_printf(arena, "%u at the start, %u at most", n.at_start, n.at_most);
        any = any || n.at_most;
        if (strcmp(text, last) != 0)
            list = arena_printf(arena, "%s%s%s", list, *list ? "; " : "", text);
        last = text;
    }
    return any ? list : "";
}

/* What the devices of a kind hold, in one row for all ranks with the same. */
static void show_communicators_table(const struct desc *desc, uint32_t kind, struct arena *arena,
                                     FILE *out)
{
    const char **texts = arena_calloc(arena, desc->nranks, sizeof *texts);
    const char **cells = arena_calloc(arena, ((size_t)desc->nranks + 1) * 2, sizeof *cells);
    struct desc_ranks same = {.items = arena_calloc(arena, desc->nranks, sizeof *same.items)};
    uint32_t rows = 1;
    cells[0] = arena_printf(arena, "%s OF RANKS", show_kind_head(&desc->kinds[kind], arena));
    cells[1] = "COMMUNICATORS";
    for (uint32_t rank = 0; rank < desc->nranks; rank++)
        texts[rank] = show_communicators(desc, rank, kind, arena);
    for (uint32_t rank = 0; rank < desc->nranks; rank++) {
        const char *text = texts[rank];
        if (!*text)
            continue;
        same.n = 0;
        for (uint32_t i = rank; i < desc->nranks; i++)
            if (strcmp(texts[i], text) == 0) {
                same.items[same.n++] = i;
                texts[i] = "";
            }
        cells[2 * (size_t)rows] = show_ranks(&same, arena);
        cells[2 * (size_t)rows++ + 1] = text;
    }
    if (rows > 1) {
        fputc('\n', out);
        show_print_table(&(struct table){cells, rows, 2}, out);
    }
}

void show_plan(const struct desc *desc, struct arena *arena, FILE *out)
{
    uint32_t used = 0;
    for (uint32_t i = 0; i < desc->nhosts; i++)
        used += desc->hosts[i].nranks > 0;
    fprintf(out, "%s: %u rank%s on %u host%s\n\n", desc->job_name, desc->nranks,
            desc->nranks == 1 ? "" : "s", used, used == 1 ? "" : "s");
    show_ranks_table(desc, arena, out);
    fputc('\n', out);
    show_groups_table(desc, arena, out);
    show_commands_table(desc, arena, out);
    if (desc->nroles)
        show_roles_table(desc, arena, out);
    if (desc->mesh.naxes)
        show_mesh_table(desc, arena, out);
    for (uint32_t kind = 0; kind < desc->nkinds; kind++)
        show_communicators_table(desc, kind, arena, out);
}

/* ---- the plan as JSON ---- */

static json_t *show_json_value(const struct desc_kv *pair)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < pair->nitems; i++)
        json_array_append_new(list, json_string(pair->items[i].value));
    if (pair->is_list)
        return list;
    json_decref(list);
    return json_string(pair->value);
}

static json_t *show_json_pairs(const struct desc_kvs *pairs)
{
    json_t *object = json_object();
    for (uint32_t i = 0; i < pairs->n; i++)
        json_object_set_new(object, pairs->items[i].key, show_json_value(&pairs->items[i]));
    return object;
}

static json_t *show_json_members(const struct members *members, uint32_t rank)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < members->n; i++)
        if (members->has[i][rank])
            json_array_append_new(list, json_string(members->names[i]));
    return list;
}

/* {"cuda": [{"index": 0, "communicators": {"at_start": 1, "at_most": 2}, "id":
 * "GPU-..."}]}. Ids are known only for this machine. */
static json_t *show_json_devices(const struct desc *desc, uint32_t number)
{
    const struct desc_rank *rank = &desc->ranks[number];
    json_t *object = json_object();
    for (uint32_t i = 0; i < rank->ndevices; i++) {
        const char *kind = desc->kinds[rank->devices[i].kind].name;
        json_t *list = json_object_get(object, kind);
        struct communicators n =
            communicators_on(desc, number, rank->devices[i].kind, (uint32_t)json_array_size(list));
        json_t *device =
            json_pack("{si s{si si}}", "index", (int)rank->devices[i].index, "communicators",
                      "at_start", (int)n.at_start, "at_most", (int)n.at_most);
        if (!list)
            json_object_set_new(object, kind, list = json_array());
        if (*rank->devices[i].id)
            json_object_set_new(device, "id", json_string(rank->devices[i].id));
        json_array_append_new(list, device);
    }
    return object;
}

/* The list of the kind whose devices are GPUs. */
static json_t *show_json_gpus(const struct desc *desc, json_t *devices)
{
    for (uint32_t i = 0; i < desc->nkinds; i++) {
        json_t *gpus = desc->kinds[i].gpus ? json_object_get(devices, desc->kinds[i].name) : NULL;
        if (gpus)
            return json_incref(gpus);
    }
    return json_array();
}

static json_t *show_json_rank(const struct desc *desc, uint32_t rank, const struct members *groups,
                              const struct members *workloads)
{
    json_t *devices = show_json_devices(desc, rank);
    json_t *object = json_pack(
        "{si ss si ss so so so so}", "rank", (int)rank, "host",
        desc->hosts[desc->ranks[rank].host].name, "local_rank", (int)desc->ranks[rank].local_rank,
        "cpus", strcmp(desc->ranks[rank].cpus, DESC_CPUS_AUTO) == 0 ? "" : desc->ranks[rank].cpus,
        "gpus", show_json_gpus(desc, devices), "devices", devices, "groups",
        show_json_members(groups, rank), "workloads", show_json_members(workloads, rank));
    if (desc->ranks[rank].memory)
        json_object_set_new(object, "memory", json_string(desc->ranks[rank].memory));
    return object;
}

static json_t *show_json_needs(const struct desc *desc, const struct desc_group *group)
{
    json_t *object = json_object();
    for (uint32_t i = 0; i < group->ndevices; i++)
        json_object_set_new(object, desc->kinds[group->devices[i].kind].name,
                            json_integer(group->devices[i].count));
    return object;
}

/* {"host": "gloo", "cuda": "nccl"}; NULL: one backend for all. */
static json_t *show_json_routes(const struct desc *desc, const struct desc_group *group)
{
    if (!group->nroutes)
        return NULL;
    json_t *object = json_object();
    json_object_set_new(object, "host", json_string(desc->backends[group->backend].name));
    for (uint32_t i = 0; i < group->nroutes; i++)
        json_object_set_new(object, desc->kinds[group->routes[i].kind].name,
                            json_string(desc->backends[group->routes[i].backend].name));
    return object;
}

static json_t *show_json_group(const struct desc *desc, const struct desc_group *group)
{
    const struct desc_backend *backend = &desc->backends[group->backend];
    return json_pack("{ss ss ss sb so* so sf so so}", "name", group->name, "backend", backend->name,
                     "backend_path", backend->path, "auto", group->is_auto, "backends",
                     show_json_routes(desc, group), "devices", show_json_needs(desc, group),
                     "timeout_s", (double)group->timeout_ns / 1e9, "ranks",
                     ranks_json_list(&group->ranks), "options", show_json_pairs(&group->options));
}

static json_t *show_json_path(const char *path)
{
    return path ? json_value_text(path) : NULL;
}

/* NULL: it is a plugin. */
static json_t *show_json_command(const struct desc_workload *workload)
{
    json_t *list = workload->command.n ? json_array() : NULL;
    for (uint32_t i = 0; i < workload->command.n; i++)
        json_array_append_new(list, json_value_text(workload->command.items[i]));
    return list;
}

/* The libraries whose calls are recorded, where the program allows that. */
static json_t *show_json_observe(const struct desc_workload *workload)
{
    json_t *list = workload->command.n ? json_array() : NULL;
    if (list && workload->observe & DESC_OBSERVE_MPI)
        json_array_append_new(list, json_string("mpi"));
    if (list && workload->observe & DESC_OBSERVE_TORCH)
        json_array_append_new(list, json_string("torch"));
    return list;
}

static json_t *show_json_workload(const struct desc *desc, const struct desc_workload *workload)
{
    json_t *groups = json_array(), *overrides = json_array();
    for (uint32_t i = 0; i < workload->ngroups; i++)
        json_array_append_new(groups, json_string(desc->groups[workload->groups[i]].name));
    for (uint32_t i = 0; i < workload->noverrides; i++)
        json_array_append_new(
            overrides, json_pack("{so so}", "ranks", ranks_json_list(&workload->overrides[i].ranks),
                                 "params", show_json_pairs(&workload->overrides[i].params)));
    return json_pack("{ss so* so* so* so* so* so so so so sb}", "name", workload->name, "plugin",
                     show_json_path(workload->command.n ? NULL : workload->plugin), "command",
                     show_json_command(workload), "workdir",
                     show_json_path(workload->command.n ? workload->workdir : NULL), "env",
                     workload->command.n ? show_json_pairs(&workload->env) : NULL, "observe",
                     show_json_observe(workload), "ranks", ranks_json_list(&workload->ranks),
                     "groups", groups, "params", show_json_pairs(&workload->params), "per_ranks",
                     overrides, "background", (int)workload->background);
}

void show_dump(json_t *root, FILE *out)
{
    json_dumpf(root, out, JSON_INDENT(2));
    json_decref(root);
    fputc('\n', out);
}

/* [{"name": "ps", "ranks": [0, 1]}] */
static json_t *show_json_roles(const struct desc *desc)
{
    json_t *roles = json_array();
    for (uint32_t i = 0; i < desc->nroles; i++) {
        json_t *ranks = json_array();
        for (uint32_t k = 0; k < desc->roles[i].n; k++)
            json_array_append_new(ranks, json_integer(desc->roles[i].first + k));
        json_array_append_new(roles,
                              json_pack("{ss so}", "name", desc->roles[i].name, "ranks", ranks));
    }
    return roles;
}

/* {"axes": [{"name": "dp", "size": 2}], "ranks": [0, 1]} */
static json_t *show_json_mesh(const struct desc_mesh *mesh)
{
    json_t *axes = json_array();
    for (uint32_t i = 0; i < mesh->naxes; i++)
        json_array_append_new(axes, json_pack("{ss si}", "name", mesh->axes[i].name, "size",
                                              (int)mesh->axes[i].size));
    return json_pack("{so so}", "axes", axes, "ranks", ranks_json_list(&mesh->ranks));
}

void show_plan_json(const struct desc *desc, const struct job_strs *secrets, struct arena *arena,
                    FILE *out)
{
    struct members of_groups, of_workloads;
    members_find(desc, arena, &of_groups, &of_workloads);
    json_t *hosts = json_array(), *ranks = json_array(), *groups = json_array(),
           *workloads = json_array();
    for (uint32_t i = 0; i < desc->nhosts; i++)
        json_array_append_new(hosts, json_pack("{ss si}", "name", desc->hosts[i].name, "ranks",
                                               (int)desc->hosts[i].nranks));
    for (uint32_t i = 0; i < desc->nranks; i++)
        json_array_append_new(ranks, show_json_rank(desc, i, &of_groups, &of_workloads));
    for (uint32_t i = 0; i < desc->ngroups; i++)
        json_array_append_new(groups, show_json_group(desc, &desc->groups[i]));
    for (uint32_t i = 0; i < desc->nworkloads; i++)
        json_array_append_new(workloads, show_json_workload(desc, &desc->workloads[i]));
    json_t *plan = json_pack("{ss so so so so so}", "name", desc->job_name, "file",
                             show_json_path(desc->job_file), "hosts", hosts, "ranks", ranks,
                             "groups", groups, "workloads", workloads);
    if (desc->nroles)
        json_object_set_new(plan, "roles", show_json_roles(desc));
    if (desc->mesh.naxes)
        json_object_set_new(plan, "mesh", show_json_mesh(&desc->mesh));
    secrets_mask_plan(plan, secrets);
    show_dump(plan, out);
}
