/* SPDX-License-Identifier: Apache-2.0
 *
 * The schema table as rows of a manual page, between BEGIN and END comments for each top-level key.
 * A row has the full path of a key, its purpose, its values and its default.
 */
#include "spec/schema.h"
#include "spec/schema_text.h"

#include <inttypes.h>
#include <string.h>

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
