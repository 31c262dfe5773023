/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of the page about operations: timeline, durations, bandwidth, and who waited for whom.
 */
#include "html/charts.h"
#include "html/markup.h"
#include "html/page.h"

#include <math.h>
#include <string.h>

enum { PAGE_MATRIX = 64 /* ranks */ };

/* ---- timeline ---- */

static void page_source_text(const struct page *p)
{
    const struct ops_view *v = &p->ops;
    fputs("<p class=\"note\">", p->out);
    markup_count(p->out, v->n);
    fputs(p->source == PAGE_TRACE
              ? " operations, from trace.json."
              : " operations, from the flight records: the last ones of each rank before the run "
                "failed, by the clock of each host.",
          p->out);
    if (p->dropped) {
        fputc(' ', p->out);
        markup_count(p->out, p->dropped);
        fputs(p->source == PAGE_TRACE ? " more were overwritten before they were read."
                                      : " earlier ones were overwritten.",
              p->out);
    }
    if (v->nkept < v->n) {
        fputs(" Shown are ", p->out);
        markup_count(p->out, v->nkept);
        fputs(": of each group, one operation in ", p->out);
        markup_count(p->out, v->stride);
        fputs(", and those that did not end well; ", p->out);
        markup_count(p->out, v->n - v->nkept);
        fputs(" are left out.", p->out);
    }
    fputs("</p>\n", p->out);
}

static json_t *page_rows(const struct ops_view *v)
{
    json_t *rows = json_array();
    for (uint32_t i = 0; i < v->nrows; i++)
        json_array_append_new(rows, json_pack("[i, s]", (int)v->rows[i].rank, v->rows[i].group));
    return rows;
}

static json_t *page_names(const char *const *names, uint32_t n)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < n; i++)
        json_array_append_new(list, json_string(names[i]));
    return list;
}

/* Seven numbers for each: row, begin, length (ns), kind, state, number, bytes. */
static json_t *page_kept(const struct ops_view *v)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < v->nkept; i++) {
        const struct ops_kept *k = &v->kept[i];
        const json_int_t numbers[] = {k->row,
                                      (json_int_t)((k->begin_us - v->begin_us) * 1e3),
                                      (json_int_t)(k->length_us * 1e3),
                                      k->kind,
                                      k->state,
                                      k->number,
                                      (json_int_t)k->bytes};
        for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++)
            json_array_append_new(list, json_integer(numbers[n]));
    }
    return list;
}

static void page_legend(const struct page *p)
{
    fputs("<ul class=\"legend\">", p->out);
    for (uint32_t i = 0; i < p->ops.nkinds && i < 32; i++) {
        fprintf(p->out, "<li><span class=\"key s%u\"></span>", i % 8);
        markup_text(p->out, p->ops.kinds[i]);
        fputs("</li>", p->out);
    }
    fputs("<li><span class=\"key bad\"></span>not done</li></ul>\n", p->out);
}

bool page_timeline(const struct page *p)
{
    const struct ops_view *v = &p->ops;
    page_section(p, "timeline", "Timeline");
    if (!v->n) {
        fputs(
            "<p class=\"empty\">No timeline, durations, bandwidth and waits: the run directory "
            "holds no operations. It has no trace.json, and no flight records, which collrun saves "
            "when a run fails. <code>logging: {trace: true}</code> in job.yaml writes a "
            "trace.</p>\n</section>\n",
            p->out);
        return true;
    }
    page_source_text(p);
    fputs(
        "<div class=\"tools\"><button type=\"button\" data-do=\"in\" aria-label=\"zoom "
        "in\">+</button>"
        "<button type=\"button\" data-do=\"out\" aria-label=\"zoom out\">&minus;</button>"
        "<button type=\"button\" data-do=\"all\">all</button>"
        "<span class=\"hint\">drag or &larr; &rarr; to move, Ctrl+wheel or + &minus; to zoom, Home "
        "for all</span></div>\n"
        "<div class=\"canvas\" id=\"view\" tabindex=\"0\" role=\"application\" "
        "aria-label=\"timeline of operations; the arrow keys move it, plus and minus zoom it\">"
        "<canvas id=\"drawing\"></canvas></div>\n"
        "<output id=\"pointed\" aria-live=\"polite\">&nbsp;</output>\n"
        "<noscript><p class=\"empty\">The timeline is drawn by a script. All tables of this page "
        "do without one.</p></noscript>\n",
        p->out);
    page_legend(p);
    json_t *data = json_pack("{s:o, s:o, s:o, s:o, s:f, s:O}", "rows", page_rows(v), "kinds",
                             page_names(v->kinds, v->nkinds), "states",
                             page_names(v->states, v->nstates), "ops", page_kept(v), "begin_us",
                             v->begin_us, "instants", p->instants ? p->instants : json_null());
    fputs("<script type=\"application/json\" id=\"operations\">", p->out);
    bool written = data && markup_data(p->out, data);
    fputs("</script>\n</section>\n", p->out);
    json_decref(data);
    return written;
}

