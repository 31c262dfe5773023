/* SPDX-License-Identifier: Apache-2.0
 *
 * The lines that wait are a queue. A rank looks for an equal line behind its last one: the filter
 * says at once that there is none, which is the common case of ranks whose lines differ, and ranks
 * that write the same find it in the next slot.
 *
 * An entry counts the ranks that have passed it, that is, whose last line of its stream is this one
 * or a later one: when all have, no rank can join it.
 */
#include "report/fold.h"

#include "base/buf.h"
#include "base/parse.h"
#include "base/template.h"
#include "xalloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fold_entry {
    struct fold_line line; /* its text stands behind the set */
    uint64_t due_ns;
    uint32_t npassed;
    uint64_t set[]; /* one bit per rank */
};

enum { FOLD_BITS = 64 };

static size_t fold_set_words(const struct fold *f)
{
    return (f->nranks + FOLD_BITS - 1) / FOLD_BITS;
}

static struct fold_entry *fold_get(const struct fold *f, uint64_t number)
{
    return f->entries[number % FOLD_LINES_MAX];
}

/* FNV-1a */
static uint64_t fold_hash(const struct fold_line *line)
{
    uint64_t h = 0xcbf29ce484222325u ^ line->stream;
    for (size_t i = 0; i < line->len; i++)
        h = (h ^ (unsigned char)line->text[i]) * 0x100000001b3u;
    return h ^ h >> 32;
}

static uint64_t *fold_last(const struct fold *f, uint32_t rank, const struct fold_line *line)
{
    return &f->ranks[rank].last[line->stream - 1];
}

/* ---- showing ---- */

static void fold_drop_first(struct fold *f)
{
    struct fold_entry *e = fold_get(f, f->first);
    f->filter[f->hashes[f->first % FOLD_LINES_MAX] % FOLD_FILTER]--;
    f->bytes -= e->line.len;
    f->first++;
    free(e);
}

static void fold_show_first(struct fold *f)
{
    const struct fold_entry *e = fold_get(f, f->first);
    uint32_t n = 0;
    for (size_t w = 0; w < fold_set_words(f); w++) {
        for (uint64_t left = e->set[w]; left; left &= left - 1)
            f->list[n++] = (uint32_t)(w * FOLD_BITS) + (uint32_t)__builtin_ctzll(left);
    }
    f->show(f->ctx, &e->line, f->list, n);
    fold_drop_first(f);
}

static void fold_show_until(struct fold *f, uint64_t number)
{
    while (f->first < f->next && f->first <= number)
        fold_show_first(f);
}

static void fold_show_passed(struct fold *f)
{
    while (f->first < f->next && fold_get(f, f->first)->npassed == f->nranks)
        fold_show_first(f);
}

void fold_flush(struct fold *f)
{
    fold_show_until(f, UINT64_MAX);
}

void fold_flush_rank(struct fold *f, uint32_t rank)
{
    const uint64_t *last = f->ranks[rank].last;
    fold_show_until(f, last[0] > last[1] ? last[0] : last[1]);
}

void fold_forget(struct fold *f)
{
    while (f->first < f->next)
        fold_drop_first(f);
}

void fold_expire(struct fold *f, uint64_t now_ns)
{
    while (f->first < f->next && fold_get(f, f->first)->due_ns <= now_ns)
        fold_show_first(f);
}

uint64_t fold_due_ns(const struct fold *f)
{
    return f->first < f->next ? fold_get(f, f->first)->due_ns : 0;
}

/* ---- lines that arrive ---- */

/* The first equal line behind the last one of this rank; 0: none. */
static uint64_t fold_find(const struct fold *f, uint32_t rank, const struct fold_line *line,
                          uint64_t hash)
{
    uint64_t i = *fold_last(f, rank, line) + 1;
    if (!f->filter[hash % FOLD_FILTER])
        return 0;
    for (i = i < f->first ? f->first : i; i < f->next; i++) {
        const struct fold_line *other = &fold_get(f, i)->line;
        if (f->hashes[i % FOLD_LINES_MAX] == hash && other->stream == line->stream &&
            other->len == line->len && memcmp(other->text, line->text, line->len) == 0)
            return i;
    }
    return 0;
}

/* Appends the line; returns its number. */
static uint64_t fold_append(struct fold *f, const struct fold_line *line, uint64_t hash,
                            uint64_t now_ns)
{
    const size_t set = fold_set_words(f) * sizeof(uint64_t);
    struct fold_entry *e = xmalloc(sizeof *e + set + line->len);
    char *text = (char *)e->set + set;
    *e = (struct fold_entry){.line = *line, .due_ns = now_ns + FOLD_WINDOW_NS};
    memset(e->set, 0, set);
    memcpy(text, line->text, line->len);
    e->line.text = text;
    e->npassed = f->nleft;
    f->entries[f->next % FOLD_LINES_MAX] = e;
    f->hashes[f->next % FOLD_LINES_MAX] = hash;
    f->filter[hash % FOLD_FILTER]++;
    f->bytes += line->len;
    return f->next++;
}

/* The rank joins no line of this stream up to `number` any more. */
static void fold_pass(struct fold *f, uint32_t rank, unsigned stream, uint64_t number)
{
    const uint64_t last = f->ranks[rank].last[stream - 1];
    for (uint64_t i = last < f->first ? f->first : last + 1; i <= number; i++)
        fold_get(f, i)->npassed += fold_get(f, i)->line.stream == stream;
}

