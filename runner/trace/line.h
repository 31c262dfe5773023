/* SPDX-License-Identifier: Apache-2.0
 *
 * Text of a trace: parts of JSON, written into room that the caller has. Each function writes at
 * `at` and returns the end; it writes no terminator.
 */
#ifndef RUNNER_TRACE_LINE_H
#define RUNNER_TRACE_LINE_H

#include <stddef.h>
#include <stdint.h>

char *trace_line_put(char *at, const char *text, size_t len);
/* A string literal. */
#define TRACE_LINE_LITERAL(at, text) trace_line_put(at, text, sizeof(text) - 1)
char *trace_line_number(char *at, uint64_t number); /* at most 20 bytes */
char *trace_line_signed(char *at, int64_t number);  /* at most 20 bytes */
char *trace_line_us(char *at, uint64_t ns);         /* microseconds, 3 decimals */
/* A string with its quotes: at most 2 + 6 * strlen(text) bytes. "?" replaces each byte that is not
 * part of a UTF-8 character. */
char *trace_line_string(char *at, const char *text);

#endif
