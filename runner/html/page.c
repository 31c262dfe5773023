/* SPDX-License-Identifier: Apache-2.0 */
#include "html/page.h"

#include "base/quote.h"
#include "diagnose/verdict.h"
#include "html/ops.h"
#include "html/run_files.h"
#include "html_assets.h"
#include "report/json_value.h"

#include <errno.h>
#include <math.h>
#include <openssl/evp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum page_source { /* of the operations */
                   PAGE_NONE,
                   PAGE_TRACE,
                   PAGE_RECORDS
};

struct page {
    FILE *out;
    const struct run_files *run;
    const struct run_files *other; /* the run that is compared with; NULL: none */
    enum page_source source;
    struct ops_view ops;
    uint64_t dropped;       /* operations that the source lacks */
    const json_t *instants; /* of the trace; NULL: none */
};

/* ---- what page.js draws ----
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
 *   matrix      matrix.json; the page then has nothing else
 *   bench, other_bench, stragglers, ranks, counted, groups, places, events: of the files
 */

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

static json_t *page_data(const struct page *p)
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

/* ---- the head ----
 *
 * The head of the page: what ran, how it ended, and why.
 */

static void page_fact(const struct page *p, const char *name, const char *text)
{
    if (!*text)
        return;
    fprintf(p->out, "<div><dt>%s</dt><dd>", name);
    markup_text(p->out, text);
    fputs("</dd></div>", p->out);
}

static void page_facts(const struct page *p)
{
    const json_t *seconds = json_object_get(p->run->result, "seconds");
    const json_t *plan = p->run->plan;
    fputs("<dl class=\"facts\">", p->out);
    page_fact(p, "run", run_files_text(p->run->result, "run_id"));
    page_fact(p, "started", run_files_text(p->run->result, "started"));
    if (seconds) {
        fputs("<div><dt>took</dt><dd>", p->out);
        markup_duration(p->out, 1e6 * json_number_value(seconds));
        fprintf(p->out, "</dd></div><div><dt>exit code</dt><dd>%d</dd></div>",
                (int)json_integer_value(json_object_get(p->run->result, "exit_code")));
    }
    fprintf(p->out,
            "<div><dt>ranks</dt><dd>%zu</dd></div><div><dt>hosts</dt><dd>%zu</dd></div>"
            "<div><dt>attempts</dt><dd>%zu</dd></div></dl>\n",
            json_array_size(json_object_get(plan, "ranks")),
            json_array_size(json_object_get(plan, "hosts")),
            json_array_size(json_object_get(p->run->result, "attempts")));
}

static void page_ranks_list(const struct page *p, const char *title, const json_t *ranks)
{
    size_t i;
    json_t *rank;
    if (!json_array_size(ranks))
        return;
    fprintf(p->out, "<p>%s ", title);
    json_array_foreach(ranks, i, rank)
        fprintf(p->out, "%s%" JSON_INTEGER_FORMAT, i ? ", " : "", json_integer_value(rank));
    fputs("</p>\n", p->out);
}

static void page_calls(const struct page *p, const json_t *verdict)
{
    size_t i;
    json_t *call;
    json_t *calls = json_object_get(verdict, "calls"), *waits = json_object_get(verdict, "waits");
    if (json_array_size(calls) + json_array_size(waits) == 0)
        return;
    fputs("<ul>\n", p->out);
    json_array_foreach(calls, i, call)
    {
        fputs("<li>rank ", p->out);
        markup_text(p->out, run_files_text(call, "ranks"));
        fputs(": <code>", p->out);
        markup_text(p->out, run_files_text(call, "call"));
        fputs("</code></li>\n", p->out);
    }
    json_array_foreach(waits, i, call)
    {
        fputs("<li>rank ", p->out);
        markup_text(p->out, run_files_text(call, "ranks"));
        fputs(" waits in <code>", p->out);
        markup_text(p->out, run_files_text(call, "group"));
        fputs("</code> for rank ", p->out);
        markup_text(p->out, run_files_text(call, "for"));
        fputs("</li>\n", p->out);
    }
    fputs("</ul>\n", p->out);
}

