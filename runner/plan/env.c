/* SPDX-License-Identifier: Apache-2.0
 *
 * The environment of the ranks: variables of collrun's environment that env.pass and env.secrets
 * name, values of env.set, names of env.unset. A secret that is not set is an error.
 */
#include "plan/planner.h"
#include "spec/names.h"

#include <string.h>

static const char *env_value(const char *variable, const char *name)
{
    size_t len = strlen(name);
    return strncmp(variable, name, len) == 0 && variable[len] == '=' ? variable + len + 1 : NULL;
}

static void env_pass(struct planner *pl, const char *variable, struct diag_loc loc)
{
    struct desc_kvs *out = &pl->desc->env_pass;
    size_t len = strcspn(variable, "=");
    const char *name = arena_strndup(pl->arena, variable, len);
    if (!variable[len])
        return;
    for (uint32_t i = 0; i < out->n; i++)
        if (strcmp(out->items[i].key, name) == 0)
            return;
    out->items[out->n++] = (struct desc_kv){.key = name, .value = variable + len + 1, .loc = loc};
}

static void env_pass_matching(struct planner *pl, const struct job_str *pattern)
{
    char name[256];
    for (const char *const *variable = pl->in->environ; pattern->v && *variable; variable++) {
        size_t len = strcspn(*variable, "=");
        if (!len || len >= sizeof name)
            continue;
        memcpy(name, *variable, len);
        name[len] = '\0';
        if (name_matches(pattern->v, name))
            env_pass(pl, *variable, pattern->loc);
    }
}

static void env_pass_secret(struct planner *pl, const struct job_str *name)
{
    if (!name->v)
        return;
    for (const char *const *variable = pl->in->environ; *variable; variable++) {
        if (env_value(*variable, name->v)) {
            env_pass(pl, *variable, name->loc);
            return;
        }
    }
    struct diag d;
    diag_at(&d, name->loc, "env.secrets: the environment variable %s is not set", name->v);
    planner_add_error(pl, &d);
}

void plan_env(struct planner *pl)
{
    const struct job_env *env = &pl->job->env;
    struct desc *desc = pl->desc;
    size_t nvariables = 0;
    while (pl->in->environ[nvariables])
        nvariables++;
    desc->env_pass.items = arena_calloc(pl->arena, nvariables, sizeof *desc->env_pass.items);
    desc->env_unset.items = arena_calloc(pl->arena, env->unset.n, sizeof *desc->env_unset.items);
    for (uint32_t i = 0; i < env->pass.n; i++)
        env_pass_matching(pl, &env->pass.items[i]);
    for (uint32_t i = 0; i < env->secrets.n; i++)
        env_pass_secret(pl, &env->secrets.items[i]);
    planner_pairs(pl, &env->set, &desc->env_set);
    for (uint32_t i = 0; i < env->unset.n; i++)
        if (env->unset.items[i].v)
            desc->env_unset.items[desc->env_unset.n++] = (struct desc_kv){
                .key = env->unset.items[i].v, .value = "", .loc = env->unset.items[i].loc};
}
