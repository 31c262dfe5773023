/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads JSON in place; see json.h. Nesting is limited, so a stack of brackets on the C stack
 * suffices.
 */
#include "json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { JSON_DEPTH_MAX = 64 };

static const char *json_space(const char *p)
{
    return p + strspn(p, " \t\r\n");
}

/* The end of the string at p; NULL: it has none. */
static const char *json_string_end(const char *p)
{
    for (p++; *p && *p != '"'; p++) {
        if ((unsigned char)*p < 0x20)
            return NULL;
        p += *p == '\\' && p[1];
    }
    return *p ? p + 1 : NULL;
}

static const char *json_number_end(const char *p)
{
    const char *digits = p + (*p == '-');
    const char *end = digits + strspn(digits, "0123456789");
    if (end == digits)
        return NULL;
    if (*end == '.') {
        size_t n = strspn(end + 1, "0123456789");
        if (!n)
            return NULL;
        end += 1 + n;
    }
    if (*end == 'e' || *end == 'E') {
        const char *exponent = end + 1 + (end[1] == '+' || end[1] == '-');
        size_t n = strspn(exponent, "0123456789");
        if (!n)
            return NULL;
        end = exponent + n;
    }
    return end;
}

/* The end of a value that holds no others; NULL: there is none. PyTorch writes Infinity and NaN. */
static const char *json_scalar_end(const char *p)
{
    static const char *const words[] = {"true", "false", "null", "Infinity", "-Infinity", "NaN"};
    if (*p == '"')
        return json_string_end(p);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strncmp(p, words[i], strlen(words[i])) == 0)
            return p + strlen(words[i]);
    return json_number_end(p);
}

struct json_scan {
    const char *at;
    char closing[JSON_DEPTH_MAX];
    int depth;
};

/* The key of a member and its colon. */
static bool json_key(struct json_scan *s)
{
    s->at = json_space(s->at);
    const char *end = *s->at == '"' ? json_string_end(s->at) : NULL;
    if (!end)
        return false;
    end = json_space(end);
    if (*end != ':')
        return false;
    s->at = end + 1;
    return true;
}

/* One value, or the opening of an array or object; false: neither. *opened: it has items. */
static bool json_value(struct json_scan *s, bool *opened)
{
    s->at = json_space(s->at);
    *opened = false;
    if (*s->at != '{' && *s->at != '[') {
        const char *end = json_scalar_end(s->at);
        s->at = end ? end : s->at;
        return end != NULL;
    }
    char closing = *s->at == '{' ? '}' : ']';
    const char *next = json_space(s->at + 1);
    if (*next == closing) {
        s->at = next + 1;
        return true;
    }
    if (s->depth == JSON_DEPTH_MAX)
        return false;
    s->closing[s->depth++] = closing;
    s->at = next;
    *opened = true;
    return closing == ']' || json_key(s);
}

/* After a value: closes what ends here. *more: another value follows. */
static bool json_after(struct json_scan *s, bool *more)
{
    *more = false;
    while (s->depth > 0) {
        s->at = json_space(s->at);
        char closing = s->closing[s->depth - 1];
        if (*s->at == ',') {
            s->at++;
            *more = true;
            return closing == ']' || json_key(s);
        }
        if (*s->at != closing)
            return false;
        s->at++;
        s->depth--;
    }
    return true;
}

/* The end of the value at p; NULL: *wrong is where it is no JSON. */
static const char *json_end(const char *p, const char **wrong)
{
    struct json_scan s = {.at = p};
    for (bool opened = false, more = true; more;) {
        if (!json_value(&s, &opened) || (!opened && !json_after(&s, &more))) {
            *wrong = s.at;
            return NULL;
        }
    }
    return s.at;
}

const char *json_check(const char *text)
{
    const char *wrong = NULL, *end = json_end(text, &wrong);
    if (!end)
        return wrong;
    end = json_space(end);
    return *end ? end : NULL;
}

/* The value of the member whose key is at p. */
static const char *json_member_value(const char *p)
{
    const char *end = json_string_end(p);
    return end ? json_space(json_space(end) + 1) : NULL;
}

const char *json_first(const char *value)
{
    if (!value || (*value != '[' && *value != '{'))
        return NULL;
    const char *p = json_space(value + 1);
    if (*p == ']' || *p == '}')
        return NULL;
    return *value == '{' ? json_member_value(p) : p;
}

/* The key after the value, in an object; the value, in an array; NULL: it is the last. */
static const char *json_follows(const char *value)
{
    const char *wrong, *end = json_end(value, &wrong);
    end = end ? json_space(end) : NULL;
    return end && *end == ',' ? json_space(end + 1) : NULL;
}

const char *json_next(const char *value)
{
    const char *p = json_follows(value);
    if (!p || *p != '"')
        return p;
    const char *end = json_string_end(p);
    return end && *json_space(end) == ':' ? json_member_value(p) : p;
}

const char *json_member(const char *object, const char *key)
{
    size_t len = strlen(key);
    if (!object || *object != '{')
        return NULL;
    for (const char *p = json_space(object + 1); p && *p == '"';) {
        const char *value = json_member_value(p);
        if (strncmp(p + 1, key, len) == 0 && p[len + 1] == '"')
            return value;
        p = value ? json_follows(value) : NULL;
    }
    return NULL;
}

const char *json_item(const char *array, int index)
{
    if (!array || *array != '[')
        return NULL;
    const char *e = json_first(array);
    for (int i = 0; e && i < index; i++)
        e = json_next(e);
    return e;
}

bool json_int(const char *value, int64_t *out)
{
    const char *end = value ? json_number_end(value) : NULL;
    if (!end || strcspn(value, ".eE") < (size_t)(end - value))
        return false;
    errno = 0;
    *out = strtoll(value, NULL, 10);
    return errno == 0;
}

bool json_number(const char *value, double *out)
{
    if (!value || !json_number_end(value))
        return false;
    *out = strtod(value, NULL);
    return true;
}

bool json_string(const char *value, char *out, size_t size)
{
    const char *end = value && *value == '"' ? json_string_end(value) : NULL;
    size_t n = 0;
    if (!end)
        return false;
    for (const char *p = value + 1; p < end - 1; p++) {
        p += *p == '\\';
        if (n + 1 == size)
            return false;
        out[n++] = *p;
    }
    out[n] = '\0';
    return true;
}

bool json_starts(const char *value, const char *text)
{
    return value && *value == '"' && strncmp(value + 1, text, strlen(text)) == 0;
}
