/* SPDX-License-Identifier: Apache-2.0
 *
 * struct diag: one error, on the caller's stack, without malloc: code and text, the place in
 * job.yaml that caused it, the rank and host where it occurred, and a hint. The function that
 * detects an error sets it and returns its negative code in one line:
 * `return diag_set(d, COLLRUN_ERR_NOT_FOUND, "no group \"%s\"", name);`. Callers with more context
 * wrap it ("outer: inner"). Only runner/report prints. A NULL diag is allowed everywhere; the error
 * is then the code alone.
 */
#ifndef ENGINE_BASE_DIAG_H
#define ENGINE_BASE_DIAG_H

#include <collrun/types.h>
#include <stdbool.h>

/* A place in job.yaml; line 0 = nowhere. Lines and columns count from 1, columns and width in
 * characters. `file` is borrowed and outlives every diag; NULL = the job file.
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
    char text[1024]; /* the error message, without final full stop or newline; cut: "..." */
    char note2[128]; /* what is at loc2 */
    char hint[512];  /* what to do about it; "" = none */
    bool warning;    /* no error: the job can run as it is written */
};

void diag_init(struct diag *d);

/* The hint where fork or a new thread fails with EAGAIN. */
#define DIAG_HINT_PROCESSES                                                                        \
    "a limit of processes and threads is reached (ulimit -u, pids.max of a cgroup), or memory is " \
    "short"

/* Each replaces what was there and returns `code` (or, for diag_sys, COLLRUN_ERR_SYSTEM, of ENOMEM
 * COLLRUN_ERR_NO_MEMORY, with ": strerror(err)" added). */
int diag_set(struct diag *d, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int diag_sys(struct diag *d, int err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int diag_at(struct diag *d, struct diag_loc loc, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Adds to an error that is set; all return d->code. */
int diag_wrap(struct diag *d, const char *format, ...) __attribute__((format(printf, 2, 3)));
int diag_hint(struct diag *d, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Adds DIAG_HINT_PROCESSES to an error of diag_sys if its errno is EAGAIN; returns the code. */
int diag_hint_processes(struct diag *d);
int diag_second(struct diag *d, struct diag_loc loc, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
