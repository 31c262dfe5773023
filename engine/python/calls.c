/* SPDX-License-Identifier: Apache-2.0
 *
 * A method is an entry of calls_specs: its parameters, and a function that fills the operation.
 * In the fill functions `v` holds the arguments by slot; NULL: not given.
 */
#include "extension.h"

#include "args.h"
#include "operation.h"

#include <string.h>

struct calls_spec {
    struct args_table args;
    enum collrun_kind kind;
    int (*fill)(struct operation *op, PyObject *const *v);
};

/* ---- memory ---- */

/* x: what is sent. */
static int calls_input(struct operation *op, PyObject *x, bool writable)
{
    struct buffer *b = &op->buffers[0];
    if (buffer_get(b, op->group->handle, x, writable, "x"))
        return -1;
    op->call[0].send = b->data;
    op->call[0].count = b->count;
    op->call[0].dtype = b->dtype;
    return 0;
}

static int calls_check_output(const struct operation *op, const struct buffer *b, size_t count)
{
    enum collrun_dtype dtype = op->call[0].dtype;
    if (b->dtype != dtype) {
        PyErr_Format(PyExc_ValueError, "out: has the element type %s, and x has %s",
                     args_dtype_name(b->dtype), args_dtype_name(dtype));
        return -1;
    }
    if (b->count != count) {
        PyErr_Format(PyExc_ValueError, "out: has %zu elements; the result has %zu", b->count,
                     count);
        return -1;
    }
    return 0;
}

/* The array that receives `count` elements. Takes `out`. */
static int calls_output(struct operation *op, PyObject *out, size_t count)
{
    struct buffer *b = &op->buffers[1];
    op->result = out;
    if (!out || buffer_get(b, op->group->handle, out, true, "out") ||
        calls_check_output(op, b, count))
        return -1;
    op->call[0].recv = b->data;
    return 0;
}

/* A new array like x, whose shape is `rows` and then the axes of x from `skip` on. */
static PyObject *calls_new_array(const struct operation *op, PyObject *x, size_t rows, int skip)
{
    static PyObject *empty_like;
    const struct buffer *b = &op->buffers[0];
    if (!empty_like) {
        PyObject *module = PyImport_ImportModule("collrun._arrays");
        empty_like = module ? PyObject_GetAttrString(module, "empty_like") : NULL;
        Py_XDECREF(module);
        if (!empty_like)
            return NULL;
    }
    int rest = b->ndim > skip ? b->ndim - skip : 0;
    PyObject *shape = PyTuple_New(1 + rest);
    if (!shape)
        return NULL;
    PyTuple_SetItem(shape, 0, PyLong_FromSize_t(rows));
    for (int i = 0; i < rest; i++)
        PyTuple_SetItem(shape, 1 + i, PyLong_FromSsize_t(buffer_axis(b, skip + i)));
    PyObject *array = PyObject_CallFunction(empty_like, "OOOs", (PyObject *)op->group, x, shape,
                                            args_dtype_name(b->dtype));
    Py_DECREF(shape);
    return array;
}

/* The result: `out`, or a new array of `rows` rows, each as large as the part of x from axis `skip`
 * on. */
static int calls_result(struct operation *op, PyObject *const *v, size_t rows, int skip)
{
    const struct buffer *b = &op->buffers[0];
    size_t row = 1;
    for (int i = skip; i < b->ndim; i++)
        row *= (size_t)buffer_axis(b, i);
    PyObject *out = v[ARG_OUT] ? Py_NewRef(v[ARG_OUT]) : calls_new_array(op, v[ARG_X], rows, skip);
    return calls_output(op, out, rows * row);
}

/* x is replaced by the result, or `out` receives it. */
static int calls_transform(struct operation *op, PyObject *const *v)
{
    if (calls_input(op, v[ARG_X], !v[ARG_OUT]))
        return -1;
    if (v[ARG_OUT])
        return calls_output(op, Py_NewRef(v[ARG_OUT]), op->call[0].count);
    op->call[0].recv = op->buffers[0].data;
    op->result = Py_NewRef(v[ARG_X]);
    return 0;
}

/* ---- rows ---- */

