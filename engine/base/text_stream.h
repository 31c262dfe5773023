/* SPDX-License-Identifier: Apache-2.0
 *
 * A stream whose output becomes a text in memory: open_memstream, but for what glibc does when it
 * cannot grow. It then drops bytes, or leaves NULL, while ferror and fclose report nothing; errno
 * alone tells. So nothing between open and close may reset errno.
 */
#ifndef ENGINE_BASE_TEXT_STREAM_H
#define ENGINE_BASE_TEXT_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* `text` and `len` are set by text_stream_close. NULL: out of memory. */
FILE *text_stream_open(char **text, size_t *len);
/* True: *text, which the caller frees, is whole. False, also for NULL: out of memory, and *text is
 * NULL. */
bool text_stream_close(FILE *stream, char **text);

#endif
