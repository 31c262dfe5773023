/* SPDX-License-Identifier: Apache-2.0
 *
 * Values as YAML. Quotes are double, since only these can hold every character: control characters
 * and what YAML does not allow in a file are escaped.
 */
#include "spec/emit.h"

#include "base/parse.h"
#include "base/quote.h"
#include "spec/source.h"

#include <stdlib.h>
#include <string.h>

/* ---- scalars ---- */

/* True for what source.c refuses in a file, and for line breaks. */
static bool emit_needs_escape(uint32_t c)
{
    return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x2028 || c == 0x2029 || c == 0xfeff ||
           c == 0xfffe || c == 0xffff;
}

static void emit_character(const char *at, size_t len, FILE *out)
{
    const uint32_t c = utf8_code(at, len);
    if (c == '\n')
        fputs("\\n", out);
    else if (emit_needs_escape(c))
        fprintf(out, c <= 0xff ? "\\x%02x" : "\\u%04x", c);
    else if (c == '"' || c == '\\')
        fprintf(out, "\\%c", (int)c);
    else
        fwrite(at, 1, len, out);
}

static void emit_quoted(const char *text, enum emit_dollars dollars, FILE *out)
{
    fputc('"', out);
    for (size_t left = strlen(text), n; left; text += n, left -= n) {
        n = utf8_len(text, left) ? utf8_len(text, left) : 1;
        if (dollars == EMIT_SECRETS && *text == EMIT_SECRET_DOLLAR &&
            strncmp(text + 1, "{env:", 5) == 0)
            fputc('$', out);
        else if (*text == '$')
            fputs(dollars == EMIT_AS_WRITTEN ? "$" : "$$", out);
        else
            emit_character(text, n, out);
    }
    fputc('"', out);
}

static bool emit_is_bare(const char *text)
{
    static const char bare[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789.+/-";
    const struct node plain = {.kind = NODE_SCALAR, .plain = true, .text = text};
    return !node_is_null(&plain) && !text[strspn(text, bare)] && text[0] != '-';
}

void emit_text(const char *text, enum emit_dollars dollars, FILE *out)
{
    if (emit_is_bare(text))
        fputs(text, out);
    else
        emit_quoted(text, dollars, out);
}

/* ---- trees ---- */

static void emit_scalar(const struct node *node, FILE *out)
{
    double number;
    bool flag;
    const bool typed =
        parse_float(node->text, &number, NULL) == 0 || parse_bool(node->text, &flag, NULL) == 0;
    if (node->written && strstr(node->written, "${env:"))
        emit_quoted(node->written, EMIT_AS_WRITTEN, out);
    else if (node_is_null(node))
        fputs("null", out);
    else if (typed && (node->plain || node->written)) /* what a variable made is a number */
        fputs(node->text, out); /* a string that looks like a number keeps its quotes */
    else if (typed)
        emit_quoted(node->text, EMIT_DOLLARS, out);
    else
        emit_text(node->text, EMIT_DOLLARS, out);
}

static void emit_flow(const struct node *node, FILE *out)
{
    if (node->kind == NODE_SCALAR) {
        emit_scalar(node, out);
        return;
    }
    const bool map = node->kind == NODE_MAP;
    fputc(map ? '{' : '[', out);
    for (uint32_t i = 0; i < node->n; i++) {
        fputs(i ? ", " : "", out);
        if (map) {
            emit_text(node->entries[i].key, EMIT_DOLLARS, out);
            fputs(": ", out);
        }
        emit_flow(map ? node->entries[i].value : node->items[i], out);
    }
    fputc(map ? '}' : ']', out);
}

void emit_tree(const struct node *root, FILE *out)
{
    for (uint32_t i = 0; i < root->n; i++) {
        const struct node *value = root->entries[i].value;
        const bool list = value->kind == NODE_LIST && value->n;
        emit_text(root->entries[i].key, EMIT_DOLLARS, out);
        fputs(list ? ":\n" : ": ", out);
        for (uint32_t k = 0; list && k < value->n; k++) {
            fputs("  - ", out);
            emit_flow(value->items[k], out);
            fputc('\n', out);
        }
        if (!list) {
            emit_flow(value, out);
            fputc('\n', out);
        }
    }
}

/* ---- with origins ---- */

enum { EMIT_ORIGIN_COLUMN = 48 };

struct emit_lines {
    const char *file; /* of the job */
    FILE *out;
};

/* A list of scalars from one line, and what has no parts, stand on one line. */
static bool emit_fits_line(const struct node *node)
{
    if (node->kind == NODE_SCALAR || !node->n)
        return true;
    for (uint32_t i = 0; node->kind == NODE_LIST && i < node->n; i++) {
        const struct node *item = node->items[i];
        if (item->kind != NODE_SCALAR || item->loc.line != node->loc.line ||
            item->loc.file != node->loc.file)
            return false;
    }
    return node->kind == NODE_LIST;
}

/* A file may have any name; a comment ends with its line. */
static void emit_put_name(const char *name, FILE *out)
{
    for (size_t left = strlen(name), n; left; name += n, left -= n) {
        n = utf8_shown_len(name, left);
        if (n)
            fwrite(name, 1, n, out);
        else
            fputc('?', out);
        n = n ? n : 1;
    }
}

static void emit_origin(const struct emit_lines *e, const char *line, struct diag_loc loc)
{
    const int len = (int)strlen(line), gap = EMIT_ORIGIN_COLUMN - len;
    fputs(line, e->out);
    if (loc.line) {
        fprintf(e->out, "%*s # ", gap > 0 ? gap : 0, "");
        emit_put_name(loc.file ? loc.file : e->file, e->out);
    }
    if (loc.line && !source_is_option(loc.file))
        fprintf(e->out, ":%u", loc.line);
    fputc('\n', e->out);
}

static void emit_block(const struct emit_lines *e, const struct node *node, uint32_t indent);

/* "key: value", or "key:" and the lines of the value; an item of a list has no key. */
static void emit_member(const struct emit_lines *e, const char *key, struct diag_loc loc,
                        const struct node *value, uint32_t indent)
{
    char *line = NULL;
    size_t len = 0;
    FILE *text = text_stream_open(&line, &len);
    const bool fits = emit_fits_line(value);
    fprintf(text, "%*s", (int)indent, "");
    if (key)
        emit_text(key, EMIT_DOLLARS, text);
    fputs(key ? ":" : "-", text);
    if (fits) {
        fputc(' ', text);
        emit_flow(value, text);
    }
    text_stream_close(text, &line);
    emit_origin(e, line, fits && value->loc.line ? value->loc : loc);
    free(line);
    if (!fits)
        emit_block(e, value, indent + 2);
}

static void emit_block(const struct emit_lines *e, const struct node *node, uint32_t indent)
{
    for (uint32_t i = 0; i < node->n; i++) {
        if (node->kind == NODE_MAP)
            emit_member(e, node->entries[i].key, node->entries[i].loc, node->entries[i].value,
                        indent);
        else
            emit_member(e, NULL, node->items[i]->loc, node->items[i], indent);
    }
}

void emit_with_origins(const struct node *root, const char *file, FILE *out)
{
    emit_block(&(struct emit_lines){file, out}, root, 0);
}
