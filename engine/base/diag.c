/* SPDX-License-Identifier: Apache-2.0
 *
 * Filling in a struct diag. Text that does not fit is cut between two characters and ends in "...".
 */
#include "base/diag.h"

#include "base/arena.h"
#include "base/quote.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Formats into `buf` behind the first `len` bytes; marks a cut. */
static void diag_vput(char *buf, size_t size, size_t len, const char *format, va_list args)
    __attribute__((format(printf, 4, 0)));
static void diag_put(char *buf, size_t size, size_t len, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static void diag_vput(char *buf, size_t size, size_t len, const char *format, va_list args)
{
    int n = vsnprintf(buf + len, size - len, format, args);
    if (n < 0)
        buf[len] = '\0';
    else if ((size_t)n >= size - len)
        utf8_mark_cut(buf, size);
}

static void diag_put(char *buf, size_t size, size_t len, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    diag_vput(buf, size, len, format, args);
    va_end(args);
}

/* Replaces the whole error. */
static void diag_vset(struct diag *d, int code, const char *format, va_list args)
    __attribute__((format(printf, 3, 0)));

static void diag_vset(struct diag *d, int code, const char *format, va_list args)
{
    diag_init(d);
    d->code = code;
    diag_vput(d->text, sizeof d->text, 0, format, args);
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
    diag_vset(d, code, format, args);
    va_end(args);
    return code;
}

int diag_sys(struct diag *d, int err, const char *format, ...)
{
    char text[128];
    if (err == ENOMEM)
        memory_lacking();
    const int code = err == ENOMEM ? COLLRUN_ERR_NO_MEMORY : COLLRUN_ERR_SYSTEM;
    if (!d)
        return code;
    va_list args;
    va_start(args, format);
    diag_vset(d, code, format, args);
    va_end(args);
    d->sys_errno = err;
    diag_put(d->text, sizeof d->text, strlen(d->text), ": %s", strerror_r(err, text, sizeof text));
    return d->code;
}

int diag_at(struct diag *d, struct diag_loc loc, const char *format, ...)
{
    if (!d)
        return COLLRUN_ERR_INVALID;
    va_list args;
    va_start(args, format);
    diag_vset(d, COLLRUN_ERR_INVALID, format, args);
    va_end(args);
    d->loc = loc;
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
    diag_vput(d->text, sizeof d->text, 0, format, args);
    va_end(args);
    diag_put(d->text, sizeof d->text, strlen(d->text), ": %s", inner);
    return d->code;
}

int diag_hint(struct diag *d, const char *format, ...)
{
    if (!d)
        return COLLRUN_ERR_INVALID;
    va_list args;
    va_start(args, format);
    diag_vput(d->hint, sizeof d->hint, 0, format, args);
    va_end(args);
    return d->code;
}

int diag_hint_processes(struct diag *d)
{
    return d->sys_errno == EAGAIN ? diag_hint(d, DIAG_HINT_PROCESSES) : d->code;
}

int diag_second(struct diag *d, struct diag_loc loc, const char *format, ...)
{
    if (!d)
        return COLLRUN_ERR_INVALID;
    va_list args;
    va_start(args, format);
    d->loc2 = loc;
    diag_vput(d->note2, sizeof d->note2, 0, format, args);
    va_end(args);
    return d->code;
}
