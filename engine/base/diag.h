/* SPDX-License-Identifier: Apache-2.0
 *
 * struct diag: one error, on the caller's stack, no malloc. It says what went wrong (code and
 * text), where in job.yaml it was caused, on which rank and host it showed up, and what to type
 * next (hint). Whoever decides which error it is fills it in and returns its negative code in one
 * line: `return diag_set(d, COLLRUN_ERR_NOT_FOUND, "no group \"%s\"", name);`. Callers that can add
 * context wrap ("outer: inner"); nobody prints but runner/tell/report. A NULL diag is allowed
 * everywhere and drops the words.
 */
#ifndef BASE_DIAG_H
#define BASE_DIAG_H

#include <collrun/types.h>

/* A place in job.yaml; line 0 = nowhere. Lines and columns count from 1, columns and width in
 * characters. `file` is borrowed from whoever read it and outlives every diag; NULL = the job file.
 */
struct diag_loc {
    const char *file;
    uint32_t line, column, width;
};

struct diag {
    int code;                  /* enum collrun_status; 0 = no error */
    int sys_errno;             /* of the system call, or 0 */
    int rank;                  /* world rank, or -1 */
    struct diag_loc loc, loc2; /* loc2: the other place of a contradiction */
    char host[64];
    char text[1024]; /* one sentence, no final full stop, no newline; a cut is marked by "..." */
    char note2[128]; /* what stands at loc2 */
    char hint[512];  /* "" or what to do about it */
};

void diag_init(struct diag *d);

/* Each replaces what was there and returns `code` (or, for diag_sys, COLLRUN_ERR_SYSTEM with ":
 * strerror(err)" added). */
int diag_set(struct diag *d, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int diag_sys(struct diag *d, int err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int diag_at(struct diag *d, struct diag_loc loc, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Adds to an error that is set; all return d->code. */
int diag_wrap(struct diag *d, const char *format, ...) __attribute__((format(printf, 2, 3)));
int diag_hint(struct diag *d, const char *format, ...) __attribute__((format(printf, 2, 3)));
int diag_second(struct diag *d, struct diag_loc loc, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
