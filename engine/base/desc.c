/* SPDX-License-Identifier: Apache-2.0
 *
 * Encoding and decoding of struct desc. Each put_X is next to its read_X, field by field. The
 * reader checks all numbers: counts against the remaining bytes, indices against their arrays.
 */
#include "base/desc.h"

#include "base/record.h"

#include <string.h>

#define DESC_MAGIC 0x63736564u /* "desc" */
enum { DESC_VERSION = 1 };

/* The state of one decoding. */
struct decoder {
    struct reader r;
    struct arena *arena;
    struct desc *desc;
    uint32_t *seen; /* by rank: the last set, numbered by `sets`, that held it */
    uint32_t sets;
};

/* Takes the count of an array whose items take at least `wire_len` bytes, and makes room for `size`
 * bytes each. */
static void *desc_read_array(struct decoder *in, size_t wire_len, size_t size, uint32_t *n)
{
    *n = read_count(&in->r, wire_len);
    void *items = arena_calloc(in->arena, *n, size);
    if (!items) {
        in->r.bad = true;
        *n = 0;
    }
    return items;
}

static uint32_t desc_read_below(struct decoder *in, uint32_t limit)
{
    uint32_t v = read_u32(&in->r);
    if (v < limit)
        return v;
    in->r.bad = true;
    return 0;
}

static bool desc_read_flag(struct decoder *in)
{
    uint8_t v = read_u8(&in->r);
    if (v > 1)
        in->r.bad = true;
    return v == 1;
}

static void desc_put_loc(struct buf *out, const struct diag_loc *loc)
{
    buf_put_u32(out, loc->line);
    buf_put_u32(out, loc->column);
    buf_put_u32(out, loc->width);
    buf_put_str(out, loc->file);
}

static void desc_read_loc(struct decoder *in, struct diag_loc *loc)
{
    loc->line = read_u32(&in->r);
    loc->column = read_u32(&in->r);
    loc->width = read_u32(&in->r);
    const char *file = read_str(&in->r, in->arena);
    loc->file = *file ? file : NULL;
}

static void desc_put_items(struct buf *out, const struct desc_kv *kv)
{
    buf_put_u8(out, kv->is_list);
    buf_put_u32(out, kv->nitems);
    for (uint32_t i = 0; i < kv->nitems; i++) {
        buf_put_str(out, kv->items[i].value);
        desc_put_loc(out, &kv->items[i].loc);
    }
}

static void desc_read_items(struct decoder *in, struct desc_kv *kv)
{
    kv->is_list = read_u8(&in->r) != 0;
    kv->items = desc_read_array(in, 20, sizeof *kv->items, &kv->nitems);
    for (uint32_t i = 0; i < kv->nitems && !in->r.bad; i++) {
        kv->items[i].value = read_str(&in->r, in->arena);
        desc_read_loc(in, &kv->items[i].loc);
    }
}

static void desc_put_kvs(struct buf *out, const struct desc_kvs *kvs)
{
    buf_put_u32(out, kvs->n);
    for (uint32_t i = 0; i < kvs->n; i++) {
        buf_put_str(out, kvs->items[i].key);
        buf_put_str(out, kvs->items[i].value);
        desc_put_loc(out, &kvs->items[i].loc);
        desc_put_items(out, &kvs->items[i]);
    }
}

static void desc_read_kvs(struct decoder *in, struct desc_kvs *kvs)
{
    kvs->items = desc_read_array(in, 29, sizeof *kvs->items, &kvs->n);
    for (uint32_t i = 0; i < kvs->n && !in->r.bad; i++) {
        kvs->items[i].key = read_str(&in->r, in->arena);
        kvs->items[i].value = read_str(&in->r, in->arena);
        desc_read_loc(in, &kvs->items[i].loc);
        desc_read_items(in, &kvs->items[i]);
    }
}

static void desc_put_u32s(struct buf *out, const uint32_t *items, uint32_t n)
{
    buf_put_u32(out, n);
    for (uint32_t i = 0; i < n; i++)
        buf_put_u32(out, items[i]);
}

/* Numbers below `limit`. */
static uint32_t *desc_read_u32s(struct decoder *in, uint32_t limit, uint32_t *n)
{
    uint32_t *items = desc_read_array(in, 4, sizeof *items, n);
    for (uint32_t i = 0; i < *n && !in->r.bad; i++)
        items[i] = desc_read_below(in, limit);
    return items;
}