/* The rank has written line `number`, which it joins. */
static void fold_join(struct fold *f, uint32_t rank, uint64_t number)
{
    struct fold_entry *e = fold_get(f, number);
    e->set[rank / FOLD_BITS] |= UINT64_C(1) << rank % FOLD_BITS;
    if (!f->ranks[rank].left)
        fold_pass(f, rank, e->line.stream, number);
    *fold_last(f, rank, &e->line) = number;
}

void fold_add(struct fold *f, uint32_t rank, const struct fold_line *line, uint64_t now_ns)
{
    const uint64_t hash = fold_hash(line);
    uint64_t number = fold_find(f, rank, line, hash);
    while (!number && f->first < f->next &&
           (f->next - f->first == FOLD_LINES_MAX || f->bytes + line->len > FOLD_BYTES_MAX))
        fold_show_first(f);
    fold_join(f, rank, number ? number : fold_append(f, line, hash, now_ns));
    fold_show_passed(f);
}

void fold_leave(struct fold *f, uint32_t rank)
{
    struct fold_rank *r = &f->ranks[rank];
    if (r->left)
        return;
    fold_pass(f, rank, 1, f->next - 1);
    fold_pass(f, rank, 2, f->next - 1);
    r->left = true;
    f->nleft++;
    fold_show_passed(f);
}

/* ---- making it ---- */

struct fold *fold_new(uint32_t nranks, fold_show_fn *show, void *ctx)
{
    struct fold *f = xcalloc(1, sizeof *f);
    f->show = show;
    f->ctx = ctx;
    f->nranks = nranks;
    f->first = f->next = 1;
    f->ranks = xcalloc(nranks, sizeof *f->ranks);
    f->list = xcalloc(nranks, sizeof *f->list);
    f->entries = xcalloc(FOLD_LINES_MAX, sizeof(struct fold_entry *));
    f->hashes = xcalloc(FOLD_LINES_MAX, sizeof *f->hashes);
    return f;
}

void fold_free(struct fold *f)
{
    if (!f)
        return;
    fold_forget(f);
    free(f->ranks);
    free(f->list);
    free(f->entries);
    free(f->hashes);
    free(f);
}

/* ---- label ---- */

/* Sorts the numbers, and keeps one of each. */
static uint32_t label_unique(uint32_t *numbers, uint32_t n)
{
    uint32_t kept = 0;
    qsort(numbers, n, sizeof *numbers, rank_compare);
    for (uint32_t i = 0; i < n; i++) {
        if (!kept || numbers[kept - 1] != numbers[i])
            numbers[kept++] = numbers[i];
    }
    return kept;
}

static const char *label_take(struct buf *text, struct arena *arena)
{
    const char *copy = arena_strndup(arena, text->data ? (char *)text->data : "", text->len);
    buf_fini(text);
    return copy;
}

/* "0-3,6": a rank set as in job.yaml */
static const char *label_set(const uint32_t *numbers, uint32_t n, struct arena *arena)
{
    struct buf text;
    buf_init(&text);
    for (uint32_t i = 0, last; i < n; i = last + 1) {
        char range[32];
        last = i;
        while (last + 1 < n && numbers[last + 1] == numbers[last] + 1)
            last++;
        int len = snprintf(range, sizeof range, last > i ? "%s%u-%u" : "%s%u", i ? "," : "",
                           numbers[i], numbers[last]);
        buf_put(&text, range, (size_t)len);
    }
    return label_take(&text, arena);
}

static const char *label_hosts(const struct desc *desc, const uint32_t *hosts, uint32_t n,
                               struct arena *arena)
{
    struct buf text;
    if (n > LABEL_HOSTS_MAX)
        return arena_printf(arena, "%u hosts", n);
    buf_init(&text);
    for (uint32_t i = 0; i < n; i++) {
        const char *name = desc->hosts[hosts[i]].name;
        buf_put(&text, ",", i > 0);
        buf_put(&text, name, strlen(name));
    }
    return label_take(&text, arena);
}

/* The sets of several ranks, in place of the numbers of one. */
static void label_put_sets(const struct desc *desc, const uint32_t *ranks, uint32_t n,
                           struct arena *arena, struct template_values *values)
{
    uint32_t *numbers = arena_calloc(arena, n, sizeof *numbers);
    values->ranks = label_set(ranks, n, arena);
    for (uint32_t i = 0; i < n; i++)
        numbers[i] = desc->ranks[ranks[i]].local_rank;
    values->local_ranks = label_set(numbers, label_unique(numbers, n), arena);
    for (uint32_t i = 0; i < n; i++)
        numbers[i] = desc->ranks[ranks[i]].host;
    values->host = label_hosts(desc, numbers, label_unique(numbers, n), arena);
}

int label_make(const struct desc *desc, const char *template, const uint32_t *ranks, uint32_t n,
               struct arena *arena, const char **out)
{
    const struct desc_rank *first = &desc->ranks[ranks[0]];
    struct template_values values = {.rank = ranks[0],
                                     .local_rank = first->local_rank,
                                     .attempt = desc->attempt,
                                     .host = desc->hosts[first->host].name,
                                     .run_id = desc->run_id};
    const char *label;
    if (n > 1)
        label_put_sets(desc, ranks, n, arena, &values);
    int rc = template_expand(template, &values, arena, &label, NULL);
    if (rc != COLLRUN_OK)
        return rc;
    *out = label[0] ? arena_printf(arena, "%s ", label) : "";
    return COLLRUN_OK;
}
