/* SPDX-License-Identifier: Apache-2.0
 *
 * One collective, checked: makes the buffers of one rank, runs the call on a rig group, and
 * compares every byte of them with what the rank numbers alone say they must hold. Bytes around the
 * buffers, bytes between uneven blocks, inputs, and buffers that the rank does not receive into
 * must be untouched.
 */
#ifndef TESTS_UNIT_COLL_CASES_H
#define TESTS_UNIT_COLL_CASES_H

#include "backend_rig.h"

enum coll_memory { COLL_PLAIN, COLL_HEAP }; /* malloc; the backend's alloc, where it has one */

struct coll_case {
    enum collrun_kind kind;
    enum collrun_dtype dtype;
    enum collrun_op op;
    size_t count; /* of even kinds; uneven ones derive their counts from it, some of them 0 */
    uint32_t root;
    bool in_place;
    enum coll_memory memory;
    size_t shift;  /* bytes by which buffers are out of alignment */
    uint32_t salt; /* other data */
};

/* Whether the kind has an in-place form. */
bool coll_has_in_place(enum collrun_kind kind);
bool coll_reduces(enum collrun_kind kind);
bool coll_has_root(enum collrun_kind kind);

/* 0, or 1 after rig_fail. */
int coll_case_run(struct rig_rank *r, struct rig_group *g, const struct coll_case *c);

#endif
