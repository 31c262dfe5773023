/* SPDX-License-Identifier: Apache-2.0 */
#include "report/units.h"

#include "base/quote.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

void units_scaled(char *out, size_t size, double v)
{
    static const char *const units[] = {"", " k", " M", " G", " T"};
    size_t unit = 0;
    while (v >= 999.5 && unit < 4) {
        v /= 1000;
        unit++;
    }
    snprintf(out, size, v < 9.95 && unit ? "%.1f%s" : "%.0f%s", v, units[unit]);
}

void units_duration(char *out, size_t size, double seconds)
{
    unsigned long t = seconds < 1e9 ? (unsigned long)(seconds + 0.5) : 1000000000u;
    if (t < 60)
        snprintf(out, size, "%lus", t);
    else if (t < 3600)
        snprintf(out, size, "%lum%02lus", t / 60, t % 60);
    else
        snprintf(out, size, "%luh%02lum", t / 3600, t % 3600 / 60);
}

/* Of a character of `len` bytes. */
static bool units_is_harmless(const unsigned char *c, size_t len)
{
    if (len == 1)
        return c[0] >= 0x20 && c[0] != 0x7f;
    if (len == 2)
        return c[0] != 0xc2 || c[1] >= 0xa0;      /* C1 is U+0080 to U+009F */
    if (len == 3 && c[0] == 0xe2 && c[1] == 0x80) /* U+200E, U+200F, U+2028 to U+202E */
        return c[2] != 0x8e && c[2] != 0x8f && (c[2] < 0xa8 || c[2] > 0xae);
    if (len == 3 && c[0] == 0xe2 && c[1] == 0x81) /* U+2066 to U+2069 */
        return c[2] < 0xa6 || c[2] > 0xa9;
    return len > 0;
}

void units_text(char *out, size_t size, const char *text)
{
    size_t n = 0;
    for (size_t step; *text && n + 4 < size; text += step) {
        size_t len = utf8_len(text, strlen(text));
        step = len ? len : 1;
        if (units_is_harmless((const unsigned char *)text, len)) {
            memcpy(out + n, text, len);
            n += len;
        } else {
            out[n++] = '?';
        }
    }
    out[n] = '\0';
}
