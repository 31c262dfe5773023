/* SPDX-License-Identifier: Apache-2.0
 *
 * struct arena: memory that is freed all at once. All data of a job file, and each decoded
 * description, is in one arena, so its parts need no owners. After an allocation has failed, the
 * arena stays failed and returns NULL. Callers may check arena_failed() once at the end of a batch,
 * but must not write through a NULL. In the runner no allocation fails: memory_lacking() ends it.
 */
#ifndef ENGINE_BASE_ARENA_H
#define ENGINE_BASE_ARENA_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

/* Arenas, bufs and text streams call it before they report a failed allocation. The one of base
 * returns, for agent and engine; the runner has its own (runner/xalloc.c), which ends the process.
 */
void memory_lacking(void);
void *memory_checked(void *p); /* p, after memory_lacking() if it is NULL */

struct arena_chunk;
struct arena {
    struct arena_chunk *head;
    bool failed;
};

void arena_init(struct arena *a);
void arena_fini(struct arena *a); /* frees everything; the arena may be used again */
bool arena_failed(const struct arena *a);

/* Zeroed, aligned for any type. A size of 0 gives a valid pointer. */
void *arena_alloc(struct arena *a, size_t size);
void *arena_calloc(struct arena *a, size_t count, size_t size); /* NULL, failed, on overflow */
char *arena_strdup(struct arena *a, const char *s);             /* NULL for NULL */
char *arena_strndup(struct arena *a, const char *s, size_t len);
void *arena_memdup(struct arena *a, const void *p, size_t len);
char *arena_printf(struct arena *a, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
