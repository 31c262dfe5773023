/* SPDX-License-Identifier: Apache-2.0
 *
 * What -fsanitize=thread makes of accesses to memory; the functions' names and parameters are the
 * compiler's. Outside the threads of a run they do what they say, and no more.
 */
#include "memory_model/inside.h"

#include <stdbool.h>
#include <stdint.h>

/* They are called by the compiler's code only. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#pragma GCC diagnostic ignored "-Wbuiltin-declaration-mismatch"

#define EXPORT __attribute__((visibility("default")))

EXPORT void __tsan_init(void)
{
}
EXPORT void __tsan_func_entry(void *pc)
{
    (void)pc;
}
EXPORT void __tsan_func_exit(void)
{
}

static void abi_access(const volatile void *at, size_t len, bool write)
{
    if (model_watching)
        model_plain(at, len, write);
}

#define PLAIN(size)                                                                                \
    EXPORT void __tsan_read##size(void *at)                                                        \
    {                                                                                              \
        abi_access(at, size, false);                                                               \
    }                                                                                              \
    EXPORT void __tsan_write##size(void *at)                                                       \
    {                                                                                              \
        abi_access(at, size, true);                                                                \
    }                                                                                              \
    EXPORT void __tsan_unaligned_read##size(void *at)                                              \
    {                                                                                              \
        abi_access(at, size, false);                                                               \
    }                                                                                              \
    EXPORT void __tsan_unaligned_write##size(void *at)                                             \
    {                                                                                              \
        abi_access(at, size, true);                                                                \
    }                                                                                              \
    EXPORT void __tsan_volatile_read##size(void *at)                                               \
    {                                                                                              \
        abi_access(at, size, false);                                                               \
    }                                                                                              \
    EXPORT void __tsan_volatile_write##size(void *at)                                              \
    {                                                                                              \
        abi_access(at, size, true);                                                                \
    }
PLAIN(1)
PLAIN(2)
PLAIN(4)
PLAIN(8)
PLAIN(16)

EXPORT void __tsan_read_range(void *at, size_t len)
{
    abi_access(at, len, false);
}

EXPORT void __tsan_write_range(void *at, size_t len)
{
    abi_access(at, len, true);
}

static uint64_t abi_set(uint64_t old, uint64_t v)
{
    (void)old;
    return v;
}
static uint64_t abi_add(uint64_t old, uint64_t v)
{
    return old + v;
}
static uint64_t abi_sub(uint64_t old, uint64_t v)
{
    return old - v;
}
static uint64_t abi_and(uint64_t old, uint64_t v)
{
    return old & v;
}
static uint64_t abi_or(uint64_t old, uint64_t v)
{
    return old | v;
}
static uint64_t abi_xor(uint64_t old, uint64_t v)
{
    return old ^ v;
}

#define MODIFY(bits, name, change)                                                                 \
    EXPORT uint##bits##_t __tsan_atomic##bits##_##name(volatile uint##bits##_t *at,                \
                                                       uint##bits##_t v, int order)                \
    {                                                                                              \
        uint##bits##_t old = *at;                                                                  \
        if (model_watching)                                                                        \
            return (uint##bits##_t)model_modify(at, bits / 8, change, v, (enum model_order)order); \
        *at = (uint##bits##_t)change(old, v);                                                      \
        return old;                                                                                \
    }
#define EXCHANGE(bits, name)                                                                       \
    EXPORT bool __tsan_atomic##bits##_##name(volatile uint##bits##_t *at,                          \
                                             uint##bits##_t *expected, uint##bits##_t desired,     \
                                             int order, int failure)                               \
    {                                                                                              \
        uint64_t old = *expected;                                                                  \
        bool equal = *at == *expected;                                                             \
        if (model_watching) {                                                                      \
            equal = model_compare_exchange(at, bits / 8, &old, desired, (enum model_order)order,   \
                                           (enum model_order)failure);                             \
        } else {                                                                                   \
            old = *at;                                                                             \
            *at = equal ? desired : *at;                                                           \
        }                                                                                          \
        if (!equal)                                                                                \
            *expected = (uint##bits##_t)old;                                                       \
        return equal;                                                                              \
    }
#define ATOMIC(bits)                                                                               \
    EXPORT uint##bits##_t __tsan_atomic##bits##_load(const volatile uint##bits##_t *at, int order) \
    {                                                                                              \
        return model_watching ? (uint##bits##_t)model_load(at, bits / 8, (enum model_order)order)  \
                              : *at;                                                               \
    }                                                                                              \
    EXPORT void __tsan_atomic##bits##_store(volatile uint##bits##_t *at, uint##bits##_t v,         \
                                            int order)                                             \
    {                                                                                              \
        if (model_watching)                                                                        \
            model_store(at, bits / 8, v, (enum model_order)order);                                 \
        else                                                                                       \
            *at = v;                                                                               \
    }                                                                                              \
    MODIFY(bits, exchange, abi_set)                                                                \
    MODIFY(bits, fetch_add, abi_add)                                                               \
    MODIFY(bits, fetch_sub, abi_sub)                                                               \
    MODIFY(bits, fetch_and, abi_and)                                                               \
    MODIFY(bits, fetch_or, abi_or)                                                                 \
    MODIFY(bits, fetch_xor, abi_xor)                                                               \
    EXCHANGE(bits, compare_exchange_strong)                                                        \
    EXCHANGE(bits, compare_exchange_weak)
ATOMIC(8)
ATOMIC(16)
ATOMIC(32)
ATOMIC(64)

EXPORT void __tsan_atomic_thread_fence(int order)
{
    if (model_watching)
        model_fence((enum model_order)order);
}

EXPORT void __tsan_atomic_signal_fence(int order)
{
    (void)order;
}
