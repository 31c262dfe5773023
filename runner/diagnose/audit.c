/* SPDX-License-Identifier: Apache-2.0
 *
 * Each group has a row for each number whose marks are compared, and in it a mark for each member.
 *
 * - A row whose marks are complete and equal makes itself and all rows below it superfluous.
 * - Rows have fixed places by their number; a newer number takes the place of an older one. Ranks
 *   that are far apart therefore meet at a multiple of 64 or of 4096.
 */
#include "diagnose/audit.h"

#include "base/parse.h"
#include "xalloc.h"

#include <collrun/types.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    AUDIT_BUCKETS = 256,
    AUDIT_NUMBERS = 128, /* rows for numbers that are no multiple of 64 */
    AUDIT_MULTIPLES = 64,
    AUDIT_ROWS = AUDIT_NUMBERS + 2 * AUDIT_MULTIPLES,
    AUDIT_MARK_LEN = 32, /* in a frame */
    AUDIT_GROUP_LEN = 37
};

struct audit_mark {
    uint64_t signature, pairs, called_ns;
    bool known;
};

struct audit_row {
    uint64_t number;
    uint32_t known;
    bool differs;              /* in its signatures */
    bool pairs_differ;         /* all marks are known, and the sum of the pairs is not 0 */
    struct audit_mark marks[]; /* by member */
};

struct audit_member {
    uint32_t rank;
    uint64_t called, done;
    int status;     /* the first error of the group, as this rank got it */
    bool strict;    /* with `check: strict`, a rank may handle a mismatch */
    bool ended;     /* it will call nothing more in this group */
    bool destroyed; /* the same, and it runs */
};

struct audit_group {
    struct audit_group *next; /* in its bucket */
    char *scope, *name;
    struct audit_member *members; /* in the order of their first marks */
    uint32_t nmembers, nknown, nended;
    uint64_t agreed;  /* the calls up to this number are equal on all members */
    uint64_t noticed; /* the n-th group that was found to differ; 0: it has not been */
    uint64_t most,
        destroyed_after; /* calls of any member; the fewest of one that has destroyed it */
    bool failed;         /* some member has got an error */
    bool outrun;         /* destroyed_after < most, before any member got an error */
    bool extra;          /* all members have ended, and some have called more than others */
    struct audit_row *rows[AUDIT_ROWS];
    struct straggler_group stragglers; /* in the order of `members` */
};

struct audit {
    struct audit_group *buckets[AUDIT_BUCKETS];
    uint32_t nranks; /* of the job; the length of `times` and of `found` */
    uint64_t *times;
    struct audit_finding_rank *found;
    uint64_t noticed;                 /* groups */
    uint64_t outrun;                  /* groups, since the start */
    struct straggler_list stragglers; /* of groups that have ended */
};

struct audit *audit_new(uint32_t nranks)
{
    struct audit *a = xcalloc(1, sizeof *a);
    a->nranks = nranks;
    a->times = xcalloc(nranks, sizeof *a->times);
    a->found = xcalloc(nranks, sizeof *a->found);
    return a;
}

/* ---- groups ---- */

static void audit_group_free(struct audit_group *g)
{
    if (!g)
        return;
    for (uint32_t i = 0; i < AUDIT_ROWS; i++)
        free(g->rows[i]);
    straggler_fini(&g->stragglers);
    free(g->members);
    free(g->scope);
    free(g->name);
    free(g);
}

void audit_free(struct audit *a)
{
    if (!a)
        return;
    for (uint32_t i = 0; i < AUDIT_BUCKETS; i++) {
        while (a->buckets[i]) {
            struct audit_group *g = a->buckets[i];
            a->buckets[i] = g->next;
            audit_group_free(g);
        }
    }
    straggler_list_fini(&a->stragglers);
    free(a->times);
    free(a->found);
    free(a);
}

static struct audit_group **audit_bucket(struct audit *a, const char *scope)
{
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (; *scope; scope++)
        hash = (hash ^ (unsigned char)*scope) * 16777619u;
    return &a->buckets[hash % AUDIT_BUCKETS];
}

