/* SPDX-License-Identifier: Apache-2.0 */
#include "extension.h"

#include "args.h"

#include <stdlib.h>
#include <string.h>

static PyTypeObject *group_type;

/* The groups that the program has asked for, by name: group("train") is group("train"). */
static PyObject *group_by_name;

/* ---- life ---- */

static PyObject *group_new(struct collrun_group *handle, bool at_run_time)
{
    struct group *g = PyObject_New(struct group, group_type);
    if (!g)
        return NULL;
    g->handle = handle;
    g->rank = collrun_rank(handle);
    g->size = collrun_size(handle);
    g->arrays = 0;
    g->unfreed = NULL;
    g->at_run_time = at_run_time;
    g->name = PyUnicode_DecodeUTF8(collrun_group_name(handle),
                                   (Py_ssize_t)strlen(collrun_group_name(handle)), "replace");
    if (g->name)
        return (PyObject *)g;
    Py_DECREF((PyObject *)g);
    return NULL;
}

static void group_dealloc(PyObject *self)
{
    struct group *g = (struct group *)self;
    PyTypeObject *type = Py_TYPE(self);
    array_forget(g);
    Py_XDECREF(g->name);
    PyObject_Free(self);
    Py_DECREF((PyObject *)type);
}

/* The object of a group, which may exist. */
static PyObject *group_object(struct collrun_group *handle, bool at_run_time)
{
    const char *name = collrun_group_name(handle);
    PyObject *known = PyDict_GetItemString(group_by_name, name);
    if (known && ((struct group *)known)->handle == handle)
        return Py_NewRef(known);
    PyObject *g = group_new(handle, at_run_time);
    if (g && PyDict_SetItemString(group_by_name, name, g)) {
        Py_DECREF(g);
        return NULL;
    }
    return g;
}

static int group_check(const struct group *g)
{
    return g->handle ? job_check()
                     : errors_set_text(COLLRUN_ERR_INVALID, "the group was destroyed");
}

/* ---- functions of the module ---- */

const char group_get_doc[] =
    "group(name=None)\n--\n\n"
    "The group of that name: one of job.yaml, or one made at run time by this process. Without a "
    "name: world, or if job.yaml has no group of that name, the first of its groups that this rank "
    "is in.";
PyObject *group_get(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"name", NULL};
    (void)module;
    const char *name = NULL;
    struct collrun_ctx *ctx;
    struct collrun_group *handle;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|z:group", names, &name) || !(ctx = job_get()))
        return NULL;
    if (!name)
        name = collrun_group_exists(ctx, "world") ? "world" : "";
    int rc = collrun_group_get(ctx, name, &handle);
    if (!rc)
        return group_object(handle, false);
    errors_set(rc);
    return NULL;
}

static int group_read_check(const char *text, enum collrun_check *out)
{
    static const char *const names[] = {"async", "strict", "off"};
    for (int i = 0; i < 3; i++) {
        if (strcmp(text, names[i]) == 0) {
            *out = (enum collrun_check)i;
            return 0;
        }
    }
    PyErr_Format(PyExc_ValueError, "check: is async, strict or off, not '%s'", text);
    return -1;
}

/* World ranks of a sequence; the caller frees *out. */
/* To the C API, 0 is the default. */
static int group_check_timeout(const PyObject *given, uint64_t ns)
{
    if (given == Py_None || ns)
        return 0;
    PyErr_SetString(PyExc_ValueError, "timeout: must be more than 0 seconds");
    return -1;
}

static int group_read_ranks(PyObject *ranks, int **out, int *n)
{
    Py_ssize_t len = PySequence_Size(ranks);
    if (len < 0)
        return -1;
    int *array = malloc(((size_t)len + 1) * sizeof *array);
    if (!array) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < len; i++) {
        PyObject *item = PySequence_GetItem(ranks, i);
        int rc = item ? args_int(item, "ranks", &array[i]) : -1;
        Py_XDECREF(item);
        if (rc) {
            free(array);
            return -1;
        }
    }
    *out = array;
    *n = (int)len;
    return 0;
}

const char group_create_doc[] =
    "new_group(ranks, name=None, backend=None, timeout=None, check='async')\n--\n\n"
    "Makes a group at run time. All its members call it with the same arguments; other ranks do "
    "not.\n\nranks: world ranks; their order is the order of group ranks. name: None: a unique "
    "one. "
    "backend: None: the best one. timeout: seconds of one operation; None: 10 minutes. check: "
    "async, strict or off.";