/* The hint and the further ranks, which result.json lacks: from the evidence, as collrun diag. */
static void page_hint(const struct page *p)
{
    struct verdict v;
    struct arena arena;
    char others[1024] = "";
    if (!p->run->has_evidence)
        return;
    arena_init(&arena);
    verdict_find(&p->run->evidence.evidence, &arena, &v);
    verdict_other_ranks(&p->run->evidence.evidence, &v, others, sizeof others);
    if (v.diag.hint[0]) {
        fputs("<p><b>Hint</b> ", p->out);
        markup_text(p->out, v.diag.hint);
        fputs("</p>\n", p->out);
    }
    if (others[0]) {
        fputs("<p>", p->out);
        markup_text(p->out, others);
        fputs("</p>\n", p->out);
    }
    arena_fini(&arena);
}

static void page_nav(const struct page *p)
{
    static const struct {
        const char *id, *text;
        bool of_operations;
    } parts[] = {{"timeline", "timeline", true},   {"latency", "durations", true},
                 {"bandwidth", "bandwidth", true}, {"waiting", "waits", true},
                 {"ranks", "ranks", false},        {"plan", "plan", false},
                 {"events", "events", false},      {"output", "output", false},
                 {"job", "job file", false}};
    fputs("<nav aria-label=\"parts of the page\">", p->out);
    if (json_array_size(p->run->bench))
        fputs("<a href=\"#bench\">benchmark</a> ", p->out);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (p->ops.n || !parts[i].of_operations)
            fprintf(p->out, "<a href=\"#%s\">%s</a> ", parts[i].id, parts[i].text);
    }
    fputs("</nav>\n", p->out);
}

static void page_verdict(const struct page *p)
{
    json_t *verdict = json_object_get(p->run->result, "verdict");
    const char *class = run_files_text(verdict, "class");
    const char *text = run_files_text(verdict, "text");
    bool good = strcmp(class, "ok") == 0;
    const char *job = run_files_text(p->run->result, "job");
    fprintf(p->out, "<header class=\"%s\">\n<p class=\"brand\">collrun report</p>\n<h1>",
            good     ? "good"
            : *class ? "bad"
                     : "open");
    markup_text(p->out, *job ? job : run_files_text(p->run->plan, "name"));
    fputs("</h1>\n<p class=\"verdict\"><span class=\"badge\">", p->out);
    markup_text(p->out, good ? "ok" : *class ? class : "no result");
    fputs("</span> ", p->out);
    if (good)
        fputs("All ranks ended well.", p->out);
    else if (*text)
        markup_text(p->out, text);
    else if (!*class)
        fputs("The run directory has no result.json: the job has not ended, or collrun was killed.",
              p->out);
    fputs("</p>\n", p->out);
    if (!good) {
        page_hint(p);
        page_ranks_list(p, "Culprits: rank", json_object_get(verdict, "culprits"));
        page_ranks_list(p, "Suspects: rank", json_object_get(verdict, "suspects"));
        page_calls(p, verdict);
    }
    page_facts(p);
    page_nav(p);
    fputs("</header>\n", p->out);
}

/* ---- the page ---- */

enum {
    PAGE_TAIL = 8192,         /* bytes of each file of output */
    PAGE_OUTPUT = 384 * 1024, /* of all of them */
    PAGE_JOB = 128 * 1024
};

/* "'sha256-...'", for the policy. */
static void page_hash(FILE *out, const char *bytes, size_t len)
{
    unsigned char digest[EVP_MAX_MD_SIZE], text[128] = "";
    unsigned int n = 0;
    if (EVP_Digest(bytes, len, digest, &n, EVP_sha256(), NULL) == 1)
        EVP_EncodeBlock(text, digest, (int)n);
    fprintf(out, "'sha256-%s'", (const char *)text);
}

