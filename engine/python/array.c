/* SPDX-License-Identifier: Apache-2.0 */
#include "extension.h"

#include "args.h"
#include "dlpack.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static PyTypeObject *array_type;

/* In the words of the module struct; NULL: bfloat16, which the buffer protocol does not have. */
static const char *array_format(enum collrun_dtype dtype)
{
    static const char *const formats[COLLRUN_DTYPE_COUNT] = {
        [COLLRUN_INT8] = "b",    [COLLRUN_UINT8] = "B",   [COLLRUN_INT16] = "h",
        [COLLRUN_UINT16] = "H",  [COLLRUN_INT32] = "i",   [COLLRUN_UINT32] = "I",
        [COLLRUN_INT64] = "q",   [COLLRUN_UINT64] = "Q",  [COLLRUN_FLOAT16] = "e",
        [COLLRUN_FLOAT32] = "f", [COLLRUN_FLOAT64] = "d", [COLLRUN_BOOL] = "?"};
    return formats[dtype];
}

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

/* _arrays.FUNCTION(...); `format` and the arguments as PyObject_CallMethod has them. */
static PyObject *array_call(const char *function, const char *format, ...)
{
    PyObject *module = PyImport_ImportModule("collrun._arrays");
    PyObject *callable = module ? PyObject_GetAttrString(module, function) : NULL;
    va_list list;
    va_start(list, format);
    PyObject *args = callable ? Py_VaBuildValue(format, list) : NULL;
    va_end(list);
    PyObject *result = args ? PyObject_Call(callable, args, NULL) : NULL;
    Py_XDECREF(args);
    Py_XDECREF(callable);
    Py_XDECREF(module);
    return result;
}

PyObject *array_share(PyObject *array)
{
    const struct array *a = (struct array *)array;
    if (a->device.type != DLPACK_CPU || !array_format(a->dtype))
        return array;
    PyObject *shared = array_call("share", "(N)", array);
    return shared;
}

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
    const Py_ssize_t size = (Py_ssize_t)collrun_dtype_size(a->dtype);
    int64_t step = 1;
    for (int i = a->ndim - 1; i >= 0; i--) {
        a->strides[i] = step;
        a->view_strides[i] = step * size;
        step *= a->shape[i];
    }
    return 0;
}

