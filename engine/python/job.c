/* SPDX-License-Identifier: Apache-2.0 */
#include "extension.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* One process is one rank. */
static struct {
    pthread_mutex_t lock; /* taken without the interpreter's lock */
    struct collrun_ctx *ctx;
    pid_t pid; /* of the process that called collrun_init */
    bool over;
    bool lingers; /* it is over, but its groups are open until the program ends: */
    int arrays;   /* they hold these; under the interpreter's lock */
} job = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- begin and end ---- */

/* The program has exited, after the interpreter's end. A rank that has failed does not wait for the
 * others. */
static void job_exit(int code, void *unused)
{
    struct collrun_ctx *ctx = job.ctx;
    (void)unused;
    if (code != 0 || !ctx || (job.over && !job.lingers) || job.pid != getpid())
        return;
    job.over = true;
    job.lingers = false;
    (void)collrun_finalize_at_exit(ctx);
}

/* What is registered last is called first: before the end of libraries that were loaded after
 * collrun, such as torch's. That of CUDA's runtime must find no group of nccl. */
static PyObject *job_exit_first(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    on_exit(job_exit, NULL);
    Py_RETURN_NONE;
}

/* Registers with the module atexit, whose functions run before the interpreter ends. */
static int job_register_exit(void)
{
    static PyMethodDef def = {"_exit_first", job_exit_first, METH_NOARGS, NULL};
    static bool registered;
    if (registered)
        return 0;
    PyObject *module = PyImport_ImportModule("atexit");
    PyObject *function = module ? PyCFunction_New(&def, NULL) : NULL;
    PyObject *result = function ? PyObject_CallMethod(module, "register", "O", function) : NULL;
    registered = result != NULL;
    Py_XDECREF(result);
    Py_XDECREF(function);
    Py_XDECREF(module);
    return registered ? 0 : -1;
}

static int job_init(void)
{
    pthread_mutex_lock(&job.lock);
    int rc = COLLRUN_OK;
    if (!job.ctx && !job.over) {
        rc = collrun_init(&job.ctx);
        job.pid = getpid();
        if (rc == COLLRUN_OK)
            on_exit(job_exit, NULL);
    }
    pthread_mutex_unlock(&job.lock);
    return rc;
}

int job_check(void)
{
    return job.over
               ? errors_set_text(COLLRUN_ERR_INVALID, "collrun.finalize() has closed the groups")
               : 0;
}

struct collrun_ctx *job_get(void)
{
    int rc = COLLRUN_OK;
    if (job_check())
        return NULL;
    if (job.ctx)
        return job.ctx;
    Py_BEGIN_ALLOW_THREADS rc = job_init();
    Py_END_ALLOW_THREADS if (rc)
    {
        errors_set(rc);
        return NULL;
    }
    errors_init(job.ctx);
    traceback_watch_crashes();
    return interrupt_init() || job_register_exit() ? NULL : job.ctx;
}

bool job_is_over(void)
{
    return job.over || (job.ctx && job.pid != getpid());
}

void job_count_arrays(int n)
{
    job.arrays += n;
}

PyDoc_STRVAR(job_finalize_doc,
             "finalize()\n--\n\n"
             "Waits until the other members of the groups have ended their part, and closes the "
             "groups; the program goes on as a plain one. An exit with code 0 does it, so programs "
             "need not. While arrays of Group.empty() are alive, the exit closes the groups.");
static PyObject *job_finalize(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    if (!job.ctx || job_is_over())
        Py_RETURN_NONE;
    struct collrun_ctx *ctx = job.ctx;
    errors_init(NULL);
    job.over = true;
    job.lingers = job.arrays > 0;
    if (job.lingers)
        Py_RETURN_NONE;
    job.ctx = NULL;
    int rc;
    Py_BEGIN_ALLOW_THREADS interrupt_sync();
    rc = collrun_finalize(ctx);
    Py_END_ALLOW_THREADS if (rc == COLLRUN_ERR_INVALID) /* a thread is in a call: nothing is over */
    {
        job.ctx = ctx;
        job.over = false;
        errors_init(ctx);
    }
    if (!rc)
        Py_RETURN_NONE;
    errors_set(rc);
    return NULL;
}

/* ---- what the rank is ---- */

int job_device_count(const char *kind)
{
    const struct collrun_ctx *ctx = job_get();
    return ctx ? collrun_device_count(ctx, kind) : -1;
}

#define JOB_INT(name, function)                                                                    \
    static PyObject *job_##name(PyObject *module, PyObject *unused)                                \
    {                                                                                              \
        (void)module;                                                                              \
        (void)unused;                                                                              \
        const struct collrun_ctx *ctx = job_get();                                                 \
        return ctx ? PyLong_FromLong(function(ctx)) : NULL;                                        \
    }
