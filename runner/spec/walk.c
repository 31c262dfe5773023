/* SPDX-License-Identifier: Apache-2.0
 *
 * The schema-driven reader: pairs, named maps, lists and maps. walk_value.h has the values without
 * parts.
 */
#include "spec/walk.h"

#include "base/quote.h"
#include "base/suggest.h"
#include "spec/walk_value.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define QUOTED(s) quote((s), (char[QUOTE_SIZE]){0})
enum { KEYS_MAX = 32 };

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
    struct walk quiet = {.arena = w->arena, .diags = &ignored};
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
    }
}

void walk_read(const struct schema_type *type, const struct node *root, void *out,
               struct arena *arena, struct diag_list *diags)
{
    const struct node *env = node_get(root, "env");
    struct walk w = {
        .arena = arena, .diags = diags, .secrets = env ? node_get(env, "secrets") : NULL};
    walk_read_value(&w, type, root, out);
}
