/* SPDX-License-Identifier: Apache-2.0
 *
 * Quotes a text of unknown origin for an error message: in double quotes, with control characters
 * and malformed UTF-8 escaped; a long text is cut and marked by "...".
 */
#ifndef ENGINE_BASE_QUOTE_H
#define ENGINE_BASE_QUOTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { QUOTE_SIZE = 96, QUOTE_WORD = 12 }; /* of a text; of one character, or its escape */

/* Writes into `out` and returns it: quote(s, (char[QUOTE_SIZE]){0}). */
const char *quote(const char *s, char out[QUOTE_SIZE]);

/* One character of it: writes it, escaped if necessary. Returns the number of its bytes in `s`. */
size_t quote_character(const char *s, size_t len, char word[QUOTE_WORD]);

/* The length of the UTF-8 character at `s` (1-4); 0 if it is malformed or longer than `len` bytes.
 */
size_t utf8_len(const char *s, size_t len);

/* The code point of a well-formed character of `n` bytes. */
uint32_t utf8_code(const char *s, size_t n);

/* The same, but 0 also where a terminal or a browser must not get the character of a foreign text:
 * control characters (C0 with newline and tab, DEL, C1), marks and overrides of direction,
 * separators of lines and paragraphs, and characters without width. Joiners (U+200C, U+200D) are
 * letters of some scripts. The one rule for what ranks, hosts, plugins and files contain.
 */
size_t utf8_shown_len(const char *s, size_t len);
bool utf8_is_hidden(uint32_t code);

/* Copies a text of `len` bytes, with "?" for each character that is not shown, and cuts it between
 * two characters at `size` - 1 bytes. `out` may be `text` itself. Returns the length. */
size_t utf8_clean(char *out, size_t size, const char *text, size_t len);

/* The end of a text was cut, because `buf` has only `size` (at least 8) bytes: "..." replaces the
 * last ones, and all of a character that this would cut. */
void utf8_mark_cut(char *buf, size_t size);

/* ---- a stream to a text ----
 *
 * A stream whose output becomes a text in memory: open_memstream, but for what glibc does when it
 * cannot grow. It then drops bytes, or leaves NULL, while ferror and fclose report nothing; errno
 * alone tells. So nothing between open and close may reset errno.
 */

/* `text` and `len` are set by text_stream_close. NULL: out of memory. */
FILE *text_stream_open(char **text, size_t *len);
/* True: *text, which the caller frees, is whole. False, also for NULL: out of memory, and *text is
 * NULL. */
bool text_stream_close(FILE *stream, char **text);

#endif
