/* SPDX-License-Identifier: Apache-2.0
 *
 * A bump allocator over a list of chunks: 16 KiB, or as large as the one request that needs it.
 */
#include "base/arena.h"

#include <stdalign.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK_LEN = 16384 };

struct arena_chunk {
    struct arena_chunk *next;
    size_t used, capacity;
    alignas(max_align_t) unsigned char data[];
};

/* Weak, so that a program can define its own. */
__attribute__((weak)) void memory_lacking(void)
{
}

void *memory_checked(void *p)
{
    if (!p)
        memory_lacking();
    return p;
}

void arena_init(struct arena *a)
{
    *a = (struct arena){0};
}

void arena_fini(struct arena *a)
{
    while (a->head) {
        struct arena_chunk *next = a->head->next;
        free(a->head);
        a->head = next;
    }
    a->failed = false;
}

bool arena_failed(const struct arena *a)
{
    return a->failed;
}

static struct arena_chunk *arena_chunk_for(struct arena *a, size_t size)
{
    if (a->head && a->head->capacity - a->head->used >= size)
        return a->head;
    size_t capacity = size > CHUNK_LEN ? size : CHUNK_LEN;
    struct arena_chunk *chunk = calloc(1, sizeof *chunk + capacity);
    if (!chunk)
        return NULL;
    chunk->capacity = capacity;
    chunk->next = a->head;
    a->head = chunk;
    return chunk;
}

static void *arena_fail(struct arena *a)
{
    memory_lacking();
    a->failed = true;
    return NULL;
}

void *arena_alloc(struct arena *a, size_t size)
{
    size_t align = alignof(max_align_t);
    if (a->failed || size > SIZE_MAX / 2)
        return arena_fail(a);
    size_t rounded = (size + align - 1) / align * align;
    struct arena_chunk *chunk = arena_chunk_for(a, rounded ? rounded : align);
    if (!chunk)
        return arena_fail(a);
    void *p = chunk->data + chunk->used;
    chunk->used += rounded;
    return p;
}

void *arena_calloc(struct arena *a, size_t count, size_t size)
{
    if (size && count > SIZE_MAX / 2 / size)
        return arena_fail(a);
    return arena_alloc(a, count * size);
}

void *arena_memdup(struct arena *a, const void *p, size_t len)
{
    void *copy = arena_alloc(a, len);
    if (copy && len)
        memcpy(copy, p, len);
    return copy;
}

char *arena_strndup(struct arena *a, const char *s, size_t len)
{
    char *copy = arena_alloc(a, len + 1);
    if (copy)
        memcpy(copy, s, len);
    return copy;
}

char *arena_strdup(struct arena *a, const char *s)
{
    return s ? arena_strndup(a, s, strlen(s)) : NULL;
}

char *arena_printf(struct arena *a, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n < 0)
        return NULL;
    char *s = arena_alloc(a, (size_t)n + 1);
    if (!s)
        return NULL;
    va_start(args, format);
    vsnprintf(s, (size_t)n + 1, format, args);
    va_end(args);
    return s;
}
