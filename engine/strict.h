/* SPDX-License-Identifier: Apache-2.0
 *
 * `check: strict`: before a collective moves anything, its members exchange a signature of the call
 * and compare all of them. Each comes to the same verdict from the same signatures, so either all
 * go on or all return MISMATCH, with two of the calls in the sentence. It costs one small allgather
 * per operation and works on any backend.
 *
 * Messages are no business of this file: a backend that can tells their count and dtype along with
 * them, and compares at the receiver, whatever `check` says.
 */
#ifndef ENGINE_STRICT_H
#define ENGINE_STRICT_H

#include <collrun/types.h>

struct lane;

/* What is compared. Of a fixed size, so that it can be exchanged whatever the calls are. Fields
 * that a kind does not have are 0. */
struct strict_signature {
    uint64_t number; /* of the operation in its group */
    uint64_t count;  /* of the equal forms */
    uint64_t own;    /* v-forms: what this rank sends or receives beside its arrays (see claim) */
    uint64_t claim;  /* v-forms: hash of what the arrays say that `own` of all ranks are */
    int32_t root;
    uint8_t kind, dtype, op, claims; /* claims: `claim` is meant; of gatherv only the root's is */
};

/* A rank with several GPUs has as many places in the group, one after the other; else they are the
 * same. */
struct strict_signature strict_sign(const struct collrun_call *call, uint64_t number,
                                    uint32_t place, uint32_t nplaces);
/* OK, or MISMATCH with the cause in this thread's record. `devices`: places of a rank. */
int strict_compare(const struct strict_signature *all, uint32_t nplaces, uint32_t devices);

/* Of a v-form, when the signatures differ in no more than counts: 2 * nplaces numbers of each
 * place. The cause then names two ranks; OK: no pair was found. */
#define STRICT_UNKNOWN UINT64_MAX
void strict_counts(const struct collrun_call *call, uint32_t place, uint32_t nplaces,
                   uint64_t *out);
int strict_compare_counts(const struct strict_signature *any, const uint64_t *all, uint32_t nplaces,
                          uint32_t devices);

/* As emulate_exec, after the check where the group wants one. `calls` is the engine's own copy: its
 * time-out shrinks by what the check took. */
int strict_exec(struct lane *lane, struct collrun_call *calls, uint32_t ncalls, uint64_t number);

#endif
