/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of the page about the workload bench: duration and bus bandwidth over size, from the
 * files bench-GROUP.json, and those of the run that is compared with.
 */
#include "html/charts.h"
#include "html/markup.h"
#include "html/page.h"
#include "xalloc.h"

#include <stdlib.h>
#include <string.h>

enum { PAGE_SERIES = 24, PAGE_NAME = 160, PAGE_BENCH_ROWS = 600 };

struct page_curve { /* one operation of a group */
    char name[PAGE_NAME];
    struct charts_series time, bandwidth;
};

struct page_curves {
    struct page_curve items[2 * PAGE_SERIES];
    uint32_t n, named, left_out;
};

static struct charts_point *page_curve_put(struct charts_series *s, double x, double y)
{
    struct charts_point *points = realloc(s->points, (s->n + 1) * sizeof *points);
    if (!points)
        return NULL;
    s->points = points;
    s->points[s->n++] = (struct charts_point){x, y};
    return points;
}

static struct page_curve *page_curve_find(struct page_curves *c, const char *name, bool other)
{
    char text[PAGE_NAME];
    uint32_t colour = c->named;
    snprintf(text, sizeof text, "%s%s", name, other ? " (compared)" : "");
    for (uint32_t i = 0; i < c->n; i++) {
        if (c->items[i].time.other == other && strcmp(c->items[i].name, text) == 0)
            return &c->items[i];
        if (strncmp(c->items[i].name, name, strlen(name)) == 0)
            colour = c->items[i].time.colour;
    }
    if (c->n == sizeof c->items / sizeof *c->items || (!other && c->named == PAGE_SERIES)) {
        c->left_out++;
        return NULL;
    }
    struct page_curve *curve = &c->items[c->n++];
    snprintf(curve->name, sizeof curve->name, "%s", text);
    c->named += !other;
    curve->time = curve->bandwidth =
        (struct charts_series){.name = curve->name, .other = other, .colour = colour};
    return curve;
}

static const json_t *page_bench_form(const json_t *row)
{
    const json_t *form = json_object_get(row, "out_of_place");
    return json_is_object(form) ? form : json_object_get(row, "in_place");
}

static void page_curves_add(struct page_curves *c, const json_t *bench, bool other)
{
    size_t i, k;
    json_t *file, *row;
    json_array_foreach(bench, i, file)
    {
        json_array_foreach(json_object_get(file, "results"), k, row)
        {
            char name[PAGE_NAME - 16];
            const json_t *form = page_bench_form(row);
            bool together = strcmp(run_files_text(row, "phase"), "together") == 0;
            snprintf(name, sizeof name, "%.60s %.30s %.20s%s", run_files_text(file, "group"),
                     run_files_text(row, "operation"), run_files_text(row, "type"),
                     together ? " together" : "");
            struct page_curve *curve = page_curve_find(c, name, other);
            double size = json_number_value(json_object_get(row, "size"));
            if (!curve)
                continue;
            page_curve_put(&curve->time, size, json_number_value(json_object_get(form, "p50")));
            page_curve_put(&curve->bandwidth, size,
                           1e9 * json_number_value(json_object_get(form, "bus_bw")));
        }
    }
}

static void page_bench_row(const struct page *p, const json_t *file, const json_t *row)
{
    static const char *const times[] = {"p50", "p90", "p99", "max"};
    const json_t *form = page_bench_form(row);
    fputs("<tr><th scope=\"row\">", p->out);
    markup_text(p->out, run_files_text(file, "group"));
    fputs("</th><td>", p->out);
    markup_text(p->out, run_files_text(row, "operation"));
    fputs("</td><td>", p->out);
    markup_text(p->out, run_files_text(row, "type"));
    fputs("</td><td class=\"n\">", p->out);
    markup_size(p->out, json_number_value(json_object_get(row, "size")));
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        fputs("</td><td class=\"n\">", p->out);
        markup_duration(p->out, json_number_value(json_object_get(form, times[i])));
    }
    fprintf(p->out, "</td><td class=\"n\">%.3f</td><td class=\"n\">%.3f</td></tr>\n",
            json_number_value(json_object_get(form, "alg_bw")),
            json_number_value(json_object_get(form, "bus_bw")));
}

static void page_bench_table(const struct page *p)
{
    size_t i, k, n = 0;
    json_t *file, *row;
    fputs("<details><summary>as a table</summary><div "
          "class=\"scroll\"><table><thead><tr><th>group</th>"
          "<th>operation</th><th>type</th><th class=\"n\">size</th><th class=\"n\">p50</th><th "
          "class=\"n\">p90</th><th class=\"n\">p99</th><th class=\"n\">max</th><th "
          "class=\"n\">algbw GB/s</th><th class=\"n\">busbw GB/s</th></tr></thead><tbody>\n",
          p->out);
    json_array_foreach(p->run->bench, i, file)
    {
        json_array_foreach(json_object_get(file, "results"), k, row)
        {
            if (n++ < PAGE_BENCH_ROWS)
                page_bench_row(p, file, row);
        }
    }
    fputs("</tbody></table></div>", p->out);
    if (n > PAGE_BENCH_ROWS)
        fprintf(p->out, "<p class=\"note\">%zu further rows are left out.</p>",
                n - PAGE_BENCH_ROWS);
    fputs("</details>\n", p->out);
}

static void page_bench_charts(const struct page *p, const struct page_curves *c)
{
    static const struct charts_axes time = {"Duration (p50) over size", "bytes", "", markup_size,
                                            markup_duration};
    static const struct charts_axes bandwidth = {"Bus bandwidth over size", "bytes", "",
                                                 markup_size, markup_rate};
    struct charts_series series[2 * PAGE_SERIES];
    for (uint32_t i = 0; i < c->n; i++)
        series[i] = c->items[i].time;
    charts_log_log(p->out, &time, series, c->n);
    for (uint32_t i = 0; i < c->n; i++)
        series[i] = c->items[i].bandwidth;
    charts_log_log(p->out, &bandwidth, series, c->n);
}

void page_bench(const struct page *p)
{
    if (!json_array_size(p->run->bench))
        return;
    struct page_curves *c = xcalloc(1, sizeof *c);
    page_section(p, "bench", "Benchmark");
    if (c) {
        page_curves_add(c, p->run->bench, false);
        if (p->other)
            page_curves_add(c, p->other->bench, true);
        page_bench_charts(p, c);
        if (c->left_out)
            fprintf(p->out, "<p class=\"note\">At most %d curves are drawn.</p>\n", PAGE_SERIES);
    }
    page_bench_table(p);
    fputs("</section>\n", p->out);
    for (uint32_t i = 0; i < c->n; i++) {
        free(c->items[i].time.points);
        free(c->items[i].bandwidth.points);
    }
    free(c);
}
