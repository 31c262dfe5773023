/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the included files, depth first, and merges all layers.
 * - A path of `include` is relative to the folder of the file in which it stands, links resolved;
 *   all other paths of an included file are relative to the job file.
 * - A file is recognized by its device and inode, so a cycle is found through links as well.
 * - Only regular files are read: a pipe could block for ever.
 */
#include "spec/layers.h"

#include "base/quote.h"
#include "spec/merge.h"
#include "spec/path.h"
#include "spec/schema.h"
#include "spec/set.h"
#include "spec/vars.h"
#include "spec/walk.h"
#include "spec/yaml.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define QUOTED(s) quote((s), (char[QUOTE_SIZE]){0})

/* A file whose included files are being read. */
struct layers_file {
    const char *name; /* as messages show it */
    struct stat st;
};

struct layers {
    struct source **sources;
    struct arena *arena;
    struct diag_list *diags;
    struct layers_file open[LAYERS_DEPTH_MAX + 1]; /* the job file is first */
    uint32_t depth;                                /* of the last one */
    uint32_t files;
    uint64_t weight; /* of all files */
};

static int layers_error(struct layers *l, const struct diag *d)
{
    diag_list_add(l->diags, d);
    return d->code;
}

static void layers_remove_key(struct node *map, const char *key)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < map->n; i++)
        if (strcmp(map->entries[i].key, key) != 0)
            map->entries[kept++] = map->entries[i];
    map->n = kept;
}

/* ---- the file of an item of `include` ---- */

static bool layers_same_file(const char *a, const char *b)
{
    struct stat one, other;
    return stat(a, &one) == 0 && stat(b, &other) == 0 && one.st_dev == other.st_dev &&
           one.st_ino == other.st_ino;
}

/* The path to open: beside the name of the including file if that leads to the same file, so that
 * messages show what the user has typed. */
static const char *layers_find(struct layers *l, const char *written)
{
    const char *file = l->open[l->depth].name, *slash = strrchr(file, '/');
    if (written[0] == '/')
        return written;
    const char *real = path_join(path_folder(file, l->arena), written, l->arena);
    const char *beside =
        slash ? arena_printf(l->arena, "%.*s/%s", (int)(slash - file), file, written) : written;
    return layers_same_file(real, beside) ? beside : real;
}

static int layers_cycle(struct layers *l, uint32_t first, const struct node *item)
{
    char chain[512];
    size_t used = 0;
    struct diag d;
    for (uint32_t i = first; i <= l->depth && used < sizeof chain; i++)
        used += (size_t)snprintf(chain + used, sizeof chain - used, "%s -> ", l->open[i].name);
    if (used < sizeof chain)
        snprintf(chain + used, sizeof chain - used, "%s", l->open[first].name);
    diag_at(&d, item->loc, "include: files include each other: %s", chain);
    return layers_error(l, &d);
}

/* Opens a level for the file of an item. */
static int layers_enter(struct layers *l, const struct node *item, const char *name)
{
    struct layers_file file = {.name = name};
    struct diag d;
    if (stat(name, &file.st) < 0) {
        diag_sys(&d, errno, "include: cannot read %s", QUOTED(name));
        d.loc = item->loc;
        return layers_error(l, &d);
    }
    if (!S_ISREG(file.st.st_mode)) {
        diag_at(&d, item->loc, "include: %s is %s", QUOTED(name),
                S_ISDIR(file.st.st_mode) ? "a directory, not a file" : "no regular file");
        return layers_error(l, &d);
    }
    for (uint32_t i = 0; i <= l->depth; i++)
        if (l->open[i].st.st_dev == file.st.st_dev && l->open[i].st.st_ino == file.st.st_ino)
            return layers_cycle(l, i, item);
    if (l->depth == LAYERS_DEPTH_MAX) {
        diag_at(&d, item->loc, "include: more than %d files deep", LAYERS_DEPTH_MAX);
        return layers_error(l, &d);
    }
    if (++l->files > LAYERS_FILES_MAX) {
        diag_at(&d, item->loc, "include: more than %d files, each time that one is included counts",
                LAYERS_FILES_MAX);
        return layers_error(l, &d);
    }
    l->open[++l->depth] = file;
    return 0;
}

/* ---- reading ---- */

static int layers_read_includes(struct layers *l, struct node **root);

