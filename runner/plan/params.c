/* SPDX-License-Identifier: Apache-2.0
 *
 * Reports unknown names, wrong types, values out of range, and required parameters that a rank
 * lacks. Values are parsed by the functions that the engine uses.
 */
#include "plan/params.h"

#include "base/parse.h"
#include "base/quote.h"
#include "base/suggest.h"
#include "base/template.h"
#include "plan/engine_child.h"
#include "plan/planner.h"

#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define QUOTED(s) quote((s), (char[QUOTE_SIZE]){0})

static const struct describe_param *params_find(const struct described *what, const char *name)
{
    for (uint32_t i = 0; i < what->nparams; i++)
        if (strcmp(what->params[i].name, name) == 0)
            return &what->params[i];
    return NULL;
}

/* `is_auto`: job.yaml does not name the backend. */
static void params_unknown(struct planner *pl, const char *path, const struct job_pair *pair,
                           const struct described *what, bool is_auto)
{
    const char **names = arena_calloc(pl->arena, what->nparams, sizeof *names);
    const char *known = "";
    for (uint32_t i = 0; i < what->nparams; i++) {
        names[i] = what->params[i].name;
        known = arena_printf(pl->arena, "%s%s%s", known, i ? ", " : "", names[i]);
    }
    struct diag d;
    const char *meant = suggest(pair->key, names, what->nparams);
    const bool is_backend = what->kind == DESCRIBE_BACKEND;
    diag_at(&d, pair->key_loc, "%s: the %s \"%s\"%s has no %s %s", path,
            is_backend ? "backend" : "workload", what->name, is_auto ? ", selected by auto," : "",
            is_backend ? "option" : "parameter", QUOTED(pair->key));
    const char *other = is_auto ? "; to use another backend, name it instead of auto" : "";
    if (!what->nparams)
        diag_hint(&d, "it has no %s%s", is_backend ? "options" : "parameters", other);
    else
        diag_hint(&d, "%s%s%sits %s: %s%s", meant ? "did you mean \"" : "", meant ? meant : "",
                  meant ? "\"? " : "", is_backend ? "options" : "parameters", known, other);
    planner_add_error(pl, &d);
}

/* A comparable value: integers, sizes and durations in `whole`, floats in `real`. */
struct value {
    int64_t whole;
    double real;
};

static int params_read_value(const struct describe_param *param, const char *text,
                             struct value *out, struct diag *d)
{
    uint64_t amount = 0;
    uint32_t choice;
    bool flag;
    int code;
    *out = (struct value){0};
    switch (param->type) {
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
    case COLLRUN_PARAM_ENUM:
        return parse_choice(text, param->choices, &choice, d);
    case COLLRUN_PARAM_STRING:
    case COLLRUN_PARAM_LIST: /* its items are read one by one */
        break;
    }
    return template_check(text, TEMPLATE_ALL, d);
}

static bool params_less(const struct value *a, const struct value *b)
{
    return a->whole < b->whole || a->real < b->real;
}

static bool params_in_range(const struct describe_param *param, const struct value *v)
{
    struct value bound;
    if (param->type == COLLRUN_PARAM_STRING || param->type == COLLRUN_PARAM_BOOL ||
        param->type == COLLRUN_PARAM_ENUM)
        return true;
    if (v->real != v->real && (param->min || param->max)) /* not a number */
        return false;
    if (param->min && params_read_value(param, param->min, &bound, NULL) == 0 &&
        params_less(v, &bound))
        return false;
    return !param->max || params_read_value(param, param->max, &bound, NULL) != 0 ||
           !params_less(&bound, v);
}

static const char *params_expects(enum collrun_param_type type)
{
    static const char *const names[] = {"a string", "an integer", "a number", "true or false",
                                        "a size",   "a duration", "a choice"};
    return (unsigned)type < sizeof names / sizeof *names ? names[type] : "a value";
}

