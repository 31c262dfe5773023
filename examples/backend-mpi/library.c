/* SPDX-License-Identifier: Apache-2.0
 *
 * Open MPI, one per process.
 *
 * - It is entered by one thread at a time: a thread that progresses one group progresses all, so
 *   more threads would gain nothing. It starts with the first group and runs until close.
 * - Open MPI exits the process on errors that it cannot handle, such as a socket that breaks in the
 *   middle of a message. It first reports to the process manager, which is pmi.c; from there,
 *   library_escape jumps back to where MPI was entered. MPI has failed then: it is not entered
 *   again, every group fails with the reason, and the process continues.
 */
#include "mpi_backend.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static _Thread_local jmp_buf *escape_point; /* of this thread, while it is inside MPI */

/* ---- entering MPI, and leaving it after a failure ---- */

void library_fail(struct library *library, const char *format, ...)
{
    va_list ap;
    if (!atomic_exchange(&library->failing, true)) {
        va_start(ap, format);
        vsnprintf(library->why, sizeof library->why, format, ap);
        va_end(ap);
        atomic_store(&library->failed, true);
    }
    while (!atomic_load(&library->failed))
        ; /* another thread is writing the reason */
}

_Noreturn void library_escape(void)
{
    if (escape_point)
        longjmp(*escape_point, 1);
    for (;;)
        pause(); /* a thread that Open MPI has started */
}

static int library_run(struct library *library, int (*fn)(void *arg), void *arg)
{
    jmp_buf here;
    if (atomic_load(&library->failed) || setjmp(here)) {
        escape_point = NULL;
        return COLLRUN_ERR_BACKEND;
    }
    escape_point = &here;
    int rc = fn(arg);
    escape_point = NULL;
    return rc;
}

/* Open MPI writes to sockets of dead peers without MSG_NOSIGNAL. */
int library_guard(struct library *library, int (*fn)(void *arg), void *arg)
{
    sigset_t sigpipe, before;
    if (!atomic_load(&library->has_sockets))
        return library_run(library, fn, arg);
    sigemptyset(&sigpipe);
    sigaddset(&sigpipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &sigpipe, &before);
    int rc = library_run(library, fn, arg);
    if (!sigismember(&before, SIGPIPE)) {
        sigtimedwait(&sigpipe, NULL, &(struct timespec){0});
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    return rc;
}

int library_enter(struct library *library, int (*fn)(void *arg), void *arg)
{
    pthread_mutex_lock(&library->lock);
    int rc = library_guard(library, fn, arg);
    pthread_mutex_unlock(&library->lock);
    return rc;
}

/* ---- the progress thread ---- */

int library_poll(void *arg)
{
    const struct library *library = arg;
    int flag;
    if (atomic_load(&library->has_sockets))
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &flag, MPI_STATUS_IGNORE);
    return COLLRUN_OK;
}

