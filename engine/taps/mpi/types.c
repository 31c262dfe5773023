/* SPDX-License-Identifier: Apache-2.0
 *
 * Two sides of a communication must agree about the sequence of basic elements, not about how a
 * type was made. A derived type is therefore flattened: if all of its elements are alike, it is so
 * many of them; else a hash of the sequence stands for it, a polynomial over the prime field of
 * 2^61 - 1, which a repetition extends in logarithmic time.
 *
 * - MPI itself says what a type is made of (MPI_Type_get_envelope, _get_contents), so the tap need
 *   not see its construction.
 * - What it cannot say, as of a type with large counts, is MIXED with a hash of its size.
 */
#include "taps/mpi/tap.h"

#include "base/mpi_names.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#define TYPE_PRIME ((UINT64_C(1) << 61) - 1)
#define TYPE_BASE UINT64_C(0x1d8e4e27c47d124f) /* below the prime */

enum { TYPE_DEPTH = 32, TYPE_CACHE = 16 };

/* ---- hashes of sequences ---- */

static uint64_t type_multiply(uint64_t a, uint64_t b)
{
    __extension__ const unsigned __int128 product = (unsigned __int128)a * b;
    const uint64_t sum = (uint64_t)(product & TYPE_PRIME) + (uint64_t)(product >> 61);
    return sum >= TYPE_PRIME ? sum - TYPE_PRIME : sum;
}

static uint64_t type_add(uint64_t a, uint64_t b)
{
    return a + b >= TYPE_PRIME ? a + b - TYPE_PRIME : a + b;
}

static uint64_t type_power(uint64_t exponent)
{
    uint64_t power = 1, base = TYPE_BASE;
    for (; exponent; exponent >>= 1, base = type_multiply(base, base))
        power = exponent & 1 ? type_multiply(power, base) : power;
    return power;
}

uint64_t tap_type_repeat(const struct tap_type *type, uint64_t count)
{
    uint64_t hash = 0, one = type->hash, step = type_power(type->units);
    for (; count; count >>= 1) {
        if (count & 1)
            hash = type_add(type_multiply(hash, step), one);
        one = type_add(type_multiply(one, step), one); /* twice as many */
        step = type_multiply(step, step);
    }
    return hash;
}

/* `count` elements of `type` follow those of `to`. */
static void type_append(struct tap_type *to, const struct tap_type *type, uint64_t count)
{
    const uint64_t units = type->units * count;
    if (!units)
        return;
    to->hash = type_add(type_multiply(to->hash, type_power(units)), tap_type_repeat(type, count));
    if (!to->units)
        to->number = type->number;
    else if (mpi_type_class(to->number) != mpi_type_class(type->number))
        to->number = MPI_TYPE_MIXED;
    to->units += units;
    to->bytes += type->bytes * count;
}

/* ---- what a type is made of ---- */

struct type_functions {
    int (*envelope)(word, int *, int *, int *, int *);
    int (*envelope_c)(word, int64_t *, int64_t *, int64_t *, int64_t *, int *); /* may be NULL */
    int (*contents)(word, word, word, word, int *, intptr_t *, void *);
    int (*name)(word, char *, int *);
    int (*size)(word, int *);
    int (*free)(void *);
};

static const struct type_functions *type_functions(void)
{
    static struct type_functions f;
    static _Atomic int ready;
    if (!atomic_load_explicit(&ready, memory_order_acquire)) {
        const struct {
            const char *name;
            void *to;
        } rows[] = {{"PMPI_Type_get_envelope", &f.envelope},
                    {"PMPI_Type_get_envelope_c", &f.envelope_c},
                    {"PMPI_Type_get_contents", &f.contents},
                    {"PMPI_Type_get_name", &f.name},
                    {"PMPI_Type_size", &f.size},
                    {"PMPI_Type_free", &f.free}};
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
            tap_library_get(rows[i].name, rows[i].to);
        atomic_store_explicit(&ready, 1, memory_order_release);
    }
    return &f;
}

