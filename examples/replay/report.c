/* SPDX-License-Identifier: Apache-2.0
 *
 * Adds the times of all processes and prints them; see report.h. Times are the sum over the calls
 * of a rank, in milliseconds: the mean over the ranks of the trace and over the iterations. The
 * ratio of a kind counts the calls whose time the trace has recorded.
 */
#include "report.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REPORT_FIELDS = 6, REPORT_NUMBERS = TRACE_KINDS * REPORT_FIELDS + 2 };

struct report {
    struct play_sum sums[TRACE_KINDS];
    uint64_t wrong, old_waits;
    double recorded_ms, achieved_ms; /* of the slowest rank, per iteration */
    const struct cast *cast;
    const char *speed;
    int64_t iterations;
    bool verify;
};

static int report_reduce(struct report *r, const struct player *p)
{
    uint64_t own[REPORT_NUMBERS], all[REPORT_NUMBERS] = {0};
    const struct cast *c = r->cast;
    _Static_assert(sizeof r->sums == TRACE_KINDS * REPORT_FIELDS * sizeof *own, "all members");
    memcpy(own, play_sums(p), sizeof r->sums);
    own[REPORT_NUMBERS - 2] = play_wrong(p);
    own[REPORT_NUMBERS - 1] = 0;
    for (int i = 0; i < c->ntraces; i++)
        own[REPORT_NUMBERS - 1] += c->traces[i].old_waits;
    int rc = collrun_allreduce(c->group, own, all, REPORT_NUMBERS, COLLRUN_UINT64, COLLRUN_SUM);
    memcpy(r->sums, all, sizeof r->sums);
    r->wrong = all[REPORT_NUMBERS - 2];
    r->old_waits = all[REPORT_NUMBERS - 1];
    return rc;
}

static int report_spans(struct report *r, uint64_t ns)
{
    const struct cast *c = r->cast;
    uint64_t own[2] = {ns, 0}, all[2] = {0};
    for (int i = 0; i < c->ntraces; i++)
        own[1] = c->traces[i].span_ns > own[1] ? c->traces[i].span_ns : own[1];
    int rc = collrun_allreduce(c->group, own, all, 2, COLLRUN_UINT64, COLLRUN_MAX);
    r->achieved_ms = (double)all[0] / 1e6 / (double)r->iterations;
    r->recorded_ms = (double)all[1] / 1e6;
    return rc;
}

/* Sum over the calls, of a rank and an iteration, on average. */
static double report_ms(const struct report *r, uint64_t ns)
{
    return (double)ns / 1e6 / (double)r->cast->world_size / (double)r->iterations;
}

static void report_ratio(char text[24], double achieved, double recorded)
{
    if (recorded > 0)
        snprintf(text, 24, "%.2f", achieved / recorded);
    else
        snprintf(text, 24, "-");
}

static void report_row(const char *name, const struct play_sum *s, const double ms[3])
{
    char recorded[24] = "-", ratio[24];
    if (s->timed)
        snprintf(recorded, sizeof recorded, "%.3f", ms[1]);
    report_ratio(ratio, ms[2], s->timed ? ms[1] : 0);
    printf("  %-16s %9llu %14llu %13s %13.3f %7s\n", name, (unsigned long long)s->calls,
           (unsigned long long)s->bytes, recorded, ms[0], ratio);
}

static void report_print(const struct report *r)
{
    const struct cast *c = r->cast;
    char recorded[24] = "-", ratio[24];
    printf("# replay of %s: %d ranks by %d processes in group %s (%s); speed %s, %lld "
           "iteration%s\n",
           collrun_param_string(c->ctx, "trace"), c->world_size, c->nprocesses,
           collrun_group_name(c->group), collrun_group_backend(c->group), r->speed,
           (long long)r->iterations, r->iterations == 1 ? "" : "s");
    printf("  %-16s %9s %14s %13s %13s %7s\n", "operation", "calls", "bytes", "recorded(ms)",
           "achieved(ms)", "ratio");
    for (int kind = 0; kind < TRACE_KINDS; kind++) {
        const struct play_sum *s = &r->sums[kind];
        double ms[3] = {report_ms(r, s->ns), report_ms(r, s->recorded_ns),
                        report_ms(r, s->timed_ns)};
        if (s->calls)
            report_row(trace_kind_name(kind), s, ms);
    }
    if (r->recorded_ms > 0)
        snprintf(recorded, sizeof recorded, "%.3f", r->recorded_ms);
    report_ratio(ratio, r->achieved_ms, r->recorded_ms);
    printf("  %-16s %9s %14s %13s %13.3f %7s\n", "first to last", "", "", recorded, r->achieved_ms,
           ratio);
    if (r->old_waits)
        printf("# %llu waits are for operations that began before the trace\n",
               (unsigned long long)r->old_waits);
    printf("# Out of bounds values : %s\n", !r->verify ? "not verified"
                                            : r->wrong ? "FAILED"
                                                       : "0 OK");
}

