/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers as short texts for people, in the live line and the screen of `collrun top`; and texts
 * of unknown origin, made harmless for a terminal.
 */
#ifndef RUNNER_REPORT_UNITS_H
#define RUNNER_REPORT_UNITS_H

#include <stddef.h>

/* 1234567 -> "1.2 M" */
void units_scaled(char *out, size_t size, double v);
/* 200 -> "3m20s" */
void units_duration(char *out, size_t size, double seconds);
/* Copies a text, cut if it is too long. "?" replaces control characters, also those of two bytes
 * (C1), characters that change the direction of the text, and what is not UTF-8: a terminal gets
 * no escape sequence from it, and it stays on one line. */
void units_text(char *out, size_t size, const char *text);

#endif