/* ---- durations ---- */

static void page_latency_row(FILE *out, const struct ops_latency *l)
{
    static const double shares[] = {0.5, 0.9, 0.99};
    fputs("<tr><th scope=\"row\">", out);
    markup_text(out, l->group);
    fputs("</th><td>", out);
    markup_text(out, l->kind);
    fputs("</td><td class=\"n\">", out);
    markup_count(out, l->n);
    fputs("</td><td class=\"n\">", out);
    markup_size(out, (double)l->bytes);
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
        fputs("</td><td class=\"n\">", out);
        markup_duration(out, ops_percentile(l, shares[i]));
    }
    fputs("</td><td class=\"n\">", out);
    markup_duration(out, l->most_us);
    fputs("</td><td>", out);
    charts_histogram(out, l);
    fputs("</td></tr>\n", out);
}

void page_latency(const struct page *p)
{
    if (!p->ops.n)
        return;
    page_section(p, "latency", "Durations");
    if (!p->ops.nlatencies) {
        fputs("<p class=\"empty\">No operation ended well.</p>\n</section>\n", p->out);
        return;
    }
    fputs(
        "<p class=\"note\">From the call to its end, on all ranks, of operations that ended well. "
        "Percentiles are exact to 5 %.</p>\n<div class=\"scroll\"><table><thead><tr>"
        "<th>group</th><th>operation</th><th class=\"n\">count</th><th class=\"n\">bytes</th>"
        "<th class=\"n\">p50</th><th class=\"n\">p90</th><th class=\"n\">p99</th>"
        "<th class=\"n\">max</th><th>histogram (log)</th></tr></thead><tbody>\n",
        p->out);
    for (uint32_t i = 0; i < p->ops.nlatencies; i++)
        page_latency_row(p->out, &p->ops.latencies[i]);
    fputs("</tbody></table></div>\n</section>\n", p->out);
}

void page_bandwidth(const struct page *p)
{
    if (!p->ops.n)
        return;
    page_section(p, "bandwidth", "Bandwidth");
    if (!p->ops.nlatencies) {
        fputs("<p class=\"empty\">No operation ended well.</p>\n</section>\n", p->out);
        return;
    }
    fputs("<p class=\"note\">Bytes of the operations that ended, summed over all ranks, per ",
          p->out);
    markup_duration(p->out, p->ops.slice_us);
    fputs(".</p>\n", p->out);
    charts_bandwidth(p->out, &p->ops);
    fputs("</section>\n", p->out);
}

/* ---- who waited for whom ---- */

static double page_waited(const struct ops_view *v, uint32_t rank, uint32_t of)
{
    return v->waited[(size_t)rank * OPS_RANKS + of];
}

static void page_last(const struct page *p)
{
    const struct ops_view *v = &p->ops;
    fputs("<h3>Who called a collective last, and how long the others waited</h3>\n"
          "<div class=\"scroll\"><table><thead><tr><th class=\"n\">rank</th><th "
          "class=\"n\">last</th><th "
          "class=\"n\">share</th><th class=\"n\">others waited</th><th></th></tr></thead><tbody>\n",
          p->out);
    for (uint32_t i = 0; i < v->nranks; i++) {
        double sum = 0, share = 100.0 * (double)v->last[i] / (double)v->compared;
        for (uint32_t k = 0; k < v->nranks; k++)
            sum += page_waited(v, k, i);
        if (!v->last[i])
            continue;
        fprintf(p->out, "<tr><th scope=\"row\" class=\"n\">%u</th><td class=\"n\">", i);
        markup_count(p->out, v->last[i]);
        fprintf(p->out, "</td><td class=\"n\">%.1f %%</td><td class=\"n\">", share);
        markup_duration(p->out, sum);
        fprintf(p->out,
                "</td><td><meter min=\"0\" max=\"100\" value=\"%.1f\">%.1f %%</meter></td></tr>\n",
                share, share);
    }
    fputs("</tbody></table></div>\n", p->out);
}

