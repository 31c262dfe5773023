/* SPDX-License-Identifier: Apache-2.0
 *
 * Templates. One scanner cuts the text into literal pieces and names; checking and expanding both
 * use it.
 */
#include "base/template.h"

#include "base/buf.h"
#include "base/quote.h"
#include "base/suggest.h"

#include <stdio.h>
#include <string.h>

static const char *const names[] = {"rank", "local_rank", "host", "run_id", "attempt"};
enum { NNAMES = sizeof names / sizeof names[0] };

static void template_list_names(unsigned allowed, char *out, size_t size)
{
    size_t used = 0;
    out[0] = '\0';
    for (size_t i = 0; i < NNAMES; i++) {
        if (!(allowed & 1u << i) || used >= size)
            continue;
        int n = snprintf(out + used, size - used, "%s{%s}", used ? " " : "", names[i]);
        used += n > 0 ? (size_t)n : 0;
    }
}

static int template_unknown_name(const char *name, size_t len, unsigned allowed, struct diag *d)
{
    char written[64], known[128], text[QUOTE_SIZE];
    const char *choices[NNAMES];
    size_t n = 0;
    for (size_t i = 0; i < NNAMES; i++)
        if (allowed & 1u << i)
            choices[n++] = names[i];
    snprintf(written, sizeof written, "%.*s", (int)(len < 60 ? len : 60), name);
    snprintf(text, sizeof text, "{%s}", written);
    int code = diag_set(d, COLLRUN_ERR_INVALID, "%s has no meaning here",
                        quote(text, (char[QUOTE_SIZE]){0}));
    const char *meant = suggest(written, choices, n);
    template_list_names(allowed, known, sizeof known);
    diag_hint(d, "%s%s%sknown here: %s; write {{ and }} for braces", meant ? "did you mean {" : "",
              meant ? meant : "", meant ? "}? " : "", known);
    return code;
}

/* Reads one piece at *pos: a name (returns its index), or literal text (returns NNAMES). Negative =
 * broken. */
static int template_next_piece(const char *text, size_t *pos, unsigned allowed, const char **piece,
                               size_t *len, struct diag *d)
{
    const char *p = text + *pos;
    if ((p[0] == '{' || p[0] == '}') && p[1] == p[0]) {
        *piece = p;
        *len = 1;
        *pos += 2;
        return NNAMES;
    }
    if (*p == '}') {
        diag_set(d, COLLRUN_ERR_INVALID, "\"}\" without a \"{\" before it");
        return diag_hint(d, "write }} for a brace");
    }
    if (*p != '{') {
        *piece = p;
        *len = strcspn(p, "{}");
        *pos += *len;
        return NNAMES;
    }
    *piece = p + 1;
    *len = strcspn(p + 1, "{}");
    if (p[1 + *len] != '}') {
        diag_set(d, COLLRUN_ERR_INVALID, "\"{\" without a \"}\" after it");
        return diag_hint(d, "write {{ for a brace");
    }
    *pos += *len + 2;
    for (int i = 0; i < NNAMES; i++)
        if (allowed & 1u << i && strlen(names[i]) == *len && memcmp(names[i], *piece, *len) == 0)
            return i;
    return template_unknown_name(*piece, *len, allowed, d);
}

int template_check(const char *text, unsigned allowed, struct diag *d)
{
    for (size_t pos = 0; text[pos];) {
        const char *piece;
        size_t len;
        int which = template_next_piece(text, &pos, allowed, &piece, &len, d);
        if (which < 0)
            return which;
    }
    return 0;
}

const char *template_literal(const char *text, struct arena *arena)
{
    char *out = arena_alloc(arena, 2 * strlen(text) + 1), *end = out;
    for (; out && *text; text++) {
        if (*text == '{' || *text == '}')
            *end++ = *text;
        *end++ = *text;
    }
    if (out)
        *end = '\0';
    return out;
}

static void template_put_value(struct buf *out, int which, const struct template_values *values)
{
    char number[16];
    uint32_t n = which == 0 ? values->rank : which == 1 ? values->local_rank : values->attempt;
    snprintf(number, sizeof number, "%u", n);
    const char *s = which == 2 ? values->host : which == 3 ? values->run_id : number;
    if (which == 0 && values->ranks)
        s = values->ranks;
    if (which == 1 && values->local_ranks)
        s = values->local_ranks;
    if (s)
        buf_put(out, s, strlen(s));
}

int template_expand(const char *text, const struct template_values *values, struct arena *arena,
                    const char **out, struct diag *d)
{
    struct buf buf;
    buf_init(&buf);
    int which = 0;
    for (size_t pos = 0; text[pos] && which >= 0;) {
        const char *piece = NULL;
        size_t len = 0;
        which = template_next_piece(text, &pos, TEMPLATE_ALL, &piece, &len, d);
        if (which == NNAMES)
            buf_put(&buf, piece, len);
        else if (which >= 0)
            template_put_value(&buf, which, values);
    }
    arena->failed = arena->failed || buf.failed; /* for callers that look at it alone */
    char *copy = which < 0 || buf.failed
                     ? NULL
                     : arena_strndup(arena, buf.data ? (char *)buf.data : "", buf.len);
    buf_fini(&buf);
    if (which < 0)
        return which;
    if (!copy)
        return diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory");
    *out = copy;
    return 0;
}
