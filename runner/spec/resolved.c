/* SPDX-License-Identifier: Apache-2.0
 *
 * First schema and tree are walked together into plain JSON values, which a job file may consist
 * of; then these are written the way people write YAML.
 */
#include "spec/resolved.h"

#include "base/parse.h"
#include "spec/node.h"
#include "spec/schema.h"

#include <jansson.h>
#include <string.h>

/* ---- what the job says ---- */

struct resolve {
    const char *dir; /* what relative paths start from */
    bool defaults;   /* are spelt out */
};

static json_t *resolve(const struct resolve *r, const struct schema_type *type,
                       const struct node *node);

static json_t *resolve_text(const struct resolve *r, const struct schema_type *type,
                            const char *text)
{
    bool relative =
        type->relative == PATH_RELATIVE || (type->relative == PATH_WITH_SLASH && strchr(text, '/'));
    if (!relative || text[0] == '/' || text[0] == '~')
        return json_string(text);
    return json_sprintf("%s/%s", r->dir, strncmp(text, "./", 2) ? text : text + 2);
}

static json_t *resolve_scalar(const struct resolve *r, const struct schema_type *type,
                              const struct node *node)
{
    int64_t number;
    bool yes;
    if (type->kind == SCHEMA_INT && parse_int(node->text, &number, NULL) == 0)
        return json_integer(number);
    if (type->kind == SCHEMA_FLAG && parse_bool(node->text, &yes, NULL) == 0)
        return json_boolean(yes);
    return resolve_text(r, type, node->text);
}

/* NULL: nothing is written, and nothing is to be said. */
static json_t *resolve_map(const struct resolve *r, const struct schema_type *type,
                           const struct node *node)
{
    json_t *map = json_object();
    for (const struct schema_key *key = type->keys; key->name; key++) {
        const struct node *value = node ? node_get(node, key->name) : NULL;
        const struct node by_default = {.kind = NODE_SCALAR, .plain = true, .text = key->def};
        struct resolve below = *r;
        /* hosts.defaults holds for hosts that do not say otherwise: they must go on not to. */
        below.defaults = r->defaults && strcmp(key->name, "hosts") != 0;
        if (!value && !node && key->required) {
            json_decref(map);
            return NULL;
        }
        json_t *said = NULL;
        if (value)
            said = resolve(&below, key->type, value);
        else if (below.defaults && key->def && key->when != LATER)
            said = resolve(&below, key->type, &by_default);
        else if (below.defaults && key->type->kind == SCHEMA_MAP)
            said = resolve_map(&below, key->type, NULL);
        if (said)
            json_object_set_new(map, key->name, said);
    }
    if (node || json_object_size(map))
        return map;
    json_decref(map);
    return NULL;
}

static json_t *resolve_each(const struct resolve *r, const struct schema_type *type,
                            const struct node *node)
{
    static const struct schema_type text = {.kind = SCHEMA_STR};
    const struct schema_type *item = type->item ? type->item : &text;
    json_t *all = node->kind == NODE_MAP ? json_object() : json_array();
    for (uint32_t i = 0; i < node->n; i++) {
        if (node->kind == NODE_MAP)
            json_object_set_new(all, node->entries[i].key,
                                resolve(r, item, node->entries[i].value));
        else
            json_array_append_new(all, resolve(r, item, node->items[i]));
    }
    return all;
}

static const struct schema_type *arm_of(const struct schema_type *type, const struct node *node)
{
    return node->kind == NODE_MAP ? type->map : node->kind == NODE_LIST ? type->list : type->scalar;
}

static json_t *resolve(const struct resolve *r, const struct schema_type *type,
                       const struct node *node)
{
    if (type->kind == SCHEMA_EITHER)
        return resolve(r, arm_of(type, node), node);
    if (type->kind == SCHEMA_MAP)
        return resolve_map(r, type, node);
    return node->kind == NODE_SCALAR ? resolve_scalar(r, type, node) : resolve_each(r, type, node);
}

/* ---- as YAML ---- */

/* Quoted, unless it is made of letters that mean nothing to YAML. A dollar is doubled, so that
 * nothing is filled in when it is read back. */
static void put_text(const char *text, FILE *out)
{
    static const char bare[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789.+/-";
    struct node plain = {.kind = NODE_SCALAR, .plain = true, .text = text};
    if (!node_is_null(&plain) && !text[strspn(text, bare)] && text[0] != '-') {
        fputs(text, out);
        return;
    }
    fputc('"', out);
    for (const char *p = text; *p; p++) {
        unsigned char c = (unsigned char)*p;
        if (c < 0x20 || c == 0x7f)
            fprintf(out, "\\x%02x", c);
        else
            fprintf(out, "%s%c", c == '$' ? "$" : c == '"' || c == '\\' ? "\\" : "", c);
    }
    fputc('"', out);
}

static void put_flow(const json_t *v, FILE *out)
{
    const char *key, *comma = "";
    json_t *item;
    size_t i;
    if (json_is_string(v)) {
        put_text(json_string_value(v), out);
    } else if (json_is_object(v)) {
        fputc('{', out);
        json_object_foreach((json_t *)(uintptr_t)v, key, item)
        {
            fputs(comma, out);
            put_text(key, out);
            fputs(": ", out);
            put_flow(item, out);
            comma = ", ";
        }
        fputc('}', out);
    } else if (json_is_array(v)) {
        fputc('[', out);
        json_array_foreach(v, i, item)
        {
            fputs(i ? ", " : "", out);
            put_flow(item, out);
        }
        fputc(']', out);
    } else {
        json_dumpf(v, out, JSON_ENCODE_ANY);
    }
}

/* A line below a top-level key: "  name: value", or without a name "  - value". */
static void put_member(const char *name, json_t *value, FILE *out)
{
    fputs(name ? "  " : "  - ", out);
    if (name) {
        put_text(name, out);
        fputs(": ", out);
    }
    put_flow(value, out);
    fputc('\n', out);
}

/* The top: a key a line, and the items below groups, workloads and the like a line each. */
static void put_file(json_t *job, FILE *out)
{
    const char *key, *name;
    json_t *value, *item;
    size_t i;
    json_object_foreach(job, key, value)
    {
        bool named = json_is_object(value) && (!strcmp(key, "groups") || !strcmp(key, "backends"));
        bool list = json_is_array(value) && json_array_size(value);
        fprintf(out, "%s:%s", key, named || list ? "" : " ");
        if (!named && !list)
            put_flow(value, out);
        fputc('\n', out);
        if (named)
            json_object_foreach(value, name, item) put_member(name, item, out);
        if (list)
            json_array_foreach(value, i, item) put_member(NULL, item, out);
    }
}

int resolved_write(const struct job *job, FILE *out)
{
    const struct resolve r = {.dir = job->dir, .defaults = true};
    json_t *all = resolve(&r, &schema_job, job->tree);
    /* The name follows from the file's, which will be another. */
    json_t *named =
        json_pack("{s:O?, s:s}", "version", json_object_get(all, "version"), "name", job->name.v);
    int rc = json_object_update_missing(named, all);
    if (rc == 0)
        put_file(named, out);
    json_decref(named);
    json_decref(all);
    return rc == 0 ? COLLRUN_OK : COLLRUN_ERR_NO_MEMORY;
}
