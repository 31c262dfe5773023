/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory of one argument: an object with the buffer protocol (numpy.ndarray, array.array,
 * bytearray) or with DLPack (torch.Tensor, cupy.ndarray), without a copy. The object keeps its
 * memory alive and unmoved until buffer_release().
 *
 * What is refused: memory that is not contiguous in C order (ValueError), a result in read-only
 * memory (ValueError), an element type that collrun does not have (TypeError), memory of a device
 * that is of no kind which the group knows (ValueError); a masked array (TypeError) and a view that
 * torch negates when it is read (ValueError), as the memory has other values than the array.
 *
 * Memory of a device is ordered after the work that its library has queued: an operation starts
 * after the default stream of the device, so that one is given to __dlpack__ as the consumer's.
 */
#ifndef PYTHON_BUFFER_H
#define PYTHON_BUFFER_H

#include <Python.h>
#include <collrun/collrun.h>
#include <stdbool.h>

enum buffer_source {
    BUFFER_NONE,
    BUFFER_VIEW,
    BUFFER_ARRAY, /* collrun.Array */
    BUFFER_DLPACK,
    BUFFER_DLPACK_VERSIONED
};

struct buffer {
    enum buffer_source source;
    enum collrun_dtype dtype;
    void *data;
    size_t count; /* elements */
    size_t rows;  /* the length of the first axis; 1 of a scalar */
    int ndim;
    Py_buffer view;  /* BUFFER_VIEW */
    PyObject *owner; /* the array; of BUFFER_DLPACK*: the capsule, renamed */
};

/* For an operation of the group (NULL: it was destroyed). `name` is that of the argument, for error
 * messages. On failure: a Python exception, -1, and nothing to release. */
int buffer_get(struct buffer *b, const struct collrun_group *g, PyObject *object, bool writable,
               const char *name);
/* The length of an axis. */
Py_ssize_t buffer_axis(const struct buffer *b, int axis);
/* With BUFFER_NONE: does nothing. */
void buffer_release(struct buffer *b);

#endif