static size_t calls_row(const struct buffer *b)
{
    size_t row = 1;
    for (int i = 1; i < b->ndim; i++)
        row *= (size_t)buffer_axis(b, i);
    return row;
}

/* x has n*k rows: *out is k. */
static int calls_share(const struct operation *op, size_t *out)
{
    const struct buffer *b = &op->buffers[0];
    size_t n = (size_t)op->group->size;
    if (b->ndim == 0 || b->rows % n != 0) {
        PyErr_Format(PyExc_ValueError,
                     "x: its first axis must have a multiple of %zu rows, one block for each rank",
                     n);
        return -1;
    }
    *out = b->rows / n;
    return 0;
}

/* Reads counts of rows into array `which` of op->counts. *rows (may be NULL) is their sum. */
static size_t *calls_rows(struct operation *op, PyObject *counts, const char *name, int which,
                          size_t *rows)
{
    size_t *array = operation_counts(op, which), sum = 0;
    if (!array || args_counts(counts, name, array, op->group->size))
        return NULL;
    for (int i = 0; i < op->group->size; i++)
        sum += array[i];
    if (rows)
        *rows = sum;
    return array;
}

/* Counts of rows become counts of elements. */
static void calls_scale(const struct operation *op, size_t *counts, size_t row)
{
    for (int i = 0; i < op->group->size; i++)
        counts[i] *= row;
}

static int calls_check_rows(const struct operation *op, const char *name, size_t rows)
{
    if (op->buffers[0].rows == rows && op->buffers[0].ndim > 0)
        return 0;
    PyErr_Format(PyExc_ValueError, "x: has %zu rows, and %s give %zu", op->buffers[0].rows, name,
                 rows);
    return -1;
}

static bool calls_at_root(const struct operation *op)
{
    return op->group->rank == op->call[0].root;
}

static int calls_root(struct operation *op, PyObject *const *v)
{
    return args_rank(v[ARG_ROOT], "root", op->group->size, &op->call[0].root);
}

/* ---- reductions ---- */

static int calls_fill_allreduce(struct operation *op, PyObject *const *v)
{
    return args_op(v[ARG_OP], &op->call[0].op) || calls_transform(op, v) ? -1 : 0;
}

static int calls_fill_reduce(struct operation *op, PyObject *const *v)
{
    if (args_op(v[ARG_OP], &op->call[0].op) || calls_root(op, v))
        return -1;
    return calls_at_root(op) ? calls_transform(op, v) : calls_input(op, v[ARG_X], false);
}

static int calls_fill_reduce_scatter(struct operation *op, PyObject *const *v)
{
    struct collrun_call *c = &op->call[0];
    size_t rows, row;
    if (args_op(v[ARG_OP], &c->op) || calls_input(op, v[ARG_X], false))
        return -1;
    row = calls_row(&op->buffers[0]);
    if (v[ARG_COUNTS]) {
        size_t *counts = calls_rows(op, v[ARG_COUNTS], "counts", 0, &rows);
        if (!counts || calls_check_rows(op, "counts", rows))
            return -1;
        rows = counts[op->group->rank];
        calls_scale(op, counts, row);
        c->kind = COLLRUN_REDUCE_SCATTERV;
        c->recvcounts = counts;
    } else if (calls_share(op, &rows)) {
        return -1;
    }
    c->count = rows * row;
    return calls_result(op, v, rows, 1);
}

/* ---- moves ---- */

static int calls_fill_barrier(struct operation *op, PyObject *const *v)
{
    (void)op;
    (void)v;
    return 0;
}

static int calls_fill_broadcast(struct operation *op, PyObject *const *v)
{
    if (calls_root(op, v) || calls_input(op, v[ARG_X], !calls_at_root(op)))
        return -1;
    op->call[0].recv = op->buffers[0].data;
    op->result = Py_NewRef(v[ARG_X]);
    return 0;
}

/* allgather and gather, with counts. At a rank that receives. */
static int calls_fill_gathered(struct operation *op, PyObject *const *v)
{
    struct collrun_call *c = &op->call[0];
    size_t rows;
    if (!v[ARG_COUNTS])
        return calls_result(op, v, (size_t)op->group->size, 0);
    size_t *counts = calls_rows(op, v[ARG_COUNTS], "counts", 0, &rows);
    if (!counts || calls_check_rows(op, "counts", counts[op->group->rank]))
        return -1;
    calls_scale(op, counts, calls_row(&op->buffers[0]));
    c->recvcounts = counts;
    return calls_result(op, v, rows, 1);
}

