/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of the page about the job: ranks, plan, events, output, job file.
 */
#include "html/markup.h"
#include "html/page.h"

#include <stdlib.h>
#include <string.h>

enum {
    PAGE_RANKS = 1024,        /* listed */
    PAGE_TAIL = 8192,         /* bytes of each file of output */
    PAGE_OUTPUT = 384 * 1024, /* of all of them */
    PAGE_JOB = 128 * 1024,
    PAGE_EVENT = 400 /* bytes of what an event says */
};

static long long page_integer(const json_t *o, const char *key)
{
    return json_integer_value(json_object_get(o, key));
}

/* ---- ranks ---- */

static double page_most(const json_t *ranks, const char *key, const char *further)
{
    size_t i;
    json_t *rank;
    double most = 1e-9;
    json_array_foreach(ranks, i, rank)
    {
        double value = json_number_value(json_object_get(rank, key)) +
                       json_number_value(json_object_get(rank, further));
        most = value > most ? value : most;
    }
    return most;
}

static void page_meter(FILE *out, double value, double most)
{
    fprintf(out, "</td><td><meter min=\"0\" max=\"100\" value=\"%.0f\">%.0f %%</meter></td>",
            100 * value / most, 100 * value / most);
}

static void page_metrics(FILE *out, json_t *metrics)
{
    const char *name;
    json_t *value;
    const char *between = "";
    json_object_foreach(metrics, name, value)
    {
        fputs(between, out);
        markup_text(out, name);
        if (json_is_number(value))
            fprintf(out, " %.6g", json_number_value(value));
        else
            markup_text(out, json_string_value(value));
        between = "<br>";
    }
}

static void page_rank(const struct page *p, const json_t *rank, double most_s, double most_bytes)
{
    double seconds = json_number_value(json_object_get(rank, "user_s")) +
                     json_number_value(json_object_get(rank, "system_s"));
    double bytes = json_number_value(json_object_get(rank, "max_rss_bytes"));
    const char *class = run_files_text(rank, "class");
    fprintf(p->out, "<tr><th scope=\"row\" class=\"n\">%lld</th><td>", page_integer(rank, "rank"));
    markup_text(p->out, run_files_text(rank, "host"));
    fprintf(p->out, "</td><td class=\"n\">%lld</td><td class=\"%s\">", page_integer(rank, "pid"),
            strcmp(class, "ok") == 0 ? "ok" : "bad");
    markup_text(p->out, class);
    if (json_object_get(rank, "signal"))
        fprintf(p->out, ", signal %lld", page_integer(rank, "signal"));
    fputs("</td><td class=\"n\">", p->out);
    markup_duration(p->out, seconds * 1e6);
    page_meter(p->out, seconds, most_s);
    fputs("<td class=\"n\">", p->out);
    markup_size(p->out, bytes);
    page_meter(p->out, bytes, most_bytes);
    fputs("<td>", p->out);
    page_metrics(p->out, json_object_get(rank, "metrics"));
    fputs("</td><td>", p->out);
    markup_text(p->out, run_files_text(rank, "error"));
    fputs("</td></tr>\n", p->out);
}

void page_ranks(const struct page *p)
{
    size_t i;
    json_t *rank;
    json_t *ranks = json_object_get(p->run->result, "ranks");
    page_section(p, "ranks", "Ranks");
    if (!json_array_size(ranks)) {
        fputs("<p class=\"empty\">No result.json: what became of the ranks is not "
              "known.</p></section>\n",
              p->out);
        return;
    }
    double most_s = page_most(ranks, "user_s", "system_s");
    double most_bytes = page_most(ranks, "max_rss_bytes", "");
    fputs(
        "<div class=\"scroll\"><table><thead><tr><th class=\"n\">rank</th><th>host</th><th "
        "class=\"n\">pid</th><th>end</th><th class=\"n\">CPU time</th><th></th><th "
        "class=\"n\">peak memory</th><th></th><th>metrics</th><th>error</th></tr></thead><tbody>\n",
        p->out);
    json_array_foreach(ranks, i, rank)
    {
        if (i < PAGE_RANKS)
            page_rank(p, rank, most_s, most_bytes);
    }
    fputs("</tbody></table></div>\n", p->out);
    if (i > PAGE_RANKS)
        fprintf(p->out, "<p class=\"note\">%zu further ranks are left out.</p>\n", i - PAGE_RANKS);
    fputs("</section>\n", p->out);
}

/* ---- plan ---- */

