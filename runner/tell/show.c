/* SPDX-License-Identifier: Apache-2.0
 *
 * Tables whose columns are as wide as their widest cell, and the same as JSON.
 */
#include "tell/show.h"

#include "base/parse.h"

#include <stdlib.h>
#include <string.h>

#include <jansson.h>

/* ---- tables ---- */

enum { COLUMNS_MAX = 6 };

struct table {
    const char *const *cells; /* the heads first, row after row */
    uint32_t rows, columns;
};

static size_t width_of(const char *s)
{
    size_t n = 0;
    for (; *s; s++)
        n += ((unsigned char)*s & 0xc0) != 0x80;
    return n;
}

static void print_table(const struct table *t, FILE *out)
{
    size_t widths[COLUMNS_MAX] = {0};
    for (uint32_t i = 0; i < t->rows * t->columns; i++) {
        size_t width = width_of(t->cells[i]);
        if (width > widths[i % t->columns])
            widths[i % t->columns] = width;
    }
    for (uint32_t i = 0; i < t->rows * t->columns; i++) {
        bool last = (i + 1) % t->columns == 0;
        size_t pad = last ? 0 : widths[i % t->columns] - width_of(t->cells[i]) + 2;
        fprintf(out, "%s%*s%s", t->cells[i], (int)pad, "", last ? "\n" : "");
    }
}

/* ---- the plan ---- */

/* How many ranks from `i` on go up in equal steps; a run of two is only one if the step is 1. */
static uint32_t run_length(const struct desc_ranks *ranks, uint32_t i)
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

const char *show_ranks(const struct desc_ranks *ranks, struct arena *arena)
{
    struct buf text;
    buf_init(&text);
    for (uint32_t i = 0; i < ranks->n;) {
        char part[64];
        uint32_t n = run_length(ranks, i), first = ranks->items[i], last = ranks->items[i + n - 1];
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
    return copy ? copy : "";
}

/* Who is in what: by group, or workload, then rank. */
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

static int members_init(struct members *members, uint32_t n, struct arena *arena)
{
    *members = (struct members){.names = arena_calloc(arena, n, sizeof *members->names),
                                .has = arena_calloc(arena, n, sizeof(bool *))};
    return members->names && members->has ? 0 : COLLRUN_ERR_NO_MEMORY;
}

static int find_members(const struct desc *desc, struct arena *arena, struct members *groups,
                        struct members *workloads)
{
    if (members_init(groups, desc->ngroups, arena) < 0 ||
        members_init(workloads, desc->nworkloads, arena) < 0)
        return COLLRUN_ERR_NO_MEMORY;
    for (uint32_t i = 0; i < desc->ngroups; i++) {
        bool *has = arena_calloc(arena, desc->nranks, sizeof *has);
        if (has)
            members_add(groups, desc->groups[i].name, &desc->groups[i].ranks, has);
    }
    for (uint32_t i = 0; i < desc->nworkloads; i++) {
        bool *has = arena_calloc(arena, desc->nranks, sizeof *has);
        if (has)
            members_add(workloads, desc->workloads[i].name, &desc->workloads[i].ranks, has);
    }
    return arena_failed(arena) ? COLLRUN_ERR_NO_MEMORY : 0;
}

/* "world, train", or "-". */
static const char *join(const struct members *members, uint32_t rank, struct arena *arena)
{
    const char *list = "";
    for (uint32_t i = 0; list && i < members->n; i++)
        if (members->has[i][rank])
            list =
                *list ? arena_printf(arena, "%s, %s", list, members->names[i]) : members->names[i];
    return list && *list ? list : "-";
}

/* "0,1", or "-". */
static const char *show_gpus(const struct desc_rank *rank, struct arena *arena)
{
    const char *list = rank->ngpus ? "" : "-";
    for (uint32_t i = 0; list && i < rank->ngpus; i++)
        list = arena_printf(arena, "%s%s%u", list, i ? "," : "", rank->gpus[i].index);
    return list;
}

static const char *show_cpus(const struct desc_rank *rank)
{
    if (!strcmp(rank->cpus, DESC_CPUS_NEAR_GPUS))
        return "near its GPUs";
    return *rank->cpus ? rank->cpus : "any";
}

static int show_ranks_table(const struct desc *desc, struct arena *arena, FILE *out)
{
    enum { COLUMNS = 6 };
    const char **cells = arena_calloc(arena, ((size_t)desc->nranks + 1) * COLUMNS, sizeof *cells);
    struct members groups, workloads;
    if (!cells || find_members(desc, arena, &groups, &workloads) < 0)
        return COLLRUN_ERR_NO_MEMORY;
    static const char *const heads[] = {"RANK", "HOST", "CPUS", "GPUS", "GROUPS", "WORKLOADS"};
    memcpy(cells, heads, sizeof heads);
    for (uint32_t rank = 0; rank < desc->nranks; rank++) {
        const char **row = cells + ((size_t)rank + 1) * COLUMNS;
        row[0] = arena_printf(arena, "%u", rank);
        row[1] = desc->hosts[desc->ranks[rank].host].name;
        row[2] = show_cpus(&desc->ranks[rank]);
        row[3] = show_gpus(&desc->ranks[rank], arena);
        row[4] = join(&groups, rank, arena);
        row[5] = join(&workloads, rank, arena);
    }
    if (arena_failed(arena))
        return COLLRUN_ERR_NO_MEMORY;
    print_table(&(struct table){cells, desc->nranks + 1, COLUMNS}, out);
    return 0;
}

static int show_groups_table(const struct desc *desc, struct arena *arena, FILE *out)
{
    enum { COLUMNS = 5 };
    const char **cells = arena_calloc(arena, ((size_t)desc->ngroups + 1) * COLUMNS, sizeof *cells);
    if (!cells)
        return COLLRUN_ERR_NO_MEMORY;
    static const char *const heads[] = {"GROUP", "BACKEND", "SIZE", "TIMEOUT", "RANKS"};
    memcpy(cells, heads, sizeof heads);
    for (uint32_t i = 0; i < desc->ngroups; i++) {
        const struct desc_group *group = &desc->groups[i];
        const char **row = cells + ((size_t)i + 1) * COLUMNS;
        char duration[32];
        row[0] = group->name;
        row[1] = group->cuda_backend
                     ? arena_printf(arena, "%s, %s", desc->backends[group->backend].name,
                                    desc->backends[group->cuda_backend - 1].name)
                     : desc->backends[group->backend].name;
        row[2] = arena_printf(arena, "%u", group->ranks.n);
        row[3] = arena_strdup(arena, format_duration(group->timeout_ns, duration));
        row[4] = show_ranks(&group->ranks, arena);
    }
    if (arena_failed(arena))
        return COLLRUN_ERR_NO_MEMORY;
    print_table(&(struct table){cells, desc->ngroups + 1, COLUMNS}, out);
    return 0;
}

int show_plan(const struct desc *desc, struct arena *arena, FILE *out)
{
    uint32_t used = 0;
    for (uint32_t i = 0; i < desc->nhosts; i++)
        used += desc->hosts[i].nranks > 0;
    fprintf(out, "%s: %u rank%s on %u host%s\n\n", desc->job_name, desc->nranks,
            desc->nranks == 1 ? "" : "s", used, used == 1 ? "" : "s");
    int code = show_ranks_table(desc, arena, out);
    fputc('\n', out);
    return code ? code : show_groups_table(desc, arena, out);
}

/* ---- the plan as JSON ---- */

static json_t *json_ranks(const struct desc_ranks *ranks)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < ranks->n; i++)
        json_array_append_new(list, json_integer(ranks->items[i]));
    return list;
}

