/* SPDX-License-Identifier: Apache-2.0 */
#include "array.h"

#include "args.h"
#include "dlpack.h"
#include "errors.h"
#include "job.h"

#include <stdlib.h>
#include <string.h>

static PyTypeObject *array_type;

bool array_is(PyObject *object)
{
    return Py_TYPE(object) == array_type;
}

/* ---- memory ---- */

/* Memory of an array that is gone, which is freed later: another thread was in a call of the group.
 */
struct array_memory {
    void *data;
    struct array_memory *next;
};

/* Both wait while an operation of the group is executed in the background, which may need another
 * thread of the program: without the interpreter's lock. */

static void *array_alloc(struct collrun_group *g, size_t len)
{
    void *data;
    int rc;
    Py_BEGIN_ALLOW_THREADS rc = collrun_alloc(g, len, &data);
    Py_END_ALLOW_THREADS if (!rc) return data;
    errors_set(rc);
    return NULL;
}

static void array_free(struct group *g, void *data)
{
    struct collrun_group *handle = g->handle;
    struct array_memory *m;
    int rc;
    if (!handle || job_is_over())
        return;
    Py_BEGIN_ALLOW_THREADS rc = collrun_free(handle, data);
    Py_END_ALLOW_THREADS if (rc && (m = malloc(sizeof *m)))
    {
        *m = (struct array_memory){data, g->unfreed};
        g->unfreed = m;
    }
}

static void array_free_rest(struct group *g)
{
    struct array_memory *m, *rest = g->unfreed;
    g->unfreed = NULL;
    while ((m = rest)) {
        rest = m->next;
        array_free(g, m->data);
        free(m);
    }
}

void array_forget(struct group *g)
{
    struct array_memory *m;
    while ((m = g->unfreed)) {
        g->unfreed = m->next;
        free(m);
    }
}

/* ---- life ---- */

static int array_read_shape(struct array *a, PyObject *shape)
{
    Py_ssize_t ndim = PyTuple_Size(shape);
    if (ndim > ARRAY_MAX_DIM) {
        PyErr_Format(PyExc_ValueError, "shape: has %zd axes; %d are possible", ndim, ARRAY_MAX_DIM);
        return -1;
    }
    a->ndim = (int)ndim;
    a->len = collrun_dtype_size(a->dtype);
    for (int i = 0; i < a->ndim; i++) {
        Py_ssize_t n = PyNumber_AsSsize_t(PyTuple_GetItem(shape, i), PyExc_OverflowError);
        if (n == -1 && PyErr_Occurred())
            return -1;
        if (n < 0 || __builtin_mul_overflow(a->len, (size_t)n, &a->len)) {
            PyErr_SetString(PyExc_ValueError, "shape: an axis is negative, or the array too large");
            return -1;
        }
        a->shape[i] = a->view_shape[i] = n;
    }
    Py_ssize_t step = (Py_ssize_t)collrun_dtype_size(a->dtype);
    for (int i = a->ndim - 1; i >= 0; i--) {
        a->view_strides[i] = step;
        step *= a->view_shape[i];
    }
    return 0;
}

/* A group that works on devices alone gives memory of its first device. */
static struct dlpack_device array_device(const struct collrun_group *g, const void *data)
{
    int index;
    const char *memory = collrun_memory_of(g, data, &index);
    if (strcmp(memory, "host") == 0)
        return (struct dlpack_device){DLPACK_CPU, 0};
    int type = strcmp(memory, "cuda") == 0   ? DLPACK_CUDA
               : strcmp(memory, "rocm") == 0 ? DLPACK_ROCM
                                             : DLPACK_EXTENSION;
    return (struct dlpack_device){type, collrun_device(g, index)};
}

static void array_count(struct group *g, int n)
{
    g->arrays += (unsigned)n;
    job_count_arrays(n);
}

PyObject *array_new(struct group *g, PyObject *shape, enum collrun_dtype dtype)
{
    struct array *a = PyObject_New(struct array, array_type);
    if (!a)
        return NULL;
    a->group = (struct group *)Py_NewRef((PyObject *)g);
    a->data = NULL;
    a->dtype = dtype;
    if (array_read_shape(a, shape)) {
        Py_DECREF((PyObject *)a);
        return NULL;
    }
    array_count(g, 1); /* so the group is not destroyed meanwhile */
    array_free_rest(g);
    a->data = array_alloc(g->handle, a->len ? a->len : 1);
    if (!a->data) {
        array_count(g, -1);
        Py_DECREF((PyObject *)a);
        return NULL;
    }
    a->device = array_device(g->handle, a->data);
    return (PyObject *)a;
}

static void array_dealloc(PyObject *self)
{
    struct array *a = (struct array *)self;
    PyTypeObject *type = Py_TYPE(self);
    if (a->data) {
        array_free_rest(a->group);
        array_free(a->group, a->data);
        array_count(a->group, -1);
    }
    Py_DECREF((PyObject *)a->group);
    PyObject_Free(self);
    Py_DECREF((PyObject *)type);
}

