/* SPDX-License-Identifier: Apache-2.0
 *
 * --set. The YAML reader reads the value from the whole string with its path blanked out, so that
 * its columns are right. Nodes on the path are copied before they change: an alias elsewhere keeps
 * its value.
 */
#include "spec/set.h"

#include "base/quote.h"
#include "spec/yaml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct step {         /* one key or index of a path */
    const char *name; /* NULL: an index */
    uint32_t index;
    struct diag_loc loc;
};

enum { STEPS_MAX = YAML_DEPTH_MAX };

struct setter {
    const char *text, *file;
    struct arena *arena;
    struct diag_list *diags;
    struct step steps[STEPS_MAX];
    uint32_t nsteps;
    struct node *value;
};

static struct diag_loc set_loc(const struct setter *s, size_t at, size_t len)
{
    return (struct diag_loc){s->file, 1, (uint32_t)at + 1, len ? (uint32_t)len : 1};
}

static int set_add_error(struct setter *s, struct diag *d)
{
    diag_list_add(s->diags, d);
    return d->code;
}

static int set_bad_path(struct setter *s, size_t at, size_t len, const char *what)
{
    struct diag d;
    diag_at(&d, set_loc(s, at, len), "%s", what);
    diag_hint(&d, "as in --set groups.world.backend=gloo or --set workloads[0].params.iters=5");
    return set_add_error(s, &d);
}

/* One step of the path at `at`; returns where it ends, or a negative code. */
static int set_read_step(struct setter *s, size_t at, size_t end)
{
    const char *text = s->text + at;
    struct step *step = &s->steps[s->nsteps++];
    if (*text == '[') {
        size_t digits = strspn(text + 1, "0123456789");
        if (!digits || digits > 6 || text[1 + digits] != ']')
            return set_bad_path(s, at, strcspn(text, ".="), "an index is a number in brackets");
        *step = (struct step){.index = (uint32_t)strtoul(text + 1, NULL, 10),
                              .loc = set_loc(s, at, digits + 2)};
        return (int)(at + digits + 2);
    }
    size_t len = strcspn(text, ".[");
    if (len > end - at)
        len = end - at;
    if (!len)
        return set_bad_path(s, at, 1, "expected a key");
    step->name = arena_strndup(s->arena, text, len);
    step->loc = set_loc(s, at, len);
    return (int)(at + len);
}

static int set_read_path(struct setter *s, size_t end)
{
    for (size_t at = 0;;) {
        if (s->nsteps == STEPS_MAX)
            return set_bad_path(s, at, 1, "the path is too long");
        int next = set_read_step(s, at, end);
        if (next < 0)
            return next;
        at = (size_t)next;
        if (at == end)
            return 0;
        if (s->text[at] == '.')
            at++;
        else if (s->text[at] != '[')
            return set_bad_path(s, at, 1, "expected \".\" or \"[\"");
    }
}

/* Reads the value: the string as YAML, with its path blanked out. */
static int set_read_value(struct setter *s, size_t start)
{
    char *text = arena_strdup(s->arena, s->text);
    struct source *blank = NULL;
    memset(text, ' ', start);
    if (strspn(text, " \t") == strlen(text)) {
        s->value = node_scalar(s->arena, "");
        s->value->loc = set_loc(s, start, 1);
        return 0;
    }
    source_add(&blank, s->arena, s->file, text, strlen(text));
    return yaml_read(blank, s->file, s->arena, &s->value, s->diags);
}

/* ---- the change ---- */

static struct node *set_below(struct setter *s, const struct node *node, uint32_t depth);

static struct node *set_in_map(struct setter *s, const struct node *map, uint32_t depth)
{
    const struct step *step = &s->steps[depth];
    struct node *copy = arena_memdup(s->arena, map, sizeof *map);
    struct node_entry *entries = arena_calloc(s->arena, map->n + 1, sizeof *entries);
    if (map->n)
        memcpy(entries, map->entries, map->n * sizeof *entries);
    uint32_t i = 0;
    while (i < map->n && strcmp(entries[i].key, step->name) != 0)
        i++;
    struct node *child = set_below(s, i < map->n ? entries[i].value : NULL, depth + 1);
    if (!child)
        return NULL;
    entries[i] = (struct node_entry){step->name, step->loc, child};
    copy->entries = entries;
    copy->n = i == map->n ? map->n + 1 : map->n;
    return copy;
}

/* The item of a step: its index, or the item with that `name` or text. */
static uint32_t set_find_item(const struct node *list, const struct step *step)
{
    for (uint32_t i = 0; step->name && i < list->n; i++) {
        const struct node *item = list->items[i];
        const struct node *name = item->kind == NODE_MAP ? node_get(item, "name") : item;
        if (name && name->kind == NODE_SCALAR && strcmp(name->text, step->name) == 0)
            return i;
    }
    return step->name ? list->n : step->index;
}

static struct node *set_in_list(struct setter *s, const struct node *list, uint32_t depth)
{
    const struct step *step = &s->steps[depth];
    uint32_t i = set_find_item(list, step);
    if (i >= list->n) {
        struct diag d;
        if (step->name)
            diag_at(&d, step->loc, "the list has no item named %s",
                    quote(step->name, (char[QUOTE_SIZE]){0}));
        else
            diag_at(&d, step->loc, "there is no item [%u]: the list has %u item%s", step->index,
                    list->n, list->n == 1 ? "" : "s");
        diag_hint(&d, "the first item is [0]");
        if (list->loc.line)
            diag_second(&d, list->loc, "the list");
        set_add_error(s, &d);
        return NULL;
    }
    struct node *copy = node_copy(list, s->arena);
    struct node *child = set_below(s, list->items[i], depth + 1);
    if (!child)
        return NULL;
    copy->items[i] = child;
    return copy;
}

