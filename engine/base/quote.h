/* SPDX-License-Identifier: Apache-2.0
 *
 * A text of unknown origin, made fit to stand in a sentence: in double quotes, control characters
 * and broken UTF-8 escaped, long ones cut and marked by "...".
 */
#ifndef BASE_QUOTE_H
#define BASE_QUOTE_H

#include <stddef.h>

enum { QUOTE_SIZE = 96 };

/* Writes into `out` and returns it: quote(s, (char[QUOTE_SIZE]){0}). */
const char *quote(const char *s, char out[QUOTE_SIZE]);

/* How many bytes the UTF-8 character at `s` has (1-4); 0 if it is broken, or cut off after `len`
 * bytes. */
size_t utf8_len(const char *s, size_t len);

#endif
