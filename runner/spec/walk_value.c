/* SPDX-License-Identifier: Apache-2.0
 *
 * Values without parts: texts, numbers, choices, rank sets; and the errors of all values.
 */
#include "spec/walk_value.h"

#include "base/parse.h"
#include "base/quote.h"
#include "base/suggest.h"
#include "spec/path.h"
#include "spec/secrets.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define QUOTED(s) quote((s), (char[QUOTE_SIZE]){0})
enum { CHOICES_MAX = 32 };

/* ---- errors ---- */

/* Adds the path before the text of an error, sets its place, and stores it. */
void walk_add_error(struct walk *w, struct diag_loc loc, struct diag *d)
{
    if (w->path[0])
        diag_wrap(d, "%s", w->path);
    d->code = COLLRUN_ERR_INVALID;
    d->loc = loc;
    diag_list_add(w->diags, d);
}

void walk_error(struct walk *w, struct diag_loc loc, const char *hint, const char *format, ...)
{
    char text[512];
    struct diag d;
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    diag_set(&d, COLLRUN_ERR_INVALID, "%s", text);
    if (hint)
        diag_hint(&d, "%s", hint);
    walk_add_error(w, loc, &d);
}

/* True for {rank} and the like without quotes, which YAML reads as a mapping. */
static bool walk_is_template(const struct node *node)
{
    return node->kind == NODE_MAP && node->n == 1 && node_is_null(node->entries[0].value);
}

void walk_wrong_kind(struct walk *w, const struct schema_type *type, const struct node *node)
{
    char found[QUOTE_SIZE + 16], hint[128] = "";
    if (node->refused)
        return;
    if (type->kind == SCHEMA_STR && walk_is_template(node))
        snprintf(hint, sizeof hint, "a value with braces needs quotes: \"{%.64s}\"",
                 node->entries[0].key);
    else if (type->example)
        snprintf(hint, sizeof hint, "as in \"%s\"", type->example);
    if (node_is_null(node))
        walk_error(w, node->loc, *hint ? hint : NULL, "has no value; expected %s", type->expects);
    else
        walk_error(w, node->loc, *hint ? hint : NULL, "expected %s, found %s", type->expects,
                   node_name(node, found, sizeof found));
}

bool walk_refuse_secret(struct walk *w, const struct schema_type *type, const struct node *node)
{
    const char *secret = type->may_be_secret ? NULL : secrets_find(node, w->secrets);
    char hint[256];
    if (!secret)
        return false;
    snprintf(hint, sizeof hint,
             "a secret may stand in params, options, environment variables and arguments of a "
             "command; if %.64s is none, take it out of env.secrets",
             secret);
    walk_error(w, node->loc, hint,
               "${env:%s} is one of env.secrets, but messages and files show this value", secret);
    return true;
}

/* ---- the path ---- */

size_t walk_enter_key(struct walk *w, const char *key)
{
    size_t len = strlen(w->path);
    snprintf(w->path + len, sizeof w->path - len, "%s%s", len ? "." : "", key);
    return len;
}

size_t walk_enter_item(struct walk *w, uint32_t index)
{
    size_t len = strlen(w->path);
    snprintf(w->path + len, sizeof w->path - len, "[%u]", index);
    return len;
}

void walk_leave(struct walk *w, size_t len)
{
    w->path[len] = '\0';
}

/* ---- scalars ---- */

void walk_read_text(struct walk *w, const struct schema_type *type, const struct node *node,
                    struct job_str *out)
{
    struct diag d;
    const char *text = node->text;
    if (node->kind != NODE_SCALAR || node_is_null(node))
        walk_wrong_kind(w, type, node);
    else if (type->check && type->check(node->text, &d) < 0)
        walk_add_error(w, node->loc, &d);
    else if (type->relative != PATH_NONE &&
             path_expand_home(node->text, type->is_template, w->arena, &text, &d) < 0)
        walk_add_error(w, node->loc, &d);
    else
        *out = (struct job_str){text, node->loc, !node->plain && !node->written};
}

static int walk_parse_number(const struct schema_type *type, const struct node *node, int64_t *v,
                             struct diag *d)
{
    uint64_t amount = 0;
    bool yes = false;
    int code;
    switch (type->kind) {
    case SCHEMA_FLAG:
        code = parse_bool(node->text, &yes, d);
        *v = yes;
        return code;
    case SCHEMA_DURATION:
        code = parse_duration(node->text, &amount, d);
        *v = (int64_t)amount;
        return code;
    case SCHEMA_SIZE:
        code = parse_size(node->text, &amount, d);
        *v = (int64_t)amount;
        return code;
    default:
        return parse_int(node->text, v, d);
    }
}

static void walk_out_of_range(struct walk *w, const struct schema_type *type,
                              const struct node *node)
{
    if (type->range)
        walk_error(w, node->loc, NULL, "%s is out of range: %s", node->text, type->range);
    else
        walk_error(w, node->loc, NULL, "%s is out of range: %" PRId64 " to %" PRId64, node->text,
                   type->min, type->max);
}

/* A word in the place of a duration, such as "off". */
static const struct schema_choice *walk_find_word(const struct schema_type *type,
                                                  const struct node *node)
{
    const struct schema_choice *c = node->kind == NODE_SCALAR ? type->choices : NULL;
    while (c && c->name && strcmp(c->name, node->text) != 0)
        c++;
    return c && c->name ? c : NULL;
}

