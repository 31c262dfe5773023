/* SPDX-License-Identifier: Apache-2.0 */
#include "diagnose/audit_text.h"

#include "base/rank_list.h"
#include "xalloc.h"

#include <stdio.h>
#include <stdlib.h>

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

void audit_text_since(const struct audit_finding *f, char *out, size_t size)
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