static void desc_put_ranks(struct buf *out, const struct desc_ranks *ranks)
{
    desc_put_u32s(out, ranks->items, ranks->n);
}

static void desc_read_ranks(struct decoder *in, struct desc_ranks *ranks)
{
    ranks->items = desc_read_u32s(in, in->desc->nranks, &ranks->n);
}

/* True if no rank is listed twice. */
static bool desc_ranks_differ(struct decoder *in, const struct desc_ranks *ranks)
{
    if (!in->seen)
        in->seen = arena_calloc(in->arena, in->desc->nranks, sizeof *in->seen);
    in->sets++;
    for (uint32_t i = 0; in->seen && i < ranks->n; i++) {
        if (in->seen[ranks->items[i]] == in->sets)
            return false;
        in->seen[ranks->items[i]] = in->sets;
    }
    return in->seen;
}

static void desc_put_host(struct buf *out, const struct desc_host *host)
{
    buf_put_str(out, host->name);
    buf_put_u32(out, host->nranks);
    buf_put_str(out, host->workdir);
    desc_put_loc(out, &host->workdir_loc);
    desc_put_loc(out, &host->devices_loc);
}

static void desc_read_host(struct decoder *in, struct desc_host *host)
{
    host->name = read_str(&in->r, in->arena);
    host->nranks = read_u32(&in->r);
    host->workdir = read_str(&in->r, in->arena);
    desc_read_loc(in, &host->workdir_loc);
    desc_read_loc(in, &host->devices_loc);
}

static void desc_put_rank(struct buf *out, const struct desc_rank *rank)
{
    buf_put_u32(out, rank->host);
    buf_put_u32(out, rank->local_rank);
    buf_put_str(out, rank->cpus);
    buf_put_u32(out, rank->ndevices);
    for (uint32_t i = 0; i < rank->ndevices; i++) {
        buf_put_u32(out, rank->devices[i].kind);
        buf_put_u32(out, rank->devices[i].index);
        buf_put_str(out, rank->devices[i].id);
    }
}

static void desc_read_rank(struct decoder *in, struct desc_rank *rank)
{
    rank->host = desc_read_below(in, in->desc->nhosts);
    rank->local_rank = read_u32(&in->r);
    rank->cpus = read_str(&in->r, in->arena);
    rank->devices = desc_read_array(in, 12, sizeof *rank->devices, &rank->ndevices);
    for (uint32_t i = 0, last = 0; i < rank->ndevices && !in->r.bad; i++) {
        rank->devices[i].kind = desc_read_below(in, in->desc->nkinds);
        rank->devices[i].index = read_u32(&in->r);
        rank->devices[i].id = read_str(&in->r, in->arena);
        in->r.bad = in->r.bad || rank->devices[i].kind < last;
        last = rank->devices[i].kind;
    }
}

static void desc_put_backend(struct buf *out, const struct desc_backend *backend)
{
    buf_put_str(out, backend->name);
    buf_put_str(out, backend->path);
    desc_put_kvs(out, &backend->options);
    desc_put_loc(out, &backend->loc);
    buf_put_u8(out, backend->unused);
    buf_put_str(out, backend->device_kind);
    buf_put_u32(out, backend->communicators);
    buf_put_u8(out, backend->on_demand);
    buf_put_str(out, backend->direction_option);
    buf_put_str(out, backend->direction_value);
}

static void desc_read_backend(struct decoder *in, struct desc_backend *backend)
{
    backend->name = read_str(&in->r, in->arena);
    backend->path = read_str(&in->r, in->arena);
    desc_read_kvs(in, &backend->options);
    desc_read_loc(in, &backend->loc);
    backend->unused = desc_read_flag(in);
    backend->device_kind = read_str(&in->r, in->arena);
    backend->communicators = read_u32(&in->r);
    backend->on_demand = desc_read_flag(in);
    backend->direction_option = read_str(&in->r, in->arena);
    backend->direction_value = read_str(&in->r, in->arena);
}

static void desc_put_kind(struct buf *out, const struct desc_kind *kind)
{
    buf_put_str(out, kind->name);
    buf_put_str(out, kind->title);
    buf_put_str(out, kind->mask);
    buf_put_u32(out, kind->backend);
    buf_put_u8(out, kind->gpus);
}

static void desc_read_kind(struct decoder *in, struct desc_kind *kind)
{
    kind->name = read_str(&in->r, in->arena);
    kind->title = read_str(&in->r, in->arena);
    kind->mask = read_str(&in->r, in->arena);
    kind->backend = desc_read_below(in, in->desc->nbackends);
    kind->gpus = desc_read_flag(in);
}

