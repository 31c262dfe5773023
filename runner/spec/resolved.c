/* SPDX-License-Identifier: Apache-2.0
 *
 * Walks schema and tree together into plain JSON values, which a job file may contain, and writes
 * these in the usual style of YAML.
 */
#include "spec/resolved.h"

#include "base/parse.h"
#include "base/template.h"
#include "spec/emit.h"
#include "spec/node.h"
#include "spec/path.h"
#include "spec/schema.h"
#include "spec/secrets.h"

#include <jansson.h>
#include <string.h>

/* ---- values ---- */

struct resolver {
    const char *dir; /* the folder of relative paths */
    bool defaults;   /* defaults are written */
    const struct job_strs *secrets;
};

static json_t *resolved_value(const struct resolver *r, const struct schema_type *type,
                              const struct node *node);

static json_t *resolved_text(const struct resolver *r, const struct schema_type *type,
                             const char *text)
{
    bool relative =
        type->relative == PATH_RELATIVE || (type->relative == PATH_WITH_SLASH && strchr(text, '/'));
    struct arena arena;
    arena_init(&arena);
    const char *path = text;
    if (type->relative != PATH_NONE)
        path_expand_home(text, type->is_template, &arena, &path, NULL);
    if (relative) {
        const char *dir = type->is_template ? template_literal(r->dir, &arena) : r->dir;
        path = dir ? path_join(dir, path, &arena) : NULL;
    }
    json_t *resolved = path ? json_string(path) : NULL;
    arena_fini(&arena);
    return resolved;
}

static json_t *resolved_scalar(const struct resolver *r, const struct schema_type *type,
                               const struct node *node)
{
    int64_t number;
    bool yes;
    if (type->kind == SCHEMA_INT && parse_int(node->text, &number, NULL) == 0)
        return json_integer(number);
    if (type->kind == SCHEMA_FLAG && parse_bool(node->text, &yes, NULL) == 0)
        return json_boolean(yes);
    json_t *text = resolved_text(r, type, node->text);
    if (type->may_be_secret)
        secrets_mask(text, r->secrets, EMIT_SECRET_DOLLAR);
    return text;
}

/* NULL: the map is not in the file and has no defaults. */
static json_t *resolved_map(const struct resolver *r, const struct schema_type *type,
                            const struct node *node)
{
    json_t *map = json_object();
    for (const struct schema_key *key = type->keys; key->name; key++) {
        const struct node *value = node ? node_get(node, key->name) : NULL;
        if (key->type->kind == SCHEMA_LAYER)
            continue;
        const struct node by_default = {.kind = NODE_SCALAR, .plain = true, .text = key->def};
        struct resolver below = *r;
        /* No defaults below hosts: a host with its own value would not inherit hosts.defaults. */
        below.defaults = r->defaults && strcmp(key->name, "hosts") != 0;
        if (!value && !node && key->required) {
            json_decref(map);
            return NULL;
        }
        json_t *resolved = NULL;
        if (value)
            resolved = resolved_value(&below, key->type, value);
        else if (below.defaults && key->def)
            resolved = resolved_value(&below, key->type, &by_default);
        else if (below.defaults && key->type->kind == SCHEMA_MAP)
            resolved = resolved_map(&below, key->type, NULL);
        if (resolved)
            json_object_set_new(map, key->name, resolved);
    }
    if (node || json_object_size(map))
        return map;
    json_decref(map);
    return NULL;
}

static json_t *resolved_each(const struct resolver *r, const struct schema_type *type,
                             const struct node *node)
{
    static const struct schema_type text = {.kind = SCHEMA_STR, .may_be_secret = true};
    static const struct schema_type program = {.kind = SCHEMA_STR, .relative = PATH_WITH_SLASH};
    const struct schema_type *item = type->item ? type->item : &text;
    json_t *all = node->kind == NODE_MAP ? json_object() : json_array();
    for (uint32_t i = 0; i < node->n; i++) {
        if (node->kind == NODE_MAP)
            json_object_set_new(all, node->entries[i].key,
                                resolved_value(r, item, node->entries[i].value));
        else
            json_array_append_new(
                all, resolved_value(r, type->program && i == 0 ? &program : item, node->items[i]));
    }
    return all;
}

static const struct schema_type *resolved_arm(const struct schema_type *type,
                                              const struct node *node)
{
    return node->kind == NODE_MAP ? type->map : node->kind == NODE_LIST ? type->list : type->scalar;
}

static json_t *resolved_value(const struct resolver *r, const struct schema_type *type,
                              const struct node *node)
{
    if (type->kind == SCHEMA_EITHER)
        return resolved_value(r, resolved_arm(type, node), node);
    if (type->kind == SCHEMA_MAP)
        return resolved_map(r, type, node);
    return node->kind == NODE_SCALAR ? resolved_scalar(r, type, node)
                                     : resolved_each(r, type, node);
}

