/* SPDX-License-Identifier: Apache-2.0
 *
 * The tests of correct collectives that every backend has to pass, as cmocka tests: all kinds,
 * types and operators for several numbers of ranks, in processes and in threads, ranks that fall
 * behind, more ranks than cores. A backend's test file says how much of each in a struct
 * coll_suite, and has COLL_SUITE(&it) among its tests.
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
    size_t counts[8]; /* of elements, for every kind */
    uint32_t ncounts;
    uint32_t processes, threads; /* ranks of the largest world, from 1 on */
    uint32_t alone;              /* ranks that believe to have a core each */
    size_t many;                 /* elements, for every type and operator */
    uint32_t turns;              /* random operations out of step */
    uint32_t crowd, rounds;      /* ranks on few cores, and how often every kind */
    bool heap;                   /* the backend has memory of its own */
};

/* *state is the suite. */
void coll_every_kind_in_processes(void **state);
void coll_every_kind_in_threads(void **state);
void coll_every_kind_as_if_alone(void **state);
void coll_every_type_and_operator(void **state);
void coll_ranks_out_of_step(void **state);
void coll_many_ranks_on_few_cores(void **state);

#define COLL_SUITE(suite)                                                                          \
    cmocka_unit_test_prestate(coll_every_kind_in_processes, (suite)),                              \
        cmocka_unit_test_prestate(coll_every_kind_in_threads, (suite)),                            \
        cmocka_unit_test_prestate(coll_every_kind_as_if_alone, (suite)),                           \
        cmocka_unit_test_prestate(coll_every_type_and_operator, (suite)),                          \
        cmocka_unit_test_prestate(coll_ranks_out_of_step, (suite)),                                \
        cmocka_unit_test_prestate(coll_many_ranks_on_few_cores, (suite))

#endif
