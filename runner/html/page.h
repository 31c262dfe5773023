/* SPDX-License-Identifier: Apache-2.0
 *
 * One HTML page about a run: the verdict, then everything that the run directory holds. The page
 * needs no network, and for its text no script. Its Content-Security-Policy allows only the style
 * and the script of page.css and page.js, by their hashes.
 */
#ifndef RUNNER_HTML_PAGE_H
#define RUNNER_HTML_PAGE_H

#include "html/ops.h"
#include "html/run_files.h"

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

/* Writes the whole page. False: out of memory. */
bool page_write(const struct page *p);

/* ---- its parts, top to bottom; those that need operations are left out where there are none ----
 */

void page_section(const struct page *p, const char *id, const char *title);
void page_verdict(const struct page *p);
bool page_timeline(const struct page *p);
void page_latency(const struct page *p);
void page_bandwidth(const struct page *p);
void page_waiting(const struct page *p);
void page_bench(const struct page *p);
void page_ranks(const struct page *p);
void page_plan(const struct page *p);
void page_events(const struct page *p);
void page_output(const struct page *p);
void page_job(const struct page *p);

#endif
