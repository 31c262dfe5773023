/* SPDX-License-Identifier: Apache-2.0
 *
 * One thread-local record. What is too long is cut and ends in "...".
 */
#include "error.h"

#include "base/diag.h"

#include <collrun/collrun.h>
#include <stdio.h>
#include <string.h>

static _Thread_local struct error_record mine;

static void vput(char *to, size_t size, const char *format, va_list args)
{
    int n = vsnprintf(to, size, format, args);
    if (n >= 0 && (size_t)n >= size)
        memcpy(to + size - 4, "...", 4);
}

static void put(char *to, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void put(char *to, size_t size, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vput(to, size, format, args);
    va_end(args);
}

struct error_record *error_get(void)
{
    return &mine;
}

int error_vcause(int status, const char *format, va_list args)
{
    vput(mine.cause, sizeof mine.cause, format, args);
    return status;
}

int error_cause(int status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    error_vcause(status, format, args);
    va_end(args);
    return status;
}

void error_clear_cause(void)
{
    mine.cause[0] = '\0';
}

int error_set(int status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vput(mine.text, sizeof mine.text, format, args);
    va_end(args);
    mine.cause[0] = '\0';
    mine.group[0] = '\0';
    mine.number = 0;
    mine.status = status;
    return status;
}

int error_wrap(int status, const char *group, uint64_t number, const char *where)
{
    if (!mine.cause[0])
        put(mine.cause, sizeof mine.cause, "%s", collrun_strstatus(status));
    put(mine.text, sizeof mine.text, "%s: %s", where, mine.cause);
    mine.cause[0] = '\0'; /* used up: the next failure must not show it */
    put(mine.group, sizeof mine.group, "%s", group);
    mine.number = number;
    mine.status = status;
    return status;
}

void error_restore(const struct error_record *record)
{
    mine = *record;
}

int error_to_diag(struct diag *d)
{
    return diag_set(d, mine.status, "%s", mine.text);
}

int error_from_diag(const struct diag *d)
{
    return error_set(d->code, "%s", d->text);
}

const char *collrun_error(void)
{
    return mine.text;
}