static struct audit_group *audit_group_new(const char *scope, const char *name, uint32_t nmembers)
{
    struct audit_group *g = xcalloc(1, sizeof *g);
    g->nmembers = nmembers;
    g->destroyed_after = UINT64_MAX;
    g->scope = xstrdup(scope);
    g->name = xstrdup(name);
    g->members = xcalloc(nmembers, sizeof *g->members);
    straggler_init(&g->stragglers, nmembers);
    return g;
}

static struct audit_group *audit_group_get(struct audit *a, const char *scope, const char *name,
                                           uint32_t nmembers)
{
    struct audit_group **bucket = audit_bucket(a, scope), *g = *bucket;
    while (g && strcmp(g->scope, scope) != 0)
        g = g->next;
    if (g)
        return g;
    g = audit_group_new(scope, name, nmembers);
    g->next = *bucket;
    *bucket = g;
    return g;
}

static void audit_group_unlink(struct audit *a, struct audit_group *g)
{
    struct audit_group **p = audit_bucket(a, g->scope);
    while (*p != g)
        p = &(*p)->next;
    *p = g->next;
}

/* The index of the member; -1: the group has other members. */
static int audit_member_find(struct audit_group *g, uint32_t rank)
{
    for (uint32_t i = 0; i < g->nknown; i++) {
        if (g->members[i].rank == rank)
            return (int)i;
    }
    if (g->nknown == g->nmembers)
        return -1;
    g->members[g->nknown].rank = rank;
    g->stragglers.ranks[g->nknown].rank = rank;
    return (int)g->nknown++;
}

/* ---- rows ---- */

static uint32_t audit_row_place(uint64_t number)
{
    if (number % AUDIT_MULTIPLES)
        return (uint32_t)(number % AUDIT_NUMBERS);
    uint64_t multiple = number / AUDIT_MULTIPLES;
    if (multiple % AUDIT_MULTIPLES)
        return AUDIT_NUMBERS + (uint32_t)(multiple % AUDIT_MULTIPLES);
    return AUDIT_NUMBERS + AUDIT_MULTIPLES +
           (uint32_t)(multiple / AUDIT_MULTIPLES % AUDIT_MULTIPLES);
}

static bool audit_row_differs(const struct audit_row *row)
{
    return row && (row->differs || row->pairs_differ);
}

/* The row for a number; NULL: there is none, since the calls up to it are equal, or a newer number
 * has its place. */
static struct audit_row *audit_row_get(struct audit_group *g, uint64_t number)
{
    struct audit_row **place = &g->rows[audit_row_place(number)], *row = *place;
    size_t len = sizeof *row + g->nmembers * sizeof row->marks[0];
    if (number <= g->agreed)
        return NULL;
    if (row && row->number != number && (row->number > number || audit_row_differs(row)))
        return NULL;
    if (row && row->number == number)
        return row;
    if (!row)
        row = *place = xmalloc(len);
    memset(row, 0, len);
    row->number = number;
    return row;
}

static void audit_row_time(struct audit *a, struct audit_group *g, const struct audit_row *row)
{
    for (uint32_t i = 0; i < g->nmembers; i++) {
        a->times[i] = row->marks[i].called_ns;
        if (!a->times[i])
            return;
    }
    straggler_add(&g->stragglers, row->number, a->times);
}

static void audit_row_complete(struct audit *a, struct audit_group *g, struct audit_row *row)
{
    uint64_t sum = 0;
    if (row->differs)
        return;
    for (uint32_t i = 0; i < g->nmembers; i++)
        sum += row->marks[i].pairs;
    row->pairs_differ = sum != 0;
    if (row->pairs_differ)
        return;
    g->agreed = row->number;
    audit_row_time(a, g, row);
}

