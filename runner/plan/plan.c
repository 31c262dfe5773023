/* SPDX-License-Identifier: Apache-2.0
 *
 * The order of planning: places, groups, workloads, environment.
 */
#include "plan/plan.h"

#include "base/template.h"
#include "plan/maker.h"
#include "spec/names.h"

#include <string.h>

/* What a description can hold and still be sent in one frame. */
enum { MEMBERS_MAX = 8 << 20 };

void maker_note(struct maker *m, const struct diag *d)
{
    diag_list_add(m->diags, d);
}

/* Whether `n` more members still fit; the first that do not are reported. */
static bool count_members(struct maker *m, uint64_t n)
{
    bool before = m->members <= MEMBERS_MAX;
    m->members += n;
    if (m->members <= MEMBERS_MAX)
        return true;
    if (before) {
        struct diag d;
        diag_at(&d, m->job->processes.count.loc,
                "groups and workloads have more than %d members together", MEMBERS_MAX);
        maker_note(m, &d);
    }
    return false;
}

static void add_rank(struct maker *m, uint64_t rank, struct desc_ranks *out)
{
    if (m->seen[rank] == m->sets)
        return;
    m->seen[rank] = m->sets;
    out->items[out->n++] = (uint32_t)rank;
}

void maker_ranks(struct maker *m, const struct job_ranks *ranks, struct desc_ranks *out)
{
    uint32_t count = m->desc->nranks;
    uint64_t most = ranks->all ? count : 0;
    for (uint32_t i = 0; i < ranks->n; i++)
        most += parse_range_count(&ranks->parts[i].range);
    most = most < count ? most : count;
    *out = (struct desc_ranks){0};
    if (!m->seen)
        m->seen = arena_calloc(m->arena, count, sizeof *m->seen);
    out->items = count_members(m, most) ? arena_calloc(m->arena, most, sizeof *out->items) : NULL;
    if (!m->seen || !out->items)
        return;
    m->sets++;
    for (uint32_t rank = 0; ranks->all && rank < count; rank++)
        add_rank(m, rank, out);
    for (uint32_t i = 0; i < ranks->n; i++) {
        const struct parse_range *range = &ranks->parts[i].range;
        for (uint64_t rank = range->first; rank <= range->last && rank < count; rank += range->step)
            add_rank(m, rank, out);
    }
}

void maker_pairs(struct maker *m, const struct job_pairs *from, struct desc_kvs *to)
{
    to->items = arena_calloc(m->arena, from->n, sizeof *to->items);
    to->n = to->items ? from->n : 0;
    for (uint32_t i = 0; i < to->n; i++)
        to->items[i] =
            (struct desc_kv){from->items[i].key, from->items[i].value, from->items[i].loc};
}

/* ---- environment ---- */

static const char *value_of(const char *variable, const char *name)
{
    size_t len = strlen(name);
    return !strncmp(variable, name, len) && variable[len] == '=' ? variable + len + 1 : NULL;
}

static void pass(struct maker *m, const char *variable, struct diag_loc loc)
{
    struct desc_kvs *out = &m->desc->env_pass;
    size_t len = strcspn(variable, "=");
    const char *name = arena_strndup(m->arena, variable, len);
    if (!name || !variable[len])
        return;
    for (uint32_t i = 0; i < out->n; i++)
        if (!strcmp(out->items[i].key, name))
            return;
    out->items[out->n++] = (struct desc_kv){name, variable + len + 1, loc};
}

static void pass_matching(struct maker *m, const struct job_str *pattern)
{
    char name[256];
    for (const char *const *variable = m->in->environ; pattern->v && *variable; variable++) {
        size_t len = strcspn(*variable, "=");
        if (!len || len >= sizeof name)
            continue;
        memcpy(name, *variable, len);
        name[len] = '\0';
        if (name_matches(pattern->v, name))
            pass(m, *variable, pattern->loc);
    }
}

