/* SPDX-License-Identifier: Apache-2.0
 *
 * The schema-driven reader. It keeps the path of where it is ("workloads[0].params"), which every
 * message begins with.
 */
#include "spec/walk.h"

#include "base/parse.h"
#include "base/quote.h"
#include "base/suggest.h"
#include "spec/job.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define QUOTED(s) quote((s), (char[QUOTE_SIZE]){0})
enum { KEYS_MAX = 32 };

struct walk {
    struct arena *arena;
    struct diag_list *diags;
    char path[192];
};

static void read_value(struct walk *w, const struct schema_type *type, const struct node *node,
                       void *out);
static void read_map(struct walk *w, const struct schema_type *type, const struct node *node,
                     struct diag_loc loc, void *out);

/* ---- errors ---- */

/* Puts the path before an error's words, gives it a place, keeps it. */
static void note(struct walk *w, struct diag_loc loc, struct diag *d)
{
    if (w->path[0])
        diag_wrap(d, "%s", w->path);
    d->code = COLLRUN_ERR_INVALID;
    d->loc = loc;
    diag_list_add(w->diags, d);
}

static void wrong(struct walk *w, struct diag_loc loc, const char *hint, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static void wrong(struct walk *w, struct diag_loc loc, const char *hint, const char *format, ...)
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
    note(w, loc, &d);
}

static void wrong_kind(struct walk *w, const struct schema_type *type, const struct node *node)
{
    char found[QUOTE_SIZE + 16];
    if (node_is_null(node))
        wrong(w, node->loc, NULL, "has no value; expected %s", type->expects);
    else
        wrong(w, node->loc, NULL, "expected %s, found %s", type->expects,
              node_name(node, found, sizeof found));
}

/* ---- the path ---- */

static size_t enter_key(struct walk *w, const char *key)
{
    size_t len = strlen(w->path);
    snprintf(w->path + len, sizeof w->path - len, "%s%s", len ? "." : "", key);
    return len;
}

static size_t enter_item(struct walk *w, uint32_t index)
{
    size_t len = strlen(w->path);
    snprintf(w->path + len, sizeof w->path - len, "[%u]", index);
    return len;
}

static void leave(struct walk *w, size_t len)
{
    w->path[len] = '\0';
}

/* ---- scalars ---- */

static void read_text(struct walk *w, const struct schema_type *type, const struct node *node,
                      struct job_str *out)
{
    struct diag d;
    if (node->kind != NODE_SCALAR || node_is_null(node))
        wrong_kind(w, type, node);
    else if (type->check && type->check(node->text, &d) < 0)
        note(w, node->loc, &d);
    else
        *out = (struct job_str){node->text, node->loc};
}

