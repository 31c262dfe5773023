/* SPDX-License-Identifier: Apache-2.0
 *
 * The schema-driven reader: the values without parts, then pairs, named maps, lists and maps.
 * Every message begins with the path of the value.
 */
#include "spec/walk.h"

#include "base/parse.h"
#include "base/quote.h"
#include "base/suggest.h"
#include "spec/path.h"
#include "spec/secrets.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define QUOTED(s) quote((s), (char[QUOTE_SIZE]){0})
enum { KEYS_MAX = 32, CHOICES_MAX = 32 };

/* One pass over the tree; it keeps the path of the current value. */
struct walk {
    struct arena *arena;
    struct diag_list *diags;
    const struct node *secrets; /* the names of env.secrets; NULL: none */
    const struct parse_rank_names *names;
    char path[192];
};

/* ---- errors ---- */

/* Adds the path before the text of an error, sets its place, and stores it. */
static void walk_add_error(struct walk *w, struct diag_loc loc, struct diag *d)
{
    if (w->path[0])
        diag_wrap(d, "%s", w->path);
    d->code = COLLRUN_ERR_INVALID;
    d->loc = loc;
    diag_list_add(w->diags, d);
}

static void walk_error(struct walk *w, struct diag_loc loc, const char *hint, const char *format,
                       ...)
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

/* "expected a list, found the string ..." */
static void walk_wrong_kind(struct walk *w, const struct schema_type *type, const struct node *node)
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

/* True: the value of a secret, in a place where it would be shown. It has been reported. */
static bool walk_refuse_secret(struct walk *w, const struct schema_type *type,
                               const struct node *node)
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

/* Each returns the length for walk_leave. */
static size_t walk_enter_key(struct walk *w, const char *key)
{
    size_t len = strlen(w->path);
    snprintf(w->path + len, sizeof w->path - len, "%s%s", len ? "." : "", key);
    return len;
}

static size_t walk_enter_item(struct walk *w, uint32_t index)
{
    size_t len = strlen(w->path);
    snprintf(w->path + len, sizeof w->path - len, "[%u]", index);
    return len;
}

static void walk_leave(struct walk *w, size_t len)
{
    w->path[len] = '\0';
}

/* ---- scalars ---- */

