/* SPDX-License-Identifier: Apache-2.0
 *
 * Failures as Python exceptions: collrun.Error and the classes below it, one per status, which the
 * package defines (collrun/_errors.py).
 */
#ifndef PYTHON_ERRORS_H
#define PYTHON_ERRORS_H

#include <Python.h>
#include <collrun/collrun.h>

/* Sets the exception for a status, with the error message of the thread's last failing call. If a
 * Python signal handler has to run, it runs first, and its exception (KeyboardInterrupt) is set
 * instead. Returns -1. */
int errors_set(int status);
/* The same with a message. */
int errors_set_text(int status, const char *text);

/* The job whose failed ranks are the culprits of an error. */
void errors_init(const struct collrun_ctx *ctx);

#endif