static void audit_row_take(struct audit *a, struct audit_group *g, uint32_t member, uint64_t number,
                           const struct audit_mark *mark)
{
    struct audit_row *row = audit_row_get(g, number);
    if (!row || row->marks[member].known)
        return;
    row->marks[member] = *mark;
    row->known++;
    for (uint32_t i = 0; i < g->nknown; i++) {
        if (i == member || !row->marks[i].known)
            continue;
        row->differs = row->differs || row->marks[i].signature != mark->signature;
        break;
    }
    if (row->known == g->nmembers)
        audit_row_complete(a, g, row);
    if (audit_row_differs(row) && !g->noticed)
        g->noticed = ++a->noticed;
}

static void audit_rows_prune(struct audit_group *g)
{
    for (uint32_t i = 0; i < AUDIT_ROWS; i++) {
        if (!g->rows[i] || g->rows[i]->number > g->agreed)
            continue;
        free(g->rows[i]);
        g->rows[i] = NULL;
    }
}

/* ---- stragglers ---- */

static void audit_group_last(const struct audit_group *g, struct straggler_finding *out)
{
    for (uint32_t i = 0; i < g->nknown; i++) {
        const struct straggler_rank *r = &g->stragglers.ranks[i];
        if (r->last <= out->last)
            continue;
        *out = (struct straggler_finding){.rank = r->rank,
                                          .last = r->last,
                                          .compared = g->stragglers.compared,
                                          .late_ms = (double)r->late_ns / 1e6 / (double)r->last,
                                          .cost = straggler_cost(&g->stragglers, i)};
    }
}

bool audit_last(const struct audit *a, const char *group, struct straggler_finding *out)
{
    *out = (struct straggler_finding){0};
    for (uint32_t b = 0; b < AUDIT_BUCKETS; b++) {
        for (const struct audit_group *g = a->buckets[b]; g; g = g->next)
            if (strcmp(g->name, group) == 0)
                audit_group_last(g, out);
    }
    return out->last > 0;
}

const struct straggler_list *audit_stragglers(struct audit *a)
{
    for (uint32_t b = 0; b < AUDIT_BUCKETS; b++) {
        for (struct audit_group *g = a->buckets[b]; g; g = g->next)
            straggler_list_take(&a->stragglers, g->name, &g->stragglers);
    }
    return &a->stragglers;
}

/* ---- frames ---- */

/* Whether a member got MISMATCH for it. */
static bool audit_is_reported(const struct audit_group *g)
{
    for (uint32_t i = 0; i < g->nknown; i++) {
        if (g->members[i].status == COLLRUN_ERR_MISMATCH)
            return true;
    }
    return false;
}

/* Numbers of calls only grow, and that of a member that has destroyed the group does not. What
 * comes after an error proves nothing: the job may be ending. */
static void audit_member_take(struct audit *a, struct audit_group *g, const struct audit_member *m)
{
    g->failed = g->failed || m->status;
    g->most = m->called > g->most ? m->called : g->most;
    if (m->destroyed && m->called < g->destroyed_after)
        g->destroyed_after = m->called;
    if (g->failed || g->outrun || g->destroyed_after >= g->most)
        return;
    g->outrun = true;
    a->outrun++;
}

/* All members have ended: nothing more arrives about this group. A member that closes it while
 * operations are in flight aborts those. */
static void audit_group_end(struct audit *a, struct audit_group *g)
{
    bool good = true, equal = true;
    for (uint32_t i = 0; i < g->nmembers; i++) {
        const struct audit_member *m = &g->members[i];
        good = good && (!m->status || m->status == COLLRUN_ERR_ABORTED);
        equal = equal && m->called == g->members[0].called;
    }
    g->extra = good && !equal;
    if (g->noticed || g->extra || audit_is_reported(g))
        return;
    straggler_list_take(&a->stragglers, g->name, &g->stragglers);
    audit_group_unlink(a, g);
    audit_group_free(g);
}

struct audit_source { /* the sender of a frame */
    uint32_t rank;
    const int64_t *ahead_ns; /* NULL: not known */
};