static int layers_read_file(struct layers *l, const struct node *item, struct node **out)
{
    struct source *source;
    struct diag d;
    const char *name = l->open[l->depth].name;
    if (source_read(l->sources, l->arena, name, "included file", &source, &d) < 0) {
        diag_wrap(&d, "include: %s", QUOTED(name));
        d.loc = item->loc;
        return layers_error(l, &d);
    }
    source->included = item->loc;
    const uint32_t before = diag_list_count(l->diags);
    if (yaml_read(source, name, l->arena, out, l->diags) < 0 || diag_list_count(l->diags) > before)
        return COLLRUN_ERR_INVALID;
    if ((*out)->kind != NODE_MAP) {
        diag_at(&d, (*out)->loc, "an included file is a mapping of keys such as hosts and env");
        return layers_error(l, &d);
    }
    l->weight += (*out)->weight;
    if (l->weight <= YAML_NODES_MAX)
        return 0;
    diag_at(&d, item->loc, "include: more than %d values in all files", YAML_NODES_MAX);
    return layers_error(l, &d);
}

static int layers_include(struct layers *l, const struct node *item, struct node **out)
{
    struct diag d;
    const char *written = NULL;
    if (item->refused)
        return COLLRUN_ERR_INVALID;
    if (item->kind != NODE_SCALAR || node_is_null(item) || !*item->text) {
        char found[QUOTE_SIZE + 16];
        diag_at(&d, item->loc, "include: expected the path of a file, found %s",
                node_name(item, found, sizeof found));
        return layers_error(l, &d);
    }
    if (item->deferred) {
        diag_at(&d, item->loc, "include: a path cannot have variables of the job");
        diag_hint(&d, "they are known when all files have been read; ${env:NAME} is possible");
        return layers_error(l, &d);
    }
    if (path_expand_home(item->text, false, l->arena, &written, &d) < 0) {
        d.loc = item->loc;
        return layers_error(l, &d);
    }
    int code = layers_enter(l, item, layers_find(l, written));
    if (code < 0)
        return code;
    code = layers_read_file(l, item, out);
    if (code == 0)
        code = layers_read_includes(l, out);
    l->depth--;
    return code;
}

/* Merges the included files of a tree, in order, and the tree over them. All items are read, so
 * that all of their errors are reported. */
static int layers_read_includes(struct layers *l, struct node **root)
{
    const struct node *list = node_get(*root, "include");
    struct node *below = NULL, *file = NULL;
    struct diag d;
    int code = 0;
    if (!list)
        return 0;
    if (list->kind != NODE_LIST) {
        char found[QUOTE_SIZE + 16];
        diag_at(&d, list->loc, "include: expected a list of files, found %s",
                node_name(list, found, sizeof found));
        diag_hint(&d, "as in \"include: [site.yaml]\"");
        return layers_error(l, &d);
    }
    for (uint32_t i = 0; i < list->n && l->files <= LAYERS_FILES_MAX; i++) {
        const int rc = layers_include(l, list->items[i], &file);
        code = rc < 0 ? rc : code;
        if (rc == 0)
            below = below ? merge_over(below, file, l->arena) : file;
    }
    if (below && code == 0)
        *root = merge_over(below, *root, l->arena);
    else
        *root = node_copy(*root, l->arena);
    layers_remove_key(*root, "include");
    return code;
}

/* ---- profiles ---- */

static int layers_unknown_profile(struct layers *l, const struct node *profiles, const char *name,
                                  struct diag_loc loc)
{
    const uint32_t n = profiles && profiles->kind == NODE_MAP ? profiles->n : 0;
    char known[256] = "";
    struct diag d;
    for (uint32_t i = 0, used = 0; i < n && used < sizeof known; i++)
        used += (uint32_t)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "",
                                   profiles->entries[i].key);
    const char *meant = node_suggest(profiles, name, l->arena);
    diag_at(&d, loc, "the job has no profile %s", QUOTED(name));
    if (meant)
        diag_hint(&d, "did you mean \"%s\"? known here: %s", meant, known);
    else if (n)
        diag_hint(&d, "known here: %s", known);
    else
        diag_hint(&d, "`profiles` of the job file has them: profiles: {%.64s: {...}}", name);
    return layers_error(l, &d);
}

