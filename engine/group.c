/* SPDX-License-Identifier: Apache-2.0
 *
 * Forming, failing and closing groups.
 */
#include "group.h"

#include "backend.h"
#include "base/loop.h"
#include "engine.h"
#include "names.h"
#include "threads.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How long a backend's complaint about a peer waits for the runner's word on what happened to that
 * peer. */
enum { CULPRIT_PATIENCE_MS = 1000 };

/* ---- the table of open groups ---- */

int group_rank_in(const struct desc_ranks *members, uint32_t rank)
{
    for (uint32_t i = 0; i < members->n; i++) {
        if (members->items[i] == rank)
            return (int)i;
    }
    return -1;
}

struct collrun_group *group_find(struct engine *e, const char *name)
{
    pthread_mutex_lock(&e->groups_lock);
    struct collrun_group *g = e->groups;
    while (g && strcmp(g->name, name) != 0)
        g = g->next;
    pthread_mutex_unlock(&e->groups_lock);
    return g;
}

bool group_is_open(struct engine *e, const struct collrun_group *g)
{
    pthread_mutex_lock(&e->groups_lock);
    const struct collrun_group *p = e->groups;
    while (p && p != g)
        p = p->next;
    pthread_mutex_unlock(&e->groups_lock);
    return p != NULL;
}

static void table_remove(struct engine *e, const struct collrun_group *g)
{
    pthread_mutex_lock(&e->groups_lock);
    struct collrun_group **p = &e->groups;
    while (*p && *p != g)
        p = &(*p)->next;
    if (*p)
        *p = g->next;
    pthread_mutex_unlock(&e->groups_lock);
}

/* Counted per name and members, so that the n-th forming on one rank meets the n-th on the others.
 */
static int next_generation(struct engine *e, const char *name, const struct desc_ranks *members,
                           uint32_t *out)
{
    uint64_t hash = rendezvous_hash(members);
    pthread_mutex_lock(&e->groups_lock);
    struct generation *g = e->generations;
    while (g && (g->hash != hash || strcmp(g->name, name) != 0))
        g = g->after;
    if (!g && (g = calloc(1, sizeof *g))) {
        g->name = strdup(name);
        g->hash = hash;
        g->after = e->generations;
        if (g->name)
            e->generations = g;
    }
    bool good = g && g->name;
    if (good)
        *out = g->next++;
    else
        free(g);
    pthread_mutex_unlock(&e->groups_lock);
    return good ? COLLRUN_OK : COLLRUN_ERR_NO_MEMORY;
}

/* ---- forming ---- */

static void name_backends(struct collrun_group *g)
{
    if (g->nsides == 1)
        snprintf(g->backend_name, sizeof g->backend_name, "%s", g->sides[0].backend->name);
    else
        snprintf(g->backend_name, sizeof g->backend_name, "%s (host), %s (cuda)",
                 g->sides[0].backend->name, g->sides[1].backend->name);
}

static struct collrun_group *group_new(struct engine *e, const struct group_spec *spec,
                                       uint32_t rank)
{
    struct collrun_group *g = calloc(1, sizeof *g);
    uint32_t *members = calloc(spec->members->n, sizeof *members);
    char *name = strdup(spec->name);
    if (!g || !members || !name) {
        free(g);
        free(members);
        free(name);
        return NULL;
    }
    memcpy(members, spec->members->items, spec->members->n * sizeof *members);
    g->engine = e;
    g->name = name;
    g->sides[0].backend = spec->backend;
    g->sides[1].backend = spec->cuda_backend;
    g->nsides = spec->cuda_backend ? 2 : 1;
    g->members = (struct desc_ranks){.items = members, .n = spec->members->n};
    g->rank = rank;
    g->nranks = spec->members->n;
    g->timeout_ns = spec->timeout_ns;
    g->check = spec->check;
    g->index = spec->index;
    g->gpus_per_process = spec->gpus_per_process;
    g->has_gpus = e->ngpus > 0;
    name_backends(g);
    atomic_init(&g->refs, 1);
    pthread_mutex_init(&g->fate_lock, NULL);
    return g;
}

static void group_free(struct collrun_group *g)
{
    pthread_mutex_destroy(&g->fate_lock);
    free(g->fate_text);
    free(g->members.items);
    free(g->name);
    free(g);
}

/* In place of the one that was closed longest ago. */
static void retire(struct collrun_group *g)
{
    struct engine *e = g->engine;
    pthread_mutex_lock(&e->groups_lock);
    struct collrun_group **place = &e->retired[e->nretired++ % ENGINE_RETIRED];
    struct collrun_group *oldest = *place;
    *place = g;
    pthread_mutex_unlock(&e->groups_lock);
    if (oldest)
        group_free(oldest);
}