static void audit_read_marks(struct audit *a, struct audit_group *g, int member, struct reader *r,
                             const int64_t *ahead_ns)
{
    uint32_t n = read_count(r, AUDIT_MARK_LEN);
    for (uint32_t i = 0; i < n && !r->bad; i++) {
        struct audit_mark mark = {.known = true};
        uint64_t number = read_u64(r);
        mark.signature = read_u64(r);
        mark.pairs = read_u64(r);
        mark.called_ns = read_u64(r);
        if (mark.called_ns)
            mark.called_ns = ahead_ns ? mark.called_ns - (uint64_t)*ahead_ns : 0;
        if (member >= 0 && number)
            audit_row_take(a, g, (uint32_t)member, number, &mark);
    }
}

/* False: malformed. */
static bool audit_read_group(struct audit *a, struct arena *arena, struct reader *r,
                             const struct audit_source *from)
{
    const char *scope = read_str(r, arena), *name = read_str(r, arena);
    uint32_t nmembers = read_u32(r);
    uint64_t called = read_u64(r), done = read_u64(r);
    int status = (int)read_u32(r);
    uint8_t flags = read_u8(r);
    bool ended = flags & WIRE_AUDIT_ENDED;
    if (r->bad)
        return false;
    bool possible = nmembers && nmembers <= a->nranks; /* else the rank has damaged its record */
    struct audit_group *g = possible ? audit_group_get(a, scope, name, nmembers) : NULL;
    int member = g && g->nmembers == nmembers ? audit_member_find(g, from->rank) : -1;
    audit_read_marks(a, g, member, r, from->ahead_ns);
    if (r->bad || member < 0)
        return !r->bad;
    struct audit_member *m = &g->members[member];
    audit_rows_prune(g);
    m->called = called;
    m->done = done;
    m->status = status;
    m->strict = flags & WIRE_AUDIT_STRICT;
    g->nended += ended && !m->ended;
    m->ended = m->ended || ended;
    m->destroyed = m->destroyed || flags & WIRE_AUDIT_DESTROYED;
    audit_member_take(a, g, m);
    if (g->nended == g->nmembers)
        audit_group_end(a, g);
    return true;
}

bool audit_take(struct audit *a, const struct wire_frame *f, const int64_t *ahead_ns)
{
    const struct audit_source from = {.rank = f->rank, .ahead_ns = ahead_ns};
    struct arena arena;
    struct reader r;
    bool good = true;
    arena_init(&arena);
    reader_init(&r, f->payload, f->len);
    for (uint32_t n = read_count(&r, AUDIT_GROUP_LEN); n && good; n--)
        good = audit_read_group(a, &arena, &r, &from);
    arena_fini(&arena);
    return good && reader_done(&r);
}

/* ---- findings ---- */

static const struct audit_row *audit_first_difference(const struct audit_group *g)
{
    const struct audit_row *first = NULL;
    for (uint32_t i = 0; i < AUDIT_ROWS; i++) {
        const struct audit_row *row = g->rows[i];
        if (audit_row_differs(row) && (!first || row->number < first->number))
            first = row;
    }
    return first;
}

/* Whether all members whose marks are known in `row` are known to be equal in `before`. */
static bool audit_row_covers(const struct audit_group *g, const struct audit_row *before,
                             const struct audit_row *row)
{
    for (uint32_t i = 0; i < g->nmembers; i++) {
        if (row->marks[i].known && !before->marks[i].known)
            return false;
    }
    return true;
}

/* The last number up to which the calls are known to be equal. */
static uint64_t audit_last_equal(const struct audit_group *g, const struct audit_row *row)
{
    uint64_t after = g->agreed;
    for (uint32_t i = 0; i < AUDIT_ROWS && row->differs; i++) {
        const struct audit_row *before = g->rows[i];
        if (before && before->number > after && before->number < row->number &&
            audit_row_covers(g, before, row))
            after = before->number;
    }
    return after;
}

static void audit_find_majority(struct audit_finding *out)
{
    out->majority = UINT32_MAX;
    for (uint32_t class = 0; class < out->nclasses; class ++) {
        uint32_t n = 0;
        for (uint32_t i = 0; i < out->nranks; i++)
            n += out->ranks[i].class == class;
        if (n * 2 > out->nranks && out->nclasses > 1)
            out->majority = class;
    }
}