static void page_head(const struct page *p)
{
    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
          "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; base-uri "
          "'none'; form-action 'none'; style-src ",
          p->out);
    page_hash(p->out, html_page_css, sizeof html_page_css - 1);
    fputs("; script-src ", p->out);
    page_hash(p->out, html_page_js, sizeof html_page_js - 1);
    fputs("\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
          "<meta name=\"color-scheme\" content=\"light dark\">\n"
          "<meta name=\"referrer\" content=\"no-referrer\">\n<title>",
          p->out);
    markup_text(p->out, run_files_text(p->run->matrix ? p->run->matrix : p->run->result, "job"));
    fputs(" - collrun report</title>\n<style>", p->out);
    fwrite(html_page_css, 1, sizeof html_page_css - 1, p->out);
    fputs("</style>\n</head>\n<body>\n", p->out);
}

/* ---- output ---- */

static size_t page_tail(const struct page *p, long long rank, const char *stream)
{
    char name[96], bytes[PAGE_TAIL];
    uint64_t total;
    size_t attempts = json_array_size(json_object_get(p->run->result, "attempts"));
    snprintf(name, sizeof name, "attempt-%zu/rank-%lld.%s", attempts ? attempts - 1 : 0, rank,
             stream);
    size_t n = run_files_tail(p->run, name, bytes, sizeof bytes, &total);
    if (n == 0)
        return 0;
    fprintf(p->out, "<details%s><summary>rank %lld <span class=\"note\">%s, ",
            rank == 0 || strcmp(stream, "stderr") == 0 ? " open" : "", rank, stream);
    markup_size(p->out, (double)total);
    fputs(total > n ? ", its end</span></summary><pre>" : "</span></summary><pre>", p->out);
    markup_bytes_text(p->out, bytes, n);
    fputs("</pre></details>\n", p->out);
    return n;
}

static void page_refused(const struct page *p)
{
    size_t i;
    json_t *name;
    if (!json_array_size(p->run->refused))
        return;
    fputs("<p class=\"note\">Not read, since links may lead out of the run directory:", p->out);
    json_array_foreach(p->run->refused, i, name)
    {
        fputs(i ? ", <code>" : " <code>", p->out);
        markup_text(p->out, json_string_value(name));
        fputs("</code>", p->out);
    }
    fputs(" (links, or no regular files).</p>\n", p->out);
}

/* First what ranks wrote to stderr, then stdout, in the order of ranks. */
static void page_output(const struct page *p)
{
    static const char *const streams[] = {"stderr", "stdout"};
    long long ranks = (long long)json_array_size(json_object_get(p->run->plan, "ranks"));
    size_t sum = 0;
    long long left_out = 0;
    fputs("<section id=\"output\">\n<h2>Output</h2>\n", p->out);
    for (int i = 0; i < 2; i++) {
        for (long long rank = 0; rank < ranks; rank++) {
            if (sum < PAGE_OUTPUT)
                sum += page_tail(p, rank, streams[i]);
            else
                left_out++;
        }
    }
    if (!sum)
        fputs("<p class=\"empty\">No rank wrote anything.</p>\n", p->out);
    if (left_out)
        fprintf(p->out,
                "<p class=\"note\">%lld files are left out; the run directory has them.</p>\n",
                left_out);
    page_refused(p);
    fputs("</section>\n", p->out);
}

/* ---- job ---- */

static void page_job(const struct page *p)
{
    fputs("<section id=\"job\">\n<h2>Job file</h2>\n", p->out);
    if (p->run->job) {
        size_t len = strlen(p->run->job);
        fputs("<p class=\"note\">resolved.yaml: with all defaults. Secrets are names; their values "
              "are not in the run directory.</p>\n<pre>",
              p->out);
        markup_bytes_text(p->out, p->run->job, len > PAGE_JOB ? PAGE_JOB : len);
        fputs(len > PAGE_JOB ? "\n...</pre>\n" : "</pre>\n", p->out);
    } else {
        fputs("<p class=\"empty\">The run directory has no resolved.yaml.</p>\n", p->out);
    }
    fputs("</section>\n", p->out);
}

