/* SPDX-License-Identifier: Apache-2.0
 *
 * A variable may refer to others; each is filled in once, when it is first needed. A reference to a
 * variable that is being filled in is a cycle. What is filled in counts: as with aliases, a job has
 * at most YAML_NODES_MAX values, and text of at most INTERPOLATE_MAX bytes.
 */
#include "spec/vars.h"

#include "base/buf.h"
#include "base/quote.h"
#include "base/suggest.h"
#include "spec/interpolate.h"
#include "spec/matrix.h"
#include "spec/yaml.h"

#include <stdio.h>
#include <string.h>

#define QUOTED(s) quote((s), (char[QUOTE_SIZE]){0})

enum var_state { VAR_NEW, VAR_OPEN, VAR_DONE };

struct var {
    const char *reference; /* "var:model", "matrix:n" */
    const struct node_entry *entry;
    struct node *value; /* of VAR_DONE; NULL: it was refused */
    enum var_state state;
    bool used;
};

struct vars {
    struct var *items;
    uint32_t n;
    const struct job_matrix *matrix;
    struct arena *arena;
    struct diag_list *diags;
    uint64_t weight; /* of what was filled in */
    size_t bytes;    /* likewise, of texts */
    uint32_t depth;  /* of values inside each other */
    bool failed;
};

static struct node *vars_fill_node(struct vars *v, struct node *node);

/* Reports an error; its value counts as refused. */
static void *vars_error(struct vars *v, const struct diag *d)
{
    diag_list_add(v->diags, d);
    v->failed = true;
    return NULL;
}

static struct var *vars_find(const struct vars *v, const char *name, size_t len)
{
    for (uint32_t i = 0; i < v->n; i++) {
        const char *reference = v->items[i].reference;
        if (strlen(reference) == len && memcmp(reference, name, len) == 0)
            return &v->items[i];
    }
    return NULL;
}

/* "the variable model", "the axis n" */
static const char *vars_title(const char *reference, char out[96])
{
    const char *name = strchr(reference, ':') + 1;
    snprintf(out, 96, "the %s %.64s", reference[0] == 'm' ? "axis" : "variable", name);
    return out;
}

static void *vars_undefined(struct vars *v, const char *reference, struct diag_loc loc)
{
    const char **names = arena_calloc(v->arena, v->n, sizeof *names);
    const size_t kind = strcspn(reference, ":") + 1;
    const char *name = reference + kind;
    size_t n = 0;
    struct diag d;
    char title[96];
    if (reference[0] == 'm' && v->matrix->refused)
        return NULL; /* the axis may be one that was reported */
    for (uint32_t i = 0; i < v->n; i++)
        if (strncmp(v->items[i].reference, reference, kind) == 0)
            names[n++] = v->items[i].reference + kind;
    const char *meant = suggest(name, names, n);
    diag_at(&d, loc, "%s is not defined", vars_title(reference, title));
    if (meant)
        diag_hint(&d, "did you mean ${%.*s%s}?", (int)kind, reference, meant);
    else if (reference[0] == 'm')
        diag_hint(&d, "`matrix` defines it: matrix: {%.64s: [...]}", name);
    else
        diag_hint(&d, "`vars` defines it: vars: {%.64s: value}", name);
    return vars_error(v, &d);
}

/* The value of a variable, filled in. NULL: an error was reported. */
static struct node *vars_value(struct vars *v, const char *name, size_t len, struct diag_loc loc)
{
    const char *text = arena_strndup(v->arena, name, len);
    struct var *var = vars_find(v, name, len);
    struct diag d;
    char title[96];
    if (!var)
        return vars_undefined(v, text, loc);
    var->used = true;
    if (var->state == VAR_OPEN) {
        diag_at(&d, loc, "%s refers to itself", vars_title(text, title));
        diag_second(&d, var->entry->loc, "defined here");
        return vars_error(v, &d);
    }
    if (var->state == VAR_NEW) {
        var->state = VAR_OPEN;
        struct node *value = node_is_null(var->entry->value) ? NULL : var->entry->value;
        var->value = value ? vars_fill_node(v, value) : NULL;
        var->state = VAR_DONE;
    }
    return var->value && !var->value->refused ? var->value : NULL;
}

static bool vars_count(struct vars *v, uint64_t weight, size_t bytes, struct diag_loc loc)
{
    struct diag d;
    const bool before = v->weight > YAML_NODES_MAX || v->bytes > INTERPOLATE_MAX;
    v->weight += weight;
    v->bytes += bytes;
    if (v->weight <= YAML_NODES_MAX && v->bytes <= INTERPOLATE_MAX)
        return true;
    if (!before && v->weight > YAML_NODES_MAX)
        diag_at(&d, loc, "more than %d values, including those that ${var:NAME} repeats",
                YAML_NODES_MAX);
    else if (!before)
        diag_at(&d, loc, "the values with ${var:NAME} are larger than %d MiB in total",
                INTERPOLATE_MAX >> 20);
    if (!before)
        vars_error(v, &d);
    return false;
}

/* ---- texts ---- */

/* Appends a value as it would be written: its own references stay, other dollar signs are doubled.
 */