static int audit_compare_found(const void *a, const void *b)
{
    uint32_t x = ((const struct audit_finding_rank *)a)->rank;
    uint32_t y = ((const struct audit_finding_rank *)b)->rank;
    return (x > y) - (x < y);
}

/* Sets the classes and the majority of the ranks in a->found, by their values. */
static void audit_classify(struct audit *a, struct audit_finding *out)
{
    struct audit_finding_rank *found = a->found;
    qsort(found, out->nranks, sizeof *found, audit_compare_found);
    for (uint32_t i = 0; i < out->nranks; i++) {
        uint32_t k = 0;
        while (found[k].value != found[i].value)
            k++;
        found[i].class = k < i ? found[k].class : out->nclasses++;
    }
    audit_find_majority(out);
}

static void audit_begin_finding(const struct audit *a, const struct audit_group *g,
                                struct audit_finding *out)
{
    *out = (struct audit_finding){
        .group = g->name, .scope = g->scope, .ranks = a->found, .nmembers = g->nmembers};
}

static const struct audit_group *audit_find_group(const struct audit *a, bool silent)
{
    const struct audit_group *g = NULL;
    for (uint32_t b = 0; b < AUDIT_BUCKETS && a->noticed; b++) {
        for (const struct audit_group *k = a->buckets[b]; k; k = k->next)
            if (k->noticed && (!g || k->noticed < g->noticed) && !(silent && audit_is_reported(k)))
                g = k;
    }
    return g;
}

bool audit_find(struct audit *a, bool silent, struct audit_finding *out)
{
    const struct audit_group *g = audit_find_group(a, silent);
    if (!g)
        return false;
    const struct audit_row *row = audit_first_difference(g);
    audit_begin_finding(a, g, out);
    out->difference = row->differs ? AUDIT_CALLS : AUDIT_COUNTS;
    out->number = row->number;
    out->after = audit_last_equal(g, row);
    for (uint32_t i = 0; i < g->nmembers; i++) {
        out->completed = out->completed || g->members[i].done >= row->number;
        if (row->marks[i].known)
            a->found[out->nranks++] = (struct audit_finding_rank){.rank = g->members[i].rank,
                                                                  .value = row->marks[i].signature};
    }
    audit_classify(a, out);
    return true;
}

static void audit_describe_extra(struct audit *a, const struct audit_group *g,
                                 struct audit_finding *out)
{
    audit_begin_finding(a, g, out);
    out->difference = AUDIT_EXTRA;
    out->completed = true;
    out->after = UINT64_MAX;
    for (uint32_t i = 0; i < g->nmembers; i++) {
        out->after = g->members[i].called < out->after ? g->members[i].called : out->after;
        a->found[out->nranks++] =
            (struct audit_finding_rank){.rank = g->members[i].rank, .value = g->members[i].called};
    }
    out->number = out->after + 1;
    audit_classify(a, out);
}

bool audit_find_extra(struct audit *a, struct audit_finding *out)
{
    for (uint32_t b = 0; b < AUDIT_BUCKETS; b++) {
        for (const struct audit_group *g = a->buckets[b]; g; g = g->next) {
            if (!g->extra)
                continue;
            audit_describe_extra(a, g, out);
            return true;
        }
    }
    return false;
}

/* The ranks that got MISMATCH as the status of a call in this group, in a->found. */
static uint32_t audit_find_members(struct audit *a, const struct audit_group *g)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->nknown; i++) {
        const struct audit_member *m = &g->members[i];
        if (m->status == COLLRUN_ERR_MISMATCH && !m->strict)
            a->found[n++] = (struct audit_finding_rank){.rank = m->rank};
    }
    return n;
}

