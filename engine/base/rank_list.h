/* SPDX-License-Identifier: Apache-2.0
 *
 * A list of ranks in messages.
 */
#ifndef ENGINE_BASE_RANK_LIST_H
#define ENGINE_BASE_RANK_LIST_H

#include <stddef.h>
#include <stdint.h>

/* "3, 5-7 and 9": ranks in ascending order as a list of ranges, truncated after a few of them. */
void rank_list_format(char *out, size_t size, const uint32_t *ranks, uint32_t n);

#endif
