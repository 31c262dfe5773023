/* SPDX-License-Identifier: Apache-2.0 */
#include "html/markup.h"

#include "base/quote.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

static const char *markup_entity(char c)
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
    for (size_t i = 0, n; i < len; i += n) {
        bool space = text[i] == '\n' || text[i] == '\t';
        const char *entity = markup_entity(text[i]);
        n = utf8_len(text + i, len - i);
        if (!space && !utf8_shown_len(text + i, len - i))
            fputs(REPLACEMENT, out);
        else if (entity)
            fputs(entity, out);
        else
            fwrite(text + i, 1, n, out);
        n = n ? n : 1;
    }
}

void markup_text(FILE *out, const char *text)
{
    if (text)
        markup_bytes_text(out, text, strlen(text));
}

/* The character of an escape of JSON in ASCII: "\\n" or "\\u202e", or two of the latter. */
static size_t markup_escape(const char *p, uint32_t *code)
{
    unsigned high = 0, low = 0;
    *code = p[1] == 'n' || p[1] == 't' ? ' ' : strchr("bfr", p[1]) ? 1 : (uint32_t)p[1];
    if (p[1] != 'u' || sscanf(p, "\\u%4x", &high) != 1)
        return 2;
    *code = high;
    if (high < 0xd800 || high > 0xdbff || sscanf(p + 6, "\\u%4x", &low) != 1)
        return 6;
    *code = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
    return 12;
}

void markup_data(FILE *out, const json_t *value)
{
    char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_ENSURE_ASCII |
                                       JSON_REAL_PRECISION(12));
    for (const char *p = text; p && *p;) {
        uint32_t code = (unsigned char)*p;
        const size_t n = *p == '\\' ? markup_escape(p, &code) : 1;
        if (utf8_is_hidden(code))
            fputs("\\ufffd", out);
        else if (*p == '<' || *p == '>' || *p == '&')
            fprintf(out, "\\u%04x", (unsigned)*p);
        else
            fwrite(p, 1, n, out);
        p += n;
    }
    free(text);
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
