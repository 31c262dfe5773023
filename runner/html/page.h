/* SPDX-License-Identifier: Apache-2.0
 *
 * One HTML page about a run: the verdict, then everything that the run directory holds. The page
 * needs no network. Verdict, output and job file are text; page.js draws charts and tables from one
 * JSON value. The Content-Security-Policy allows only the style and the script of page.css and
 * page.js, by their hashes.
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

void page_write(const struct page *p);
void page_verdict(const struct page *p); /* its head */
json_t *page_data(const struct page *p); /* what page.js draws; see page_data.c */

#endif