#define JOB_TEXT(name, function)                                                                   \
    static PyObject *job_##name(PyObject *module, PyObject *unused)                                \
    {                                                                                              \
        (void)module;                                                                              \
        (void)unused;                                                                              \
        const struct collrun_ctx *ctx = job_get();                                                 \
        return ctx ? PyUnicode_DecodeFSDefault(function(ctx)) : NULL;                              \
    }
JOB_INT(rank, collrun_world_rank)
JOB_INT(world_size, collrun_world_size)
JOB_INT(local_rank, collrun_local_rank)
JOB_INT(local_size, collrun_local_size)
JOB_INT(gpu_count, collrun_gpu_count)
JOB_INT(attempt, collrun_attempt)
JOB_TEXT(host, collrun_host)
JOB_TEXT(run_id, collrun_run_id)
JOB_TEXT(run_dir, collrun_run_dir)
JOB_TEXT(address, collrun_address)

/* For extensions of the package, which are not on the stable ABI. */
static PyObject *job_context(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    struct collrun_ctx *ctx = job_get();
    return ctx ? PyCapsule_New(ctx, NULL, NULL) : NULL;
}

static PyObject *job_stopping(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    const struct collrun_ctx *ctx = job_get();
    return ctx ? PyBool_FromLong(collrun_stopping(ctx)) : NULL;
}

static PyObject *job_failed(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    const struct collrun_ctx *ctx = job_get();
    int n = ctx ? collrun_failed(ctx, NULL, 0) : 0;
    int *ranks = ctx ? PyMem_Malloc(((size_t)n + 1) * sizeof *ranks) : NULL;
    if (!ranks)
        return ctx ? PyErr_NoMemory() : NULL;
    int now = collrun_failed(ctx, ranks, n);
    n = now < n ? now : n;
    PyObject *list = PyList_New(n);
    for (int i = 0; list && i < n; i++)
        PyList_SetItem(list, i, PyLong_FromLong(ranks[i]));
    PyMem_Free(ranks);
    return list;
}

static int job_append_name(PyObject *list, const struct collrun_group *g)
{
    PyObject *name = PyUnicode_FromString(collrun_group_name(g));
    int rc = name ? PyList_Append(list, name) : -1;
    Py_XDECREF(name);
    return rc;
}

static PyObject *job_groups(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    struct collrun_ctx *ctx = job_get();
    PyObject *list = ctx ? PyList_New(0) : NULL;
    const struct collrun_group *g;
    int rc = 0;
    for (int i = 0; list && rc == 0 && (g = collrun_group_at(ctx, i)); i++)
        rc = job_append_name(list, g);
    if (rc == 0)
        return list;
    Py_DECREF(list);
    return NULL;
}

PyDoc_STRVAR(job_backend_available_doc,
             "backend_available(name)\n--\n\n"
             "None if groups can be created on the backend, as far as this rank can tell; else the "
             "reason.");
static PyObject *job_backend_available(PyObject *module, PyObject *args)
{
    (void)module;
    const char *name;
    char why[512];
    struct collrun_ctx *ctx;
    if (!PyArg_ParseTuple(args, "s:backend_available", &name) || !(ctx = job_get()))
        return NULL;
    if (collrun_backend_available(ctx, name, why, sizeof why) == COLLRUN_OK)
        Py_RETURN_NONE;
    return PyUnicode_FromString(why);
}

/* ---- reports ---- */

PyDoc_STRVAR(job_progress_doc, "progress(done, total=0, what='steps')\n--\n\n"
                               "Reports progress for the status line; total 0: unknown.");
/* For "O&". An integer of the caller that does not fit is an error; "K" would cut it. */
static int job_read_count(PyObject *value, void *out)
{
    PyObject *number = PyNumber_Index(value);
    const unsigned long long n = number ? PyLong_AsUnsignedLongLong(number) : 0;
    Py_XDECREF(number);
    *(uint64_t *)out = n;
    return !PyErr_Occurred();
}

static PyObject *job_progress(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"done", "total", "what", NULL};
    (void)module;
    uint64_t done, total = 0;
    const char *what = "steps";
    struct collrun_ctx *ctx;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&|O&s:progress", names, job_read_count, &done,
                                     job_read_count, &total, &what) ||
        !(ctx = job_get()))
        return NULL;
    collrun_progress(ctx, done, total, what);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(job_metric_doc,
             "metric(name, value)\n--\n\nReports a number for result.json of the run.");
