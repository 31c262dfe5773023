/* SPDX-License-Identifier: Apache-2.0 */
#include "buffer.h"

#include "args.h"
#include "dlpack.h"
#include "extension.h"

#include <string.h>

/* ---- the buffer protocol ---- */

static int buffer_refuse(PyObject *kind, const char *name, const char *why)
{
    PyErr_Format(kind, "%s: %s", name, why);
    return -1;
}

/* The error that names the element type of `object`; `format`: of its buffer, or "". Returns -1. */
static int buffer_refuse_type(PyObject *object, const char *name, const char *format)
{
    PyObject *module = PyImport_ImportModule("collrun._arrays");
    PyObject *result =
        module ? PyObject_CallMethod(module, "refuse_type", "sOs", name, object, format) : NULL;
    Py_XDECREF(result);
    Py_XDECREF(module);
    return -1;
}

/* The integer type of `size` bytes; -1: none. */
static int buffer_integer(Py_ssize_t size, bool is_signed)
{
    switch (size) {
    case 1:
        return is_signed ? COLLRUN_INT8 : COLLRUN_UINT8;
    case 2:
        return is_signed ? COLLRUN_INT16 : COLLRUN_UINT16;
    case 4:
        return is_signed ? COLLRUN_INT32 : COLLRUN_UINT32;
    case 8:
        return is_signed ? COLLRUN_INT64 : COLLRUN_UINT64;
    default:
        return -1;
    }
}

/* A format of the struct module, with one element. NULL: bytes. -1: no type of collrun. */
static int buffer_dtype_of(const char *format, Py_ssize_t size)
{
    if (!format)
        return COLLRUN_UINT8;
    if (*format == '@' || *format == '=' ||
        *format == (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? '<' : '>') || *format == '|')
        format++;
    if (!format[0] || format[1])
        return -1;
    switch (*format) {
    case 'f':
        return COLLRUN_FLOAT32;
    case 'd':
        return COLLRUN_FLOAT64;
    case 'e':
        return COLLRUN_FLOAT16;
    case '?':
        return COLLRUN_BOOL;
    case 'b':
    case 'h':
    case 'i':
    case 'l':
    case 'q':
    case 'n':
        return buffer_integer(size, true);
    case 'B':
    case 'H':
    case 'I':
    case 'L':
    case 'Q':
    case 'N':
    case 'c':
        return buffer_integer(size, false);
    default:
        return -1;
    }
}

static int buffer_check_view(struct buffer *b, PyObject *object, bool writable, const char *name)
{
    Py_buffer *v = &b->view;
    int dtype = buffer_dtype_of(v->format, v->itemsize);
    if (dtype < 0)
        return buffer_refuse_type(object, name, v->format);
    if (!PyBuffer_IsContiguous(v, 'C'))
        return buffer_refuse(PyExc_ValueError, name,
                             "is not contiguous in C order; pass a copy of it");
    if (writable && v->readonly)
        return buffer_refuse(PyExc_ValueError, name, "is read-only, and receives the result");
    b->dtype = (enum collrun_dtype)dtype;
    b->data = v->buf;
    b->count = (size_t)(v->len / v->itemsize);
    b->ndim = v->ndim;
    b->rows = v->ndim > 0 ? (size_t)(v->shape ? v->shape[0] : v->len / v->itemsize) : 1;
    return 0;
}

/* The buffer of a numpy.ma array has the masked elements too. A type that has passed is not asked
 * again at the next call. */
static bool buffer_is_masked(PyObject *object)
{
    static const PyTypeObject *plain;
    const PyTypeObject *type = Py_TYPE(object);
    if (type == plain)
        return false;
    if (PyObject_HasAttrString((PyObject *)type, "mask") &&
        PyObject_HasAttrString((PyObject *)type, "filled"))
        return true;
    plain = type;
    return false;
}

static int buffer_get_view(struct buffer *b, PyObject *object, bool writable, const char *name)
{
    if (buffer_is_masked(object))
        return buffer_refuse(PyExc_TypeError, name,
                             "is a masked array, and operations do not know of masks; pass its "
                             "data, or what filled(value) gives");
    if (PyObject_GetBuffer(object, &b->view, PyBUF_RECORDS_RO))
        return -1;
    if (buffer_check_view(b, object, writable, name)) {
        PyBuffer_Release(&b->view);
        return -1;
    }
    b->source = BUFFER_VIEW;
    return 0;
}

/* numpy does not export the bfloat16 of the package ml_dtypes: its bits are taken as uint16. Nor
 * does it export other types, such as times: the error names them. */
