/* SPDX-License-Identifier: Apache-2.0
 *
 * A group forms, in the order that matters (group_open):
 *
 * 1. Each member knows name, members and options already: from job.yaml (rank_main.c), or as the
 *    arguments of collrun_group_create, split or shrink (group_make.c). The thread of such a call
 * is listed in the table (struct forming), so that a report can say for whom it waits.
 * 2. Number it (group_join, generation_of_group): the n-th group of this name and these members on
 *    one rank is the n-th on the others. Name, number and members are the scope, where the members
 *    meet. Members that disagree about the list have different scopes, and do not meet; the
 *    deadlock proof and the audit find that (runner/diagnose/deadlock.h).
 * 3. Join the scope (rendezvous_open). Members of one host meet in the memory of the host
 *    (host_scope.h), or in the store of their agent; others meet in the store of the runner
 *    (runner/rendezvous/store.h). Each of these compares what the members must agree on: backend,
 *    version, ABI. A difference fails the scope for all, with the two ranks in the message.
 * 4. Open the handles of each backend (group_open_backends). A backend exchanges addresses and
 *    segments by put, get, fence and share of the scope; nothing else connects the members. A
 *    backend gets two handles if collectives and messages could block each other in one.
 * 5. Confirm (rendezvous_confirm): the last fence returns when all members have opened theirs, or
 *    the failure of one of them. Until then every step is undone by its own code, and the members
 *    that wait get the same failure, or the names of those that are missing at the deadline
 *    (timeouts.rendezvous).
 * 6. Record it before the table has it: a thread that finds the group can record an operation at
 *    once.
 * 7. Publish it (group_table_add), and only then look whether a member has failed meanwhile
 *    (group_check_failures). The service thread does it in the other order: it marks the failure
 *    first and then goes through the table. So one of the two sees the other.
 */
#include "group/group_open.h"

#include "base/call_text.h"
#include "base/debug.h"
#include "base/names.h"
#include "base/quote.h"
#include "core/backend.h"
#include "core/process.h"
#include "core/threads.h"
#include "group/group.h"
#include "group/table.h"
#include "group/thread_record.h"
#include "progress/progress_queue.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- names ---- */

/* The ranks in their order, "0-3,7"; false if they need more than `size` bytes. */
static bool group_print_ranks(const struct desc_ranks *members, char *out, size_t size)
{
    size_t len = 0;
    for (uint32_t i = 0, last; i < members->n && len < size; i = last + 1) {
        const uint32_t *ranks = members->items;
        for (last = i; last + 1 < members->n && ranks[last + 1] == ranks[last] + 1;)
            last++;
        int n = last == i ? snprintf(out + len, size - len, "%s%u", i ? "," : "", ranks[i])
                          : snprintf(out + len, size - len, "%s%u-%u", i ? "," : "", ranks[i],
                                     ranks[last]);
        len += (size_t)n;
    }
    return len < size;
}

int group_make_name(struct group_table *t, const struct desc_ranks *members,
                    char out[GROUP_NAME_LEN], uint32_t *number)
{
    char ranks[80];
    if (generation_next(t, "", members, number) != COLLRUN_OK)
        return COLLRUN_ERR_NO_MEMORY;
    if (!group_print_ranks(members, ranks, sizeof ranks))
        snprintf(ranks, sizeof ranks, "%u ranks, %016llx", members->n,
                 (unsigned long long)rendezvous_hash(members));
    snprintf(out, GROUP_NAME_LEN, "group(%s).%u", ranks, *number + 1);
    return COLLRUN_OK;
}

/* ---- what the members compare ---- */

static void group_identity_print(const struct collrun_group *g, FILE *to)
{
    for (uint32_t i = 0; i < g->nbackends; i++) {
        const struct backend *b = g->backends[i].backend;
        fprintf(to, "%s%s %s, ABI %u", i ? "; " : "", b->name, b->table.version, b->table.abi);
    }
    if (g->check == COLLRUN_CHECK_STRICT)
        fputs(", check: strict", to);
}

bool group_identity(const struct collrun_group *g, char out[HOSTMEM_IDENTITY_LEN])
{
    char *text;
    size_t len;
    FILE *stream = text_stream_open(&text, &len);
    if (stream)
        group_identity_print(g, stream);
    if (!text_stream_close(stream, &text))
        return false;
    if (len < HOSTMEM_IDENTITY_LEN)
        memcpy(out, text, len + 1);
    else
        snprintf(out, HOSTMEM_IDENTITY_LEN, "%016llx: %s",
                 (unsigned long long)rendezvous_hash_text(text), text);
    free(text);
    return true;
}

