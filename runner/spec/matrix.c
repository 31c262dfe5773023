/* SPDX-License-Identifier: Apache-2.0 */
#include "spec/matrix.h"

#include "base/parse.h"
#include "base/quote.h"
#include "base/suggest.h"
#include "spec/interpolate.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define QUOTED(s) quote((s), (char[QUOTE_SIZE]){0})

struct matrix_reader {
    struct job_matrix *out;
    struct arena *arena;
    struct diag_list *diags;
};

static void matrix_error(struct matrix_reader *r, struct diag_loc loc, const char *hint,
                         const char *format, ...)
{
    char text[256];
    struct diag d;
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    diag_at(&d, loc, "%s", text);
    if (hint)
        diag_hint(&d, "%s", hint);
    diag_list_add(r->diags, &d);
    r->out->refused = true;
}

/* ---- axes ---- */

static uint32_t matrix_find_axis(const struct job_matrix *matrix, const char *name)
{
    uint32_t i = 0;
    while (i < matrix->naxes && strcmp(matrix->axes[i].name, name) != 0)
        i++;
    return i;
}

static uint32_t matrix_find_value(const struct job_matrix_axis *axis, const char *text)
{
    uint32_t i = 0;
    while (i < axis->n && strcmp(axis->values[i]->text, text) != 0)
        i++;
    return i;
}

/* The hint for a wrong value of an axis; NULL: for a wrong axis. */
static const char *matrix_known(const struct job_matrix *matrix, const struct job_matrix_axis *axis,
                                const char *written, struct arena *arena)
{
    const uint32_t n = axis ? axis->n : matrix->naxes;
    const char **names = arena_calloc(arena, n, sizeof *names);
    for (uint32_t i = 0; i < n; i++)
        names[i] = axis ? axis->values[i]->text : matrix->axes[i].name;
    return suggest_text(written, axis ? "values" : "axes", names, n,
                        arena_calloc(arena, 1, SUGGEST_TEXT));
}

static void matrix_read_axis(struct matrix_reader *r, const struct node_entry *entry)
{
    struct job_matrix *out = r->out;
    const struct node *list = entry->value;
    struct job_matrix_axis axis = {.name = entry->key, .name_loc = entry->loc};
    char found[QUOTE_SIZE + 16];
    if (!interpolate_is_var_name(entry->key, strlen(entry->key))) {
        matrix_error(r, entry->loc, "letters, digits, _ and -, and a letter or _ first",
                     "matrix: %s is no name of an axis", QUOTED(entry->key));
        return;
    }
    if (list->refused) {
        out->refused = true;
        return;
    }
    if (list->kind != NODE_LIST || !list->n) {
        matrix_error(r, list->loc, "as in \"matrix: {n: [2, 4, 8]}\"",
                     "matrix.%.64s: expected a list of values, found %s", entry->key,
                     list->kind == NODE_LIST ? "an empty one"
                                             : node_name(list, found, sizeof found));
        return;
    }
    axis.values = arena_calloc(r->arena, list->n, sizeof *axis.values);
    for (uint32_t i = 0; i < list->n; i++) {
        struct node *value = list->items[i];
        out->refused = out->refused || value->refused;
        if (value->refused)
            continue;
        if (value->kind != NODE_SCALAR || node_is_null(value))
            matrix_error(r, value->loc, NULL, "matrix.%.64s: expected a single value, found %s",
                         entry->key, node_name(value, found, sizeof found));
        else if (matrix_find_value(&axis, value->text) < axis.n)
            matrix_error(r, value->loc, NULL, "matrix.%.64s: %s is listed twice", entry->key,
                         QUOTED(value->text));
        else
            axis.values[axis.n++] = value;
    }
    if (axis.n)
        out->axes[out->naxes++] = axis;
}

/* ---- combinations ---- */

/* The index of the value of an axis in the combination with this number, none excluded. */
static uint32_t matrix_digit(const struct job_matrix *matrix, uint64_t number, uint32_t axis)
{
    for (uint32_t i = matrix->naxes; --i > axis;)
        number /= matrix->axes[i].n;
    return (uint32_t)(number % matrix->axes[axis].n);
}

