/* SPDX-License-Identifier: Apache-2.0
 *
 * One function per step: a text becomes a value of its type, a value is held against its bounds, a
 * table is filled from its defaults, then from params, then from each per_ranks entry that names
 * this rank.
 */
#include "params.h"

#include "base/parse.h"
#include "base/suggest.h"

#include <string.h>

const char *params_type_name(enum collrun_param_type type)
{
    static const char *const names[] = {"string", "int", "float", "bool", "size", "duration"};
    return (unsigned)type < sizeof names / sizeof *names ? names[type] : NULL;
}

static uint32_t table_len(const struct collrun_param *table)
{
    uint32_t n = 0;
    while (table && table[n].name)
        n++;
    return n;
}

static int parse_value(enum collrun_param_type type, const char *text, struct param_value *out,
                       struct diag *d)
{
    switch (type) {
    case COLLRUN_PARAM_STRING:
        out->as.string = text;
        return COLLRUN_OK;
    case COLLRUN_PARAM_INT:
        return parse_int(text, &out->as.number, d);
    case COLLRUN_PARAM_FLOAT:
        return parse_float(text, &out->as.real, d);
    case COLLRUN_PARAM_BOOL:
        return parse_bool(text, &out->as.truth, d);
    case COLLRUN_PARAM_SIZE:
        return parse_size(text, &out->as.amount, d);
    case COLLRUN_PARAM_DURATION:
        return parse_duration(text, &out->as.amount, d);
    }
    return diag_set(d, COLLRUN_ERR_INVALID, "a parameter type that does not exist (%d)", (int)type);
}

static bool has_order(enum collrun_param_type type)
{
    return type != COLLRUN_PARAM_STRING && type != COLLRUN_PARAM_BOOL;
}

/* a < b, of one ordered type; NaN is not in order with anything. */
static bool less(enum collrun_param_type type, const struct param_value *a,
                 const struct param_value *b)
{
    if (type == COLLRUN_PARAM_INT)
        return a->as.number < b->as.number;
    if (type == COLLRUN_PARAM_FLOAT)
        return !(a->as.real >= b->as.real);
    return a->as.amount < b->as.amount;
}

static int check_bounds(const struct collrun_param *p, const char *text,
                        const struct param_value *v, struct diag *d)
{
    struct param_value bound;
    if (!has_order(p->type))
        return COLLRUN_OK;
    if (p->min) {
        int rc = parse_value(p->type, p->min, &bound, d);
        if (rc != COLLRUN_OK)
            return diag_wrap(d, "its minimum");
        if (less(p->type, v, &bound))
            return diag_set(d, COLLRUN_ERR_INVALID, "%s is less than the minimum, %s", text,
                            p->min);
    }
    if (p->max) {
        int rc = parse_value(p->type, p->max, &bound, d);
        if (rc != COLLRUN_OK)
            return diag_wrap(d, "its maximum");
        if (less(p->type, &bound, v))
            return diag_set(d, COLLRUN_ERR_INVALID, "%s is more than the maximum, %s", text,
                            p->max);
    }
    return COLLRUN_OK;
}

static int value_from_text(const struct collrun_param *p, const char *text, struct param_value *out,
                           struct diag *d)
{
    struct param_value v = {.name = p->name, .type = p->type};
    int rc = parse_value(p->type, text, &v, d);
    if (rc == COLLRUN_OK)
        rc = check_bounds(p, text, &v, d);
    if (rc == COLLRUN_OK)
        *out = v;
    return rc;
}

static int check_entry(const struct collrun_param *table, uint32_t i, struct diag *d)
{
    const struct collrun_param *p = &table[i];
    struct param_value v;
    if (!params_type_name(p->type))
        return diag_set(d, COLLRUN_ERR_INVALID, "its type is %d, which does not exist",
                        (int)p->type);
    for (uint32_t k = 0; k < i; k++) {
        if (strcmp(table[k].name, p->name) == 0)
            return diag_set(d, COLLRUN_ERR_INVALID, "it is declared twice");
    }
    if (!p->def)
        return COLLRUN_OK;
    if (value_from_text(p, p->def, &v, d) != COLLRUN_OK)
        return diag_wrap(d, "its default");
    return COLLRUN_OK;
}