bool array_is_packed(const struct array *a)
{
    int64_t step = 1;
    bool packed = true;
    for (int i = a->ndim - 1; i >= 0; i--) {
        packed = packed && (a->shape[i] == 1 || a->strides[i] == step);
        step *= a->shape[i];
    }
    return packed || !step;
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
    a->whole = NULL;
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

/* For _arrays.py, which checks the arguments: offset and strides in elements. bits: as uint16. */
static PyObject *array_view(PyObject *self, PyObject *args)
{
    struct array *a = (struct array *)self;
    PyObject *shape, *strides;
    Py_ssize_t offset;
    int bits = 0;
    if (!PyArg_ParseTuple(args, "nO!O!|p:_view", &offset, &PyTuple_Type, &shape, &PyTuple_Type,
                          &strides, &bits))
        return NULL;
    struct array *v = PyObject_New(struct array, array_type);
    if (!v)
        return NULL;
    v->group = (struct group *)Py_NewRef((PyObject *)a->group);
    v->whole = (struct array *)Py_NewRef((PyObject *)(a->whole ? a->whole : a));
    v->dtype = bits ? COLLRUN_UINT16 : a->dtype;
    v->device = a->device;
    const Py_ssize_t size = (Py_ssize_t)collrun_dtype_size(v->dtype);
    v->data = (char *)a->data + offset * size;
    if (array_read_shape(v, shape)) {
        Py_DECREF((PyObject *)v);
        return NULL;
    }
    for (int i = 0; i < v->ndim; i++) {
        v->strides[i] = PyLong_AsSsize_t(PyTuple_GetItem(strides, i));
        v->view_strides[i] = v->strides[i] * size;
    }
    return (PyObject *)v;
}

static void array_dealloc(PyObject *self)
{
    struct array *a = (struct array *)self;
    PyTypeObject *type = Py_TYPE(self);
    if (a->whole) {
        Py_DECREF((PyObject *)a->whole);
    } else if (a->data) {
        array_free_rest(a->group);
        array_free(a->group, a->data);
        array_count(a->group, -1);
    }
    Py_DECREF((PyObject *)a->group);
    PyObject_Free(self);
    Py_DECREF((PyObject *)type);
}

/* ---- the buffer protocol ---- */

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
    if ((flags & PyBUF_STRIDES) != PyBUF_STRIDES && !array_is_packed(a)) {
        PyErr_SetString(PyExc_BufferError, "the view is not contiguous in C order");
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
                                  .shape = a->shape,
                                  .strides = a->whole ? a->strides : NULL};
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

/* Frees a capsule that no consumer has taken. */
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

/* In elements. */
static PyObject *array_strides(PyObject *self, void *unused)
{
    (void)unused;
    const struct array *a = (struct array *)self;
    PyObject *strides = PyTuple_New(a->ndim);
    for (int i = 0; strides && i < a->ndim; i++)
        PyTuple_SetItem(strides, i, PyLong_FromLongLong(a->strides[i]));
    return strides;
}

static PyObject *array_group(PyObject *self, void *unused)
{
    (void)unused;
    return Py_NewRef(((struct array *)self)->group->name);
}

static PyObject *array_repr(PyObject *self)
{
    return array_call("text", "(O)", self);
}

/* ---- elements ---- */

static Py_ssize_t array_length(PyObject *self)
{
    const struct array *a = (struct array *)self;
    if (a->ndim > 0)
        return a->view_shape[0];
    PyErr_SetString(PyExc_TypeError, "an array without axes has no len()");
    return -1;
}

static PyObject *array_subscript(PyObject *self, PyObject *key)
{
    return array_call("get", "(OO)", self, key);
}

static int array_assign(PyObject *self, PyObject *key, PyObject *value)
{
    if (!value) {
        PyErr_SetString(PyExc_TypeError, "elements of an array cannot be deleted");
        return -1;
    }
    PyObject *result = array_call("put", "(OOO)", self, key, value);
    Py_XDECREF(result);
    return result ? 0 : -1;
}

static PyObject *array_iter(PyObject *self)
{
    return array_call("iterate", "(O)", self);
}

PyDoc_STRVAR(array_tolist_doc, "tolist($self, /)\n--\n\nIts elements, in nested lists.");
static PyObject *array_tolist(PyObject *self, PyObject *unused)
{
    (void)unused;
    return array_call("to_list", "(O)", self);
}

static PyMethodDef array_methods[] = {
    {"__dlpack__", (PyCFunction)(void (*)(void))array_dlpack, METH_VARARGS | METH_KEYWORDS,
     array_dlpack_doc},
    {"__dlpack_device__", array_dlpack_device, METH_NOARGS, array_dlpack_device_doc},
    {"tolist", array_tolist, METH_NOARGS, array_tolist_doc},
    {"_view", array_view, METH_VARARGS, NULL},
    {0}};

static PyGetSetDef array_getset[] = {{"shape", array_shape, NULL, "The lengths of its axes.", NULL},
                                     {"dtype", array_dtype, NULL, "The element type's name.", NULL},
                                     {"nbytes", array_nbytes, NULL, "Its size in bytes.", NULL},
                                     {"_strides", array_strides, NULL, NULL, NULL},
                                     {"_group", array_group, NULL, NULL, NULL},
                                     {0}};

PyDoc_STRVAR(array_doc,
             "Memory that a group moves without a copy, of Group.empty(). "
             "numpy.asarray(a), torch.from_dlpack(a) and memoryview(a) are views of it; "
             "it is freed with the last of them. a[i], a[i, j] and a[i:k] are elements or "
             "views, and can be assigned numbers, arrays and lists.");
static PyType_Slot array_slots[] = {{Py_tp_doc, (void *)array_doc},
                                    {Py_tp_dealloc, array_dealloc},
                                    {Py_tp_repr, array_repr},
                                    {Py_tp_methods, array_methods},
                                    {Py_tp_getset, array_getset},
                                    {Py_bf_getbuffer, array_getbuffer},
                                    {Py_tp_iter, array_iter},
                                    {Py_mp_length, array_length},
                                    {Py_mp_subscript, array_subscript},
                                    {Py_mp_ass_subscript, array_assign},
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