/* Sets for each axis the value that an entry of `exclude` names, or UINT32_MAX. */
static bool matrix_read_exclusion(struct matrix_reader *r, const struct node *entry,
                                  uint32_t *values)
{
    const struct job_matrix *matrix = r->out;
    char found[QUOTE_SIZE + 16];
    if (entry->kind != NODE_MAP || !entry->n) {
        matrix_error(r, entry->loc, "as in \"exclude: [{algo: Tree, n: 2}]\"",
                     "matrix.exclude: expected a mapping of axes to values, found %s",
                     entry->kind == NODE_MAP ? "an empty one"
                                             : node_name(entry, found, sizeof found));
        return false;
    }
    for (uint32_t i = 0; i < matrix->naxes; i++)
        values[i] = UINT32_MAX;
    for (uint32_t i = 0; i < entry->n; i++) {
        const struct node_entry *e = &entry->entries[i];
        const uint32_t axis = matrix_find_axis(matrix, e->key);
        if (axis == matrix->naxes) {
            matrix_error(r, e->loc, matrix_known(matrix, NULL, e->key, r->arena),
                         "matrix.exclude: there is no axis %s", QUOTED(e->key));
            return false;
        }
        const char *text = e->value->kind == NODE_SCALAR ? e->value->text : "";
        values[axis] = matrix_find_value(&matrix->axes[axis], text);
        if (values[axis] == matrix->axes[axis].n) {
            matrix_error(r, e->value->loc,
                         matrix_known(matrix, &matrix->axes[axis], text, r->arena),
                         "matrix.exclude: the axis %.64s has no value %s", e->key,
                         e->value->kind == NODE_SCALAR ? QUOTED(text)
                                                       : node_name(e->value, found, sizeof found));
            return false;
        }
    }
    return true;
}

/* Marks what one entry excludes; an entry that excludes nothing more is an error. */
static void matrix_exclude(struct matrix_reader *r, const struct node *entry, bool *excluded,
                           uint64_t all)
{
    uint32_t values[MATRIX_AXES_MAX];
    bool any = false;
    if (!matrix_read_exclusion(r, entry, values))
        return;
    for (uint64_t number = 0; number < all; number++) {
        uint32_t axis = 0;
        while (axis < r->out->naxes &&
               (values[axis] == UINT32_MAX || values[axis] == matrix_digit(r->out, number, axis)))
            axis++;
        any = any || (axis == r->out->naxes && !excluded[number]);
        excluded[number] = excluded[number] || axis == r->out->naxes;
    }
    if (!any)
        matrix_error(r, entry->loc, NULL,
                     "matrix.exclude: the entries before exclude these combinations already");
}

static void matrix_combine(struct matrix_reader *r, const struct node *exclude)
{
    struct job_matrix *out = r->out;
    char found[QUOTE_SIZE + 16];
    uint64_t all = 1;
    for (uint32_t i = 0; i < out->naxes && all <= MATRIX_MAX; i++)
        all *= out->axes[i].n;
    if (all > MATRIX_MAX) {
        matrix_error(r, out->loc, NULL, "matrix: more than %d combinations", MATRIX_MAX);
        return;
    }
    bool *excluded = arena_calloc(r->arena, all, sizeof *excluded);
    if (exclude && exclude->kind != NODE_LIST)
        matrix_error(r, exclude->loc, "as in \"exclude: [{algo: Tree, n: 2}]\"",
                     "matrix.exclude: expected a list, found %s",
                     node_name(exclude, found, sizeof found));
    for (uint32_t i = 0; exclude && exclude->kind == NODE_LIST && i < exclude->n; i++)
        matrix_exclude(r, exclude->items[i], excluded, all);
    out->chosen = arena_calloc(r->arena, (size_t)all * out->naxes, sizeof *out->chosen);
    for (uint64_t number = 0; number < all; number++) {
        if (excluded[number])
            continue;
        for (uint32_t axis = 0; axis < out->naxes; axis++)
            out->chosen[(size_t)out->n * out->naxes + axis] = matrix_digit(out, number, axis);
        out->n++;
    }
    if (!out->n)
        matrix_error(r, exclude->loc, NULL, "matrix.exclude: no combination is left");
}

