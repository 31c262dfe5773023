/* SPDX-License-Identifier: Apache-2.0
 *
 * Groups that are made at run time: create, split, shrink. Each checks its arguments, takes the
 * name and the number of the new group, which all members count alike, and then forms it
 * (group_open.h).
 */
#include "group/group_make.h"

#include "base/loop.h"
#include "core/agreement.h"
#include "core/backend.h"
#include "core/process.h"
#include "group/table.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t DEFAULT_TIMEOUT_NS = 600u * 1000000000ull;

/* ---- the backend ---- */

static bool group_share_a_host(const struct process *p, const struct desc_ranks *members)
{
    for (uint32_t i = 1; i < members->n; i++) {
        if (p->desc.ranks[members->items[i]].host != p->desc.ranks[members->items[0]].host)
            return false;
    }
    return true;
}

static int group_backend_merit(uint64_t flags)
{
    return flags & COLLRUN_BACKEND_NEEDS_DEVICE ? 2 : flags & COLLRUN_BACKEND_ONE_HOST ? 1 : 0;
}

/* Chooses among the backends of the job by their flags. All ranks read the same job and make the
 * same choice. On one host, a backend for one host is preferred. Only the chosen one is opened: the
 * others may be for other ranks, and not work here. */
static int group_choose_backend(struct process *p, const struct desc_ranks *members,
                                struct backend **out, struct diag *d)
{
    bool one_host = group_share_a_host(p, members);
    struct backend *best = NULL;
    for (uint32_t i = 0; i < p->desc.nbackends; i++) {
        struct backend *b;
        if (p->desc.backends[i].unused)
            continue;
        int rc = registry_load(p, p->desc.backends[i].name, &b, d);
        if (rc != COLLRUN_OK)
            return rc;
        uint64_t flags = b->table.flags;
        bool fits = (!(flags & COLLRUN_BACKEND_NEEDS_DEVICE) || memory_kinds_owned_by(p, b)) &&
                    (one_host || !(flags & COLLRUN_BACKEND_ONE_HOST));
        if (fits && (!best || group_backend_merit(flags) > group_backend_merit(best->table.flags)))
            best = b;
    }
    if (!best)
        return diag_set(d, COLLRUN_ERR_UNAVAILABLE,
                        "no backend of this job suits these ranks; name one");
    return registry_get(p, best->name, out, d);
}

static int group_check_fits(struct process *p, const struct backend *b,
                            const struct desc_ranks *members, struct diag *d)
{
    if ((b->table.flags & COLLRUN_BACKEND_ONE_HOST) && !group_share_a_host(p, members))
        return diag_set(
            d, COLLRUN_ERR_UNSUPPORTED,
            "backend \"%s\" supports one host only, but these ranks are on several hosts", b->name);
    if (b->table.flags & COLLRUN_BACKEND_NEEDS_DEVICE && !memory_kinds_owned_by(p, b))
        return diag_set(d, COLLRUN_ERR_UNSUPPORTED,
                        "backend \"%s\" needs %ss, but this rank has none", b->name,
                        b->kind.title ? b->kind.title : "device");
    return COLLRUN_OK;
}

/* The backend of a group that is made at run time, by its name; NULL or "auto": the best backend of
 * the job for these ranks. It is open. NOT_FOUND, UNAVAILABLE, or UNSUPPORTED: it does not suit the
 * ranks. */
static int group_find_backend(struct process *p, const char *name, const struct desc_ranks *members,
                              struct backend **out, struct diag *d)
{
    if (!name || strcmp(name, "auto") == 0)
        return group_choose_backend(p, members, out, d);
    int rc = registry_get(p, name, out, d);
    return rc == COLLRUN_OK ? group_check_fits(p, *out, members, d) : rc;
}

/* ---- making ---- */

/* The default for a workload that was compiled without this member. */
static enum collrun_check group_default_check(const struct collrun_group_options *o)
{
    bool has = o->size >= offsetof(struct collrun_group_options, check) + sizeof o->check;
    return has ? o->check : COLLRUN_CHECK_ASYNC;
}

enum {
    MOST_OPTION_BYTES = 4096, /* an upper bound for any later version of the struct */
    MOST_NAME_BYTES = 255
};