/* One value, or one item of a list. */
static void params_check_value(struct planner *pl, const char *path,
                               const struct describe_param *param, const struct job_str *value)
{
    struct value v;
    struct diag d;
    int code = params_read_value(param, value->v, &v, &d);
    /* As in all of the job file, a number in quotes is a string. */
    bool quoted =
        value->quoted && (param->type == COLLRUN_PARAM_INT || param->type == COLLRUN_PARAM_FLOAT ||
                          param->type == COLLRUN_PARAM_BOOL);
    if (code == 0 && !quoted && params_in_range(param, &v))
        return;
    if (code == 0 && quoted) {
        code = diag_set(&d, COLLRUN_ERR_INVALID, "expected %s, found the string %s",
                        params_expects(param->type), QUOTED(value->v));
        diag_hint(&d, "remove the quotes");
    }
    if (code == 0 && param->min && param->max)
        diag_set(&d, COLLRUN_ERR_INVALID, "%s is out of range: %s to %s", value->v, param->min,
                 param->max);
    else if (code == 0)
        diag_set(&d, COLLRUN_ERR_INVALID, "%s is out of range: %s %s", value->v,
                 param->min ? "at least" : "at most", param->min ? param->min : param->max);
    diag_wrap(&d, "%s", path);
    if (!d.hint[0] && *param->help)
        diag_hint(&d, "%s: %s", param->name, param->help);
    d.code = COLLRUN_ERR_INVALID;
    d.loc = value->loc;
    planner_add_error(pl, &d);
}

static void params_check_list(struct planner *pl, const char *path,
                              const struct describe_param *param, const struct job_strs *list)
{
    struct describe_param item = *param;
    char inner[256];
    item.type = param->item;
    for (uint32_t i = 0; i < list->n; i++) {
        snprintf(inner, sizeof inner, "%s[%u]", path, i);
        params_check_value(pl, inner, &item, &list->items[i]);
    }
}

static void params_check_pair(struct planner *pl, const char *path, const struct job_pair *pair,
                              const struct described *what)
{
    const struct describe_param *param = params_find(what, pair->key);
    struct job_str one = {.v = pair->value, .loc = pair->loc, .quoted = pair->quoted};
    const struct job_strs single = {.items = &one, .n = 1, .loc = pair->loc};
    char inner[192];
    if (!param) {
        params_unknown(pl, path, pair, what, false);
        return;
    }
    if (what->kind == DESCRIBE_BACKEND && param->type == COLLRUN_PARAM_STRING)
        return; /* options are no templates */
    snprintf(inner, sizeof inner, "%s.%s", path, pair->key);
    if (param->type == COLLRUN_PARAM_LIST) {
        params_check_list(pl, inner, param, pair->is_list ? &pair->list : &single);
    } else if (pair->is_list) {
        struct diag d;
        diag_at(&d, pair->loc, "%s: expected %s, found a list", inner, params_expects(param->type));
        planner_add_error(pl, &d);
    } else {
        params_check_value(pl, inner, param, &one);
    }
}

static void params_check_pairs(struct planner *pl, const char *path, const struct job_pairs *pairs,
                               const struct described *what)
{
    for (uint32_t i = 0; i < pairs->n; i++)
        params_check_pair(pl, path, &pairs->items[i], what);
}

static bool params_has_pair(const struct job_pairs *pairs, const char *name)
{
    for (uint32_t i = 0; i < pairs->n; i++)
        if (strcmp(pairs->items[i].key, name) == 0)
            return true;
    return false;
}

/* The first rank of the workload without a required parameter; -1: none. */
static int64_t params_rank_without(struct planner *pl, const struct job_workload *workload,
                                   const char *name)
{
    struct desc_ranks ranks;
    bool *given = arena_calloc(pl->arena, pl->desc->nranks, sizeof *given);
    if (params_has_pair(&workload->params, name))
        return -1;
    for (uint32_t i = 0; i < workload->noverrides; i++) {
        if (!params_has_pair(&workload->overrides[i].params, name))
            continue;
        planner_ranks(pl, &workload->overrides[i].ranks, &ranks);
        for (uint32_t k = 0; k < ranks.n; k++)
            given[ranks.items[k]] = true;
    }
    planner_ranks(pl, &workload->ranks, &ranks);
    for (uint32_t k = 0; k < ranks.n; k++)
        if (!given[ranks.items[k]])
            return ranks.items[k];
    return -1;
}

