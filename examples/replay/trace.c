/* SPDX-License-Identifier: Apache-2.0
 *
 * The operations and groups of a trace; see trace.h. Arrays grow by doubling.
 */
#include "trace.h"

#include <collrun/collrun.h>

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int trace_fail(struct trace *t, uint64_t place, const char *format, ...)
{
    va_list args;
    if (t->error[0])
        return -1;
    int n = place != TRACE_FILE ? snprintf(t->error, sizeof t->error, "%s: %s %llu: ", t->file,
                                           t->unit, (unsigned long long)place)
                                : snprintf(t->error, sizeof t->error, "%s: ", t->file);
    if (n < 0 || (size_t)n >= sizeof t->error)
        return -1;
    va_start(args, format);
    (void)vsnprintf(t->error + n, sizeof t->error - (size_t)n, format, args);
    va_end(args);
    return -1;
}

int trace_grow(struct trace *t, void **array, size_t *room, size_t need, size_t width)
{
    if (need <= *room)
        return 0;
    size_t more = *room ? *room : 64;
    while (more < need)
        more *= 2;
    void *grown = realloc(*array, more * width);
    if (!grown)
        return trace_fail(t, TRACE_FILE, "out of memory for %zu entries", more);
    *array = grown;
    *room = more;
    return 0;
}

struct op *trace_add(struct trace *t, uint64_t place)
{
    void *ops = t->ops;
    if (trace_grow(t, &ops, &t->ops_room, t->nops + 1, sizeof *t->ops))
        return NULL;
    t->ops = ops;
    struct op *op = &t->ops[t->nops++];
    *op = (struct op){.place = place, .peer = -1};
    return op;
}

int trace_add_call(struct trace *t, size_t op)
{
    void *calls = t->calls;
    if (trace_grow(t, &calls, &t->calls_room, t->ncalls + 1, sizeof *t->calls))
        return -1;
    t->calls = calls;
    t->calls[t->ncalls++] = op;
    return 0;
}

int trace_add_counts(struct trace *t, size_t n, size_t *index)
{
    void *counts = t->counts;
    if (trace_grow(t, &counts, &t->counts_room, t->ncounts + n, sizeof *t->counts))
        return -1;
    t->counts = counts;
    *index = t->ncounts;
    memset(t->counts + t->ncounts, 0, n * sizeof *t->counts);
    t->ncounts += n;
    return 0;
}

int trace_add_group(struct trace *t, const char *name, int size)
{
    if (t->ngroups == TRACE_GROUPS_MAX)
        return trace_fail(t, TRACE_FILE, "more than %d groups", TRACE_GROUPS_MAX);
    if (strlen(name) >= TRACE_NAME_MAX)
        return trace_fail(t, TRACE_FILE, "the name of a group has more than %d bytes",
                          TRACE_NAME_MAX - 1);
    if (size < 1 || size > TRACE_RANKS_MAX)
        return trace_fail(t, TRACE_FILE, "group %s has %d ranks", name, size);
    struct trace_group *groups = realloc(t->groups, ((size_t)t->ngroups + 1) * sizeof *groups);
    int *ranks = calloc((size_t)size, sizeof *ranks);
    if (groups)
        t->groups = groups;
    if (!groups || !ranks) {
        free(ranks);
        return trace_fail(t, TRACE_FILE, "out of memory for %d ranks", size);
    }
    struct trace_group *g = &groups[t->ngroups];
    *g = (struct trace_group){.ranks = ranks, .size = size};
    snprintf(g->name, sizeof g->name, "%s", name);
    for (int i = 0; i < size; i++)
        ranks[i] = i;
    return t->ngroups++;
}

int trace_find_group(const struct trace *t, const char *name)
{
    for (int i = 0; i < t->ngroups; i++)
        if (strcmp(t->groups[i].name, name) == 0)
            return i;
    return -1;
}

int trace_group_rank(const struct trace_group *g, int rank)
{
    for (int i = 0; i < g->size; i++)
        if (g->ranks[i] == rank)
            return i;
    return -1;
}

size_t trace_bytes(const struct trace *t, const struct op *op)
{
    const struct trace_group *g = &t->groups[op->group];
    size_t width = collrun_dtype_size(op->dtype), sent = 0, received = 0;
    switch (op->kind) {
    case COLLRUN_ALLGATHER:
    case COLLRUN_ALLTOALL:
    case COLLRUN_REDUCE_SCATTER:
        return op->count * (size_t)g->size * width;
    case COLLRUN_ALLTOALLV:
        for (int i = 0; i < g->size; i++) {
            sent += t->counts[op->counts + (size_t)i];
            received += t->counts[op->counts + (size_t)(g->size + i)];
        }
        return (sent > received ? sent : received) * width;
    default:
        return op->count * width;
    }
}

const char *trace_kind_name(int kind)
{
    static const char *const names[TRACE_KINDS] = {
        "barrier",         "allreduce",  "reduce",  "broadcast",
        "allgather",       "gather",     "scatter", "reduce_scatter",
        "alltoall",        "allgatherv", "gatherv", "scatterv",
        "reduce_scatterv", "alltoallv",  "send",    "recv",
        "recv_any",        "scan",       "exscan",  "wait"};
    return kind >= 0 && kind < TRACE_KINDS ? names[kind] : "?";
}

const char *trace_dtype_name(enum collrun_dtype dtype)
{
    static const char *const names[COLLRUN_DTYPE_COUNT] = {
        "int8",   "uint8",   "int16",    "uint16",  "int32",   "uint32", "int64",
        "uint64", "float16", "bfloat16", "float32", "float64", "bool"};
    return names[dtype];
}

