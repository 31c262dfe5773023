/* SPDX-License-Identifier: Apache-2.0
 *
 * Unknown names, wrong types, values out of range, required ones that some rank lacks. Values are
 * read by the same functions that the engine will use.
 */
#include "plan/params.h"

#include "base/parse.h"
#include "base/quote.h"
#include "base/suggest.h"
#include "base/template.h"

#include <stdio.h>
#include <string.h>

#define QUOTED(s) quote((s), (char[QUOTE_SIZE]){0})

static const struct describe_param *find_param(const struct described *what, const char *name)
{
    for (uint32_t i = 0; i < what->nparams; i++)
        if (!strcmp(what->params[i].name, name))
            return &what->params[i];
    return NULL;
}

static void unknown_param(struct maker *m, const char *path, const struct job_pair *pair,
                          const struct described *what)
{
    const char **names = arena_calloc(m->arena, what->nparams, sizeof *names);
    const char *known = "";
    for (uint32_t i = 0; names && known && i < what->nparams; i++) {
        names[i] = what->params[i].name;
        known = arena_printf(m->arena, "%s%s%s", known, i ? ", " : "", names[i]);
    }
    struct diag d;
    const char *meant = names ? suggest(pair->key, names, what->nparams) : NULL;
    const bool is_backend = what->kind == DESCRIBE_BACKEND;
    diag_at(&d, pair->key_loc, "%s: the %s \"%s\" has no %s %s", path,
            is_backend ? "backend" : "workload", what->name, is_backend ? "option" : "parameter",
            QUOTED(pair->key));
    if (!what->nparams)
        diag_hint(&d, "it has none at all");
    else
        diag_hint(&d, "%s%s%sits %s: %s", meant ? "did you mean \"" : "", meant ? meant : "",
                  meant ? "\"? " : "", is_backend ? "options" : "parameters", known ? known : "");
    maker_note(m, &d);
}

/* A value as something that can be compared: integers, sizes and durations exactly, floats as they
 * are. */
struct value {
    int64_t whole;
    double real;
};

static int read_value(enum collrun_param_type type, const char *text, struct value *out,
                      struct diag *d)
{
    uint64_t amount = 0;
    bool flag;
    int code;
    *out = (struct value){0};
    switch (type) {
    case COLLRUN_PARAM_INT:
        return parse_int(text, &out->whole, d);
    case COLLRUN_PARAM_FLOAT:
        return parse_float(text, &out->real, d);
    case COLLRUN_PARAM_BOOL:
        return parse_bool(text, &flag, d);
    case COLLRUN_PARAM_SIZE:
        code = parse_size(text, &amount, d);
        out->whole = (int64_t)amount;
        return code;
    case COLLRUN_PARAM_DURATION:
        code = parse_duration(text, &amount, d);
        out->whole = (int64_t)amount;
        return code;
    case COLLRUN_PARAM_STRING:
        break;
    }
    return template_check(text, TEMPLATE_ALL, d);
}

static bool below(const struct value *a, const struct value *b)
{
    return a->whole < b->whole || a->real < b->real;
}

static bool in_range(const struct describe_param *param, const struct value *v)
{
    struct value bound;
    if (param->type == COLLRUN_PARAM_STRING || param->type == COLLRUN_PARAM_BOOL)
        return true;
    if (v->real != v->real && (param->min || param->max)) /* not a number */
        return false;
    if (param->min && read_value(param->type, param->min, &bound, NULL) == 0 && below(v, &bound))
        return false;
    return !param->max || read_value(param->type, param->max, &bound, NULL) != 0 ||
           !below(&bound, v);
}

