/* SPDX-License-Identifier: Apache-2.0
 *
 * "Did you mean": the known name with the smallest edit distance to a written one (a swap of two
 * neighbours counts as one edit).
 */
#ifndef ENGINE_BASE_SUGGEST_H
#define ENGINE_BASE_SUGGEST_H

#include <stddef.h>

/* One of `names`, or NULL if none is close enough. Case is ignored. */
const char *suggest(const char *written, const char *const *names, size_t n);

/* For a hint: `did you mean "two"? TITLE: one, two`, in `out`. Names for which there is no room are
 * "...". */
enum { SUGGEST_TEXT = 256 };
const char *suggest_text(const char *written, const char *title, const char *const *names, size_t n,
                         char out[SUGGEST_TEXT]);

#endif