static int calls_fill_allgather(struct operation *op, PyObject *const *v)
{
    if (v[ARG_COUNTS])
        op->call[0].kind = COLLRUN_ALLGATHERV;
    return calls_input(op, v[ARG_X], false) || calls_fill_gathered(op, v) ? -1 : 0;
}

static int calls_fill_gather(struct operation *op, PyObject *const *v)
{
    if (v[ARG_COUNTS])
        op->call[0].kind = COLLRUN_GATHERV;
    if (calls_root(op, v) || calls_input(op, v[ARG_X], false))
        return -1;
    return calls_at_root(op) ? calls_fill_gathered(op, v) : 0;
}

static int calls_fill_scatter_root(struct operation *op, PyObject *const *v)
{
    struct collrun_call *c = &op->call[0];
    size_t rows;
    if (!v[ARG_X]) {
        PyErr_SetString(PyExc_ValueError, "x: the root has to give the rows of all ranks");
        return -1;
    }
    if (calls_input(op, v[ARG_X], false))
        return -1;
    size_t row = calls_row(&op->buffers[0]);
    if (v[ARG_COUNTS]) {
        size_t *counts = calls_rows(op, v[ARG_COUNTS], "counts", 0, &rows);
        if (!counts || calls_check_rows(op, "counts", rows))
            return -1;
        rows = counts[op->group->rank];
        calls_scale(op, counts, row);
        c->sendcounts = counts;
    } else if (calls_share(op, &rows)) {
        return -1;
    }
    c->count = c->recvcount = rows * row;
    return calls_result(op, v, rows, 1);
}

/* The result has the shape of `like`, or is `out`. */
static int calls_fill_scatter_leaf(struct operation *op, PyObject *const *v)
{
    struct collrun_call *c = &op->call[0];
    struct buffer *b = &op->buffers[0];
    PyObject *like = v[ARG_OUT] ? v[ARG_OUT] : v[ARG_LIKE];
    if (!like) {
        PyErr_SetString(PyExc_ValueError, "like or out: a rank that is not the root has to give "
                                          "one of them, for the shape of the result");
        return -1;
    }
    if (buffer_get(b, op->group->handle, like, v[ARG_OUT] != NULL, v[ARG_OUT] ? "out" : "like"))
        return -1;
    c->dtype = b->dtype;
    c->count = c->recvcount = b->count;
    if (!v[ARG_OUT])
        return calls_output(op, calls_new_array(op, like, b->rows, 1), b->count);
    c->recv = b->data;
    op->result = Py_NewRef(like);
    return 0;
}

static int calls_fill_scatter(struct operation *op, PyObject *const *v)
{
    if (v[ARG_COUNTS])
        op->call[0].kind = COLLRUN_SCATTERV;
    if (calls_root(op, v))
        return -1;
    return calls_at_root(op) ? calls_fill_scatter_root(op, v) : calls_fill_scatter_leaf(op, v);
}

static int calls_fill_alltoallv(struct operation *op, PyObject *const *v)
{
    struct collrun_call *c = &op->call[0];
    size_t rows, sent, row = calls_row(&op->buffers[0]);
    size_t *sends = calls_rows(op, v[ARG_SEND_COUNTS], "send_counts", 0, &sent);
    if (!sends || calls_check_rows(op, "send_counts", sent))
        return -1;
    size_t *recvs = calls_rows(op, v[ARG_RECV_COUNTS], "recv_counts", 1, &rows);
    if (!recvs)
        return -1;
    calls_scale(op, sends, row);
    calls_scale(op, recvs, row);
    c->kind = COLLRUN_ALLTOALLV;
    c->sendcounts = sends;
    c->recvcounts = recvs;
    return calls_result(op, v, rows, 1);
}