/* What a profile cannot have: it is merged when the files have been read. */
static int layers_check_profile(struct layers *l, const char *name, const struct node *profile)
{
    static const char *const refused[] = {"include", "profiles"};
    struct diag d;
    if (profile->kind != NODE_MAP && !node_is_null(profile)) {
        char found[QUOTE_SIZE + 16];
        diag_at(&d, profile->loc, "profiles.%s: expected a mapping of keys of the job, found %s",
                name, node_name(profile, found, sizeof found));
        return layers_error(l, &d);
    }
    for (uint32_t i = 0; profile->kind == NODE_MAP && i < profile->n; i++)
        for (size_t k = 0; k < sizeof refused / sizeof *refused; k++) {
            if (strcmp(profile->entries[i].key, refused[k]) != 0)
                continue;
            diag_at(&d, profile->entries[i].loc,
                    "profiles.%s: a profile cannot have the key \"%s\"", name, refused[k]);
            return layers_error(l, &d);
        }
    return 0;
}

static bool layers_is_selected(const char *name, const char *const *names, uint32_t n)
{
    uint32_t i = 0;
    while (i < n && strcmp(names[i], name) != 0)
        i++;
    return i < n;
}

/* The keys of a selected one are checked with those of the job. */
static int layers_check_profiles(struct layers *l, const struct node *profiles,
                                 const char *const *names, uint32_t n)
{
    struct diag d;
    int code = 0;
    if (!profiles)
        return 0;
    if (profiles->kind != NODE_MAP) {
        char found[QUOTE_SIZE + 16];
        diag_at(&d, profiles->loc, "profiles: expected a mapping of names, found %s",
                node_name(profiles, found, sizeof found));
        diag_hint(&d, "as in \"profiles: {debug: {processes: {count: 2}}}\"");
        return layers_error(l, &d);
    }
    for (uint32_t i = 0; i < profiles->n; i++) {
        const struct node_entry *entry = &profiles->entries[i];
        const int rc = layers_check_profile(l, entry->key, entry->value);
        if (rc == 0 && !layers_is_selected(entry->key, names, n))
            walk_check_keys(&schema_job, entry->value,
                            arena_printf(l->arena, "profiles.%s", entry->key), l->arena, l->diags);
        code = rc < 0 ? rc : code;
    }
    return code;
}

static int layers_add_profiles(struct layers *l, struct node **root, const char *const *names,
                               uint32_t n)
{
    const struct node *profiles = node_get(*root, "profiles");
    int code = layers_check_profiles(l, profiles, names, n);
    for (uint32_t i = 0; i < n && code == 0; i++) {
        const char *file = arena_printf(l->arena, "--profile #%u", i + 1);
        const uint32_t width = (uint32_t)strlen(names[i]);
        source_add(l->sources, l->arena, file, names[i], width);
        const struct node *profile = profiles ? node_get(profiles, names[i]) : NULL;
        if (!profile || profile->mark == NODE_REMOVED)
            code = layers_unknown_profile(l, profiles, names[i],
                                          (struct diag_loc){file, 1, 1, width ? width : 1});
        else if (profile->kind == NODE_MAP)
            *root = merge_over(*root, profile, l->arena);
    }
    return code;
}

/* ---- all layers ---- */

int layers_add(struct node **root, const struct job_request *request, struct job_matrix *matrix,
               struct source **sources, struct arena *arena, struct diag_list *diags)
{
    struct layers l = {.sources = sources, .arena = arena, .diags = diags};
    int code = 0;
    if ((*root)->kind == NODE_MAP) {
        l.open[0].name = request->text ? "./" : request->file;
        l.weight = (*root)->weight;
        if (stat(l.open[0].name, &l.open[0].st) < 0)
            l.open[0].st = (struct stat){0};
        code = layers_read_includes(&l, root);
        if (code == 0)
            code = layers_add_profiles(&l, root, request->profiles, request->nprofiles);
    }
    for (uint32_t i = 0; i < request->nvars && code == 0; i++)
        code = set_variable(root, request->vars[i], i + 1, sources, arena, diags);
    for (uint32_t i = 0; i < request->nsets && code == 0; i++)
        set_apply(root, request->sets[i], i + 1, sources, arena, diags);
    if (request->count && code == 0)
        set_count(root, request->count, sources, arena, diags);
    if (code < 0 || (*root)->kind != NODE_MAP)
        return code;
    *root = merge_finish(*root, &schema_job, arena);
    /* An option may have replaced the only value that refers to a variable. */
    const bool as_written = !request->nprofiles && !request->nsets && !request->count;
    code = vars_fill(root, as_written, request->combination, matrix, arena, diags);
    layers_remove_key(*root, "matrix");
    layers_remove_key(*root, "vars");
    layers_remove_key(*root, "profiles");
    return code;
}
