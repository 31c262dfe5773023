/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the tests of examples/backend-mpi: the backend, which is built in a temporary folder
 * (the current folder must be the top of the tree); a message; a sum.
 */
#ifndef TESTS_UNIT_MPI_HARNESS_H
#define TESTS_UNIT_MPI_HARNESS_H

#include "backend_harness.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* Builds the backend and runs the tests (those whose names match argv[1], if given). Returns the
 * exit code. Where the backend cannot be tested, a skipped case says why. */
int mpi_harness_run(int argc, char **argv, const struct CMUnitTest *tests, size_t ntests);
struct harness_options mpi_harness_options(uint32_t nranks);
/* A message of `count` int32. */
struct collrun_call mpi_harness_message(enum collrun_kind kind, void *buf, size_t count, int peer,
                                        uint32_t tag);
/* A checked allreduce; returns 0 if the result is right. */
int mpi_harness_sum(struct harness_rank *r, struct harness_group *g, uint32_t salt);

#endif
