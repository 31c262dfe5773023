/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base64.h"

enum { LINE_BYTES = 3000 }; /* a line is one write of a pipe, which is at most 4096 long */

static const char base64_alphabet[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void base64_put_lines(struct buf *out, const void *bytes, size_t len)
{
    const unsigned char *from = bytes;
    unsigned char group[4];
    for (size_t at = 0; at < len;) {
        const size_t end = len - at < LINE_BYTES ? len : at + LINE_BYTES;
        for (; at < end; at += 3) {
            const size_t n = end - at < 3 ? end - at : 3;
            const uint32_t bits = (uint32_t)from[at] << 16 |
                                  (n > 1 ? (uint32_t)from[at + 1] << 8 : 0) |
                                  (n > 2 ? from[at + 2] : 0);
            for (unsigned i = 0; i < 4; i++)
                group[i] = (unsigned char)base64_alphabet[bits >> (18 - 6 * i) & 63];
            buf_put(out, group, n + 1);
        }
        at = end;
        buf_put(out, "\n", 1);
    }
}

/* -1: not of the alphabet. */
static int base64_value(unsigned char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* A character completes at most one byte, so that a byte replaces only text that was read. */
ssize_t base64_decode(struct base64_decoder *b, unsigned char *text, size_t len, size_t *at)
{
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        const int value = base64_value(text[i]);
        const bool ends = text[i] == '\n' || text[i] == '\r';
        if (value < 0 && (!ends || b->chars == 1)) {
            *at = i;
            return -1;
        }
        if (value >= 0) {
            b->bits = b->bits << 6 | (uint32_t)value;
            if (++b->chars > 1)
                text[n++] = (unsigned char)(b->bits >> (2 * (4 - b->chars)));
        }
        if (ends || b->chars == 4)
            *b = (struct base64_decoder){0};
    }
    return (ssize_t)n;
}
