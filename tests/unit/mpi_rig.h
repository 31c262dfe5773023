/* SPDX-License-Identifier: Apache-2.0
 *
 * What the tests of examples/backend-mpi share: the backend, built in a folder of its own from the
 * sources below the current folder, which is the top of the tree; a message; a sum.
 */
#ifndef TESTS_UNIT_MPI_RIG_H
#define TESTS_UNIT_MPI_RIG_H

#include "backend_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* Builds it and runs the tests, those whose names match argv[1] if there is one; the exit code.
 * Where it cannot be tested, that is said in TAP. */
int mpi_rig_run(int argc, char **argv, const struct CMUnitTest *tests, size_t ntests);
struct rig_options mpi_rig_options(uint32_t nranks);
/* A message of `count` int32. */
struct collrun_call mpi_rig_message(enum collrun_kind kind, void *buf, size_t count, int peer,
                                    uint32_t tag);
/* An allreduce in a group, checked; 0: right. */
int mpi_rig_sum(struct rig_rank *r, struct rig_group *g, uint32_t salt);

#endif