static void vars_put_written(const struct node *value, struct buf *out)
{
    if (value->written) {
        buf_put(out, value->written, strlen(value->written));
        return;
    }
    for (const char *s = value->text; *s; s++)
        buf_put(out, *s == '$' ? "$$" : s, *s == '$' ? 2 : 1);
}

static bool vars_put_reference(struct vars *v, const char *name, size_t len, struct diag_loc loc,
                               struct buf *out)
{
    struct diag d;
    char title[96];
    const struct node *value = vars_value(v, name, len, loc);
    if (!value)
        return false;
    if (value->kind == NODE_SCALAR) {
        vars_put_written(value, out);
        return true;
    }
    diag_at(&d, loc, "%s is %s, and cannot be a part of a text",
            vars_title(arena_strndup(v->arena, name, len), title),
            value->kind == NODE_MAP ? "a mapping" : "a list");
    diag_second(&d, value->loc, "defined here");
    vars_error(v, &d);
    return false;
}

/* The text with its variables, before ${env:...} is filled in. */
static const char *vars_expand(struct vars *v, const struct node *node)
{
    struct buf out;
    buf_init(&out);
    const char *text = node->text, *at, *name;
    bool good = true;
    for (size_t len; good && (len = interpolate_find_var(text, &at, &name)); text = at + len) {
        const size_t before = out.len;
        buf_put(&out, text, (size_t)(at - text));
        good = vars_put_reference(v, name, len - 3, node->loc, &out) &&
               vars_count(v, 0, out.len - before, node->loc);
    }
    buf_put(&out, text, strlen(text));
    const char *expanded = good ? arena_strndup(v->arena, (char *)out.data, out.len) : NULL;
    buf_fini(&out);
    return expanded;
}

static struct node *vars_refuse(struct vars *v, const struct node *node)
{
    struct node *copy = arena_memdup(v->arena, node, sizeof *node);
    copy->deferred = false;
    copy->refused = true;
    return copy;
}

static struct node *vars_fill_scalar(struct vars *v, struct node *node)
{
    const char *at, *name;
    struct diag d;
    if (!node->deferred)
        return node;
    const size_t len = interpolate_find_var(node->text, &at, &name);
    if (at == node->text && !node->text[len]) {
        struct node *value = vars_value(v, name, len - 3, node->loc);
        const bool fits = value && vars_count(v, value->weight, 0, node->loc);
        return fits ? value : vars_refuse(v, node);
    }
    const char *expanded = vars_expand(v, node);
    if (!expanded)
        return vars_refuse(v, node);
    struct node *copy = arena_memdup(v->arena, node, sizeof *node);
    copy->deferred = false;
    copy->written = expanded;
    if (interpolate(expanded, v->arena, &copy->text, &d) < 0) {
        d.loc = node->loc;
        vars_error(v, &d);
        copy->refused = true;
    }
    return copy;
}

/* ---- trees ---- */

/* How many levels a value has; at most `most`. */
static uint32_t vars_levels(const struct node *node, uint32_t most)
{
    uint32_t deepest = 0;
    for (uint32_t i = 0; most > 1 && node->kind != NODE_SCALAR && i < node->n; i++) {
        const struct node *below = node->kind == NODE_MAP ? node->entries[i].value : node->items[i];
        const uint32_t levels = vars_levels(below, most - 1);
        deepest = levels > deepest ? levels : deepest;
    }
    return deepest + 1;
}

static void vars_fill_children(struct vars *v, struct node *copy)
{
    copy->weight = 1;
    for (uint32_t i = 0; i < copy->n; i++) {
        struct node **child = copy->kind == NODE_MAP ? &copy->entries[i].value : &copy->items[i];
        *child = vars_fill_node(v, *child);
        copy->weight += (*child)->weight;
    }
}

static struct node *vars_fill_node(struct vars *v, struct node *node)
{
    struct diag d;
    if (node->kind == NODE_SCALAR) {
        struct node *filled = vars_fill_scalar(v, node);
        if (filled->kind == NODE_SCALAR ||
            v->depth + vars_levels(filled, YAML_DEPTH_MAX + 1) <= YAML_DEPTH_MAX)
            return filled;
        diag_at(&d, node->loc, "nested more than %d levels deep", YAML_DEPTH_MAX);
        vars_error(v, &d);
        return vars_refuse(v, node);
    }
    if (v->depth >= YAML_DEPTH_MAX) {
        diag_at(&d, node->loc, "nested more than %d levels deep", YAML_DEPTH_MAX);
        vars_error(v, &d);
        struct node *refused = node_scalar(v->arena, "");
        refused->refused = true;
        refused->loc = node->loc;
        return refused;
    }
    struct node *copy = node_copy(node, v->arena);
    v->depth++;
    vars_fill_children(v, copy);
    v->depth--;
    return copy;
}

/* ---- declarations ---- */

static void vars_add(struct vars *v, const char *kind, const struct node_entry *entry)
{
    v->items[v->n++] = (struct var){.reference = arena_printf(v->arena, "%s:%s", kind, entry->key),
                                    .entry = entry};
}