int group_check_name(struct group_table *t, const char *whose, const char *name)
{
    const size_t len = name ? strnlen(name, MOST_NAME_BYTES + 1) : 0;
    if (len > MOST_NAME_BYTES)
        return error_set(COLLRUN_ERR_INVALID, "%s: the group's name is longer than %d bytes", whose,
                         MOST_NAME_BYTES);
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)name[i] < ' ' || name[i] == 127)
            return error_set(COLLRUN_ERR_INVALID,
                             "%s: byte %zu of the group's name is a control character", whose, i);
    if (len && desc_find_group(&t->process->desc, name))
        return error_set(COLLRUN_ERR_EXISTS, "%s: job.yaml already has a group \"%s\"", whose,
                         name);
    if (len && group_is_being_created(t, name))
        return error_set(COLLRUN_ERR_EXISTS, "%s: a group \"%s\" is being created", whose, name);
    return COLLRUN_OK;
}

/* The group in error messages. */
static const char *group_label(const struct collrun_group_options *o)
{
    return o->name && *o->name ? o->name : "(no name)";
}

static int group_check_options(const struct collrun_ctx *ctx, const struct collrun_group_options *o)
{
    if (!ctx || !o)
        return error_set(COLLRUN_ERR_INVALID, "collrun_group_create: the %s NULL",
                         !ctx ? "context is" : "options are");
    if (o->size < offsetof(struct collrun_group_options, check) || o->size > MOST_OPTION_BYTES)
        return error_set(
            COLLRUN_ERR_INVALID,
            "collrun_group_create: the options have a size of %u bytes; set .size = sizeof options",
            o->size);
    int rc = process_check_member(ctx->process, "collrun_group_create");
    if (rc == COLLRUN_OK)
        rc = group_check_name(ctx->groups, "collrun_group_create", o->name);
    if (rc != COLLRUN_OK)
        return rc;
    if (!o->ranks || o->nranks < 1)
        return error_set(COLLRUN_ERR_INVALID, "group \"%s\": no ranks are given", group_label(o));
    if ((unsigned)group_default_check(o) > COLLRUN_CHECK_OFF)
        return error_set(COLLRUN_ERR_INVALID, "group \"%s\": %d is not a check mode",
                         group_label(o), (int)group_default_check(o));
    int world = (int)ctx->process->desc.nranks;
    for (int i = 0; i < o->nranks; i++) {
        if (o->ranks[i] < 0 || o->ranks[i] >= world)
            return error_set(COLLRUN_ERR_INVALID, "group \"%s\": rank %d is not in 0..%d",
                             group_label(o), o->ranks[i], world - 1);
    }
    return COLLRUN_OK;
}

/* 0 for a workload that was compiled without this member. */
static uint32_t group_gpus(const struct collrun_group_options *o)
{
    bool has = o->size >= offsetof(struct collrun_group_options, devices_per_process) +
                              sizeof o->devices_per_process;
    return has && o->devices_per_process > 0 ? (uint32_t)o->devices_per_process : 0;
}

static int group_copy_ranks(const struct collrun_ctx *ctx, const struct collrun_group_options *o,
                            struct desc_ranks *out)
{
    bool *seen = calloc(ctx->process->desc.nranks, sizeof *seen);
    uint32_t *ranks = calloc((size_t)o->nranks, sizeof *ranks);
    int rc = seen && ranks
                 ? COLLRUN_OK
                 : error_set(COLLRUN_ERR_NO_MEMORY, "group \"%s\": out of memory", group_label(o));
    for (int i = 0; rc == COLLRUN_OK && i < o->nranks; i++) {
        if (seen[o->ranks[i]])
            rc = error_set(COLLRUN_ERR_INVALID, "group \"%s\": rank %d is listed twice",
                           group_label(o), o->ranks[i]);
        seen[o->ranks[i]] = true;
        ranks[i] = (uint32_t)o->ranks[i];
    }
    free(seen);
    if (rc == COLLRUN_OK)
        *out = (struct desc_ranks){.items = ranks, .n = (uint32_t)o->nranks};
    else
        free(ranks);
    return rc;
}

