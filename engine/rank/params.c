/* SPDX-License-Identifier: Apache-2.0
 *
 * One function per step: a text becomes a value of its type, a value is compared with its bounds, a
 * table is filled from its defaults, then from params, then from each per_ranks entry that names
 * this rank.
 */
#include "rank/params.h"

#include "base/parse.h"
#include "base/suggest.h"

#include <string.h>

const char *params_type_name(enum collrun_param_type type)
{
    static const char *const names[] = {"string", "int",      "float", "bool",
                                        "size",   "duration", "enum",  "list"};
    return (unsigned)type < sizeof names / sizeof *names ? names[type] : NULL;
}

static uint32_t params_table_len(const struct collrun_param *table)
{
    uint32_t n = 0;
    while (table && table[n].name)
        n++;
    return n;
}

static int params_parse_value(const struct collrun_param *p, const char *text,
                              struct param_value *out, struct diag *d)
{
    switch (p->type) {
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
    case COLLRUN_PARAM_ENUM:
        out->as.choice.text = text;
        return parse_choice(text, p->choices, &out->as.choice.index, d);
    case COLLRUN_PARAM_LIST:
        break; /* params_list_from_texts */
    }
    return diag_set(d, COLLRUN_ERR_INVALID, "unknown parameter type %d", (int)p->type);
}

static bool params_has_order(enum collrun_param_type type)
{
    return type == COLLRUN_PARAM_INT || type == COLLRUN_PARAM_FLOAT || type == COLLRUN_PARAM_SIZE ||
           type == COLLRUN_PARAM_DURATION;
}

/* a < b, of one ordered type; NaN is not in order with anything. */
static bool params_less(enum collrun_param_type type, const struct param_value *a,
                        const struct param_value *b)
{
    if (type == COLLRUN_PARAM_INT)
        return a->as.number < b->as.number;
    if (type == COLLRUN_PARAM_FLOAT)
        return !(a->as.real >= b->as.real);
    return a->as.amount < b->as.amount;
}

static int params_check_bounds(const struct collrun_param *p, const char *text,
                               const struct param_value *v, struct diag *d)
{
    struct param_value bound;
    if (!params_has_order(p->type))
        return COLLRUN_OK;
    if (p->min) {
        int rc = params_parse_value(p, p->min, &bound, d);
        if (rc != COLLRUN_OK)
            return diag_wrap(d, "its minimum");
        if (params_less(p->type, v, &bound))
            return diag_set(d, COLLRUN_ERR_INVALID, "%s is less than the minimum, %s", text,
                            p->min);
    }
    if (p->max) {
        int rc = params_parse_value(p, p->max, &bound, d);
        if (rc != COLLRUN_OK)
            return diag_wrap(d, "its maximum");
        if (params_less(p->type, &bound, v))
            return diag_set(d, COLLRUN_ERR_INVALID, "%s is more than the maximum, %s", text,
                            p->max);
    }
    return COLLRUN_OK;
}

static int params_value_from_text(const struct collrun_param *p, const char *text,
                                  struct param_value *out, struct diag *d)
{
    struct param_value v = {.name = p->name, .type = p->type};
    int rc = params_parse_value(p, text, &v, d);
    if (rc == COLLRUN_OK)
        rc = params_check_bounds(p, text, &v, d);
    if (rc == COLLRUN_OK)
        *out = v;
    return rc;
}

/* ---- lists ---- */

/* A list as the parameter that each of its items is; any other as it is. */
static struct collrun_param params_item(const struct collrun_param *p)
{
    struct collrun_param item = *p;
    if (p->type == COLLRUN_PARAM_LIST)
        item.type = (enum collrun_param_type)p->item;
    return item;
}

/* What a value is made from. */
struct params_source {
    const struct template_values *values; /* for templates in strings; NULL: there are none */
    struct arena *arena;
};

static int params_expand(const struct params_source *from, const struct collrun_param *p,
                         const char *text, struct param_value *out, struct diag *d)
{
    int rc = COLLRUN_OK;
    if (from->values && p->type == COLLRUN_PARAM_STRING)
        rc = template_expand(text, from->values, from->arena, &text, d);
    return rc == COLLRUN_OK ? params_value_from_text(p, text, out, d) : rc;
}

