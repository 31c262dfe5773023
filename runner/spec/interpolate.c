/* SPDX-License-Identifier: Apache-2.0
 *
 * Replaces references from the environment of collrun. A variable that is not set and has no
 * default is an error: an empty value would cause an error later and elsewhere. As in a shell, `:-`
 * also replaces a variable that is set but empty.
 */
#include "spec/interpolate.h"

#include "base/buf.h"
#include "base/quote.h"

#include <stdlib.h>
#include <string.h>

static bool interpolate_is_name(const char *s, size_t len)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789";
    return len && strspn(s, letters) >= len && !(s[0] >= '0' && s[0] <= '9');
}

bool interpolate_is_var_name(const char *name, size_t len)
{
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789-";
    return len && strspn(name, letters) >= len && !strchr("0123456789-", name[0]);
}

/* The length of "${var:" or "${matrix:" at the beginning of a text; 0: it has none. */
static size_t interpolate_kind_len(const char *p)
{
    static const char *const kinds[] = {"${var:", "${matrix:"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strncmp(p, kinds[i], strlen(kinds[i])) == 0)
            return strlen(kinds[i]);
    return 0;
}

size_t interpolate_find_var(const char *text, const char **at, const char **name)
{
    for (const char *p = strchr(text, '$'); p; p = strchr(p, '$')) {
        if (p[1] == '$') {
            p += 2;
            continue;
        }
        const size_t kind = interpolate_kind_len(p), len = kind ? strcspn(p + kind, "}") : 0;
        if (len && p[kind + len] == '}' && interpolate_is_var_name(p + kind, len)) {
            *at = p;
            *name = p + 2;
            return kind + len + 1;
        }
        p++;
    }
    return 0;
}

static int interpolate_malformed(const char *at, size_t len, struct arena *arena, struct diag *d)
{
    const char *text = arena_strndup(arena, at, len);
    diag_set(d, COLLRUN_ERR_INVALID,
             "%s is not ${env:NAME}, ${env:NAME:-default}, ${var:NAME} or ${matrix:AXIS}",
             quote(text, (char[QUOTE_SIZE]){0}));
    /* ${n} and ${vars:n} */
    const char *colon = memchr(at, ':', len), *name = colon ? colon + 1 : at + 2;
    const size_t n = (size_t)(at + len - name);
    if (n > 1 && at[len - 1] == '}' && interpolate_is_var_name(name, n - 1))
        return diag_hint(d,
                         "a variable of the job is ${var:%.*s}, an axis of its matrix "
                         "${matrix:%.*s}, one of the environment ${env:%.*s}; write $${ for a "
                         "literal ${",
                         (int)(n - 1), name, (int)(n - 1), name, (int)(n - 1), name);
    return diag_hint(d, "write $${ for a literal ${");
}

/* Replaces the reference at "${": appends its value to `out`, sets *taken to its length. */
static int interpolate_fill_in(const char *at, struct arena *arena, struct buf *out, size_t *taken,
                               struct diag *d)
{
    size_t len = strcspn(at, "}");
    bool closed = at[len] == '}';
    *taken = len + closed;
    if (!closed || strncmp(at, "${env:", 6) != 0)
        return interpolate_malformed(at, *taken, arena, d);
    const char *name = at + 6, *end = at + len, *fallback = NULL;
    size_t name_len = strcspn(name, ":}");
    if (name + name_len < end && name[name_len + 1] == '-')
        fallback = name + name_len + 2;
    if (!interpolate_is_name(name, name_len) || (name + name_len < end && !fallback))
        return interpolate_malformed(at, *taken, arena, d);
    const char *key = arena_strndup(arena, name, name_len);
    const char *value = getenv(key);
    if (value && (*value || !fallback)) {
        buf_put(out, value, strlen(value));
        return 0;
    }
    if (!fallback) {
        diag_set(d, COLLRUN_ERR_INVALID, "the environment variable %s is not set", key);
        return diag_hint(d, "set it, or give a default: ${env:%s:-default}", key);
    }
    buf_put(out, fallback, (size_t)(end - fallback));
    return 0;
}

int interpolate(const char *text, struct arena *arena, const char **out, struct diag *d)
{
    if (!strchr(text, '$')) {
        *out = text;
        return 0;
    }
    struct buf buf;
    buf_init(&buf);
    int code = 0;
    for (size_t pos = 0; text[pos] && !code;) {
        size_t taken = 1;
        if (text[pos] == '$' && text[pos + 1] == '{')
            code = interpolate_fill_in(text + pos, arena, &buf, &taken, d);
        else
            buf_put(&buf, text + pos, 1);
        pos += taken + (text[pos] == '$' && text[pos + 1] == '$');
        if (!code && buf.len > INTERPOLATE_MAX)
            code =
                diag_set(d, COLLRUN_ERR_INVALID, "the value with ${env:NAME} is larger than %d MiB",
                         INTERPOLATE_MAX >> 20);
    }
    if (!code)
        *out = arena_strndup(arena, buf.data ? (char *)buf.data : "", buf.len);
    buf_fini(&buf);
    return code;
}
