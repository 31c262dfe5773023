/* SPDX-License-Identifier: Apache-2.0
 *
 * collrun.Array: memory of collrun_alloc with a shape and an element type. The buffer protocol and
 * DLPack give views of it; the memory is freed with the last of them. An index gives an element, or
 * an Array that is a view of a part; collrun/_arrays.py has what indices mean. Where numpy is
 * installed, programs get an ndarray of the memory instead (array_share).
 */
#ifndef PYTHON_ARRAY_H
#define PYTHON_ARRAY_H

#include "dlpack.h"
#include "group.h"

#include <stdbool.h>

enum { ARRAY_MAX_DIM = 32 };

struct array {
    PyObject_HEAD struct group *group; /* owned */
    struct array *whole;               /* owned: whose memory a view is part of; NULL: it is none */
    void *data;
    size_t len; /* bytes */
    enum collrun_dtype dtype;
    struct dlpack_device device;
    int ndim;
    int64_t shape[ARRAY_MAX_DIM], strides[ARRAY_MAX_DIM]; /* in elements */
    Py_ssize_t view_shape[ARRAY_MAX_DIM], view_strides[ARRAY_MAX_DIM];
};

/* Creates the type; adds it to the module. */
int array_init(PyObject *module);
/* New memory of the group; `shape` is a tuple of integers. */
PyObject *array_new(struct group *g, PyObject *shape, enum collrun_dtype dtype);
/* What a program gets for a new array: an ndarray if numpy is installed and knows memory and type,
 * else the Array. Takes `array`. */
PyObject *array_share(PyObject *array);
/* Whether the elements lie one after the other, in C order. */
bool array_is_packed(const struct array *a);
/* The group's object is about to end. */
void array_forget(struct group *g);
bool array_is(PyObject *object);

#endif
