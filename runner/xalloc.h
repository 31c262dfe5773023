/* SPDX-License-Identifier: Apache-2.0
 *
 * Allocations that do not fail: without memory, the runner prints one line and exits with 125. The
 * same holds for arenas, bufs and text streams (they call memory_lacking(), engine/base/arena.h),
 * and for jansson, which main() gives xmalloc. Nothing in the runner checks for NULL because of
 * memory.
 *
 * No rank is left behind: the streams to the agents close with the process, and an agent whose
 * stream has ended stops its ranks. The code that agent and runner share (engine/base,
 * runner/rendezvous) calls memory_checked(); in the agent it returns errors.
 */
#ifndef RUNNER_XALLOC_H
#define RUNNER_XALLOC_H

#include <stdarg.h>
#include <stddef.h>

/* `restore` gives a terminal back before the line is printed; NULL: none is taken. It must not
 * allocate. There is one terminal, so that there is one such function. */
void xalloc_on_end(void (*restore)(void *ctx), void *ctx);

void *xmalloc(size_t len);
void *xcalloc(size_t count, size_t size); /* zeroed */
void *xrealloc(void *p, size_t count, size_t size);
char *xstrdup(const char *s);
char *xasprintf(const char *format, ...) __attribute__((format(printf, 1, 2)));
char *xvasprintf(const char *format, va_list args) __attribute__((format(printf, 1, 0)));

#endif