/* ---- the buffer protocol ---- */

static const char *array_format(enum collrun_dtype dtype)
{
    static const char *const formats[COLLRUN_DTYPE_COUNT] = {
        [COLLRUN_INT8] = "b",    [COLLRUN_UINT8] = "B",   [COLLRUN_INT16] = "h",
        [COLLRUN_UINT16] = "H",  [COLLRUN_INT32] = "i",   [COLLRUN_UINT32] = "I",
        [COLLRUN_INT64] = "q",   [COLLRUN_UINT64] = "Q",  [COLLRUN_FLOAT16] = "e",
        [COLLRUN_FLOAT32] = "f", [COLLRUN_FLOAT64] = "d", [COLLRUN_BOOL] = "?"};
    return formats[dtype];
}

static int array_getbuffer(PyObject *self, Py_buffer *view, int flags)
{
    struct array *a = (struct array *)self;
    view->obj = NULL;
    if (a->device.type != DLPACK_CPU) {
        PyErr_SetString(PyExc_BufferError, "the array is in memory of a device; use DLPack");
        return -1;
    }
    const char *format = array_format(a->dtype);
    if (!format) {
        PyErr_SetString(PyExc_BufferError, "bfloat16 has no format of the buffer protocol; use "
                                           "DLPack, such as torch.from_dlpack()");
        return -1;
    }
    view->buf = a->data;
    view->obj = Py_NewRef(self);
    view->len = (Py_ssize_t)a->len;
    view->itemsize = (Py_ssize_t)collrun_dtype_size(a->dtype);
    view->readonly = 0;
    view->ndim = a->ndim;
    view->format = flags & PyBUF_FORMAT ? (char *)format : NULL;
    view->shape = flags & PyBUF_ND ? a->view_shape : NULL;
    view->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? a->view_strides : NULL;
    view->suboffsets = NULL;
    view->internal = NULL;
    return 0;
}

/* ---- DLPack ---- */

static struct dlpack_dtype array_dlpack_dtype(enum collrun_dtype dtype)
{
    uint8_t bits = (uint8_t)(8 * collrun_dtype_size(dtype));
    uint8_t code = DLPACK_UINT;
    switch (dtype) {
    case COLLRUN_INT8:
    case COLLRUN_INT16:
    case COLLRUN_INT32:
    case COLLRUN_INT64:
        code = DLPACK_INT;
        break;
    case COLLRUN_FLOAT16:
    case COLLRUN_FLOAT32:
    case COLLRUN_FLOAT64:
        code = DLPACK_FLOAT;
        break;
    case COLLRUN_BFLOAT16:
        code = DLPACK_BFLOAT;
        break;
    case COLLRUN_BOOL:
        code = DLPACK_BOOL;
        break;
    default:
        break;
    }
    return (struct dlpack_dtype){code, bits, 1};
}

static struct dlpack_tensor array_tensor(struct array *a)
{
    return (struct dlpack_tensor){.data = a->data,
                                  .device = a->device,
                                  .ndim = a->ndim,
                                  .dtype = array_dlpack_dtype(a->dtype),
                                  .shape = a->shape};
}

/* The consumer may drop its tensor in any thread. */
static void array_unref(void *array)
{
    if (!Py_IsInitialized())
        return;
    PyGILState_STATE state = PyGILState_Ensure();
    Py_DECREF((PyObject *)array);
    PyGILState_Release(state);
}

static void array_delete(struct dlpack_managed *m)
{
    array_unref(m->context);
    free(m);
}

static void array_delete_versioned(struct dlpack_versioned *v)
{
    array_unref(v->context);
    free(v);
}

/* Of a capsule that no consumer has taken. */
static void array_capsule_free(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, DLPACK_NAME))
        array_delete(PyCapsule_GetPointer(capsule, DLPACK_NAME));
    else if (PyCapsule_IsValid(capsule, DLPACK_NAME_VERSIONED))
        array_delete_versioned(PyCapsule_GetPointer(capsule, DLPACK_NAME_VERSIONED));
}

static PyObject *array_capsule(struct array *a)
{
    struct dlpack_managed *m = calloc(1, sizeof *m);
    PyObject *capsule = m ? PyCapsule_New(m, DLPACK_NAME, array_capsule_free) : PyErr_NoMemory();
    if (!capsule) {
        free(m);
        return NULL;
    }
    m->tensor = array_tensor(a);
    m->context = Py_NewRef((PyObject *)a);
    m->deleter = array_delete;
    return capsule;
}

