/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes JSON without a library: the engine links only libc.
 */
#ifndef ENGINE_RANK_JSON_H
#define ENGINE_RANK_JSON_H

#include <stdio.h>

/* `before`, then "key":"text"; null for a NULL text. */
void json_put_member(FILE *out, const char *before, const char *key, const char *text);

#endif