/* ---- the whole ---- */

static void page_write_script(const struct page *p)
{
    fputs("</script>\n<script>", p->out);
    fwrite(html_page_js, 1, sizeof html_page_js - 1, p->out);
    fputs("</script>\n</body>\n</html>\n", p->out);
}

/* The parts that a script draws, in the order of page.js, stand between verdict and output. */
static void page_write(const struct page *p)
{
    page_head(p);
    page_verdict(p);
    fputs("<main>\n<div id=\"drawn\"></div>\n"
          "<noscript><p class=\"empty\">The script of this page draws its charts and tables, which "
          "are missing. The run directory has their numbers: result.json (ranks, metrics, "
          "stragglers), plan.json (groups), events.jsonl, bench-GROUP.json and trace.json.</p>"
          "</noscript>\n",
          p->out);
    page_output(p);
    page_job(p);
    fputs("</main>\n<script type=\"application/json\" id=\"data\">", p->out);
    json_t *data = page_data(p);
    markup_data(p->out, data);
    json_decref(data);
    page_write_script(p);
}

/* The runs of a matrix: page.js draws a table, and a curve for each metric. */
static void page_write_matrix(const struct page *p)
{
    const json_t *runs = json_object_get(p->run->matrix, "combinations");
    size_t i, ok = 0;
    json_t *run, *data = json_object();
    json_array_foreach(runs, i, run) ok += strcmp(run_files_text(run, "class"), "ok") == 0;
    json_object_set(data, "matrix", p->run->matrix);
    page_head(p);
    fputs("<header class=\"", p->out);
    fputs(ok == json_array_size(runs) ? "ok" : "bad", p->out);
    fputs("\">\n<h1>", p->out);
    markup_text(p->out, run_files_text(p->run->matrix, "job"));
    fprintf(p->out, "</h1>\n<p>A matrix: %zu of %zu runs are ok.</p>\n</header>\n", ok,
            json_array_size(runs));
    fputs("<main>\n<div id=\"drawn\"></div>\n<noscript><p class=\"empty\">The script of this page "
          "draws its charts and tables, which are missing. matrix.json and matrix.csv have their "
          "numbers.</p></noscript>\n</main>\n<script type=\"application/json\" id=\"data\">",
          p->out);
    markup_data(p->out, data);
    json_decref(data);
    page_write_script(p);
}

/* ---- collrun report ---- */

enum { HTML_PATH = 4096 };

static void html_command_page(struct page *p, struct ops *ops)
{
    struct trace_file trace = {0};
    FILE *in = p->run->matrix ? NULL : run_files_find(p->run, "trace.json");
    if (p->run->matrix) {
        page_write_matrix(p);
        return;
    }
    if (in) {
        trace_file_read(&trace, in, ops);
        fclose(in);
    }
    ops_view(ops, &p->ops);
    if (p->ops.n) {
        p->source = PAGE_TRACE;
        p->dropped = trace.dropped;
    } else if (p->run->has_evidence) {
        p->source = PAGE_RECORDS;
        p->dropped = flight_records_read(&p->run->evidence.evidence, ops);
        ops_view(ops, &p->ops);
    }
    p->instants = trace.instants;
    page_write(p);
    trace_file_fini(&trace);
}

static int html_command_write(struct page *p, const char *path, struct diag *d)
{
    char temporary[HTML_PATH + 8];
    bool to_stdout = strcmp(path, "-") == 0;
    snprintf(temporary, sizeof temporary, "%s.new", path);
    /* The folder may be a foreign one: a link in the place of the new file is replaced. */
    if (!to_stdout)
        unlink(temporary);
    p->out = to_stdout ? stdout : fopen(temporary, "wxe");
    if (!p->out)
        return diag_sys(d, errno, "cannot write %s", path);
    struct ops *ops = ops_new();
    html_command_page(p, ops);
    ops_free(ops);
    const bool flushed = to_stdout ? fflush(stdout) == 0 : fclose(p->out) == 0;
    if (flushed && (to_stdout || rename(temporary, path) == 0))
        return COLLRUN_OK;
    const int err = errno;
    if (!to_stdout)
        unlink(temporary);
    return diag_sys(d, err, "cannot write %s", path);
}

