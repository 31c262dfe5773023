/* SPDX-License-Identifier: Apache-2.0 */
#include "extension.h"

#include "args.h"
#include "operation.h"

#include <stdlib.h>
#include <string.h>

struct request {
    PyObject_HEAD struct operation *op; /* NULL after the end of the program's groups */
    PyObject *result;                   /* when it has ended well */
    char *error;                        /* when it has failed: the message of `status` */
    int status;                         /* AGAIN: in flight */
    bool busy;                          /* a thread is waiting */
};

static const uint64_t REQUEST_NEVER = UINT64_MAX;

static PyTypeObject *request_type;

PyObject *request_new(struct operation *op)
{
    struct request *r = PyObject_GC_New(struct request, request_type);
    if (!r) {
        operation_detach(op);
        return NULL;
    }
    r->op = op;
    r->result = NULL;
    r->error = NULL;
    r->status = COLLRUN_AGAIN;
    r->busy = false;
    PyObject_GC_Track(r);
    return (PyObject *)r;
}

/* An array may hold its request. What an operation in flight uses is not visited, so it is kept. */
static int request_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((struct request *)self)->result);
    return 0;
}

static int request_clear(PyObject *self)
{
    Py_CLEAR(((struct request *)self)->result);
    return 0;
}

static void request_dealloc(PyObject *self)
{
    struct request *r = (struct request *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    if (r->op)
        operation_detach(r->op);
    Py_XDECREF(r->result);
    free(r->error);
    PyObject_GC_Del(self);
    Py_DECREF((PyObject *)type);
}

/* Stores the result of an operation that has ended with `rc`, and returns the method's. */
static int request_finish(struct request *r, int rc)
{
    struct operation *op = r->op;
    r->op = NULL;
    r->status = rc;
    if (rc)
        r->error = strdup(collrun_error());
    else
        r->result = operation_result(op);
    operation_free(op);
    return rc;
}

static PyObject *request_outcome(const struct request *r)
{
    if (r->status == COLLRUN_OK)
        return Py_NewRef(r->result ? r->result : Py_None);
    errors_set_text(r->status, r->error ? r->error : collrun_strstatus(r->status));
    return NULL;
}

/* Waits `limit_ns`. AGAIN: not over, with an exception. */
static int request_wait_limited(struct request *r, uint64_t limit_ns)
{
    uint64_t now = operation_now();
    uint64_t deadline = limit_ns < REQUEST_NEVER - now ? now + limit_ns : REQUEST_NEVER;
    int rc;
    while ((rc = operation_poll(r->op, deadline)) == COLLRUN_AGAIN) {
        if (PyErr_CheckSignals())
            return rc;
        if (operation_now() >= deadline) {
            errors_set_text(COLLRUN_ERR_TIMEOUT,
                            "wait: the operation has not ended in the given time; it goes on, and "
                            "the request can be waited for again");
            return rc;
        }
    }
    return request_finish(r, collrun_test(r->op->request));
}

/* AGAIN: not over, with an exception. */
static int request_wait_unlimited(struct request *r)
{
    int rc;
    if (interrupt_enter(r->op->group->handle))
        return COLLRUN_AGAIN;
    if (interrupt_runs_handlers()) {
        interrupt_leave();
        return request_wait_limited(r, REQUEST_NEVER);
    }
    Py_BEGIN_ALLOW_THREADS rc = collrun_wait(r->op->request);
    interrupt_leave();
    Py_END_ALLOW_THREADS return request_finish(r, rc);
}

static int request_enter(struct request *r)
{
    if (!r->busy)
        return 0;
    PyErr_SetString(PyExc_RuntimeError, "another thread is waiting for this request");
    return -1;
}

PyDoc_STRVAR(request_wait_doc,
             "wait($self, /, timeout=None)\n--\n\n"
             "Wait until the operation has ended, and return its result: what the blocking method "
             "returns.\n\ntimeout: seconds; then collrun.TimeoutError, and the request can be "
             "waited for again.");
static PyObject *request_wait(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"timeout", NULL};
    struct request *r = (struct request *)self;
    PyObject *timeout = NULL;
    uint64_t limit = REQUEST_NEVER;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O:wait", names, &timeout) ||
        args_seconds(timeout == Py_None ? NULL : timeout, "timeout", &limit) || request_enter(r))
        return NULL;
    if (!r->op)
        return request_outcome(r);
    r->busy = true;
    int rc = limit == REQUEST_NEVER ? request_wait_unlimited(r) : request_wait_limited(r, limit);
    r->busy = false;
    return rc == COLLRUN_AGAIN ? NULL : request_outcome(r);
}

PyDoc_STRVAR(request_test_doc,
             "test($self, /)\n--\n\n"
             "True if the operation has ended. Raises its error if it has failed. "
             "Does not wait.");
static PyObject *request_test(PyObject *self, PyObject *unused)
{
    (void)unused;
    struct request *r = (struct request *)self;
    if (request_enter(r))
        return NULL;
    if (r->op) {
        int rc = collrun_test(r->op->request);
        if (rc == COLLRUN_AGAIN)
            Py_RETURN_FALSE;
        request_finish(r, rc);
    }
    PyObject *outcome = request_outcome(r);
    if (!outcome)
        return NULL;
    Py_DECREF(outcome);
    Py_RETURN_TRUE;
}

PyDoc_STRVAR(request_cancel_doc,
             "cancel($self, /)\n--\n\n"
             "Withdraw a receive that no message has been matched with. True: it does not happen, "
             "and its buffer may be used again. False: too late; wait for it.");
static PyObject *request_cancel(PyObject *self, PyObject *unused)
{
    (void)unused;
    struct request *r = (struct request *)self;
    if (request_enter(r))
        return NULL;
    if (!r->op)
        Py_RETURN_FALSE;
    int rc = collrun_cancel(r->op->request);
    if (rc == COLLRUN_AGAIN)
        Py_RETURN_FALSE;
    if (rc) {
        errors_set(rc);
        return NULL;
    }
    operation_free(r->op);
    r->op = NULL;
    r->status = COLLRUN_OK;
    r->result = Py_NewRef(Py_None);
    Py_RETURN_TRUE;
}

static PyMethodDef request_methods[] = {{"wait", (PyCFunction)(void (*)(void))request_wait,
                                         METH_VARARGS | METH_KEYWORDS, request_wait_doc},
                                        {"test", request_test, METH_NOARGS, request_test_doc},
                                        {"cancel", request_cancel, METH_NOARGS, request_cancel_doc},
                                        {0}};

PyDoc_STRVAR(request_doc, "An operation in flight. It makes progress without a waiting thread, and "
                          "keeps its buffers alive until it has ended.");
static PyType_Slot request_slots[] = {
    {Py_tp_doc, (void *)request_doc},   {Py_tp_dealloc, request_dealloc},
    {Py_tp_traverse, request_traverse}, {Py_tp_clear, request_clear},
    {Py_tp_methods, request_methods},   {0}};
static PyType_Spec request_spec = {.name = "collrun.Request",
                                   .basicsize = sizeof(struct request),
                                   .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
                                            Py_TPFLAGS_DISALLOW_INSTANTIATION |
                                            Py_TPFLAGS_IMMUTABLETYPE,
                                   .slots = request_slots};

int request_init(PyObject *module)
{
    request_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &request_spec, NULL);
    return request_type ? PyModule_AddType(module, request_type) : -1;
}