PyObject *group_create(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"ranks", "name", "backend", "timeout", "check", NULL};
    (void)module;
    struct collrun_group_options o = {.size = sizeof o};
    PyObject *ranks, *timeout = Py_None;
    const char *check = "async";
    int *array = NULL;
    struct collrun_ctx *ctx;
    struct collrun_group *handle;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|zzOs:new_group", names, &ranks, &o.name,
                                     &o.backend, &timeout, &check) ||
        args_seconds(timeout == Py_None ? NULL : timeout, "timeout", &o.timeout_ns) ||
        group_check_timeout(timeout, o.timeout_ns) || group_read_check(check, &o.check) ||
        !(ctx = job_get()) || group_read_ranks(ranks, &array, &o.nranks))
        return NULL;
    int rc;
    o.ranks = array;
    Py_BEGIN_ALLOW_THREADS rc = collrun_group_create(ctx, &o, &handle);
    Py_END_ALLOW_THREADS free(array);
    if (!rc)
        return group_object(handle, true);
    errors_set(rc);
    return NULL;
}

/* ---- methods ---- */

PyDoc_STRVAR(group_split_doc,
             "split($self, /, color, key=0, name=None)\n--\n\n"
             "Members with the same color form a group, ordered by key and then by rank; all "
             "members call it. A negative color: None is returned.");
static PyObject *group_split(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"color", "key", "name", NULL};
    struct group *g = (struct group *)self;
    struct collrun_group *handle = NULL;
    int color, key = 0, rc;
    const char *name = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "i|iz:split", names, &color, &key, &name) ||
        group_check(g))
        return NULL;
    Py_BEGIN_ALLOW_THREADS rc = collrun_group_split(g->handle, color, key, name, &handle);
    Py_END_ALLOW_THREADS if (rc)
    {
        errors_set(rc);
        return NULL;
    }
    return handle ? group_object(handle, true) : Py_NewRef(Py_None);
}

PyDoc_STRVAR(group_shrink_doc,
             "shrink($self, /, name=None)\n--\n\n"
             "The members that have not exited form a new group, in the order of their ranks; all "
             "of them call it. For jobs with on_failure: {action: continue}.");
static PyObject *group_shrink(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"name", NULL};
    struct group *g = (struct group *)self;
    struct collrun_group *handle = NULL;
    const char *name = NULL;
    int rc;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|z:shrink", names, &name) || group_check(g))
        return NULL;
    Py_BEGIN_ALLOW_THREADS rc = collrun_group_shrink(g->handle, name, &handle);
    Py_END_ALLOW_THREADS if (!rc) return group_object(handle, true);
    errors_set(rc);
    return NULL;
}

PyDoc_STRVAR(group_destroy_doc,
             "destroy($self, /)\n--\n\n"
             "Closes a group that was made at run time; does not wait for other ranks. BufferError "
             "while arrays of empty() are alive.");
static PyObject *group_destroy(PyObject *self, PyObject *unused)
{
    (void)unused;
    struct group *g = (struct group *)self;
    if (!g->handle)
        Py_RETURN_NONE;
    if (g->arrays > 0) {
        PyErr_Format(PyExc_BufferError,
                     "group %R cannot be destroyed: %u of its arrays are in use; drop them before",
                     g->name, g->arrays);
        return NULL;
    }
    struct collrun_group *handle = g->handle;
    int rc;
    Py_BEGIN_ALLOW_THREADS interrupt_sync();
    rc = collrun_group_destroy(handle);
    Py_END_ALLOW_THREADS if (rc)
    {
        errors_set(rc);
        return NULL;
    }
    g->handle = NULL;
    if (PyDict_GetItem(group_by_name, g->name) == self && PyDict_DelItem(group_by_name, g->name))
        return NULL;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(
    group_empty_doc,
    "empty($self, /, shape, dtype='float32')\n--\n\n"
    "New memory that the group moves without a copy, if its backend can: numpy's ndarray "
    "where numpy is installed, else an Array, which has elements, slices, len() and "
    "tolist(); of bfloat16 and of memory of a device also an Array, which torch.from_dlpack() "
    "views. Its contents are undefined.\n\n"
    "shape: an integer or a tuple. dtype: a name such as 'bfloat16', or one of numpy's or "
    "torch's.");
static PyObject *group_empty(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"shape", "dtype", NULL};
    struct group *g = (struct group *)self;
    PyObject *shape, *type = NULL;
    enum collrun_dtype dtype = COLLRUN_FLOAT32;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|O:empty", names, &shape, &type) ||
        (type && args_dtype(type, &dtype)) || group_check(g))
        return NULL;
    PyObject *tuple = PyIndex_Check(shape) ? PyTuple_Pack(1, shape) : PySequence_Tuple(shape);
    PyObject *array = tuple ? array_new(g, tuple, dtype) : NULL;
    Py_XDECREF(tuple);
    return array ? array_share(array) : NULL;
}

PyDoc_STRVAR(group_abort_doc,
             "abort($self, /, reason='the program has aborted it')\n--\n\n"
             "Fails the group on this rank: calls that wait and later ones raise AbortedError.");
static PyObject *group_abort(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"reason", NULL};
    struct group *g = (struct group *)self;
    const char *reason = "the program has aborted it";
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|s:abort", names, &reason) || group_check(g))
        return NULL;
    int rc = collrun_group_abort(g->handle, reason);
    if (rc) {
        errors_set(rc);
        return NULL;
    }
    Py_RETURN_NONE;
}