static PyObject *array_capsule_versioned(struct array *a)
{
    struct dlpack_versioned *v = calloc(1, sizeof *v);
    PyObject *capsule =
        v ? PyCapsule_New(v, DLPACK_NAME_VERSIONED, array_capsule_free) : PyErr_NoMemory();
    if (!capsule) {
        free(v);
        return NULL;
    }
    v->major = DLPACK_MAJOR;
    v->tensor = array_tensor(a);
    v->context = Py_NewRef((PyObject *)a);
    v->deleter = array_delete_versioned;
    return capsule;
}

/* What the consumer asks for, against what there is. */
static int array_check_request(const struct array *a, PyObject *device, PyObject *copy)
{
    int type = 0, id = 0;
    if (copy == Py_True) {
        PyErr_SetString(PyExc_BufferError,
                        "copy=True is not supported: the array exports its memory");
        return -1;
    }
    if (device == Py_None)
        return 0;
    if (!PyArg_ParseTuple(device, "ii", &type, &id))
        return -1;
    if (type != a->device.type || id != a->device.id) {
        PyErr_SetString(PyExc_BufferError, "the array is on another device than dl_device");
        return -1;
    }
    return 0;
}

PyDoc_STRVAR(array_dlpack_doc,
             "__dlpack__($self, /, *, stream=None, max_version=None, dl_device=None, copy=None)\n"
             "--\n\nA DLPack capsule of the memory, without a copy.");
static PyObject *array_dlpack(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"stream", "max_version", "dl_device", "copy", NULL};
    PyObject *stream = Py_None, *version = Py_None, *device = Py_None, *copy = Py_None;
    int major = 0, minor = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$OOOO:__dlpack__", names, &stream, &version,
                                     &device, &copy) ||
        array_check_request((struct array *)self, device, copy) ||
        (version != Py_None && !PyArg_ParseTuple(version, "ii", &major, &minor)))
        return NULL;
    return major >= DLPACK_MAJOR ? array_capsule_versioned((struct array *)self)
                                 : array_capsule((struct array *)self);
}

PyDoc_STRVAR(array_dlpack_device_doc, "__dlpack_device__($self, /)\n--\n\n"
                                      "The device's type and number, as DLPack counts them.");
static PyObject *array_dlpack_device(PyObject *self, PyObject *unused)
{
    (void)unused;
    const struct array *a = (struct array *)self;
    return Py_BuildValue("(ii)", (int)a->device.type, (int)a->device.id);
}

/* ---- properties ---- */

static PyObject *array_shape(PyObject *self, void *unused)
{
    (void)unused;
    const struct array *a = (struct array *)self;
    PyObject *shape = PyTuple_New(a->ndim);
    for (int i = 0; shape && i < a->ndim; i++)
        PyTuple_SetItem(shape, i, PyLong_FromSsize_t(a->view_shape[i]));
    return shape;
}

static PyObject *array_dtype(PyObject *self, void *unused)
{
    (void)unused;
    return PyUnicode_FromString(args_dtype_name(((struct array *)self)->dtype));
}

static PyObject *array_nbytes(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromSize_t(((struct array *)self)->len);
}

static PyObject *array_repr(PyObject *self)
{
    PyObject *shape = array_shape(self, NULL);
    if (!shape)
        return NULL;
    const struct array *a = (struct array *)self;
    PyObject *text = PyUnicode_FromFormat("<collrun.Array %s %R of group %U>",
                                          args_dtype_name(a->dtype), shape, a->group->name);
    Py_DECREF(shape);
    return text;
}

static PyMethodDef array_methods[] = {
    {"__dlpack__", (PyCFunction)(void (*)(void))array_dlpack, METH_VARARGS | METH_KEYWORDS,
     array_dlpack_doc},
    {"__dlpack_device__", array_dlpack_device, METH_NOARGS, array_dlpack_device_doc},
    {0}};

static PyGetSetDef array_getset[] = {{"shape", array_shape, NULL, "The lengths of its axes.", NULL},
                                     {"dtype", array_dtype, NULL, "The element type's name.", NULL},
                                     {"nbytes", array_nbytes, NULL, "Its size in bytes.", NULL},
                                     {0}};

PyDoc_STRVAR(array_doc, "Memory that a group moves without a copy, of Group.empty(). "
                        "numpy.asarray(a), torch.from_dlpack(a) and memoryview(a) are views of it; "
                        "it is freed with the last of them.");
static PyType_Slot array_slots[] = {{Py_tp_doc, (void *)array_doc},
                                    {Py_tp_dealloc, array_dealloc},
                                    {Py_tp_repr, array_repr},
                                    {Py_tp_methods, array_methods},
                                    {Py_tp_getset, array_getset},
                                    {Py_bf_getbuffer, array_getbuffer},
                                    {0}};
static PyType_Spec array_spec = {.name = "collrun.Array",
                                 .basicsize = sizeof(struct array),
                                 .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION |
                                          Py_TPFLAGS_IMMUTABLETYPE,
                                 .slots = array_slots};

int array_init(PyObject *module)
{
    array_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &array_spec, NULL);
    return array_type ? PyModule_AddType(module, array_type) : -1;
}
