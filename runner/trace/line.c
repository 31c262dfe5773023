/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/line.h"

#include "base/quote.h"

#include <string.h>

char *trace_line_put(char *at, const char *text, size_t len)
{
    memcpy(at, text, len);
    return at + len;
}

/* Two digits at a time: most of a trace is numbers. */
static const char pairs[] =
    "00010203040506070809101112131415161718192021222324252627282930313233343536"
    "37383940414243444546474849505152535455565758596061626364656667686970717273"
    "7475767778798081828384858687888990919293949596979899";

char *trace_line_number(char *at, uint64_t number)
{
    char digits[20];
    size_t n = sizeof digits;
    for (; number >= 100; number /= 100)
        memcpy(digits + (n -= 2), pairs + number % 100 * 2, 2);
    if (number >= 10)
        memcpy(digits + (n -= 2), pairs + number * 2, 2);
    else
        digits[--n] = (char)('0' + number);
    return trace_line_put(at, digits + n, sizeof digits - n);
}

char *trace_line_signed(char *at, int64_t number)
{
    if (number < 0)
        *at++ = '-';
    return trace_line_number(at, number < 0 ? -(uint64_t)number : (uint64_t)number);
}

char *trace_line_us(char *at, uint64_t ns)
{
    uint64_t part = ns % 1000;
    at = trace_line_number(at, ns / 1000);
    *at++ = '.';
    *at++ = (char)('0' + part / 100);
    return trace_line_put(at, pairs + part % 100 * 2, 2);
}

static char *trace_line_character(char *at, unsigned char c)
{
    static const char hex[] = "0123456789abcdef";
    if (c == '"' || c == '\\') {
        *at++ = '\\';
        *at++ = (char)c;
        return at;
    }
    at = TRACE_LINE_LITERAL(at, "\\u00");
    *at++ = hex[c >> 4];
    *at++ = hex[c & 15];
    return at;
}

char *trace_line_string(char *at, const char *text)
{
    size_t len = strlen(text), n;
    *at++ = '"';
    for (size_t i = 0; i < len; i += n) {
        unsigned char c = (unsigned char)text[i];
        n = utf8_len(text + i, len - i);
        if (c < ' ' || c == '"' || c == '\\' || c == 127) {
            at = trace_line_character(at, c);
            n = 1;
        } else if (n) {
            at = trace_line_put(at, text + i, n);
        } else {
            *at++ = '?';
            n = 1;
        }
    }
    *at++ = '"';
    return at;
}
