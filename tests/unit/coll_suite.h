/* SPDX-License-Identifier: Apache-2.0
 *
 * The tests of correct collectives that every backend must pass, as cmocka tests: all kinds, types
 * and operators for several numbers of ranks, in processes and in threads, with late ranks, and
 * with more ranks than cores. A backend's test file sets the amounts in a struct coll_suite, and
 * lists COLL_SUITE(&suite) among its tests.
 */
#ifndef TESTS_UNIT_COLL_SUITE_H
#define TESTS_UNIT_COLL_SUITE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

struct coll_suite {
    const char *backend;
    size_t counts[8]; /* elements, for every kind */
    uint32_t ncounts;
    uint32_t processes, threads; /* ranks of the largest world; the smallest has 1; 0: none */
    uint32_t dedicated;          /* ranks, with as many cores in their descriptions */
    size_t long_count;           /* elements, for every type and operator */
    uint32_t random_calls;       /* random operations with late ranks */
    uint32_t oversubscribed;     /* ranks on fewer cores */
    uint32_t repetitions;        /* of every kind, by those ranks */
    bool heap;                   /* the backend has alloc and free */
};

/* *state is the struct coll_suite. */
void coll_every_kind_in_processes(void **state);
void coll_every_kind_in_threads(void **state);
void coll_every_kind_on_dedicated_cores(void **state);
void coll_every_type_and_operator(void **state);
void coll_random_calls_with_late_ranks(void **state);
void coll_every_kind_oversubscribed(void **state);

#define COLL_SUITE(suite)                                                                          \
    COLL_SUITE_IN_PROCESSES(suite), cmocka_unit_test_prestate(coll_every_kind_in_threads, (suite))

/* The same for a backend whose connections are between processes; `threads` is 0. */
#define COLL_SUITE_IN_PROCESSES(suite)                                                             \
    cmocka_unit_test_prestate(coll_every_kind_in_processes, (suite)),                              \
        cmocka_unit_test_prestate(coll_every_kind_on_dedicated_cores, (suite)),                    \
        cmocka_unit_test_prestate(coll_every_type_and_operator, (suite)),                          \
        cmocka_unit_test_prestate(coll_random_calls_with_late_ranks, (suite)),                     \
        cmocka_unit_test_prestate(coll_every_kind_oversubscribed, (suite))

#endif