int params_check_table(const struct collrun_param *table, const char *plugin, struct diag *d)
{
    uint32_t n = table_len(table);
    for (uint32_t i = 0; i < n; i++) {
        if (check_entry(table, i, d) != COLLRUN_OK)
            return diag_wrap(d, "workload %s declares parameter \"%s\" wrongly", plugin,
                             table[i].name);
    }
    return COLLRUN_OK;
}

static int unknown(const struct collrun_param *table, const struct desc_kv *kv, struct arena *arena,
                   struct diag *d)
{
    uint32_t n = table_len(table);
    const char **names = arena_calloc(arena, n, sizeof *names);
    for (uint32_t i = 0; names && i < n; i++)
        names[i] = table[i].name;
    diag_at(d, kv->loc, "the workload has no parameter \"%s\"", kv->key);
    const char *near = names ? suggest(kv->key, names, n) : NULL;
    if (near)
        return diag_hint(d, "did you mean \"%s\"?", near);
    return n ? d->code : diag_hint(d, "it has no parameters at all");
}

static int set_one(struct params *p, const struct collrun_param *table, const struct desc_kv *kv,
                   const struct template_values *values, struct arena *arena, struct diag *d)
{
    uint32_t i = 0;
    while (i < p->n && strcmp(table[i].name, kv->key) != 0)
        i++;
    if (i == p->n)
        return unknown(table, kv, arena, d);
    const char *text = kv->value;
    int rc = COLLRUN_OK;
    if (table[i].type == COLLRUN_PARAM_STRING)
        rc = template_expand(kv->value, values, arena, &text, d);
    if (rc == COLLRUN_OK)
        rc = value_from_text(&table[i], text, &p->values[i], d);
    if (rc != COLLRUN_OK) {
        diag_wrap(d, "parameter \"%s\"", kv->key);
        d->loc = kv->loc;
    }
    return rc;
}

static int set_all(struct params *p, const struct collrun_param *table, const struct desc_kvs *kvs,
                   const struct template_values *values, struct arena *arena, struct diag *d)
{
    int rc = COLLRUN_OK;
    for (uint32_t i = 0; rc == COLLRUN_OK && i < kvs->n; i++)
        rc = set_one(p, table, &kvs->items[i], values, arena, d);
    return rc;
}

static bool names_rank(const struct desc_ranks *ranks, uint32_t rank)
{
    for (uint32_t i = 0; i < ranks->n; i++) {
        if (ranks->items[i] == rank)
            return true;
    }
    return false;
}

static int set_defaults(struct params *p, const struct collrun_param *table, struct diag *d)
{
    int rc = COLLRUN_OK;
    for (uint32_t i = 0; rc == COLLRUN_OK && i < p->n; i++) {
        if (table[i].def)
            rc = value_from_text(&table[i], table[i].def, &p->values[i], d);
    }
    return rc;
}

int params_parse(struct params *out, const struct collrun_param *table,
                 const struct desc_workload *w, const struct template_values *values,
                 struct arena *arena, struct diag *d)
{
    struct params p = {.n = table_len(table)};
    p.values = arena_calloc(arena, p.n, sizeof *p.values);
    if (!p.values)
        return diag_set(d, COLLRUN_ERR_NO_MEMORY,
                        "out of memory for the parameters of workload \"%s\"", w->name);
    int rc = set_defaults(&p, table, d);
    if (rc == COLLRUN_OK)
        rc = set_all(&p, table, &w->params, values, arena, d);
    for (uint32_t i = 0; rc == COLLRUN_OK && i < w->noverrides; i++) {
        if (names_rank(&w->overrides[i].ranks, values->rank))
            rc = set_all(&p, table, &w->overrides[i].params, values, arena, d);
    }
    for (uint32_t i = 0; rc == COLLRUN_OK && i < p.n; i++) {
        if (!p.values[i].name)
            rc = diag_at(d, w->loc, "parameter \"%s\" is required and not given", table[i].name);
    }
    if (rc == COLLRUN_OK)
        *out = p;
    return rc;
}

const struct param_value *params_find(const struct params *p, const char *name)
{
    for (uint32_t i = 0; i < p->n; i++) {
        if (strcmp(p->values[i].name, name) == 0)
            return &p->values[i];
    }
    return NULL;
}
