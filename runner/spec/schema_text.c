/* SPDX-License-Identifier: Apache-2.0
 *
 * - JSON Schema, draft-07, which yaml-language-server reads. A value may be replaced from the
 *   environment or a variable, so a string with ${env:...} is valid for each number, and one with
 *   ${var:...} for everything.
 * - Rows of a manual page, between BEGIN and END comments for each top-level key. A row has the
 *   full path of a key, its purpose, its values and its default.
 */
#include "spec/schema_text.h"

#include "spec/schema.h"

#include <collrun/types.h>
#include <inttypes.h>
#include <string.h>

#include <jansson.h>

static json_t *schema_json_type(const struct schema_type *type);

static json_t *schema_json_pattern(const char *regex)
{
    return json_pack("{ss ss}", "type", "string", "pattern", regex);
}

/* This, or a string with ${env:...}, or null, which removes a value of a layer below. */
static json_t *schema_json_or_env(json_t *schema)
{
    return json_pack("{s[o{ss}{ss}]}", "anyOf", schema, "$ref", "#/definitions/env", "type",
                     "null");
}

static json_t *schema_json_choice(const struct schema_type *type)
{
    json_t *names = json_array();
    for (const struct schema_choice *c = type->choices; c->name; c++)
        json_array_append_new(names, json_string(c->name));
    return schema_json_or_env(json_pack("{so}", "enum", names));
}

/* A number as in `schema`, or one of the names that the type has beside it. */
static json_t *schema_json_number(const struct schema_type *type, json_t *schema)
{
    if (type->choices)
        return json_pack("{s[oo]}", "anyOf", schema, schema_json_choice(type));
    return schema_json_or_env(schema);
}

static json_t *schema_json_integer(const struct schema_type *type)
{
    json_t *schema = json_pack("{ss}", "type", "integer");
    json_object_set_new(schema, "minimum", json_integer(type->min));
    json_object_set_new(schema, "maximum", json_integer(type->max));
    return schema_json_number(type, schema);
}

static json_t *schema_json_duration(const struct schema_type *type)
{
    return schema_json_number(type,
                              schema_json_pattern("^(0|([0-9]+(\\.[0-9]+)?(ns|us|ms|s|m|h))+)$"));
}

static json_t *schema_json_size(const struct schema_type *type)
{
    return schema_json_number(
        type, json_pack("{s[oo]}", "anyOf", json_pack("{ss si}", "type", "integer", "minimum", 0),
                        schema_json_pattern("^[0-9]+(\\.[0-9]+)?(B|[kKMGT]B|[KMGT]iB)?$")));
}

static json_t *schema_json_ranks(void)
{
#define RANK "([0-9]+|last)"
#define RANGE RANK "(-" RANK "(:[0-9]+)?)?"
#define PART "(" RANGE "|[A-Za-z_][A-Za-z0-9_]*( *\\[ *" RANGE "( *, *" RANGE ")* *\\])?)"
    static const char regex[] = "^(" PART "( *, *" PART ")*)$"; /* `all` looks like a role */
    json_t *integer = json_pack("{ss si}", "type", "integer", "minimum", 0);
    json_t *one = json_pack("{s[Oo]}", "anyOf", integer, schema_json_pattern(regex));
    json_t *list = json_pack("{ss so si}", "type", "array", "items", one, "minItems", 1);
    return schema_json_or_env(
        json_pack("{s[ooo]}", "anyOf", integer, schema_json_pattern(regex), list));
}

static json_t *schema_json_pairs(const struct schema_type *type)
{
    json_t *value = json_pack("{s[ssss]}", "type", "string", "number", "boolean", "null");
    if (type->lists)
        value = json_pack("{s[o{ss so}]}", "anyOf", value, "type", "array", "items",
                          json_deep_copy(value));
    return json_pack("{ss so}", "type", "object", "additionalProperties", value);
}

static json_t *schema_json_list(const struct schema_type *type)
{
    json_t *schema = json_pack("{ss so}", "type", "array", "items", schema_json_type(type->item));
    if (type->not_empty)
        json_object_set_new(schema, "minItems", json_integer(1));
    return schema;
}