static void desc_put_needs(struct buf *out, const struct desc_need *needs, uint32_t n)
{
    buf_put_u32(out, n);
    for (uint32_t i = 0; i < n; i++) {
        buf_put_u32(out, needs[i].kind);
        buf_put_u32(out, needs[i].count);
        buf_put_u8(out, needs[i].own);
    }
}

static struct desc_need *desc_read_needs(struct decoder *in, uint32_t *n)
{
    struct desc_need *needs = desc_read_array(in, 9, sizeof *needs, n);
    for (uint32_t i = 0; i < *n && !in->r.bad; i++) {
        needs[i].kind = desc_read_below(in, in->desc->nkinds);
        needs[i].count = read_u32(&in->r);
        needs[i].own = desc_read_flag(in);
    }
    return needs;
}

static void desc_put_routes(struct buf *out, const struct desc_route *routes, uint32_t n)
{
    buf_put_u32(out, n);
    for (uint32_t i = 0; i < n; i++) {
        buf_put_u32(out, routes[i].kind);
        buf_put_u32(out, routes[i].backend);
    }
}

static struct desc_route *desc_read_routes(struct decoder *in, uint32_t *n)
{
    struct desc_route *routes = desc_read_array(in, 8, sizeof *routes, n);
    for (uint32_t i = 0; i < *n && !in->r.bad; i++) {
        routes[i].kind = desc_read_below(in, in->desc->nkinds);
        routes[i].backend = desc_read_below(in, in->desc->nbackends);
    }
    return routes;
}

static void desc_put_group(struct buf *out, const struct desc_group *group)
{
    buf_put_str(out, group->name);
    buf_put_u32(out, group->backend);
    desc_put_routes(out, group->routes, group->nroutes);
    buf_put_u8(out, group->is_auto);
    buf_put_u8(out, group->on_demand);
    desc_put_ranks(out, &group->ranks);
    buf_put_u64(out, group->timeout_ns);
    buf_put_u32(out, group->check);
    desc_put_needs(out, group->devices, group->ndevices);
    desc_put_kvs(out, &group->options);
    desc_put_loc(out, &group->loc);
}

static void desc_read_group(struct decoder *in, struct desc_group *group)
{
    group->name = read_str(&in->r, in->arena);
    group->backend = desc_read_below(in, in->desc->nbackends);
    group->routes = desc_read_routes(in, &group->nroutes);
    group->is_auto = read_u8(&in->r) != 0;
    group->on_demand = desc_read_flag(in);
    desc_read_ranks(in, &group->ranks);
    if (!in->r.bad && (!group->ranks.n || !desc_ranks_differ(in, &group->ranks)))
        in->r.bad = true;
    group->timeout_ns = read_u64(&in->r);
    group->check = desc_read_below(in, COLLRUN_CHECK_OFF + 1);
    group->devices = desc_read_needs(in, &group->ndevices);
    desc_read_kvs(in, &group->options);
    desc_read_loc(in, &group->loc);
}

static void desc_put_override(struct buf *out, const struct desc_override *override)
{
    desc_put_ranks(out, &override->ranks);
    desc_put_kvs(out, &override->params);
}

static void desc_read_override(struct decoder *in, struct desc_override *override)
{
    desc_read_ranks(in, &override->ranks);
    desc_read_kvs(in, &override->params);
}

static void desc_put_strs(struct buf *out, const struct desc_strs *strs)
{
    buf_put_u32(out, strs->n);
    for (uint32_t i = 0; i < strs->n; i++)
        buf_put_str(out, strs->items[i]);
}

static void desc_read_strs(struct decoder *in, struct desc_strs *strs)
{
    strs->items = desc_read_array(in, 4, sizeof *strs->items, &strs->n);
    for (uint32_t i = 0; i < strs->n && !in->r.bad; i++)
        strs->items[i] = read_str(&in->r, in->arena);
}

static void desc_put_names_of_ranks(struct buf *out, const struct desc *desc)
{
    buf_put_u32(out, desc->nroles);
    for (uint32_t i = 0; i < desc->nroles; i++) {
        buf_put_str(out, desc->roles[i].name);
        buf_put_u32(out, desc->roles[i].first);
        buf_put_u32(out, desc->roles[i].n);
    }
    buf_put_u32(out, desc->mesh.naxes);
    for (uint32_t i = 0; i < desc->mesh.naxes; i++) {
        buf_put_str(out, desc->mesh.axes[i].name);
        buf_put_u32(out, desc->mesh.axes[i].size);
    }
    desc_put_ranks(out, &desc->mesh.ranks);
}