static int buffer_get_bfloat16(struct buffer *b, PyObject *object, bool writable, const char *name)
{
    PyObject *type = NULL, *value = NULL, *trace = NULL;
    PyErr_Fetch(&type, &value, &trace);
    PyObject *dtype = PyObject_GetAttrString(object, "dtype");
    PyObject *text = dtype ? PyObject_Str(dtype) : NULL;
    bool is_bfloat16 = text && PyUnicode_CompareWithASCIIString(text, "bfloat16") == 0;
    PyObject *bits = is_bfloat16 ? PyObject_CallMethod(object, "view", "s", "uint16") : NULL;
    enum collrun_dtype known;
    const bool is_known = !dtype || args_dtype(dtype, &known) == 0;
    PyErr_Clear();
    Py_XDECREF(dtype);
    Py_XDECREF(text);
    if (!bits && is_known) {
        PyErr_Restore(type, value, trace);
        return -1;
    }
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    if (!bits)
        return buffer_refuse_type(object, name, "");
    int rc = buffer_get_view(b, bits, writable, name);
    Py_DECREF(bits);
    b->dtype = COLLRUN_BFLOAT16;
    return rc;
}

/* ---- DLPack ---- */

static const struct dlpack_tensor *buffer_tensor(const struct buffer *b)
{
    if (b->source == BUFFER_DLPACK)
        return &((struct dlpack_managed *)PyCapsule_GetPointer(b->owner, DLPACK_NAME_USED))->tensor;
    return &((struct dlpack_versioned *)PyCapsule_GetPointer(b->owner, DLPACK_NAME_VERSIONED_USED))
                ->tensor;
}

static int buffer_dlpack_dtype(struct dlpack_dtype t)
{
    if (t.elements != 1)
        return -1;
    switch (t.code) {
    case DLPACK_INT:
        return buffer_integer(t.bits / 8, true);
    case DLPACK_UINT:
        return buffer_integer(t.bits / 8, false);
    case DLPACK_BFLOAT:
        return t.bits == 16 ? COLLRUN_BFLOAT16 : -1;
    case DLPACK_BOOL:
        return t.bits == 8 ? COLLRUN_BOOL : -1;
    case DLPACK_FLOAT:
        return t.bits == 16   ? COLLRUN_FLOAT16
               : t.bits == 32 ? COLLRUN_FLOAT32
               : t.bits == 64 ? COLLRUN_FLOAT64
                              : -1;
    default:
        return -1;
    }
}

static bool buffer_dlpack_is_packed(const struct dlpack_tensor *t)
{
    int64_t step = 1;
    bool packed = true, empty = false;
    for (int32_t i = t->ndim - 1; i >= 0; i--) {
        if (t->strides && t->shape[i] != 1 && t->strides[i] != step)
            packed = false;
        empty |= t->shape[i] == 0;
        step *= t->shape[i];
    }
    return packed || empty;
}

/* The engine takes memory of a kind that it does not know for memory of the host. */
static int buffer_check_device(const struct buffer *b, const struct collrun_group *g,
                               const char *name)
{
    enum dlpack_device_type type = (enum dlpack_device_type)buffer_tensor(b)->device.type;
    if (type == DLPACK_CPU || type == DLPACK_CUDA_HOST || type == DLPACK_ROCM_HOST)
        return 0;
    if (!g || !b->count || strcmp(collrun_memory_of(g, b->data, NULL), "host") != 0)
        return 0;
    return buffer_refuse(PyExc_ValueError, name,
                         "is in memory of a device, and neither this rank nor the group has "
                         "devices of that kind (gpus_per_process or devices of job.yaml gives "
                         "them to the rank)");
}

static int buffer_check_tensor(struct buffer *b, PyObject *object, bool writable, const char *name)
{
    const struct dlpack_tensor *t = buffer_tensor(b);
    int dtype = buffer_dlpack_dtype(t->dtype);
    if (dtype < 0)
        return buffer_refuse_type(object, name, "");
    if (!buffer_dlpack_is_packed(t))
        return buffer_refuse(PyExc_ValueError, name,
                             "is not contiguous in C order; pass a copy of it");
    if (writable && b->source == BUFFER_DLPACK_VERSIONED) {
        const struct dlpack_versioned *v =
            PyCapsule_GetPointer(b->owner, DLPACK_NAME_VERSIONED_USED);
        if (v->flags & DLPACK_READ_ONLY)
            return buffer_refuse(PyExc_ValueError, name, "is read-only, and receives the result");
    }
    b->dtype = (enum collrun_dtype)dtype;
    b->data = (char *)t->data + t->byte_offset;
    b->ndim = t->ndim;
    b->rows = t->ndim > 0 ? (size_t)t->shape[0] : 1;
    b->count = 1;
    for (int32_t i = 0; i < t->ndim; i++)
        b->count *= (size_t)t->shape[i];
    return 0;
}

