/* SPDX-License-Identifier: Apache-2.0
 *
 * Quoting for error messages, and the only definition of well-formed UTF-8 (RFC 3629: no
 * overlong forms, no surrogates, nothing above U+10FFFF).
 */
#include "base/quote.h"

#include "base/arena.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
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

uint32_t utf8_code(const char *s, size_t n)
{
    const unsigned char *p = (const unsigned char *)s;
    uint32_t code = n == 1 ? p[0] : p[0] & (0x7fu >> n);
    for (size_t i = 1; i < n; i++)
        code = code << 6 | (p[i] & 0x3fu);
    return code;
}

bool utf8_is_hidden(uint32_t c)
{
    return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x61c || c == 0x180e || c == 0x200b ||
           c == 0x200e || c == 0x200f || (c >= 0x2028 && c <= 0x202e) ||
           (c >= 0x2060 && c <= 0x206f) || c == 0xfeff || (c >= 0xe0000 && c <= 0xe007f);
}

size_t utf8_shown_len(const char *s, size_t len)
{
    size_t n = utf8_len(s, len);
    return n && !utf8_is_hidden(utf8_code(s, n)) ? n : 0;
}

size_t utf8_clean(char *out, size_t size, const char *text, size_t len)
{
    size_t used = 0;
    for (size_t pos = 0; pos < len;) {
        size_t n = utf8_len(text + pos, len - pos), shown = utf8_shown_len(text + pos, len - pos);
        if (used + (shown ? shown : 1) >= size)
            break;
        if (shown)
            memmove(out + used, text + pos, shown);
        else
            out[used] = '?';
        used += shown ? shown : 1;
        pos += n ? n : 1;
    }
    out[used] = '\0';
    return used;
}

void utf8_mark_cut(char *buf, size_t size)
{
    size_t at = size - 4;
    while (at > size - 7 && ((unsigned char)buf[at] & 0xc0) == 0x80)
        at--;
    memcpy(buf + at, "...", 4);
}

size_t quote_character(const char *s, size_t len, char word[QUOTE_WORD])
{
    size_t n = utf8_len(s, len);
    unsigned char c = (unsigned char)*s;
    if (n > 1) {
        if (utf8_shown_len(s, n))
            snprintf(word, QUOTE_WORD, "%.*s", (int)n, s);
        else
            snprintf(word, QUOTE_WORD, n > 3 ? "\\U%08x" : "\\u%04x", utf8_code(s, n));
        return n;
    }
    if (n == 1 && c == '\n')
        memcpy(word, "\\n", 3);
    else if (n == 1 && c == '\t')
        memcpy(word, "\\t", 3);
    else if (n == 1 && (c == '"' || c == '\\'))
        snprintf(word, QUOTE_WORD, "\\%c", c);
    else if (utf8_shown_len(s, n))
        snprintf(word, QUOTE_WORD, "%c", c);
    else
        snprintf(word, QUOTE_WORD, "\\x%02x", c);
    return 1;
}

const char *quote(const char *s, char out[QUOTE_SIZE])
{
    enum { TAIL = 5 }; /* ..." and the end */
    size_t used = 0, len = strlen(s), pos = 0;
    out[used++] = '"';
    while (pos < len) {
        char word[QUOTE_WORD];
        size_t taken = quote_character(s + pos, len - pos, word), add = strlen(word);
        if (used + add + TAIL > QUOTE_SIZE)
            break;
        memcpy(out + used, word, add);
        used += add;
        pos += taken;
    }
    snprintf(out + used, QUOTE_SIZE - used, "%s\"", pos < len ? "..." : "");
    return out;
}

/* ---- a stream to a text ---- */

FILE *text_stream_open(char **text, size_t *len)
{
    *text = NULL;
    *len = 0;
    errno = 0;
    return memory_checked(open_memstream(text, len));
}

bool text_stream_close(FILE *stream, char **text)
{
    bool whole = stream && !ferror(stream);
    whole = stream && fclose(stream) == 0 && whole && *text && errno != ENOMEM;
    if (whole)
        return true;
    if (stream)
        memory_lacking();
    free(*text);
    *text = NULL;
    return false;
}