static void page_group(const struct page *p, const json_t *group)
{
    size_t i;
    json_t *rank;
    json_t *ranks = json_object_get(group, "ranks");
    fputs("<tr><th scope=\"row\">", p->out);
    markup_text(p->out, run_files_text(group, "name"));
    fputs("</th><td>", p->out);
    markup_text(p->out, run_files_text(group, "backend"));
    fprintf(p->out, "</td><td class=\"n\">%zu</td><td>", json_array_size(ranks));
    json_array_foreach(ranks, i, rank)
    {
        if (i < 256)
            fprintf(p->out, "%s%lld", i ? " " : "", (long long)json_integer_value(rank));
    }
    fputs(i > 256 ? " ...</td>" : "</td>", p->out);
    json_t *done = NULL, *counted;
    json_array_foreach(json_object_get(p->run->result, "groups"), i, counted)
    {
        if (strcmp(run_files_text(counted, "name"), run_files_text(group, "name")) == 0)
            done = counted;
    }
    fputs("<td class=\"n\">", p->out);
    if (done)
        markup_count(p->out, (uint64_t)page_integer(done, "operations"));
    fputs("</td><td class=\"n\">", p->out);
    if (done)
        markup_size(p->out, (double)page_integer(done, "bytes"));
    fputs("</td></tr>\n", p->out);
}

static void page_place(const struct page *p, const json_t *rank)
{
    size_t i;
    json_t *group;
    fprintf(p->out, "<tr><th scope=\"row\" class=\"n\">%lld</th><td>", page_integer(rank, "rank"));
    markup_text(p->out, run_files_text(rank, "host"));
    fputs("</td><td>", p->out);
    markup_text(p->out, run_files_text(rank, "cpus"));
    fputs("</td><td>", p->out);
    json_array_foreach(json_object_get(rank, "groups"), i, group)
    {
        fputs("<span class=\"chip\">", p->out);
        markup_text(p->out, json_string_value(group));
        fputs("</span> ", p->out);
    }
    fputs("</td></tr>\n", p->out);
}

void page_plan(const struct page *p)
{
    size_t i;
    json_t *item;
    page_section(p, "plan", "Plan");
    fputs("<h3>Groups</h3>\n<div class=\"scroll\"><table><thead><tr><th>group</th><th>backend</th>"
          "<th class=\"n\">size</th><th>ranks</th><th class=\"n\">operations</th><th "
          "class=\"n\">bytes</th></tr></thead><tbody>\n",
          p->out);
    json_array_foreach(json_object_get(p->run->plan, "groups"), i, item)
    {
        if (i < PAGE_RANKS)
            page_group(p, item);
    }
    fputs(
        "</tbody></table></div>\n<h3>Ranks on hosts</h3>\n<div class=\"scroll\"><table>"
        "<thead><tr><th class=\"n\">rank</th><th>host</th><th>cpus</th><th>groups</th></tr></thead>"
        "<tbody>\n",
        p->out);
    json_array_foreach(json_object_get(p->run->plan, "ranks"), i, item)
    {
        if (i < PAGE_RANKS)
            page_place(p, item);
    }
    fputs("</tbody></table></div>\n</section>\n", p->out);
}

/* ---- events ---- */

/* The members of an event that have no column. */
static void page_event_rest(const struct page *p, json_t *event)
{
    const char *key;
    json_t *value, *rest = json_object();
    json_object_foreach(event, key, value)
    {
        if (strcmp(key, "t") != 0 && strcmp(key, "event") != 0 && strcmp(key, "attempt") != 0)
            json_object_set(rest, key, value);
    }
    char *text = json_dumps(rest, JSON_COMPACT | JSON_REAL_PRECISION(6));
    size_t len = text ? strlen(text) : 0;
    if (len > 2)
        markup_bytes_text(p->out, text + 1, len - 2 > PAGE_EVENT ? PAGE_EVENT : len - 2);
    if (len > PAGE_EVENT + 2)
        fputs(" ...", p->out);
    free(text);
    json_decref(rest);
}

void page_events(const struct page *p)
{
    size_t i;
    json_t *event;
    page_section(p, "events", "Events");
    fprintf(p->out, "<details><summary>%zu events, from events.jsonl",
            json_array_size(p->run->events));
    if (p->run->events_left_out) {
        fputs("; in the middle ", p->out);
        markup_count(p->out, p->run->events_left_out);
        fputs(" are left out", p->out);
    }
    fputs("</summary>\n<div class=\"scroll\"><table><thead><tr><th class=\"n\">at</th><th "
          "class=\"n\">attempt</th><th>event</th><th></th></tr></thead><tbody>\n",
          p->out);
    json_array_foreach(p->run->events, i, event)
    {
        fprintf(p->out, "<tr><td class=\"n\">%.6f s</td><td class=\"n\">%lld</td><td>",
                json_number_value(json_object_get(event, "t")), page_integer(event, "attempt"));
        markup_text(p->out, run_files_text(event, "event"));
        fputs("</td><td><code>", p->out);
        page_event_rest(p, event);
        fputs("</code></td></tr>\n", p->out);
    }
    fputs("</tbody></table></div></details>\n</section>\n", p->out);
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
void page_output(const struct page *p)
{
    static const char *const streams[] = {"stderr", "stdout"};
    long long ranks = (long long)json_array_size(json_object_get(p->run->plan, "ranks"));
    size_t sum = 0;
    long long left_out = 0;
    page_section(p, "output", "Output");
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

void page_job(const struct page *p)
{
    page_section(p, "job", "Job file");
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
