/* SPDX-License-Identifier: Apache-2.0
 *
 * Cross-checks. A value that was refused before stands at its default here, and a check whose
 * premise is missing is left out: one mistake, one message.
 */
#include "spec/check.h"

#include "base/quote.h"
#include "base/suggest.h"
#include "spec/names.h"
#include "spec/schema.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define QUOTED(s) quote((s), (char[QUOTE_SIZE]){0})

struct checker {
    const struct job *job;
    struct arena *arena;
    struct diag_list *diags;
    uint32_t count;  /* of ranks; 0 = not known */
    uint32_t *owner; /* by rank, while a set is looked at: 1 + the part that holds it */
};

static void note(struct checker *c, const struct diag *d)
{
    diag_list_add(c->diags, d);
}

static uint32_t last_rank(const struct parse_range *range)
{
    return range->first + (uint32_t)(parse_range_count(range) - 1) * range->step;
}

/* ---- rank sets ---- */

static bool check_range(struct checker *c, const char *path, const struct job_rank_part *part)
{
    uint32_t last = last_rank(&part->range);
    if (last < c->count)
        return true;
    struct diag d;
    uint32_t top = c->count - 1;
    uint32_t first_bad = part->range.first > top ? part->range.first : last;
    diag_at(&d, part->loc, "%s: there is no rank %u", path, first_bad);
    diag_second(&d, c->job->processes.count.loc, "%u rank%s: %s%u", c->count, top ? "s" : "",
                top ? "0-" : "", top);
    note(c, &d);
    return false;
}

static bool check_repeats(struct checker *c, const char *path, const struct job_ranks *ranks,
                          uint32_t i)
{
    const struct parse_range *range = &ranks->parts[i].range;
    for (uint64_t rank = range->first; rank <= range->last; rank += range->step) {
        if (!c->owner[rank]) {
            c->owner[rank] = i + 1;
            continue;
        }
        struct diag d;
        diag_at(&d, ranks->parts[i].loc, "%s: rank %" PRIu64 " stands in it twice", path, rank);
        diag_second(&d, ranks->parts[c->owner[rank] - 1].loc, "first here");
        note(c, &d);
        return false;
    }
    return true;
}

/* Every rank exists, none stands twice. */
static bool check_ranks(struct checker *c, const char *path, const struct job_ranks *ranks)
{
    bool good = true;
    if (!c->count)
        return false;
    memset(c->owner, 0, c->count * sizeof *c->owner);
    for (uint32_t i = 0; i < ranks->n; i++)
        if (!check_range(c, path, &ranks->parts[i]) || !check_repeats(c, path, ranks, i))
            good = false;
    return good;
}

static uint32_t count_ranks(const struct checker *c, const struct job_ranks *ranks)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < ranks->n; i++)
        n += parse_range_count(&ranks->parts[i].range);
    return ranks->all ? c->count : (uint32_t)n;
}

/* The first rank of `a` that is in `b`, or as `inside` says, that is not; `count` if there is none.
 * Both sets have passed check_ranks. */
static uint32_t find_rank(struct checker *c, const struct job_ranks *a, const struct job_ranks *b,
                          bool inside)
{
    memset(c->owner, b->all, c->count * sizeof *c->owner);
    for (uint32_t i = 0; i < b->n; i++) {
        const struct parse_range *range = &b->parts[i].range;
        for (uint64_t rank = range->first; rank <= range->last && rank < c->count;
             rank += range->step)
            c->owner[rank] = 1;
    }
    for (uint32_t rank = 0; a->all && rank < c->count; rank++)
        if ((c->owner[rank] != 0) == inside)
            return rank;
    for (uint32_t i = 0; i < a->n; i++) {
        const struct parse_range *range = &a->parts[i].range;
        for (uint64_t rank = range->first; rank <= range->last && rank < c->count;
             rank += range->step)
            if ((c->owner[rank] != 0) == inside)
                return (uint32_t)rank;
    }
    return c->count;
}

/* ---- hosts ---- */

static void check_host_names(struct checker *c)
{
    const struct job_hosts *hosts = &c->job->hosts;
    struct diag d;
    if (hosts->n > HOSTS_MAX) {
        diag_at(&d, hosts->loc, "hosts.nodes: more than %d hosts", HOSTS_MAX);
        note(c, &d);
        return;
    }
    for (uint32_t i = 1; i < hosts->n; i++) {
        uint32_t k = 0;
        while (k < i && strcmp(hosts->nodes[k].name.v, hosts->nodes[i].name.v) != 0)
            k++;
        if (k == i)
            continue;
        diag_at(&d, hosts->nodes[i].name.loc, "hosts.nodes: the host %s is named twice",
                QUOTED(hosts->nodes[i].name.v));
        diag_second(&d, hosts->nodes[k].name.loc, "first here");
        note(c, &d);
    }
}