/* ---- JSON ---- */

static void report_string(FILE *f, const char *text)
{
    fputc('"', f);
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (*c < 0x20)
            fprintf(f, "\\u%04x", *c);
        else
            fprintf(f, *c == '"' || *c == '\\' ? "\\%c" : "%c", *c);
    }
    fputc('"', f);
}

static void report_operations(FILE *f, const struct report *r)
{
    const char *separator = "";
    for (int kind = 0; kind < TRACE_KINDS; kind++) {
        const struct play_sum *s = &r->sums[kind];
        if (!s->calls)
            continue;
        fprintf(f, "%s\n    {\"operation\": \"%s\", \"calls\": %llu, \"bytes\": %llu, ", separator,
                trace_kind_name(kind), (unsigned long long)s->calls, (unsigned long long)s->bytes);
        fprintf(f, "\"achieved_ms\": %.6f", report_ms(r, s->ns));
        if (s->timed)
            fprintf(f,
                    ", \"timed_calls\": %llu, \"timed_achieved_ms\": %.6f, \"recorded_ms\": %.6f",
                    (unsigned long long)s->timed, report_ms(r, s->timed_ns),
                    report_ms(r, s->recorded_ns));
        fputc('}', f);
        separator = ",";
    }
}

static int report_put(FILE *f, const struct report *r)
{
    const struct cast *c = r->cast;
    fprintf(f, "{\"trace\": ");
    report_string(f, collrun_param_string(c->ctx, "trace"));
    fprintf(f, ",\n  \"run_id\": ");
    report_string(f, collrun_run_id(c->ctx));
    fprintf(f, ",\n  \"group\": ");
    report_string(f, collrun_group_name(c->group));
    fprintf(f, ",\n  \"backend\": ");
    report_string(f, collrun_group_backend(c->group));
    fprintf(f, ",\n  \"ranks\": %d, \"processes\": %d, \"iterations\": %lld, \"speed\": ",
            c->world_size, c->nprocesses, (long long)r->iterations);
    report_string(f, r->speed);
    fprintf(f, ",\n  \"verified\": %s, \"wrong\": %llu", r->verify ? "true" : "false",
            (unsigned long long)r->wrong);
    fprintf(f, ", \"achieved_ms\": %.6f", r->achieved_ms);
    if (r->recorded_ms > 0)
        fprintf(f, ", \"recorded_ms\": %.6f", r->recorded_ms);
    fprintf(f, ",\n  \"operations\": [");
    report_operations(f, r);
    fprintf(f, "\n  ]}\n");
    return ferror(f) ? -1 : 0;
}

/* To the file of the parameter, or to replay.json of the run directory. */
static int report_write(const struct report *r)
{
    struct collrun_ctx *ctx = r->cast->ctx;
    char path[4096];
    const char *to = collrun_param_string(ctx, "json"), *run_dir = collrun_run_dir(ctx);
    if (!to[0] && !run_dir[0])
        return 0;
    snprintf(path, sizeof path, "%s%s", to[0] ? to : run_dir, to[0] ? "" : "/replay.json");
    FILE *f = fopen(path, "we");
    int rc = f ? report_put(f, r) : -1;
    if (f && fclose(f))
        rc = -1;
    if (rc && to[0])
        return collrun_fail(ctx, "json: %s: %s", path, strerror(errno));
    if (rc) /* the run directory is on the machine of collrun, which may be another one */
        collrun_log(ctx, COLLRUN_LOG_INFO, "%s: %s", path, strerror(errno));
    return 0;
}

int report(const struct cast *c, const struct player *p, const char *speed, uint64_t ns)
{
    struct report r = {.cast = c,
                       .speed = speed,
                       .iterations = collrun_param_int(c->ctx, "iterations"),
                       .verify = collrun_param_bool(c->ctx, "verify")};
    int rc = report_reduce(&r, p);
    if (!rc)
        rc = report_spans(&r, ns);
    if (!rc && c->rank == 0) {
        report_print(&r);
        collrun_metric(c->ctx, "achieved_ms", r.achieved_ms);
        if (r.recorded_ms > 0)
            collrun_metric(c->ctx, "recorded_ms", r.recorded_ms);
        rc = report_write(&r);
    }
    if (!rc && r.wrong)
        return collrun_fail(c->ctx, "%llu operations have wrong results",
                            (unsigned long long)r.wrong);
    return rc;
}