enum type_combiner {
    NAMED,
    DUP,
    CONTIGUOUS,
    VECTOR,
    HVECTOR,
    INDEXED,
    HINDEXED,
    INDEXED_BLOCK,
    HINDEXED_BLOCK,
    STRUCT,
    SUBARRAY,
    RESIZED,
    UNKNOWN
};

/* MPICH and Open MPI still count the forms of MPI-1 that had integers for addresses. */
static enum type_combiner type_combiner(int number)
{
    static const uint8_t old[] = {NAMED,   DUP,     CONTIGUOUS, VECTOR,        HVECTOR,
                                  HVECTOR, INDEXED, HINDEXED,   HINDEXED,      INDEXED_BLOCK,
                                  STRUCT,  STRUCT,  SUBARRAY,   UNKNOWN,       UNKNOWN,
                                  UNKNOWN, UNKNOWN, RESIZED,    HINDEXED_BLOCK};
    static const uint8_t standard[] = {
        NAMED,          DUP,    CONTIGUOUS, VECTOR,  HVECTOR, INDEXED, HINDEXED, INDEXED_BLOCK,
        HINDEXED_BLOCK, STRUCT, SUBARRAY,   UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN,  RESIZED};
    const int at = number - tap_library.combiner_named;
    const bool is_standard = tap_library.abi == TAP_STANDARD;
    const int n = (int)(is_standard ? sizeof standard : sizeof old);
    return at < 0 || at >= n ? UNKNOWN : (enum type_combiner)(is_standard ? standard : old)[at];
}

static void type_unknown(word handle, struct tap_type *out)
{
    int size = 0;
    if (type_functions()->size)
        type_functions()->size(handle, &size);
    *out = (struct tap_type){.units = 1,
                             .bytes = (uint64_t)(size > 0 ? size : 0),
                             .hash = (uint64_t)(size > 0 ? size : 0) + 1,
                             .number = MPI_TYPE_MIXED};
}

static void type_named(word handle, struct tap_type *out)
{
    char name[256] = "";
    int len = 0, size = 0;
    const struct type_functions *f = type_functions();
    if (f->name(handle, name, &len) != 0 || f->size(handle, &size) != 0 || !mpi_type_find(name)) {
        type_unknown(handle, out);
        return;
    }
    const unsigned number = mpi_type_find(name);
    *out = (struct tap_type){.units = 1,
                             .bytes = (uint64_t)size,
                             .hash = mpi_type_class(number) + 1,
                             .number = (uint8_t)number};
}

static void type_flatten(word handle, int depth, struct tap_type *out);

/* The arguments of the constructor: integers and the types that it was given. */
static void type_combine(enum type_combiner combiner, const int *n, int nn,
                         const struct tap_type *types, struct tap_type *out)
{
    uint64_t blocks = 1;
    switch (combiner) {
    case CONTIGUOUS:
        type_append(out, types, (uint64_t)n[0]);
        break;
    case VECTOR:
    case HVECTOR:
    case INDEXED_BLOCK:
    case HINDEXED_BLOCK:
        type_append(out, types, (uint64_t)n[0] * (uint64_t)n[1]);
        break;
    case INDEXED:
    case HINDEXED:
    case STRUCT:
        for (int i = 0; i < n[0] && i + 1 < nn; i++)
            type_append(out, &types[combiner == STRUCT ? i : 0], (uint64_t)n[1 + i]);
        break;
    case SUBARRAY: /* dimensions, sizes, subsizes, starts */
        for (int i = 0; i < n[0]; i++)
            blocks *= (uint64_t)n[1 + n[0] + i];
        type_append(out, types, blocks);
        break;
    default:
        type_append(out, types, 1);
    }
}

/* How many integers, addresses and types describe it; no types, if it has large counts: the short
 * form is an error then, by which MPI ends the program. */
