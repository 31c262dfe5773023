/* SPDX-License-Identifier: Apache-2.0
 *
 * `check: strict`: before a collective moves data, its members exchange fingerprints of their calls
 * and compare them. All members compare the same fingerprints, so either all continue or all return
 * MISMATCH, and the error message shows two of the calls. The cost is one small allgather per
 * operation; it works on any backend.
 *
 * A backend that compares calls itself (COLLRUN_BACKEND_INLINE_CHECK) does not see emulated
 * reductions. They are compared here, without `check: strict`, too.
 *
 * Messages are not checked here: the receiver always compares their count and dtype.
 */
#ifndef ENGINE_OPS_CONSISTENCY_H
#define ENGINE_OPS_CONSISTENCY_H

#include <collrun/types.h>

struct group_backend;
struct progress_queue;

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

/* One step of a hash, from two words: the halves of their product. Differences of the words do not
 * cancel, as the constants are random. */
static inline uint64_t consistency_mix(uint64_t a, uint64_t b)
{
    __extension__ const unsigned __int128 product =
        (unsigned __int128)(a ^ 0xd6e8feb86659fd93u) * (b ^ 0xa0761d6478bd642fu);
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* A count from one communicator rank to another is hashed as count * RECEIVED^from * SENT^to
 * (mod 2^64). Sums of such terms take one multiplication for each count, and those of all members
 * can be added up. */
#define CONSISTENCY_RECEIVED 0xd6e8feb86659fd93u
#define CONSISTENCY_SENT 0xa0761d6478bd642du

/* Of the arrays of a v-form: the sum of sendcounts[i] * SENT^i, of recvcounts[i] * RECEIVED^i; 0
 * for an array that the call does not use. The argument checks compute them. */
struct consistency_hashes {
    uint64_t sent, received;
    uint64_t total; /* the sum of sendcounts */
};
void consistency_hash_arrays(const struct collrun_call *call, uint32_t comm_size,
                             struct consistency_hashes *out);

/* The counts of a v-form as two numbers: `alike` is equal on all members, and `pairs`, summed over
 * all communicator ranks, is 0 (mod 2^64), exactly if consistency_compare finds no difference. */
struct consistency_terms {
    uint64_t alike, pairs;
    uint64_t contributed; /* elements that this rank sends, in all */
};
static inline uint64_t consistency_power(uint64_t base, uint32_t exponent)
{
    uint64_t power = 1;
    for (; exponent; exponent >>= 1, base *= base)
        power *= exponent & 1 ? base : 1;
    return power;
}

/* Of what this rank sends to each peer, and of what it expects from each. */
static inline uint64_t consistency_hash_sent(uint64_t sent, uint32_t rank)
{
    return sent * consistency_power(CONSISTENCY_RECEIVED, rank);
}

static inline uint64_t consistency_hash_expected(uint64_t received, uint32_t rank)
{
    return received * consistency_power(CONSISTENCY_SENT, rank);
}

/* A call of allgatherv and reduce_scatterv that passed the checks contributes what its array says,
 * so it is enough that arrays are alike. The factor keeps differences of two operations from adding
 * up to 0. */
static inline void consistency_vector_terms(const struct collrun_call *call, uint64_t number,
                                            uint32_t comm_rank,
                                            const struct consistency_hashes *hashes,
                                            struct consistency_terms *out)
{
    *out = (struct consistency_terms){.contributed = call->count};
    switch (call->kind) {
    case COLLRUN_ALLTOALLV:
        out->contributed = hashes->total;
        out->pairs = consistency_hash_sent(hashes->sent, comm_rank) -
                     consistency_hash_expected(hashes->received, comm_rank);
        break;
    case COLLRUN_SCATTERV:
        out->contributed = call->recvcount;
        out->pairs = consistency_hash_expected(call->recvcount, comm_rank) - hashes->sent;
        break;
    case COLLRUN_GATHERV:
        out->pairs = consistency_hash_sent(call->count, comm_rank) - hashes->received;
        break;
    default:
        out->contributed = call->recvcounts[comm_rank];
        out->alike = hashes->received;
    }
    if (out->pairs)
        out->pairs *= consistency_mix(number, 0) | 1;
}

struct fingerprint consistency_fingerprint(const struct collrun_call *call, uint64_t number,
                                           uint32_t comm_rank, uint32_t comm_size);
/* OK, or MISMATCH with its cause stored. `devices`: communicator ranks per rank. `world_rank`: as
 * in failure_text.h. */
int consistency_compare(const struct fingerprint *all, uint32_t comm_size, uint32_t devices,
                        const uint32_t *world_rank);

/* For a v-form whose fingerprints differ in counts only. consistency_counts writes 2 * comm_size
 * numbers: the elements that this communicator rank sends to each, then those that it expects from
 * each; CONSISTENCY_UNKNOWN where its call does not specify them. `comm_root`: the communicator
 * rank of its root. consistency_compare_counts stores a cause that names two ranks and returns
 * MISMATCH; OK: no pair differs. */
#define CONSISTENCY_UNKNOWN UINT64_MAX
void consistency_counts(const struct collrun_call *call, uint32_t comm_rank, uint32_t comm_root,
                        uint32_t comm_size, uint64_t *out);
int consistency_compare_counts(const struct fingerprint *any, const uint64_t *all,
                               uint32_t comm_size, uint32_t devices, const uint32_t *world_rank);

/* True if the collective, which the owner of the queue executes while nothing is in flight, takes
 * one call of the backend and nothing else. Any thread may ask. */
bool consistency_is_plain(const struct group_backend *gb, const struct progress_queue *pq,
                          const struct collrun_call *calls, uint32_t ncalls);
/* As emulate_exec, after the check if the group has one, which reduces the time-out by its
 * duration.
 */
int consistency_exec(const struct group_backend *gb, struct progress_queue *pq,
                     const struct collrun_call *calls, uint32_t ncalls, uint64_t number);

#endif
