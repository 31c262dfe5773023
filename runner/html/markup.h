/* SPDX-License-Identifier: Apache-2.0
 *
 * Text, numbers and JSON inside an HTML page. All that ranks, hosts, job files and traces
 * contribute to the page passes through markup_text or markup_data; neither lets a byte become
 * markup: markup_text   & < > " ' become entities, bytes that are not UTF-8, control characters and
 *                 characters that change the direction of text become U+FFFD
 *   markup_data   JSON in ASCII, in which < > & are escaped: no "</script>", no U+2028; the same
 *                 characters become U+FFFD
 */
#ifndef RUNNER_HTML_MARKUP_H
#define RUNNER_HTML_MARKUP_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* In an element or in a quoted attribute. NULL is written as nothing. */
void markup_text(FILE *out, const char *text);
void markup_bytes_text(FILE *out, const char *text, size_t len);
void markup_data(FILE *out, const json_t *value);

/* "12.3 µs", "4.0 ms", "1.25 s". */
void markup_duration(FILE *out, double us);
/* "64 KiB" */
void markup_size(FILE *out, double bytes);

#endif