/* ---- as YAML ---- */

static void resolved_put_flow(const json_t *v, FILE *out)
{
    const char *key, *comma = "";
    json_t *item;
    size_t i;
    if (json_is_string(v)) {
        emit_text(json_string_value(v), EMIT_SECRETS, out);
    } else if (json_is_object(v)) {
        fputc('{', out);
        json_object_foreach((json_t *)(uintptr_t)v, key, item)
        {
            fputs(comma, out);
            emit_text(key, EMIT_SECRETS, out);
            fputs(": ", out);
            resolved_put_flow(item, out);
            comma = ", ";
        }
        fputc('}', out);
    } else if (json_is_array(v)) {
        fputc('[', out);
        json_array_foreach(v, i, item)
        {
            fputs(i ? ", " : "", out);
            resolved_put_flow(item, out);
        }
        fputc(']', out);
    } else {
        json_dumpf(v, out, JSON_ENCODE_ANY);
    }
}

/* A line below a top-level key: "  name: value", or without a name "  - value". */
static void resolved_put_member(const char *name, json_t *value, FILE *out)
{
    fputs(name ? "  " : "  - ", out);
    if (name) {
        emit_text(name, EMIT_SECRETS, out);
        fputs(": ", out);
    }
    resolved_put_flow(value, out);
    fputc('\n', out);
}

/* One line per top-level key, and one per item of groups, workloads and other lists. */
static void resolved_put_file(json_t *job, FILE *out)
{
    const char *key, *name;
    json_t *value, *item;
    size_t i;
    json_object_foreach(job, key, value)
    {
        bool named =
            json_is_object(value) && (strcmp(key, "groups") == 0 || strcmp(key, "backends") == 0);
        bool list = json_is_array(value) && json_array_size(value);
        fprintf(out, "%s:%s", key, named || list ? "" : " ");
        if (!named && !list)
            resolved_put_flow(value, out);
        fputc('\n', out);
        if (named)
            json_object_foreach(value, name, item) resolved_put_member(name, item, out);
        if (list)
            json_array_foreach(value, i, item) resolved_put_member(NULL, item, out);
    }
}

static bool resolved_hosts_have_workdir(const struct job *job)
{
    for (uint32_t i = 0; i < job->hosts.n; i++)
        if (job->hosts.nodes[i].workdir.v)
            return true;
    return false;
}

/* The file of each command, and the folder that it starts in unless its host says so. A plugin has
 * no `observe`, which is about commands, nor a default of it. */
static void resolved_commands(const struct job *job, const char *const *programs, json_t *all)
{
    const struct resolver r = {.dir = job->dir};
    const struct schema_type path = {.relative = PATH_RELATIVE};
    bool from_host = resolved_hosts_have_workdir(job);
    for (uint32_t i = 0; i < job->nworkloads; i++) {
        json_t *workload = json_array_get(json_object_get(all, "workloads"), i);
        const char *workdir = job->workloads[i].workdir.v;
        if (!job->workloads[i].command.n)
            json_object_del(workload, "observe");
        if (!programs[i])
            continue;
        json_t *program = json_string(programs[i]);
        secrets_mask(program, &job->env.secrets, EMIT_SECRET_DOLLAR);
        json_array_set_new(json_object_get(workload, "command"), 0, program);
        if (!from_host)
            json_object_set_new(workload, "workdir",
                                workdir ? resolved_text(&r, &path, workdir) : json_string(r.dir));
    }
}

int resolved_write(const struct job *job, const char *const *programs, FILE *out)
{
    const struct resolver r = {.dir = job->dir, .defaults = true, .secrets = &job->env.secrets};
    json_t *dir = json_string(r.dir);
    if (!dir) /* no UTF-8, so that YAML has no text for the paths in it */
        return COLLRUN_ERR_INVALID;
    json_decref(dir);
    json_t *all = resolved_value(&r, &schema_job, job->tree);
    resolved_commands(job, programs, all);
    if (job->logging.dir.v && !job->logging.dir.loc.line) /* --run-dir */
        json_object_set_new(json_object_get(all, "logging"), "dir",
                            json_string(job->logging.dir.v));
    /* The default of the name is that of the job file, which resolved.yaml is not. */
    json_t *named =
        json_pack("{s:O?, s:s}", "version", json_object_get(all, "version"), "name", job->name.v);
    json_object_update_missing(named, all);
    resolved_put_file(named, out);
    json_decref(named);
    json_decref(all);
    return COLLRUN_OK;
}