/* *out is unchanged if the value is wrong; a rank set that is wrong is marked as refused. */
static void walk_read_text(struct walk *w, const struct schema_type *type, const struct node *node,
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

static void walk_read_number(struct walk *w, const struct schema_type *type,
                             const struct node *node, struct job_num *out)
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
        if (type->choices && !d.hint[0]) /* it may be a word, too */
            diag_hint(&d, "expected %s", type->expects);
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

static void walk_read_choice(struct walk *w, const struct schema_type *type,
                             const struct node *node, struct job_num *out)
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

/* True if a rank set cannot be read because what it names is wrong, which was reported. */
static bool walk_lacks_names(const struct walk *w, const char *text)
{
    return w->names->unknown || (!w->names->nranks && strstr(text, "last"));
}

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
    if (parse_ranks(node->text, w->names, w->arena, &set, &d) < 0) {
        if (!walk_lacks_names(w, node->text))
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

static void walk_read_ranks(struct walk *w, const struct schema_type *type, const struct node *node,
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

static void walk_read_value(struct walk *w, const struct schema_type *type, const struct node *node,
                            void *out);
static void walk_read_map(struct walk *w, const struct schema_type *type, const struct node *node,
                          struct diag_loc loc, void *out);

/* ---- free names ---- */

static bool walk_too_many(struct walk *w, const struct node *node)
{
    if (node->n <= SCHEMA_ITEMS_MAX)
        return false;
    walk_error(w, node->loc, NULL, "%u entries, but at most %d are allowed", node->n,
               SCHEMA_ITEMS_MAX);
    return true;
}

static bool walk_check_key(struct walk *w, const struct schema_type *type,
                           const struct node_entry *entry)
{
    struct diag d;
    if (!type->check_key || type->check_key(entry->key, &d) == 0)
        return true;
    walk_add_error(w, entry->loc, &d);
    return false;
}

/* The value of one pair. False: it is wrong. */
static bool walk_read_pair(struct walk *w, const struct schema_type *type, const struct node *node,
                           struct job_pair *out)
{
    const struct schema_type scalar = {.kind = SCHEMA_STR,
                                       .expects = "a string or a number",
                                       .size = sizeof(struct job_str),
                                       .check = type->check,
                                       .may_be_secret = true};
    const struct schema_type list = {
        .kind = SCHEMA_LIST, .item = &scalar, .loc_at = offsetof(struct job_strs, loc)};
    struct schema_type value = scalar;
    struct job_str text = {0};
    if (type->lists && node->kind == NODE_LIST) {
        walk_read_value(w, &list, node, &out->list);
        out->is_list = true;
        out->value = "";
        out->loc = node->loc;
        for (uint32_t i = 0; i < out->list.n; i++)
            if (!out->list.items[i].v)
                return false;
        return true;
    }
    if (type->lists)
        value.expects = "a string, a number or a list of them";
    walk_read_value(w, &value, node, &text);
    out->value = text.v;
    out->loc = text.loc;
    out->quoted = text.quoted;
    return text.v != NULL;
}

static void walk_read_pairs(struct walk *w, const struct schema_type *type, const struct node *node,
                            struct job_pairs *out)
{
    if (node->kind != NODE_MAP) {
        walk_wrong_kind(w, type, node);
        return;
    }
    if (walk_too_many(w, node))
        return;
    out->items = arena_calloc(w->arena, node->n, sizeof *out->items);
    out->loc = node->loc;
    for (uint32_t i = 0; i < node->n; i++) {
        const struct node_entry *entry = &node->entries[i];
        struct job_pair pair = {.key = entry->key, .key_loc = entry->loc};
        size_t mark = walk_enter_key(w, entry->key);
        bool good_key = walk_check_key(w, type, entry);
        bool good_value = walk_read_pair(w, type, entry->value, &pair);
        walk_leave(w, mark);
        if (good_key && good_value)
            out->items[out->n++] = pair;
    }
}

/* The first members of every item of SCHEMA_NAMED. */
struct named {
    const char *name;
    struct diag_loc loc;
};

static void walk_set_list(void *out, const void *items, uint32_t n)
{
    memcpy(out, &items, sizeof items);
    memcpy((char *)out + sizeof items, &n, sizeof n);
}

static void walk_read_named(struct walk *w, const struct schema_type *type, const struct node *node,
                            void *out)
{
    if (node->kind != NODE_MAP) {
        walk_wrong_kind(w, type, node);
        return;
    }
    if (!node->n && type->not_empty)
        walk_error(w, node->loc, NULL, "the mapping is empty; expected %s", type->expects);
    if (walk_too_many(w, node))
        return;
    char *items = arena_calloc(w->arena, node->n, type->item->size);
    uint32_t n = 0;
    for (uint32_t i = 0; i < node->n; i++) {
        const struct node_entry *entry = &node->entries[i];
        if (!walk_check_key(w, type, entry))
            continue;
        char *item = items + n++ * type->item->size;
        struct named named = {entry->key, entry->loc};
        memcpy(item, &named, sizeof named);
        size_t mark = walk_enter_key(w, entry->key);
        bool nothing = node_is_null(entry->value); /* `world:` alone: all its defaults */
        if (type->item->kind == SCHEMA_MAP)
            walk_read_map(w, type->item, nothing ? NULL : entry->value, entry->loc, item);
        else
            walk_read_value(w, type->item, entry->value, item + type->item->at);
        walk_leave(w, mark);
    }
    walk_set_list(out, items, n);
}

/* ---- lists and maps ---- */

static void walk_set_loc(const struct schema_type *type, void *out, struct diag_loc loc)
{
    if (type->loc_at != NO_LOC)
        memcpy((char *)out + type->loc_at, &loc, sizeof loc);
}

static void walk_read_list(struct walk *w, const struct schema_type *type, const struct node *node,
                           void *out)
{
    if (node->kind != NODE_LIST) {
        walk_wrong_kind(w, type, node);
        return;
    }
    if (!node->n && type->not_empty)
        walk_error(w, node->loc, NULL, "the list is empty; expected %s", type->expects);
    if (walk_too_many(w, node))
        return;
    char *items = arena_calloc(w->arena, node->n, type->item->size);
    for (uint32_t i = 0; i < node->n; i++) {
        struct schema_type item = *type->item;
        size_t mark = walk_enter_item(w, i);
        if (type->program && i == 0)
            item.relative = PATH_WITH_SLASH;
        walk_read_value(w, &item, node->items[i], items + i * item.size);
        walk_leave(w, mark);
    }
    walk_set_list(out, items, node->n);
    walk_set_loc(type, out, node->loc);
}

static const struct schema_key *walk_find_key(const struct schema_type *type, const char *name)
{
    for (const struct schema_key *key = type->keys; key->name; key++)
        if (strcmp(key->name, name) == 0)
            return key;
    return NULL;
}

/* The key that is most similar to an unknown one. */
static const char *walk_meant_key(const struct schema_type *type, const char *written)
{
    const char *names[KEYS_MAX];
    size_t n = 0;
    for (const struct schema_key *key = type->keys; key->name && n < KEYS_MAX; key++)
        names[n++] = key->name;
    return suggest(written, names, n);
}

static void walk_unknown_key(struct walk *w, const struct schema_type *type,
                             const struct node_entry *entry)
{
    char hint[384];
    const char *meant = walk_meant_key(type, entry->key);
    int used = meant ? snprintf(hint, sizeof hint, "did you mean \"%s\"? ", meant) : 0;
    used += snprintf(hint + used, sizeof hint - (size_t)used, "known keys: ");
    for (const struct schema_key *key = type->keys; key->name && used < (int)sizeof hint; key++)
        used += snprintf(hint + used, sizeof hint - (size_t)used, "%s%s",
                         key == type->keys ? "" : ", ", key->name);
    walk_error(w, entry->loc, hint, "unknown key %s", QUOTED(entry->key));
}

static void walk_read_default(struct walk *w, const struct schema_key *key, void *out)
{
    const struct schema_type *type = key->type;
    const struct node *node = key->def ? node_scalar(w->arena, key->def) : NULL;
    struct diag_list ignored = {0};
    struct walk quiet = {.arena = w->arena, .diags = &ignored, .names = w->names};
    if (node)
        walk_read_value(&quiet, type, node, out);
    else if (type->kind == SCHEMA_MAP)
        walk_read_map(&quiet, type, NULL, (struct diag_loc){0}, out);
    else if (type->kind == SCHEMA_EITHER && type->map)
        walk_read_map(&quiet, type->map, NULL, (struct diag_loc){0}, out);
    diag_list_fini(&ignored);
}

/* True if an unknown key of the map is a misspelling of this one. */
static bool walk_is_misspelled(const struct schema_type *type, const struct node *node,
                               const char *name)
{
    for (uint32_t i = 0; node && i < node->n; i++) {
        const char *written = node->entries[i].key;
        const char *meant = walk_find_key(type, written) ? NULL : walk_meant_key(type, written);
        if (meant && strcmp(meant, name) == 0)
            return true;
    }
    return false;
}

/* True if the map has the key, or a misspelling of it, so that it is not missing. */
static bool walk_has_key(const struct schema_type *type, const struct node *node, const char *name)
{
    return name && ((node && node_get(node, name)) || walk_is_misspelled(type, node, name));
}

static void walk_check_missing(struct walk *w, const struct schema_type *type,
                               const struct node *node, struct diag_loc loc)
{
    for (const struct schema_key *key = type->keys; key->name; key++) {
        if (!key->required || walk_has_key(type, node, key->name) ||
            walk_has_key(type, node, key->instead))
            continue;
        char hint[64];
        if (key->example)
            snprintf(hint, sizeof hint, "add \"%s\"", key->example);
        walk_error(w, loc, key->example ? hint : NULL, "the key \"%s\"%s%s%s is missing", key->name,
                   key->instead ? " or \"" : "", key->instead ? key->instead : "",
                   key->instead ? "\"" : "");
    }
}

/* `node` NULL: not in the file, all defaults. `loc`: the place of a missing key. */
static void walk_read_map(struct walk *w, const struct schema_type *type, const struct node *node,
                          struct diag_loc loc, void *out)
{
    if (node && node->kind != NODE_MAP) {
        walk_wrong_kind(w, type, node);
        node = NULL;
    } else if (node) {
        walk_set_loc(type, out, node->loc);
        walk_check_missing(w, type, node, loc);
    }
    for (const struct schema_key *key = type->keys; key->name; key++)
        walk_read_default(w, key, (char *)out + key->at);
    for (uint32_t i = 0; node && i < node->n; i++) {
        const struct node_entry *entry = &node->entries[i];
        const struct schema_key *key = walk_find_key(type, entry->key);
        if (!key && strncmp(entry->key, "x-", 2) == 0)
            continue;
        if (!key) {
            walk_unknown_key(w, type, entry);
            continue;
        }
        size_t mark = walk_enter_key(w, entry->key);
        if (key->type->kind == SCHEMA_MAP)
            walk_read_map(w, key->type, entry->value, entry->loc, (char *)out + key->at);
        else
            walk_read_value(w, key->type, entry->value, (char *)out + key->at);
        walk_leave(w, mark);
    }
}

static void walk_read_either(struct walk *w, const struct schema_type *type,
                             const struct node *node, void *out)
{
    const struct schema_type *arm = node->kind == NODE_MAP    ? type->map
                                    : node->kind == NODE_LIST ? type->list
                                                              : type->scalar;
    if (!arm || node_is_null(node))
        walk_wrong_kind(w, type, node);
    else
        walk_read_value(w, arm, node, (char *)out + arm->at);
}

static void walk_read_value(struct walk *w, const struct schema_type *type, const struct node *node,
                            void *out)
{
    bool marks = type->kind == SCHEMA_RANKS || type->kind == SCHEMA_MAP;
    if (!marks && (node->refused || walk_refuse_secret(w, type, node)))
        return;
    switch (type->kind) {
    case SCHEMA_STR:
        walk_read_text(w, type, node, out);
        break;
    case SCHEMA_INT:
    case SCHEMA_FLAG:
    case SCHEMA_DURATION:
    case SCHEMA_SIZE:
        walk_read_number(w, type, node, out);
        break;
    case SCHEMA_CHOICE:
        walk_read_choice(w, type, node, out);
        break;
    case SCHEMA_RANKS:
        walk_read_ranks(w, type, node, out);
        break;
    case SCHEMA_PAIRS:
        walk_read_pairs(w, type, node, out);
        break;
    case SCHEMA_MAP:
        walk_read_map(w, type, node, node->loc, out);
        break;
    case SCHEMA_LIST:
        walk_read_list(w, type, node, out);
        break;
    case SCHEMA_NAMED:
        walk_read_named(w, type, node, out);
        break;
    case SCHEMA_EITHER:
        walk_read_either(w, type, node, out);
        break;
    case SCHEMA_LAYER:
        break;
    }
}

void walk_read(const struct schema_type *type, const struct node *root, void *out,
               const struct parse_rank_names *names, struct arena *arena, struct diag_list *diags)
{
    const struct node *env = node_get(root, "env");
    struct walk w = {.arena = arena,
                     .diags = diags,
                     .secrets = env ? node_get(env, "secrets") : NULL,
                     .names = names};
    walk_read_value(&w, type, root, out);
}

/* ---- the keys of a part ---- */

static void walk_check_part(struct walk *w, const struct schema_type *type, const struct node *node)
{
    if (type->kind == SCHEMA_EITHER)
        type = node->kind == NODE_MAP ? type->map : node->kind == NODE_LIST ? type->list : NULL;
    for (uint32_t i = 0; type && node->kind != NODE_SCALAR && i < node->n; i++) {
        const struct node_entry *entry = node->kind == NODE_MAP ? &node->entries[i] : NULL;
        const struct schema_type *part = type->item;
        if (entry && type->kind == SCHEMA_MAP && strncmp(entry->key, "x-", 2) != 0) {
            const struct schema_key *key = walk_find_key(type, entry->key);
            part = key ? key->type : NULL;
            if (!key)
                walk_unknown_key(w, type, entry);
        }
        const size_t mark = entry ? walk_enter_key(w, entry->key) : walk_enter_item(w, i);
        if (part)
            walk_check_part(w, part, entry ? entry->value : node->items[i]);
        walk_leave(w, mark);
    }
}

void walk_check_keys(const struct schema_type *type, const struct node *part, const char *path,
                     struct arena *arena, struct diag_list *diags)
{
    struct walk w = {.arena = arena, .diags = diags};
    snprintf(w.path, sizeof w.path, "%s", path);
    walk_check_part(&w, type, part);
}
