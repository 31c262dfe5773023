/* SPDX-License-Identifier: Apache-2.0
 *
 * Bytes as lines of base64 (RFC 4648, section 4, without padding), for a stream that carries text
 * only: `flux exec` passes on output line by line, each up to its first NUL byte.
 */
#ifndef ENGINE_BASE_BASE64_H
#define ENGINE_BASE_BASE64_H

#include "base/buf.h"

#include <sys/types.h>

/* Appends whole lines. The group of four characters that is short ends its line. */
void base64_put_lines(struct buf *out, const void *bytes, size_t len);

struct base64_decoder { /* zeroed at the start of a stream */
    uint32_t bits;
    unsigned chars; /* of the group that has begun */
};

/* Replaces text by the bytes that it stands for, which are fewer. Lines may arrive in any pieces,
 * and may be empty or end with CR LF. Returns the number of bytes, or -1: *at is what is no base64.
 */
ssize_t base64_decode(struct base64_decoder *b, unsigned char *text, size_t len, size_t *at);

#endif
