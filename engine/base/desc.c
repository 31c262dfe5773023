/* SPDX-License-Identifier: Apache-2.0
 *
 * struct desc to bytes and back. Each put_X stands beside its read_X and lists the same fields in
 * the same order; a head with magic and version comes first. The reader distrusts every number:
 * counts are bounded by the bytes that are left, indices by the arrays they point into, and what
 * must agree (ranks and the hosts that hold them) is compared before the description is handed out.
 */
#include "base/desc.h"

#include <string.h>

#define DESC_MAGIC 0x63736564u /* "desc" */
enum { DESC_VERSION = 1 };

/* What a decoding needs everywhere. */
struct decoder {
    struct reader r;
    struct arena *arena;
    struct desc *desc;
    uint32_t *seen; /* by rank: the last set, numbered by `sets`, that held it */
    uint32_t sets;
};

/* Takes the count of an array whose items take at least `wire_len` bytes, and makes room for `size`
 * bytes each. */
static void *read_array(struct decoder *in, size_t wire_len, size_t size, uint32_t *n)
{
    *n = read_count(&in->r, wire_len);
    void *items = arena_calloc(in->arena, *n, size);
    if (!items) {
        in->r.bad = true;
        *n = 0;
    }
    return items;
}

static uint32_t read_below(struct decoder *in, uint32_t limit)
{
    uint32_t v = read_u32(&in->r);
    if (v < limit)
        return v;
    in->r.bad = true;
    return 0;
}

static bool read_flag(struct decoder *in)
{
    uint8_t v = read_u8(&in->r);
    if (v > 1)
        in->r.bad = true;
    return v == 1;
}

static void put_loc(struct buf *out, const struct diag_loc *loc)
{
    buf_put_u32(out, loc->line);
    buf_put_u32(out, loc->column);
    buf_put_u32(out, loc->width);
    buf_put_str(out, loc->file);
}

static void read_loc(struct decoder *in, struct diag_loc *loc)
{
    loc->line = read_u32(&in->r);
    loc->column = read_u32(&in->r);
    loc->width = read_u32(&in->r);
    const char *file = read_str(&in->r, in->arena);
    loc->file = *file ? file : NULL;
}

static void put_kvs(struct buf *out, const struct desc_kvs *kvs)
{
    buf_put_u32(out, kvs->n);
    for (uint32_t i = 0; i < kvs->n; i++) {
        buf_put_str(out, kvs->items[i].key);
        buf_put_str(out, kvs->items[i].value);
        put_loc(out, &kvs->items[i].loc);
    }
}

static void read_kvs(struct decoder *in, struct desc_kvs *kvs)
{
    kvs->items = read_array(in, 24, sizeof *kvs->items, &kvs->n);
    for (uint32_t i = 0; i < kvs->n && !in->r.bad; i++) {
        kvs->items[i].key = read_str(&in->r, in->arena);
        kvs->items[i].value = read_str(&in->r, in->arena);
        read_loc(in, &kvs->items[i].loc);
    }
}

static void put_u32s(struct buf *out, const uint32_t *items, uint32_t n)
{
    buf_put_u32(out, n);
    for (uint32_t i = 0; i < n; i++)
        buf_put_u32(out, items[i]);
}

/* Numbers below `limit`. */
static uint32_t *read_u32s(struct decoder *in, uint32_t limit, uint32_t *n)
{
    uint32_t *items = read_array(in, 4, sizeof *items, n);
    for (uint32_t i = 0; i < *n && !in->r.bad; i++)
        items[i] = read_below(in, limit);
    return items;
}

static void put_ranks(struct buf *out, const struct desc_ranks *ranks)
{
    put_u32s(out, ranks->items, ranks->n);
}

static void read_ranks(struct decoder *in, struct desc_ranks *ranks)
{
    ranks->items = read_u32s(in, in->desc->nranks, &ranks->n);
}

/* Whether no rank stands twice in a set. */
static bool ranks_differ(struct decoder *in, const struct desc_ranks *ranks)
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

static void put_host(struct buf *out, const struct desc_host *host)
{
    buf_put_str(out, host->name);
    buf_put_u32(out, host->nranks);
    buf_put_str(out, host->workdir);
    put_loc(out, &host->gpus_loc);
}