void walk_read_number(struct walk *w, const struct schema_type *type, const struct node *node,
                      struct job_num *out)
{
    int64_t v = 0;
    struct diag d;
    bool amount = type->kind == SCHEMA_DURATION || type->kind == SCHEMA_SIZE;
    const struct schema_choice *word = walk_find_word(type, node);
    if (word) {
        *out = (struct job_num){word->value, node->loc};
    } else if (node->kind != NODE_SCALAR || node_is_null(node)) {
        walk_wrong_kind(w, type, node);
    } else if (!node->plain && !node->written && !amount) {
        walk_error(w, node->loc, "remove the quotes", "expected %s, found the string %s",
                   type->expects, QUOTED(node->text));
    } else if (walk_parse_number(type, node, &v, &d) < 0) {
        walk_add_error(w, node->loc, &d);
    } else if (type->kind != SCHEMA_FLAG && (v < type->min || v > type->max)) {
        walk_out_of_range(w, type, node);
    } else {
        *out = (struct job_num){v, node->loc};
    }
}

/* "block, cyclic" */
static const char *walk_list_choices(const struct schema_choice *choices, char *out, size_t size)
{
    size_t used = 0;
    out[0] = '\0';
    for (; choices->name && used < size; choices++) {
        int n = snprintf(out + used, size - used, "%s%s", used ? ", " : "", choices->name);
        used += n > 0 ? (size_t)n : 0;
    }
    return out;
}

static void walk_wrong_choice(struct walk *w, const struct schema_type *type,
                              const struct node *node)
{
    const char *names[CHOICES_MAX];
    size_t n = 0;
    for (const struct schema_choice *c = type->choices; c->name && n < CHOICES_MAX; c++)
        names[n++] = c->name;
    const char *meant = suggest(node->text, names, n);
    char known[128], hint[160];
    walk_list_choices(type->choices, known, sizeof known);
    const char *help = meant || type->example ? hint : NULL;
    if (meant)
        snprintf(hint, sizeof hint, "did you mean \"%s\"?", meant);
    else if (type->example)
        snprintf(hint, sizeof hint, "as in \"%s\"", type->example);
    for (const struct schema_renamed *r = type->renamed; r && r->name; r++)
        help = strcmp(r->name, node->text) == 0 ? r->hint : help;
    walk_error(w, node->loc, help, n > 1 ? "%s is not one of %s" : "%s is not %s",
               QUOTED(node->text), known);
}

void walk_read_choice(struct walk *w, const struct schema_type *type, const struct node *node,
                      struct job_num *out)
{
    char known[128], found[QUOTE_SIZE + 16];
    if (node->kind != NODE_SCALAR || node_is_null(node)) {
        walk_list_choices(type->choices, known, sizeof known);
        walk_error(w, node->loc, NULL, "expected one of %s, found %s", known,
                   node_name(node, found, sizeof found));
        return;
    }
    const struct schema_choice *choice = type->choices;
    while (choice->name && strcmp(choice->name, node->text) != 0)
        choice++;
    if (!choice->name) {
        walk_wrong_choice(w, type, node);
        return;
    }
    *out = (struct job_num){choice->value, node->loc};
}

/* ---- rank sets ---- */

/* Adds the ranks of one scalar; each part has its own place if the file contains the text
 * literally. */
static bool walk_add_ranks(struct walk *w, const struct schema_type *type, const struct node *node,
                           struct job_ranks *out, uint32_t capacity)
{
    struct parse_ranks set;
    struct diag d;
    if (node->refused || walk_refuse_secret(w, type, node))
        return false;
    if (node->kind != NODE_SCALAR || node_is_null(node)) {
        walk_wrong_kind(w, type, node);
        return false;
    }
    if (parse_ranks(node->text, w->arena, &set, &d) < 0) {
        walk_add_error(w, node->loc, &d);
        return false;
    }
    if (set.all && capacity) {
        walk_error(w, node->loc, NULL, "\"all\" cannot be an item of a list");
        return false;
    }
    if (!capacity)
        out->parts = arena_calloc(w->arena, set.n, sizeof *out->parts);
    for (uint32_t i = 0; i < set.n; i++) {
        struct diag_loc loc = node->loc;
        if (node->text_column) {
            loc.column = node->text_column + set.ranges[i].at;
            loc.width = set.ranges[i].len;
        }
        out->parts[out->n++] = (struct job_rank_part){set.ranges[i], loc};
    }
    out->all = set.all;
    return true;
}

static uint32_t walk_count_commas(const struct node *node)
{
    uint32_t n = 1;
    for (const char *s = node->kind == NODE_SCALAR ? node->text : ""; *s; s++)
        n += *s == ',';
    return n;
}

void walk_read_ranks(struct walk *w, const struct schema_type *type, const struct node *node,
                     struct job_ranks *out)
{
    struct job_ranks ranks = {.loc = node->loc};
    bool good = true;
    if (node->kind == NODE_LIST) {
        uint32_t capacity = 0;
        for (uint32_t i = 0; i < node->n; i++)
            capacity += walk_count_commas(node->items[i]);
        ranks.parts = arena_calloc(w->arena, capacity, sizeof *ranks.parts);
        for (uint32_t i = 0; i < node->n; i++) {
            size_t mark = walk_enter_item(w, i);
            good = walk_add_ranks(w, type, node->items[i], &ranks, capacity) && good;
            walk_leave(w, mark);
        }
        if (!node->n) {
            walk_error(w, node->loc, NULL, "the list is empty; expected %s", type->expects);
            good = false;
        }
    } else {
        good = walk_add_ranks(w, type, node, &ranks, 0);
    }
    if (good)
        *out = ranks;
    else
        out->refused = true;
}