static int buffer_take_capsule(struct buffer *b, PyObject *capsule, const char *name)
{
    if (PyCapsule_IsValid(capsule, DLPACK_NAME_VERSIONED)) {
        const struct dlpack_versioned *v = PyCapsule_GetPointer(capsule, DLPACK_NAME_VERSIONED);
        if (v->major != DLPACK_MAJOR)
            return buffer_refuse(PyExc_BufferError, name, "its DLPack version is not 1");
        b->source = BUFFER_DLPACK_VERSIONED;
        return PyCapsule_SetName(capsule, DLPACK_NAME_VERSIONED_USED);
    }
    if (!PyCapsule_IsValid(capsule, DLPACK_NAME))
        return buffer_refuse(PyExc_BufferError, name, "__dlpack__() gave no DLPack capsule");
    b->source = BUFFER_DLPACK;
    return PyCapsule_SetName(capsule, DLPACK_NAME_USED);
}

/* The type whose __dlpack__ last refused max_version, which libraries before DLPack 1.0 do. */
static const PyTypeObject *buffer_old_type;

/* The keywords of __dlpack__, or NULL. Of a rank without devices all memory that is not refused is
 * that of the host, which has no streams. */
static PyObject *buffer_keywords(PyObject *object, bool is_old)
{
    static PyObject *version, *dlpack_stream;
    if (!version && !(version = Py_BuildValue("{s:(ii)}", "max_version", 1, 0)))
        return NULL;
    bool has_devices = job_device_count(NULL) > 0;
    if (!has_devices && !is_old)
        return Py_NewRef(version);
    PyObject *keywords = is_old ? PyDict_New() : PyDict_Copy(version);
    if (!keywords || !has_devices)
        return keywords;
    if (!dlpack_stream) {
        PyObject *module = PyImport_ImportModule("collrun._arrays");
        dlpack_stream = module ? PyObject_GetAttrString(module, "dlpack_stream") : NULL;
        Py_XDECREF(module);
    }
    PyObject *stream =
        dlpack_stream ? PyObject_CallFunctionObjArgs(dlpack_stream, object, NULL) : NULL;
    int rc = !stream             ? -1
             : stream == Py_None ? 0
                                 : PyDict_SetItemString(keywords, "stream", stream);
    Py_XDECREF(stream);
    if (rc == 0)
        return keywords;
    Py_DECREF(keywords);
    return NULL;
}

static PyObject *buffer_call_dlpack(PyObject *method, PyObject *object, bool is_old)
{
    static PyObject *empty;
    PyObject *keywords = NULL, *capsule = NULL;
    if (empty || (empty = PyTuple_New(0)))
        keywords = buffer_keywords(object, is_old);
    if (keywords)
        capsule = PyObject_Call(method, empty, keywords);
    Py_XDECREF(keywords);
    return capsule;
}

static PyObject *buffer_export(PyObject *object)
{
    PyObject *method = PyObject_GetAttrString(object, "__dlpack__");
    if (!method)
        return NULL;
    bool is_old = Py_TYPE(object) == buffer_old_type;
    PyObject *capsule = buffer_call_dlpack(method, object, is_old);
    if (!capsule && !is_old && PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_Clear();
        buffer_old_type = Py_TYPE(object);
        capsule = buffer_call_dlpack(method, object, true);
    }
    Py_DECREF(method);
    return capsule;
}

/* torch's lazy negation: the bits in memory are those of the other sign, which DLPack does not
 * tell. (It refuses the lazy conjugation.) */
static int buffer_check_negation(PyObject *object, const char *name)
{
    PyObject *negated = PyObject_HasAttrString(object, "is_neg")
                            ? PyObject_CallMethod(object, "is_neg", NULL)
                            : Py_NewRef(Py_False);
    const int truth = negated ? PyObject_IsTrue(negated) : -1;
    Py_XDECREF(negated);
    if (truth > 0)
        return buffer_refuse(PyExc_ValueError, name,
                             "is a negated view of other memory; pass x.resolve_neg()");
    return truth;
}