static void read_host(struct decoder *in, struct desc_host *host)
{
    host->name = read_str(&in->r, in->arena);
    host->nranks = read_u32(&in->r);
    host->workdir = read_str(&in->r, in->arena);
    read_loc(in, &host->gpus_loc);
}

static void put_rank(struct buf *out, const struct desc_rank *rank)
{
    buf_put_u32(out, rank->host);
    buf_put_u32(out, rank->local_rank);
    buf_put_str(out, rank->cpus);
    buf_put_u32(out, rank->ngpus);
    for (uint32_t i = 0; i < rank->ngpus; i++) {
        buf_put_u32(out, rank->gpus[i].index);
        buf_put_str(out, rank->gpus[i].uuid);
    }
}

static void read_rank(struct decoder *in, struct desc_rank *rank)
{
    rank->host = read_below(in, in->desc->nhosts);
    rank->local_rank = read_u32(&in->r);
    rank->cpus = read_str(&in->r, in->arena);
    rank->gpus = read_array(in, 8, sizeof *rank->gpus, &rank->ngpus);
    for (uint32_t i = 0; i < rank->ngpus && !in->r.bad; i++) {
        rank->gpus[i].index = read_u32(&in->r);
        rank->gpus[i].uuid = read_str(&in->r, in->arena);
    }
}

static void put_backend(struct buf *out, const struct desc_backend *backend)
{
    buf_put_str(out, backend->name);
    buf_put_str(out, backend->path);
    put_kvs(out, &backend->options);
    put_loc(out, &backend->loc);
}

static void read_backend(struct decoder *in, struct desc_backend *backend)
{
    backend->name = read_str(&in->r, in->arena);
    backend->path = read_str(&in->r, in->arena);
    read_kvs(in, &backend->options);
    read_loc(in, &backend->loc);
}

static void put_group(struct buf *out, const struct desc_group *group)
{
    buf_put_str(out, group->name);
    buf_put_u32(out, group->backend);
    buf_put_u32(out, group->cuda_backend);
    buf_put_u8(out, group->chosen);
    put_ranks(out, &group->ranks);
    buf_put_u64(out, group->timeout_ns);
    buf_put_u32(out, group->check);
    buf_put_u32(out, group->gpus_per_process);
    buf_put_u8(out, group->own_gpus);
    put_kvs(out, &group->options);
    put_loc(out, &group->loc);
}

static void read_group(struct decoder *in, struct desc_group *group)
{
    group->name = read_str(&in->r, in->arena);
    group->backend = read_below(in, in->desc->nbackends);
    group->cuda_backend = read_below(in, in->desc->nbackends + 1);
    group->chosen = read_u8(&in->r) != 0;
    read_ranks(in, &group->ranks);
    if (!in->r.bad && (!group->ranks.n || !ranks_differ(in, &group->ranks)))
        in->r.bad = true;
    group->timeout_ns = read_u64(&in->r);
    group->check = read_below(in, DESC_CHECK_OFF + 1);
    group->gpus_per_process = read_u32(&in->r);
    group->own_gpus = read_flag(in);
    read_kvs(in, &group->options);
    read_loc(in, &group->loc);
}

static void put_override(struct buf *out, const struct desc_override *override)
{
    put_ranks(out, &override->ranks);
    put_kvs(out, &override->params);
}

static void read_override(struct decoder *in, struct desc_override *override)
{
    read_ranks(in, &override->ranks);
    read_kvs(in, &override->params);
}

static void put_workload(struct buf *out, const struct desc_workload *workload)
{
    buf_put_str(out, workload->name);
    buf_put_str(out, workload->plugin);
    put_ranks(out, &workload->ranks);
    put_u32s(out, workload->groups, workload->ngroups);
    put_kvs(out, &workload->params);
    buf_put_u32(out, workload->noverrides);
    for (uint32_t i = 0; i < workload->noverrides; i++)
        put_override(out, &workload->overrides[i]);
    buf_put_u8(out, workload->background);
    buf_put_u64(out, workload->timeout_ns);
    put_loc(out, &workload->loc);
}

