/* SPDX-License-Identifier: Apache-2.0
 *
 * The error message of this thread's last failure. A backend stores the cause through
 * services->fail; the engine prepends the operation ("allreduce train#1042: ..."), and
 * collrun_error() returns the result. Each thread has a record, so there are no locks. Success does
 * not change it: the record is only read after a negative status.
 */
#ifndef ENGINE_CORE_ERROR_H
#define ENGINE_CORE_ERROR_H

#include <stdarg.h>
#include <stdint.h>

struct diag;

struct error_record {
    int status;      /* 0: this thread has not failed yet */
    uint64_t number; /* of the operation in its group; 0: none */
    char group[128]; /* "" = not about a group */
    char cause[768]; /* the innermost cause, without the operation */
    char text[1024]; /* what collrun_error() returns */
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
/* A record from elsewhere (a request's) becomes this thread's. */
void error_restore(const struct error_record *record);
/* The error message as a diag. Returns d->code. */
int error_to_diag(struct diag *d);
/* A diag as the error message of this thread. Returns d->code. */
int error_from_diag(const struct diag *d);

#endif