static int buffer_get_dlpack(struct buffer *b, const struct collrun_group *g, PyObject *object,
                             bool writable, const char *name)
{
    if (buffer_check_negation(object, name))
        return -1;
    PyObject *capsule = buffer_export(object);
    if (!capsule) {
        if (PyErr_ExceptionMatches(PyExc_AttributeError)) {
            PyErr_Clear();
            PyErr_Format(PyExc_TypeError,
                         "%s: %R has neither the buffer protocol nor __dlpack__; pass an array, "
                         "such as one of numpy or torch",
                         name, Py_TYPE(object));
        }
        return -1;
    }
    b->owner = capsule;
    if (buffer_take_capsule(b, capsule, name)) {
        Py_DECREF(capsule);
        b->source = BUFFER_NONE;
        return -1;
    }
    if (buffer_check_tensor(b, object, writable, name) || buffer_check_device(b, g, name)) {
        buffer_release(b);
        return -1;
    }
    return 0;
}

/* ---- both ---- */

/* True if the buffer protocol has just refused an array in device memory, as those of cupy and jax
 * do, which have it for memory of the host alone. The error is then cleared. */
static bool buffer_is_on_device(PyObject *object)
{
    PyObject *type = NULL, *value = NULL, *trace = NULL;
    PyErr_Fetch(&type, &value, &trace);
    PyObject *device = PyObject_CallMethod(object, "__dlpack_device__", NULL);
    PyObject *kind = device ? PySequence_GetItem(device, 0) : NULL;
    const bool is_on_device = kind && PyLong_AsLong(kind) != DLPACK_CPU && !PyErr_Occurred();
    Py_XDECREF(kind);
    Py_XDECREF(device);
    if (!is_on_device) {
        PyErr_Restore(type, value, trace);
        return false;
    }
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    return true;
}

int buffer_get(struct buffer *b, const struct collrun_group *g, PyObject *object, bool writable,
               const char *name)
{
    b->source = BUFFER_NONE;
    if (array_is(object)) {
        const struct array *a = (struct array *)object;
        if (!array_is_packed(a))
            return buffer_refuse(PyExc_ValueError, name,
                                 "is not contiguous in C order; pass a copy of it");
        *b = (struct buffer){BUFFER_ARRAY,
                             a->dtype,
                             a->data,
                             a->len / collrun_dtype_size(a->dtype),
                             a->ndim > 0 ? (size_t)a->shape[0] : 1,
                             a->ndim,
                             {0},
                             Py_NewRef(object)};
        return 0;
    }
    if (!PyObject_CheckBuffer(object))
        return buffer_get_dlpack(b, g, object, writable, name);
    int rc = buffer_get_view(b, object, writable, name);
    if (rc && b->source == BUFFER_NONE && buffer_is_on_device(object))
        return buffer_get_dlpack(b, g, object, writable, name);
    if (rc &&
        (PyErr_ExceptionMatches(PyExc_ValueError) || PyErr_ExceptionMatches(PyExc_BufferError)) &&
        b->source == BUFFER_NONE)
        rc = buffer_get_bfloat16(b, object, writable, name);
    return rc;
}

Py_ssize_t buffer_axis(const struct buffer *b, int axis)
{
    if (b->source == BUFFER_ARRAY)
        return (Py_ssize_t)((struct array *)b->owner)->shape[axis];
    if (b->source != BUFFER_VIEW)
        return (Py_ssize_t)buffer_tensor(b)->shape[axis];
    return b->view.shape ? b->view.shape[axis] : (Py_ssize_t)b->count;
}

/* A deleter may run Python code, which no exception that is on its way may disturb. */
static void buffer_release_capsule(struct buffer *b)
{
    PyObject *type = NULL, *value = NULL, *trace = NULL;
    PyErr_Fetch(&type, &value, &trace);
    if (b->source == BUFFER_DLPACK) {
        struct dlpack_managed *m = PyCapsule_GetPointer(b->owner, DLPACK_NAME_USED);
        if (m->deleter)
            m->deleter(m);
    } else {
        struct dlpack_versioned *v = PyCapsule_GetPointer(b->owner, DLPACK_NAME_VERSIONED_USED);
        if (v->deleter)
            v->deleter(v);
    }
    Py_DECREF(b->owner);
    PyErr_Restore(type, value, trace);
}

void buffer_release(struct buffer *b)
{
    if (b->source == BUFFER_VIEW)
        PyBuffer_Release(&b->view);
    else if (b->source == BUFFER_ARRAY)
        Py_DECREF(b->owner);
    else if (b->source != BUFFER_NONE)
        buffer_release_capsule(b);
    b->source = BUFFER_NONE;
}
