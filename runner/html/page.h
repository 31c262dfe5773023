/* SPDX-License-Identifier: Apache-2.0
 *
 * collrun report: one HTML page about a run, from its run directory alone: the verdict, then
 * everything that the run directory holds. The page needs no network. Verdict, output and job file
 * are text; page.js draws charts and tables from one JSON value. The Content-Security-Policy allows
 * only the style and the script of page.css and page.js, by their hashes.
 */
#ifndef RUNNER_HTML_PAGE_H
#define RUNNER_HTML_PAGE_H

#include "base/diag.h"

struct html_request {
    const char *folder; /* a run directory */
    const char
        *compare;     /* another one, whose measurements of bench are drawn as well; NULL: none */
    const char *file; /* NULL: report.html in the run directory; "-": stdout */
};

/* The file is replaced when the page is whole. `path`: where it is, at least 4096 bytes. */
int html_command(const struct html_request *request, char *path, struct diag *d);

#endif
