/* SPDX-License-Identifier: Apache-2.0
 *
 * What ranks compare of a call. Two calls of one collective fit together if and only if their
 * fingerprints do; `check: strict` exchanges these (ops/consistency.h). The flight recorder's marks
 * are hashed from the same terms (observe/call_record.h), so that the audit finds the same.
 *
 * Nothing here communicates. What differs is stored as the cause of MISMATCH, with two of the
 * calls.
 */
#ifndef ENGINE_CORE_FINGERPRINT_H
#define ENGINE_CORE_FINGERPRINT_H

#include "base/call_hash.h"

#include <collrun/types.h>

/* ---- operators of the caller, struct collrun_user_op: no backend sees a call that has one ---- */

/* How many elements belong together; 1 for NULL. */
static inline size_t user_op_unit(const struct collrun_user_op *op)
{
    return op && op->unit ? (size_t)op->unit : 1;
}

/* Equal for operators that agree in all that ranks can compare: name, unit, commutative. 0: NULL.
 */
uint64_t user_op_hash(const struct collrun_user_op *op);

/* ---- fingerprints ---- */

enum { FINGERPRINT_NAME_LEN = 32 };

/* The part of a call that is compared. Its size is fixed, so that ranks with different calls can
 * exchange it. Fields that a kind does not have are 0. */
struct fingerprint {
    uint64_t number;      /* of the operation in its group */
    uint64_t count;       /* of the equal forms */
    uint64_t contributed; /* v-forms: the count that this rank contributes */
    uint64_t
        expected; /* v-forms: hash of the counts that this rank expects all ranks to contribute */
    uint64_t user_op; /* hash of the caller's operator */
    int32_t root;
    int32_t root_device; /* of the root's process; 0 in a group without devices */
    uint8_t kind, dtype, op,
        has_expected; /* `expected` is valid; in gatherv that of the root only */
    char user_op_name[FINGERPRINT_NAME_LEN]; /* for messages; may be cut */
};

/* Hashes of the arrays of a v-form: the sum of sendcounts[i] * SENT^i, of recvcounts[i] *
 * RECEIVED^i (base/call_hash.h); 0 for an array that the call does not use. The argument checks
 * compute them. */
struct fingerprint_hashes {
    uint64_t sent, received;
    uint64_t total; /* the sum of sendcounts */
};
void fingerprint_hash_arrays(const struct collrun_call *call, uint32_t comm_size,
                             struct fingerprint_hashes *out);

/* The counts of a v-form as two numbers: `alike` is equal on all members, and `pairs`, summed over
 * all communicator ranks, is 0 (mod 2^64), exactly if fingerprint_compare finds no difference. */
struct fingerprint_terms {
    uint64_t alike, pairs;
    uint64_t contributed; /* elements that this rank sends, in all */
};

/* Hashes of what this rank sends to each peer, and of what it expects from each. */
static inline uint64_t fingerprint_hash_sent(uint64_t sent, uint32_t rank)
{
    return sent * call_hash_power(CALL_HASH_RECEIVED, rank);
}

static inline uint64_t fingerprint_hash_expected(uint64_t received, uint32_t rank)
{
    return received * call_hash_power(CALL_HASH_SENT, rank);
}

/* A call of allgatherv and reduce_scatterv that passed the checks contributes what its array says,
 * so it is enough that arrays are alike. The factor keeps differences of two operations from adding
 * up to 0. */
static inline void fingerprint_vector_terms(const struct collrun_call *call, uint64_t number,
                                            uint32_t comm_rank,
                                            const struct fingerprint_hashes *hashes,
                                            struct fingerprint_terms *out)
{
    *out = (struct fingerprint_terms){.contributed = call->count};
    switch (call->kind) {
    case COLLRUN_ALLTOALLV:
        out->contributed = hashes->total;
        out->pairs = fingerprint_hash_sent(hashes->sent, comm_rank) -
                     fingerprint_hash_expected(hashes->received, comm_rank);
        break;
    case COLLRUN_SCATTERV:
        out->contributed = call->recvcount;
        out->pairs = fingerprint_hash_expected(call->recvcount, comm_rank) - hashes->sent;
        break;
    case COLLRUN_GATHERV:
        out->pairs = fingerprint_hash_sent(call->count, comm_rank) - hashes->received;
        break;
    default:
        out->contributed = call->recvcounts[comm_rank];
        out->alike = hashes->received;
    }
    if (out->pairs)
        out->pairs *= call_hash_factor(number);
}

struct fingerprint fingerprint_of(const struct collrun_call *call, uint64_t number,
                                  uint32_t comm_rank, uint32_t comm_size);
bool fingerprint_same_call(const struct fingerprint *a, const struct fingerprint *b);
/* OK, or MISMATCH with its cause stored. `devices`: communicator ranks per rank. `world_rank`: as
 * in error.h. */
int fingerprint_compare(const struct fingerprint *all, uint32_t comm_size, uint32_t devices,
                        const uint32_t *world_rank);

/* For a v-form whose fingerprints differ in counts only. fingerprint_counts writes 2 * comm_size
 * numbers: the elements that this communicator rank sends to each, then those that it expects from
 * each; FINGERPRINT_UNKNOWN where its call does not specify them. `comm_root`: the communicator
 * rank of its root. fingerprint_compare_counts stores a cause that names two ranks and returns
 * MISMATCH; OK: no pair differs. */
#define FINGERPRINT_UNKNOWN UINT64_MAX
void fingerprint_counts(const struct collrun_call *call, uint32_t comm_rank, uint32_t comm_root,
                        uint32_t comm_size, uint64_t *out);
int fingerprint_compare_counts(const struct fingerprint *any, const uint64_t *all,
                               uint32_t comm_size, uint32_t devices, const uint32_t *world_rank);

#endif