static void pass_secret(struct maker *m, const struct job_str *name)
{
    if (!name->v)
        return;
    for (const char *const *variable = m->in->environ; *variable; variable++) {
        if (value_of(*variable, name->v)) {
            pass(m, *variable, name->loc);
            return;
        }
    }
    struct diag d;
    diag_at(&d, name->loc, "env.secrets: the environment variable %s is not set", name->v);
    maker_note(m, &d);
}

static void make_env(struct maker *m)
{
    const struct job_env *env = &m->job->env;
    struct desc *desc = m->desc;
    size_t nvariables = 0;
    while (m->in->environ[nvariables])
        nvariables++;
    desc->env_pass.items = arena_calloc(m->arena, nvariables, sizeof *desc->env_pass.items);
    desc->env_unset.items = arena_calloc(m->arena, env->unset.n, sizeof *desc->env_unset.items);
    if (!desc->env_pass.items || !desc->env_unset.items)
        return;
    for (uint32_t i = 0; i < env->pass.n; i++)
        pass_matching(m, &env->pass.items[i]);
    for (uint32_t i = 0; i < env->secrets.n; i++)
        pass_secret(m, &env->secrets.items[i]);
    maker_pairs(m, &env->set, &desc->env_set);
    for (uint32_t i = 0; i < env->unset.n; i++)
        if (env->unset.items[i].v)
            desc->env_unset.items[desc->env_unset.n++] =
                (struct desc_kv){env->unset.items[i].v, "", env->unset.items[i].loc};
}

/* ---- the whole ---- */

/* Ranks that share a machine talk over its loopback, unless the job file names something else. */
static const char *interface_of(const struct job *job)
{
    bool local = true;
    for (uint32_t i = 0; i < job->hosts.n; i++)
        local = local && job->hosts.nodes[i].transport.kind.v == JOB_TRANSPORT_LOCAL;
    return local && !strcmp(job->interface.v, "default-route") ? "loopback" : job->interface.v;
}

static bool may_continue(const struct job_on_failure *on)
{
    bool may = on->action.v == JOB_ACTION_CONTINUE;
    for (uint32_t i = 0; i < on->nrules; i++)
        may = may || on->rules[i].action.v == JOB_ACTION_CONTINUE;
    return may;
}

static void make_head(struct maker *m)
{
    const struct job *job = m->job;
    struct desc *desc = m->desc;
    desc->run_id = m->in->run_id;
    desc->run_dir = "";
    if (job->logging.dir.v) {
        const struct template_values values = {.run_id = desc->run_id};
        const char *dir = "";
        template_expand(job->logging.dir.v, &values, m->arena, &dir, NULL);
        desc->run_dir = *dir == '/' ? dir : arena_printf(m->arena, "%s/%s", job->dir, dir);
    }
    desc->job_name = job->name.v;
    desc->job_file = job->file;
    desc->interface = interface_of(job);
    desc->keep_going = may_continue(&job->on_failure);
    desc->start_timeout_ns = (uint64_t)job->timeouts.start.v;
    desc->rendezvous_timeout_ns = (uint64_t)job->timeouts.rendezvous.v;
    desc->grace_ns = (uint64_t)job->timeouts.grace.v;
}

int plan_make(const struct job *job, const struct plan_input *in, struct arena *arena,
              struct desc *desc, struct diag_list *diags)
{
    uint32_t before = diag_list_count(diags);
    *desc = (struct desc){0};
    struct maker m = {.job = job, .in = in, .arena = arena, .desc = desc, .diags = diags};
    make_head(&m);
    maker_place(&m);
    maker_groups(&m);
    maker_workloads(&m);
    make_env(&m);
    if (arena_failed(arena)) {
        struct diag d;
        diag_set(&d, COLLRUN_ERR_NO_MEMORY, "out of memory");
        maker_note(&m, &d);
    }
    return diag_list_count(diags) > before ? COLLRUN_ERR_INVALID : 0;
}
