/* SPDX-License-Identifier: Apache-2.0
 *
 * The table as JSON Schema, draft-07 (what yaml-language-server reads). Numbers may also be filled
 * in from the environment, so a text with ${env:...} passes for any of them.
 */
#include "spec/schema.h"
#include "spec/schema_text.h"

#include <collrun/types.h>

#include <inttypes.h>
#include <string.h>

#include <jansson.h>

static json_t *type_schema(const struct schema_type *type);

static json_t *pattern(const char *regex)
{
    return json_pack("{ss ss}", "type", "string", "pattern", regex);
}

/* This or a text that is filled in from the environment. */
static json_t *or_env(json_t *schema)
{
    return json_pack("{s[oo]}", "anyOf", schema, json_pack("{ss}", "$ref", "#/definitions/env"));
}

static json_t *integer_schema(const struct schema_type *type)
{
    json_t *schema = json_pack("{ss}", "type", "integer");
    json_object_set_new(schema, "minimum", json_integer(type->min));
    json_object_set_new(schema, "maximum", json_integer(type->max));
    return or_env(schema);
}

static json_t *choice_schema(const struct schema_type *type)
{
    json_t *names = json_array();
    for (const struct schema_choice *c = type->choices; c->name; c++)
        json_array_append_new(names, json_string(c->name));
    return or_env(json_pack("{so}", "enum", names));
}

static json_t *ranks_schema(void)
{
    static const char regex[] =
        "^(all|[0-9]+(-[0-9]+(:[0-9]+)?)?( *, *[0-9]+(-[0-9]+(:[0-9]+)?)?)*)$";
    json_t *integer = json_pack("{ss si}", "type", "integer", "minimum", 0);
    json_t *one = json_pack("{s[Oo]}", "anyOf", integer, pattern(regex));
    json_t *list = json_pack("{ss so si}", "type", "array", "items", one, "minItems", 1);
    return or_env(json_pack("{s[ooo]}", "anyOf", integer, pattern(regex), list));
}

static json_t *pairs_schema(void)
{
    return json_pack("{ss s{s[sss]}}", "type", "object", "additionalProperties", "type", "string",
                     "number", "boolean");
}

static json_t *list_schema(const struct schema_type *type)
{
    json_t *schema = json_pack("{ss so}", "type", "array", "items", type_schema(type->item));
    if (type->not_empty)
        json_object_set_new(schema, "minItems", json_integer(1));
    return schema;
}

/* A key's default, as the YAML value it would be. */
static json_t *default_value(const struct schema_key *key)
{
    int64_t number;
    if (key->type->kind == SCHEMA_FLAG)
        return json_boolean(!strcmp(key->def, "true"));
    if (key->type->kind == SCHEMA_INT && sscanf(key->def, "%" SCNd64, &number) == 1)
        return json_integer(number);
    return json_string(key->def);
}

static json_t *key_schema(const struct schema_key *key)
{
    json_t *schema = type_schema(key->type);
    json_t *help =
        json_sprintf("%s.%s", key->help, key->when == LATER ? " Not supported by this build." : "");
    json_object_set_new(schema, "description", help);
    if (key->def)
        json_object_set_new(schema, "default", default_value(key));
    return schema;
}

static json_t *map_schema(const struct schema_type *type)
{
    json_t *properties = json_object(), *required = json_array();
    for (const struct schema_key *key = type->keys; key->name; key++) {
        json_object_set_new(properties, key->name, key_schema(key));
        if (key->required)
            json_array_append_new(required, json_string(key->name));
    }
    json_t *schema = json_pack("{ss so s{s{}} sb}", "type", "object", "properties", properties,
                               "patternProperties", "^x-", "additionalProperties", 0);
    if (json_array_size(required))
        json_object_set(schema, "required", required);
    json_decref(required);
    return schema;
}

static json_t *either_schema(const struct schema_type *type)
{
    const struct schema_type *arms[] = {type->scalar, type->list, type->map};
    json_t *list = json_array();
    for (size_t i = 0; i < 3; i++)
        if (arms[i])
            json_array_append_new(list, type_schema(arms[i]));
    return json_pack("{so}", "anyOf", list);
}

static json_t *type_schema(const struct schema_type *type)
{
    switch (type->kind) {
    case SCHEMA_STR:
        return json_pack("{s[sss]}", "type", "string", "number", "boolean");
    case SCHEMA_INT:
        return integer_schema(type);
    case SCHEMA_FLAG:
        return or_env(json_pack("{ss}", "type", "boolean"));
    case SCHEMA_DURATION:
        return or_env(pattern("^(0|([0-9]+(\\.[0-9]+)?(ns|us|ms|s|m|h))+)$"));
    case SCHEMA_SIZE:
        return or_env(json_pack("{s[oo]}", "anyOf",
                                json_pack("{ss si}", "type", "integer", "minimum", 0),
                                pattern("^[0-9]+(\\.[0-9]+)?(B|[kKMGT]B|[KMGT]iB)?$")));
    case SCHEMA_CHOICE:
        return choice_schema(type);
    case SCHEMA_RANKS:
        return ranks_schema();
    case SCHEMA_PAIRS:
        return pairs_schema();
    case SCHEMA_MAP:
        return map_schema(type);
    case SCHEMA_LIST:
        return list_schema(type);
    case SCHEMA_NAMED:
        return json_pack("{ss s{s[o{ss}]}}", "type", "object", "additionalProperties", "anyOf",
                         type_schema(type->item), "type", "null");
    case SCHEMA_EITHER:
        return either_schema(type);
    }
    return NULL;
}

int schema_write_json(FILE *out)
{
    json_t *root = type_schema(&schema_job);
    json_object_set_new(root, "$schema", json_string("http://json-schema.org/draft-07/schema#"));
    json_object_set_new(root, "title", json_string("collrun job file, version 1"));
    json_object_set_new(root, "definitions", json_pack("{so}", "env", pattern("\\$\\{env:")));
    int code = root && json_dumpf(root, out, JSON_INDENT(2) | JSON_SORT_KEYS) == 0
                   ? 0
                   : COLLRUN_ERR_NO_MEMORY;
    json_decref(root);
    return fputc('\n', out) == EOF ? COLLRUN_ERR_SYSTEM : code;
}
