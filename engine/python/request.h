/* SPDX-License-Identifier: Apache-2.0
 *
 * collrun.Request: an operation in flight. It keeps the buffers alive until the operation has
 * ended, also if the program drops the request before.
 */
#ifndef PYTHON_REQUEST_H
#define PYTHON_REQUEST_H

#include <Python.h>

struct operation;

/* Creates the type; adds it to the module. */
int request_init(PyObject *module);
/* Takes `op`, which was started. NULL: an exception, and the operation is detached. */
PyObject *request_new(struct operation *op);

#endif