static void read_workload(struct decoder *in, struct desc_workload *workload)
{
    workload->name = read_str(&in->r, in->arena);
    workload->plugin = read_str(&in->r, in->arena);
    read_ranks(in, &workload->ranks);
    workload->groups = read_u32s(in, in->desc->ngroups, &workload->ngroups);
    read_kvs(in, &workload->params);
    workload->overrides = read_array(in, 8, sizeof *workload->overrides, &workload->noverrides);
    for (uint32_t i = 0; i < workload->noverrides && !in->r.bad; i++)
        read_override(in, &workload->overrides[i]);
    workload->background = read_flag(in);
    workload->timeout_ns = read_u64(&in->r);
    read_loc(in, &workload->loc);
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
    buf_put_u32(out, desc->attempt);
    buf_put_u32(out, desc->nhosts);
    for (uint32_t i = 0; i < desc->nhosts; i++)
        put_host(out, &desc->hosts[i]);
    buf_put_u32(out, desc->nranks);
    for (uint32_t i = 0; i < desc->nranks; i++)
        put_rank(out, &desc->ranks[i]);
    buf_put_u32(out, desc->nbackends);
    for (uint32_t i = 0; i < desc->nbackends; i++)
        put_backend(out, &desc->backends[i]);
    buf_put_u32(out, desc->ngroups);
    for (uint32_t i = 0; i < desc->ngroups; i++)
        put_group(out, &desc->groups[i]);
    buf_put_u32(out, desc->nworkloads);
    for (uint32_t i = 0; i < desc->nworkloads; i++)
        put_workload(out, &desc->workloads[i]);
    put_kvs(out, &desc->env_pass);
    put_kvs(out, &desc->env_set);
    put_kvs(out, &desc->env_unset);
    buf_put_u8(out, desc->keep_going);
    buf_put_u64(out, desc->start_timeout_ns);
    buf_put_u64(out, desc->rendezvous_timeout_ns);
    buf_put_u64(out, desc->grace_ns);
}

static void read_placement(struct decoder *in)
{
    struct desc *desc = in->desc;
    desc->hosts = read_array(in, 28, sizeof *desc->hosts, &desc->nhosts);
    for (uint32_t i = 0; i < desc->nhosts && !in->r.bad; i++)
        read_host(in, &desc->hosts[i]);
    desc->ranks = read_array(in, 16, sizeof *desc->ranks, &desc->nranks);
    for (uint32_t i = 0; i < desc->nranks && !in->r.bad; i++)
        read_rank(in, &desc->ranks[i]);
}

static void read_parts(struct decoder *in)
{
    struct desc *desc = in->desc;
    desc->backends = read_array(in, 28, sizeof *desc->backends, &desc->nbackends);
    for (uint32_t i = 0; i < desc->nbackends && !in->r.bad; i++)
        read_backend(in, &desc->backends[i]);
    desc->groups = read_array(in, 53, sizeof *desc->groups, &desc->ngroups);
    for (uint32_t i = 0; i < desc->ngroups && !in->r.bad; i++)
        read_group(in, &desc->groups[i]);
    desc->workloads = read_array(in, 49, sizeof *desc->workloads, &desc->nworkloads);
    for (uint32_t i = 0; i < desc->nworkloads && !in->r.bad; i++)
        read_workload(in, &desc->workloads[i]);
}

/* Every host holds as many ranks as it says, and their local ranks are 0, 1, ... in some order. */
static bool placement_agrees(struct decoder *in)
{
    const struct desc *desc = in->desc;
    uint64_t total = 0;
    for (uint32_t i = 0; i < desc->nhosts; i++)
        total += desc->hosts[i].nranks;
    uint32_t *first = arena_calloc(in->arena, desc->nhosts, sizeof *first);
    bool *seen = arena_calloc(in->arena, desc->nranks, sizeof *seen);
    if (total != desc->nranks || !first || !seen)
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
    result.attempt = read_u32(&in.r);
    read_placement(&in);
    read_parts(&in);
    read_kvs(&in, &result.env_pass);
    read_kvs(&in, &result.env_set);
    read_kvs(&in, &result.env_unset);
    result.keep_going = read_u8(&in.r) != 0;
    result.start_timeout_ns = read_u64(&in.r);
    result.rendezvous_timeout_ns = read_u64(&in.r);
    result.grace_ns = read_u64(&in.r);
    if (arena_failed(arena))
        return diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory for the job description");
    if (!reader_done(&in.r) || !placement_agrees(&in))
        return diag_set(d, COLLRUN_ERR_INVALID, "the job description is damaged at byte %zu of %zu",
                        in.r.pos, len);
    *desc = result;
    return 0;
}
