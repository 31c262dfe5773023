/* SPDX-License-Identifier: Apache-2.0
 *
 * What the tests of every backend's failures share: calls that cannot come to a good end, and what
 * has to be true of a group afterwards. Bodies of a rank, for rig_run: 0, or 1 after rig_fail.
 */
#ifndef TESTS_UNIT_COLL_FAILURES_H
#define TESTS_UNIT_COLL_FAILURES_H

#include "backend_rig.h"

/* Of float32, from `buf` to 4096 bytes behind it. */
struct collrun_call coll_call(enum collrun_kind kind, void *buf, size_t count);

/* After a failure the group only fails, at once, with the same status and sentence. */
int coll_stays_failed(struct rig_rank *r, struct rig_group *group, int status);

/* An uneven collective of three ranks in which rank 1 sends, and expects, one element more than the
 * others think. `recv` is filled with ones. */
struct coll_uneven {
    struct collrun_call call;
    size_t out[3], in[3];
    char send[4096], recv[4096];
};
void coll_uneven_init(struct coll_uneven *u, enum collrun_kind kind, uint32_t rank);

/* Allreduces of `count` float32 until one fails; rank 0 kills rank 1 before its third. Gives the
 * status of that one, and when it came. */
int coll_until_killed(struct rig_rank *r, size_t count, int *status, uint64_t *failed_ns);

#endif
