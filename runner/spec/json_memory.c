/* SPDX-License-Identifier: Apache-2.0
 *
 * jansson does not check every allocation: its reader and its writer go on with a text that could
 * not grow, and read beyond it. A reserve therefore takes the place of memory that is missing, as
 * far as it goes; the failure counts all the same. What was taken from the reserve is never reused.
 */
#include "spec/json_memory.h"

#include <stdalign.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

enum { RESERVE_LEN = 256 << 10 };

static atomic_uint json_memory_failures; /* relaxed: nothing else is read because of it */

void json_memory_lost(void)
{
    atomic_fetch_add_explicit(&json_memory_failures, 1, memory_order_relaxed);
}

bool json_memory_failed(void)
{
    return atomic_load_explicit(&json_memory_failures, memory_order_relaxed) != 0;
}

static alignas(max_align_t) unsigned char reserve[RESERVE_LEN];
static atomic_size_t reserve_used;

static void *json_memory_reserved(size_t len)
{
    size_t align = alignof(max_align_t);
    if (len > RESERVE_LEN || reserve_used > RESERVE_LEN)
        return NULL;
    size_t at = atomic_fetch_add(&reserve_used, (len + align - 1) / align * align);
    return at + len <= RESERVE_LEN ? reserve + at : NULL;
}

static void *json_memory_alloc(size_t len)
{
    void *p = malloc(len);
    if (p)
        return p;
    json_memory_lost();
    return json_memory_reserved(len);
}

static void json_memory_free(void *p)
{
    uintptr_t at = (uintptr_t)p, first = (uintptr_t)reserve;
    if (at < first || at >= first + RESERVE_LEN)
        free(p);
}

void json_memory_init(void)
{
    json_set_alloc_funcs(json_memory_alloc, json_memory_free);
}

char *json_memory_dump(const json_t *value, size_t flags)
{
    unsigned before = atomic_load_explicit(&json_memory_failures, memory_order_relaxed);
    char *text = value ? json_dumps(value, flags) : NULL;
    if (atomic_load_explicit(&json_memory_failures, memory_order_relaxed) == before)
        return text;
    json_memory_free(text);
    return NULL;
}
