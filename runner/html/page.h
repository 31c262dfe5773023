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

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct html_request {
    const char *folder; /* a run directory */
    const char
        *compare;     /* another one, whose measurements of bench are drawn as well; NULL: none */
    const char *file; /* NULL: report.html in the run directory; "-": stdout */
};

/* The file is replaced when the page is whole. `path`: where it is, at least 4096 bytes. */
int html_command(const struct html_request *request, char *path, struct diag *d);

/* Text, numbers and JSON inside an HTML page. All that ranks, hosts, job files and traces
 * contribute to the page passes through markup_text or markup_data; neither lets a byte become
 * markup: markup_text   & < > " ' become entities, bytes that are not UTF-8, control characters and
 *                 characters that change the direction of text become U+FFFD
 *   markup_data   JSON in ASCII, in which < > & are escaped: no "</script>", no U+2028; the same
 *                 characters become U+FFFD */

/* In an element or in a quoted attribute. NULL is written as nothing. */
void markup_text(FILE *out, const char *text);
void markup_bytes_text(FILE *out, const char *text, size_t len);
void markup_data(FILE *out, const json_t *value);

/* "12.3 µs", "4.0 ms", "1.25 s". */
void markup_duration(FILE *out, double us);
/* "64 KiB" */
void markup_size(FILE *out, double bytes);

#endif