static void desc_read_names_of_ranks(struct decoder *in)
{
    struct desc *desc = in->desc;
    uint64_t product = 1;
    desc->roles = desc_read_array(in, 12, sizeof *desc->roles, &desc->nroles);
    for (uint32_t i = 0; i < desc->nroles && !in->r.bad; i++) {
        struct desc_role *role = &desc->roles[i];
        role->name = read_str(&in->r, in->arena);
        role->first = read_u32(&in->r);
        role->n = read_u32(&in->r);
        in->r.bad = in->r.bad || (uint64_t)role->first + role->n > desc->nranks;
    }
    struct desc_mesh *mesh = &desc->mesh;
    mesh->axes = desc_read_array(in, 8, sizeof *mesh->axes, &mesh->naxes);
    for (uint32_t i = 0; i < mesh->naxes && !in->r.bad; i++) {
        mesh->axes[i].name = read_str(&in->r, in->arena);
        mesh->axes[i].size = read_u32(&in->r);
        product *= mesh->axes[i].size;
        in->r.bad = in->r.bad || !product || product > desc->nranks;
    }
    desc_read_ranks(in, &mesh->ranks);
    if (mesh->ranks.n != (mesh->naxes ? product : 0))
        in->r.bad = true;
}

static void desc_put_terminal(struct buf *out, const struct desc_terminal *t)
{
    buf_put_u8(out, t->used);
    buf_put_u32(out, t->rank);
    buf_put_u8(out, t->shell);
    buf_put_u16(out, t->rows);
    buf_put_u16(out, t->columns);
    buf_put_str(out, t->type);
}

static void desc_read_terminal(struct decoder *in, struct desc_terminal *out)
{
    out->used = read_u8(&in->r) != 0;
    out->rank = read_u32(&in->r);
    out->shell = read_u8(&in->r) != 0;
    out->rows = read_u16(&in->r);
    out->columns = read_u16(&in->r);
    out->type = read_str(&in->r, in->arena);
}

static void desc_put_command(struct buf *out, const struct desc_workload *workload)
{
    desc_put_strs(out, &workload->command);
    buf_put_str(out, workload->folder ? workload->folder : "");
    buf_put_str(out, workload->workdir ? workload->workdir : "");
    desc_put_loc(out, &workload->workdir_loc);
    desc_put_kvs(out, &workload->env);
    buf_put_u8(out, workload->observe);
}

static void desc_read_command(struct decoder *in, struct desc_workload *workload)
{
    desc_read_strs(in, &workload->command);
    workload->folder = read_str(&in->r, in->arena);
    workload->workdir = read_str(&in->r, in->arena);
    desc_read_loc(in, &workload->workdir_loc);
    desc_read_kvs(in, &workload->env);
    workload->observe = read_u8(&in->r);
}

static void desc_put_workload(struct buf *out, const struct desc_workload *workload)
{
    buf_put_str(out, workload->name);
    buf_put_str(out, workload->plugin ? workload->plugin : "");
    desc_put_command(out, workload);
    desc_put_ranks(out, &workload->ranks);
    desc_put_u32s(out, workload->groups, workload->ngroups);
    desc_put_kvs(out, &workload->params);
    buf_put_u32(out, workload->noverrides);
    for (uint32_t i = 0; i < workload->noverrides; i++)
        desc_put_override(out, &workload->overrides[i]);
    buf_put_u8(out, workload->background);
    buf_put_u64(out, workload->timeout_ns);
    desc_put_loc(out, &workload->loc);
}

static void desc_read_workload(struct decoder *in, struct desc_workload *workload)
{
    workload->name = read_str(&in->r, in->arena);
    workload->plugin = read_str(&in->r, in->arena);
    desc_read_command(in, workload);
    desc_read_ranks(in, &workload->ranks);
    workload->groups = desc_read_u32s(in, in->desc->ngroups, &workload->ngroups);
    desc_read_kvs(in, &workload->params);
    workload->overrides =
        desc_read_array(in, 8, sizeof *workload->overrides, &workload->noverrides);
    for (uint32_t i = 0; i < workload->noverrides && !in->r.bad; i++)
        desc_read_override(in, &workload->overrides[i]);
    workload->background = desc_read_flag(in);
    workload->timeout_ns = read_u64(&in->r);
    desc_read_loc(in, &workload->loc);
}

