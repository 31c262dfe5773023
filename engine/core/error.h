/* SPDX-License-Identifier: Apache-2.0
 *
 * The error message of this thread's last failure. A backend stores the cause through
 * services->fail; the engine prepends the operation ("allreduce train#1042: ..."), and
 * collrun_error() returns the result. Each thread has a record, so there are no locks. Success does
 * not change it: the record is only read after a negative status.
 */
#ifndef ENGINE_CORE_ERROR_H
#define ENGINE_CORE_ERROR_H

#include "base/record.h"

#include <collrun/backend.h>
#include <stdarg.h>
#include <stdbool.h>

struct diag;

struct error_record {
    int status;              /* 0: this thread has not failed yet */
    struct record_moment at; /* when */
    uint64_t number;         /* of the operation in its group; 0: none */
    char group[128];         /* "" = not about a group */
    char cause[768];         /* the innermost cause, without the operation */
    char text[1024];         /* what collrun_error() returns */
};

struct error_record *error_get(void); /* this thread's; never NULL */

/* Stores the cause alone and returns `status`: used by services->fail and the rendezvous. */
int error_cause(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));
int error_vcause(int status, const char *format, va_list args)
    __attribute__((format(printf, 2, 0)));
void error_clear_cause(void);

/* A complete error message that is not about an operation. Returns `status`. */
int error_set(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* "WHERE: cause", from the stored cause or, if that is empty, the text of `status`. Returns
 * `status`. */
int error_wrap(int status, const char *group, uint64_t number, const char *where);
/* The record becomes what it was before. */
void error_restore(const struct error_record *record);
/* The failure of a request, in the thread that has completed it: a copy for the thread that will
 * wait for it. error_deliver: the call of that thread fails with it now. */
void error_hand_over(struct error_record *out);
void error_deliver(const struct error_record *record);

/* From now on, failures of calls that end their group are stored in the record of the rank
 * (record_head.failure), of whichever thread; NULL: in none, as in a forked child. */
void error_attach(struct record_head *record);
/* The last of them that is not past (record_view_is_past), of any thread; status 0: none. It is in
 * force for good once the job stops. Without a record: the last failure of this thread. */
struct record_view_failure;
void error_last_of_rank(bool stopping, struct record_view_failure *out);
/* True if this thread has gone on with operations since its last failure. */
bool error_is_past(void);
/* A diag as the error message of this thread. Returns d->code. */
int error_from_diag(const struct diag *d);

/* ---- texts of failures ----
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