void group_unref(struct collrun_group *g)
{
    if (atomic_fetch_sub_explicit(&g->refs, 1, memory_order_acq_rel) == 1)
        retire(g);
}

void group_forget_all(struct engine *e)
{
    for (uint32_t i = 0; i < ENGINE_RETIRED; i++) {
        if (e->retired[i])
            group_free(e->retired[i]);
        e->retired[i] = NULL;
    }
}

/* The agent shows a process its own GPUs only: they are 0, 1, ... there. */
#define FROM(n) n, (n) + 1, (n) + 2, (n) + 3, (n) + 4, (n) + 5, (n) + 6, (n) + 7
static const int32_t ordinals[GROUP_MOST_DEVICES] = {FROM(0),  FROM(8),  FROM(16), FROM(24),
                                                     FROM(32), FROM(40), FROM(48), FROM(56)};

/* What a backend is told; host_of has room for all members. */
static void describe_group(struct collrun_group *g, struct group_side *side, uint32_t *host_of,
                           struct collrun_group_desc *out)
{
    const struct desc *desc = &g->engine->desc;
    *out = (struct collrun_group_desc){.size = sizeof *out,
                                       .rank = g->rank,
                                       .nranks = g->nranks,
                                       .name = g->name,
                                       .world_rank = g->members.items,
                                       .host_of = host_of,
                                       .address = g->engine->address,
                                       .interface = g->engine->interface,
                                       .timeout_ns = g->timeout_ns,
                                       .rendezvous = &g->rendezvous.lent,
                                       .services = &side->services.lent,
                                       .ndevices = side->ndevices,
                                       .devices = ordinals,
                                       .ncpus = g->engine->ncpus,
                                       .deadline_ns = rendezvous_ends_ns(&g->rendezvous)};
    for (uint32_t i = 0; i < g->nranks; i++) {
        host_of[i] = desc->ranks[g->members.items[i]].host;
        if (host_of[i] != g->engine->host)
            continue;
        if (i == g->rank)
            out->local_rank = out->nlocal;
        out->nlocal++;
    }
}

/* One handle is enough where messages in flight progress while a collective is under way. */
static bool needs_two_handles(const struct collrun_group *g, const struct group_side *side)
{
    const struct backend *b = side->backend;
    bool starts_all =
        b->has_start && (!b->has_exec || (b->table.flags & COLLRUN_BACKEND_STARTS_ALL));
    return g->nranks * group_devices(side) > 1 &&
           (!starts_all || !(b->table.flags & COLLRUN_BACKEND_TAGS) ||
            (b->table.flags & COLLRUN_BACKEND_MESSAGES_APART) || g->check == COLLRUN_CHECK_STRICT);
}

static int open_handles(struct collrun_group *g, struct group_side *side,
                        struct collrun_group_desc *desc)
{
    static const char *const prefixes[2][2] = {{"", "messages/"}, {"cuda/", "cuda/messages/"}};
    uint32_t want = needs_two_handles(g, side) ? 2 : 1;
    struct adoption own;
    while (side->nlanes < want) {
        void *handle = NULL;
        desc->sibling = side->nlanes ? side->lanes[0].handle : NULL;
        rendezvous_prefix(&g->rendezvous, prefixes[side != g->sides][side->nlanes > 0]);
        error_clear_cause();
        adoption_begin(&own, side->backend->name);
        int rc = side->backend->table.group_open(side->backend->state, desc, &handle);
        adoption_end(&own);
        if (rc != COLLRUN_OK)
            return rc;
        lane_init(&side->lanes[side->nlanes], g, side->backend, handle);
        side->nlanes++;
    }
    side->lanes[0].shared = want == 1;
    side->lane[GROUP_COLLECTIVES] = &side->lanes[0];
    side->lane[GROUP_MESSAGES] = &side->lanes[want - 1];
    return COLLRUN_OK;
}

static void close_handles(struct collrun_group *g)
{
    for (uint32_t i = 0; i < 2; i++) {
        struct group_side *side = &g->sides[i];
        for (; side->nlanes; side->nlanes--) {
            lane_fini(&side->lanes[side->nlanes - 1]);
            side->backend->table.group_close(side->lanes[side->nlanes - 1].handle);
        }
    }
}

static int meet_side(struct collrun_group *g, struct group_side *side, uint32_t *host_of)
{
    struct collrun_group_desc desc;
    if (side->backend->table.flags & COLLRUN_BACKEND_NEEDS_DEVICE)
        side->ndevices = g->gpus_per_process ? g->gpus_per_process : 1;
    if (side->ndevices > g->engine->ngpus || side->ndevices > GROUP_MOST_DEVICES)
        return error_cause(COLLRUN_ERR_UNAVAILABLE,
                           "it needs %u GPUs in each process, and this rank owns %u",
                           side->ndevices, g->engine->ngpus);
    side->nplaces = g->nranks * group_devices(side);
    side->first_place = g->rank * group_devices(side);
    describe_group(g, side, host_of, &desc);
    return open_handles(g, side, &desc);
}

