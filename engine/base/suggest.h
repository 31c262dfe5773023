/* SPDX-License-Identifier: Apache-2.0
 *
 * "Did you mean": the known name that is closest to what was written, by edit distance (a swap of
 * neighbours counts as one).
 */
#ifndef BASE_SUGGEST_H
#define BASE_SUGGEST_H

#include <stddef.h>

/* One of `names`, or NULL when none is close enough to be what was meant. Case does not count. */
const char *suggest(const char *written, const char *const *names, size_t n);

#endif
