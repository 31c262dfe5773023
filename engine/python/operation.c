/* SPDX-License-Identifier: Apache-2.0 */
#include "operation.h"

#include "extension.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { OPERATION_SLICE_NS = 20000000, OPERATION_SPINS = 64 };

/* Operations in flight without a request object; under the interpreter's lock. */
static struct operation *operation_detached;

struct operation *operation_begin(struct operation *room, struct group *g, enum collrun_kind kind,
                                  int async)
{
    struct operation *op = room;
    if (async && !(op = malloc(sizeof *op))) {
        PyErr_NoMemory();
        return NULL;
    }
    if (operation_detached)
        operation_sweep();
    op->group = (struct group *)Py_NewRef((PyObject *)g);
    op->call[0] = (struct collrun_call)COLLRUN_CALL(kind);
    op->ncalls = 1;
    op->async = async;
    op->buffers[0].source = op->buffers[1].source = BUFFER_NONE;
    op->counts = NULL;
    op->result = NULL;
    op->request = NULL;
    op->next = NULL;
    return op;
}

size_t *operation_counts(struct operation *op, int which)
{
    size_t n = (size_t)op->group->size;
    if (!op->counts && !(op->counts = malloc(4 * n * sizeof *op->counts))) {
        PyErr_NoMemory();
        return NULL;
    }
    return op->counts + (size_t)which * n;
}

void operation_complete(struct operation *op)
{
    buffer_release(&op->buffers[0]);
    buffer_release(&op->buffers[1]);
    if (op->counts)
        free(op->counts);
    op->counts = NULL;
}

void operation_free(struct operation *op)
{
    operation_complete(op);
    Py_XDECREF(op->result);
    Py_DECREF((PyObject *)op->group);
    if (op->async)
        free(op);
}

PyObject *operation_discard(struct operation *op)
{
    operation_free(op);
    return NULL;
}

/* ---- run and start ---- */

static int operation_check_group(struct operation *op)
{
    if (op->call[0].kind == COLLRUN_RECV_ANY)
        op->call[0].source = &op->source;
    return op->group->handle ? job_check()
                             : errors_set_text(COLLRUN_ERR_INVALID, "the group was destroyed");
}

int operation_start(struct operation *op)
{
    if (operation_check_group(op)) {
        operation_discard(op);
        return -1;
    }
    int rc = collrun_start_many(op->group->handle, op->call, op->ncalls, &op->request);
    if (rc) {
        errors_set(rc);
        operation_discard(op);
        return -1;
    }
    return 0;
}

uint64_t operation_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int operation_poll_until(struct collrun_request *request, uint64_t until)
{
    long pause_ns = 20000;
    for (unsigned round = 0;; round++) {
        int rc = collrun_poll(request);
        if (rc != COLLRUN_AGAIN || operation_now() >= until)
            return rc;
        if (round < OPERATION_SPINS) {
            sched_yield();
            continue;
        }
        nanosleep(&(struct timespec){.tv_nsec = pause_ns}, NULL);
        pause_ns = pause_ns < 500000 ? 2 * pause_ns : 1000000;
    }
}

int operation_poll(struct operation *op, uint64_t deadline)
{
    uint64_t slice = operation_now() + OPERATION_SLICE_NS;
    int rc;
    Py_BEGIN_ALLOW_THREADS rc =
        operation_poll_until(op->request, slice < deadline ? slice : deadline);
    Py_END_ALLOW_THREADS return rc;
}

/* A handler of the program has raised an exception. A receive without a message is withdrawn; any
 * other operation goes on, and keeps its buffers until it has ended. */
static PyObject *operation_abandon(struct operation *op)
{
    if (collrun_cancel(op->request) == COLLRUN_OK)
        operation_free(op);
    else
        operation_detach(op);
    return NULL;
}

/* The same as operation_run, with the handlers of the program run while the operation waits. */
static PyObject *operation_run_interruptible(const struct operation *op)
{
    struct operation *own = malloc(sizeof *own);
    if (!own)
        return PyErr_NoMemory();
    *own = *op;
    own->async = 1;
    if (operation_start(own))
        return NULL;
    while (operation_poll(own, UINT64_MAX) == COLLRUN_AGAIN)
        if (PyErr_CheckSignals())
            return operation_abandon(own);
    const int rc = collrun_test(own->request);
    if (rc) {
        errors_set(rc);
        return operation_discard(own);
    }
    PyObject *result = operation_result(own);
    operation_free(own);
    return result;
}

PyObject *operation_run(struct operation *op)
{
    if (operation_check_group(op) || interrupt_enter(op->group->handle))
        return operation_discard(op);
    if (interrupt_runs_handlers()) {
        interrupt_leave();
        return operation_run_interruptible(op);
    }
    struct collrun_group *g = op->group->handle;
    int rc;
    Py_BEGIN_ALLOW_THREADS rc = collrun_run(g, op->call, op->ncalls);
    interrupt_leave();
    Py_END_ALLOW_THREADS if (rc)
    {
        errors_set(rc);
        return operation_discard(op);
    }
    PyObject *result = operation_result(op);
    operation_free(op);
    return result;
}

PyObject *operation_result(const struct operation *op)
{
    if (op->call[0].kind == COLLRUN_RECV_ANY)
        return PyLong_FromLong(op->source);
    return Py_NewRef(op->result ? op->result : Py_None);
}

/* ---- detached operations ---- */

void operation_detach(struct operation *op)
{
    op->next = operation_detached;
    operation_detached = op;
}

void operation_sweep(void)
{
    struct operation **p = &operation_detached, *over = NULL, *op;
    while ((op = *p)) {
        if (collrun_test(op->request) == COLLRUN_AGAIN) {
            p = &op->next;
            continue;
        }
        *p = op->next;
        op->next = over;
        over = op;
    }
    while ((op = over)) { /* which may run code of the program, and so this function again */
        over = op->next;
        operation_free(op);
    }
}
