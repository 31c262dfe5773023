/* SPDX-License-Identifier: Apache-2.0
 *
 * The texts of a mismatch and of a time-out, in one format for the engine and for all backends:
 *   rank 0 calls barrier(), rank 2 (world rank 5) calls allreduce(1 x int32, sum)
 *   alltoallv(int32): rank 0 sends 4 elements to rank 2, which receives 3
 *   rank 0 waited 2.0 s for ranks 1-3, 5
 *   rank 0 timed out after 2.0 s
 *
 * `world_rank` holds the rank in the job of each member; a rank that differs from it is shown with
 * it. NULL: none is shown. Output is always terminated, and cut if `len` is too small.
 */
#ifndef ENGINE_CORE_FAILURE_TEXT_H
#define ENGINE_CORE_FAILURE_TEXT_H

#include <collrun/backend.h>

struct failure_call {
    uint32_t rank;
    const struct collrun_call *call;
};

struct failure_wait {
    uint32_t rank;           /* the one that waited */
    uint32_t nmissing;       /* 0: the ranks that it waited for are not known */
    const uint32_t *missing; /* in ascending order */
    uint64_t waited_ns;
};

/* The operator of an allgather with which the engine begins an operation of another kind: a backend
 * that compares calls finds a mismatch with it, and the text names that kind. */
#define FAILURE_TEXT_BEGINS(kind) ((enum collrun_op)((kind) + 1))

void failure_text_mismatch(const uint32_t *world_rank, const struct failure_call *a,
                           const struct failure_call *b, char *out, size_t len);
void failure_text_counts(const uint32_t *world_rank, const struct collrun_count_mismatch *counts,
                         char *out, size_t len);
void failure_text_timeout(const uint32_t *world_rank, const struct failure_wait *wait, char *out,
                          size_t len);
/* The same for another subject than a rank: "allreduce train#7 timed out after 2.0 s". */
void failure_text_expired(const char *subject, uint64_t waited_ns, char *out, size_t len);

#endif
