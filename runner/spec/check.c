/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks across keys. One mistake gives one message:
 * - a value that was refused before has its default here;
 * - a check is skipped if a value that it needs was refused or is missing. Without a valid
 *   processes.count, repeated and unknown names are still found.
 */
#include "spec/check.h"

#include "base/quote.h"
#include "base/suggest.h"
#include "spec/names.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define QUOTED(s) quote((s), (char[QUOTE_SIZE]){0})

struct checker {
    const struct job *job;
    struct arena *arena;
    struct diag_list *diags;
    uint32_t count; /* of ranks; 0 = unknown */
    uint32_t limit; /* `count`; if that is unknown: one more than the largest rank named */
    uint32_t
        *owner; /* per rank below `limit`, while a set is checked: 1 + the part that names it */
};

static void check_add_error(struct checker *c, const struct diag *d)
{
    diag_list_add(c->diags, d);
}

static uint32_t check_last_rank(const struct parse_range *range)
{
    return range->first + (uint32_t)(parse_range_count(range) - 1) * range->step;
}

/* ---- rank sets ---- */

static bool check_range(struct checker *c, const char *path, const struct job_rank_part *part)
{
    uint32_t last = check_last_rank(&part->range);
    if (last < c->limit || !c->count)
        return last < c->limit;
    struct diag d;
    uint32_t top = c->count - 1;
    uint32_t first_bad = part->range.first > top ? part->range.first : last;
    diag_at(&d, part->loc, "%s: there is no rank %u", path, first_bad);
    diag_second(&d, c->job->processes.count.loc, "%u rank%s: %s%u", c->count, top ? "s" : "",
                top ? "0-" : "", top);
    check_add_error(c, &d);
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
        diag_at(&d, ranks->parts[i].loc, "%s: rank %" PRIu64 " is listed twice", path, rank);
        diag_second(&d, ranks->parts[c->owner[rank] - 1].loc, "first here");
        check_add_error(c, &d);
        return false;
    }
    return true;
}

/* Reports ranks that do not exist or are listed twice. */
static bool check_ranks(struct checker *c, const char *path, const struct job_ranks *ranks)
{
    bool good = true;
    memset(c->owner, 0, c->limit * sizeof *c->owner);
    for (uint32_t i = 0; i < ranks->n; i++)
        if (!check_range(c, path, &ranks->parts[i]) || !check_repeats(c, path, ranks, i))
            good = false;
    return good;
}

static uint32_t check_count_ranks(const struct checker *c, const struct job_ranks *ranks)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < ranks->n; i++)
        n += parse_range_count(&ranks->parts[i].range);
    return ranks->all ? c->count : (uint32_t)n;
}

/* The first rank of `a` that is in `b`, or with `inside` false: that is not in `b`. Returns `limit`
 * if there is none. Both sets have passed check_ranks. */
static uint32_t check_find_rank(struct checker *c, const struct job_ranks *a,
                                const struct job_ranks *b, bool inside)
{
    memset(c->owner, b->all, c->limit * sizeof *c->owner);
    for (uint32_t i = 0; i < b->n; i++) {
        const struct parse_range *range = &b->parts[i].range;
        for (uint64_t rank = range->first; rank <= range->last && rank < c->limit;
             rank += range->step)
            c->owner[rank] = 1;
    }
    for (uint32_t rank = 0; a->all && rank < c->limit; rank++)
        if ((c->owner[rank] != 0) == inside)
            return rank;
    for (uint32_t i = 0; i < a->n; i++) {
        const struct parse_range *range = &a->parts[i].range;
        for (uint64_t rank = range->first; rank <= range->last && rank < c->limit;
             rank += range->step)
            if ((c->owner[rank] != 0) == inside)
                return (uint32_t)rank;
    }
    return c->limit;
}

/* ---- hosts ---- */

