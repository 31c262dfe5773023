/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares the calls that the members of a group made: which agree, and which differ from the
 * majority. Pure.
 */
#ifndef RUNNER_DIAGNOSE_ALIGN_H
#define RUNNER_DIAGNOSE_ALIGN_H

#include <collrun/types.h>

/* A collective as ranks can compare it. Members that the kind does not use are ignored, also the
 * counts of vector forms, which differ between ranks. */
struct align_call {
    uint8_t kind, dtype, op;
    int32_t root;
    uint64_t count;
    uint32_t user_op; /* of an operator of the caller, its hash; 0: not known */
};

bool align_same(const struct align_call *a, const struct align_call *b);
/* The first argument that differs: "kind", "dtype", "op", "root", "count". NULL: none. */
const char *align_field(const struct align_call *a, const struct align_call *b);
/* Splits n calls into classes of equal calls: class_of[i] is the index of the first call equal to
 * call i. Returns the class with the most calls; n: two classes are equally large, or n == 0. */
uint32_t align_vote(const struct align_call *calls, uint32_t n, uint32_t *class_of);

#endif
