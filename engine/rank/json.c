/* SPDX-License-Identifier: Apache-2.0
 *
 * Bytes that are no UTF-8 are replaced, because strings of plugins may hold any bytes.
 */
#include "rank/json.h"

#include <stdbool.h>
#include <stddef.h>

/* The length of the valid UTF-8 sequence at s; 0 if there is none. */
static size_t json_utf8_len(const unsigned char *s)
{
    size_t len = s[0] < 0x80                   ? 1
                 : s[0] >= 0xc2 && s[0] < 0xe0 ? 2
                 : (s[0] & 0xf0) == 0xe0       ? 3
                 : s[0] >= 0xf0 && s[0] < 0xf5 ? 4
                                               : 0;
    for (size_t i = 1; i < len; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    }
    bool overlong = (s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xf0 && s[1] < 0x90);
    bool surrogate = (s[0] == 0xed && s[1] >= 0xa0) || (s[0] == 0xf4 && s[1] >= 0x90);
    return overlong || surrogate ? 0 : len;
}

static void json_put_string(FILE *out, const char *text)
{
    if (!text) {
        fputs("null", out);
        return;
    }
    fputc('"', out);
    for (const unsigned char *s = (const unsigned char *)text; *s;) {
        size_t len = json_utf8_len(s);
        if (*s == '"' || *s == '\\')
            fprintf(out, "\\%c", *s);
        else if (*s < 0x20 || *s == 0x7f)
            fprintf(out, "\\u%04x", *s);
        else if (len)
            fwrite(s, 1, len, out);
        else
            fputs("\\ufffd", out);
        s += len ? len : 1;
    }
    fputc('"', out);
}

void json_put_member(FILE *out, const char *before, const char *key, const char *text)
{
    fprintf(out, "%s\"%s\":", before, key);
    json_put_string(out, text);
}
