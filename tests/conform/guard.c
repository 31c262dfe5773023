/* SPDX-License-Identifier: Apache-2.0
 *
 * Guarded buffers. Every buffer lies between two guards whose bytes depend on their position, and
 * is filled with poison first. So a write outside the buffer and a byte that was never written both
 * show. The memory is kept from one trial to the next and grows as needed.
 */
#include "conform.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD = 64, ALIGN = 64 };

static unsigned char guard_byte(size_t i)
{
    return (unsigned char)(0xa5u ^ (i * 29u));
}

void poison(unsigned char *at, size_t len)
{
    for (size_t i = 0; i < len; i++)
        at[i] = (unsigned char)(0x5bu + i * 7u);
}

static void release(struct guarded *b)
{
    if (b->owner == NULL)
        free(b->base);
    else if (b->base != NULL)
        collrun_free(b->owner, b->base);
}

static void grow(struct guarded *b, size_t capacity)
{
    void *base = NULL;
    release(b);
    if (b->owner == NULL)
        base = malloc(capacity);
    else if (collrun_alloc(b->owner, capacity, &base) != COLLRUN_OK)
        base = NULL;
    if (base == NULL) {
        fprintf(stderr, "conform: no memory for %zu bytes: %s\n", capacity, collrun_error());
        abort();
    }
    b->base = base;
    b->capacity = capacity;
}

void guarded_set(struct guarded *b, size_t len, unsigned misalign)
{
    size_t need = 2 * GUARD + ALIGN + misalign + len;
    if (need > b->capacity)
        grow(b, need + need / 2);
    size_t skew = (size_t)(-(uintptr_t)(b->base + GUARD)) % ALIGN;
    b->at = b->base + GUARD + skew + misalign;
    b->len = len;
    for (size_t i = 0; i < GUARD; i++) {
        b->at[(ptrdiff_t)i - GUARD] = guard_byte(i);
        b->at[len + i] = guard_byte(i + GUARD);
    }
    poison(b->at, len);
}

bool guarded_intact(const struct guarded *b)
{
    for (size_t i = 0; i < GUARD; i++)
        if (b->at[(ptrdiff_t)i - GUARD] != guard_byte(i) ||
            b->at[b->len + i] != guard_byte(i + GUARD))
            return false;
    return true;
}

void guarded_free(struct guarded *b)
{
    release(b);
    *b = (struct guarded){0};
}