static json_t *json_pairs(const struct desc_kvs *pairs)
{
    json_t *object = json_object();
    for (uint32_t i = 0; i < pairs->n; i++)
        json_object_set_new(object, pairs->items[i].key, json_string(pairs->items[i].value));
    return object;
}

static json_t *json_members(const struct members *members, uint32_t rank)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < members->n; i++)
        if (members->has[i][rank])
            json_array_append_new(list, json_string(members->names[i]));
    return list;
}

/* Their UUIDs are known for this machine only. */
static json_t *json_gpus(const struct desc_rank *rank)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < rank->ngpus; i++) {
        json_t *gpu = json_pack("{si}", "index", (int)rank->gpus[i].index);
        if (*rank->gpus[i].uuid)
            json_object_set_new(gpu, "uuid", json_string(rank->gpus[i].uuid));
        json_array_append_new(list, gpu);
    }
    return list;
}

static json_t *json_rank(const struct desc *desc, uint32_t rank, const struct members *groups,
                         const struct members *workloads)
{
    return json_pack("{si ss si ss so so so}", "rank", (int)rank, "host",
                     desc->hosts[desc->ranks[rank].host].name, "local_rank",
                     (int)desc->ranks[rank].local_rank, "cpus", desc->ranks[rank].cpus, "gpus",
                     json_gpus(&desc->ranks[rank]), "groups", json_members(groups, rank),
                     "workloads", json_members(workloads, rank));
}

static json_t *json_group(const struct desc *desc, const struct desc_group *group)
{
    const struct desc_backend *backend = &desc->backends[group->backend];
    const char *cuda = group->cuda_backend ? desc->backends[group->cuda_backend - 1].name : NULL;
    return json_pack("{ss ss ss sb ss* si sf so so}", "name", group->name, "backend", backend->name,
                     "backend_path", backend->path, "auto", group->chosen, "backend_cuda", cuda,
                     "gpus_per_process", (int)group->gpus_per_process, "timeout_s",
                     (double)group->timeout_ns / 1e9, "ranks", json_ranks(&group->ranks), "options",
                     json_pairs(&group->options));
}