void desc_encode(const struct desc *desc, struct buf *out)
{
    buf_put_u32(out, DESC_MAGIC);
    buf_put_u32(out, DESC_VERSION);
    buf_put_str(out, desc->run_id);
    buf_put_str(out, desc->run_dir);
    buf_put_str(out, desc->job_name);
    buf_put_str(out, desc->job_file);
    buf_put_str(out, desc->interface);
    desc_put_loc(out, &desc->interface_loc);
    buf_put_u32(out, (uint32_t)desc->first_port << 16 | desc->last_port);
    buf_put_u32(out, desc->attempt);
    buf_put_u32(out, desc->nhosts);
    for (uint32_t i = 0; i < desc->nhosts; i++)
        desc_put_host(out, &desc->hosts[i]);
    buf_put_u32(out, desc->nbackends);
    for (uint32_t i = 0; i < desc->nbackends; i++)
        desc_put_backend(out, &desc->backends[i]);
    buf_put_u32(out, desc->nkinds);
    for (uint32_t i = 0; i < desc->nkinds; i++)
        desc_put_kind(out, &desc->kinds[i]);
    buf_put_u32(out, desc->nranks);
    for (uint32_t i = 0; i < desc->nranks; i++)
        desc_put_rank(out, &desc->ranks[i]);
    desc_put_names_of_ranks(out, desc);
    buf_put_u32(out, desc->ngroups);
    for (uint32_t i = 0; i < desc->ngroups; i++)
        desc_put_group(out, &desc->groups[i]);
    buf_put_u32(out, desc->nworkloads);
    for (uint32_t i = 0; i < desc->nworkloads; i++)
        desc_put_workload(out, &desc->workloads[i]);
    desc_put_kvs(out, &desc->env_pass);
    desc_put_kvs(out, &desc->env_set);
    desc_put_kvs(out, &desc->env_unset);
    buf_put_u32(out, desc->nactivate);
    for (uint32_t i = 0; i < desc->nactivate; i++) {
        buf_put_str(out, desc->activate[i].value);
        desc_put_loc(out, &desc->activate[i].loc);
    }
    buf_put_str(out, desc->job_dir);
    buf_put_u8(out, desc->may_continue);
    buf_put_u64(out, desc->start_timeout_ns);
    buf_put_u64(out, desc->rendezvous_timeout_ns);
    buf_put_u64(out, desc->grace_ns);
    buf_put_u32(out, desc->cpus_per_process);
    buf_put_u32(out, desc->max_restarts);
    desc_put_loc(out, &desc->bind_loc);
    for (int i = 0; i < DESC_LIMITS; i++) {
        buf_put_u64(out, desc->limits[i].bytes);
        desc_put_loc(out, &desc->limits[i].loc);
    }
    desc_put_ranks(out, &desc->with_stdin);
    desc_put_ranks(out, &desc->wrapped);
    desc_put_strs(out, &desc->wrap);
    desc_put_terminal(out, &desc->terminal);
    buf_put_u32(out, desc->record_entries);
    buf_put_u8(out, desc->trace);
}

static void desc_read_activate(struct decoder *in)
{
    struct desc *desc = in->desc;
    desc->activate = desc_read_array(in, 20, sizeof *desc->activate, &desc->nactivate);
    for (uint32_t i = 0; i < desc->nactivate && !in->r.bad; i++) {
        desc->activate[i].value = read_str(&in->r, in->arena);
        desc_read_loc(in, &desc->activate[i].loc);
    }
    desc->job_dir = read_str(&in->r, in->arena);
}

static void desc_read_placement(struct decoder *in)
{
    struct desc *desc = in->desc;
    desc->hosts = desc_read_array(in, 28, sizeof *desc->hosts, &desc->nhosts);
    for (uint32_t i = 0; i < desc->nhosts && !in->r.bad; i++)
        desc_read_host(in, &desc->hosts[i]);
    desc->backends = desc_read_array(in, 38, sizeof *desc->backends, &desc->nbackends);
    for (uint32_t i = 0; i < desc->nbackends && !in->r.bad; i++)
        desc_read_backend(in, &desc->backends[i]);
    desc->kinds = desc_read_array(in, 17, sizeof *desc->kinds, &desc->nkinds);
    for (uint32_t i = 0; i < desc->nkinds && !in->r.bad; i++)
        desc_read_kind(in, &desc->kinds[i]);
    desc->ranks = desc_read_array(in, 16, sizeof *desc->ranks, &desc->nranks);
    for (uint32_t i = 0; i < desc->nranks && !in->r.bad; i++)
        desc_read_rank(in, &desc->ranks[i]);
}