static void page_matrix(const struct page *p)
{
    const struct ops_view *v = &p->ops;
    double most = 1e-9;
    for (uint32_t i = 0; i < v->nranks; i++) {
        for (uint32_t k = 0; k < v->nranks; k++)
            most = fmax(most, page_waited(v, i, k));
    }
    fputs("<h3>How long each rank (row) waited in collectives for the rank that came last "
          "(column)</h3>\n<p class=\"note\">The darkest field is ",
          p->out);
    markup_duration(p->out, most);
    fputs(".</p>\n<div class=\"scroll\"><table class=\"matrix\"><thead><tr><td></td>", p->out);
    for (uint32_t k = 0; k < v->nranks; k++)
        fprintf(p->out, "<th scope=\"col\">%u</th>", k);
    fputs("</tr></thead><tbody>\n", p->out);
    for (uint32_t i = 0; i < v->nranks; i++) {
        fprintf(p->out, "<tr><th scope=\"row\">%u</th>", i);
        for (uint32_t k = 0; k < v->nranks; k++) {
            double us = page_waited(v, i, k);
            fprintf(p->out, "<td class=\"h%d\" title=\"%u for %u: ", (int)ceil(9 * us / most), i,
                    k);
            markup_duration(p->out, us);
            fputs("\"></td>", p->out);
        }
        fputs("</tr>\n", p->out);
    }
    fputs("</tbody></table></div>\n", p->out);
}

/* What the audit counted while the run was going on, in result.json (report/stragglers.h). */
static void page_stragglers(const struct page *p)
{
    size_t i, k;
    json_t *group, *rank;
    json_t *list = json_object_get(p->run->result, "stragglers");
    if (!json_array_size(list))
        return;
    fputs(
        "<h3>Late ranks, as collrun counted them during the run</h3>\n"
        "<div class=\"scroll\"><table><thead><tr><th>group</th><th class=\"n\">rank</th><th "
        "class=\"n\">last "
        "in</th>"
        "<th class=\"n\">of</th><th class=\"n\">late by</th><th class=\"n\">cost</th></tr></thead>"
        "<tbody>\n",
        p->out);
    json_array_foreach(list, i, group)
    {
        json_array_foreach(json_object_get(group, "ranks"), k, rank)
        {
            fputs("<tr><th scope=\"row\">", p->out);
            markup_text(p->out, run_files_text(group, "group"));
            fprintf(p->out,
                    "</th><td class=\"n\">%d</td><td class=\"n\">%" JSON_INTEGER_FORMAT
                    "</td><td class=\"n\">%" JSON_INTEGER_FORMAT "</td><td class=\"n\">",
                    (int)json_integer_value(json_object_get(rank, "rank")),
                    json_integer_value(json_object_get(rank, "last")),
                    json_integer_value(json_object_get(group, "compared")));
            markup_duration(p->out, 1e3 * json_number_value(json_object_get(rank, "late_ms")));
            fprintf(p->out, "</td><td class=\"n\">%.1f %%</td></tr>\n",
                    100 * json_number_value(json_object_get(rank, "cost")));
        }
    }
    fputs("</tbody></table></div>\n", p->out);
}

void page_waiting(const struct page *p)
{
    const struct ops_view *v = &p->ops;
    if (!v->n && !json_array_size(json_object_get(p->run->result, "stragglers")))
        return;
    page_section(p, "waiting", "Who waited for whom");
    if (v->compared) {
        page_last(p);
        if (v->nranks <= PAGE_MATRIX)
            page_matrix(p);
        else
            fprintf(p->out, "<p class=\"empty\">The matrix is drawn for at most %d ranks.</p>\n",
                    PAGE_MATRIX);
    } else if (v->n) {
        fputs("<p class=\"empty\">No collective was called by all of its members.</p>\n", p->out);
    }
    page_stragglers(p);
    fputs("</section>\n", p->out);
}