int group_make(struct group_table *t, const struct group_spec *spec, struct collrun_group **out)
{
    char name[GROUP_NAME_LEN];
    struct group_spec complete = *spec;
    struct diag d;
    diag_init(&d);
    if (!spec->name || !*spec->name) {
        uint32_t number;
        int rc = group_make_name(t, spec->members, name, &number);
        if (rc != COLLRUN_OK)
            return error_set(rc, "a group without a name: out of memory");
        complete.name = name;
        complete.name_is_unique = true;
    }
    complete.timeout_ns = spec->timeout_ns ? spec->timeout_ns : DEFAULT_TIMEOUT_NS;
    complete.index = UINT32_MAX;
    struct group_creation listed = {.name = complete.name_is_unique ? "" : complete.name};
    int rc = spec->is_listed ? COLLRUN_OK : group_creation_add(t, &listed);
    if (rc != COLLRUN_OK)
        return rc;
    struct forming forming = {.kind = WIRE_FORMING_CREATE,
                              .name = complete.name,
                              .members = complete.members,
                              .number = spec->count,
                              .id = spec->id,
                              .record_id = forming_record_id(spec->id, spec->count),
                              .requested = spec->is_requested};
    forming_begin(t, &forming);
    rc = group_open(t, &complete, out, &d);
    forming_end(t, &forming);
    if (!spec->is_listed)
        group_creation_remove(t, &listed);
    return rc == COLLRUN_OK ? COLLRUN_OK : error_from_diag(&d);
}

/* The name, which `unnamed` has room for, and the generation. They are taken before anything that
 * may fail on this rank alone, such as a backend that does not work here: all members count this
 * call, so that their next groups of this name meet. */
static int group_plan_name(struct group_table *t, const struct collrun_group_options *o,
                           char unnamed[GROUP_NAME_LEN], struct group_creation *listed,
                           struct group_spec *out)
{
    int rc;
    out->name_is_unique = !o->name || !*o->name;
    out->name = out->name_is_unique ? unnamed : o->name;
    if (!out->name_is_unique && group_find(t, o->name))
        return error_set(COLLRUN_ERR_EXISTS, "a group \"%s\" is already open", o->name);
    if (listed) {
        *listed = (struct group_creation){.name = out->name_is_unique ? "" : o->name};
        rc = group_creation_add(t, listed);
        if (rc != COLLRUN_OK)
            return rc;
        out->is_listed = true;
    }
    uint32_t number = 0;
    rc = out->name_is_unique ? group_make_name(t, out->members, unnamed, &number)
                             : generation_next(t, o->name, out->members, &number);
    out->generation = out->name_is_unique ? 0 : number;
    out->has_generation = !out->name_is_unique;
    out->count = (uint64_t)number + 1;
    out->id = generation_id(out->name_is_unique ? "" : o->name, out->members);
    return rc == COLLRUN_OK ? rc : error_set(rc, "group \"%s\": out of memory", group_label(o));
}

int group_plan(struct collrun_ctx *ctx, const struct collrun_group_options *options,
               struct desc_ranks *members, char unnamed[GROUP_NAME_LEN],
               struct group_creation *listed, struct group_spec *out)
{
    struct diag d;
    diag_init(&d);
    *out = (struct group_spec){0};
    int rc = group_check_options(ctx, options);
    if (rc == COLLRUN_OK)
        rc = group_copy_ranks(ctx, options, members);
    if (rc != COLLRUN_OK)
        return rc;
    struct group_table *t = ctx->groups;
    if (desc_ranks_find(members, t->process->rank) < 0)
        return error_set(COLLRUN_ERR_NOT_MEMBER,
                         "rank %u is not in group \"%s\"; only members create it", t->process->rank,
                         group_label(options));
    *out = (struct group_spec){.members = members,
                               .timeout_ns = options->timeout_ns,
                               .check = group_default_check(options),
                               .routes = {{NULL, group_gpus(options)}},
                               .nroutes = 1};
    rc = group_plan_name(t, options, unnamed, listed, out);
    if (rc != COLLRUN_OK)
        return rc;
    rc = group_find_backend(t->process, options->backend, members, &out->routes[0].backend, &d);
    return rc == COLLRUN_OK ? rc
                            : error_set(d.code, "group \"%s\": %s", group_label(options), d.text);
}