/* A copy of `node` (NULL: does not exist yet) in which the path from `depth` on leads to the value.
 */
static struct node *set_below(struct setter *s, const struct node *node, uint32_t depth)
{
    if (depth == s->nsteps)
        return s->value;
    const struct step *step = &s->steps[depth];
    struct node fresh = {.kind = NODE_MAP, .loc = step->loc, .weight = 1};
    if (!node || node_is_null(node))
        node = &fresh;
    if (node->kind == NODE_LIST)
        return set_in_list(s, node, depth);
    if (node->kind == NODE_MAP && step->name)
        return set_in_map(s, node, depth);
    struct diag d;
    char found[QUOTE_SIZE + 16];
    const char *wanted = step->name ? "a key" : "an item";
    diag_at(&d, step->loc, "%s cannot be set here: the value is %s", wanted,
            node_name(node, found, sizeof found));
    if (node != &fresh && node->loc.line)
        diag_second(&d, node->loc, "defined here");
    set_add_error(s, &d);
    return NULL;
}

/* `start`: where the value begins. */
static int set_finish(struct setter *s, struct node **root, size_t start)
{
    const int code = set_read_value(s, start);
    if (code < 0)
        return code;
    struct node *changed = set_below(s, *root, 0);
    if (!changed)
        return COLLRUN_ERR_INVALID;
    *root = changed;
    return 0;
}

static const struct node *set_find_vars(const struct node *root)
{
    return root->kind == NODE_MAP ? node_get(root, "vars") : NULL;
}

/* True for a variable that the job declares. */
static bool set_has_variable(const struct node *root, const char *name)
{
    const struct node *vars = set_find_vars(root);
    return vars && (vars->kind != NODE_MAP || node_get(vars, name));
}

static int set_unknown_variable(struct setter *s, const struct node *root, const char *name,
                                struct diag_loc loc)
{
    struct diag d;
    const char *meant = node_suggest(set_find_vars(root), name, s->arena);
    diag_at(&d, loc, "the job has no variable %s", quote(name, (char[QUOTE_SIZE]){0}));
    if (meant)
        diag_hint(&d, "did you mean \"%s\"?", meant);
    else
        diag_hint(&d, "`vars` of the job file declares variables: vars: {%.64s: null}", name);
    return set_add_error(s, &d);
}

int set_apply(struct node **root, const char *text, uint32_t number, struct source **sources,
              struct arena *arena, struct diag_list *diags)
{
    struct setter s = {.text = text, .arena = arena, .diags = diags};
    s.file = arena_printf(arena, "--set #%u", number);
    source_add(sources, arena, s.file, text, strlen(text));
    size_t end = strcspn(text, "=");
    if (!text[end])
        return set_bad_path(&s, 0, end, "expected PATH=VALUE");
    int code = set_read_path(&s, end);
    const char *first = code == 0 ? s.steps[0].name : NULL;
    if (first && (strcmp(first, "include") == 0 || strcmp(first, "profiles") == 0)) {
        struct diag d;
        diag_at(&d, s.steps[0].loc, "\"%s\" cannot be set: files and profiles are read before",
                first);
        return set_add_error(&s, &d);
    }
    const bool of_vars = first && strcmp(first, "vars") == 0 && s.nsteps > 1 && s.steps[1].name;
    if (of_vars && !set_has_variable(*root, s.steps[1].name))
        return set_unknown_variable(&s, *root, s.steps[1].name, s.steps[1].loc);
    return code < 0 ? code : set_finish(&s, root, end + 1);
}

int set_variable(struct node **root, const char *text, uint32_t number, struct source **sources,
                 struct arena *arena, struct diag_list *diags)
{
    struct setter s = {.text = text, .arena = arena, .diags = diags, .nsteps = 2};
    const size_t end = strcspn(text, "=");
    const char *name = arena_strndup(arena, text, end);
    s.file = arena_printf(arena, "--var #%u", number);
    source_add(sources, arena, s.file, text, strlen(text));
    if (!text[end] || !end) {
        struct diag d;
        diag_at(&d, set_loc(&s, 0, end), "expected NAME=VALUE");
        diag_hint(&d, "as in --var model=large");
        return set_add_error(&s, &d);
    }
    if (!set_has_variable(*root, name))
        return set_unknown_variable(&s, *root, name, set_loc(&s, 0, end));
    s.steps[0] = (struct step){.name = "vars", .loc = set_loc(&s, 0, end)};
    s.steps[1] = (struct step){.name = name, .loc = set_loc(&s, 0, end)};
    return set_finish(&s, root, end + 1);
}

int set_count(struct node **root, const char *text, struct source **sources, struct arena *arena,
              struct diag_list *diags)
{
    struct setter s = {.text = text, .file = "-n", .arena = arena, .diags = diags, .nsteps = 2};
    const struct diag_loc loc = set_loc(&s, 0, strlen(text));
    source_add(sources, arena, s.file, text, strlen(text));
    s.steps[0] = (struct step){.name = "processes", .loc = loc};
    s.steps[1] = (struct step){.name = "count", .loc = loc};
    return set_finish(&s, root, 0);
}