static void *library_progress_main(void *arg)
{
    struct library *library = arg;
    while (!atomic_load(&library->closing)) {
        library_enter(library, library_poll, library);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return NULL;
}

/* Shared memory takes a small message at once. A socket may not, and Open MPI sends the rest only
 * when it is next entered, which may be late if the rank computes meanwhile. */
static int library_start_progress(struct library *library, const struct collrun_group_desc *desc)
{
    const struct collrun_services *s = desc->services;
    bool has_sockets = false;
    for (uint32_t i = 0; i < desc->nranks; i++)
        has_sockets = has_sockets || !library->shares_memory[desc->world_rank[i]];
    int rc = COLLRUN_OK;
    pthread_mutex_lock(&library->lock);
    if (has_sockets && !library->has_sockets) {
        rc = s->thread_start(s->ctx, library_progress_main, library, &library->progress_thread);
        atomic_store(&library->has_sockets, rc == COLLRUN_OK);
    }
    pthread_mutex_unlock(&library->lock);
    return rc;
}

/* ---- members ---- */

int library_failure(struct library *library, const struct collrun_group_desc *desc)
{
    const struct collrun_services *s = desc->services;
    return s->fail(s->ctx, COLLRUN_ERR_BACKEND, "%s", library->why);
}

static int library_check_members(struct library *library, const struct collrun_group_desc *desc)
{
    const struct collrun_services *s = desc->services;
    uint32_t me = desc->world_rank[desc->rank];
    for (uint32_t i = 0; i < desc->nranks; i++) {
        if (desc->world_rank[i] >= WORLD_SIZE)
            return s->fail(s->ctx, COLLRUN_ERR_UNSUPPORTED,
                           "rank %u: this backend supports ranks up to %d", desc->world_rank[i],
                           WORLD_SIZE - 1);
    }
    if (library->running && library->rank != me)
        return s->fail(s->ctx, COLLRUN_ERR_UNSUPPORTED,
                       "ranks %u and %u are in one process; MPI supports one rank per process",
                       library->rank, me);
    return COLLRUN_OK;
}

/* Finds the members that start MPI now: a member that runs MPI publishes its modex, any other "-".
 */
static int library_find_starting(struct library *library, const struct collrun_group_desc *desc,
                                 bool *starting)
{
    const struct collrun_rendezvous *rendezvous = desc->rendezvous;
    char key[32];
    size_t len = 1;
    const char *modex = library->running ? pmi_modex(&len) : "-";
    snprintf(key, sizeof key, "state.%u", desc->rank);
    int rc = rendezvous->put(rendezvous->ctx, key, modex, len);
    for (uint32_t i = 0; i < desc->nranks && rc == COLLRUN_OK; i++)
        rc = pmi_learn(desc, "state", i, &starting[i]);
    return rc;
}

/* Members that start MPI now do so together, and exchange their modexes while they do. */
static int library_learn_members(struct library *library, const struct collrun_group_desc *desc,
                                 bool *starting)
{
    int rc = library_find_starting(library, desc, starting);
    if (rc == COLLRUN_OK && !library->running)
        return pmi_start(library, desc, starting);
    for (uint32_t i = 0; i < desc->nranks && rc == COLLRUN_OK; i++)
        if (starting[i])
            rc = pmi_learn(desc, "modex", i, NULL);
    return rc;
}

int library_join(struct library *library, const struct collrun_group_desc *desc)
{
    const struct collrun_services *s = desc->services;
    bool *starting = calloc(desc->nranks, sizeof *starting);
    if (!starting)
        return s->fail(s->ctx, COLLRUN_ERR_NO_MEMORY, "out of memory");
    pthread_mutex_lock(&library->opening);
    bool starts = !library->running;
    if (!starts)
        pthread_mutex_unlock(&library->opening);
    int rc = atomic_load(&library->failed) ? library_failure(library, desc)
                                           : library_check_members(library, desc);
    if (rc == COLLRUN_OK)
        rc = library_learn_members(library, desc, starting);
    if (starts)
        pthread_mutex_unlock(&library->opening);
    free(starting);
    return rc == COLLRUN_OK ? library_start_progress(library, desc) : rc;
}

/* ---- life ---- */

struct library *library_new(void)
{
    struct library *library = calloc(1, sizeof *library);
    if (!library)
        return NULL;
    pthread_mutex_init(&library->opening, NULL);
    pthread_mutex_init(&library->lock, NULL);
    return library;
}

static int library_finalize(void *arg)
{
    communicators_cancel(arg);
    return MPI_Finalize() == MPI_SUCCESS ? COLLRUN_OK : COLLRUN_ERR_BACKEND;
}

/* If MPI has failed, or may still use memory of abandoned operations, it stays until the process
 * ends, and with it this struct. */
void library_free(struct library *library)
{
    atomic_store(&library->closing, true);
    if (library->has_sockets)
        pthread_join(library->progress_thread, NULL);
    if (atomic_load(&library->failed) || atomic_load(&library->dirty))
        return;
    if (library->running && library_enter(library, library_finalize, library) != COLLRUN_OK)
        return;
    communicators_free(library);
    pthread_mutex_destroy(&library->lock);
    pthread_mutex_destroy(&library->opening);
    free(library);
}
