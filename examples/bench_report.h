/* SPDX-License-Identifier: Apache-2.0
 *
 * What rank 0 of a group does with the results of bench.c: the end of the table, the files, and the
 * comparison.
 */
#ifndef BENCH_REPORT_H
#define BENCH_REPORT_H

#include "bench_point.h"
#include "bench_table.h"

/* The file of a parameter for this group: as given, or in the folder that ends with "/". */
static inline void report_path(const struct bench *b, const char *folder, const char *end,
                               char path[4096])
{
    size_t len = strlen(folder);
    int n = snprintf(path, 4096, "%s", folder);
    if (!len || folder[len - 1] != '/' || n >= 4096)
        return;
    snprintf(path + n, 4096 - (size_t)n, "bench-%s%s", collrun_group_name(b->group), end);
    for (char *c = path + len; *c; c++)
        if (!strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-", *c))
            *c = '_';
}

static inline int report_open_saved(struct bench *b)
{
    char path[4096];
    const char *from = collrun_param_string(b->ctx, "compare");
    if (!from[0] || b->first)
        return 0;
    report_path(b, from, ".json", path);
    const char *wrong = saved_open(&b->saved, path);
    return wrong ? collrun_fail(b->ctx, "compare: %s: %s", path, wrong) : 0;
}

static inline int report_write_file(const struct bench *b, const char *param,
                                    rows_put_function *put, const char *end)
{
    char path[4096], folder[4096];
    const char *run_dir = collrun_run_dir(b->ctx), *to = collrun_param_string(b->ctx, param);
    bool by_default = !to[0] && strcmp(param, "json") == 0 && run_dir[0];
    struct rows_head head = {.run_id = collrun_run_id(b->ctx),
                             .group = collrun_group_name(b->group),
                             .backend = collrun_group_backend(b->group),
                             .host = collrun_host(b->ctx),
                             .ranks = b->size,
                             .processes = collrun_size(b->group),
                             .iters = b->iters,
                             .warmup = b->warmup,
                             .verify = b->verify,
                             .wrong = b->wrong,
                             .busbw = b->busbw_count ? b->busbw_sum / b->busbw_count : 0};
    if (!to[0] && !by_default)
        return 0;
    snprintf(folder, sizeof folder, "%s/", run_dir);
    report_path(b, by_default ? folder : to, end, path);
    if (rows_write(path, put, &b->rows, &head))
        return 0;
    if (!by_default)
        return collrun_fail(b->ctx, "%s: %s: %s", param, path, strerror(errno));
    /* The run directory is on the machine of collrun, which may be another one. */
    collrun_log(b->ctx, COLLRUN_LOG_INFO, "%s: %s", path, strerror(errno));
    return 0;
}

static inline void report_put_turns(const struct bench *b)
{
    const char *operation = "";
    for (int together = 0; together < 2; together++) {
        for (size_t i = (size_t)together; i < b->rows.n; i += 2) {
            const struct row *r = &b->rows.row[i];
            if (strcmp(operation, r->operation) != 0) {
                printf("# %s in group %s, %s: %d ranks on %s; %d calls after %d\n", r->operation,
                       collrun_group_name(b->group), r->phase, b->size,
                       collrun_group_backend(b->group), b->iters, b->warmup);
                table_put_header(stdout);
            }
            operation = r->operation;
            table_put_row(stdout, r);
        }
        operation = "";
    }
    printf("# Interference in group %s: p50 apart and together, their ratio with an interval\n",
           collrun_group_name(b->group));
    table_put_interference(stdout, &b->rows, collrun_param_float(b->ctx, "tolerance"));
}

static inline int report_finish(struct bench *b)
{
    double busbw = b->busbw_count ? b->busbw_sum / b->busbw_count : 0;
    if (b->takes_turns)
        report_put_turns(b);
    printf("# Out of bounds values : %lld %s\n", (long long)b->wrong, b->wrong ? "FAILED" : "OK");
    printf("# Avg bus bandwidth    : %g\n#\n", busbw);
    collrun_metric(b->ctx, "busbw_GBps", busbw);
    if (b->saved.results)
        b->slower += table_put_comparison(stdout, &b->rows, &b->saved,
                                          collrun_param_string(b->ctx, "compare"),
                                          collrun_param_float(b->ctx, "tolerance"));
    int rc = report_write_file(b, "json", rows_put_json, ".json");
    return rc ? rc : report_write_file(b, "csv", rows_put_csv, ".csv");
}

#endif
