/* SPDX-License-Identifier: Apache-2.0
 *
 * The table as rows of a manual page: every key with its full path, what it takes, its default,
 * what it is for.
 */
#include "spec/schema.h"
#include "spec/schema_text.h"

#include <inttypes.h>
#include <string.h>

/* A text for roff: no line begins with a dot, "-" and "\" stay what they are. */
static void put(FILE *out, const char *s)
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

static void put_choices(const struct schema_choice *choices, FILE *out)
{
    for (const struct schema_choice *c = choices; c->name; c++) {
        fputs(c == choices ? "" : " | ", out);
        put(out, c->name);
    }
}

static void put_type(const struct schema_type *type, FILE *out)
{
    if (type->kind == SCHEMA_CHOICE) {
        put_choices(type->choices, out);
        return;
    }
    put(out, type->expects);
    if (type->kind == SCHEMA_INT)
        fprintf(out, " from %" PRId64 " to %" PRId64, type->min, type->max);
}

static void put_key(const char *path, const struct schema_key *key, FILE *out)
{
    fputs(".TP\n.B ", out);
    put(out, path);
    fputs("\n", out);
    put(out, key->help);
    fputs(".\n(", out);
    put_type(key->type, out);
    if (key->required)
        fputs("; required", out);
    if (key->def) {
        fputs("; default ", out);
        put(out, *key->def ? key->def : "empty");
    }
    fputs(")\n", out);
    if (key->when == LATER)
        fputs("Not supported by this build.\n", out);
    if (key->when == ONLY_DEFAULT)
        fputs("This build supports only the default.\n", out);
}

static void put_below(const char *path, const struct schema_type *type, FILE *out);

static void put_keys(const char *path, const struct schema_type *map, FILE *out)
{
    for (const struct schema_key *key = map->keys; key->name; key++) {
        char inner[160];
        snprintf(inner, sizeof inner, "%s%s%s", path, *path ? "." : "", key->name);
        put_key(inner, key, out);
        put_below(inner, key->type, out);
    }
}

static void put_below(const char *path, const struct schema_type *type, FILE *out)
{
    char inner[160];
    switch (type->kind) {
    case SCHEMA_MAP:
        put_keys(path, type, out);
        break;
    case SCHEMA_LIST:
        snprintf(inner, sizeof inner, "%s[]", path);
        put_below(inner, type->item, out);
        break;
    case SCHEMA_NAMED:
        snprintf(inner, sizeof inner, "%s.NAME", path);
        put_below(inner, type->item, out);
        break;
    case SCHEMA_EITHER:
        if (type->map)
            put_below(path, type->map, out);
        break;
    default:
        break;
    }
}

void schema_write_man(FILE *out)
{
    put_keys("", &schema_job, out);
}
