/* SPDX-License-Identifier: Apache-2.0 */
#include "spec/secrets.h"

#include "base/text_stream.h"
#include "spec/json_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SECRET_MIN = 4 };

struct secret {
    const char *name, *value;
    char dollar;
};

static void secrets_mask_text(json_t *string, const struct secret *s)
{
    char *text = NULL;
    size_t len = 0;
    const char *at = json_string_value(string), *found = strstr(at, s->value);
    if (!found)
        return;
    FILE *out = text_stream_open(&text, &len);
    for (; out && found; found = strstr(at, s->value)) {
        fprintf(out, "%.*s%c{env:%s}", (int)(found - at), at, s->dollar, s->name);
        at = found + strlen(s->value);
    }
    if (out)
        fputs(at, out);
    if (!text_stream_close(out, &text) || json_string_set_nocheck(string, text) < 0)
        json_memory_lost(); /* the secret is still there */
    free(text);
}

static void secrets_mask_one(json_t *value, const struct secret *s)
{
    const char *key;
    size_t i;
    json_t *item;
    if (json_is_string(value))
        secrets_mask_text(value, s);
    json_object_foreach(value, key, item) secrets_mask_one(item, s);
    json_array_foreach(value, i, item) secrets_mask_one(item, s);
}

void secrets_mask(json_t *value, const struct job_strs *names, char dollar)
{
    for (uint32_t i = 0; i < names->n; i++) {
        const char *name = names->items[i].v;
        struct secret s = {.name = name, .value = name ? getenv(name) : NULL, .dollar = dollar};
        if (s.value && strlen(s.value) >= SECRET_MIN)
            secrets_mask_one(value, &s);
    }
}
