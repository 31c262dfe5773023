/* SPDX-License-Identifier: Apache-2.0
 *
 * What is done before and after each call of MPI, by its shape; and when recording begins and ends.
 *
 * - MPI_Init: once it has returned, the rank is observed if its world is that of the job, the MPI
 * is known, and no other library stands between the program and it. Threads that appear meanwhile
 * are the library's, and call nothing.
 * - A call inside a call of the same thread (an MPI whose functions call each other by their public
 *   names, or a callback of the program) passes through. It could send what its caller does not
 *   show, so nothing of the rank is proven from then on (LOST_THREADS). A call that was left by
 *   longjmp or an exception looks the same until a call comes from a frame above it.
 * - MPI_Finalize: the last collective of the world.
 */
#include "taps/mpi/tap.h"

#include "base/preload.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct record_writer *_Atomic calls_writer; /* NULL: nothing is recorded */

static _Atomic bool calls_finalized;

static _Thread_local struct tap_call *calls_inside __attribute__((tls_model("initial-exec")));

/* ---- the threads of the library ---- */

struct calls_tids {
    uint32_t tids[RECORD_THREADS], n;
};

static void calls_read_tids(struct calls_tids *out)
{
    DIR *tasks = opendir("/proc/self/task");
    struct dirent *e;
    out->n = 0;
    while (tasks && (e = readdir(tasks)))
        if (atoi(e->d_name) > 0 && out->n < RECORD_THREADS)
            out->tids[out->n++] = (uint32_t)atoi(e->d_name);
    if (tasks)
        closedir(tasks);
}

/* More than there is room for are threads like any other: less is proven. */
static void calls_list_library(struct record_head *head, const struct calls_tids *before)
{
    struct calls_tids now;
    uint32_t n = 0;
    calls_read_tids(&now);
    for (uint32_t i = 0; i < now.n && n < RECORD_LIBRARY; i++) {
        bool old = false;
        for (uint32_t k = 0; k < before->n; k++)
            old = old || before->tids[k] == now.tids[i];
        if (!old)
            atomic_store(&head->library[n++], now.tids[i]);
    }
}

/* ---- MPI_Init ---- */

static struct calls_tids calls_before;

static int calls_ask(const char *name, word comm)
{
    int (*function)(word, int *);
    int value = -1;
    return tap_library_get(name, &function) && function(comm, &value) == 0 ? value : -1;
}

/* The world of MPI is the job: its ranks are those that records count. */
static bool calls_world_is_job(const struct record_head *head)
{
    const char *size = getenv("COLLRUN_WORLD_SIZE");
    return size && calls_ask("PMPI_Comm_rank", tap_library.comm_world) == (int)head->rank &&
           calls_ask("PMPI_Comm_size", tap_library.comm_world) == atoi(size);
}

static enum record_level calls_level(int provided)
{
    /* MPI_THREAD_SINGLE is 0 to MPI_THREAD_MULTIPLE 3, but MPI 5 leaves room between them. */
    const int one = provided >= 1024 ? 1024 : 1;
    return provided >= 3 * one   ? RECORD_LEVEL_MULTIPLE
           : provided >= 2 * one ? RECORD_LEVEL_SERIALIZED
                                 : RECORD_LEVEL_FUNNELED;
}

static void calls_start(int provided)
{
    struct record_head *head = tap_record();
    enum record_unobserved why = RECORD_UNOBSERVED_NONE;
    if (!tap_library_open())
        why = RECORD_UNOBSERVED_LIBRARY;
    else if (!tap_library_is_alone())
        why = RECORD_UNOBSERVED_TOOL;
    else if (tap_library.abi == TAP_OPEN_MPI && tap_library_find("mpi_send_"))
        why = RECORD_UNOBSERVED_FORTRAN; /* it calls PMPI_Send; that of MPICH calls MPI_Send */
    else if (atomic_load(&head->member))
        why = RECORD_UNOBSERVED_MEMBER;
    else if (!calls_world_is_job(head))
        why = RECORD_UNOBSERVED_WORLD;
    struct record_writer *w =
        why ? NULL : record_writer_open(head, RECORD_TAP_MPI, calls_level(provided));
    if (!w) {
        atomic_store(&head->unobserved, (uint32_t)(why ? why : RECORD_UNOBSERVED_MEMORY));
        return;
    }
    calls_list_library(head, &calls_before);
    tap_signals_end(head);
    memcpy(head->library_name, tap_library.name, sizeof head->library_name);
    atomic_store(&head->unobserved, RECORD_UNOBSERVED_NONE);
    tap_comm_start(w);
    tap_check_start();
    atomic_store(&calls_writer, w);
}