static int parse_number(const struct schema_type *type, const struct node *node, int64_t *v,
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

static void out_of_range(struct walk *w, const struct schema_type *type, const struct node *node)
{
    if (type->range)
        wrong(w, node->loc, NULL, "%s: %s", node->text, type->range);
    else
        wrong(w, node->loc, NULL, "%s is out of range: %" PRId64 " to %" PRId64, node->text,
              type->min, type->max);
}

static void read_number(struct walk *w, const struct schema_type *type, const struct node *node,
                        struct job_num *out)
{
    int64_t v = 0;
    struct diag d;
    bool amount = type->kind == SCHEMA_DURATION || type->kind == SCHEMA_SIZE;
    if (node->kind != NODE_SCALAR || node_is_null(node)) {
        wrong_kind(w, type, node);
    } else if (!node->plain && !node->filled && !amount) {
        wrong(w, node->loc, "in quotes it is a text; take them away",
              "expected %s, found the text %s", type->expects, QUOTED(node->text));
    } else if (parse_number(type, node, &v, &d) < 0) {
        note(w, node->loc, &d);
    } else if (type->kind != SCHEMA_FLAG && (v < type->min || v > type->max)) {
        out_of_range(w, type, node);
    } else {
        *out = (struct job_num){v, node->loc};
    }
}

/* "block, cyclic" or, with `now`, only what this build does. */
static const char *list_choices(const struct schema_choice *choices, bool now, char *out,
                                size_t size)
{
    size_t used = 0;
    out[0] = '\0';
    for (; choices->name && used < size; choices++) {
        if (now && choices->when != NOW)
            continue;
        int n = snprintf(out + used, size - used, "%s%s", used ? ", " : "", choices->name);
        used += n > 0 ? (size_t)n : 0;
    }
    return out;
}

static void wrong_choice(struct walk *w, const struct schema_type *type, const struct node *node)
{
    const char *names[KEYS_MAX];
    size_t n = 0;
    for (const struct schema_choice *c = type->choices; c->name && n < KEYS_MAX; c++)
        names[n++] = c->name;
    const char *meant = suggest(node->text, names, n);
    char known[128], hint[160];
    list_choices(type->choices, false, known, sizeof known);
    if (meant)
        snprintf(hint, sizeof hint, "did you mean \"%s\"?", meant);
    wrong(w, node->loc, meant ? hint : NULL, n > 1 ? "%s is none of %s" : "%s is not %s",
          QUOTED(node->text), known);
}

static void read_choice(struct walk *w, const struct schema_type *type, const struct node *node,
                        struct job_num *out)
{
    char known[128], hint[160], found[QUOTE_SIZE + 16];
    if (node->kind != NODE_SCALAR || node_is_null(node)) {
        list_choices(type->choices, false, known, sizeof known);
        wrong(w, node->loc, NULL, "expected one of %s, found %s", known,
              node_name(node, found, sizeof found));
        return;
    }
    const struct schema_choice *choice = type->choices;
    while (choice->name && strcmp(choice->name, node->text) != 0)
        choice++;
    if (!choice->name) {
        wrong_choice(w, type, node);
        return;
    }
    if (choice->when != NOW) {
        list_choices(type->choices, true, known, sizeof known);
        snprintf(hint, sizeof hint, "supported: %s", known);
        wrong(w, node->loc, known[0] ? hint : NULL, "%s is not supported by this build",
              QUOTED(node->text));
    }
    *out = (struct job_num){choice->value, node->loc};
}

/* ---- rank sets ---- */

/* Adds what one scalar says; its parts are pointed at one by one if the text stands in the file as
 * it is. */
static bool add_ranks(struct walk *w, const struct schema_type *type, const struct node *node,
                      struct job_ranks *out, uint32_t capacity)
{
    struct parse_ranks set;
    struct diag d;
    if (node->kind != NODE_SCALAR || node_is_null(node)) {
        wrong_kind(w, type, node);
        return false;
    }
    if (parse_ranks(node->text, w->arena, &set, &d) < 0) {
        note(w, node->loc, &d);
        return false;
    }
    if (set.all && capacity) {
        wrong(w, node->loc, NULL, "\"all\" cannot be one of a list");
        return false;
    }
    if (!capacity)
        out->parts = arena_calloc(w->arena, set.n, sizeof *out->parts);
    for (uint32_t i = 0; i < set.n && out->parts; i++) {
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

static uint32_t count_commas(const struct node *node)
{
    uint32_t n = 1;
    for (const char *s = node->kind == NODE_SCALAR ? node->text : ""; *s; s++)
        n += *s == ',';
    return n;
}

static void read_ranks(struct walk *w, const struct schema_type *type, const struct node *node,
                       struct job_ranks *out)
{
    struct job_ranks ranks = {.loc = node->loc};
    bool good = true;
    if (node->kind == NODE_LIST) {
        uint32_t capacity = 0;
        for (uint32_t i = 0; i < node->n; i++)
            capacity += count_commas(node->items[i]);
        ranks.parts = arena_calloc(w->arena, capacity, sizeof *ranks.parts);
        for (uint32_t i = 0; i < node->n; i++) {
            size_t mark = enter_item(w, i);
            good = add_ranks(w, type, node->items[i], &ranks, capacity) && good;
            leave(w, mark);
        }
        if (!node->n) {
            wrong(w, node->loc, NULL, "an empty list; expected %s", type->expects);
            good = false;
        }
    } else {
        good = add_ranks(w, type, node, &ranks, 0);
    }
    if (good)
        *out = ranks;
}

/* ---- free names ---- */

static bool too_many(struct walk *w, const struct node *node)
{
    if (node->n <= SCHEMA_ITEMS_MAX)
        return false;
    wrong(w, node->loc, NULL, "%u entries; at most %d", node->n, SCHEMA_ITEMS_MAX);
    return true;
}

static bool check_key(struct walk *w, const struct schema_type *type,
                      const struct node_entry *entry)
{
    struct diag d;
    if (!type->check_key || type->check_key(entry->key, &d) == 0)
        return true;
    note(w, entry->loc, &d);
    return false;
}

static void read_pairs(struct walk *w, const struct schema_type *type, const struct node *node,
                       struct job_pairs *out)
{
    static const struct schema_type value = {.kind = SCHEMA_STR, .expects = "a text or a number"};
    if (node->kind != NODE_MAP) {
        wrong_kind(w, type, node);
        return;
    }
    if (too_many(w, node))
        return;
    out->items = arena_calloc(w->arena, node->n, sizeof *out->items);
    out->loc = node->loc;
    for (uint32_t i = 0; i < node->n && out->items; i++) {
        const struct node_entry *entry = &node->entries[i];
        struct schema_type item = value;
        struct job_str text = {0};
        item.check = type->check;
        size_t mark = enter_key(w, entry->key);
        bool good = check_key(w, type, entry);
        read_value(w, &item, entry->value, &text);
        leave(w, mark);
        if (good && text.v)
            out->items[out->n++] = (struct job_pair){entry->key, text.v, entry->loc, text.loc};
    }
}

/* What the items of SCHEMA_NAMED begin with. */
struct named {
    const char *name;
    struct diag_loc loc;
};

static void set_list(void *out, const void *items, uint32_t n)
{
    memcpy(out, &items, sizeof items);
    memcpy((char *)out + sizeof items, &n, sizeof n);
}

static void read_named(struct walk *w, const struct schema_type *type, const struct node *node,
                       void *out)
{
    if (node->kind != NODE_MAP) {
        wrong_kind(w, type, node);
        return;
    }
    if (too_many(w, node))
        return;
    char *items = arena_calloc(w->arena, node->n, type->item->size);
    uint32_t n = 0;
    for (uint32_t i = 0; i < node->n && items; i++) {
        const struct node_entry *entry = &node->entries[i];
        if (!check_key(w, type, entry))
            continue;
        char *item = items + n++ * type->item->size;
        struct named named = {entry->key, entry->loc};
        memcpy(item, &named, sizeof named);
        size_t mark = enter_key(w, entry->key);
        bool nothing = node_is_null(entry->value); /* `world:` alone: all its defaults */
        read_map(w, type->item, nothing ? NULL : entry->value, entry->loc, item);
        leave(w, mark);
    }
    set_list(out, items, items ? n : 0);
}

/* ---- lists and maps ---- */

static void set_loc(const struct schema_type *type, void *out, struct diag_loc loc)
{
    if (type->loc_at != NO_LOC)
        memcpy((char *)out + type->loc_at, &loc, sizeof loc);
}

static void read_list(struct walk *w, const struct schema_type *type, const struct node *node,
                      void *out)
{
    if (node->kind != NODE_LIST) {
        wrong_kind(w, type, node);
        return;
    }
    if (!node->n && type->not_empty)
        wrong(w, node->loc, NULL, "an empty list; expected %s", type->expects);
    if (too_many(w, node))
        return;
    char *items = arena_calloc(w->arena, node->n, type->item->size);
    for (uint32_t i = 0; i < node->n && items; i++) {
        size_t mark = enter_item(w, i);
        read_value(w, type->item, node->items[i], items + i * type->item->size);
        leave(w, mark);
    }
    set_list(out, items, items ? node->n : 0);
    set_loc(type, out, node->loc);
}

static const struct schema_key *find_key(const struct schema_type *type, const char *name)
{
    for (const struct schema_key *key = type->keys; key->name; key++)
        if (!strcmp(key->name, name))
            return key;
    return NULL;
}

/* Which key an unknown one was meant to be. */
static const char *meant_key(const struct schema_type *type, const char *written)
{
    const char *names[KEYS_MAX];
    size_t n = 0;
    for (const struct schema_key *key = type->keys; key->name && n < KEYS_MAX; key++)
        names[n++] = key->name;
    return suggest(written, names, n);
}

static void unknown_key(struct walk *w, const struct schema_type *type,
                        const struct node_entry *entry)
{
    char hint[384];
    const char *meant = meant_key(type, entry->key);
    int used = meant ? snprintf(hint, sizeof hint, "did you mean \"%s\"? ", meant) : 0;
    used += snprintf(hint + used, sizeof hint - (size_t)used, "known here: ");
    for (const struct schema_key *key = type->keys; key->name && used < (int)sizeof hint; key++)
        used += snprintf(hint + used, sizeof hint - (size_t)used, "%s%s",
                         key == type->keys ? "" : ", ", key->name);
    wrong(w, entry->loc, hint, "unknown key %s", QUOTED(entry->key));
}

/* A key that this build refuses. */
static void check_when(struct walk *w, const struct schema_key *key, const struct node_entry *entry)
{
    if (key->when == NOW)
        return;
    const struct node *value = entry->value;
    if (key->when == ONLY_DEFAULT && value->kind == NODE_SCALAR && !strcmp(value->text, key->def))
        return;
    char hint[64];
    if (key->when == ONLY_DEFAULT)
        snprintf(hint, sizeof hint, "only %s is, its default", key->def);
    wrong(w, key->when == ONLY_DEFAULT ? value->loc : entry->loc,
          key->when == ONLY_DEFAULT ? hint : NULL, "not supported by this build");
}

static void read_default(struct walk *w, const struct schema_key *key, void *out)
{
    const struct schema_type *type = key->type;
    const struct node *node = key->def ? node_scalar(w->arena, key->def) : NULL;
    struct diag_list ignored = {0}; /* a default that a later build does is no error */
    struct walk quiet = {.arena = w->arena, .diags = &ignored};
    if (node)
        read_value(&quiet, type, node, out);
    else if (type->kind == SCHEMA_MAP)
        read_map(&quiet, type, NULL, (struct diag_loc){0}, out);
    else if (type->kind == SCHEMA_EITHER && type->map)
        read_map(&quiet, type->map, NULL, (struct diag_loc){0}, out);
    diag_list_fini(&ignored);
}

/* Whether some unknown key of the map was meant to be this one: then its absence is not worth a
 * second error. */
static bool is_misspelt(const struct schema_type *type, const struct node *node, const char *name)
{
    for (uint32_t i = 0; node && i < node->n; i++) {
        const char *written = node->entries[i].key;
        const char *meant = find_key(type, written) ? NULL : meant_key(type, written);
        if (meant && !strcmp(meant, name))
            return true;
    }
    return false;
}

static void check_missing(struct walk *w, const struct schema_type *type, const struct node *node,
                          struct diag_loc loc)
{
    for (const struct schema_key *key = type->keys; key->name; key++) {
        if (!key->required || (node && node_get(node, key->name)) ||
            is_misspelt(type, node, key->name))
            continue;
        char hint[64];
        if (key->example)
            snprintf(hint, sizeof hint, "add \"%s\"", key->example);
        wrong(w, loc, key->example ? hint : NULL, "the key \"%s\" is missing", key->name);
    }
}

/* `node` NULL: nothing is written, all defaults. `loc` is where a missing key is reported. */
static void read_map(struct walk *w, const struct schema_type *type, const struct node *node,
                     struct diag_loc loc, void *out)
{
    if (node && node->kind != NODE_MAP) {
        wrong_kind(w, type, node);
        node = NULL;
    } else if (node) {
        set_loc(type, out, node->loc);
        check_missing(w, type, node, loc);
    }
    for (const struct schema_key *key = type->keys; key->name; key++)
        read_default(w, key, (char *)out + key->at);
    for (uint32_t i = 0; node && i < node->n; i++) {
        const struct node_entry *entry = &node->entries[i];
        const struct schema_key *key = find_key(type, entry->key);
        if (!key && !strncmp(entry->key, "x-", 2))
            continue;
        if (!key) {
            unknown_key(w, type, entry);
            continue;
        }
        size_t mark = enter_key(w, entry->key);
        check_when(w, key, entry);
        if (key->type->kind == SCHEMA_MAP)
            read_map(w, key->type, entry->value, entry->loc, (char *)out + key->at);
        else
            read_value(w, key->type, entry->value, (char *)out + key->at);
        leave(w, mark);
    }
}

static void read_either(struct walk *w, const struct schema_type *type, const struct node *node,
                        void *out)
{
    const struct schema_type *arm = node->kind == NODE_MAP    ? type->map
                                    : node->kind == NODE_LIST ? type->list
                                                              : type->scalar;
    if (!arm || node_is_null(node))
        wrong_kind(w, type, node);
    else
        read_value(w, arm, node, (char *)out + arm->at);
}

static void read_value(struct walk *w, const struct schema_type *type, const struct node *node,
                       void *out)
{
    switch (type->kind) {
    case SCHEMA_STR:
        read_text(w, type, node, out);
        break;
    case SCHEMA_INT:
    case SCHEMA_FLAG:
    case SCHEMA_DURATION:
    case SCHEMA_SIZE:
        read_number(w, type, node, out);
        break;
    case SCHEMA_CHOICE:
        read_choice(w, type, node, out);
        break;
    case SCHEMA_RANKS:
        read_ranks(w, type, node, out);
        break;
    case SCHEMA_PAIRS:
        read_pairs(w, type, node, out);
        break;
    case SCHEMA_MAP:
        read_map(w, type, node, node->loc, out);
        break;
    case SCHEMA_LIST:
        read_list(w, type, node, out);
        break;
    case SCHEMA_NAMED:
        read_named(w, type, node, out);
        break;
    case SCHEMA_EITHER:
        read_either(w, type, node, out);
        break;
    }
}

void walk_read(const struct schema_type *type, const struct node *root, void *out,
               struct arena *arena, struct diag_list *diags)
{
    struct walk w = {.arena = arena, .diags = diags};
    read_value(&w, type, root, out);
    if (arena_failed(arena)) {
        struct diag d;
        diag_set(&d, COLLRUN_ERR_NO_MEMORY, "out of memory");
        diag_list_add(diags, &d);
    }
}