/* ---- forming ---- */

static void group_name_backends(struct collrun_group *g)
{
    if (g->nbackends == 1)
        snprintf(g->id.backend_name, sizeof g->id.backend_name, "%s", g->backends[0].backend->name);
    else
        snprintf(g->id.backend_name, sizeof g->id.backend_name, "%s (host)",
                 g->backends[0].backend->name);
    for (uint32_t i = 1; i < g->nbackends; i++) {
        const struct backend *b = g->backends[i].backend;
        size_t len = strlen(g->id.backend_name);
        snprintf(g->id.backend_name + len, sizeof g->id.backend_name - len, ", %s (%s)", b->name,
                 b->kind.name ? b->kind.name : "host");
    }
}

/* The kinds of memory of the group's pointers: those that the rank owns devices of, and those of
 * the group's backends. */
static int group_find_kinds(struct collrun_group *g, struct diag *d)
{
    struct memory_kind_set *set = &g->kinds;
    for (; set->n < g->process->kinds.nowned; set->n++)
        set->items[set->n] = g->process->kinds.open.items[set->n];
    for (uint32_t i = 0; i < g->nbackends; i++) {
        struct group_backend *gb = &g->backends[i];
        uint32_t k = 0;
        int rc = memory_kinds_of_backend(g->process, gb->backend, &gb->kind, d);
        if (rc != COLLRUN_OK)
            return diag_wrap(d, "group \"%s\"", g->id.name);
        while (k < set->n && set->items[k] != gb->kind)
            k++;
        if (gb->kind && k == set->n)
            set->items[set->n++] = gb->kind;
    }
    return COLLRUN_OK;
}

static struct collrun_group *group_new(struct group_table *t, const struct group_spec *spec,
                                       uint32_t rank)
{
    struct collrun_group *g = calloc(1, sizeof *g);
    uint32_t *members = calloc(spec->members->n, sizeof *members);
    struct group_backend *backends = calloc(spec->nroutes, sizeof *backends);
    char *name = strdup(spec->name);
    if (!g || !members || !backends || !name) {
        free(g);
        free(members);
        free(backends);
        free(name);
        return NULL;
    }
    memcpy(members, spec->members->items, spec->members->n * sizeof *members);
    g->process = t->process;
    g->table = t;
    g->id.name = name;
    g->backends = backends;
    g->nbackends = spec->nroutes;
    for (uint32_t i = 0; i < g->nbackends; i++)
        g->backends[i] = (struct group_backend){
            .backend = spec->routes[i].backend, .ndevices = spec->routes[i].ndevices, .group = g};
    g->id.members = (struct desc_ranks){.items = members, .n = spec->members->n};
    g->rank = rank;
    g->nranks = spec->members->n;
    g->timeout_ns = spec->timeout_ns;
    g->check = spec->check;
    g->id.index = spec->index;
    g->id.on_demand = spec->on_demand;
    g->id.is_unique = spec->name_is_unique;
    group_name_backends(g);
    atomic_init(&g->refs, 1);
    pthread_mutex_init(&g->status.lock, NULL);
    pthread_mutex_init(&g->requests.lock, NULL);
    return g;
}

/* The description of the group for a backend; host_of has room for all members. */
static void group_describe(struct collrun_group *g, struct group_backend *gb, uint32_t *host_of,
                           struct collrun_group_desc *out)
{
    const struct desc *desc = &g->process->desc;
    *out = (struct collrun_group_desc){.size = sizeof *out,
                                       .rank = g->rank,
                                       .nranks = g->nranks,
                                       .name = g->id.name,
                                       .world_rank = g->id.members.items,
                                       .host_of = host_of,
                                       .address = g->process->address,
                                       .interface = g->process->interface,
                                       .first_port = desc->first_port,
                                       .last_port = desc->last_port,
                                       .timeout_ns = g->timeout_ns,
                                       .rendezvous = &g->rendezvous.table,
                                       .services = &gb->services.table,
                                       .flags = g->id.on_demand ? COLLRUN_GROUP_ON_DEMAND : 0,
                                       .ndevices = gb->ndevices,
                                       .devices = gb->kind ? gb->kind->numbers : NULL,
                                       .ncpus = g->process->ncpus,
                                       .deadline_ns = rendezvous_ends_ns(&g->rendezvous)};
    for (uint32_t i = 0; i < g->nranks; i++) {
        host_of[i] = desc->ranks[g->id.members.items[i]].host;
        if (host_of[i] != g->process->host)
            continue;
        if (i == g->rank)
            out->local_rank = out->nlocal;
        out->nlocal++;
    }
}