bool audit_find_reported(struct audit *a, struct audit_finding *out)
{
    for (uint32_t b = 0; b < AUDIT_BUCKETS; b++) {
        for (const struct audit_group *g = a->buckets[b]; g; g = g->next) {
            uint32_t n = audit_find_members(a, g);
            if (!n)
                continue;
            audit_begin_finding(a, g, out);
            out->difference = AUDIT_REPORTED;
            out->nranks = n;
            out->majority = UINT32_MAX;
            return true;
        }
    }
    return false;
}

/* Members that have done neither may still do either, so only more than half of all are a majority.
 */
static void audit_describe_destroyed(struct audit *a, const struct audit_group *g,
                                     struct audit_finding *out)
{
    uint32_t n[2] = {0};
    audit_begin_finding(a, g, out);
    out->difference = AUDIT_DESTROYED;
    out->after = g->destroyed_after;
    out->number = out->after + 1;
    for (uint32_t i = 0; i < g->nknown; i++) {
        const struct audit_member *m = &g->members[i];
        const bool called = m->called > out->after;
        if (!called && !m->destroyed)
            continue;
        n[called]++;
        a->found[out->nranks++] = (struct audit_finding_rank){.rank = m->rank, .value = called};
    }
    audit_classify(a, out);
    out->majority = UINT32_MAX;
    for (uint32_t i = 0; i < out->nranks; i++) {
        if (n[out->ranks[i].value] * 2 > g->nmembers)
            out->majority = out->ranks[i].class;
    }
}

bool audit_find_destroyed(struct audit *a, struct audit_finding *out)
{
    for (uint32_t b = 0; b < AUDIT_BUCKETS && a->outrun; b++) {
        for (const struct audit_group *g = a->buckets[b]; g; g = g->next) {
            if (!g->outrun)
                continue;
            audit_describe_destroyed(a, g, out);
            return true;
        }
    }
    return false;
}

/* ---- the text of a finding ---- */

enum { TEXT_CLASSES = 4 };

/* "rank 1", "ranks 0, 2-3": the members of one class, or of all for UINT32_MAX. */
static void audit_text_ranks(const struct audit_finding *f, uint32_t class, char *out, size_t size)
{
    uint32_t n = 0, *list = xcalloc(f->nranks + 1, sizeof *list);
    char ranks[128] = "";
    for (uint32_t i = 0; i < f->nranks; i++) {
        if (class == UINT32_MAX || f->ranks[i].class == class)
            list[n++] = f->ranks[i].rank;
    }
    rank_list_format(ranks, sizeof ranks, list, n);
    free(list);
    snprintf(out, size, "rank%s %s", n == 1 ? "" : "s", ranks);
}

/* "rank 1 and ranks 0, 2-3": the majority comes last. */
static void audit_text_classes(const struct audit_finding *f, char *out, size_t size)
{
    size_t len = 0;
    if (f->nclasses > TEXT_CLASSES) {
        audit_text_ranks(f, UINT32_MAX, out, size);
        return;
    }
    out[0] = '\0';
    for (uint32_t i = 0; i <= f->nclasses; i++) {
        bool last = i == f->nclasses;
        char ranks[160];
        if (last ? f->majority == UINT32_MAX : i == f->majority)
            continue;
        audit_text_ranks(f, last ? f->majority : i, ranks, sizeof ranks);
        int n = snprintf(out + len, size - len, "%s%s", len ? " and " : "", ranks);
        len += n > 0 && (size_t)n < size - len ? (size_t)n : 0;
    }
}

/* "rank 2 called 9 operations in group world, ranks 0-1 called 8": the majority is the last. */
static void audit_text_extra(const struct audit_finding *f, char *out, size_t size)
{
    size_t len = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i <= f->nclasses; i++) {
        uint32_t class = i == f->nclasses ? f->majority : i, k = 0;
        char ranks[160], where[160] = "";
        if (class == UINT32_MAX || (i == f->majority && i < f->nclasses))
            continue;
        while (f->ranks[k].class != class)
            k++;
        audit_text_ranks(f, class, ranks, sizeof ranks);
        if (!len)
            snprintf(where, sizeof where, " operation%s in group %s",
                     f->ranks[k].value == 1 ? "" : "s", f->group);
        int n = snprintf(out + len, size - len, "%s%s called %llu%s", len ? ", " : "", ranks,
                         (unsigned long long)f->ranks[k].value, where);
        len += n > 0 && (size_t)n < size - len ? (size_t)n : 0;
    }
}