/* The place of an error is that of the item, if it has one. */
static int params_list_from_items(const struct params_source *from, const struct collrun_param *p,
                                  const struct desc_kv *kv, struct param_value *out, struct diag *d)
{
    const struct collrun_param item = params_item(p);
    struct param_value v = {.name = p->name, .type = COLLRUN_PARAM_LIST};
    v.as.list.items = arena_calloc(from->arena, kv->nitems, sizeof *v.as.list.items);
    if (!v.as.list.items)
        return diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory for the list");
    for (uint32_t i = 0; i < kv->nitems; i++) {
        int rc = params_expand(from, &item, kv->items[i].value, &v.as.list.items[i], d);
        if (rc != COLLRUN_OK) {
            diag_wrap(d, "item %u", i);
            d->loc = kv->items[i].loc;
            return rc;
        }
    }
    v.as.list.n = kv->nitems;
    *out = v;
    return COLLRUN_OK;
}

/* The default of a table, of any type. */
static int params_default(const struct collrun_param *p, struct arena *arena,
                          struct param_value *out, struct diag *d)
{
    const struct params_source from = {.arena = arena};
    struct parse_list texts;
    if (p->type != COLLRUN_PARAM_LIST)
        return params_value_from_text(p, p->def, out, d);
    int rc = parse_list(p->def, arena, &texts, d);
    if (rc != COLLRUN_OK)
        return rc;
    struct desc_kv kv = {.is_list = true, .nitems = texts.n};
    kv.items = arena_calloc(arena, texts.n, sizeof *kv.items);
    for (uint32_t i = 0; kv.items && i < texts.n; i++)
        kv.items[i].value = texts.items[i];
    return kv.items ? params_list_from_items(&from, p, &kv, out, d)
                    : diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory for the list");
}

/* ---- tables ---- */

static int params_check_default(const struct collrun_param *p, struct diag *d)
{
    struct param_value v;
    struct arena arena;
    arena_init(&arena);
    int rc = p->def ? params_default(p, &arena, &v, d) : COLLRUN_OK;
    arena_fini(&arena);
    return rc == COLLRUN_OK ? rc : diag_wrap(d, "its default");
}

static int params_check_type(const struct collrun_param *p, const char *what, struct diag *d)
{
    struct parse_choices choices;
    const struct collrun_param item = params_item(p);
    if (!params_type_name(p->type))
        return diag_set(d, COLLRUN_ERR_INVALID, "its type is %d, which is unknown", (int)p->type);
    if (p->type == COLLRUN_PARAM_LIST && strcmp(what, "backend") == 0)
        return diag_set(d, COLLRUN_ERR_INVALID, "an option cannot be a list");
    if (p->type == COLLRUN_PARAM_LIST && (p->item >= COLLRUN_PARAM_LIST))
        return diag_set(d, COLLRUN_ERR_INVALID,
                        "its items have the type %llu, which a list cannot have",
                        (unsigned long long)p->item);
    if (p->type != COLLRUN_PARAM_LIST && p->item)
        return diag_set(d, COLLRUN_ERR_INVALID, "it has a type of items, but is no list");
    return item.type == COLLRUN_PARAM_ENUM ? parse_choices(p->choices, &choices, d) : COLLRUN_OK;
}

static int params_check_entry(const struct collrun_param *table, uint32_t i, const char *what,
                              struct diag *d)
{
    for (uint32_t k = 0; k < i; k++) {
        if (strcmp(table[k].name, table[i].name) == 0)
            return diag_set(d, COLLRUN_ERR_INVALID, "it is declared twice");
    }
    int rc = params_check_type(&table[i], what, d);
    return rc == COLLRUN_OK ? params_check_default(&table[i], d) : rc;
}