struct group_spec group_spec_like(const struct collrun_group *g, const char *name,
                                  const struct desc_ranks *members)
{
    struct group_spec spec = {.name = name,
                              .members = members,
                              .timeout_ns = g->timeout_ns,
                              .check = g->check,
                              .nroutes = g->nbackends};
    for (uint32_t i = 0; i < g->nbackends; i++)
        spec.routes[i] = (struct group_route){.backend = g->backends[i].backend,
                                              .ndevices = g->backends[i].ndevices};
    return spec;
}

int collrun_group_create(struct collrun_ctx *ctx, const struct collrun_group_options *options,
                         struct collrun_group **out)
{
    struct desc_ranks members = {0};
    struct group_spec spec;
    struct group_creation listed;
    char unnamed[GROUP_NAME_LEN];
    if (!out)
        return error_set(COLLRUN_ERR_INVALID,
                         "collrun_group_create: the output pointer for the group is NULL");
    int rc = group_plan(ctx, options, &members, unnamed, &listed, &spec);
    if (rc == COLLRUN_OK)
        rc = group_make(ctx->groups, &spec, out);
    if (spec.is_listed)
        group_creation_remove(ctx->groups, &listed);
    free(members.items);
    return rc;
}

/* ---- splitting ---- */

struct part {
    uint32_t rank; /* in the parent */
    int32_t color, key;
};

static int group_compare_keys(const void *a, const void *b)
{
    const struct part *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

static int group_exchange_parts(struct rendezvous *r, const struct collrun_group *parent,
                                struct part *parts)
{
    const int32_t mine[2] = {parts[parent->rank].color, parts[parent->rank].key};
    int32_t(*all)[2] = calloc(parent->nranks, sizeof *all);
    int rc = all ? rendezvous_allgather(r, mine, all)
                 : error_cause(COLLRUN_ERR_NO_MEMORY, "out of memory");
    for (uint32_t i = 0; rc == COLLRUN_OK && i < parent->nranks; i++)
        parts[i] = (struct part){.rank = i, .color = all[i][0], .key = all[i][1]};
    free(all);
    return rc;
}

/* Collects color and key of all members of the parent. It uses the rendezvous, so it works on any
 * backend. */
static int group_learn_parts(struct collrun_group *parent, uint32_t generation, struct part *parts)
{
    char name[512]; /* one of job.yaml may end in a host's name */
    struct diag d;
    struct rendezvous r;
    struct rendezvous_spec spec = {.name = name,
                                   .generation = generation,
                                   .members = &parent->id.members,
                                   .rank = parent->rank,
                                   .identity = "split",
                                   .index = UINT32_MAX,
                                   .timeout_ns = parent->process->desc.rendezvous_timeout_ns,
                                   .host = &parent->process->host_scopes};
    diag_init(&d);
    snprintf(name, sizeof name, "%s, split", parent->id.name);
    if (rendezvous_open(&r, &parent->process->control, &spec, &d) != COLLRUN_OK)
        return error_from_diag(&d);
    int rc = group_exchange_parts(&r, parent, parts);
    if (rc != COLLRUN_OK)
        rc = error_wrap(rc, parent->id.name, 0, "split");
    rendezvous_leave(&r);
    return rc;
}

/* The members with my color, ordered by key, then by rank in the parent. */
static uint32_t group_select_members(const struct collrun_group *parent, struct part *parts,
                                     int color, uint32_t *ranks)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < parent->nranks; i++) {
        if (parts[i].color == color)
            parts[n++] = parts[i];
    }
    qsort(parts, n, sizeof *parts, group_compare_keys);
    for (uint32_t i = 0; i < n; i++)
        ranks[i] = parent->id.members.items[parts[i].rank];
    return n;
}

/* Unique among the open groups: "world/1.0" is color 0 of the first split of world. */
static char *group_name_part(const struct collrun_group *parent, const struct group_split *split)
{
    char *name = NULL;
    if (split->name && *split->name)
        return strdup(split->name);
    if (asprintf(&name, "%s/%u.%d", parent->id.name, split->number + 1, split->color) < 0)
        return NULL;
    return name;
}

