/* SPDX-License-Identifier: Apache-2.0
 *
 * The results of bench.c: what the times of one row amount to, and the rows as JSON and CSV. The
 * names of the members are those of nccl-tests (its option -J) where it has them. Times are in
 * microseconds, bandwidths in GB/s (1e9 bytes), sizes in bytes.
 */
#ifndef BENCH_ROWS_H
#define BENCH_ROWS_H

#include <collrun/workload.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct form { /* in place or out of place; if the operation has no such form, `time` is 0 */
    double time, min, p50, p90, p99, max; /* time: the mean */
    double low, high;                     /* an interval for p50 */
    double alg_bw, bus_bw;
    int64_t wrong; /* elements; -1: not verified */
};

struct row {
    const char *operation, *phase, *type, *redop;
    size_t size, count;
    int root;             /* -1: none */
    struct form forms[2]; /* out of place, in place */
};

struct rows {
    struct row *row; /* owned */
    size_t n;
};

/* 0, or -1: out of memory. */
static inline int rows_add(struct rows *rows, const struct row *row)
{
    struct row *grown = realloc(rows->row, (rows->n + 1) * sizeof *grown);
    if (!grown)
        return -1;
    rows->row = grown;
    rows->row[rows->n++] = *row;
    return 0;
}

/* ---- statistics ---- */

static inline int form_by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The smallest of the sorted values that at least `percent` of them do not exceed. */
static inline double form_percentile(const double *sorted, size_t n, size_t percent)
{
    return sorted[(n * percent + 99) / 100 - 1];
}

/* The interval for the median: the calls are cut into nine consecutive parts, and it reaches from
 * the second to the eighth of their medians, which covers the median with 96 % if the parts are
 * independent. Consecutive calls are not, which is why single calls are not used. With fewer than
 * nine calls it is all of them. */
static inline void form_set_interval(struct form *f, const double *us, size_t n, double *room)
{
    enum { PARTS = 9 };
    double medians[PARTS];
    for (size_t part = 0; part < PARTS && n >= PARTS; part++) {
        size_t from = n * part / PARTS, to = n * (part + 1) / PARTS;
        memcpy(room, us + from, (to - from) * sizeof *room);
        qsort(room, to - from, sizeof *room, form_by_value);
        medians[part] = room[(to - from) / 2];
    }
    if (n >= PARTS)
        qsort(medians, PARTS, sizeof *medians, form_by_value);
    f->low = n >= PARTS ? medians[1] : f->min;
    f->high = n >= PARTS ? medians[PARTS - 2] : f->max;
}

/* The times of n calls, in the order of the calls; `room` for n values. Sorts `us`. */
static inline void form_set_times(struct form *f, double *us, size_t n, double *room)
{
    memcpy(room, us, n * sizeof *us);
    qsort(room, n, sizeof *room, form_by_value);
    f->min = room[0];
    f->p50 = form_percentile(room, n, 50);
    f->p90 = form_percentile(room, n, 90);
    f->p99 = form_percentile(room, n, 99);
    f->max = room[n - 1];
    for (size_t i = 0; i < n; i++)
        f->time += us[i] / (double)n;
    form_set_interval(f, us, n, room);
}

/* ---- files ---- */

struct rows_head { /* what all rows of a file have in common */
    const char *run_id, *group, *backend, *host;
    int ranks, processes, iters, warmup;
    bool verify;
    int64_t wrong;
    double busbw; /* average */
};

static inline void rows_put_text(FILE *out, const char *name, const char *text)
{
    fprintf(out, "\"%s\": \"", name);
    for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
        if (*p < 0x20)
            fprintf(out, "\\u%04x", *p);
        else
            fprintf(out, "%s%c", *p == '"' || *p == '\\' ? "\\" : "", *p);
    }
    fprintf(out, "\"");
}

static inline void rows_put_form(FILE *out, const char *name, const struct form *f)
{
    if (f->time <= 0) {
        fprintf(out, ", \"%s\": null", name);
        return;
    }
    fprintf(out,
            ", \"%s\": {\"time\": %.3f, \"alg_bw\": %.6g, \"bus_bw\": %.6g, \"nwrong\": ", name,
            f->time, f->alg_bw, f->bus_bw);
    if (f->wrong < 0)
        fprintf(out, "null");
    else
        fprintf(out, "%lld", (long long)f->wrong);
    fprintf(out,
            ", \"min\": %.3f, \"p50\": %.3f, \"p90\": %.3f, \"p99\": %.3f, \"max\": %.3f, "
            "\"interval\": [%.3f, %.3f]}",
            f->min, f->p50, f->p90, f->p99, f->max, f->low, f->high);
}