/* The default of a key as a YAML value. */
static json_t *schema_json_default(const struct schema_key *key)
{
    int64_t number;
    if (key->type->kind == SCHEMA_FLAG)
        return json_boolean(strcmp(key->def, "true") == 0);
    if (key->type->kind == SCHEMA_INT && sscanf(key->def, "%" SCNd64, &number) == 1)
        return json_integer(number);
    return json_string(key->def);
}

static json_t *schema_json_key(const struct schema_key *key)
{
    json_t *schema = schema_json_type(key->type);
    if (key->type->kind == SCHEMA_MAP || key->type->kind == SCHEMA_LIST ||
        key->type->kind == SCHEMA_NAMED || key->type->kind == SCHEMA_PAIRS)
        schema = schema_json_or_env(schema); /* a variable may be of any kind */
    json_t *help = json_sprintf("%s.", key->help);
    json_object_set_new(schema, "description", help);
    if (key->def)
        json_object_set_new(schema, "default", schema_json_default(key));
    return schema;
}

static json_t *schema_json_map(const struct schema_type *type)
{
    json_t *properties = json_object(), *required = json_array(), *either = NULL;
    for (const struct schema_key *key = type->keys; key->name; key++) {
        json_object_set_new(properties, key->name, schema_json_key(key));
        if (key->required && key->instead)
            either = json_pack("[{s[s]}, {s[s]}]", "required", key->name, "required", key->instead);
        else if (key->required)
            json_array_append_new(required, json_string(key->name));
    }
    json_t *schema = json_pack("{ss so s{s{}} sb}", "type", "object", "properties", properties,
                               "patternProperties", "^x-", "additionalProperties", 0);
    if (json_array_size(required))
        json_object_set(schema, "required", required);
    json_decref(required);
    if (either) /* one of them, and not both */
        json_object_set_new(schema, "oneOf", either);
    return schema;
}

static json_t *schema_json_either(const struct schema_type *type)
{
    const struct schema_type *arms[] = {type->scalar, type->list, type->map};
    json_t *list = json_array();
    for (size_t i = 0; i < 3; i++)
        if (arms[i])
            json_array_append_new(list, schema_json_type(arms[i]));
    return json_pack("{so}", "anyOf", list);
}

/* `NAME:` alone is a map with all its defaults. */
static json_t *schema_json_named(const struct schema_type *type)
{
    json_t *item = schema_json_type(type->item);
    if (type->item->kind == SCHEMA_MAP)
        item = schema_json_or_env(item);
    json_t *schema = json_pack("{ss so}", "type", "object", "additionalProperties", item);
    if (type->not_empty)
        json_object_set_new(schema, "minProperties", json_integer(1));
    return schema;
}

static json_t *schema_json_type(const struct schema_type *type)
{
    switch (type->kind) {
    case SCHEMA_STR:
        return json_pack("{s[ssss]}", "type", "string", "number", "boolean", "null");
    case SCHEMA_INT:
        return schema_json_integer(type);
    case SCHEMA_FLAG:
        return schema_json_or_env(json_pack("{ss}", "type", "boolean"));
    case SCHEMA_DURATION:
        return schema_json_duration(type);
    case SCHEMA_SIZE:
        return schema_json_size(type);
    case SCHEMA_CHOICE:
        return schema_json_choice(type);
    case SCHEMA_RANKS:
        return schema_json_ranks();
    case SCHEMA_PAIRS:
        return schema_json_pairs(type);
    case SCHEMA_MAP:
        return schema_json_map(type);
    case SCHEMA_LIST:
        return schema_json_list(type);
    case SCHEMA_NAMED:
        return schema_json_named(type);
    case SCHEMA_EITHER:
        return schema_json_either(type);
    case SCHEMA_LAYER:
        return json_loads(type->json, 0, NULL);
    }
    return NULL;
}

/* A profile has keys of the job, and none of them is required. */
static json_t *schema_json_profile(json_t *properties)
{
    const char *name;
    json_t *key, *mine = json_object();
    json_object_foreach(properties, name, key)
    {
        json_t *ref = json_pack("{so}", "$ref", json_sprintf("#/properties/%s", name));
        if (strcmp(name, "include") != 0 && strcmp(name, "profiles") != 0)
            json_object_set(mine, name, ref);
        json_decref(ref);
    }
    return json_pack("{s[{ss}{ss so s{s{}} sb}]}", "anyOf", "type", "null", "type", "object",
                     "properties", mine, "patternProperties", "^x-", "additionalProperties", 0);
}

