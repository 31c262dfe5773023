/* SPDX-License-Identifier: Apache-2.0
 *
 * Quoting for error messages, and the only definition of well-formed UTF-8 (RFC 3629: no
 * overlong forms, no surrogates, nothing above U+10FFFF).
 */
#include "base/quote.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

static size_t quote_sequence_len(unsigned char lead)
{
    if (lead < 0x80)
        return 1;
    if (lead >= 0xc2 && lead <= 0xdf)
        return 2;
    if (lead >= 0xe0 && lead <= 0xef)
        return 3;
    return lead >= 0xf0 && lead <= 0xf4 ? 4 : 0;
}

size_t utf8_len(const char *s, size_t len)
{
    const unsigned char *p = (const unsigned char *)s;
    size_t n = len ? quote_sequence_len(p[0]) : 0;
    if (n > len)
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    if (n > 2) { /* the second byte tells overlong forms, surrogates and what is past the last
                    plane */
        unsigned char low = p[0] == 0xe0 ? 0xa0 : p[0] == 0xf0 ? 0x90 : 0x80;
        unsigned char high = p[0] == 0xed ? 0x9f : p[0] == 0xf4 ? 0x8f : 0xbf;
        if (p[1] < low || p[1] > high)
            return 0;
    }
    return n;
}

void utf8_mark_cut(char *buf, size_t size)
{
    size_t at = size - 4;
    while (at > size - 7 && ((unsigned char)buf[at] & 0xc0) == 0x80)
        at--;
    memcpy(buf + at, "...", 4);
}

/* Writes one character, escaped if necessary. Returns the number of its bytes in `s`. */
static size_t quote_one(const char *s, size_t len, char word[8])
{
    size_t n = utf8_len(s, len);
    unsigned char c = (unsigned char)*s;
    if (n > 1) {
        memcpy(word, s, n);
        word[n] = '\0';
        return n;
    }
    if (n == 1 && c == '\n')
        memcpy(word, "\\n", 3);
    else if (n == 1 && c == '\t')
        memcpy(word, "\\t", 3);
    else if (n == 1 && (c == '"' || c == '\\'))
        snprintf(word, 8, "\\%c", c);
    else if (n == 1 && c >= 0x20 && c != 0x7f)
        snprintf(word, 8, "%c", c);
    else
        snprintf(word, 8, "\\x%02x", c);
    return 1;
}

const char *quote(const char *s, char out[QUOTE_SIZE])
{
    enum { TAIL = 5 }; /* ..." and the end */
    size_t used = 0, len = strlen(s), pos = 0;
    out[used++] = '"';
    while (pos < len) {
        char word[8];
        size_t taken = quote_one(s + pos, len - pos, word), add = strlen(word);
        if (used + add + TAIL > QUOTE_SIZE)
            break;
        memcpy(out + used, word, add);
        used += add;
        pos += taken;
    }
    snprintf(out + used, QUOTE_SIZE - used, "%s\"", pos < len ? "..." : "");
    return out;
}
