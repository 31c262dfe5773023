/* SPDX-License-Identifier: Apache-2.0 */
#include "html/page.h"

#include "html/markup.h"
#include "html_assets.h"

#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

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
    markup_text(p->out, run_files_text(p->run->result, "job"));
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

/* The parts that a script draws, in the order of page.js, stand between verdict and output. */
void page_write(const struct page *p)
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
    fputs("</script>\n<script>", p->out);
    fwrite(html_page_js, 1, sizeof html_page_js - 1, p->out);
    fputs("</script>\n</body>\n</html>\n", p->out);
}