static int calls_fill_alltoall(struct operation *op, PyObject *const *v)
{
    size_t rows;
    if (!v[ARG_SEND_COUNTS] != !v[ARG_RECV_COUNTS]) {
        PyErr_SetString(PyExc_TypeError, "alltoall() needs both send_counts and recv_counts");
        return -1;
    }
    if (calls_input(op, v[ARG_X], false))
        return -1;
    if (v[ARG_SEND_COUNTS])
        return calls_fill_alltoallv(op, v);
    if (calls_share(op, &rows))
        return -1;
    op->call[0].count = rows * calls_row(&op->buffers[0]);
    return calls_result(op, v, op->buffers[0].rows, 1);
}

/* ---- messages ---- */

static int calls_fill_send(struct operation *op, PyObject *const *v)
{
    struct collrun_call *c = &op->call[0];
    return args_rank(v[ARG_PEER], "dst", op->group->size, &c->peer) ||
                   args_tag(v[ARG_TAG], false, &c->tag) || calls_input(op, v[ARG_X], false)
               ? -1
               : 0;
}

static int calls_fill_recv(struct operation *op, PyObject *const *v)
{
    struct collrun_call *c = &op->call[0];
    if (args_rank(v[ARG_PEER], "src", op->group->size, &c->peer) ||
        args_tag(v[ARG_TAG], true, &c->tag) || calls_input(op, v[ARG_X], true))
        return -1;
    c->recv = op->buffers[0].data;
    op->result = Py_NewRef(v[ARG_X]);
    return 0;
}

static int calls_fill_sendrecv(struct operation *op, PyObject *const *v)
{
    struct collrun_call *recv = &op->call[1];
    struct buffer *b = &op->buffers[1];
    if (calls_fill_send(op, v))
        return -1;
    *recv = (struct collrun_call)COLLRUN_CALL(COLLRUN_RECV);
    recv->tag = op->call[0].tag;
    if (args_rank(v[ARG_SOURCE], "src", op->group->size, &recv->peer) ||
        buffer_get(b, op->group->handle, v[ARG_Y], true, "y"))
        return -1;
    recv->recv = b->data;
    recv->count = b->count;
    recv->dtype = b->dtype;
    op->ncalls = 2;
    op->result = Py_NewRef(v[ARG_Y]);
    return 0;
}

/* ---- methods ---- */

static PyObject *calls_run(const struct calls_spec *spec, PyObject *self, PyObject *const *args,
                           Py_ssize_t nargs, PyObject *kwnames)
{
    PyObject *v[ARG_SLOTS];
    struct operation room, *op;
    int async = 0;
    if (args_parse(&spec->args, args, nargs, kwnames, v) || args_bool(v[ARG_ASYNC], &async) ||
        !(op = operation_begin(&room, (struct group *)self, spec->kind, async)))
        return NULL;
    if (spec->fill(op, v))
        return operation_discard(op);
    if (!async)
        return operation_run(op);
    return operation_start(op) ? NULL : request_new(op);
}

#define X                                                                                          \
    {                                                                                              \
        "x", ARG_X                                                                                 \
    }
#define OP                                                                                         \
    {                                                                                              \
        "op", ARG_OP                                                                               \
    }
#define ROOT                                                                                       \
    {                                                                                              \
        "root", ARG_ROOT                                                                           \
    }
#define OUT                                                                                        \
    {                                                                                              \
        "out", ARG_OUT                                                                             \
    }
#define COUNTS                                                                                     \
    {                                                                                              \
        "counts", ARG_COUNTS                                                                       \
    }
#define TAG                                                                                        \
    {                                                                                              \
        "tag", ARG_TAG                                                                             \
    }
#define ASYNC                                                                                      \
    {                                                                                              \
        "async_op", ARG_ASYNC                                                                      \
    }