/* One handle is enough if messages in flight progress during a collective. */
static bool group_needs_two_handles(const struct collrun_group *g, const struct group_backend *gb)
{
    const struct backend *b = gb->backend;
    bool start_collectives = (b->has_start || b->has_transport) &&
                             (!b->has_exec || (b->table.flags & COLLRUN_BACKEND_START_COLLECTIVES));
    return g->nranks * group_devices(gb) > 1 &&
           (!start_collectives || !(b->table.flags & COLLRUN_BACKEND_TAGS) ||
            (b->table.flags & COLLRUN_BACKEND_SEPARATE_P2P_HANDLE) ||
            g->check == COLLRUN_CHECK_STRICT);
}

/* Copies a message of this rank to itself. */
static int group_copy_own(void *ctx, void *dst, const void *src, size_t len)
{
    const struct collrun_group *g = ctx;
    return memory_kind_copy_bytes(&g->kinds, dst, src, len, g->timeout_ns);
}

static void group_queue_init(struct progress_queue *pq, struct group_backend *gb, void *handle,
                             struct p2p *p2p)
{
    pq_init(pq, &(struct pq_config){.backend = gb->backend,
                                    .handle = handle,
                                    .p2p = p2p,
                                    .ops = gb->group->table->ops->requests,
                                    .ctx = gb,
                                    .failed = &gb->group->status.code,
                                    .busy = &gb->group->process->busy,
                                    .exec_collectives = gb->group->check == COLLRUN_CHECK_STRICT});
    if (!p2p)
        return;
    p2p->copy = gb->group->kinds.n ? group_copy_own : NULL;
    p2p->copy_ctx = gb->group;
}

static int group_open_handle(struct collrun_group *g, struct group_backend *gb,
                             struct collrun_group_desc *desc)
{
    struct backend *b = gb->backend;
    struct p2p *p2p = NULL;
    struct thread_tag own;
    void *handle = NULL;
    error_clear_cause();
    if (b->has_transport &&
        !(p2p = p2p_new(b->table.transport, desc->services, g->rank, g->nranks)))
        return error_cause(COLLRUN_ERR_NO_MEMORY, "out of memory for messages");
    desc->p2p = p2p ? &p2p->table : NULL;
    /* What a library starts for all groups, it starts with the first one. */
    thread_tag_begin(&own, b->name, !atomic_load(&b->has_groups));
    debug_log(DEBUG_GROUP,
              "group \"%s\": opens a handle of %s, as member %u of %u, %u devices, on "
              "%s",
              g->id.name, b->name, g->rank, g->nranks, desc->ndevices,
              desc->address ? desc->address : "no address");
    int rc = b->table.group_open(b->state, desc, &handle);
    thread_tag_end(&own);
    if (rc != COLLRUN_OK)
        debug_log(DEBUG_GROUP, "group \"%s\": %s does not open it, status %d: %s", g->id.name,
                  b->name, rc, error_get()->cause);
    if (rc == COLLRUN_OK)
        atomic_store(&b->has_groups, true);
    if (rc != COLLRUN_OK) {
        p2p_free(p2p);
        return rc;
    }
    if (p2p)
        p2p->handle = handle;
    group_queue_init(&gb->queues[gb->nqueues++], gb, handle, p2p);
    return COLLRUN_OK;
}

static int group_open_handles(struct collrun_group *g, struct group_backend *gb,
                              struct collrun_group_desc *desc)
{
    char prefix[2 * BACKEND_NAME_LEN];
    uint32_t want = group_needs_two_handles(g, gb) ? 2 : 1;
    while (gb->nqueues < want) {
        desc->collectives_handle = gb->nqueues ? gb->queues[0].config.handle : NULL;
        snprintf(prefix, sizeof prefix, "%s%s%s", gb == g->backends ? "" : gb->kind->name,
                 gb == g->backends ? "" : "/", gb->nqueues ? "messages/" : "");
        rendezvous_prefix(&g->rendezvous, prefix);
        int rc = group_open_handle(g, gb, desc);
        rendezvous_prefix(&g->rendezvous, "");
        if (rc != COLLRUN_OK)
            return rc;
    }
    gb->queues[0].shared = want == 1;
    gb->pq[GROUP_COLLECTIVES] = &gb->queues[0];
    gb->pq[GROUP_MESSAGES] = &gb->queues[want - 1];
    return COLLRUN_OK;
}

