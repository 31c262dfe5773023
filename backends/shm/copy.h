/* SPDX-License-Identifier: Apache-2.0
 *
 * Copying. Plain copies leave the destination in the cache, where the next step finds it. Streaming
 * copies write past the cache: right for destinations that are too large to stay there, whose old
 * contents would otherwise be read from memory just to be overwritten.
 */
#ifndef SHM_COPY_H
#define SHM_COPY_H

#include <stdbool.h>
#include <stddef.h>

/* The buffers do not overlap, or are the same. */
void copy_bytes(void *dst, const void *src, size_t len, bool stream);

#endif
