/* SPDX-License-Identifier: Apache-2.0
 *
 * The arguments of a method that Python calls by vectorcall: positions and keywords are sorted into
 * slots, and converted. A function that fails sets a Python exception and returns -1.
 */
#ifndef PYTHON_ARGS_H
#define PYTHON_ARGS_H

#include <Python.h>
#include <collrun/collrun.h>

enum args_slot {
    ARG_X,
    ARG_OP,
    ARG_ROOT,
    ARG_OUT,
    ARG_LIKE,
    ARG_COUNTS,
    ARG_SEND_COUNTS,
    ARG_RECV_COUNTS,
    ARG_PEER,
    ARG_TAG,
    ARG_Y,
    ARG_SOURCE,
    ARG_ASYNC,
    ARG_SLOTS
};

/* The parameters of one method in their order; the first `required` of them have no default. */
struct args_table {
    const char *function;
    int required;
    struct {
        const char *name;
        enum args_slot slot;
    } params[8]; /* ends with a NULL name */
};

/* Sorts the arguments into values[ARG_SLOTS]; NULL where the caller gave none, or gave None for one
 * that has a default. */
int args_parse(const struct args_table *table, PyObject *const *args, Py_ssize_t nargs,
               PyObject *kwnames, PyObject **values);

/* `value` NULL: *out is unchanged. `name` is for the error message. */
int args_int(PyObject *value, const char *name, int *out);
int args_bool(PyObject *value, int *out);
int args_seconds(PyObject *value, const char *name, uint64_t *out_ns); /* >= 0 */
/* "sum", "prod", "min", "max", "avg", "band", "bor", "bxor", "land", "lor", "lxor". */
int args_op(PyObject *value, enum collrun_op *out);
/* 0 .. size - 1 of a group. */
int args_rank(PyObject *value, const char *name, int size, int *out);
/* 0 .. 2^31 - 1; ANY_TAG (-1) too if `any`. */
int args_tag(PyObject *value, int any, uint32_t *out);
/* A sequence of exactly n integers >= 0. */
int args_counts(PyObject *value, const char *name, size_t *out, int n);

/* The element type of a name such as "float32", or of numpy.float32, numpy.dtype("float32"),
 * torch.float32. */
int args_dtype(PyObject *value, enum collrun_dtype *out);
const char *args_dtype_name(enum collrun_dtype dtype);

#endif
