/* SPDX-License-Identifier: Apache-2.0
 *
 * The tables that bench.c prints: the results as nccl-tests prints them, with percentiles added,
 * and the comparison with a saved run.
 */
#ifndef BENCH_TABLE_H
#define BENCH_TABLE_H

#include "bench_saved.h"

/* Formats as nccl-tests does: as many decimals as fit, at most two. */
static inline const char *table_fit(char text[16], double value, int width)
{
    for (int decimals = 2; decimals >= 0; decimals--)
        if (snprintf(text, 16, "%.*f", decimals, value) <= width)
            return text;
    snprintf(text, 16, "%.0e", value);
    return text;
}

static inline void table_put_header(FILE *out)
{
    fprintf(out, "# %10s  %12s  %8s  %6s  %6s  %31s  %31s", "", "", "", "", "",
            "out-of-place           ", "in-place             ");
    fprintf(out, "  %34s  %34s\n", "out-of-place           ", "in-place             ");
    fprintf(out, "# %10s  %12s  %8s  %6s  %6s", "size", "count", "type", "redop", "root");
    for (int form = 0; form < 2; form++)
        fprintf(out, "  %7s  %6s  %6s  %6s", "time", "algbw", "busbw", "#wrong");
    for (int form = 0; form < 2; form++)
        fprintf(out, "  %7s  %7s  %7s  %7s", "p50", "p90", "p99", "max");
    fprintf(out, "\n# %10s  %12s  %8s  %6s  %6s", "(B)", "(elements)", "", "", "");
    for (int form = 0; form < 2; form++)
        fprintf(out, "  %7s  %6s  %6s  %6s", "(us)", "(GB/s)", "(GB/s)", "");
    for (int form = 0; form < 2; form++)
        fprintf(out, "  %7s  %7s  %7s  %7s", "(us)", "(us)", "(us)", "(us)");
    fprintf(out, "\n");
}

static inline void table_put_row(FILE *out, const struct row *r)
{
    const struct form *f;
    char t[4][16];
    fprintf(out, "%12zu  %12zu  %8s  %6s  %6d", r->size, r->count, r->type, r->redop, r->root);
    for (f = r->forms; f < r->forms + 2; f++) {
        if (f->time <= 0) {
            fprintf(out, "  %7s  %6s  %6s  %6s", "N/A", "N/A", "N/A", "N/A");
            continue;
        }
        fprintf(out, "  %7s  %6s  %6s", table_fit(t[0], f->time, 7), table_fit(t[1], f->alg_bw, 6),
                table_fit(t[2], f->bus_bw, 6));
        if (f->wrong >= 0)
            fprintf(out, "  %6lld", (long long)f->wrong);
        else
            fprintf(out, "  %6s", "N/A");
    }
    for (f = r->forms; f < r->forms + 2; f++) {
        bool exists = f->time > 0;
        fprintf(out, "  %7s  %7s  %7s  %7s", exists ? table_fit(t[0], f->p50, 7) : "N/A",
                exists ? table_fit(t[1], f->p90, 7) : "N/A",
                exists ? table_fit(t[2], f->p99, 7) : "N/A",
                exists ? table_fit(t[3], f->max, 7) : "N/A");
    }
    fprintf(out, "\n");
}

/* One line of a comparison. */
static inline void table_put_ratio(FILE *out, const struct row *r, int in_place,
                                   const struct saved_ratio *c)
{
    static const char *const words[] = {"missing", "slower", "faster", "same", "unclear"};
    fprintf(out, "  %15s  %10zu  %8s  %12s  %10.2f  %10.2f  %6.2f  %6.2f-%6.2f  %s\n", r->operation,
            r->size, r->type, in_place ? "in-place" : "out-of-place", c->then, c->ratio * c->then,
            c->ratio, c->low, c->high, words[c->verdict]);
}

static inline void table_put_ratio_header(FILE *out, const char *then, const char *now)
{
    fprintf(out, "# %15s  %10s  %8s  %12s  %10s  %10s  %6s  %13s  %s\n", "operation", "size",
            "type", "form", then, now, "ratio", "interval", "verdict");
}

/* Rows of one point follow each other: measured apart, then together with the other groups. */
static inline void table_put_interference(FILE *out, const struct rows *rows, double tolerance)
{
    table_put_ratio_header(out, "apart (us)", "tog. (us)");
    for (size_t i = 0; i + 1 < rows->n; i += 2) {
        const struct row *apart = &rows->row[i], *together = &rows->row[i + 1];
        for (int form = 0; form < 2; form++) {
            const struct form *f = &apart->forms[form];
            struct saved_ratio c = {.then = f->p50};
            if (f->time <= 0)
                continue;
            saved_judge(&c, &together->forms[form], f->low, f->high, tolerance);
            table_put_ratio(out, apart, form, &c);
        }
    }
    fprintf(out, "#\n");
}

/* The verdict on each row, and how many of each. Returns how many are slower. */
static inline int table_put_comparison(FILE *out, const struct rows *rows, const struct saved *s,
                                       const char *path, double tolerance)
{
    int n[5] = {0};
    fprintf(out, "# Compared with %s: p50, and its ratio with an interval; tolerance %g %%\n", path,
            100 * tolerance);
    table_put_ratio_header(out, "then (us)", "now (us)");
    for (size_t i = 0; i < 2 * rows->n; i++) {
        const struct row *r = &rows->row[i / 2];
        int in_place = i % 2 == 1;
        const struct form *f = &r->forms[in_place];
        if (f->time <= 0)
            continue;
        struct saved_ratio c = saved_compare(s, r, in_place, tolerance);
        n[c.verdict]++;
        if (c.verdict != SAVED_MISSING)
            table_put_ratio(out, r, in_place, &c);
    }
    fprintf(out, "# %d slower, %d faster, %d same, %d unclear, %d not in the file\n#\n",
            n[SAVED_SLOWER], n[SAVED_FASTER], n[SAVED_SAME], n[SAVED_UNCLEAR], n[SAVED_MISSING]);
    return n[SAVED_SLOWER];
}

#endif
