/* SPDX-License-Identifier: Apache-2.0 */
#include "spec/secrets.h"

#include "base/quote.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SECRET_MIN = 4 };

struct masking {
    const struct job_strs *names;
    char dollar;
    bool error; /* the text is an error message */
};

const char *secrets_find(const struct node *scalar, const struct node *names)
{
    const char *written = scalar->kind == NODE_SCALAR ? scalar->written : NULL;
    for (uint32_t i = 0; written && names && names->kind == NODE_LIST && i < names->n; i++) {
        const char *name = names->items[i]->kind == NODE_SCALAR ? names->items[i]->text : "";
        size_t len = strlen(name);
        for (const char *at = strstr(written, "${"); len && at; at = strstr(at + 2, "${"))
            if (strncmp(at, "${env:", 6) == 0 && strncmp(at + 6, name, len) == 0 &&
                (at[6 + len] == '}' || at[6 + len] == ':'))
                return name;
    }
    return NULL;
}

/* How many bytes of the text are the value, in an error also as quote() writes it, or the begin of
 * that before the "..." of a cut. */
static size_t secrets_match(const char *text, const char *value, bool error)
{
    size_t len = strlen(value), pos = 0, used = 0;
    if (strncmp(text, value, len) == 0)
        return len;
    while (error && pos < len) {
        char word[QUOTE_WORD];
        size_t taken = quote_character(value + pos, len - pos, word), n = strlen(word);
        if (strncmp(text + used, word, n) != 0)
            return pos >= SECRET_MIN && strncmp(text + used, "...", 3) == 0 ? used : 0;
        pos += taken;
        used += n;
    }
    return used;
}

/* The name of the longest value that the text begins with; NULL: none. */
static const char *secrets_longest(const struct masking *m, const char *text, size_t *len)
{
    const char *found = NULL;
    *len = 0;
    for (uint32_t i = 0; i < m->names->n; i++) {
        const char *name = m->names->items[i].v, *value = name ? getenv(name) : NULL;
        size_t n = value && strlen(value) >= SECRET_MIN ? secrets_match(text, value, m->error) : 0;
        if (n > *len) {
            found = name;
            *len = n;
        }
    }
    return found;
}

/* NULL: no secret is in the text. The caller frees the result. */
static char *secrets_replace(const struct masking *m, const char *text)
{
    char *masked = NULL;
    size_t size = 0, len;
    const char *from = text;
    FILE *out = NULL;
    for (const char *at = text; *at;) {
        const char *name = secrets_longest(m, at, &len);
        at += name ? len : 1;
        if (!name)
            continue;
        out = out ? out : text_stream_open(&masked, &size);
        fprintf(out, "%.*s%c{env:%s}", (int)(at - len - from), from, m->dollar, name);
        from = at;
    }
    if (!out)
        return NULL;
    fputs(from, out);
    text_stream_close(out, &masked);
    return masked;
}

static void secrets_mask_string(json_t *string, const struct masking *m)
{
    char *masked = secrets_replace(m, json_string_value(string));
    if (masked)
        json_string_set_nocheck(string, masked);
    free(masked);
}

static void secrets_mask_all(json_t *value, const struct masking *m)
{
    const char *key;
    size_t i;
    json_t *item;
    if (json_is_string(value))
        secrets_mask_string(value, m);
    json_object_foreach(value, key, item) secrets_mask_all(item, m);
    json_array_foreach(value, i, item) secrets_mask_all(item, m);
}

void secrets_mask(json_t *value, const struct job_strs *names, char dollar)
{
    if (names->n)
        secrets_mask_all(value, &(struct masking){.names = names, .dollar = dollar});
}

/* All strings of the members with these names (NULL ends them), at any depth. */
static void secrets_mask_members(json_t *object, const char *const *members,
                                 const struct masking *m)
{
    const char *key;
    size_t i;
    json_t *item;
    json_object_foreach(object, key, item)
    {
        const char *const *member = members;
        while (*member && strcmp(*member, key) != 0)
            member++;
        if (*member)
            secrets_mask_all(item, m);
        else
            secrets_mask_members(item, members, m);
    }
    json_array_foreach(object, i, item) secrets_mask_members(item, members, m);
}

void secrets_mask_plan(json_t *plan, const struct job_strs *names)
{
    static const char *const members[] = {"params", "options", "env", "command", NULL};
    if (names->n)
        secrets_mask_members(plan, members, &(struct masking){.names = names, .dollar = '$'});
}

void secrets_mask_errors(json_t *object, const struct job_strs *names)
{
    static const char *const members[] = {"text", "hint", "error", "command", NULL};
    const struct masking m = {.names = names, .dollar = '$', .error = true};
    if (names->n)
        secrets_mask_members(object, members, &m);
}

static void secrets_mask_buffer(char *text, size_t size, const struct masking *m)
{
    char *masked = secrets_replace(m, text);
    if (masked && snprintf(text, size, "%s", masked) >= (int)size)
        utf8_mark_cut(text, size);
    free(masked);
}

void secrets_mask_diag(struct diag *d, const struct job_strs *names)
{
    const struct masking m = {.names = names, .dollar = '$', .error = true};
    secrets_mask_buffer(d->text, sizeof d->text, &m);
    secrets_mask_buffer(d->note2, sizeof d->note2, &m);
    secrets_mask_buffer(d->hint, sizeof d->hint, &m);
}

void secrets_mask_line(const void *names, char *line, size_t size)
{
    secrets_mask_buffer(line, size,
                        &(struct masking){.names = names, .dollar = '$', .error = true});
}
