/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions of MPI that this library has, made from the table base/mpi_functions.h. Each has
 * the arguments of its namesake as words, and does:
 *
 *     int MPI_Bcast(word a, word b, word c, word d, word e)
 *     {
 *         note the call; call PMPI_Bcast; note that it has returned
 *     }
 */
#include "taps/mpi/tap.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* ---- the table ---- */

/* clang-format off */
#define TAP_ROW(fn, of, n, sh, ...)                                                                \
    {.name = "PMPI_" #fn, .number = MPI_FN_##fn, .kind = of, .shape = TAP_##sh, .nargs = n,        \
     .at = {__VA_ARGS__}},
#define TAP_ROWS(fn, of, n, sh, ...)                                                               \
    TAP_ROW(fn, of, n, sh, __VA_ARGS__)                                                            \
    {.name = "PMPI_" #fn "_c", .number = MPI_FN_##fn, .kind = of, .shape = TAP_##sh, .nargs = n,   \
     .large = true, .at = {__VA_ARGS__}},
#define TAP_OBJECT_ROW(fn, of, n, sh, ...)                                                         \
    {.name = "PMPI_" #fn, .kind = of, .shape = TAP_##sh, .nargs = n, .at = {__VA_ARGS__}},
#define TAP_OBJECT_ROWS(fn, of, n, sh, ...)                                                        \
    TAP_OBJECT_ROW(fn, of, n, sh, __VA_ARGS__)                                                     \
    {.name = "PMPI_" #fn "_c", .kind = of, .shape = TAP_##sh, .nargs = n, .large = true,           \
     .at = {__VA_ARGS__}},
#define TAP_NUMBER(fn, ...) FN_##fn,
#define TAP_NUMBERS(fn, ...) FN_##fn, FN_##fn##_c,
#define TAP_ALL(ONE, BOTH) MPI_FUNCTIONS(ONE, BOTH) MPI_OBJECTS(ONE, BOTH)

enum { TAP_ALL(TAP_NUMBER, TAP_NUMBERS) FN_COUNT };
static const struct tap_function functions[FN_COUNT] = {
    MPI_FUNCTIONS(TAP_ROW, TAP_ROWS) MPI_OBJECTS(TAP_OBJECT_ROW, TAP_OBJECT_ROWS)};

/* ---- the functions ---- */

#define WORDS_0 void
#define WORDS_1 word a
#define WORDS_2 WORDS_1, word b
#define WORDS_3 WORDS_2, word c
#define WORDS_4 WORDS_3, word d
#define WORDS_5 WORDS_4, word e
#define WORDS_6 WORDS_5, word f
#define WORDS_7 WORDS_6, word g
#define WORDS_8 WORDS_7, word h
#define WORDS_9 WORDS_8, word i
#define WORDS_10 WORDS_9, word j
#define WORDS_11 WORDS_10, word k
#define WORDS_12 WORDS_11, word l
#define NAMES_0
#define NAMES_1 a,
#define NAMES_2 NAMES_1 b,
#define NAMES_3 NAMES_2 c,
#define NAMES_4 NAMES_3 d,
#define NAMES_5 NAMES_4 e,
#define NAMES_6 NAMES_5 f,
#define NAMES_7 NAMES_6 g,
#define NAMES_8 NAMES_7 h,
#define NAMES_9 NAMES_8 i,
#define NAMES_10 NAMES_9 j,
#define NAMES_11 NAMES_10 k,
#define NAMES_12 NAMES_11 l,
#define PASSED_0
#define PASSED_1 v[0]
#define PASSED_2 PASSED_1, v[1]
#define PASSED_3 PASSED_2, v[2]
#define PASSED_4 PASSED_3, v[3]
#define PASSED_5 PASSED_4, v[4]
#define PASSED_6 PASSED_5, v[5]
#define PASSED_7 PASSED_6, v[6]
#define PASSED_8 PASSED_7, v[7]
#define PASSED_9 PASSED_8, v[8]
#define PASSED_10 PASSED_9, v[9]
#define PASSED_11 PASSED_10, v[10]
#define PASSED_12 PASSED_11, v[11]

#define TAP_DEFINE(fn, n)                                                                          \
    __attribute__((visibility("default"))) int MPI_##fn(WORDS_##n);                                \
    int MPI_##fn(WORDS_##n)                                                                        \
    {                                                                                              \
        int (*const real)(WORDS_##n) = (int (*)(WORDS_##n))tap_real(FN_##fn);                      \
        word v[n + 1] = {NAMES_##n 0};                                                               \
        struct tap_call call;                                                                      \
        if (!tap_call_begin(&call, &functions[FN_##fn], v, __builtin_return_address(0)))           \
            return real(PASSED_##n);                                                               \
        const int rc = real(PASSED_##n);                                                           \
        tap_call_end(&call, rc);                                                                   \
        return rc;                                                                                 \
    }
#define TAP_ONE(fn, of, n, ...) TAP_DEFINE(fn, n)
#define TAP_BOTH(fn, of, n, ...) TAP_DEFINE(fn, n) TAP_DEFINE(fn##_c, n)

/* ---- where they are in the MPI that is loaded ---- */

static _Atomic uintptr_t reals[FN_COUNT]; /* 0: not looked for yet */

static bool tap_are_alone(void);

/* Stands for a function that the library does not have: its arguments are ignored, and the error is
 * handled as one of the library's own on MPI_COMM_WORLD. */
static int tap_missing(void)
{
    int (*handle)(word, int);
    if (tap_library_get("PMPI_Comm_call_errhandler", &handle) && tap_library.handle_size)
        handle(tap_library.comm_world, tap_library.err_other);
    return tap_library.err_other ? tap_library.err_other : -1;
}

static uintptr_t tap_find_real(uint32_t i)
{
    /* A tool behind this library has to see the call, by its public name. */
    const char *name = functions[i].name + !tap_are_alone();
    void *found = tap_library_find(name);
    if (!found) /* of a stand-in that has no profiling interface */
        found = tap_library_find(functions[i].name + 1);
    if (!found) { /* the program has looked for it by its name, or was built with a newer MPI */
        fprintf(stderr, "%s: the MPI that is loaded does not have this function\n",
                functions[i].name + 1);
        return (uintptr_t)tap_missing;
    }
    atomic_store_explicit(&reals[i], (uintptr_t)found, memory_order_release);
    return (uintptr_t)found;
}

static inline uintptr_t tap_real(uint32_t i)
{
    const uintptr_t real = atomic_load_explicit(&reals[i], memory_order_acquire);
    return real ? real : tap_find_real(i);
}

/* The parameters are those of MPI. NOLINTBEGIN(readability-function-size) */
TAP_ALL(TAP_ONE, TAP_BOTH)
/* NOLINTEND(readability-function-size) */

/* ---- other tools ---- */

#define TAP_OWN(fn, ...) (uintptr_t)MPI_##fn,
#define TAP_OWNS(fn, ...) (uintptr_t)MPI_##fn, (uintptr_t)MPI_##fn##_c,
static const uintptr_t own[FN_COUNT] = {TAP_ALL(TAP_OWN, TAP_OWNS)};
/* clang-format on */

static const void *tap_object_of(void *address)
{
    Dl_info info = {0};
    return address && dladdr(address, &info) ? info.dli_fbase : NULL;
}

/* MPI_x, as everything else finds it, is ours; and the next one is that of the library. */
static bool tap_is_next(uint32_t i)
{
    const char *name = functions[i].name + 1;
    if ((uintptr_t)dlsym(RTLD_DEFAULT, name) != own[i])
        return false;
    void *next = dlsym(RTLD_NEXT, name), *real = tap_library_find(functions[i].name);
    return !next || !real || tap_object_of(next) == tap_object_of(real);
}

static bool tap_are_alone(void)
{
    static _Atomic int known; /* 1: yes, 2: no */
    if (!atomic_load(&known)) {
        bool alone = true;
        for (uint32_t i = 0; i < FN_COUNT && alone; i++)
            alone = tap_is_next(i);
        tap_library_set_alone(alone);
        atomic_store(&known, alone ? 1 : 2);
    }
    return atomic_load(&known) == 1;
}

/* ---- the end ---- */

/* The process exits in it, and a handler of that may call MPI_Finalize (mpi4py's does), which is no
 * call of the program. */
__attribute__((visibility("default"))) int MPI_Abort(word comm, word code);
int MPI_Abort(word comm, word code)
{
    int (*real)(word, word);
    tap_library_get(tap_are_alone() ? "PMPI_Abort" : "MPI_Abort", &real);
    tap_calls_stop();
    return real ? real(comm, code) : -1;
}