static bool calls_init_begin(struct tap_call *c)
{
    if (!tap_record() || atomic_load(&calls_writer))
        return false;
    calls_read_tids(&calls_before);
    tap_signals_begin();
    c->writer = NULL;
    return true;
}

/* The level that MPI provides, also after MPI_Init: variables may have raised it there. Without an
 * answer any thread may call. */
static int calls_provided(void)
{
    int (*function)(int *), value = INT_MAX;
    return tap_library_get("PMPI_Query_thread", &function) && function(&value) == 0 ? value
                                                                                    : INT_MAX;
}

static void calls_init_end(struct tap_call *c, int rc)
{
    (void)c;
    if (rc == 0)
        calls_start(calls_provided());
}

/* ---- collectives, and what makes communicators ---- */

static bool calls_collective_begin(struct tap_call *c)
{
    c->thread = record_enter(c->writer);
    if (!c->thread)
        return false;
    tap_collective_begin(c);
    const bool blocks = !c->function->at.request;
    if (c->function->shape == TAP_FORM)
        c->request.made = ++c->comm->made;
    if (blocks)
        record_begin(c->writer, c->thread, &c->request.parts[0]);
    else
        c->request.posted[0] = record_post(c->writer, c->thread, &c->request.parts[0], &c->at);
    if (c->function->shape == TAP_FINALIZE)
        record_finish(c->writer);
    record_inside(c->thread, blocks ? RECORD_ALL : RECORD_NONE, &c->at);
    return true;
}

/* The request of a nonblocking form; MPI may have completed it at once. */
static void calls_collective_posted(struct tap_call *c, int rc)
{
    struct tap_request *r = &c->request;
    if (rc != 0 ||
        tap_handle_at(tap_argument(c, c->function->at.request), 0) == tap_library.request_null) {
        tap_collective_end(r, rc == 0 ? RECORD_DONE : RECORD_FAILED);
        record_close(c->writer, r->posted[0]);
        return;
    }
    r->newcomm = c->function->at.newcomm ? tap_argument(c, c->function->at.newcomm) : 0;
    r->active = true;
    tap_request_keep(c, tap_handle_at(tap_argument(c, c->function->at.request), 0));
}

static void calls_collective_end(struct tap_call *c, int rc)
{
    record_leave(c->thread);
    if (c->function->at.request) {
        calls_collective_posted(c, rc);
    } else {
        tap_collective_end(&c->request, rc == 0 ? RECORD_DONE : RECORD_FAILED);
        if (rc == 0 && c->request.made)
            tap_comm_add(c->comm, c->request.made,
                         tap_handle_at(tap_argument(c, c->function->at.newcomm), 0));
    }
    record_outside(c->thread);
}

/* ---- objects ---- */

/* Before the call, and also for one inside another call. */
static void calls_free_object(const struct tap_call *c)
{
    const uint8_t object = c->function->at.object, comm = c->function->at.newcomm;
    const uint8_t at = object ? object : comm;
    const word handle = at && tap_argument(c, at) ? tap_handle_at(tap_argument(c, at), 0) : 0;
    switch ((enum tap_shape)c->function->shape) {
    case TAP_FREE_COMM:
        tap_object_remove(TAP_COMM, handle);
        return;
    case TAP_FREE_TYPE:
        tap_type_forget();
        tap_object_remove(TAP_TYPE, handle);
        return;
    case TAP_FREE_OP:
        tap_type_forget();
        tap_object_remove(TAP_OP, handle);
        return;
    case TAP_FREE_GROUP:
        tap_object_remove(TAP_GROUP, handle);
        return;
    case TAP_FREE_WIN:
        tap_object_remove(TAP_WIN, handle);
        return;
    default:
        return;
    }
}