static json_t *json_workload(const struct desc *desc, const struct desc_workload *workload)
{
    json_t *groups = json_array(), *overrides = json_array();
    for (uint32_t i = 0; i < workload->ngroups; i++)
        json_array_append_new(groups, json_string(desc->groups[workload->groups[i]].name));
    for (uint32_t i = 0; i < workload->noverrides; i++)
        json_array_append_new(
            overrides, json_pack("{so so}", "ranks", json_ranks(&workload->overrides[i].ranks),
                                 "params", json_pairs(&workload->overrides[i].params)));
    return json_pack("{ss ss so so so so sb}", "name", workload->name, "plugin", workload->plugin,
                     "ranks", json_ranks(&workload->ranks), "groups", groups, "params",
                     json_pairs(&workload->params), "per_ranks", overrides, "background",
                     (int)workload->background);
}

static int dump(json_t *root, FILE *out)
{
    int code = root && json_dumpf(root, out, JSON_INDENT(2)) == 0 ? 0 : COLLRUN_ERR_NO_MEMORY;
    json_decref(root);
    fputc('\n', out);
    return code;
}

int show_plan_json(const struct desc *desc, struct arena *arena, FILE *out)
{
    struct members of_groups, of_workloads;
    if (find_members(desc, arena, &of_groups, &of_workloads) < 0)
        return COLLRUN_ERR_NO_MEMORY;
    json_t *hosts = json_array(), *ranks = json_array(), *groups = json_array(),
           *workloads = json_array();
    for (uint32_t i = 0; i < desc->nhosts; i++)
        json_array_append_new(hosts, json_pack("{ss si}", "name", desc->hosts[i].name, "ranks",
                                               (int)desc->hosts[i].nranks));
    for (uint32_t i = 0; i < desc->nranks; i++)
        json_array_append_new(ranks, json_rank(desc, i, &of_groups, &of_workloads));
    for (uint32_t i = 0; i < desc->ngroups; i++)
        json_array_append_new(groups, json_group(desc, &desc->groups[i]));
    for (uint32_t i = 0; i < desc->nworkloads; i++)
        json_array_append_new(workloads, json_workload(desc, &desc->workloads[i]));
    return dump(json_pack("{ss ss so so so so}", "name", desc->job_name, "file", desc->job_file,
                          "hosts", hosts, "ranks", ranks, "groups", groups, "workloads", workloads),
                out);
}

/* ---- backends ---- */

static const char *const words[] = {[DESCRIBE_UNSUPPORTED] = "unsupported",
                                    [DESCRIBE_NATIVE] = "native",
                                    [DESCRIBE_EMULATED] = "emulated"};

/* "native      barrier allreduce ..." */
static void show_operations(const struct described *b, enum describe_how how, FILE *out)
{
    bool any = false;
    for (unsigned kind = 0; kind < COLLRUN_KIND_COUNT; kind++) {
        if (b->operations[kind] != how)
            continue;
        if (!any)
            fprintf(out, "  %-11s", words[how]);
        fprintf(out, " %s", describe_operations[kind]);
        any = true;
    }
    if (any)
        fputc('\n', out);
}

static void show_options(const struct described *b, FILE *out)
{
    for (uint32_t i = 0; i < b->nparams; i++)
        fprintf(out, "%s%s", i ? " " : "  options     ", b->params[i].name);
    if (b->nparams)
        fputc('\n', out);
}

void show_backends(const struct plan_input *in, FILE *out)
{
    for (uint32_t i = 0; i < in->nplugins; i++) {
        const struct described *b = &in->plugins[i];
        fprintf(out, "%s%s", i ? "\n" : "", b->name ? b->name : "(unknown)");
        if (b->error) {
            fprintf(out, ": not available: %s\n  %s\n", b->error, b->path);
            continue;
        }
        fprintf(out, " %s: %s%s%s%s\n  %s\n", b->version,
                b->available ? "available" : "not available: ", *b->found ? " (" : "",
                b->available ? b->found : b->reason, *b->found ? ")" : "", b->path);
        show_operations(b, DESCRIBE_NATIVE, out);
        show_operations(b, DESCRIBE_EMULATED, out);
        show_operations(b, DESCRIBE_UNSUPPORTED, out);
        show_options(b, out);
    }
}

static json_t *json_backend(const struct described *b)
{
    if (b->error)
        return json_pack("{ss? sn ss sb ss ss}", "name", b->name, "version", "path", b->path,
                         "available", 0, "reason", b->error, "hint", b->hint);
    json_t *operations = json_object();
    for (unsigned kind = 0; kind < COLLRUN_KIND_COUNT; kind++)
        json_object_set_new(operations, describe_operations[kind],
                            json_string(words[b->operations[kind]]));
    json_t *options = b->any_option ? json_null() : json_array();
    for (uint32_t i = 0; i < b->nparams; i++)
        json_array_append_new(options, json_string(b->params[i].name));
    return json_pack("{ss ss ss si sb ss ss so so}", "name", b->name, "version", b->version, "path",
                     b->path, "abi", (int)b->abi, "available", (int)b->available, "found", b->found,
                     "reason", b->reason, "operations", operations, "options", options);
}

int show_backends_json(const struct plan_input *in, FILE *out)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < in->nplugins; i++)
        json_array_append_new(list, json_backend(&in->plugins[i]));
    return dump(list, out);
}