/* Forms the part of this rank. `ranks` has room for all members of the parent. */
static int group_make_part(struct collrun_group *parent, const struct group_split *split,
                           struct part *parts, uint32_t *ranks, struct collrun_group **out)
{
    struct desc_ranks members = {.items = ranks,
                                 .n = group_select_members(parent, parts, split->color, ranks)};
    char *name = group_name_part(parent, split);
    if (!name)
        return error_set(COLLRUN_ERR_NO_MEMORY, "split %s: out of memory", parent->id.name);
    struct group_spec spec = group_spec_like(parent, name, &members);
    spec.name_is_unique = !(split->name && *split->name);
    spec.is_listed = split->is_listed;
    spec.is_requested = split->is_requested;
    int rc = group_make(parent->table, &spec, out);
    free(name);
    return rc;
}

uint64_t group_split_record_id(const struct collrun_group *parent, const struct group_split *split)
{
    return forming_record_id(~rendezvous_hash_text(parent->rendezvous.scope), split->count);
}

int group_make_split(struct collrun_group *parent, const struct group_split *split,
                     struct collrun_group **out)
{
    struct part *parts = calloc(parent->nranks, sizeof *parts);
    uint32_t *ranks = calloc(parent->nranks, sizeof *ranks);
    int rc = parts && ranks
                 ? COLLRUN_OK
                 : error_set(COLLRUN_ERR_NO_MEMORY, "split %s: out of memory", parent->id.name);
    if (rc == COLLRUN_OK) {
        parts[parent->rank] = (struct part){
            .rank = parent->rank, .color = split->color < 0 ? -1 : split->color, .key = split->key};
        struct forming forming = {
            .kind = WIRE_FORMING_SPLIT,
            .name = parent->id.name,
            .members = &parent->id.members,
            .number = split->count,
            .parent = parent,
            /* With a request, the parent may be closed by now. */
            .record_id = split->is_requested ? 0 : group_split_record_id(parent, split),
            .requested = split->is_requested};
        forming_begin(parent->table, &forming);
        rc = group_learn_parts(parent, split->generation, parts);
        forming_end(parent->table, &forming);
    }
    if (rc == COLLRUN_OK && split->color < 0)
        *out = NULL;
    else if (rc == COLLRUN_OK)
        rc = group_make_part(parent, split, parts, ranks, out);
    free(parts);
    free(ranks);
    return rc;
}

int group_plan_split(struct collrun_group *parent, struct group_split *split)
{
    int rc = split->color < 0 ? COLLRUN_OK
                              : group_check_name(parent->table, "collrun_group_split", split->name);
    if (rc != COLLRUN_OK)
        return rc;
    rc = generation_within(parent, GENERATION_OF_SPLIT, &split->number, &split->generation);
    split->count = atomic_load_explicit(&parent->formed[GENERATION_OF_SPLIT], memory_order_relaxed);
    return rc == COLLRUN_OK ? rc : error_set(rc, "split %s: out of memory", parent->id.name);
}

int collrun_group_split(struct collrun_group *parent, int color, int key, const char *name,
                        struct collrun_group **out)
{
    struct group_split split = {.color = color, .key = key, .name = name};
    if (!parent || !out)
        return error_set(COLLRUN_ERR_INVALID, "collrun_group_split: the %s is NULL",
                         parent ? "output pointer for the group" : "group");
    int rc = group_enter(parent, "split");
    if (rc != COLLRUN_OK)
        return rc;
    rc = group_plan_split(parent, &split);
    if (rc == COLLRUN_OK)
        rc = group_make_split(parent, &split, out);
    group_leave(parent);
    return rc;
}

/* ---- shrinking ---- */

/* collrun_group_shrink: the members of a group that have not exited form a new one.
 *
 * 1. They agree on who is left (core/agreement.h).
 * 2. They form the group.
 * 3. They agree on whether all of them have it. If so, each of them returns it.
 * 4. If a member has exited meanwhile, they close what they have formed and begin again at 2 with
 *    those that are left. Each round has fewer members, so there is an end.
 * 5. If a member that is left could not form it, all of them fail.
 *
 * All members take the same decision, since each agreement gives all of them the same list. */