/* What this file lacks may be in one that it includes. */
static void schema_json_relax(json_t *root)
{
    json_object_set_new(root, "anyOf",
                        json_pack("[{s[s]}, {sO}]", "required", "include", "required",
                                  json_object_get(root, "required")));
    json_object_del(root, "required");
}

void schema_write_json(FILE *out)
{
    json_t *root = schema_json_type(&schema_job);
    json_object_set_new(root, "$schema", json_string("http://json-schema.org/draft-07/schema#"));
    json_object_set_new(root, "title", json_string("collrun job file, version 1"));
    json_object_set_new(root, "definitions",
                        json_pack("{so so}", "env", schema_json_pattern("\\$\\{(env|var|matrix):"),
                                  "profile",
                                  schema_json_profile(json_object_get(root, "properties"))));
    schema_json_relax(root);
    json_dumpf(root, out, JSON_INDENT(2) | JSON_SORT_KEYS);
    json_decref(root);
    fputc('\n', out);
}

/* ---- rows of a manual page ---- */

/* Text for roff: "-" and "\\" are escaped; no help begins with a dot. */
static void schema_man_put(FILE *out, const char *s)
{
    for (; *s; s++) {
        if (*s == '\\')
            fputs("\\e", out);
        else if (*s == '-')
            fputs("\\-", out);
        else
            fputc(*s, out);
    }
}

static void schema_man_put_choices(const struct schema_choice *choices, FILE *out)
{
    for (const struct schema_choice *c = choices; c->name; c++) {
        fputs(c == choices ? "" : " | ", out);
        schema_man_put(out, c->name);
    }
}

static void schema_man_put_type(const struct schema_type *type, FILE *out)
{
    if (type->kind == SCHEMA_CHOICE) {
        schema_man_put_choices(type->choices, out);
        return;
    }
    schema_man_put(out, type->expects);
    if (type->kind == SCHEMA_INT)
        fprintf(out, " from %" PRId64 " to %" PRId64, type->min, type->max);
}

static void schema_man_put_key(const char *path, const struct schema_key *key, FILE *out)
{
    fputs(".TP\n.B ", out);
    schema_man_put(out, path);
    fputs("\n", out);
    schema_man_put(out, key->help);
    fputs(".\n(", out);
    schema_man_put_type(key->type, out);
    if (key->required)
        fputs("; required", out);
    if (key->instead)
        fprintf(out, ", or %s", key->instead);
    if (key->def) {
        fputs("; default ", out);
        schema_man_put(out, *key->def ? key->def : "empty");
    }
    fputs(")\n", out);
}

static void schema_man_put_below(const char *path, const struct schema_type *type, FILE *out);

static void schema_man_put_keys(const char *path, const struct schema_type *map, FILE *out)
{
    for (const struct schema_key *key = map->keys; key->name; key++) {
        char inner[160];
        snprintf(inner, sizeof inner, "%s%s%s", path, *path ? "." : "", key->name);
        schema_man_put_key(inner, key, out);
        schema_man_put_below(inner, key->type, out);
    }
}

static void schema_man_put_below(const char *path, const struct schema_type *type, FILE *out)
{
    char inner[160];
    switch (type->kind) {
    case SCHEMA_MAP:
        schema_man_put_keys(path, type, out);
        break;
    case SCHEMA_LIST:
        snprintf(inner, sizeof inner, "%s[]", path);
        schema_man_put_below(inner, type->item, out);
        break;
    case SCHEMA_NAMED:
        snprintf(inner, sizeof inner, "%s.NAME", path);
        schema_man_put_below(inner, type->item, out);
        break;
    case SCHEMA_EITHER:
        if (type->map)
            schema_man_put_below(path, type->map, out);
        break;
    default:
        break;
    }
}

void schema_write_man(FILE *out)
{
    for (const struct schema_key *key = schema_job.keys; key->name; key++) {
        fprintf(out, ".\\\" BEGIN keys %s\n", key->name);
        schema_man_put_key(key->name, key, out);
        schema_man_put_below(key->name, key->type, out);
        fprintf(out, ".\\\" END keys %s\n", key->name);
    }
}
