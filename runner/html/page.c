/* SPDX-License-Identifier: Apache-2.0 */
#include "html/page.h"

#include "html/markup.h"
#include "html_assets.h"

#include <openssl/evp.h>
#include <string.h>

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
    page_hash(p->out, html_page_css, sizeof html_page_css);
    fputs("; script-src ", p->out);
    page_hash(p->out, html_page_js, sizeof html_page_js);
    fputs("\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
          "<meta name=\"color-scheme\" content=\"light dark\">\n"
          "<meta name=\"referrer\" content=\"no-referrer\">\n<title>",
          p->out);
    markup_text(p->out, run_files_text(p->run->result, "job"));
    fputs(" - collrun report</title>\n<style>", p->out);
    fwrite(html_page_css, 1, sizeof html_page_css, p->out);
    fputs("</style>\n</head>\n<body>\n", p->out);
}

bool page_write(const struct page *p)
{
    page_head(p);
    page_verdict(p);
    fputs("<main>\n", p->out);
    page_bench(p);
    bool written = page_timeline(p);
    page_latency(p);
    page_bandwidth(p);
    page_waiting(p);
    page_ranks(p);
    page_plan(p);
    page_events(p);
    page_output(p);
    page_job(p);
    fputs("</main>\n<script>", p->out);
    fwrite(html_page_js, 1, sizeof html_page_js, p->out);
    fputs("</script>\n</body>\n</html>\n", p->out);
    return written;
}