void matrix_read(const struct node *map, struct job_matrix *out, struct arena *arena,
                 struct diag_list *diags)
{
    struct matrix_reader r = {out, arena, diags};
    const struct node *exclude = NULL;
    struct diag d;
    char found[QUOTE_SIZE + 16];
    *out = (struct job_matrix){.keep_going = true, .loc = map->loc};
    if (map->kind != NODE_MAP) {
        matrix_error(&r, map->loc, "as in \"matrix: {algo: [Ring, Tree], n: [2, 4]}\"",
                     "matrix: expected a mapping of names to lists, found %s",
                     node_name(map, found, sizeof found));
        return;
    }
    out->axes = arena_calloc(arena, map->n, sizeof *out->axes);
    for (uint32_t i = 0; i < map->n; i++) {
        const struct node_entry *entry = &map->entries[i];
        if (strcmp(entry->key, "exclude") == 0) {
            exclude = entry->value;
        } else if (strcmp(entry->key, "keep_going") != 0) {
            matrix_read_axis(&r, entry);
        } else if (entry->value->kind != NODE_SCALAR ||
                   parse_bool(entry->value->text, &out->keep_going, &d) < 0) {
            matrix_error(&r, entry->value->loc, NULL, "matrix.keep_going: expected true or false");
        }
    }
    if (out->naxes > MATRIX_AXES_MAX)
        matrix_error(&r, map->loc, NULL, "matrix: more than %d axes", MATRIX_AXES_MAX);
    else if (!out->naxes && !out->refused)
        matrix_error(&r, map->loc, "as in \"matrix: {n: [2, 4, 8]}\"", "matrix: it has no axis");
    else if (out->naxes && !out->refused)
        matrix_combine(&r, exclude);
}

/* ---- one combination ---- */

const struct node *matrix_value(const struct job_matrix *matrix, uint32_t combination,
                                uint32_t axis)
{
    const struct job_matrix_axis *a = &matrix->axes[axis];
    return a->values[matrix->n ? matrix->chosen[(size_t)combination * matrix->naxes + axis] : 0];
}

const char *matrix_text(const struct job_matrix *matrix, uint32_t combination, struct arena *arena)
{
    const char *text = "";
    for (uint32_t i = 0; i < matrix->naxes; i++)
        text = arena_printf(arena, "%s%s%s=%s", text, i ? "," : "", matrix->axes[i].name,
                            matrix_value(matrix, combination, i)->text);
    return text;
}

const char *matrix_folder(const struct job_matrix *matrix, uint32_t combination,
                          struct arena *arena)
{
    enum { LEN = 200 }; /* of 255 that a name may have */
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
                                "=,.+-_";
    char *name = arena_printf(arena, "%03u-%.*s", combination + 1, LEN,
                              matrix_text(matrix, combination, arena));
    for (char *p = name + strspn(name, plain); *p; p += strspn(p, plain))
        *p = '_';
    return name;
}

int matrix_select(const struct job_matrix *matrix, const char *only, bool *selected,
                  struct arena *arena, struct diag *d)
{
    const char *equals = strchr(only, '=');
    char name[64];
    snprintf(name, sizeof name, "%.*s", equals ? (int)(equals - only) : 0, only);
    const uint32_t axis = matrix_find_axis(matrix, name);
    if (!equals || axis == matrix->naxes) {
        diag_set(d, COLLRUN_ERR_INVALID, "--only: %s is not AXIS=VALUE of the matrix",
                 QUOTED(only));
        return diag_hint(d, "%s", matrix_known(matrix, NULL, name, arena));
    }
    const uint32_t value = matrix_find_value(&matrix->axes[axis], equals + 1);
    if (value == matrix->axes[axis].n) {
        diag_set(d, COLLRUN_ERR_INVALID, "--only: the axis %s has no value %s", name,
                 QUOTED(equals + 1));
        return diag_hint(d, "%s", matrix_known(matrix, &matrix->axes[axis], equals + 1, arena));
    }
    for (uint32_t i = 0; i < matrix->n; i++)
        selected[i] = selected[i] && matrix->chosen[(size_t)i * matrix->naxes + axis] == value;
    return 0;
}