int html_command(const struct html_request *request, char *path, struct diag *d)
{
    struct run_files run, other = {0};
    struct page page = {.run = &run};
    int rc = run_files_open(&run, request->folder, d);
    if (rc == COLLRUN_OK && request->compare) {
        rc = run_files_open(&other, request->compare, d);
        page.other = &other;
    }
    if (request->file)
        snprintf(path, HTML_PATH, "%s", request->file);
    else
        snprintf(path, HTML_PATH, "%.4000s/report.html", request->folder);
    if (rc == COLLRUN_OK)
        rc = html_command_write(&page, path, d);
    run_files_close(&run);
    run_files_close(&other);
    return rc;
}

/* ---- markup ---- */

#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

static const char *markup_entity(char c)
{
    switch (c) {
    case '&':
        return "&amp;";
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '"':
        return "&quot;";
    case '\'':
        return "&#39;";
    default:
        return NULL;
    }
}

void markup_bytes_text(FILE *out, const char *text, size_t len)
{
    for (size_t i = 0, n; i < len; i += n) {
        bool space = text[i] == '\n' || text[i] == '\t';
        const char *entity = markup_entity(text[i]);
        n = utf8_len(text + i, len - i);
        if (!space && !utf8_shown_len(text + i, len - i))
            fputs(REPLACEMENT, out);
        else if (entity)
            fputs(entity, out);
        else
            fwrite(text + i, 1, n, out);
        n = n ? n : 1;
    }
}

void markup_text(FILE *out, const char *text)
{
    if (text)
        markup_bytes_text(out, text, strlen(text));
}

/* The character of an escape of JSON in ASCII: "\\n" or "\\u202e", or two of the latter. */
static size_t markup_escape(const char *p, uint32_t *code)
{
    unsigned high = 0, low = 0;
    *code = p[1] == 'n' || p[1] == 't' ? ' ' : strchr("bfr", p[1]) ? 1 : (uint32_t)p[1];
    if (p[1] != 'u' || sscanf(p, "\\u%4x", &high) != 1)
        return 2;
    *code = high;
    if (high < 0xd800 || high > 0xdbff || sscanf(p + 6, "\\u%4x", &low) != 1)
        return 6;
    *code = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
    return 12;
}

void markup_data(FILE *out, const json_t *value)
{
    char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_ENSURE_ASCII |
                                       JSON_REAL_PRECISION(12));
    for (const char *p = text; p && *p;) {
        uint32_t code = (unsigned char)*p;
        const size_t n = *p == '\\' ? markup_escape(p, &code) : 1;
        if (utf8_is_hidden(code))
            fputs("\\ufffd", out);
        else if (*p == '<' || *p == '>' || *p == '&')
            fprintf(out, "\\u%04x", (unsigned)*p);
        else
            fwrite(p, 1, n, out);
        p += n;
    }
    free(text);
}

void markup_duration(FILE *out, double us)
{
    static const char *const units[] = {"ns", "µs", "ms", "s"};
    double value = us * 1e3;
    int unit = 0;
    while (unit < 3 && value >= 999.5) {
        value /= 1e3;
        unit++;
    }
    fprintf(out, "%.*f %s",
            unit == 0 || value >= 99.95 ? 0
            : value >= 9.995            ? 1
                                        : 2,
            value, units[unit]);
}

void markup_size(FILE *out, double bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    int unit = 0;
    while (unit < 5 && bytes >= 1023.5) {
        bytes /= 1024;
        unit++;
    }
    bool whole = unit == 0 || bytes >= 99.95 || bytes == floor(bytes);
    fprintf(out, "%.*f %s", whole ? 0 : 1, bytes, units[unit]);
}
