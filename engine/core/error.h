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
/* The error message as a diag. Returns d->code. */
int error_to_diag(struct diag *d);
/* A diag as the error message of this thread. Returns d->code. */
int error_from_diag(const struct diag *d);

#endif