static inline void rows_put_json_row(FILE *out, const struct row *r, bool first)
{
    fprintf(out,
            "%s\n    {\"operation\": \"%s\", \"phase\": \"%s\", \"size\": %zu, \"count\": %zu, ",
            first ? "" : ",", r->operation, r->phase, r->size, r->count);
    fprintf(out, "\"type\": \"%s\", \"redop\": \"%s\", \"root\": %d", r->type, r->redop, r->root);
    rows_put_form(out, "out_of_place", &r->forms[0]);
    rows_put_form(out, "in_place", &r->forms[1]);
    fprintf(out, "}");
}

static inline void rows_put_json(FILE *out, const struct rows *rows, const struct rows_head *h)
{
    fprintf(out, "{\n  \"format\": \"collrun-bench\", \"version\": 1,\n  ");
    rows_put_text(out, "run_id", h->run_id);
    fprintf(out, ", ");
    rows_put_text(out, "group", h->group);
    fprintf(out, ", ");
    rows_put_text(out, "backend", h->backend);
    fprintf(out, ", ");
    rows_put_text(out, "host", h->host);
    fprintf(out, ",\n  \"ranks\": %d, \"processes\": %d,\n", h->ranks, h->processes);
    fprintf(out, "  \"config\": {\"iters\": %d, \"warmup\": %d, \"verify\": %s},\n", h->iters,
            h->warmup, h->verify ? "true" : "false");
    fprintf(out, "  \"results\": [");
    for (size_t i = 0; i < rows->n; i++)
        rows_put_json_row(out, &rows->row[i], i == 0);
    fprintf(out, "\n  ],\n  \"out_of_bounds\": {\"count\": %lld, \"okay\": %s},\n",
            (long long)h->wrong, h->wrong ? "false" : "true");
    fprintf(out, "  \"average_bus_bandwidth\": {\"bandwidth\": %.6g}\n}\n", h->busbw);
}

static inline void rows_put_csv_form(FILE *out, const struct row *r, const struct rows_head *h,
                                     int in_place)
{
    const struct form *f = &r->forms[in_place];
    if (f->time <= 0)
        return;
    fprintf(out, "\"%s\",\"%s\",%d,%s,%s,%zu,%zu,%s,%s,%d,%d", h->group, h->backend, h->ranks,
            r->operation, r->phase, r->size, r->count, r->type, r->redop, r->root, in_place);
    fprintf(out, ",%.3f,%.6g,%.6g,", f->time, f->alg_bw, f->bus_bw);
    if (f->wrong >= 0)
        fprintf(out, "%lld", (long long)f->wrong);
    fprintf(out, ",%.3f,%.3f,%.3f,%.3f,%.3f,%.3f,%.3f\n", f->min, f->p50, f->p90, f->p99, f->max,
            f->low, f->high);
}

/* A line for each form of each row. Names of groups and backends hold no quotes. */
static inline void rows_put_csv(FILE *out, const struct rows *rows, const struct rows_head *h)
{
    fprintf(out, "group,backend,ranks,operation,phase,size,count,type,redop,root,in_place,time,"
                 "alg_bw,bus_bw,nwrong,min,p50,p90,p99,max,interval_low,interval_high\n");
    for (size_t i = 0; i < rows->n; i++) {
        rows_put_csv_form(out, &rows->row[i], h, 0);
        rows_put_csv_form(out, &rows->row[i], h, 1);
    }
}

typedef void rows_put_function(FILE *out, const struct rows *rows, const struct rows_head *h);

/* Writes the file and replaces an older one at once. False: errno says why. */
static inline bool rows_write(const char *path, rows_put_function *put, const struct rows *rows,
                              const struct rows_head *h)
{
    char temporary[4096];
    if (snprintf(temporary, sizeof temporary, "%s.tmp", path) >= (int)sizeof temporary)
        return false;
    FILE *out = fopen(temporary, "we");
    if (!out)
        return false;
    put(out, rows, h);
    bool good = !ferror(out);
    good = fclose(out) == 0 && good;
    if (good && rename(temporary, path) == 0)
        return true;
    remove(temporary);
    return false;
}

#endif