static bool type_envelope(word handle, int n[3], enum type_combiner *combiner)
{
    const struct type_functions *f = type_functions();
    int64_t m[4] = {0};
    int raw = 0;
    const int rc = f->envelope_c ? f->envelope_c(handle, &m[0], &m[1], &m[2], &m[3], &raw)
                                 : f->envelope(handle, &n[0], &n[1], &n[2], &raw);
    if (f->envelope_c) {
        n[0] = m[2] ? 0 : (int)m[0];
        n[1] = m[2] ? 0 : (int)m[1];
        n[2] = m[2] ? 0 : (int)m[3];
    }
    *combiner = type_combiner(raw);
    return rc == 0;
}

/* The handles of derived types that MPI returns are ours to free. Of those that are not known some
 * are predefined, as Fortran's of a precision. */
static void type_free(word handle)
{
    int n[3] = {0};
    enum type_combiner combiner;
    if (type_envelope(handle, n, &combiner) && combiner != NAMED && combiner != UNKNOWN)
        type_functions()->free(&handle);
}

static void type_derived(word handle, const int n[3], enum type_combiner combiner, int depth,
                         struct tap_type *out)
{
    const struct type_functions *f = type_functions();
    int *integers = calloc((size_t)n[0] + 1, sizeof *integers);
    intptr_t *addresses = calloc((size_t)n[1] + 1, sizeof *addresses);
    word *handles = calloc((size_t)n[2] + 1, sizeof *handles);
    struct tap_type *types = calloc((size_t)n[2] + 1, sizeof *types);
    bool known =
        integers && addresses && handles && types && n[2] > 0 &&
        f->contents(handle, (word)n[0], (word)n[1], (word)n[2], integers, addresses, handles) == 0;
    for (int i = 0; known && i < n[2]; i++) {
        const word part = tap_handle_at((uintptr_t)handles, (uint32_t)i);
        type_flatten(part, depth + 1, &types[i]);
        type_free(part);
    }
    *out = (struct tap_type){0};
    if (known)
        type_combine(combiner, integers, n[0], types, out);
    else
        type_unknown(handle, out);
    free(types);
    free(handles);
    free(addresses);
    free(integers);
}

static void type_flatten(word handle, int depth, struct tap_type *out)
{
    const struct type_functions *f = type_functions();
    int n[3] = {0};
    enum type_combiner combiner;
    if (!f->envelope || !f->contents || !f->name || !f->size || !f->free || depth > TYPE_DEPTH ||
        !type_envelope(handle, n, &combiner)) {
        type_unknown(handle, out);
        return;
    }
    if (combiner == NAMED)
        type_named(handle, out);
    else if (combiner == UNKNOWN)
        type_unknown(handle, out);
    else
        type_derived(handle, n, combiner, depth, out);
}

/* ---- the types that a thread has used last ---- */

static _Atomic uint32_t type_age = 1;

void tap_type_forget(void)
{
    atomic_fetch_add(&type_age, 1);
}

uint32_t tap_type_age(void)
{
    return atomic_load_explicit(&type_age, memory_order_relaxed);
}

struct tap_type tap_type_get(word argument)
{
    static _Thread_local struct {
        word handle;
        uint32_t age;
        struct tap_type type;
    } cache[TYPE_CACHE] __attribute__((tls_model("initial-exec")));
    const word handle = tap_handle(argument);
    const uint32_t age = tap_type_age();
    const uint32_t at = (uint32_t)(handle * UINT64_C(0x9e3779b97f4a7c15) >> 60) % TYPE_CACHE;
    if (cache[at].handle != handle || cache[at].age != age) {
        const enum tap_object_state state = tap_object_state(TAP_TYPE, handle);
        cache[at].type = (struct tap_type){0};
        if (state != TAP_OBJECT_FREED)
            type_flatten(handle, 0, &cache[at].type);
        cache[at].type.state = (uint8_t)state;
        cache[at].handle = handle;
        cache[at].age = age;
    }
    return cache[at].type;
}