static void calls_add_object(const struct tap_call *c, enum tap_object kind, uint8_t at)
{
    const char *name = tap_name(c->function);
    /* Processes that were spawned are there until they end. */
    const bool kept = c->function->shape == TAP_MAKE_COMM && strncmp(name, "MPI_Inter", 9) != 0;
    const word handle = tap_handle_at(tap_argument(c, at), 0);
    tap_object_add(kind, handle, name, c->at.site, kept);
    if (kind == TAP_TYPE && c->function->at.type == 1 && at == 2 && /* MPI_Type_dup */
        tap_object_state(TAP_TYPE, tap_handle(tap_argument(c, 1))) != TAP_OBJECT_MADE)
        tap_object_commit(handle);
}

/* The call has succeeded. */
static void calls_note_object(const struct tap_call *c)
{
    const struct tap_arguments *at = &c->function->at;
    switch ((enum tap_shape)c->function->shape) {
    case TAP_FORM:
    case TAP_FORM_GROUP:
        if (!at->request)
            calls_add_object(c, TAP_COMM, at->newcomm);
        return;
    case TAP_MAKE_COMM:
        calls_add_object(c, TAP_COMM, at->object);
        return;
    case TAP_MAKE_TYPE:
        calls_add_object(c, TAP_TYPE, at->object);
        tap_type_forget();
        return;
    case TAP_COMMIT_TYPE:
        tap_object_commit(tap_handle_at(tap_argument(c, at->object), 0));
        tap_type_forget();
        return;
    case TAP_MAKE_OP:
        calls_add_object(c, TAP_OP, at->object);
        return;
    case TAP_MAKE_GROUP:
        calls_add_object(c, TAP_GROUP, at->object);
        return;
    case TAP_MAKE_WIN:
        calls_add_object(c, TAP_WIN, at->object);
        return;
    case TAP_FINALIZE: /* delete functions of attributes have run */
        tap_requests_report(c->writer->head);
        tap_objects_report(c->writer->head);
        atomic_store(&calls_finalized, true);
        return;
    default:
        return;
    }
}

/* ---- mistakes ---- */

/* The library may not return from the call. */
static void calls_mistake_begin(struct tap_call *c)
{
    const struct record_group *group = c->comm ? c->comm->collectives.group : NULL;
    struct record_failure f = {
        .status = COLLRUN_ERR_INVALID, .at = record_queue_now(c->writer->head), .site = c->at.site};
    snprintf(f.text, sizeof f.text, "%s%s%s: %s", tap_name(c->function), group ? " in " : "",
             group ? group->name : "", c->mistake);
    record_queue_note_failure(c->writer->head, &f);
}

/* What a library returns is for the program to handle. */
static void calls_mistake_end(struct tap_call *c, int rc)
{
    char text[sizeof c->mistake + 64];
    if (rc != 0)
        return;
    record_queue_note_failure(c->writer->head, &(struct record_failure){0});
    snprintf(text, sizeof text, "%s: %s", tap_name(c->function), c->mistake);
    if (c->certain)
        record_queue_note_mistake(c->writer->head, RECORD_MISTAKE_CALL, c->at.site, text);
}

/* ---- any call ---- */

