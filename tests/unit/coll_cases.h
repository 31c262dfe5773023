/* SPDX-License-Identifier: Apache-2.0
 *
 * One checked collective: it allocates the buffers of one rank, runs the call on a harness group,
 * and compares every byte with the expected result, which follows from the rank numbers alone.
 * Bytes around the buffers, bytes between uneven blocks, inputs, and buffers that the rank does not
 * receive into must not change.
 */
#ifndef TESTS_UNIT_COLL_CASES_H
#define TESTS_UNIT_COLL_CASES_H

#include "backend_harness.h"

enum coll_memory {
    COLL_PLAIN,
    COLL_HEAP
}; /* from malloc; from the backend's alloc if it has one */

struct coll_case {
    enum collrun_kind kind;
    enum collrun_dtype dtype;
    enum collrun_op op;
    size_t count; /* elements; the v-forms derive their counts from it, some of them 0 */
    uint32_t root;
    bool in_place;
    enum coll_memory memory;
    size_t shift;  /* bytes by which buffers are misaligned */
    uint32_t salt; /* changes the data */
};

/* True if the kind has an in-place form. */
bool coll_has_in_place(enum collrun_kind kind);

/* Returns 0, or 1 after harness_fail. */
int coll_case_run(struct harness_rank *r, struct harness_group *g, const struct coll_case *c);

#endif
