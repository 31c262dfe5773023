/* SPDX-License-Identifier: Apache-2.0 */
#include "xalloc.h"

#include "base/arena.h"
#include "base/exit_codes.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The only mutable globals of the runner: a failed allocation has no argument that leads to the
 * terminal. The main thread sets them. */
static void (*end_restore)(void *ctx);
static void *end_ctx;

void xalloc_on_end(void (*restore)(void *ctx), void *ctx)
{
    end_restore = restore;
    end_ctx = ctx;
}

/* It runs in any thread, which may hold any lock, also that of a stream: so it neither allocates
 * nor flushes stdio. */
_Noreturn void memory_lacking(void)
{
    static const char text[] = "collrun: error: out of memory; raise the limit of this process "
                               "(ulimit -v), or free memory on this machine\n";
    if (end_restore)
        end_restore(end_ctx);
    const ssize_t ignored = write(STDERR_FILENO, text, sizeof text - 1);
    (void)ignored;
    _exit(EXIT_INTERNAL);
}

static void *xalloc_checked(void *p)
{
    if (!p)
        memory_lacking();
    return p;
}

void *xmalloc(size_t len)
{
    return xalloc_checked(malloc(len ? len : 1));
}

void *xcalloc(size_t count, size_t size)
{
    return xalloc_checked(calloc(count ? count : 1, size ? size : 1));
}

void *xrealloc(void *p, size_t count, size_t size)
{
    if (size && count > SIZE_MAX / size)
        memory_lacking();
    const size_t len = count * size;
    return xalloc_checked(realloc(p, len ? len : 1));
}

char *xstrdup(const char *s)
{
    return xalloc_checked(strdup(s));
}

char *xvasprintf(const char *format, va_list args)
{
    char *text = NULL;
    if (vasprintf(&text, format, args) < 0)
        memory_lacking();
    return text;
}

char *xasprintf(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *text = xvasprintf(format, args);
    va_end(args);
    return text;
}
