/* SPDX-License-Identifier: Apache-2.0
 *
 * collrun.Group: this rank's membership in one group. calls.c has the operations.
 */
#ifndef PYTHON_GROUP_H
#define PYTHON_GROUP_H

#include <Python.h>
#include <collrun/collrun.h>
#include <stdbool.h>

struct group {
    PyObject_HEAD struct collrun_group *handle; /* NULL: destroyed */
    int rank, size;
    unsigned arrays;              /* that are alive, or are being made */
    struct array_memory *unfreed; /* array.c */
    bool at_run_time;             /* made at run time: destroy() is allowed */
    PyObject *name;               /* owned */
};

/* Creates the type; adds it to the module. */
int group_init(PyObject *module);

/* Functions of the module. */
PyObject *group_get(PyObject *module, PyObject *args, PyObject *kwargs);    /* group(name) */
PyObject *group_create(PyObject *module, PyObject *args, PyObject *kwargs); /* new_group(...) */
extern const char group_get_doc[], group_create_doc[];

#endif
