/* SPDX-License-Identifier: Apache-2.0
 *
 * collrun.Array: memory of collrun_alloc with a shape and an element type. The buffer protocol and
 * DLPack give views of it; the memory is freed with the last of them.
 */
#ifndef PYTHON_ARRAY_H
#define PYTHON_ARRAY_H

#include "dlpack.h"
#include "group.h"

#include <stdbool.h>

enum { ARRAY_MAX_DIM = 32 };

struct array {
    PyObject_HEAD struct group *group; /* owned */
    void *data;
    size_t len; /* bytes */
    enum collrun_dtype dtype;
    struct dlpack_device device;
    int ndim;
    int64_t shape[ARRAY_MAX_DIM];
    Py_ssize_t view_shape[ARRAY_MAX_DIM], view_strides[ARRAY_MAX_DIM];
};

/* Creates the type; adds it to the module. */
int array_init(PyObject *module);
/* New memory of the group; `shape` is a tuple of integers. */
PyObject *array_new(struct group *g, PyObject *shape, enum collrun_dtype dtype);
/* The group's object is about to end. */
void array_forget(struct group *g);
bool array_is(PyObject *object);

#endif