/* Hosts that say nothing are reached by ssh. */
static void check_transports(struct checker *c)
{
    const struct job_hosts *hosts = &c->job->hosts;
    if (schema_transports[JOB_TRANSPORT_SSH].when == NOW)
        return;
    struct diag_loc last = {0};
    for (uint32_t i = 0; i < hosts->n; i++) {
        const struct job_host *host = &hosts->nodes[i];
        if (host->transport.kind.v != JOB_TRANSPORT_SSH || host->transport.kind.loc.line)
            continue;
        bool again = host->loc.line == last.line && host->loc.column == last.column;
        last = host->loc;
        if (again)
            continue;
        struct diag d;
        diag_at(&d, host->loc,
                "hosts.nodes: %s would be reached by ssh, which is not supported by this build",
                QUOTED(host->name.v));
        diag_hint(&d, "its ranks run on this machine with transport: local");
        note(c, &d);
    }
}

static void check_slots(struct checker *c)
{
    const struct job_hosts *hosts = &c->job->hosts;
    uint64_t total = 0;
    struct diag_loc where = {0};
    for (uint32_t i = 0; i < hosts->n; i++) {
        const struct job_num *slots = &hosts->nodes[i].slots;
        total += slots->loc.line ? (uint64_t)slots->v : 1;
        if (slots->loc.line && !where.line)
            where = slots->loc;
    }
    if (!where.line || !c->count || total >= c->count)
        return;
    struct diag d;
    diag_at(&d, c->job->processes.count.loc,
            "processes.count: %u ranks, but the host%s %" PRIu64 " slot%s", c->count,
            hosts->n == 1 ? " has" : "s have", total, total == 1 ? "" : "s");
    diag_second(&d, where, hosts->n == 1 ? "its slots" : "slots; a host that names none has one");
    note(c, &d);
}

static void check_cpus(struct checker *c)
{
    const struct job_processes *p = &c->job->processes;
    struct diag d;
    if (p->cpus_per_process.v == 1 || p->bind.v == JOB_BIND_CORE)
        return;
    diag_at(&d, p->cpus_per_process.loc,
            "processes.cpus_per_process: without bind: core no rank gets cores of its own");
    diag_hint(&d, "processes: {bind: core, cpus_per_process: %lld}",
              (long long)p->cpus_per_process.v);
    if (p->bind.loc.line)
        diag_second(&d, p->bind.loc, "what they are bound to");
    note(c, &d);
}

/* ---- groups ---- */

static void check_group(struct checker *c, const struct job_group *group)
{
    char path[96];
    snprintf(path, sizeof path, "groups.%s.ranks", group->name);
    if (!check_ranks(c, path, &group->ranks) || !group->world_size.v)
        return;
    uint32_t n = count_ranks(c, &group->ranks);
    if (n == group->world_size.v)
        return;
    struct diag d;
    bool written = group->ranks.loc.line != 0;
    diag_at(&d, group->world_size.loc,
            "groups.%s.world_size: %" PRId64 ", but the group has %u rank%s", group->name,
            group->world_size.v, n, n == 1 ? "" : "s");
    diag_second(&d, written && !group->ranks.all ? group->ranks.loc : c->job->processes.count.loc,
                "%s%u rank%s", group->ranks.all ? "all of the job's " : "", n, n == 1 ? "" : "s");
    note(c, &d);
}

/* Names that differ only in case are two names for one backend. */
static void check_backends(struct checker *c)
{
    const struct job *job = c->job;
    for (uint32_t i = 1; i < job->nbackends; i++) {
        for (uint32_t k = 0; k < i; k++) {
            if (strcasecmp(job->backends[i].name, job->backends[k].name) != 0)
                continue;
            struct diag d;
            diag_at(&d, job->backends[i].name_loc,
                    "backends: %s is the same name; case does not count",
                    QUOTED(job->backends[i].name));
            diag_second(&d, job->backends[k].name_loc, "first here");
            note(c, &d);
        }
    }
}

/* ---- workloads ---- */

static const struct job_group *find_group(const struct job *job, const char *name)
{
    for (uint32_t i = 0; i < job->ngroups; i++)
        if (!strcmp(job->groups[i].name, name))
            return &job->groups[i];
    return NULL;
}

static void unknown_group(struct checker *c, const char *path, const struct job_str *name)
{
    const struct job *job = c->job;
    const char **names = arena_calloc(c->arena, job->ngroups, sizeof *names);
    char known[256] = "";
    size_t used = 0;
    for (uint32_t i = 0; names && i < job->ngroups; i++) {
        names[i] = job->groups[i].name;
        if (used < sizeof known)
            used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "",
                                     names[i]);
    }
    if (!names)
        return;
    struct diag d;
    const char *meant = suggest(name->v, names, job->ngroups);
    diag_at(&d, name->loc, "%s: no group named %s", path, QUOTED(name->v));
    diag_hint(&d, "%s%s%sgroups of this job: %s%s", meant ? "did you mean \"" : "",
              meant ? meant : "", meant ? "\"? " : "", known, used >= sizeof known ? "..." : "");
    note(c, &d);
}