static int shrink_agree(struct collrun_group *broken, int status, struct agreement *out)
{
    struct group_table *t = broken->table;
    struct diag d;
    uint32_t number;
    struct agreement_spec spec = {.name = broken->id.name,
                                  .members = &broken->id.members,
                                  .timeout_ns = t->process->desc.rendezvous_timeout_ns};
    diag_init(&d);
    int rc = generation_within(broken, GENERATION_OF_AGREEMENT, &number, &spec.generation);
    if (rc != COLLRUN_OK)
        return error_set(rc, "shrink %s: out of memory", broken->id.name);
    struct forming forming = {
        .kind = WIRE_FORMING_SHRINK, .name = broken->id.name, .members = &broken->id.members};
    forming_begin(t, &forming);
    rc = agreement_reach(&t->process->control, &spec, status, out, &d);
    forming_end(t, &forming);
    if (rc != COLLRUN_OK && control_has(&t->process->control, CONTROL_ABORT))
        rc = COLLRUN_ERR_ABORTED; /* not PEER_FAILED: another shrink would not help */
    return rc == COLLRUN_OK ? rc : error_set(rc, "shrink %s: %s", broken->id.name, d.text);
}

static int shrink_form(const struct collrun_group *broken, const char *name,
                       const struct agreement *left, struct collrun_group **out)
{
    const struct desc_ranks members = {.items = left->ranks, .n = left->n};
    const struct group_spec spec = group_spec_like(broken, name, &members);
    return group_make(broken->table, &spec, out);
}

/* The failure that all members return: that of this one, or of the first that has failed. */
static int shrink_failed(const struct collrun_group *broken, int own, const struct agreement *now)
{
    if (own != COLLRUN_OK)
        return own;
    for (uint32_t i = 0; i < now->n; i++) {
        if (now->statuses[i] != COLLRUN_OK)
            return error_set(now->statuses[i],
                             "shrink %s: rank %u could not form the new group: %s", broken->id.name,
                             now->ranks[i], collrun_strstatus(now->statuses[i]));
    }
    return COLLRUN_OK;
}

/* One round, with the members in *left; AGAIN: fewer are left now. */
static int shrink_round(struct collrun_group *broken, const char *name, struct agreement *left,
                        struct collrun_group **out)
{
    struct collrun_group *g = NULL;
    struct agreement now = {0};
    int formed = shrink_form(broken, name, left, &g);
    struct error_record reason = *error_get();
    int rc = shrink_agree(broken, formed, &now);
    if (rc == COLLRUN_OK && now.n < left->n) {
        rc = COLLRUN_AGAIN;
    } else if (rc == COLLRUN_OK) {
        if (formed != COLLRUN_OK)
            error_restore(&reason);
        rc = shrink_failed(broken, formed, &now);
    }
    if (rc == COLLRUN_OK)
        *out = g;
    else if (g)
        group_close(g);
    agreement_fini(left);
    *left = now;
    return rc;
}

int collrun_group_shrink(struct collrun_group *broken, const char *name, struct collrun_group **out)
{
    struct agreement left = {0};
    if (!broken || !out)
        return error_set(COLLRUN_ERR_INVALID, "collrun_group_shrink: the %s is NULL",
                         broken ? "output pointer for the group" : "group");
    int rc = group_enter(broken, "shrink");
    if (rc != COLLRUN_OK)
        return rc;
    rc = group_check_name(broken->table, "collrun_group_shrink", name);
    if (rc == COLLRUN_OK && name && *name && group_find(broken->table, name))
        rc = error_set(COLLRUN_ERR_EXISTS, "collrun_group_shrink: a group \"%s\" is already open",
                       name);
    if (rc == COLLRUN_OK) {
        threads_busy(&broken->process->busy, 1);
        rc = shrink_agree(broken, COLLRUN_OK, &left);
        while (rc == COLLRUN_OK && (rc = shrink_round(broken, name, &left, out)) == COLLRUN_AGAIN)
            rc = COLLRUN_OK;
        threads_busy(&broken->process->busy, -1);
        agreement_fini(&left);
    }
    group_leave(broken);
    return rc;
}
