/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/groups.h"

#include "base/quote.h"
#include "xalloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND_NS 1000000000ull

enum { TABLE = 2 * TRACE_GROUPS_MOST, CALLS_PER_SECOND = 1000 };

void trace_groups_init(struct trace_groups *g)
{
    *g = (struct trace_groups){.n = 1, .capacity = 64};
    g->items = xcalloc(g->capacity, sizeof *g->items);
    g->table = xcalloc(TABLE, sizeof *g->table);
    snprintf(g->items[0].name, sizeof g->items[0].name, "?");
}

void trace_groups_fini(struct trace_groups *g)
{
    for (uint32_t i = 0; g->items && i < g->n; i++) {
        free(g->items[i].ranks);
        free(g->items[i].text);
        free(g->items[i].calls);
    }
    free(g->items);
    free(g->table);
    *g = (struct trace_groups){0};
}

/* ---- members ---- */

static uint32_t trace_groups_hash(const char *scope)
{
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (; *scope; scope++)
        hash = (hash ^ (unsigned char)*scope) * 1099511628211u;
    return (uint32_t)(hash ^ hash >> 32);
}

/* 0: there is no room. */
static uint32_t trace_groups_add(struct trace_groups *g, const struct trace_member *m)
{
    if (g->n == TRACE_GROUPS_MOST)
        return 0;
    if (g->n == g->capacity) {
        g->capacity *= 2;
        g->items = xrealloc(g->items, g->capacity, sizeof *g->items);
    }
    struct trace_group *item = &g->items[g->n];
    *item = (struct trace_group){.size = m->size, .stride = 1};
    snprintf(item->name, sizeof item->name, "%s", m->name);
    snprintf(item->scope, sizeof item->scope, "%s", m->scope);
    item->ranks = xmalloc(m->size * sizeof *item->ranks);
    item->calls = m->size > 1 ? xcalloc(TRACE_GROUPS_WINDOW, sizeof *item->calls) : NULL;
    for (uint32_t i = 0; i < m->size; i++)
        item->ranks[i] = UINT32_MAX;
    return g->n++;
}

static void trace_groups_list(struct trace_group *item)
{
    char text[TRACE_GROUPS_LISTED * 12 + 4];
    size_t len = 0;
    for (uint32_t i = 0; i < item->size; i++) {
        if (item->ranks[i] == UINT32_MAX)
            return;
        len +=
            (size_t)snprintf(text + len, sizeof text - len, "%s%u", i ? ", " : "[", item->ranks[i]);
    }
    snprintf(text + len, sizeof text - len, "]");
    item->text = xstrdup(text);
}

static uint32_t trace_groups_find(struct trace_groups *g, const struct trace_member *m)
{
    for (uint32_t at = trace_groups_hash(m->scope);; at++) {
        uint32_t *slot = &g->table[at % TABLE];
        if (!*slot) {
            uint32_t index = trace_groups_add(g, m);
            *slot = index ? index + 1 : 0;
            return index;
        }
        if (strcmp(g->items[*slot - 1].scope, m->scope) == 0)
            return *slot - 1;
    }
}

uint32_t trace_groups_join(struct trace_groups *g, const struct trace_member *m)
{
    uint32_t index = trace_groups_find(g, m);
    struct trace_group *item = &g->items[index];
    if (!index || !item->ranks || m->group_rank >= item->size)
        return index;
    item->ranks[m->group_rank] = m->rank;
    if (!item->text && item->size <= TRACE_GROUPS_LISTED)
        trace_groups_list(item);
    return index;
}

/* ---- skew ---- */

static void trace_groups_set_stride(struct trace_group *item, uint64_t number, uint64_t called_ns)
{
    uint64_t passed = called_ns > item->begin_ns ? called_ns - item->begin_ns : 1;
    double rate = (double)number * (double)SECOND_NS / (double)passed;
    item->stride = 1;
    while ((double)item->stride * (double)CALLS_PER_SECOND < rate && item->stride < (1u << 20))
        item->stride *= 2;
}

bool trace_groups_call(struct trace_groups *g, uint32_t group, uint64_t number, uint64_t called_ns,
                       struct trace_call *out)
{
    struct trace_group *item = &g->items[group];
    if (!item->calls)
        return false;
    if (!item->begin_ns)
        item->begin_ns = called_ns;
    if (number % TRACE_GROUPS_WINDOW == 0)
        trace_groups_set_stride(item, number, called_ns);
    if (number & (item->stride - 1))
        return false;
    struct trace_call *c = &item->calls[number / item->stride % TRACE_GROUPS_WINDOW];
    if (c->number != number)
        *c = (struct trace_call){.number = number, .first_ns = called_ns, .last_ns = called_ns};
    c->first_ns = called_ns < c->first_ns ? called_ns : c->first_ns;
    c->last_ns = called_ns > c->last_ns ? called_ns : c->last_ns;
    c->seen++;
    *out = *c;
    return c->seen == item->size;
}

/* ---- line ---- */

char *trace_line_put(char *at, const char *text, size_t len)
{
    memcpy(at, text, len);
    return at + len;
}

/* Two digits at a time: most of a trace is numbers. */
static const char pairs[] =
    "00010203040506070809101112131415161718192021222324252627282930313233343536"
    "37383940414243444546474849505152535455565758596061626364656667686970717273"
    "7475767778798081828384858687888990919293949596979899";

char *trace_line_number(char *at, uint64_t number)
{
    char digits[20];
    size_t n = sizeof digits;
    for (; number >= 100; number /= 100)
        memcpy(digits + (n -= 2), pairs + number % 100 * 2, 2);
    if (number >= 10)
        memcpy(digits + (n -= 2), pairs + number * 2, 2);
    else
        digits[--n] = (char)('0' + number);
    return trace_line_put(at, digits + n, sizeof digits - n);
}

char *trace_line_signed(char *at, int64_t number)
{
    if (number < 0)
        *at++ = '-';
    return trace_line_number(at, number < 0 ? -(uint64_t)number : (uint64_t)number);
}

char *trace_line_us(char *at, uint64_t ns)
{
    uint64_t part = ns % 1000;
    at = trace_line_number(at, ns / 1000);
    *at++ = '.';
    *at++ = (char)('0' + part / 100);
    return trace_line_put(at, pairs + part % 100 * 2, 2);
}

static char *trace_line_character(char *at, unsigned char c)
{
    static const char hex[] = "0123456789abcdef";
    if (c == '"' || c == '\\') {
        *at++ = '\\';
        *at++ = (char)c;
        return at;
    }
    at = TRACE_LINE_LITERAL(at, "\\u00");
    *at++ = hex[c >> 4];
    *at++ = hex[c & 15];
    return at;
}

char *trace_line_string(char *at, const char *text)
{
    size_t len = strlen(text), n;
    *at++ = '"';
    for (size_t i = 0; i < len; i += n) {
        unsigned char c = (unsigned char)text[i];
        n = utf8_len(text + i, len - i);
        if (c < ' ' || c == '"' || c == '\\' || c == 127) {
            at = trace_line_character(at, c);
            n = 1;
        } else if (n) {
            at = trace_line_put(at, text + i, n);
        } else {
            *at++ = '?';
            n = 1;
        }
    }
    *at++ = '"';
    return at;
}