static void group_close_handles(struct collrun_group *g)
{
    for (uint32_t i = 0; i < g->nbackends; i++) {
        struct group_backend *gb = &g->backends[i];
        for (uint32_t k = gb->nqueues; k-- > 0;) {
            struct progress_queue *pq = &gb->queues[k];
            pq_stop(pq);
            gb->backend->table.group_close(pq->config.handle);
            if (pq->config.p2p)
                p2p_close(pq->config.p2p);
        }
    }
}

/* The engine compares calls in memory of the host, which the backend must reach. */
static int group_check_strict(const struct collrun_group *g, const struct group_backend *gb)
{
    const struct memory_kind *kind = group_host_kind(gb);
    if (g->check != COLLRUN_CHECK_STRICT || !kind || kind->table.host_alloc || gb->comm_size == 1)
        return COLLRUN_OK;
    return error_cause(COLLRUN_ERR_UNSUPPORTED,
                       "check: strict compares calls in host memory that the %ss reach, and the "
                       "kind of memory \"%s\" has no host_alloc; set check: off",
                       kind->title, kind->name);
}

static int group_open_backend(struct collrun_group *g, struct group_backend *gb, uint32_t *host_of)
{
    struct collrun_group_desc desc;
    bool uses_devices = gb->backend->table.flags & COLLRUN_BACKEND_NEEDS_DEVICE && gb->kind;
    uint32_t owned = gb->kind ? gb->kind->ndevices : 0;
    gb->ndevices = !uses_devices ? 0 : gb->ndevices ? gb->ndevices : 1;
    if (gb->ndevices > owned)
        return error_cause(COLLRUN_ERR_UNAVAILABLE,
                           "the backend needs %u %ss in each process, but this rank owns %u",
                           gb->ndevices, gb->kind->title, owned);
    gb->comm_size = g->nranks * group_devices(gb);
    gb->first_comm_rank = g->rank * group_devices(gb);
    int rc = group_check_strict(g, gb);
    if (rc != COLLRUN_OK)
        return rc;
    group_describe(g, gb, host_of, &desc);
    return group_open_handles(g, gb, &desc);
}

/* The store compares the members' backends when they join, and a fence returns the result; so there
 * is at least one fence. */
static int group_open_backends(struct collrun_group *g)
{
    uint32_t *host_of = calloc(g->nranks, sizeof *host_of);
    if (!host_of)
        return error_cause(COLLRUN_ERR_NO_MEMORY, "out of memory");
    int rc = COLLRUN_OK;
    for (uint32_t i = 0; rc == COLLRUN_OK && i < g->nbackends; i++)
        rc = group_open_backend(g, &g->backends[i], host_of);
    if (rc == COLLRUN_OK)
        rc = rendezvous_confirm(&g->rendezvous);
    rendezvous_free_pairs(&g->rendezvous);
    free(host_of);
    return rc;
}

static int group_join(struct collrun_group *g, const struct group_spec *spec, struct diag *d)
{
    char identity[HOSTMEM_IDENTITY_LEN];
    struct rendezvous_spec join = {.name = spec->name,
                                   .members = spec->members,
                                   .identity = identity,
                                   .index = spec->index,
                                   .rank = g->rank,
                                   .address = g->process->address,
                                   .first_port = g->process->desc.first_port,
                                   .last_port = g->process->desc.last_port,
                                   .loc = spec->index < g->process->desc.ngroups
                                              ? &g->process->desc.groups[spec->index].loc
                                              : NULL,
                                   .timeout_ns = g->process->desc.rendezvous_timeout_ns,
                                   .host = &g->process->host_scopes};
    join.generation = spec->generation;
    if (!group_identity(g, identity) ||
        (!spec->has_generation && generation_of_group(g, &join.generation) != COLLRUN_OK))
        return diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory for group \"%s\"", spec->name);
    for (uint32_t i = 0; i < g->nbackends; i++) {
        services_init(&g->backends[i].services, &g->process->control, spec->options,
                      g->backends[i].backend->services.options[0], "%s, group %s",
                      g->backends[i].backend->name, g->id.name);
        g->backends[i].services.world_rank = g->id.members.items;
        g->backends[i].services.desc = &g->process->desc;
        g->backends[i].services.host = g->process->host;
        g->backends[i].services.address = g->process->address;
        g->backends[i].services.kind = g->backends[i].kind;
    }
    int rc = rendezvous_open(&g->rendezvous, &g->process->control, &join, d);
    if (rc != COLLRUN_OK)
        return rc;
    rc = group_open_backends(g);
    if (rc == COLLRUN_OK)
        return rc;
    if (g->rendezvous.failure.code != COLLRUN_OK)
        *d = g->rendezvous.failure; /* with its place, and whole */
    else
        diag_set(d, rc, "group \"%s\" on backend \"%s\": %s", g->id.name, g->id.backend_name,
                 error_get()->cause[0] ? error_get()->cause : status_text(rc));
    group_close_handles(g);
    rendezvous_leave(&g->rendezvous);
    return d->code;
}