static void params_check_required(struct planner *pl, uint32_t index, const struct described *what)
{
    const struct job_workload *workload = &pl->job->workloads[index];
    for (uint32_t i = 0; i < what->nparams; i++) {
        const struct describe_param *param = &what->params[i];
        int64_t rank = param->def ? -1 : params_rank_without(pl, workload, param->name);
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
        planner_add_error(pl, &d);
    }
}

void params_check(struct planner *pl, uint32_t index, const struct described *what)
{
    const struct job_workload *workload = &pl->job->workloads[index];
    char path[64];
    snprintf(path, sizeof path, "workloads[%u].params", index);
    params_check_pairs(pl, path, &workload->params, what);
    for (uint32_t i = 0; i < workload->noverrides; i++) {
        snprintf(path, sizeof path, "workloads[%u].per_ranks[%u].params", index, i);
        params_check_pairs(pl, path, &workload->overrides[i].params, what);
    }
    params_check_required(pl, index, what);
}

void params_check_options(struct planner *pl, const char *path, const struct job_pairs *options,
                          const struct described *const *tables, uint32_t n, bool is_auto)
{
    const struct described *first = tables[0]; /* that has options, for unknown ones */
    for (uint32_t i = 0; i < n; i++) {
        if (tables[i]->any_option)
            return;
        first = first->nparams ? first : tables[i];
    }
    for (uint32_t i = 0; i < options->n; i++) {
        const struct job_pair *pair = &options->items[i];
        const struct described *taken = NULL;
        for (uint32_t k = 0; k < n && !taken; k++)
            taken = params_find(tables[k], pair->key) ? tables[k] : NULL;
        if (!taken && is_auto && first == tables[0])
            params_unknown(pl, path, pair, first, true);
        else
            params_check_pair(pl, path, pair, taken ? taken : first);
    }
}

/* One child process for all workloads that have a check. It reads the plan from a memory file and
 * prints its lines in the order of the workloads, so the one without a "done" ended it. */

struct checks {
    const struct desc *desc;
    struct arena *arena;
    struct diag_list *diags;
    uint32_t *indices; /* of the workloads */
    uint32_t n, ndone;
};

/* "workloads[0].per_ranks[1].params", of the mapping that holds `kv`. */
static const char *checks_path(const struct checks *c, uint32_t index, const struct desc_kv *kv)
{
    const struct desc_workload *w = &c->desc->workloads[index];
    for (uint32_t i = 0; i < w->noverrides; i++)
        for (uint32_t k = 0; k < w->overrides[i].params.n; k++)
            if (kv == &w->overrides[i].params.items[k])
                return arena_printf(c->arena, "workloads[%u].per_ranks[%u].params", index, i);
    return arena_printf(c->arena, "workloads[%u].params", index);
}

static bool checks_has_reported(const struct checks *c, const struct diag *d)
{
    for (uint32_t i = 0; i < c->diags->n; i++) {
        const struct diag *other = &c->diags->items[i];
        if (other->loc.line == d->loc.line && other->loc.column == d->loc.column &&
            strcmp(other->text, d->text) == 0)
            return true;
    }
    return false;
}

static void checks_add_error(struct checks *c, struct diag_loc loc, const char *path,
                             const char *text)
{
    struct diag d;
    diag_at(&d, loc, "%s: %s", path, text);
    if (!checks_has_reported(c, &d))
        diag_list_add(c->diags, &d);
}

static void checks_refused(struct checks *c, const json_t *line, uint32_t index)
{
    const struct desc_workload *w = &c->desc->workloads[index];
    const char *param = json_string_value(json_object_get(line, "param"));
    const char *text = json_string_value(json_object_get(line, "error"));
    uint32_t rank = (uint32_t)json_integer_value(json_object_get(line, "rank"));
    const struct desc_kv *kv = param ? desc_find_param(w, rank, param) : NULL;
    const char *path = checks_path(c, index, kv);
    if (param)
        path = arena_printf(c->arena, "%s.%s", path, param);
    checks_add_error(c, kv ? kv->loc : w->loc, path, text ? text : "");
}

