/* SPDX-License-Identifier: Apache-2.0 */
#include "args.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

static const char *const args_dtypes[COLLRUN_DTYPE_COUNT] = {
    [COLLRUN_INT8] = "int8",         [COLLRUN_UINT8] = "uint8",     [COLLRUN_INT16] = "int16",
    [COLLRUN_UINT16] = "uint16",     [COLLRUN_INT32] = "int32",     [COLLRUN_UINT32] = "uint32",
    [COLLRUN_INT64] = "int64",       [COLLRUN_UINT64] = "uint64",   [COLLRUN_FLOAT16] = "float16",
    [COLLRUN_BFLOAT16] = "bfloat16", [COLLRUN_FLOAT32] = "float32", [COLLRUN_FLOAT64] = "float64",
    [COLLRUN_BOOL] = "bool"};

static const char *const args_ops[COLLRUN_OP_COUNT] = {
    [COLLRUN_SUM] = "sum", [COLLRUN_PROD] = "prod", [COLLRUN_MIN] = "min",
    [COLLRUN_MAX] = "max", [COLLRUN_AVG] = "avg",   [COLLRUN_BAND] = "band",
    [COLLRUN_BOR] = "bor", [COLLRUN_BXOR] = "bxor", [COLLRUN_LAND] = "land",
    [COLLRUN_LOR] = "lor", [COLLRUN_LXOR] = "lxor"};

/* ---- slots ---- */

static int args_keyword(const struct args_table *t, PyObject *name, PyObject *value,
                        PyObject **values)
{
    int i = 0;
    while (t->params[i].name && PyUnicode_CompareWithASCIIString(name, t->params[i].name) != 0)
        i++;
    if (!t->params[i].name) {
        PyErr_Format(PyExc_TypeError, "%s() has no parameter '%U'", t->function, name);
        return -1;
    }
    if (values[t->params[i].slot]) {
        PyErr_Format(PyExc_TypeError, "%s() got two values for '%U'", t->function, name);
        return -1;
    }
    values[t->params[i].slot] = value;
    return 0;
}

static int args_missing(const struct args_table *t, int position)
{
    PyErr_Format(PyExc_TypeError, "%s() needs the argument '%s'", t->function,
                 t->params[position].name);
    return -1;
}

int args_parse(const struct args_table *t, PyObject *const *args, Py_ssize_t nargs,
               PyObject *kwnames, PyObject **values)
{
    memset(values, 0, ARG_SLOTS * sizeof *values);
    for (Py_ssize_t i = 0; i < nargs; i++) {
        if (!t->params[i].name) {
            PyErr_Format(PyExc_TypeError, "%s() takes at most %zd arguments (%zd given)",
                         t->function, i, nargs);
            return -1;
        }
        values[t->params[i].slot] = args[i];
    }
    Py_ssize_t nkeywords = kwnames ? PyTuple_Size(kwnames) : 0;
    for (Py_ssize_t i = 0; i < nkeywords; i++) {
        if (args_keyword(t, PyTuple_GetItem(kwnames, i), args[nargs + i], values))
            return -1;
    }
    for (int i = 0; t->params[i].name; i++) {
        PyObject **value = &values[t->params[i].slot];
        if (*value == Py_None)
            *value = NULL;
        if (i < t->required && !*value)
            return args_missing(t, i);
    }
    return 0;
}

/* ---- values ---- */

int args_int(PyObject *value, const char *name, int *out)
{
    if (!value)
        return 0;
    long n = PyLong_AsLong(value);
    if (n == -1 && PyErr_Occurred())
        return -1;
    if (n < INT_MIN || n > INT_MAX) {
        PyErr_Format(PyExc_ValueError, "%s: %ld is out of range", name, n);
        return -1;
    }
    *out = (int)n;
    return 0;
}

int args_bool(PyObject *value, int *out)
{
    if (!value)
        return 0;
    int truth = PyObject_IsTrue(value);
    if (truth < 0)
        return -1;
    *out = truth;
    return 0;
}

int args_seconds(PyObject *value, const char *name, uint64_t *out_ns)
{
    if (!value)
        return 0;
    double seconds = PyFloat_AsDouble(value);
    if (seconds == -1.0 && PyErr_Occurred())
        return -1;
    if (!(seconds >= 0 && seconds < 1e9)) {
        PyErr_Format(PyExc_ValueError, "%s: must be a number of seconds, not %R", name, value);
        return -1;
    }
    *out_ns = (uint64_t)(seconds * 1e9);
    return 0;
}

