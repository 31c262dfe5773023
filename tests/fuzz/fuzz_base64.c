/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzz target: the base64 that `flux exec` carries. The first byte is the length of the pieces. The
 * rest is encoded, and decoded in pieces: the same bytes come out. Then it is decoded itself: all
 * cuts of a text give the same bytes, or the same error.
 */
#include "base/base64.h"
#include "base/buf.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

/* Decodes a copy in pieces, each in memory of its length. Returns the bytes, or -1. */
static ssize_t fuzz_decode(const uint8_t *text, size_t len, size_t piece, uint8_t *out)
{
    struct base64_decoder decoder = {0};
    size_t done = 0, bad = 0;
    for (size_t at = 0; at < len; at += piece) {
        const size_t part = len - at < piece ? len - at : piece;
        uint8_t *copy = malloc(part);
        if (!copy)
            abort();
        memcpy(copy, text + at, part);
        const ssize_t n = base64_decode(&decoder, copy, part, &bad);
        if (n > (ssize_t)part)
            abort();
        if (n >= 0)
            memcpy(out + done, copy, (size_t)n);
        free(copy);
        if (n < 0)
            return -1;
        done += (size_t)n;
    }
    return (ssize_t)done;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct buf lines;
    if (len < 2)
        return 0;
    const size_t piece = bytes[0] + 1u;
    bytes++;
    len--;
    buf_init(&lines);
    base64_put_lines(&lines, bytes, len);
    const size_t size = buf_pending(&lines);
    uint8_t *out = malloc(size + 1), *again = malloc(len);
    if (!out || !again)
        abort();
    if (fuzz_decode(lines.data + lines.start, size, piece, out) != (ssize_t)len ||
        memcmp(out, bytes, len) != 0)
        abort();
    const ssize_t whole = fuzz_decode(bytes, len, len, out);
    const ssize_t cut = fuzz_decode(bytes, len, piece, again);
    if (whole != cut || (whole > 0 && memcmp(out, again, (size_t)whole) != 0))
        abort();
    free(out);
    free(again);
    buf_fini(&lines);
    return 0;
}