static void desc_read_parts(struct decoder *in)
{
    struct desc *desc = in->desc;
    desc_read_names_of_ranks(in);
    desc->groups = desc_read_array(in, 53, sizeof *desc->groups, &desc->ngroups);
    for (uint32_t i = 0; i < desc->ngroups && !in->r.bad; i++)
        desc_read_group(in, &desc->groups[i]);
    desc->workloads = desc_read_array(in, 81, sizeof *desc->workloads, &desc->nworkloads);
    for (uint32_t i = 0; i < desc->nworkloads && !in->r.bad; i++)
        desc_read_workload(in, &desc->workloads[i]);
}

/* True if every host has `nranks` ranks, and their local ranks are 0, 1, ... in some order. */
static bool desc_placement_agrees(struct decoder *in)
{
    const struct desc *desc = in->desc;
    uint64_t total = 0;
    for (uint32_t i = 0; i < desc->nhosts; i++)
        total += desc->hosts[i].nranks;
    uint32_t *first = arena_calloc(in->arena, desc->nhosts, sizeof *first);
    bool *seen = arena_calloc(in->arena, desc->nranks, sizeof *seen);
    if (!total || total != desc->nranks || !first || !seen)
        return false;
    for (uint32_t i = 1; i < desc->nhosts; i++)
        first[i] = first[i - 1] + desc->hosts[i - 1].nranks;
    for (uint32_t i = 0; i < desc->nranks; i++) {
        const struct desc_rank *rank = &desc->ranks[i];
        if (rank->local_rank >= desc->hosts[rank->host].nranks ||
            seen[first[rank->host] + rank->local_rank])
            return false;
        seen[first[rank->host] + rank->local_rank] = true;
    }
    return true;
}

int desc_decode(struct arena *arena, struct desc *desc, const void *bytes, size_t len,
                struct diag *d)
{
    struct desc result = {0};
    struct decoder in = {.arena = arena, .desc = &result};
    reader_init(&in.r, bytes, len);
    if (read_u32(&in.r) != DESC_MAGIC || read_u32(&in.r) != DESC_VERSION)
        return diag_set(d, COLLRUN_ERR_INVALID,
                        "these bytes are not a job description of this build");
    result.run_id = read_str(&in.r, arena);
    result.run_dir = read_str(&in.r, arena);
    result.job_name = read_str(&in.r, arena);
    result.job_file = read_str(&in.r, arena);
    result.interface = read_str(&in.r, arena);
    desc_read_loc(&in, &result.interface_loc);
    const uint32_t ports = read_u32(&in.r);
    result.first_port = (uint16_t)(ports >> 16);
    result.last_port = (uint16_t)ports;
    result.attempt = read_u32(&in.r);
    desc_read_placement(&in);
    desc_read_parts(&in);
    desc_read_kvs(&in, &result.env_pass);
    desc_read_kvs(&in, &result.env_set);
    desc_read_kvs(&in, &result.env_unset);
    desc_read_activate(&in);
    result.may_continue = read_u8(&in.r) != 0;
    result.start_timeout_ns = read_u64(&in.r);
    result.rendezvous_timeout_ns = read_u64(&in.r);
    result.grace_ns = read_u64(&in.r);
    result.cpus_per_process = read_u32(&in.r);
    result.max_restarts = read_u32(&in.r);
    desc_read_loc(&in, &result.bind_loc);
    for (int i = 0; i < DESC_LIMITS; i++) {
        result.limits[i].bytes = read_u64(&in.r);
        desc_read_loc(&in, &result.limits[i].loc);
    }
    desc_read_ranks(&in, &result.with_stdin);
    desc_read_ranks(&in, &result.wrapped);
    desc_read_strs(&in, &result.wrap);
    desc_read_terminal(&in, &result.terminal);
    result.record_entries = desc_read_below(&in, RECORD_ENTRIES_MAX + 1);
    if (result.record_entries & (result.record_entries - 1))
        in.r.bad = true;
    result.trace = read_u8(&in.r) != 0;
    if (arena_failed(arena))
        return diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory for the job description");
    if (!reader_done(&in.r) || !desc_placement_agrees(&in))
        return diag_set(d, COLLRUN_ERR_INVALID, "the job description is damaged at byte %zu of %zu",
                        in.r.pos, len);
    *desc = result;
    return 0;
}