/* Either the service thread found the group in the table, or this finds that the job or a member
 * has failed. */
static void group_check_failures(struct collrun_group *g)
{
    struct group_table *t = g->table;
    if (control_has(&t->process->control, CONTROL_ABORT))
        group_abort(g, t->process->control.abort_reason.code,
                    t->process->control.abort_reason.text);
    for (uint32_t i = 0; i < g->nranks; i++) {
        const uint32_t rank = g->id.members.items[i];
        char text[64];
        if (!atomic_load_explicit(&t->process->failed[rank], memory_order_acquire))
            continue;
        snprintf(text, sizeof text, "rank %u failed while the group was being formed", rank);
        group_abort(g, COLLRUN_ERR_PEER_FAILED, text);
    }
}

/* The messages of one member are matched in the order in which its threads have made them: not so
 * between two backends, or between the devices of a process. */
static bool group_orders_messages(const struct collrun_group *g)
{
    return g->nbackends == 1 && g->backends[0].ndevices <= 1;
}

static void group_open_records(struct collrun_group *g)
{
    const uint64_t id = rendezvous_hash_text(g->rendezvous.scope) | 1;
    struct record_queue_info info = {.name = g->id.name,
                                     .scope = g->rendezvous.scope,
                                     .members = g->nranks,
                                     .rank = g->rank,
                                     .check = g->check,
                                     .id = id,
                                     .world = g->id.members.items};
    for (int i = 0; i < 2; i++) {
        info.messages = i == GROUP_MESSAGES;
        info.unordered = info.messages && !group_orders_messages(g);
        record_queue_open(&g->calls.record[i], g->process->record, &info);
    }
    g->calls.timeout_ticks = thread_record_ticks_of(g, g->timeout_ns);
    for (uint32_t i = 0; i < g->nbackends; i++) {
        const uint64_t own = g->backends[i].backend->table.eager_limit;
        const uint64_t limit = own ? own : GROUP_EAGER_LIMIT;
        g->calls.eager_limit = limit > g->calls.eager_limit ? limit : g->calls.eager_limit;
    }
}

int group_open(struct group_table *t, const struct group_spec *spec, struct collrun_group **out,
               struct diag *d)
{
    int rank = desc_ranks_find(spec->members, t->process->rank);
    if (rank < 0)
        return diag_set(d, COLLRUN_ERR_NOT_MEMBER, "rank %u is not in group \"%s\"",
                        t->process->rank, spec->name);
    if (group_find(t, spec->name))
        return diag_set(d, COLLRUN_ERR_EXISTS, "a group \"%s\" is already open", spec->name);
    struct collrun_group *g = group_new(t, spec, (uint32_t)rank);
    if (!g)
        return diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory for group \"%s\"", spec->name);
    int rc = group_find_kinds(g, d);
    if (rc == COLLRUN_OK)
        rc = group_join(g, spec, d);
    if (rc != COLLRUN_OK) {
        group_free(g);
        return rc;
    }
    debug_log(DEBUG_GROUP, "group \"%s\" is formed: %s, backend %s, check %d", g->id.name,
              g->rendezvous.scope, g->id.backend_name, (int)g->check);
    group_open_records(g);
    group_table_add(t, g);
    group_check_failures(g);
    *out = g;
    return COLLRUN_OK;
}

/* ---- messages that no rank receives ---- */

struct unreceived {
    uint64_t n;             /* 0: none */
    struct p2p_probe first; /* the oldest, of the first backend that has one */
};

/* No thread uses the queue any more. */
static void unreceived_count(const struct match *m, struct unreceived *u)
{
    for (const struct match_entry *e = m->oldest; e; e = e->next) {
        if (e->tag >= MATCH_ENGINE_TAG || u->n++)
            continue;
        u->first.envelope =
            (struct collrun_envelope){.count = e->count, .tag = e->tag, .dtype = e->dtype};
        u->first.from = e->source;
    }
}

