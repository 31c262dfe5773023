/* SPDX-License-Identifier: Apache-2.0
 *
 * A result of bench.c that was saved as JSON: finds a row in it, and judges the median of now
 * against the one of then.
 *
 * - The ratio of the medians lies in an interval: from the low end of now by the high end of then,
 *   to the high end of now by the low end of then (bench_rows.h).
 * - slower, faster: all of the interval is beyond the tolerance. same: all of it is within.
 * unclear: anything else; more calls, or a quieter machine, narrow the interval.
 *
 * A file is read only if all of it is JSON, which saved_open tests; the other functions rely on it.
 */
#ifndef BENCH_SAVED_H
#define BENCH_SAVED_H

#include "bench_rows.h"

#include <errno.h>

enum { SAVED_DEPTH_MAX = 32, SAVED_SIZE_MAX = 64 << 20 };

struct saved {
    char *text; /* owned; NULL: no file */
    const char *results;
};

enum saved_verdict { SAVED_MISSING, SAVED_SLOWER, SAVED_FASTER, SAVED_SAME, SAVED_UNCLEAR };

struct saved_ratio { /* now by then */
    double then, ratio, low, high;
    enum saved_verdict verdict;
};

static inline const char *saved_space(const char *p)
{
    return p + strspn(p, " \t\r\n");
}

/* The end of a string; NULL: it has none. */
static inline const char *saved_string_end(const char *p)
{
    for (p++; *p && *p != '"'; p++)
        p += *p == '\\' && p[1];
    return *p ? p + 1 : NULL;
}

/* The end of the value at p; NULL: no JSON. Nested values are followed with a stack of brackets. */
static inline const char *saved_end(const char *p)
{
    char closing[SAVED_DEPTH_MAX];
    int depth = 0;
    do {
        p = saved_space(p);
        if (*p == '{' || *p == '[') {
            if (depth == SAVED_DEPTH_MAX)
                return NULL;
            closing[depth++] = *p++ == '{' ? '}' : ']';
        } else if (*p == '}' || *p == ']') {
            if (!depth || closing[--depth] != *p++)
                return NULL;
        } else if (*p == '"') {
            p = saved_string_end(p);
        } else if ((*p == ',' || *p == ':') && depth) {
            p++;
        } else {
            size_t len = strspn(p, "+-.0123456789abcdefghijklmnopqrstuvwxyzE");
            p = len ? p + len : NULL;
        }
    } while (p && depth);
    return p;
}

/* The first member of an object or item of an array, or the one after the value at p; NULL: none.
 */
static inline const char *saved_first(const char *p)
{
    p = *p == '{' || *p == '[' ? saved_space(p + 1) : "]";
    return *p == '}' || *p == ']' ? NULL : p;
}

static inline const char *saved_next(const char *p)
{
    p = saved_end(p);
    p = p ? saved_space(p) : "";
    return *p == ',' || *p == ':' ? saved_space(p + 1) : NULL;
}

/* The value of a member; NULL: there is none. */
static inline const char *saved_member(const char *object, const char *name)
{
    size_t len = strlen(name);
    const char *value;
    for (const char *key = saved_first(object); key; key = saved_next(value)) {
        value = saved_next(key);
        if (!value)
            return NULL;
        if (*key == '"' && strncmp(key + 1, name, len) == 0 && key[len + 1] == '"')
            return value;
    }
    return NULL;
}

static inline bool saved_is(const char *object, const char *name, const char *text)
{
    const char *value = saved_member(object, name);
    size_t len = strlen(text);
    return value && *value == '"' && strncmp(value + 1, text, len) == 0 && value[len + 1] == '"';
}

/* A number; -1 if it is none. */
static inline double saved_number(const char *object, const char *name)
{
    const char *value = saved_member(object, name);
    return value && strchr("-0123456789", *value) ? strtod(value, NULL) : -1;
}

/* Reads the file. NULL, or what is wrong with it. */
static inline const char *saved_open(struct saved *s, const char *path)
{
    FILE *in = fopen(path, "re");
    if (!in)
        return strerror(errno);
    s->text = calloc(1, SAVED_SIZE_MAX + 1);
    size_t len = s->text ? fread(s->text, 1, SAVED_SIZE_MAX, in) : 0;
    bool good = s->text && !ferror(in) && len < SAVED_SIZE_MAX;
    fclose(in);
    if (!good)
        return "it cannot be read, or is too large";
    const char *end = saved_end(s->text);
    const char *object = saved_space(s->text);
    if (!end || *saved_space(end) || !saved_is(object, "format", "collrun-bench"))
        return "it is no JSON of the bench workload";
    s->results = saved_member(object, "results");
    return s->results && *s->results == '[' ? NULL : "it has no results";
}

static inline void saved_close(struct saved *s)
{
    free(s->text);
    *s = (struct saved){0};
}

/* The form of the row that was measured under the same conditions; NULL: there is none. */
static inline const char *saved_find(const struct saved *s, const struct row *row, int in_place)
{
    for (const char *r = saved_first(s->results); r; r = saved_next(r)) {
        bool same = *r == '{' && saved_is(r, "operation", row->operation) &&
                    saved_is(r, "phase", row->phase) && saved_is(r, "type", row->type) &&
                    saved_is(r, "redop", row->redop) &&
                    saved_number(r, "size") == (double)row->size &&
                    (int)saved_number(r, "root") == row->root;
        const char *form = same ? saved_member(r, in_place ? "in_place" : "out_of_place") : NULL;
        if (form && *form == '{')
            return form;
    }
    return NULL;
}

/* c->then is set. */
static inline void saved_judge(struct saved_ratio *c, const struct form *now, double then_low,
                               double then_high, double tolerance)
{
    double most = 1 + tolerance;
    c->ratio = now->p50 / c->then;
    c->low = now->low / then_high;
    c->high = now->high / then_low;
    c->verdict = SAVED_UNCLEAR;
    if (c->low > most)
        c->verdict = SAVED_SLOWER;
    else if (c->high < 1 / most)
        c->verdict = SAVED_FASTER;
    else if (c->low >= 1 / most && c->high <= most)
        c->verdict = SAVED_SAME;
}

static inline struct saved_ratio saved_compare(const struct saved *s, const struct row *row,
                                               int in_place, double tolerance)
{
    struct saved_ratio c = {.verdict = SAVED_MISSING};
    const struct form *now = &row->forms[in_place];
    const char *form = saved_find(s, row, in_place);
    const char *interval = form ? saved_member(form, "interval") : NULL;
    const char *low = interval ? saved_first(interval) : NULL;
    const char *high = low ? saved_next(low) : NULL;
    c.then = form ? saved_number(form, "p50") : -1;
    double then_low = high ? strtod(low, NULL) : -1, then_high = high ? strtod(high, NULL) : -1;
    if (!(c.then > 0) || !(then_low > 0) || !(then_high > 0))
        return c;
    saved_judge(&c, now, then_low, then_high, tolerance);
    return c;
}

#endif
