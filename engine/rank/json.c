/* SPDX-License-Identifier: Apache-2.0
 *
 * Bytes that are no UTF-8 are replaced, because strings of plugins may hold any bytes.
 */
#include "rank/json.h"

#include "base/quote.h"

#include <stddef.h>
#include <string.h>

static void json_put_string(FILE *out, const char *text)
{
    if (!text) {
        fputs("null", out);
        return;
    }
    fputc('"', out);
    for (size_t left = strlen(text), n; left; text += n, left -= n) {
        const unsigned char c = (unsigned char)*text;
        const size_t len = utf8_len(text, left);
        if (c == '"' || c == '\\')
            fprintf(out, "\\%c", c);
        else if (c < 0x20 || c == 0x7f)
            fprintf(out, "\\u%04x", c);
        else if (len)
            fwrite(text, 1, len, out);
        else
            fputs("\\ufffd", out);
        n = len ? len : 1;
    }
    fputc('"', out);
}

void json_put_member(FILE *out, const char *before, const char *key, const char *text)
{
    fprintf(out, "%s\"%s\":", before, key);
    json_put_string(out, text);
}
