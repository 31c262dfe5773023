/* SPDX-License-Identifier: Apache-2.0 */
#include "extension.h"

#include <string.h>

static const struct collrun_ctx *errors_ctx;

void errors_init(const struct collrun_ctx *ctx)
{
    errors_ctx = ctx;
}

/* The world ranks that have failed, as a tuple. */
static PyObject *errors_culprits(void)
{
    int ranks[64];
    int n = errors_ctx ? collrun_failed(errors_ctx, ranks, 64) : 0;
    n = n < 64 ? n : 64;
    PyObject *tuple = PyTuple_New(n);
    for (int i = 0; tuple && i < n; i++)
        PyTuple_SetItem(tuple, i, PyLong_FromLong(ranks[i]));
    return tuple;
}

/* _errors.make(status, text, culprits). A long text may be cut within a character. */
static PyObject *errors_make(int status, const char *text)
{
    PyObject *module = PyImport_ImportModule("collrun._errors");
    PyObject *culprits = module ? errors_culprits() : NULL;
    PyObject *words =
        culprits ? PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace") : NULL;
    PyObject *error =
        words ? PyObject_CallMethod(module, "make", "iOO", status, words, culprits) : NULL;
    Py_XDECREF(words);
    Py_XDECREF(culprits);
    Py_XDECREF(module);
    return error;
}

int errors_set_text(int status, const char *text)
{
    if (PyErr_CheckSignals())
        return -1;
    PyObject *error = errors_make(status, text);
    if (error)
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
    Py_XDECREF(error);
    return -1;
}

int errors_set(int status)
{
    return errors_set_text(status, collrun_error());
}
