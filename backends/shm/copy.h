/* SPDX-License-Identifier: Apache-2.0
 *
 * Copying. Plain copies leave the destination in the cache, where the next step finds it. Streaming
 * copies write past the cache: right for destinations that are too large to stay there, whose old
 * contents would otherwise be read from memory just to be overwritten.
 *
 * copy_out writes what another core is going to read, into lines that it has read before. If the
 * two share a cache, plain stores are four times faster than streaming ones; if they do not, every
 * plain store has to fetch the line's ownership from afar and is ten times slower. Which of both
 * holds depends on where the ranks run, and virtual machines do not even say; so copy_out looks at
 * its own speed and changes over when it is poor.
 */
#ifndef SHM_COPY_H
#define SHM_COPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How copy_out writes at present; zeroed at the start. */
struct pace {
    uint32_t slow;     /* plain copies in a row that were slow */
    uint32_t streamed; /* streaming copies still to be made before a plain one is tried again */
};

/* The buffers do not overlap, or are the same. */
void copy_bytes(void *dst, const void *src, size_t len, bool stream);

/* `src` is not read by anybody else. */
void copy_out(struct pace *pace, void *dst, const void *src, size_t len);

#endif
