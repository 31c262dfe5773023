/* SPDX-License-Identifier: Apache-2.0
 *
 * The head of the page: what ran, how it ended, and why.
 */
#include "diagnose/verdict.h"
#include "html/markup.h"
#include "html/page.h"

#include <string.h>

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

void page_verdict(const struct page *p)
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