int params_check_table(const struct collrun_param *table, const char *what, const char *plugin,
                       struct diag *d)
{
    uint32_t n = params_table_len(table);
    for (uint32_t i = 0; i < n; i++) {
        if (params_check_entry(table, i, what, d) != COLLRUN_OK)
            return diag_wrap(d, "%s %s declares %s \"%s\" wrongly", what, plugin,
                             strcmp(what, "backend") == 0 ? "option" : "parameter", table[i].name);
    }
    return COLLRUN_OK;
}

/* ---- values of job.yaml ---- */

static int params_unknown(const struct collrun_param *table, const struct desc_kv *kv,
                          struct arena *arena, struct diag *d)
{
    uint32_t n = params_table_len(table);
    const char **names = arena_calloc(arena, n, sizeof *names);
    for (uint32_t i = 0; names && i < n; i++)
        names[i] = table[i].name;
    diag_at(d, kv->loc, "the workload has no parameter \"%s\"", kv->key);
    const char *near = names ? suggest(kv->key, names, n) : NULL;
    if (near)
        return diag_hint(d, "did you mean \"%s\"?", near);
    return n ? d->code : diag_hint(d, "it has no parameters");
}

static int params_set_one(struct params *p, const struct collrun_param *table,
                          const struct desc_kv *kv, const struct template_values *values,
                          struct arena *arena, struct diag *d)
{
    uint32_t i = 0;
    while (i < p->n && strcmp(table[i].name, kv->key) != 0)
        i++;
    if (i == p->n)
        return params_unknown(table, kv, arena, d);
    const struct params_source from = {.values = values, .arena = arena};
    struct desc_item only = {.value = kv->value, .loc = kv->loc};
    const struct desc_kv list = {.is_list = true, .items = &only, .nitems = 1};
    int rc;
    if (table[i].type == COLLRUN_PARAM_LIST)
        rc = params_list_from_items(&from, &table[i], kv->is_list ? kv : &list, &p->values[i], d);
    else if (kv->is_list)
        rc = diag_set(d, COLLRUN_ERR_INVALID, "expected %s, found a list",
                      params_type_name(table[i].type));
    else
        rc = params_expand(&from, &table[i], kv->value, &p->values[i], d);
    if (rc != COLLRUN_OK) {
        diag_wrap(d, "parameter \"%s\"", kv->key);
        d->loc = d->loc.line ? d->loc : kv->loc;
    }
    return rc;
}

static int params_set_all(struct params *p, const struct collrun_param *table,
                          const struct desc_kvs *kvs, const struct template_values *values,
                          struct arena *arena, struct diag *d)
{
    int rc = COLLRUN_OK;
    for (uint32_t i = 0; rc == COLLRUN_OK && i < kvs->n; i++)
        rc = params_set_one(p, table, &kvs->items[i], values, arena, d);
    return rc;
}

static bool params_names_rank(const struct desc_ranks *ranks, uint32_t rank)
{
    for (uint32_t i = 0; i < ranks->n; i++) {
        if (ranks->items[i] == rank)
            return true;
    }
    return false;
}

static int params_set_defaults(struct params *p, const struct collrun_param *table,
                               struct arena *arena, struct diag *d)
{
    int rc = COLLRUN_OK;
    for (uint32_t i = 0; rc == COLLRUN_OK && i < p->n; i++) {
        if (table[i].def)
            rc = params_default(&table[i], arena, &p->values[i], d);
    }
    return rc;
}

int params_parse(struct params *out, const struct collrun_param *table,
                 const struct desc_workload *w, const struct template_values *values,
                 struct arena *arena, struct diag *d)
{
    struct params p = {.n = params_table_len(table)};
    p.values = arena_calloc(arena, p.n, sizeof *p.values);
    if (!p.values)
        return diag_set(d, COLLRUN_ERR_NO_MEMORY,
                        "out of memory for the parameters of workload \"%s\"", w->name);
    int rc = params_set_defaults(&p, table, arena, d);
    if (rc == COLLRUN_OK)
        rc = params_set_all(&p, table, &w->params, values, arena, d);
    for (uint32_t i = 0; rc == COLLRUN_OK && i < w->noverrides; i++) {
        if (params_names_rank(&w->overrides[i].ranks, values->rank))
            rc = params_set_all(&p, table, &w->overrides[i].params, values, arena, d);
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