static PyObject *job_metric(PyObject *module, PyObject *args)
{
    (void)module;
    const char *name;
    double value;
    struct collrun_ctx *ctx;
    if (!PyArg_ParseTuple(args, "sd:metric", &name, &value) || !(ctx = job_get()))
        return NULL;
    collrun_metric(ctx, name, value);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(job_log_doc, "log(text, level='info')\n--\n\n"
                          "A line on stderr of collrun, with this rank's label. level: error, "
                          "warn, info or debug.");
static PyObject *job_log(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"text", "level", NULL};
    static const char *const levels[] = {"error", "warn", "info", "debug"};
    (void)module;
    const char *text, *level = "info";
    struct collrun_ctx *ctx;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "s|s:log", names, &text, &level) ||
        !(ctx = job_get()))
        return NULL;
    int i = 0;
    while (i < 4 && strcmp(level, levels[i]) != 0)
        i++;
    if (i == 4) {
        PyErr_Format(PyExc_ValueError, "level: is error, warn, info or debug, not '%s'", level);
        return NULL;
    }
    collrun_log(ctx, (enum collrun_log_level)i, "%s", text);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(job_fail_doc, "fail(text)\n--\n\n"
                           "Sets the error message that the job's report shows if this rank "
                           "fails; the first one counts.");
static PyObject *job_fail(PyObject *module, PyObject *args)
{
    (void)module;
    const char *text;
    struct collrun_ctx *ctx;
    if (!PyArg_ParseTuple(args, "s:fail", &text) || !(ctx = job_get()))
        return NULL;
    collrun_fail(ctx, "%s", text);
    Py_RETURN_NONE;
}

/* For _report.py: _fail_exception(type, text, file or None, line, thread or None). */
static PyObject *job_fail_exception(PyObject *module, PyObject *args)
{
    struct collrun_exception e = {.size = sizeof e};
    struct collrun_ctx *ctx;
    (void)module;
    if (!PyArg_ParseTuple(args, "sszi|z:_fail_exception", &e.type, &e.text, &e.file, &e.line,
                          &e.thread) ||
        !(ctx = job_get()))
        return NULL;
    collrun_fail_exception(ctx, &e);
    Py_RETURN_NONE;
}

static PyObject *job_is_initialized(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    return PyBool_FromLong(job.ctx && !job_is_over());
}

#define JOB_KEYWORDS(name)                                                                         \
    {                                                                                              \
#name, (PyCFunction)(void (*)(void))job_##name, METH_VARARGS | METH_KEYWORDS,              \
            job_##name##_doc                                                                       \
    }
PyMethodDef job_methods[] = {
    {"rank", job_rank, METH_NOARGS, "rank()\n--\n\nThis process's rank in the job."},
    {"world_size", job_world_size, METH_NOARGS, "world_size()\n--\n\nThe number of ranks."},
    {"local_rank", job_local_rank, METH_NOARGS,
     "local_rank()\n--\n\nThis rank among the job's ranks on this host."},
    {"local_size", job_local_size, METH_NOARGS, "local_size()\n--\n\nThe number of those."},
    {"gpu_count", job_gpu_count, METH_NOARGS, "gpu_count()\n--\n\nGPUs that this rank owns."},
    {"attempt", job_attempt, METH_NOARGS,
     "attempt()\n--\n\n0, then 1, 2, ... when on_failure restarts the job."},
    {"host", job_host, METH_NOARGS, "host()\n--\n\nThis host, as job.yaml names it."},
    {"run_id", job_run_id, METH_NOARGS, "run_id()\n--\n\nThe same on all ranks."},
    {"run_dir", job_run_dir, METH_NOARGS,
     "run_dir()\n--\n\nThe directory of the run's logs; '' without logging.dir."},
    {"address", job_address, METH_NOARGS,
     "address()\n--\n\nThis host's numeric address on network.interface of job.yaml."},
    {"stopping", job_stopping, METH_NOARGS,
     "stopping()\n--\n\nTrue if the program should end soon."},
    {"failed", job_failed, METH_NOARGS,
     "failed()\n--\n\nThe world ranks that are known to have failed, in ascending order."},
    {"groups", job_groups, METH_NOARGS,
     "groups()\n--\n\nThe names of job.yaml's groups that this rank is in."},
    {"backend_available", job_backend_available, METH_VARARGS, job_backend_available_doc},
    {"_context", job_context, METH_NOARGS,
     "_context()\n--\n\nThe struct collrun_ctx of this process, as a capsule."},
    JOB_KEYWORDS(progress),
    {"metric", job_metric, METH_VARARGS, job_metric_doc},
    JOB_KEYWORDS(log),
    {"fail", job_fail, METH_VARARGS, job_fail_doc},
    {"_fail_exception", job_fail_exception, METH_VARARGS, NULL},
    {"finalize", job_finalize, METH_NOARGS, job_finalize_doc},
    {"is_initialized", job_is_initialized, METH_NOARGS,
     "is_initialized()\n--\n\nTrue between the first use of the job and finalize()."},
    {0}};
