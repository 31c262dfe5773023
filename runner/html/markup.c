/* SPDX-License-Identifier: Apache-2.0 */
#include "html/markup.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

/* The length of the UTF-8 character at `p`, and its code point. 0: it is none. */
static size_t markup_character(const unsigned char *p, size_t len, uint32_t *code)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t n = p[0] < 0x80 ? 1 : p[0] < 0xc2 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
    if (n == 0 || p[0] > 0xf4 || n > len)
        return 0;
    *code = n == 1 ? p[0] : p[0] & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return 0;
        *code = *code << 6 | (p[i] & 0x3fu);
    }
    return *code < least[n] || *code > 0x10ffff || (*code >= 0xd800 && *code < 0xe000) ? 0 : n;
}

/* Control characters, separators of lines, marks and overrides of direction. */
static bool markup_is_hidden(uint32_t c)
{
    return (c < 0x20 && c != '\n' && c != '\t') || (c >= 0x7f && c < 0xa0) ||
           (c >= 0x200b && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) ||
           (c >= 0x2060 && c <= 0x206f) || c == 0x61c || c == 0xfeff;
}

static const char *markup_entity(uint32_t c)
{
    switch (c) {
    case '&':
        return "&amp;";
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '"':
        return "&quot;";
    case '\'':
        return "&#39;";
    default:
        return NULL;
    }
}

void markup_bytes_text(FILE *out, const char *text, size_t len)
{
    const unsigned char *p = (const unsigned char *)text;
    for (size_t i = 0, n; i < len; i += n) {
        uint32_t c = 0;
        n = markup_character(p + i, len - i, &c);
        const char *entity = n ? markup_entity(c) : NULL;
        if (!n || markup_is_hidden(c))
            fputs(REPLACEMENT, out);
        else if (entity)
            fputs(entity, out);
        else
            fwrite(p + i, 1, n, out);
        n = n ? n : 1;
    }
}

void markup_text(FILE *out, const char *text)
{
    if (text)
        markup_bytes_text(out, text, strlen(text));
}

bool markup_data(FILE *out, const json_t *value)
{
    char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_ENSURE_ASCII |
                                       JSON_REAL_PRECISION(12));
    for (const char *p = text; p && *p; p++) {
        if (*p == '<' || *p == '>' || *p == '&')
            fprintf(out, "\\u%04x", (unsigned)*p);
        else
            fputc(*p, out);
    }
    free(text);
    return text != NULL;
}

void markup_duration(FILE *out, double us)
{
    static const char *const units[] = {"ns", "µs", "ms", "s"};
    double value = us * 1e3;
    int unit = 0;
    while (unit < 3 && value >= 999.5) {
        value /= 1e3;
        unit++;
    }
    fprintf(out, "%.*f %s",
            unit == 0 || value >= 99.95 ? 0
            : value >= 9.995            ? 1
                                        : 2,
            value, units[unit]);
}

void markup_size(FILE *out, double bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    int unit = 0;
    while (unit < 5 && bytes >= 1023.5) {
        bytes /= 1024;
        unit++;
    }
    bool whole = unit == 0 || bytes >= 99.95 || bytes == floor(bytes);
    fprintf(out, "%.*f %s", whole ? 0 : 1, bytes, units[unit]);
}

void markup_rate(FILE *out, double bytes_per_s)
{
    static const char *const units[] = {"B/s", "kB/s", "MB/s", "GB/s", "TB/s"};
    int unit = 0;
    while (unit < 4 && bytes_per_s >= 999.5) {
        bytes_per_s /= 1000;
        unit++;
    }
    fprintf(out, "%.4g %s", bytes_per_s, units[unit]);
}

void markup_count(FILE *out, uint64_t n)
{
    if (n >= 1000) {
        markup_count(out, n / 1000);
        fprintf(out, ",%03u", (unsigned)(n % 1000));
    } else {
        fprintf(out, "%u", (unsigned)n);
    }
}