int trace_dtype_of_size(int64_t bytes)
{
    switch (bytes) {
    case 1:
        return COLLRUN_UINT8;
    case 2:
        return COLLRUN_INT16;
    case 4:
        return COLLRUN_INT32;
    case 8:
        return COLLRUN_FLOAT64;
    default:
        return -1;
    }
}

void trace_fini(struct trace *t)
{
    for (int i = 0; i < t->ngroups; i++)
        free(t->groups[i].ranks);
    free(t->groups);
    free(t->counts);
    free(t->calls);
    free(t->ops);
    *t = (struct trace){0};
}

/* ---- JSON ---- */

/* Infinity, NaN, and whole numbers above 64 bits become other numbers of the same length, as no
 * reader needs their values; p is where the number begins. */
static void trace_json_number(char *p)
{
    size_t len = strcspn(p, " \t\r\n,]}");
    if (strspn(p, "-0123456789") == len && len >= 19) {
        errno = 0;
        (void)strtoll(p, NULL, 10);
        if (errno)
            memcpy(p + len - 2, "e0", 2); /* a real number */
    } else if (strncmp(p, "NaN", 3) == 0 || strncmp(p + (*p == '-'), "Infinity", 8) == 0) {
        memset(p, ' ', len);
        *p = '0';
    }
}

/* Changes the numbers from the next value to the end of the text. */
static void trace_json_mend(struct trace_json *j)
{
    bool string = false, begins = true; /* a value */
    for (char *p = j->text + j->next; p < j->text + j->len; p++) {
        if (string && *p == '\\' && p[1])
            p++;
        else if (*p == '"')
            string = !string;
        else if (!string && begins && strchr("-0123456789IN", *p) && *p)
            trace_json_number(p);
        begins = !string && (strchr(":[,", *p) || (begins && strchr(" \t\r\n", *p)));
    }
    j->mended = true;
}

static int trace_json_fail(struct trace_json *j, int offset, const char *what)
{
    return trace_fail(j->t, TRACE_FILE, "byte %zu of %zu is no JSON: %s", j->next + (size_t)offset,
                      j->len, what);
}

/* Skips white space, and the character if it follows; '\0': whether the text ends. */
static bool trace_json_skip(struct trace_json *j, char c)
{
    j->next += strspn(j->text + j->next, " \t\r\n");
    if (j->text[j->next] != c || (j->next == j->len) != (c == '\0'))
        return false;
    j->next += c != '\0';
    return true;
}

/* The next value; NULL: the error is set. */
static json_t *trace_json_value(struct trace_json *j)
{
    const size_t flags = JSON_DECODE_ANY | JSON_DISABLE_EOF_CHECK;
    json_error_t e;
    json_t *value = json_loadb(j->text + j->next, j->len - j->next, flags, &e);
    if (!value && !j->mended) {
        /* Few files have such numbers: the others are not searched for them. */
        trace_json_mend(j);
        value = json_loadb(j->text + j->next, j->len - j->next, flags, &e);
    }
    if (!value)
        trace_json_fail(j, e.position, e.text);
    else
        j->next += (size_t)e.position;
    return value;
}

static int trace_json_take(struct trace_json *j)
{
    j->at = j->next;
    json_t *value = trace_json_value(j);
    j->value = value;
    int rc = value ? j->take(j) : -1;
    json_decref(value);
    return rc;
}

/* The items of the array that begins here. */
static int trace_json_items(struct trace_json *j)
{
    json_t *array = json_array();
    j->value = array;
    j->item = 0;
    int rc = array ? j->take(j) : trace_fail(j->t, TRACE_FILE, "out of memory");
    json_decref(array);
    if (rc || trace_json_skip(j, ']'))
        return rc;
    do {
        j->item++;
        rc = trace_json_take(j);
    } while (!rc && trace_json_skip(j, ','));
    return rc || trace_json_skip(j, ']') ? rc : trace_json_fail(j, 0, "']' expected");
}

static int trace_json_member(struct trace_json *j)
{
    json_t *key = trace_json_value(j);
    int rc = key ? 0 : -1;
    j->key = json_string_value(key);
    j->item = 0;
    if (key && (!j->key || !trace_json_skip(j, ':')))
        rc = trace_json_fail(j, 0, "a key and ':' expected");
    if (!rc)
        rc = trace_json_skip(j, '[') ? trace_json_items(j) : trace_json_take(j);
    json_decref(key);
    return rc;
}

int trace_json_read(struct trace_json *j)
{
    int rc = 0;
    if (!trace_json_skip(j, '{'))
        return 0;
    if (!trace_json_skip(j, '}')) {
        do
            rc = trace_json_member(j);
        while (!rc && trace_json_skip(j, ','));
        if (!rc && !trace_json_skip(j, '}'))
            rc = trace_json_fail(j, 0, "'}' expected");
    }
    if (!rc && !trace_json_skip(j, '\0'))
        rc = trace_json_fail(j, 0, "the end of the file expected");
    return rc;
}

json_t *trace_json_again(struct trace_json *j, size_t at)
{
    j->next = at;
    return trace_json_value(j);
}

bool trace_json_int(const json_t *value, int64_t *out)
{
    if (json_is_integer(value))
        *out = json_integer_value(value);
    return json_is_integer(value);
}

bool trace_json_text(const json_t *value, char *out, size_t size)
{
    const char *text = json_string_value(value);
    return text && snprintf(out, size, "%s", text) < (int)size;
}
