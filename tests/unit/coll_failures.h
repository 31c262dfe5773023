/* SPDX-License-Identifier: Apache-2.0
 *
 * Failures that every backend is tested with: calls that cannot complete, and the state of the
 * group afterwards. The functions are bodies of a rank for harness_run; they return 0, or 1 after
 * harness_fail.
 */
#ifndef TESTS_UNIT_COLL_FAILURES_H
#define TESTS_UNIT_COLL_FAILURES_H

#include "backend_harness.h"

/* A call on float32, from `buf` to `buf` + 4096 bytes. */
struct collrun_call coll_call(enum collrun_kind kind, void *buf, size_t count);

/* Checks that every later call on a failed group fails immediately with the same status and error.
 */
int coll_stays_failed(struct harness_rank *r, struct harness_group *group, int status);

/* A v-form of three ranks in which rank 1 sends and expects one element more than the others
 * expect. `recv` is filled with ones. */
struct coll_uneven {
    struct collrun_call call;
    size_t out[3], in[3];
    char send[4096], recv[4096];
};
void coll_uneven_init(struct coll_uneven *u, enum collrun_kind kind, uint32_t rank);

/* Allreduces `count` float32 until one fails; rank 0 kills rank 1 before its third. Returns the
 * status of the failed one, and when it failed. */
int coll_until_killed(struct harness_rank *r, size_t count, int *status, uint64_t *failed_ns);

#endif
