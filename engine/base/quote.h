/* SPDX-License-Identifier: Apache-2.0
 *
 * Quotes a text of unknown origin for an error message: in double quotes, with control characters
 * and malformed UTF-8 escaped; a long text is cut and marked by "...".
 */
#ifndef ENGINE_BASE_QUOTE_H
#define ENGINE_BASE_QUOTE_H

#include <stddef.h>

enum { QUOTE_SIZE = 96 };

/* Writes into `out` and returns it: quote(s, (char[QUOTE_SIZE]){0}). */
const char *quote(const char *s, char out[QUOTE_SIZE]);

/* The length of the UTF-8 character at `s` (1-4); 0 if it is malformed or longer than `len` bytes.
 */
size_t utf8_len(const char *s, size_t len);

/* The end of a text was cut, because `buf` has only `size` (at least 8) bytes: "..." replaces the
 * last ones, and all of a character that this would cut. */
void utf8_mark_cut(char *buf, size_t size);

#endif