/* The members' backends are compared by the store when they join; a fence is what tells them of the
 * result. */
static int meet(struct collrun_group *g)
{
    uint32_t *host_of = calloc(g->nranks, sizeof *host_of);
    if (!host_of)
        return error_cause(COLLRUN_ERR_NO_MEMORY, "out of memory");
    int rc = COLLRUN_OK;
    for (uint32_t i = 0; rc == COLLRUN_OK && i < g->nsides; i++)
        rc = meet_side(g, &g->sides[i], host_of);
    if (rc == COLLRUN_OK && g->rendezvous.fences == 0 && g->nranks > 1)
        rc = g->rendezvous.lent.fence(&g->rendezvous);
    rendezvous_settle(&g->rendezvous);
    free(host_of);
    return rc;
}

/* What all members must agree on. */
static void describe_identity(const struct collrun_group *g, char *out, size_t size)
{
    for (uint32_t i = 0; i < g->nsides; i++) {
        size_t len = i ? strlen(out) : 0;
        if (i)
            len += (size_t)snprintf(out + len, size - len, "; ");
        backend_identity(g->sides[i].backend, out + len, size - len);
    }
    if (g->check == COLLRUN_CHECK_STRICT)
        strncat(out, ", check: strict", size - strlen(out) - 1);
}

static int join(struct collrun_group *g, const struct group_spec *spec, struct diag *d)
{
    char identity[256];
    struct rendezvous_spec join = {.name = spec->name,
                                   .members = spec->members,
                                   .identity = identity,
                                   .index = spec->index,
                                   .timeout_ns = g->engine->desc.rendezvous_timeout_ns};
    describe_identity(g, identity, sizeof identity);
    if (next_generation(g->engine, spec->name, spec->members, &join.generation) != COLLRUN_OK)
        return diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory for group \"%s\"", spec->name);
    for (uint32_t i = 0; i < g->nsides; i++)
        services_init(&g->sides[i].services, &g->engine->control, spec->options,
                      g->sides[i].backend->services.options[0], "%s, group %s",
                      g->sides[i].backend->name, g->name);
    int rc = rendezvous_open(&g->rendezvous, &g->engine->control, &join, d);
    if (rc != COLLRUN_OK)
        return rc;
    rc = meet(g);
    if (rc == COLLRUN_OK)
        return rc;
    if (g->rendezvous.failure.code != COLLRUN_OK)
        *d = g->rendezvous.failure; /* with its place, and whole */
    else
        diag_set(d, rc, "group \"%s\" on backend \"%s\": %s", g->name, g->backend_name,
                 error_get()->cause[0] ? error_get()->cause : collrun_strstatus(rc));
    close_handles(g);
    rendezvous_leave(&g->rendezvous);
    return d->code;
}

/* A job that failed meanwhile finds the group in the table, or this finds the failure. */
static void publish(struct collrun_group *g)
{
    struct engine *e = g->engine;
    pthread_mutex_lock(&e->groups_lock);
    g->next = e->groups;
    e->groups = g;
    pthread_mutex_unlock(&e->groups_lock);
    if (control_has(&e->control, CONTROL_ABORT))
        group_abort(g, e->control.abort_reason.code, e->control.abort_reason.text);
}

int group_open(struct engine *e, const struct group_spec *spec, struct collrun_group **out,
               struct diag *d)
{
    int rank = group_rank_in(spec->members, e->rank);
    if (rank < 0)
        return diag_set(d, COLLRUN_ERR_NOT_MEMBER, "rank %u is not in group \"%s\"", e->rank,
                        spec->name);
    if (group_find(e, spec->name))
        return diag_set(d, COLLRUN_ERR_EXISTS, "a group \"%s\" is open already", spec->name);
    struct collrun_group *g = group_new(e, spec, (uint32_t)rank);
    if (!g)
        return diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory for group \"%s\"", spec->name);
    int rc = join(g, spec, d);
    if (rc != COLLRUN_OK) {
        group_free(g);
        return rc;
    }
    for (int i = 0; i < 2; i++)
        g->record[i] = record_open(e->record, g->name);
    publish(g);
    *out = g;
    return COLLRUN_OK;
}

