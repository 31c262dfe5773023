/* SPDX-License-Identifier: Apache-2.0
 *
 * Filling in a struct diag. Text that does not fit is cut and ends in "...".
 */
#include "base/diag.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Formats into buf; marks a cut. */
static void format_into(char *buf, size_t size, const char *format, va_list args)
{
    int n = vsnprintf(buf, size, format, args);
    if (n < 0)
        buf[0] = '\0';
    else if ((size_t)n >= size)
        memcpy(buf + size - 4, "...", 4);
}

void diag_init(struct diag *d)
{
    memset(d, 0, sizeof *d);
    d->rank = -1;
}

int diag_set(struct diag *d, int code, const char *format, ...)
{
    if (!d)
        return code;
    va_list args;
    va_start(args, format);
    diag_init(d);
    d->code = code;
    format_into(d->text, sizeof d->text, format, args);
    va_end(args);
    return code;
}

int diag_sys(struct diag *d, int err, const char *format, ...)
{
    if (!d)
        return COLLRUN_ERR_SYSTEM;
    va_list args;
    va_start(args, format);
    diag_init(d);
    d->code = COLLRUN_ERR_SYSTEM;
    d->sys_errno = err;
    format_into(d->text, sizeof d->text, format, args);
    va_end(args);
    size_t len = strlen(d->text);
    char words[128];
    snprintf(d->text + len, sizeof d->text - len, ": %s", strerror_r(err, words, sizeof words));
    return d->code;
}

int diag_at(struct diag *d, struct diag_loc loc, const char *format, ...)
{
    if (!d)
        return COLLRUN_ERR_INVALID;
    va_list args;
    va_start(args, format);
    diag_init(d);
    d->code = COLLRUN_ERR_INVALID;
    d->loc = loc;
    format_into(d->text, sizeof d->text, format, args);
    va_end(args);
    return d->code;
}

int diag_wrap(struct diag *d, const char *format, ...)
{
    if (!d)
        return COLLRUN_ERR_INVALID;
    char inner[sizeof d->text];
    memcpy(inner, d->text, sizeof inner);
    va_list args;
    va_start(args, format);
    format_into(d->text, sizeof d->text, format, args);
    va_end(args);
    size_t len = strlen(d->text);
    int n = snprintf(d->text + len, sizeof d->text - len, ": %s", inner);
    if (n >= 0 && len + (size_t)n >= sizeof d->text)
        memcpy(d->text + sizeof d->text - 4, "...", 4);
    return d->code;
}

int diag_hint(struct diag *d, const char *format, ...)
{
    if (!d)
        return COLLRUN_ERR_INVALID;
    va_list args;
    va_start(args, format);
    format_into(d->hint, sizeof d->hint, format, args);
    va_end(args);
    return d->code;
}

int diag_second(struct diag *d, struct diag_loc loc, const char *format, ...)
{
    if (!d)
        return COLLRUN_ERR_INVALID;
    va_list args;
    va_start(args, format);
    d->loc2 = loc;
    format_into(d->note2, sizeof d->note2, format, args);
    va_end(args);
    return d->code;
}
