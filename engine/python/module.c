/* SPDX-License-Identifier: Apache-2.0
 *
 * The extension module collrun._collrun, on the stable ABI of Python 3.11. One build serves every
 * later Python. The package collrun re-exports its names.
 */
#include "extension.h"

#include <string.h>

PyMODINIT_FUNC PyInit__collrun(void);

static PyMethodDef module_group_methods[] = {
    {"group", (PyCFunction)(void (*)(void))group_get, METH_VARARGS | METH_KEYWORDS, group_get_doc},
    {"new_group", (PyCFunction)(void (*)(void))group_create, METH_VARARGS | METH_KEYWORDS,
     group_create_doc},
    {"_handlers", interrupt_set_handlers, METH_O, NULL},
    {"_signal_harmless", interrupt_set_harmless, METH_VARARGS, NULL},
    {"_serve_tracebacks", traceback_serve, METH_VARARGS, NULL},
    {0}};

static struct PyModuleDef module_def = {PyModuleDef_HEAD_INIT, .m_name = "collrun._collrun",
                                        .m_doc = "libcollrun for Python.", .m_size = -1,
                                        .m_methods = job_methods};

PyMODINIT_FUNC PyInit__collrun(void)
{
    PyObject *module = PyModule_Create(&module_def);
    if (!module)
        return NULL;
    if (PyModule_AddFunctions(module, module_group_methods) || array_init(module) ||
        request_init(module) || group_init(module) ||
        PyModule_AddIntConstant(module, "ANY_TAG", -1) ||
        PyModule_AddStringConstant(module, "__version__", collrun_version())) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