void group_close(struct collrun_group *g)
{
    table_remove(g->engine, g);
    /* Only what is still inside is aborted: peers may yet receive what was sent. */
    bool idle = true;
    for (uint32_t i = 0; i < g->nsides; i++)
        for (uint32_t k = 0; k < g->sides[i].nlanes; k++)
            idle = idle && lane_is_idle(&g->sides[i].lanes[k]);
    if (!idle)
        group_abort(g, COLLRUN_ERR_ABORTED, "the group was destroyed");
    close_handles(g);
    group_free_memory(g);
    for (int i = 0; i < 2; i++)
        record_close(g->record[i]);
    rendezvous_leave(&g->rendezvous);
    group_unref(g);
}

/* ---- failing ---- */

/* True if this is the first reason. */
static bool doom(struct collrun_group *g, int status, const char *why)
{
    pthread_mutex_lock(&g->fate_lock);
    bool first = atomic_load_explicit(&g->fate, memory_order_relaxed) == 0;
    if (first) {
        g->fate_text = strdup(why);
        atomic_store_explicit(&g->fate, status, memory_order_release);
    }
    pthread_mutex_unlock(&g->fate_lock);
    return first;
}

void group_abort(struct collrun_group *g, int status, const char *why)
{
    doom(g, status, why);
    for (uint32_t i = 0; i < g->nsides; i++)
        for (uint32_t k = 0; k < g->sides[i].nlanes; k++)
            g->sides[i].backend->table.group_abort(g->sides[i].lanes[k].handle);
}

void group_abort_all(struct engine *e, int status, const char *why)
{
    pthread_mutex_lock(&e->groups_lock);
    for (struct collrun_group *g = e->groups; g; g = g->next)
        group_abort(g, status, why);
    pthread_mutex_unlock(&e->groups_lock);
}

void group_abort_with(struct engine *e, uint32_t member, int status, const char *why)
{
    pthread_mutex_lock(&e->groups_lock);
    for (struct collrun_group *g = e->groups; g; g = g->next) {
        if (group_rank_in(&g->members, member) >= 0)
            group_abort(g, status, why);
    }
    pthread_mutex_unlock(&e->groups_lock);
}

/* What is in flight through another handle fails with the group, not at its own time-out. An idle
 * one is left alone: to abort it may tell peers who are about to find the reason for themselves. */
static void abort_others(struct collrun_group *g, enum group_lane failed)
{
    for (uint32_t i = 0; i < g->nsides; i++) {
        struct group_side *side = &g->sides[i];
        for (uint32_t k = 0; k < side->nlanes; k++) {
            struct lane *lane = &side->lanes[k];
            if (lane != side->lane[failed] && !lane_is_idle(lane))
                side->backend->table.group_abort(lane->handle);
        }
    }
}

static bool is_doomed(const struct collrun_group *g)
{
    return atomic_load_explicit(&g->fate, memory_order_acquire) != 0;
}

/* The runner's word on what happened to a peer is on its way: waits until it is here, and not too
 * long. */
static void await_culprit(const struct collrun_group *g)
{
    struct control *c = &g->engine->control;
    uint64_t until = now_ns() + (uint64_t)CULPRIT_PATIENCE_MS * 1000000u;
    for (uint64_t now = now_ns(); now < until && !is_doomed(g); now = now_ns()) {
        if (control_wait(c, CONTROL_ABORT, now + 2000000))
            return;
    }
}

static int sentence(struct collrun_group *g, enum collrun_kind kind, uint64_t number, int status)
{
    char where[256];
    const char *name = kind_name(kind);
    snprintf(where, sizeof where, "%s %s#%llu", name ? name : "call", g->name,
             (unsigned long long)number);
    return error_wrap(status, g->name, number, where);
}

int group_refuse(struct collrun_group *g, enum collrun_kind kind, uint64_t number)
{
    int status = atomic_load_explicit(&g->fate, memory_order_acquire);
    error_cause(status, "%s", g->fate_text ? g->fate_text : collrun_strstatus(status));
    return sentence(g, kind, number, status);
}

int group_failed(struct collrun_group *g, enum collrun_kind kind, uint64_t number, int status)
{
    struct control *c = &g->engine->control;
    bool about_peer = status == COLLRUN_ERR_ABORTED || status == COLLRUN_ERR_PEER_FAILED ||
                      status == COLLRUN_ERR_BACKEND;
    if (about_peer)
        await_culprit(g);
    if (about_peer && control_has(c, CONTROL_ABORT)) {
        status = c->abort_reason.code;
        error_cause(status, "%s", c->abort_reason.text);
    } else if (is_doomed(g)) {
        return group_refuse(g, kind, number);
    }
    sentence(g, kind, number, status);
    if (!group_survives(status) && doom(g, status, error_get()->text))
        abort_others(g, group_lane_of(kind));
    return status;
}