static void audit_text_where(const struct audit_finding *f, char *out, size_t size)
{
    if (f->after + 1 == f->number)
        snprintf(out, size, "operation %llu of group %s", (unsigned long long)f->number, f->group);
    else
        snprintf(out, size, "one of the operations %llu to %llu of group %s",
                 (unsigned long long)f->after + 1, (unsigned long long)f->number, f->group);
}

/* "results of the group may be wrong since operation 501"; "" if no member has completed it. */
static void audit_text_since(const struct audit_finding *f, char *out, size_t size)
{
    out[0] = '\0';
    if (f->completed && f->difference != AUDIT_EXTRA)
        snprintf(out, size, "results of the group may be wrong since operation %llu",
                 (unsigned long long)f->after + 1);
}

/* "rank 1 has destroyed group sub after sub#1, ranks 0, 2-3 have called sub#2" */
static void audit_text_destroyed(const struct audit_finding *f, char *out, size_t size)
{
    uint32_t n[2] = {0}, *lists[2] = {xcalloc(f->nranks + 1, sizeof(uint32_t)),
                                      xcalloc(f->nranks + 1, sizeof(uint32_t))};
    char closed[128] = "", call[128] = "";
    for (uint32_t i = 0; i < f->nranks; i++) {
        const uint64_t called = f->ranks[i].value;
        lists[called][n[called]++] = f->ranks[i].rank;
    }
    rank_list_format(closed, sizeof closed, lists[0], n[0]);
    rank_list_format(call, sizeof call, lists[1], n[1]);
    free(lists[0]);
    free(lists[1]);
    snprintf(out, size,
             "rank%s %s %s destroyed group %s after %s#%llu, rank%s %s %s called %s#%llu",
             n[0] == 1 ? "" : "s", closed, n[0] == 1 ? "has" : "have", f->group, f->group,
             (unsigned long long)f->after, n[1] == 1 ? "" : "s", call, n[1] == 1 ? "has" : "have",
             f->group, (unsigned long long)f->number);
}

void audit_text(const struct audit_finding *f, struct diag *d)
{
    char ranks[400], where[128], since[96], extra[800];
    if (f->difference == AUDIT_REPORTED) {
        diag_set(d, COLLRUN_ERR_MISMATCH, "ranks disagree about a call in group %s", f->group);
        return;
    }
    audit_text_classes(f, ranks, sizeof ranks);
    audit_text_where(f, where, sizeof where);
    audit_text_since(f, since, sizeof since);
    if (f->difference == AUDIT_DESTROYED) {
        audit_text_destroyed(f, extra, sizeof extra);
        diag_set(d, COLLRUN_ERR_MISMATCH, "%s", extra);
    } else if (f->difference == AUDIT_EXTRA && f->nclasses <= TEXT_CLASSES) {
        audit_text_extra(f, extra, sizeof extra);
        diag_set(d, COLLRUN_ERR_MISMATCH, "%s", extra);
    } else if (f->difference == AUDIT_EXTRA) {
        diag_set(d, COLLRUN_ERR_MISMATCH,
                 "%s have ended after different numbers of operations in group %s; the fewest "
                 "called %llu",
                 ranks, f->group, (unsigned long long)f->after);
    } else if (f->difference == AUDIT_COUNTS) {
        diag_set(
            d, COLLRUN_ERR_MISMATCH,
            "%s differ in the counts of %s: what ranks send is not what their peers expect%s%s",
            ranks, where, since[0] ? "; " : "", since);
    } else {
        diag_set(d, COLLRUN_ERR_MISMATCH, "%s differ in %s%s%s", ranks, where, since[0] ? "; " : "",
                 since);
    }
    diag_hint(d, "all members of a group must call the same collectives in the same order, with "
                 "arguments that agree");
}
