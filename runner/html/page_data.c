/* SPDX-License-Identifier: Apache-2.0
 *
 * The numbers of the page, as one JSON value: page.js draws all charts and tables from it. What the
 * files of the run directory hold is passed on as it is, cut to what the page shows; page.js checks
 * the types. Times are microseconds.
 *
 *   timeline    rows [rank, group], kinds, states, begin_us, instants, and ops: seven numbers for
 *               each operation: row, begin, length (ns), kind, state, number, bytes
 *   durations   of each group and kind: percentiles, and buckets [begins at, count]
 *   bandwidth   bytes per slice of slice_us
 *   waits       compared, last (per rank), waited: [rank][for the rank that came last], of at most
 *               PAGE_MATRIX ranks, and others: how long all others waited for each rank
 *   bench, other_bench, stragglers, ranks, counted, groups, places, events: of the files
 */
#include "html/page.h"
#include "report/json_value.h"

enum { PAGE_MATRIX = 64 /* ranks */, PAGE_ROWS = 1024 /* of a table */ };

/* ---- operations ---- */

static json_t *data_names(const char *const *names, uint32_t n)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < n; i++)
        json_array_append_new(list, json_value_text(names[i]));
    return list;
}

static json_t *data_kept(const struct ops_view *v)
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

static json_t *data_timeline(const struct page *p)
{
    const struct ops_view *v = &p->ops;
    json_t *rows = json_array();
    for (uint32_t i = 0; i < v->nrows; i++)
        json_array_append_new(
            rows, json_pack("[i, o]", (int)v->rows[i].rank, json_value_text(v->rows[i].group)));
    return json_pack("{s:o, s:o, s:o, s:o, s:f, s:O, s:I, s:I, s:I, s:b}", "rows", rows, "kinds",
                     data_names(v->kinds, v->nkinds), "states", data_names(v->states, v->nstates),
                     "ops", data_kept(v), "begin_us", v->begin_us, "instants",
                     p->instants ? p->instants : json_null(), "n", (json_int_t)v->n, "stride",
                     (json_int_t)v->stride, "dropped", (json_int_t)p->dropped, "from_trace",
                     (int)(p->source == PAGE_TRACE));
}

static json_t *data_durations(const struct ops_view *v)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < v->nlatencies; i++) {
        const struct ops_latency *l = &v->latencies[i];
        json_t *buckets = json_array();
        for (uint32_t b = 0; b < OPS_BUCKETS; b++)
            if (l->buckets[b])
                json_array_append_new(
                    buckets, json_pack("[f, i, i]", ops_bucket_us(b), (int)l->buckets[b], (int)b));
        json_array_append_new(list, json_pack("{s:o, s:o, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:o}",
                                              "group", json_value_text(l->group), "kind",
                                              json_value_text(l->kind), "n", (json_int_t)l->n,
                                              "bytes", (json_int_t)l->bytes, "p50",
                                              ops_percentile(l, 0.5), "p90", ops_percentile(l, 0.9),
                                              "p99", ops_percentile(l, 0.99), "least", l->least_us,
                                              "most", l->most_us, "buckets", buckets));
    }
    return list;
}

static json_t *data_bandwidth(const struct ops_view *v)
{
    uint32_t n = 0;
    json_t *slices = json_array();
    for (uint32_t i = 0; i < OPS_SLICES; i++)
        n = v->slices[i] > 0 ? i + 1 : n;
    for (uint32_t i = 0; i < n; i++)
        json_array_append_new(slices, json_real(v->slices[i]));
    return json_pack("{s:f, s:o}", "slice_us", v->slice_us, "slices", slices);
}

static json_t *data_waits(const struct ops_view *v)
{
    json_t *last = json_array(), *others = json_array(), *waited = json_array();
    for (uint32_t i = 0; i < v->nranks; i++) {
        double sum = 0;
        for (uint32_t k = 0; k < v->nranks; k++) {
            sum += v->waited[(size_t)k * OPS_RANKS + i];
            if (v->nranks <= PAGE_MATRIX)
                json_array_append_new(waited, json_real(v->waited[(size_t)i * OPS_RANKS + k]));
        }
        json_array_append_new(last, json_integer((json_int_t)v->last[i]));
        json_array_append_new(others, json_real(sum));
    }
    return json_pack("{s:I, s:o, s:o, s:o}", "compared", (json_int_t)v->compared, "last", last,
                     "others", others, "waited", waited);
}

/* ---- files ---- */

/* The first rows; a table says how many further ones there are by "NAME_left_out". */
static void data_add_rows(json_t *data, const char *name, const json_t *rows)
{
    json_t *kept = json_array();
    char left_out[64];
    const size_t n = json_array_size(rows);
    for (size_t i = 0; i < n && i < PAGE_ROWS; i++)
        json_array_append(kept, json_array_get(rows, i));
    json_object_set_new(data, name, kept);
    snprintf(left_out, sizeof left_out, "%s_left_out", name);
    if (n > PAGE_ROWS)
        json_object_set_new(data, left_out, json_integer((json_int_t)(n - PAGE_ROWS)));
}

json_t *page_data(const struct page *p)
{
    const struct run_files *run = p->run;
    json_t *data = json_object();
    if (p->ops.n) {
        json_object_set_new(data, "timeline", data_timeline(p));
        json_object_set_new(data, "durations", data_durations(&p->ops));
        json_object_set_new(data, "bandwidth", data_bandwidth(&p->ops));
        json_object_set_new(data, "waits", data_waits(&p->ops));
    }
    data_add_rows(data, "bench", run->bench);
    data_add_rows(data, "other_bench", p->other ? p->other->bench : NULL);
    data_add_rows(data, "stragglers", json_object_get(run->result, "stragglers"));
    data_add_rows(data, "ranks", json_object_get(run->result, "ranks"));
    data_add_rows(data, "counted", json_object_get(run->result, "groups"));
    data_add_rows(data, "groups", json_object_get(run->plan, "groups"));
    data_add_rows(data, "places", json_object_get(run->plan, "ranks"));
    json_object_set(data, "events", run->events);
    json_object_set_new(data, "events_left_out", json_integer((json_int_t)run->events_left_out));
    return data;
}
