/* SPDX-License-Identifier: Apache-2.0
 *
 * The extension _collrun_tap, on Python's stable ABI: its functions are those of tap.h.
 */
#include "taps/torch/tap.h"

#include "base/c10d_functions.h"
#include "base/mpi_names.h"

#include <Python.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static PyObject *module_open(PyObject *self, PyObject *args)
{
    const char *library;
    unsigned rank;
    int is_job;
    (void)self;
    if (!PyArg_ParseTuple(args, "sIp", &library, &rank, &is_job))
        return NULL;
    return PyBool_FromLong(tap_open(library, rank, is_job != 0) == RECORD_UNOBSERVED_NONE);
}

static PyObject *module_group(PyObject *self, PyObject *args)
{
    const char *name, *scope;
    PyObject *list;
    unsigned rank, group = 0;
    (void)self;
    if (!PyArg_ParseTuple(args, "ssO!I", &name, &scope, &PyTuple_Type, &list, &rank))
        return NULL;
    const Py_ssize_t n = PyTuple_Size(list);
    uint32_t *world = calloc(n > 0 ? (size_t)n : 1, sizeof *world);
    for (Py_ssize_t i = 0; world && i < n; i++)
        world[i] = (uint32_t)PyLong_AsUnsignedLong(PyTuple_GetItem(list, i));
    if (world && n > 0 && !PyErr_Occurred())
        group = tap_group_add(name, scope, world, (uint32_t)n, rank);
    free(world);
    return PyErr_Occurred() ? NULL : PyLong_FromUnsignedLong(group);
}

static PyObject *module_close(PyObject *self, PyObject *args)
{
    unsigned group;
    (void)self;
    if (!PyArg_ParseTuple(args, "I", &group))
        return NULL;
    tap_group_remove(group);
    Py_RETURN_NONE;
}

/* begin(group, function, type, op, peer, tag, count, shown, site, sync) */
static PyObject *module_begin(PyObject *self, PyObject *args)
{
    struct tap_operation op;
    unsigned group, sync;
    unsigned long long count, shown, site;
    (void)self;
    if (!PyArg_ParseTuple(args, "IIIIiIKKKI", &group, &op.function, &op.type, &op.op, &op.peer,
                          &op.tag, &count, &shown, &site, &sync))
        return NULL;
    op.count = count;
    op.shown = shown;
    op.site = site;
    op.sync = sync != 0;
    return PyLong_FromUnsignedLong(tap_begin(group, &op));
}

static PyObject *module_issued(PyObject *self, PyObject *args)
{
    unsigned request, failed;
    (void)self;
    if (!PyArg_ParseTuple(args, "II", &request, &failed))
        return NULL;
    tap_issued(request, failed != 0);
    Py_RETURN_NONE;
}

static PyObject *module_wait_begin(PyObject *self, PyObject *args)
{
    unsigned request;
    unsigned long long timeout_ns;
    (void)self;
    if (!PyArg_ParseTuple(args, "IK", &request, &timeout_ns))
        return NULL;
    return PyBool_FromLong(tap_wait_begin(request, timeout_ns));
}

static PyObject *module_wait_end(PyObject *self, PyObject *args)
{
    unsigned request, failed;
    const char *peer_failed;
    int source;
    (void)self;
    if (!PyArg_ParseTuple(args, "IIsi", &request, &failed, &peer_failed, &source))
        return NULL;
    tap_wait_end(request, failed != 0, peer_failed, source);
    Py_RETURN_NONE;
}

static PyObject *module_drop(PyObject *self, PyObject *args)
{
    unsigned request;
    (void)self;
    if (!PyArg_ParseTuple(args, "I", &request))
        return NULL;
    tap_drop(request);
    Py_RETURN_NONE;
}

static PyObject *module_share(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    tap_share();
    Py_RETURN_NONE;
}

static PyObject *module_serve_stacks(PyObject *self, PyObject *args)
{
    int signal, fd;
    (void)self;
    if (!PyArg_ParseTuple(args, "ii", &signal, &fd))
        return NULL;
    errno = tap_serve_stacks(signal, fd);
    if (errno)
        return PyErr_SetFromErrno(PyExc_OSError);
    Py_RETURN_NONE;
}

static PyObject *module_harmless(PyObject *self, PyObject *args)
{
    int signal;
    (void)self;
    if (!PyArg_ParseTuple(args, "i", &signal))
        return NULL;
    tap_signal_is_harmless(signal);
    Py_RETURN_NONE;
}

static PyObject *module_inside(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return PyBool_FromLong(tap_is_inside());
}

static PyObject *module_file(PyObject *self, PyObject *args)
{
    const char *path;
    (void)self;
    if (!PyArg_ParseTuple(args, "s", &path))
        return NULL;
    return PyLong_FromUnsignedLongLong(tap_file(path));
}

/* exception(type, text, file, line, thread) */
static PyObject *module_exception(PyObject *self, PyObject *args)
{
    struct record_exception e = {0};
    const char *type, *text, *file, *thread;
    (void)self;
    if (!PyArg_ParseTuple(args, "sssIs", &type, &text, &file, &e.line, &thread))
        return NULL;
    snprintf(e.type, sizeof e.type, "%s", type);
    snprintf(e.text, sizeof e.text, "%s", text);
    snprintf(e.file, sizeof e.file, "%s", file);
    snprintf(e.thread, sizeof e.thread, "%s", thread);
    tap_exception(&e);
    Py_RETURN_NONE;
}

/* The number of an operation, a type or an operator; 0: it is not known. */
static PyObject *module_number(PyObject *self, PyObject *args)
{
    const char *what, *name;
    (void)self;
    if (!PyArg_ParseTuple(args, "ss", &what, &name))
        return NULL;
    return PyLong_FromUnsignedLong(*what == 'f'   ? c10d_function_find(name)
                                   : *what == 't' ? mpi_type_find(name)
                                                  : mpi_op_find(name));
}

static PyMethodDef module_methods[] = {{"open", module_open, METH_VARARGS, NULL},
                                       {"group", module_group, METH_VARARGS, NULL},
                                       {"close", module_close, METH_VARARGS, NULL},
                                       {"begin", module_begin, METH_VARARGS, NULL},
                                       {"issued", module_issued, METH_VARARGS, NULL},
                                       {"wait_begin", module_wait_begin, METH_VARARGS, NULL},
                                       {"wait_end", module_wait_end, METH_VARARGS, NULL},
                                       {"drop", module_drop, METH_VARARGS, NULL},
                                       {"share", module_share, METH_NOARGS, NULL},
                                       {"serve_stacks", module_serve_stacks, METH_VARARGS, NULL},
                                       {"harmless", module_harmless, METH_VARARGS, NULL},
                                       {"inside", module_inside, METH_NOARGS, NULL},
                                       {"file", module_file, METH_VARARGS, NULL},
                                       {"exception", module_exception, METH_VARARGS, NULL},
                                       {"number", module_number, METH_VARARGS, NULL},
                                       {NULL, NULL, 0, NULL}};

static struct PyModuleDef module_def = {PyModuleDef_HEAD_INIT, .m_name = "_collrun_tap",
                                        .m_size = -1, .m_methods = module_methods};

PyMODINIT_FUNC PyInit__collrun_tap(void);
PyMODINIT_FUNC PyInit__collrun_tap(void)
{
    return PyModule_Create(&module_def);
}