/* ---- properties ---- */

static PyObject *group_rank(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromLong(((struct group *)self)->rank);
}

static PyObject *group_size(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromLong(((struct group *)self)->size);
}

static PyObject *group_name(PyObject *self, void *unused)
{
    (void)unused;
    return Py_NewRef(((struct group *)self)->name);
}

static PyObject *group_backend(PyObject *self, void *unused)
{
    (void)unused;
    struct group *g = (struct group *)self;
    return group_check(g) ? NULL : PyUnicode_FromString(collrun_group_backend(g->handle));
}

static PyObject *group_timeout(PyObject *self, void *unused)
{
    (void)unused;
    struct group *g = (struct group *)self;
    return group_check(g) ? NULL
                          : PyFloat_FromDouble((double)collrun_group_timeout(g->handle) / 1e9);
}

static PyObject *group_ranks(PyObject *self, void *unused)
{
    (void)unused;
    struct group *g = (struct group *)self;
    if (group_check(g))
        return NULL;
    PyObject *ranks = PyTuple_New(g->size);
    for (int i = 0; ranks && i < g->size; i++)
        PyTuple_SetItem(ranks, i, PyLong_FromLong(collrun_world_rank_of(g->handle, i)));
    return ranks;
}

static PyObject *group_repr(PyObject *self)
{
    struct group *g = (struct group *)self;
    return PyUnicode_FromFormat("<collrun.Group %R: rank %d of %d%s>", g->name, g->rank, g->size,
                                g->handle ? "" : ", destroyed");
}

/* ---- the type ---- */

/* An unknown name may be that of another library's call: the error says what it is called here. */
static PyObject *group_getattro(PyObject *self, PyObject *name)
{
    PyObject *value = PyObject_GenericGetAttr(self, name), *module;
    if (value || !PyErr_ExceptionMatches(PyExc_AttributeError) || !PyUnicode_Check(name) ||
        PyUnicode_ReadChar(name, 0) == '_')
        return value;
    PyErr_Clear();
    module = PyImport_ImportModule("collrun._names");
    value = module ? PyObject_CallMethod(module, "refuse", "O", name) : NULL;
    Py_XDECREF(module);
    return value;
}

#define GROUP_METHOD(name)                                                                         \
    {                                                                                              \
#name, (PyCFunction)(void (*)(void))group_##name, METH_VARARGS | METH_KEYWORDS,            \
            group_##name##_doc                                                                     \
    }
static const PyMethodDef group_own_methods[] = {
    GROUP_METHOD(split),
    GROUP_METHOD(shrink),
    GROUP_METHOD(empty),
    GROUP_METHOD(abort),
    {"destroy", group_destroy, METH_NOARGS, group_destroy_doc}};

/* Those above, and the operations. */
static PyMethodDef group_methods[32];

static PyGetSetDef group_getset[] = {
    {"rank", group_rank, NULL, "This rank's rank in the group.", NULL},
    {"size", group_size, NULL, "The number of its members.", NULL},
    {"name", group_name, NULL, "Its name.", NULL},
    {"backend", group_backend, NULL, "Its backend: 'shm'.", NULL},
    {"ranks", group_ranks, NULL, "The world ranks of its members, in the order of ranks.", NULL},
    {"timeout", group_timeout, NULL, "The time-out of an operation, in seconds.", NULL},
    {0}};

PyDoc_STRVAR(group_doc,
             "One group of ranks. All members call the same collectives in the same order.\n\n"
             "Arrays are contiguous objects with the buffer protocol (numpy, array, bytearray) or "
             "DLPack (torch, cupy); nothing is copied. Blocks of several ranks lie along the first "
             "axis, in the order of ranks. n is the group's size.");
static PyType_Slot group_slots[] = {{Py_tp_doc, (void *)group_doc},
                                    {Py_tp_dealloc, group_dealloc},
                                    {Py_tp_getattro, group_getattro},
                                    {Py_tp_repr, group_repr},
                                    {Py_tp_methods, group_methods},
                                    {Py_tp_getset, group_getset},
                                    {0}};
static PyType_Spec group_spec = {.name = "collrun.Group",
                                 .basicsize = sizeof(struct group),
                                 .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION |
                                          Py_TPFLAGS_IMMUTABLETYPE,
                                 .slots = group_slots};

int group_init(PyObject *module)
{
    size_t n = 0;
    for (const PyMethodDef *m = calls_methods; m->ml_name; m++)
        group_methods[n++] = *m;
    memcpy(group_methods + n, group_own_methods, sizeof group_own_methods);
    if (!group_by_name && !(group_by_name = PyDict_New()))
        return -1;
    group_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &group_spec, NULL);
    return group_type ? PyModule_AddType(module, group_type) : -1;
}