static int args_find(const char *const *names, int n, const char *name)
{
    int i = 0;
    while (i < n && strcmp(names[i], name) != 0)
        i++;
    return i < n ? i : -1;
}

int args_op(PyObject *value, enum collrun_op *out)
{
    if (!value)
        return 0;
    if (!PyUnicode_Check(value)) {
        PyErr_Format(PyExc_TypeError, "op: must be a name such as 'sum', not %R", value);
        return -1;
    }
    const char *name = PyUnicode_AsUTF8AndSize(value, NULL);
    if (!name)
        return -1;
    int op = args_find(args_ops, COLLRUN_OP_COUNT, name);
    if (op < 0) {
        PyErr_Format(PyExc_ValueError,
                     "op: no operator named %R; there are sum, prod, min, max, avg, band, bor, "
                     "bxor, land, lor and lxor",
                     value);
        return -1;
    }
    *out = (enum collrun_op)op;
    return 0;
}

int args_rank(PyObject *value, const char *name, int size, int *out)
{
    if (args_int(value, name, out))
        return -1;
    if (*out < 0 || *out >= size) {
        PyErr_Format(PyExc_ValueError, "%s: %d is not a rank of the group (0 to %d)", name, *out,
                     size - 1);
        return -1;
    }
    return 0;
}

int args_tag(PyObject *value, int any, uint32_t *out)
{
    int tag = 0;
    if (args_int(value, "tag", &tag))
        return -1;
    if (tag < (any ? -1 : 0)) {
        PyErr_Format(PyExc_ValueError, "tag: %d is out of range", tag);
        return -1;
    }
    *out = tag < 0 ? COLLRUN_ANY_TAG : (uint32_t)tag;
    return 0;
}

int args_counts(PyObject *value, const char *name, size_t *out, int n)
{
    if (!PySequence_Check(value)) {
        PyErr_Format(PyExc_TypeError, "%s: must be a sequence of %d row counts", name, n);
        return -1;
    }
    Py_ssize_t len = PySequence_Size(value);
    if (len != n) {
        if (len >= 0)
            PyErr_Format(PyExc_ValueError, "%s: has %zd entries, and the group has %d ranks", name,
                         len, n);
        return -1;
    }
    for (int i = 0; i < n; i++) {
        PyObject *item = PySequence_GetItem(value, i);
        Py_ssize_t count = item ? PyNumber_AsSsize_t(item, PyExc_ValueError) : -1;
        Py_XDECREF(item);
        if (count < 0) {
            if (!PyErr_Occurred())
                PyErr_Format(PyExc_ValueError, "%s[%d]: is negative", name, i);
            return -1;
        }
        out[i] = (size_t)count;
    }
    return 0;
}

/* ---- element types ---- */

const char *args_dtype_name(enum collrun_dtype dtype)
{
    return args_dtypes[dtype];
}

/* "torch.float32", "<class 'numpy.float32'>" and "float32" all end in the name. */
static int args_dtype_of_text(const char *text)
{
    char name[64];
    size_t len = strcspn(text, "'");
    if (text[len])
        text += len + 1;
    const char *dot = strrchr(text, '.');
    snprintf(name, sizeof name, "%s", dot ? dot + 1 : text);
    name[strcspn(name, "'>")] = '\0';
    if (strcmp(name, "float") == 0)
        return COLLRUN_FLOAT64;
    if (strcmp(name, "int") == 0)
        return COLLRUN_INT64;
    if (strcmp(name, "bool_") == 0)
        return COLLRUN_BOOL;
    return args_find(args_dtypes, COLLRUN_DTYPE_COUNT, name);
}

int args_dtype(PyObject *value, enum collrun_dtype *out)
{
    PyObject *text = PyObject_Str(value);
    const char *utf8 = text ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
    int dtype = utf8 ? args_dtype_of_text(utf8) : -1;
    Py_XDECREF(text);
    if (dtype < 0) {
        if (!PyErr_Occurred())
            PyErr_Format(PyExc_ValueError,
                         "dtype: no element type %R; collrun has int8 to int64, "
                         "uint8 to uint64, float16, bfloat16, float32, float64 and bool",
                         value);
        return -1;
    }
    *out = (enum collrun_dtype)dtype;
    return 0;
}