static void check_workload_groups(struct checker *c, const struct job_workload *workload,
                                  uint32_t index, bool ranks_good)
{
    char path[64];
    for (uint32_t i = 0; i < workload->groups.n; i++) {
        const struct job_str *name = &workload->groups.items[i];
        if (!name->v)
            continue;
        snprintf(path, sizeof path, "workloads[%u].groups[%u]", index, i);
        const struct job_group *group = find_group(c->job, name->v);
        struct diag d;
        if (!group) {
            unknown_group(c, path, name);
        } else if (ranks_good && find_rank(c, &workload->ranks, &group->ranks, true) == c->count) {
            diag_at(&d, name->loc, "%s: none of this workload's ranks is in the group %s", path,
                    QUOTED(name->v));
            diag_second(&d, group->ranks.loc.line ? group->ranks.loc : group->name_loc,
                        "the group's ranks");
            note(c, &d);
        }
        for (uint32_t k = 0; k < i; k++) {
            if (!workload->groups.items[k].v || strcmp(workload->groups.items[k].v, name->v) != 0)
                continue;
            diag_at(&d, name->loc, "%s: the group %s stands in it twice", path, QUOTED(name->v));
            diag_second(&d, workload->groups.items[k].loc, "first here");
            note(c, &d);
            break;
        }
    }
}

static void check_overrides(struct checker *c, const struct job_workload *workload, uint32_t index)
{
    char path[64];
    for (uint32_t i = 0; i < workload->noverrides; i++) {
        const struct job_override *override = &workload->overrides[i];
        snprintf(path, sizeof path, "workloads[%u].per_ranks[%u].ranks", index, i);
        if (!override->ranks.loc.line || !check_ranks(c, path, &override->ranks) ||
            override->ranks.all)
            continue;
        uint32_t rank = find_rank(c, &override->ranks, &workload->ranks, false);
        if (rank == c->count)
            continue;
        struct diag d;
        diag_at(&d, override->ranks.loc, "%s: rank %u does not run this workload", path, rank);
        diag_second(&d, workload->ranks.loc, "the workload's ranks");
        note(c, &d);
    }
}

static void check_workload_name(struct checker *c, uint32_t index)
{
    const struct job_workload *workloads = c->job->workloads;
    for (uint32_t k = 0; workloads[index].name.loc.line && k < index; k++) {
        if (!workloads[k].name.loc.line ||
            strcmp(workloads[k].name.v, workloads[index].name.v) != 0)
            continue;
        struct diag d;
        diag_at(&d, workloads[index].name.loc, "workloads[%u].name: %s is taken", index,
                QUOTED(workloads[index].name.v));
        diag_second(&d, workloads[k].name.loc, "first here");
        note(c, &d);
        return;
    }
}

static void check_workloads(struct checker *c)
{
    const struct job *job = c->job;
    bool foreground = !job->nworkloads;
    for (uint32_t i = 0; i < job->nworkloads; i++) {
        const struct job_workload *workload = &job->workloads[i];
        char path[64];
        snprintf(path, sizeof path, "workloads[%u].ranks", i);
        bool good = check_ranks(c, path, &workload->ranks);
        check_workload_name(c, i);
        check_workload_groups(c, workload, i, good);
        if (good)
            check_overrides(c, workload, i);
        foreground = foreground || !workload->background.v;
    }
    if (foreground)
        return;
    struct diag d;
    diag_at(&d, job->workloads[0].background.loc,
            "workloads: all of them are in the background, so the job would end at once");
    diag_hint(&d, "a background workload is stopped when the others are done");
    note(c, &d);
}

/* ---- env ---- */

/* A variable that is both given a value and taken away. */
static void check_env(struct checker *c)
{
    const struct job_env *env = &c->job->env;
    for (uint32_t i = 0; i < env->unset.n; i++) {
        const struct job_str *name = &env->unset.items[i];
        for (uint32_t k = 0; name->v && k < env->set.n; k++) {
            if (strcmp(env->set.items[k].key, name->v) != 0)
                continue;
            struct diag d;
            diag_at(&d, name->loc, "env.unset: %s is also set", QUOTED(name->v));
            diag_second(&d, env->set.items[k].key_loc, "set here");
            note(c, &d);
        }
    }
}

void job_check(const struct job *job, struct arena *arena, struct diag_list *diags)
{
    struct checker c = {
        .job = job, .arena = arena, .diags = diags, .count = (uint32_t)job->processes.count.v};
    c.owner = arena_calloc(arena, c.count, sizeof *c.owner);
    if (!c.owner)
        return;
    check_host_names(&c);
    check_transports(&c);
    check_slots(&c);
    check_cpus(&c);
    check_backends(&c);
    for (uint32_t i = 0; i < job->ngroups; i++)
        check_group(&c, &job->groups[i]);
    check_workloads(&c);
    check_ranks(&c, "logging.console.ranks", &job->logging.console.ranks);
    check_env(&c);
}