/* The probes for a tag that no message has read all that has arrived. A thread that is still inside
 * keeps the queue, and nothing is found. */
static void unreceived_look(struct progress_queue *pq, struct unreceived *u)
{
    enum { ROUNDS = 16 };
    struct p2p_probe none = {.source = MATCH_ANY_SOURCE, .tag = MATCH_ANY_TAG - 1};
    struct p2p_probe any = {.source = MATCH_ANY_SOURCE, .tag = MATCH_ANY_TAG};
    if (!pq_is_idle(pq) || (!pq->config.p2p && !pq->config.backend->table.probe_message))
        return;
    for (int i = 0; i < ROUNDS && pq->config.p2p; i++)
        pq_probe(pq, &none);
    if (pq_probe(pq, &any) != COLLRUN_OK)
        return;
    u->first = u->n ? u->first : any;
    u->n += any.nunexpected ? any.nunexpected : 1;
}

/* A background workload is stopped at some moment, when messages to it may be under way. */
static enum collrun_log_level unreceived_level(const struct process *p)
{
    bool background = false;
    for (uint32_t i = 0; i < p->desc.nworkloads; i++) {
        const struct desc_workload *w = &p->desc.workloads[i];
        background = background || (w->background && desc_ranks_find(&w->ranks, p->rank) >= 0);
    }
    return background ? COLLRUN_LOG_INFO : COLLRUN_LOG_WARN;
}

void group_report_unreceived(struct collrun_group *g, bool looks)
{
    struct unreceived u = {0};
    char many[96] = "a message has arrived that was never received:", tag[24] = "", text[512];
    struct control *c = &g->process->control;
    g->job_ends = g->job_ends || looks;
    if (g->unreceived_reported || group_has_failed(g) || control_has(c, CONTROL_ABORT))
        return;
    for (uint32_t i = 0; i < g->nbackends; i++) {
        struct progress_queue *pq = g->backends[i].pq[GROUP_MESSAGES];
        if (looks)
            unreceived_look(pq, &u);
        else if (pq->config.p2p)
            unreceived_count(&pq->config.p2p->match, &u);
    }
    if (!u.n)
        return;
    const struct collrun_envelope *e = &u.first.envelope;
    if (u.n > 1)
        snprintf(many, sizeof many,
                 "%llu messages have arrived that were never received; the first is",
                 (unsigned long long)u.n);
    if (e->tag)
        snprintf(tag, sizeof tag, ", tag %u", e->tag);
    snprintf(text, sizeof text, "group \"%s\": %s %llu x %s from rank %u%s", g->id.name, many,
             (unsigned long long)e->count, dtype_name((enum collrun_dtype)e->dtype),
             u.first.from < g->nranks ? g->id.members.items[u.first.from] : u.first.from, tag);
    control_warn(c, g->job_ends ? unreceived_level(g->process) : COLLRUN_LOG_INFO, text);
    g->unreceived_reported = true;
}

/* ---- closing ---- */

static void group_close_inside(struct collrun_group *g)
{
    group_table_close(g->table, g);
    for (uint32_t i = 0; i < g->nbackends; i++)
        pq_evict(g->backends[i].pq[GROUP_MESSAGES]);
    group_report_unreceived(g, false);
    /* Only operations in flight are aborted: peers may still receive what was sent. */
    bool idle = true;
    for (uint32_t i = 0; i < g->nbackends; i++)
        for (uint32_t k = 0; k < g->backends[i].nqueues; k++)
            idle = idle && pq_is_idle(&g->backends[i].queues[k]);
    debug_log(DEBUG_GROUP, "group \"%s\" is closed%s", g->id.name,
              idle ? "" : "; operations in flight are aborted");
    if (!idle)
        group_abort(g, COLLRUN_ERR_ABORTED, "the group was destroyed");
    group_close_handles(g);
    memory_free_all(g);
    for (int i = 0; i < 2; i++)
        record_queue_close(&g->calls.record[i]);
    rendezvous_leave(&g->rendezvous);
    g->table->ops->closing(g);
    group_unref(g);
}

/* The thread waits for the workers of the group, which end soon. */
void group_close(struct collrun_group *g)
{
    struct record_thread *t = thread_record_enter_other(g->process->writer);
    group_close_inside(g);
    thread_record_return(t);
}