static void check_host_names(struct checker *c)
{
    const struct job_hosts *hosts = &c->job->hosts;
    struct diag d;
    if (hosts->n > HOSTS_MAX) {
        diag_at(&d, hosts->loc, "hosts.nodes: %u hosts, but at most %d are allowed", hosts->n,
                HOSTS_MAX);
        check_add_error(c, &d);
        return;
    }
    for (uint32_t i = 1; i < hosts->n; i++) {
        uint32_t k = 0;
        while (k < i && strcmp(hosts->nodes[k].name.v, hosts->nodes[i].name.v) != 0)
            k++;
        if (k == i)
            continue;
        diag_at(&d, hosts->nodes[i].name.loc, "hosts.nodes: host %s is listed twice",
                QUOTED(hosts->nodes[i].name.v));
        diag_second(&d, hosts->nodes[k].name.loc, "first here");
        check_add_error(c, &d);
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
    if (!where.line || hosts->refused || c->job->processes.map.n || !c->count || total >= c->count)
        return;
    struct diag d;
    diag_at(&d, c->job->processes.count.loc,
            "processes.count: %u ranks, but the host%s %" PRIu64 " slot%s", c->count,
            hosts->n == 1 ? " has" : "s have", total, total == 1 ? "" : "s");
    diag_second(&d, where,
                hosts->n == 1 ? "the slots of the host"
                              : "slots; a host without slots counts as one");
    if (hosts->all.v == JOB_ALLOCATION_PBS)
        diag_hint(&d, "qsub -l select=N:mpiprocs=M gives N chunks of M slots; without mpiprocs a "
                      "chunk has one");
    check_add_error(c, &d);
}

static void check_cpus(struct checker *c)
{
    const struct job_processes *p = &c->job->processes;
    struct diag d;
    if (p->cpus_per_process.v == 1 || p->bind.v == JOB_BIND_CORE)
        return;
    diag_at(&d, p->cpus_per_process.loc,
            "processes.cpus_per_process: has no effect without bind: core");
    diag_hint(&d, "processes: {bind: core, cpus_per_process: %lld}",
              (long long)p->cpus_per_process.v);
    if (p->bind.loc.line)
        diag_second(&d, p->bind.loc, "the binding");
    check_add_error(c, &d);
}

/* ---- groups ---- */

static void check_group(struct checker *c, const struct job_group *group)
{
    char path[96];
    snprintf(path, sizeof path, "groups.%s.ranks", group->name);
    if (group->mesh_axes)
        return;
    if (!check_ranks(c, path, &group->ranks) || !group->world_size.v || group->ranks.refused ||
        (group->ranks.all && !c->count))
        return;
    uint32_t n = check_count_ranks(c, &group->ranks);
    if (n == group->world_size.v)
        return;
    struct diag d;
    bool written = group->ranks.loc.line != 0;
    diag_at(&d, group->world_size.loc,
            "groups.%s.world_size: %" PRId64 ", but the group has %u rank%s", group->name,
            group->world_size.v, n, n == 1 ? "" : "s");
    diag_second(&d, written && !group->ranks.all ? group->ranks.loc : c->job->processes.count.loc,
                "%s%u rank%s", group->ranks.all ? "all of the job's " : "", n, n == 1 ? "" : "s");
    check_add_error(c, &d);
}

/* A mapping of kinds of memory to backends has one for the host and one for another kind. */
static void check_group_backends(struct checker *c, const struct job_group *group)
{
    struct diag d;
    const struct job_kind_backend *host = NULL;
    for (uint32_t i = 0; i < group->nbackends; i++)
        if (strcmp(group->backends[i].kind, "host") == 0)
            host = &group->backends[i];
    if (!group->nbackends || (host && group->nbackends > 1))
        return;
    diag_at(&d, group->backends[0].kind_loc,
            host ? "%sgroups.%s.backend: there is a backend for the kind \"host\" only"
                 : "%sgroups.%s.backend: the key \"host\" is missing",
            job_group_section(group), group->name);
    if (!host)
        diag_hint(&d,
                  "it names the backend for buffers in host memory, as in {host: gloo, %s: ...}",
                  group->backends[0].kind);
    else if (host->backend.v)
        diag_hint(&d, "\"backend: %s\" serves buffers of every kind", host->backend.v);
    check_add_error(c, &d);
}

/* Names that differ only in case name the same backend. */
static void check_backends(struct checker *c)
{
    const struct job *job = c->job;
    for (uint32_t i = 1; i < job->nbackends; i++) {
        for (uint32_t k = 0; k < i; k++) {
            if (strcasecmp(job->backends[i].name, job->backends[k].name) != 0)
                continue;
            struct diag d;
            diag_at(&d, job->backends[i].name_loc,
                    "backends: %s repeats a name; names are case-insensitive",
                    QUOTED(job->backends[i].name));
            diag_second(&d, job->backends[k].name_loc, "first here");
            check_add_error(c, &d);
        }
    }
}

/* ---- workloads ---- */

static const struct job_group *check_find_group(const struct job *job, const char *name)
{
    for (uint32_t i = 0; i < job->ngroups; i++)
        if (strcmp(job->groups[i].name, name) == 0)
            return &job->groups[i];
    return NULL;
}

static void check_unknown_group(struct checker *c, const char *path, const struct job_str *name)
{
    const struct job *job = c->job;
    if (!job->ngroups)
        return; /* `groups` itself was refused: without that, there is at least `world` */
    const char **names = arena_calloc(c->arena, job->ngroups, sizeof *names);
    char text[SUGGEST_TEXT];
    struct diag d;
    for (uint32_t i = 0; i < job->ngroups; i++)
        names[i] = job->groups[i].name;
    diag_at(&d, name->loc, "%s: no group named %s", path, QUOTED(name->v));
    diag_hint(&d, "%s", suggest_text(name->v, "groups of this job", names, job->ngroups, text));
    check_add_error(c, &d);
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
        const struct job_group *group = check_find_group(c->job, name->v);
        struct diag d;
        if (!group) {
            check_unknown_group(c, path, name);
        } else if (ranks_good &&
                   check_find_rank(c, &workload->ranks, &group->ranks, true) == c->limit) {
            diag_at(&d, name->loc, "%s: no rank of this workload is in the group %s", path,
                    QUOTED(name->v));
            diag_second(&d, group->ranks.loc.line ? group->ranks.loc : group->name_loc,
                        "the group's ranks");
            check_add_error(c, &d);
        }
        for (uint32_t k = 0; k < i; k++) {
            if (!workload->groups.items[k].v || strcmp(workload->groups.items[k].v, name->v) != 0)
                continue;
            diag_at(&d, name->loc, "%s: group %s is listed twice", path, QUOTED(name->v));
            diag_second(&d, workload->groups.items[k].loc, "first here");
            check_add_error(c, &d);
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
        uint32_t rank = check_find_rank(c, &override->ranks, &workload->ranks, false);
        if (rank == c->limit)
            continue;
        struct diag d;
        diag_at(&d, override->ranks.loc, "%s: rank %u does not run this workload", path, rank);
        diag_second(&d, workload->ranks.loc, "the workload's ranks");
        check_add_error(c, &d);
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
        diag_at(&d, workloads[index].name.loc, "workloads[%u].name: the name %s is used twice",
                index, QUOTED(workloads[index].name.v));
        diag_second(&d, workloads[k].name.loc, "first here");
        check_add_error(c, &d);
        return;
    }
}

/* ---- commands ---- */

static void check_refuse_key(struct checker *c, uint32_t index, const char *key,
                             const struct diag_loc *loc, const char *why,
                             const struct diag_loc *other)
{
    struct diag d;
    if (!loc->line)
        return;
    diag_at(&d, *loc, "workloads[%u].%s: %s", index, key, why);
    if (other && other->line)
        diag_second(&d, *other, "the command");
    check_add_error(c, &d);
}

/* Keys that only a plugin, or only a command can have. */
static void check_command_keys(struct checker *c, uint32_t index)
{
    const struct job_workload *w = &c->job->workloads[index];
    const struct diag_loc *at = &w->command.loc;
    if (!w->command.n) {
        check_refuse_key(c, index, "workdir", &w->workdir.loc, "only a command has it", NULL);
        check_refuse_key(c, index, "env", &w->env.loc, "only a command has it", NULL);
        check_refuse_key(c, index, "observe",
                         w->observe.taps.n ? &w->observe.taps.loc : &w->observe.mode.loc,
                         "only a command has it; what a plugin calls is always recorded", NULL);
        check_refuse_key(c, index, "stage_files", &w->stage_files.loc,
                         "only a command has it; a plugin is staged without it", NULL);
        return;
    }
    check_refuse_key(c, index, "plugin", &w->plugin.loc,
                     "a workload has either a plugin or a command", at);
    check_refuse_key(c, index, "params", &w->params.loc,
                     "a command has arguments and `env` instead", at);
    if (w->noverrides)
        check_refuse_key(c, index, "per_ranks", &w->overrides[0].loc,
                         "a command has arguments and `env` instead", at);
}

/* A rank that runs a command has no other workload. */
static void check_command_ranks(struct checker *c, uint32_t index)
{
    const struct job_workload *w = &c->job->workloads[index];
    for (uint32_t i = 0; i < index; i++) {
        const struct job_workload *other = &c->job->workloads[i];
        if ((!w->command.n && !other->command.n) || w->ranks.refused || other->ranks.refused)
            continue;
        uint32_t rank = check_find_rank(c, &w->ranks, &other->ranks, true);
        if (rank == c->limit)
            continue;
        const struct job_workload *command = w->command.n ? w : other;
        struct diag d;
        diag_at(&d, w->ranks.loc.line ? w->ranks.loc : w->loc,
                "workloads[%u]: rank %u already has the workload %s", index, rank,
                QUOTED(other->name.v ? other->name.v : "?"));
        diag_second(&d, command->command.loc, "a rank that runs a command has no other workload");
        check_add_error(c, &d);
        return;
    }
}

static void check_workloads(struct checker *c)
{
    const struct job *job = c->job;
    bool foreground = !job->nworkloads, good_ranks = true;
    for (uint32_t i = 0; i < job->nworkloads; i++) {
        const struct job_workload *workload = &job->workloads[i];
        char path[64];
        snprintf(path, sizeof path, "workloads[%u].ranks", i);
        bool good = check_ranks(c, path, &workload->ranks);
        check_workload_name(c, i);
        check_workload_groups(c, workload, i, good);
        check_command_keys(c, i);
        if (good)
            check_overrides(c, workload, i);
        good_ranks = good_ranks && good;
        if (good_ranks)
            check_command_ranks(c, i);
        foreground = foreground || !workload->background.v;
    }
    if (foreground)
        return;
    struct diag d;
    diag_at(&d, job->workloads[0].background.loc,
            "workloads: all have background: true, so the job would end at once");
    diag_hint(&d, "a background workload is stopped when the others are done");
    check_add_error(c, &d);
}

/* ---- map, timeouts ---- */

static void check_map_ranks(struct checker *c)
{
    const struct job_map *map = &c->job->processes.map;
    bool good = true;
    for (uint32_t i = 0; i < map->n; i++) {
        char path[64];
        snprintf(path, sizeof path, "processes.map[%u].ranks", i);
        good = check_ranks(c, path, &map->rows[i].ranks) && !map->rows[i].ranks.refused && good;
    }
    if (good)
        check_map(c->job, c->arena, c->diags);
}

static void check_stdin(struct checker *c)
{
    const struct job_num *rank = &c->job->processes.stdin_rank;
    struct diag d;
    if (rank->v != JOB_STDIN_NONE && strcmp(c->job->file, "/dev/stdin") == 0) {
        diag_at(&d, rank->loc, "processes.stdin: the job file is read from there");
        check_add_error(c, &d);
        return;
    }
    if (rank->v < 0 || !c->count || rank->v < (int64_t)c->count)
        return;
    diag_at(&d, rank->loc, "processes.stdin: there is no rank %u", (unsigned)rank->v);
    diag_second(&d, c->job->processes.count.loc, "%u rank%s", c->count, c->count == 1 ? "" : "s");
    check_add_error(c, &d);
}

static void check_warn(struct checker *c)
{
    const struct job_timeouts *t = &c->job->timeouts;
    struct diag d;
    if (!t->warn.before.v || t->warn.before.v < t->run.v)
        return;
    diag_at(&d, t->warn.before.loc, "timeouts.warn.before: %s",
            t->run.v ? "it is not shorter than timeouts.run" : "timeouts.run is not set");
    if (t->run.v)
        diag_second(&d, t->run.loc, "this one");
    check_add_error(c, &d);
}

/* ---- env ---- */

/* Variables that are both set and removed. */
static void check_env(struct checker *c)
{
    const struct job_env *env = &c->job->env;
    for (uint32_t i = 0; i < env->unset.n; i++) {
        const struct job_str *name = &env->unset.items[i];
        for (uint32_t k = 0; name->v && k < env->set.n; k++) {
            if (strcmp(env->set.items[k].key, name->v) != 0)
                continue;
            struct diag d;
            diag_at(&d, name->loc, "env.unset: %s is also in env.set", QUOTED(name->v));
            diag_second(&d, env->set.items[k].key_loc, "set here");
            check_add_error(c, &d);
        }
    }
}

void job_check(const struct job *job, struct arena *arena, struct diag_list *diags)
{
    struct checker c = {.job = job,
                        .arena = arena,
                        .diags = diags,
                        .count = (uint32_t)job->processes.count.v,
                        .limit = job->nranks};
    c.owner = arena_calloc(arena, c.limit, sizeof *c.owner);
    check_host_names(&c);
    check_slots(&c);
    check_map_ranks(&c);
    check_stdin(&c);
    check_warn(&c);
    check_cpus(&c);
    check_backends(&c);
    check_ranks(&c, "mesh.ranks", &job->mesh.ranks);
    for (uint32_t i = 0; i < job->ngroups; i++) {
        check_group(&c, &job->groups[i]);
        check_group_backends(&c, &job->groups[i]);
    }
    check_workloads(&c);
    check_ranks(&c, "logging.console.ranks", &job->logging.console.ranks);
    check_env(&c);
}

/* ---- processes.map as a list ---- */

uint32_t check_map_host(const struct job_hosts *hosts, const struct job_map_row *row)
{
    uint32_t h = 0;
    while (h < hosts->n && row->host.v && strcmp(hosts->nodes[h].name.v, row->host.v) != 0)
        h++;
    return row->host.v ? h : hosts->n;
}

static void check_map_unknown_host(const struct job *job, const struct job_map_row *row,
                                   struct diag_list *diags)
{
    struct diag d;
    diag_at(&d, row->host.loc, "processes.map: there is no host %s", QUOTED(row->host.v));
    diag_hint(&d, "the first host is %s", job->hosts.nodes[0].name.v);
    for (uint32_t i = 0; i < job->hosts.nspares; i++) {
        if (strcmp(job->hosts.spares[i].name.v, row->host.v) == 0)
            diag_hint(&d, "it is a spare host, which has no ranks (hosts.spare)");
    }
    diag_list_add(diags, &d);
}

static void check_map_twice(const struct job *job, uint32_t rank, const struct job_map_row *row,
                            const struct job_map_row *first, struct diag_list *diags)
{
    struct diag d;
    (void)job;
    diag_at(&d, row->ranks.loc, "processes.map: rank %u is listed twice", rank);
    diag_second(&d, first->ranks.loc, "first here");
    diag_list_add(diags, &d);
}

/* Reports the first rank that is listed twice. False after an error. */
static bool check_map_row(const struct job *job, uint32_t index, uint32_t *row_of,
                          struct diag_list *diags)
{
    const struct job_map_row *rows = job->processes.map.rows, *row = &rows[index];
    bool known =
        !row->host.v || job->hosts.refused || check_map_host(&job->hosts, row) < job->hosts.n;
    bool once = true;
    if (!known)
        check_map_unknown_host(job, row, diags);
    for (uint32_t rank = 0; rank < job->nranks; rank++) {
        if (!job_ranks_has(&row->ranks, rank))
            continue;
        if (!row_of[rank])
            row_of[rank] = index + 1;
        else if (once)
            check_map_twice(job, rank, row, &rows[row_of[rank] - 1], diags);
        once = once && row_of[rank] == index + 1;
    }
    return known && once;
}

static void check_map_slots(const struct job *job, const uint32_t *row_of, struct arena *arena,
                            struct diag_list *diags)
{
    const struct job_hosts *hosts = &job->hosts;
    uint32_t *used = arena_calloc(arena, (size_t)hosts->n + 1, sizeof *used);
    for (uint32_t rank = 0; rank < job->nranks; rank++)
        used[check_map_host(hosts, &job->processes.map.rows[row_of[rank] - 1])]++;
    for (uint32_t h = 0; h < hosts->n; h++) {
        const struct job_num *slots = &hosts->nodes[h].slots;
        struct diag d;
        if (!slots->v || used[h] <= slots->v)
            continue;
        diag_at(&d, slots->loc, "processes.map: host %s has %u slot%s, but %u ranks",
                hosts->nodes[h].name.v, (uint32_t)slots->v, slots->v == 1 ? "" : "s", used[h]);
        diag_list_add(diags, &d);
    }
}

void check_map(const struct job *job, struct arena *arena, struct diag_list *diags)
{
    const struct job_map *map = &job->processes.map;
    uint32_t *row_of = arena_calloc(arena, job->nranks, sizeof *row_of); /* plus one */
    bool good = map->n > 0;
    for (uint32_t i = 0; i < map->n; i++)
        good = check_map_row(job, i, row_of, diags) && good;
    if (!good || !job->processes.count.v)
        return;
    for (uint32_t rank = 0; rank < job->nranks; rank++) {
        struct diag d;
        if (row_of[rank])
            continue;
        diag_at(&d, map->rows[0].loc, "processes.map: rank %u has no host", rank);
        diag_second(&d, job->processes.count.loc, "%u ranks", job->nranks);
        diag_list_add(diags, &d);
        return;
    }
    check_map_slots(job, row_of, arena, diags);
}