/* The writer, if this call is to be recorded. */
static struct record_writer *calls_enter(struct tap_call *c)
{
    struct record_writer *w = atomic_load_explicit(&calls_writer, memory_order_acquire);
    if (!w || !w->head || /* a child of fork() */
        atomic_load_explicit(&w->head->tap, memory_order_relaxed) != RECORD_TAP_MPI)
        return NULL;
    if (calls_inside && (uintptr_t)c < (uintptr_t)calls_inside) {
        if (c->function->number)
            atomic_fetch_or(&w->head->lost, RECORD_LOST_THREADS);
        calls_free_object(c);
        return NULL;
    }
    return w;
}

static bool calls_begin(struct tap_call *c)
{
    switch ((enum tap_shape)c->function->shape) {
    case TAP_FINALIZE:
    case TAP_COLLECTIVE:
    case TAP_FORM:
        return c->comm && calls_collective_begin(c);
    case TAP_SEND:
    case TAP_RECV:
    case TAP_SENDRECV:
    case TAP_INIT_MESSAGE:
    case TAP_PROBE:
    case TAP_IMPROBE:
        return c->comm && tap_message_begin(c);
    case TAP_WAIT:
    case TAP_TEST:
        return tap_wait_begin(c);
    case TAP_START:
    case TAP_CANCEL:
    case TAP_FREE_REQUEST:
        return tap_request_begin(c);
    case TAP_FREE_COMM: /* before MPI gives the handle to a new one */
        tap_comm_remove(tap_handle_at(tap_argument(c, c->function->at.newcomm), 0));
        return false;
    case TAP_FORM_GROUP:
    case TAP_NAME_COMM:
    case TAP_INIT:
        return c->comm != NULL;
    default:
        return false;
    }
}

bool tap_call_begin(struct tap_call *c, const struct tap_function *f, word *args, void *site)
{
    c->function = f;
    c->args = args;
    c->thread = NULL;
    if (f->shape == TAP_INIT)
        return calls_init_begin(c);
    c->writer = calls_enter(c);
    if (!c->writer)
        return false;
    c->at = (struct record_at){.site = (uintptr_t)site};
    c->comm = f->shape == TAP_FINALIZE ? tap_comm_find(tap_library.comm_world)
              : f->at.comm             ? tap_comm_find(args[f->at.comm - 1])
                                       : NULL;
    if (atomic_load_explicit(&calls_finalized, memory_order_relaxed))
        tap_check_finalized(c);
    else
        tap_check(c);
    if (c->mistaken)
        calls_mistake_begin(c);
    c->recorded = !c->wild && calls_begin(c);
    if (c->recorded)
        calls_inside = c;
    if (!c->wild)
        calls_free_object(c);
    return true;
}

static void calls_end(struct tap_call *c, int rc)
{
    switch ((enum tap_shape)c->function->shape) {
    case TAP_INIT:
        return;
    case TAP_FINALIZE:
    case TAP_COLLECTIVE:
    case TAP_FORM:
        calls_collective_end(c, rc);
        break;
    case TAP_WAIT:
    case TAP_TEST:
        tap_wait_end(c, rc);
        break;
    case TAP_START:
    case TAP_CANCEL:
    case TAP_FREE_REQUEST:
        tap_request_end(c, rc);
        break;
    case TAP_FORM_GROUP:
        if (rc == 0)
            tap_comm_add_group(c->comm, tap_int(c, c->function->at.tag),
                               tap_handle_at(tap_argument(c, c->function->at.newcomm), 0));
        break;
    case TAP_NAME_COMM:
        if (rc == 0)
            tap_comm_rename(c->comm,
                            (const char *)(uintptr_t)tap_argument(c, c->function->at.name));
        break;
    default:
        tap_message_end(c, rc);
    }
    calls_inside = NULL;
}

void tap_call_end(struct tap_call *c, int rc)
{
    if (c->function->shape == TAP_INIT) {
        calls_init_end(c, rc);
        return;
    }
    if (c->recorded)
        calls_end(c, rc);
    if (c->mistaken)
        calls_mistake_end(c, rc);
    if (rc == 0)
        calls_note_object(c);
}

/* Threads that are in calls end them as they began. */
void tap_calls_stop(void)
{
    atomic_store(&calls_writer, NULL);
}
