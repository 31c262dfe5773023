/* SPDX-License-Identifier: Apache-2.0
 *
 * The operations of collrun.Group: each method reads its arguments into an operation, and runs or
 * starts it.
 */
#ifndef PYTHON_CALLS_H
#define PYTHON_CALLS_H

#include <Python.h>

/* The entries of the type's method table; the last is zeroed. */
extern PyMethodDef calls_methods[];

#endif