static void check_pair(struct maker *m, const char *path, const struct job_pair *pair,
                       const struct described *what)
{
    const struct describe_param *param = find_param(what, pair->key);
    if (!param) {
        unknown_param(m, path, pair, what);
        return;
    }
    struct value v;
    struct diag d;
    if (what->kind == DESCRIBE_BACKEND && param->type == COLLRUN_PARAM_STRING)
        return; /* no templates: as it is */
    int code = read_value(param->type, pair->value, &v, &d);
    if (code == 0 && in_range(param, &v))
        return;
    if (code == 0 && param->min && param->max)
        diag_set(&d, COLLRUN_ERR_INVALID, "%s is out of range: %s to %s", pair->value, param->min,
                 param->max);
    else if (code == 0)
        diag_set(&d, COLLRUN_ERR_INVALID, "%s is out of range: %s %s", pair->value,
                 param->min ? "at least" : "at most", param->min ? param->min : param->max);
    diag_wrap(&d, "%s.%s", path, pair->key);
    if (!d.hint[0] && *param->help)
        diag_hint(&d, "%s: %s", param->name, param->help);
    d.code = COLLRUN_ERR_INVALID;
    d.loc = pair->loc;
    maker_note(m, &d);
}

static void check_pairs(struct maker *m, const char *path, const struct job_pairs *pairs,
                        const struct described *what)
{
    for (uint32_t i = 0; i < pairs->n; i++)
        check_pair(m, path, &pairs->items[i], what);
}

static bool has_pair(const struct job_pairs *pairs, const char *name)
{
    for (uint32_t i = 0; i < pairs->n; i++)
        if (!strcmp(pairs->items[i].key, name))
            return true;
    return false;
}

/* The first rank of the workload that a required parameter is not given for; -1 = none. */
static int64_t rank_without(struct maker *m, const struct job_workload *workload, const char *name)
{
    struct desc_ranks ranks;
    bool *given = arena_calloc(m->arena, m->desc->nranks, sizeof *given);
    if (!given || has_pair(&workload->params, name))
        return -1;
    for (uint32_t i = 0; i < workload->noverrides; i++) {
        if (!has_pair(&workload->overrides[i].params, name))
            continue;
        maker_ranks(m, &workload->overrides[i].ranks, &ranks);
        for (uint32_t k = 0; k < ranks.n; k++)
            given[ranks.items[k]] = true;
    }
    maker_ranks(m, &workload->ranks, &ranks);
    for (uint32_t k = 0; k < ranks.n; k++)
        if (!given[ranks.items[k]])
            return ranks.items[k];
    return -1;
}

static void check_required(struct maker *m, uint32_t index, const struct described *what)
{
    const struct job_workload *workload = &m->job->workloads[index];
    for (uint32_t i = 0; i < what->nparams; i++) {
        const struct describe_param *param = &what->params[i];
        int64_t rank = param->def ? -1 : rank_without(m, workload, param->name);
        if (rank < 0)
            continue;
        struct diag d;
        bool some = workload->params.loc.line != 0;
        diag_at(&d, some ? workload->params.loc : workload->plugin.loc,
                "workloads[%u].params: the parameter \"%s\" is missing", index, param->name);
        if (workload->noverrides)
            diag_wrap(&d, "rank %d", (int)rank);
        if (*param->help)
            diag_hint(&d, "%s: %s", param->name, param->help);
        maker_note(m, &d);
    }
}

void params_check(struct maker *m, uint32_t index, const struct described *what)
{
    const struct job_workload *workload = &m->job->workloads[index];
    char path[64];
    snprintf(path, sizeof path, "workloads[%u].params", index);
    check_pairs(m, path, &workload->params, what);
    for (uint32_t i = 0; i < workload->noverrides; i++) {
        snprintf(path, sizeof path, "workloads[%u].per_ranks[%u].params", index, i);
        check_pairs(m, path, &workload->overrides[i].params, what);
    }
    check_required(m, index, what);
}

void params_check_options(struct maker *m, const char *path, const struct job_pairs *options,
                          const struct described *what, const struct described *other)
{
    if (what->any_option || (other && other->any_option))
        return;
    for (uint32_t i = 0; i < options->n; i++) {
        const struct job_pair *pair = &options->items[i];
        bool others = other && !find_param(what, pair->key) &&
                      (find_param(other, pair->key) || !what->nparams);
        check_pair(m, path, pair, others ? other : what);
    }
}