/* calls_NAME(): the method, with `required` arguments and the parameters that follow. */
#define CALLS_METHOD(name, kind_, fill_, required_, ...)                                           \
    static PyObject *calls_##name(PyObject *self, PyObject *const *args, Py_ssize_t nargs,         \
                                  PyObject *kwnames)                                               \
    {                                                                                              \
        static const struct calls_spec spec = {                                                    \
            .args = {#name, required_, {__VA_ARGS__, ASYNC, {NULL, ARG_SLOTS}}},                   \
            .kind = kind_,                                                                         \
            .fill = fill_};                                                                        \
        return calls_run(&spec, self, args, nargs, kwnames);                                       \
    }

CALLS_METHOD(allreduce, COLLRUN_ALLREDUCE, calls_fill_allreduce, 1, X, OP, OUT)
CALLS_METHOD(scan, COLLRUN_SCAN, calls_fill_allreduce, 1, X, OP, OUT)
CALLS_METHOD(exscan, COLLRUN_EXSCAN, calls_fill_allreduce, 1, X, OP, OUT)
CALLS_METHOD(reduce, COLLRUN_REDUCE, calls_fill_reduce, 1, X, ROOT, OP, OUT)
CALLS_METHOD(broadcast, COLLRUN_BROADCAST, calls_fill_broadcast, 1, X, ROOT)
CALLS_METHOD(allgather, COLLRUN_ALLGATHER, calls_fill_allgather, 1, X, OUT, COUNTS)
CALLS_METHOD(gather, COLLRUN_GATHER, calls_fill_gather, 1, X, ROOT, OUT, COUNTS)
CALLS_METHOD(scatter, COLLRUN_SCATTER, calls_fill_scatter, 0, X, ROOT, {"like", ARG_LIKE}, OUT,
             COUNTS)
CALLS_METHOD(reduce_scatter, COLLRUN_REDUCE_SCATTER, calls_fill_reduce_scatter, 1, X, OP, OUT,
             COUNTS)
CALLS_METHOD(alltoall, COLLRUN_ALLTOALL, calls_fill_alltoall, 1, X, OUT,
             {"send_counts", ARG_SEND_COUNTS}, {"recv_counts", ARG_RECV_COUNTS})
CALLS_METHOD(send, COLLRUN_SEND, calls_fill_send, 2, X, {"dst", ARG_PEER}, TAG)
CALLS_METHOD(recv, COLLRUN_RECV, calls_fill_recv, 2, X, {"src", ARG_PEER}, TAG)
CALLS_METHOD(recv_any, COLLRUN_RECV_ANY, calls_fill_recv, 1, X, TAG)
CALLS_METHOD(sendrecv, COLLRUN_SEND, calls_fill_sendrecv, 4, X, {"dst", ARG_PEER}, {"y", ARG_Y},
             {"src", ARG_SOURCE}, TAG)

static PyObject *calls_barrier(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                               PyObject *kwnames)
{
    static const struct calls_spec spec = {
        .args = {"barrier", 0, {ASYNC}}, .kind = COLLRUN_BARRIER, .fill = calls_fill_barrier};
    return calls_run(&spec, self, args, nargs, kwnames);
}

/* ---- documentation ---- */

#define IN_FLIGHT "\n\nasync_op=True: returns a Request, whose wait() returns the result."
#define OPERATORS                                                                                  \
    "\nop: sum, prod, min, max, avg; of integers and bool also band, bor, bxor, land, lor, lxor."

static const char calls_allreduce_doc[] =
    "allreduce($self, /, x, op='sum', out=None, async_op=False)\n--\n\n"
    "x, combined over all ranks element by element, replaces x, or is written to out (as many "
    "elements, the same type). Returns x or out." OPERATORS IN_FLIGHT;
static const char calls_scan_doc[] =
    "scan($self, /, x, op='sum', out=None, async_op=False)\n--\n\n"
    "As allreduce, combined over ranks 0 to this one." OPERATORS IN_FLIGHT;
static const char calls_exscan_doc[] =
    "exscan($self, /, x, op='sum', out=None, async_op=False)\n--\n\n"
    "As allreduce, combined over the ranks below this one. At rank 0 nothing is written." OPERATORS
        IN_FLIGHT;
static const char calls_reduce_doc[] =
    "reduce($self, /, x, root=0, op='sum', out=None, async_op=False)\n--\n\n"
    "As allreduce, with the result at the root only. Elsewhere x is unchanged, out is ignored, and "
    "None is returned." OPERATORS IN_FLIGHT;
static const char calls_broadcast_doc[] = "broadcast($self, /, x, root=0, async_op=False)\n--\n\n"
                                          "x of the root replaces x of all ranks. Returns x.\n"
                                          "Shape: the same on all ranks." IN_FLIGHT;
static const char calls_allgather_doc[] =
    "allgather($self, /, x, out=None, counts=None, async_op=False)\n--\n\n"
    "Returns the x of all ranks in the order of ranks: a new array of shape (n, *x.shape), or out."
    "\ncounts: the number of rows (of the first axis) of each rank, where they differ; the result "
    "then has the shape (sum(counts), *x.shape[1:])." IN_FLIGHT;
static const char calls_gather_doc[] =
    "gather($self, /, x, root=0, out=None, counts=None, async_op=False)\n--\n\n"
    "As allgather, with the result at the root only, and None elsewhere. All ranks give counts, or "
    "none does." IN_FLIGHT;
static const char calls_scatter_doc[] =
    "scatter($self, /, x=None, root=0, like=None, out=None, counts=None, async_op=False)\n--\n\n"
    "At the root x has n*k rows, and rank i gets rows i*k to (i+1)*k: a new array of shape "
    "(k, *x.shape[1:]), or out. Elsewhere x is ignored, and the result is out, or new memory with "
    "the shape and type of like.\ncounts: the rows of each rank, where they differ; all ranks give "
    "them, or none does." IN_FLIGHT;
static const char calls_reduce_scatter_doc[] =
    "reduce_scatter($self, /, x, op='sum', out=None, counts=None, async_op=False)\n--\n\n"
    "x has n*k rows. Returns this rank's k rows, combined over all ranks: a new array of shape "
    "(k, *x.shape[1:]), or out.\ncounts: the rows of each rank, where they differ." OPERATORS
        IN_FLIGHT;
static const char calls_alltoall_doc[] =
    "alltoall($self, /, x, out=None, send_counts=None, recv_counts=None, async_op=False)\n--\n\n"
    "x has n*k rows; block i of k rows is sent to rank i. Returns the blocks that the ranks sent "
    "to "
    "this one, in the order of ranks: a new array of the shape of x, or out.\n"
    "send_counts, recv_counts: the rows for and from each rank, where they differ." IN_FLIGHT;
static const char calls_send_doc[] = "send($self, /, x, dst, tag=0, async_op=False)\n--\n\n"
                                     "Sends x to the rank dst of the group." IN_FLIGHT;
static const char calls_recv_doc[] =
    "recv($self, /, x, src, tag=0, async_op=False)\n--\n\n"
    "Receives a message of rank src into x: as many elements as were sent, of the same type. "
    "Returns x.\ntag: ANY_TAG accepts every tag." IN_FLIGHT;
static const char calls_recv_any_doc[] =
    "recv_any($self, /, x, tag=0, async_op=False)\n--\n\n"
    "As recv, from any rank. Returns the sender's rank." IN_FLIGHT;
static const char calls_sendrecv_doc[] =
    "sendrecv($self, /, x, dst, y, src, tag=0, async_op=False)\n--\n\n"
    "Sends x to dst and receives y from src at the same time. Returns y." IN_FLIGHT;
static const char calls_barrier_doc[] = "barrier($self, /, async_op=False)\n--\n\n"
                                        "Returns after every member has called it." IN_FLIGHT;

#define CALLS_ENTRY(name)                                                                          \
    {                                                                                              \
#name, (PyCFunction)(void (*)(void))calls_##name, METH_FASTCALL | METH_KEYWORDS,           \
            calls_##name##_doc                                                                     \
    }

PyMethodDef calls_methods[] = {CALLS_ENTRY(allreduce), CALLS_ENTRY(reduce),
                               CALLS_ENTRY(broadcast), CALLS_ENTRY(allgather),
                               CALLS_ENTRY(gather),    CALLS_ENTRY(scatter),
                               CALLS_ENTRY(alltoall),  CALLS_ENTRY(reduce_scatter),
                               CALLS_ENTRY(scan),      CALLS_ENTRY(exscan),
                               CALLS_ENTRY(send),      CALLS_ENTRY(recv),
                               CALLS_ENTRY(recv_any),  CALLS_ENTRY(sendrecv),
                               CALLS_ENTRY(barrier),   {0}};