static int vars_read(struct vars *v, const struct node *map)
{
    struct diag d;
    if (map->kind != NODE_MAP) {
        char found[QUOTE_SIZE + 16];
        diag_at(&d, map->loc, "vars: expected a mapping of names to values, found %s",
                node_name(map, found, sizeof found));
        diag_hint(&d, "as in \"vars: {model: small}\"");
        diag_list_add(v->diags, &d);
        return d.code;
    }
    for (uint32_t i = 0; i < map->n; i++) {
        const struct node_entry *entry = &map->entries[i];
        vars_add(v, "var", entry);
        if (!interpolate_is_var_name(entry->key, strlen(entry->key))) {
            diag_at(&d, entry->loc, "vars: %s is no name of a variable", QUOTED(entry->key));
            diag_hint(&d, "letters, digits, _ and -, and a letter or _ first");
            vars_error(v, &d);
        } else if (node_is_null(entry->value)) {
            diag_at(&d, entry->loc, "the variable %s has no value", QUOTED(entry->key));
            diag_hint(&d, "--var %.64s=VALUE gives it one", entry->key);
            vars_error(v, &d);
        }
    }
    return 0;
}

/* Marks the variables that a tree refers to, without filling it in. */
static void vars_mark_used(struct vars *v, const struct node *node)
{
    const char *text = node->kind == NODE_SCALAR && node->deferred ? node->text : "", *at, *name;
    for (size_t len; (len = interpolate_find_var(text, &at, &name)); text = at + len) {
        struct var *var = vars_find(v, name, len - 3);
        if (var)
            var->used = true;
    }
    for (uint32_t i = 0; node->kind != NODE_SCALAR && i < node->n; i++)
        vars_mark_used(v, node->kind == NODE_MAP ? node->entries[i].value : node->items[i]);
}

/* A variable of an included file may be for other jobs. */
static void vars_warn_unused(struct vars *v)
{
    struct diag d;
    char title[96];
    for (uint32_t i = 0; i < v->n && !v->failed; i++) {
        const struct node_entry *entry = v->items[i].entry;
        if (v->items[i].used || entry->loc.file)
            continue;
        diag_at(&d, entry->loc, "%s is not used", vars_title(v->items[i].reference, title));
        diag_hint(&d, "a value refers to it as ${%.80s}", v->items[i].reference);
        diag_list_warn(v->diags, &d);
    }
}

/* Reads the matrix, whose lists may be variables; the values of a combination are variables too. */
static void vars_read_matrix(struct vars *v, const struct node_entry *entry, uint32_t combination,
                             struct job_matrix *matrix)
{
    v->depth++;
    const struct node *map = vars_fill_node(v, entry->value);
    v->depth--;
    matrix_read(map, matrix, v->arena, v->diags);
    v->failed = v->failed || matrix->refused;
    struct var *items = arena_calloc(v->arena, (size_t)v->n + matrix->naxes, sizeof *items);
    if (v->n)
        memcpy(items, v->items, v->n * sizeof *items);
    v->items = items;
    for (uint32_t i = 0; i < matrix->naxes; i++) {
        const uint32_t chosen = combination < matrix->n ? combination : 0;
        const struct node *value = matrix_value(matrix, chosen, i);
        const struct node_entry axis = {matrix->axes[i].name, matrix->axes[i].name_loc,
                                        arena_memdup(v->arena, value, sizeof *value)};
        vars_add(v, "matrix", arena_memdup(v->arena, &axis, sizeof axis));
    }
}

int vars_fill(struct node **root, bool warn, uint32_t combination, struct job_matrix *matrix,
              struct arena *arena, struct diag_list *diags)
{
    struct vars v = {.matrix = matrix, .arena = arena, .diags = diags, .depth = 1};
    const struct node *map = node_get(*root, "vars"), *profiles = node_get(*root, "profiles");
    v.items = arena_calloc(arena, map && map->kind == NODE_MAP ? map->n : 0, sizeof *v.items);
    if (map && vars_read(&v, map) < 0)
        return COLLRUN_ERR_INVALID;
    struct node *copy = node_copy(*root, arena);
    copy->weight = 1;
    for (uint32_t i = 0; i < copy->n; i++)
        if (strcmp(copy->entries[i].key, "matrix") == 0)
            vars_read_matrix(&v, &copy->entries[i], combination, matrix);
    for (uint32_t i = 0; i < copy->n; i++) {
        struct node_entry *entry = &copy->entries[i];
        if (entry->value != map && entry->value != profiles && strcmp(entry->key, "matrix") != 0)
            entry->value = vars_fill_node(&v, entry->value);
        copy->weight += entry->value->weight;
    }
    *root = copy;
    for (uint32_t i = 0; i < v.n; i++) /* their own errors, if nothing refers to them */
        if (v.items[i].state == VAR_NEW && !node_is_null(v.items[i].entry->value)) {
            const char *reference = v.items[i].reference;
            const bool used = v.items[i].used;
            vars_value(&v, reference, strlen(reference), v.items[i].entry->loc);
            v.items[i].used = used;
        }
    if (profiles)
        vars_mark_used(&v, profiles);
    if (warn)
        vars_warn_unused(&v);
    return 0;
}