static void checks_read_line(struct checks *c, const char *text, size_t len)
{
    json_t *line = json_loadb(text, len, 0, NULL);
    const json_t *number = json_object_get(line, "workload");
    bool expected = json_is_integer(number) && c->ndone < c->n &&
                    json_integer_value(number) == (json_int_t)c->indices[c->ndone];
    if (expected && json_is_true(json_object_get(line, "done")))
        c->ndone++;
    else if (expected)
        checks_refused(c, line, c->indices[c->ndone]);
    json_decref(line);
}

static void checks_read_lines(struct checks *c, struct buf *in)
{
    for (;;) {
        const char *line = buf_pending(in) ? (const char *)in->data + in->start : NULL;
        const char *end = line ? memchr(line, '\n', buf_pending(in)) : NULL;
        if (!end)
            return;
        checks_read_line(c, line, (size_t)(end - line));
        buf_consume(in, (size_t)(end - line) + 1);
    }
}

static void checks_find(struct checks *c, const struct plan_input *in)
{
    c->indices = arena_calloc(c->arena, c->desc->nworkloads, sizeof *c->indices);
    for (uint32_t i = 0; i < c->desc->nworkloads; i++) {
        const struct described *what =
            lookup_described(in, DESCRIBE_WORKLOAD, c->desc->workloads[i].plugin);
        if (what && !what->error && what->has_check)
            c->indices[c->n++] = i;
    }
}

/* The plan in a memory file, for the stdin of the child. Returns a descriptor, or a negative code.
 */
static int checks_write_plan(const struct desc *desc, struct diag *d)
{
    struct buf bytes;
    buf_init(&bytes);
    desc_encode(desc, &bytes);
    int fd = memfd_create("plan", MFD_CLOEXEC);
    int code = fd;
    if (fd < 0)
        code = diag_sys(d, errno, "cannot make a memory file");
    else if (write(fd, bytes.data, bytes.len) != (ssize_t)bytes.len || lseek(fd, 0, SEEK_SET) != 0)
        code = diag_sys(d, errno, "cannot write a memory file");
    if (fd >= 0 && code < 0)
        close(fd);
    buf_fini(&bytes);
    return code;
}

static int checks_start(struct checks *c, struct engine_child *child, const char *engine,
                        struct diag *d)
{
    char **argv = arena_calloc(c->arena, (size_t)c->n + 3, sizeof *argv);
    for (uint32_t i = 0; i < c->n; i++)
        argv[i + 2] = arena_printf(c->arena, "%u", c->indices[i]);
    argv[0] = (char *)engine;
    argv[1] = (char *)"--check";
    int input = checks_write_plan(c->desc, d);
    if (input < 0)
        return input;
    int code = engine_child_start(child, engine, argv, input, d);
    close(input);
    return code;
}

/* Reads the lines of the child until each workload is done or the child ends. Returns its status.
 */
static int checks_collect(struct checks *c, struct engine_child *child)
{
    struct buf output;
    buf_init(&output);
    for (bool more = true; more && c->ndone < c->n;) {
        more = engine_child_read(child, &output);
        checks_read_lines(c, &output);
    }
    buf_fini(&output);
    if (c->ndone == c->n) /* do not wait for its destructors */
        kill(child->pid, SIGKILL);
    return engine_child_end(child);
}

/* The workload whose "done" is missing ended the child. */
static void checks_add_failure(struct checks *c, const struct engine_child *child, int status)
{
    uint32_t index = c->indices[c->ndone];
    checks_add_error(c, c->desc->workloads[index].loc,
                     arena_printf(c->arena, "workloads[%u].plugin", index),
                     engine_child_failure(child, status, "the check of the parameters",
                                          "checks the parameters", c->arena));
}

int checks_run(const struct desc *desc, const struct plan_input *in, const char *engine,
               uint32_t deadline_ms, struct diag_list *diags, struct diag *d)
{
    struct arena arena;
    struct checks c = {.desc = desc, .arena = &arena, .diags = diags};
    struct engine_child child = {.fd = -1, .deadline_ms = deadline_ms};
    arena_init(&arena);
    checks_find(&c, in);
    int code = 0;
    if (c.n)
        code = checks_start(&c, &child, engine, d);
    if (code == 0 && c.n) {
        int status = checks_collect(&c, &child);
        if (c.ndone < c.n)
            checks_add_failure(&c, &child, status);
    }
    arena_fini(&arena);
    return code;
}
