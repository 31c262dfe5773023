/* SPDX-License-Identifier: Apache-2.0
 *
 * Open MPI, of which a process has one. It is entered by one thread at a time: progress that one
 * group makes is progress of all, so nothing is gained by more. It starts with the first group and
 * stays until close.
 *
 * Open MPI ends the process when it finds no way on, say when a peer's socket breaks in the middle
 * of a message. It tells the process manager first, which is pmi.c; from there, library_escape
 * jumps back to where MPI was entered. MPI is lost then: it is not entered again, every group fails
 * with the reason, and the process lives.
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

static _Thread_local jmp_buf *way_out; /* of this thread, while it is inside MPI */

/* ---- inside and out ---- */

void library_lose(struct library *library, const char *format, ...)
{
    va_list ap;
    if (!atomic_exchange(&library->losing, true)) {
        va_start(ap, format);
        vsnprintf(library->why, sizeof library->why, format, ap);
        va_end(ap);
        atomic_store(&library->lost, true);
    }
    while (!atomic_load(&library->lost))
        ; /* another thread is writing the reason */
}

_Noreturn void library_escape(void)
{
    if (way_out)
        longjmp(*way_out, 1);
    for (;;)
        pause(); /* a thread of Open MPI's own */
}

int library_guard(struct library *library, int (*fn)(void *arg), void *arg)
{
    jmp_buf here;
    if (atomic_load(&library->lost) || setjmp(here)) {
        way_out = NULL;
        return COLLRUN_ERR_BACKEND;
    }
    way_out = &here;
    int rc = fn(arg);
    way_out = NULL;
    return rc;
}

int library_enter(struct library *library, int (*fn)(void *arg), void *arg)
{
    pthread_mutex_lock(&library->lock);
    int rc = library_guard(library, fn, arg);
    pthread_mutex_unlock(&library->lock);
    return rc;
}

int library_thread(pthread_t *thread, void *(*fn)(void *arg), void *arg)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    int rc = pthread_create(thread, NULL, fn, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

/* ---- the keeper ---- */

static int poke(void *arg)
{
    int flag;
    (void)arg;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &flag, MPI_STATUS_IGNORE);
    return COLLRUN_OK;
}

static void *keep(void *arg)
{
    struct library *library = arg;
    while (!atomic_load(&library->closing)) {
        library_enter(library, poke, NULL);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return NULL;
}

/* Shared memory takes a small message at once. A socket may not, and Open MPI sends the rest when
 * it is next entered, while the rank may be off to compute. */
static int keep_if_needed(struct library *library, const struct collrun_group_desc *desc)
{
    const struct collrun_services *s = desc->services;
    bool far = false;
    for (uint32_t i = 0; i < desc->nranks; i++)
        far = far || !library->near[desc->world_rank[i]];
    pthread_mutex_lock(&library->lock);
    int error = far && !library->keeps ? library_thread(&library->keeper, keep, library) : 0;
    library->keeps = library->keeps || (far && !error);
    pthread_mutex_unlock(&library->lock);
    return error ? s->fail(s->ctx, COLLRUN_ERR_SYSTEM, "no thread: %s", strerror(error))
                 : COLLRUN_OK;
}

/* ---- members ---- */

int library_is_lost(struct library *library, const struct collrun_group_desc *desc)
{
    const struct collrun_services *s = desc->services;
    return s->fail(s->ctx, COLLRUN_ERR_BACKEND, "%s", library->why);
}

static int check_members(struct library *library, const struct collrun_group_desc *desc)
{
    const struct collrun_services *s = desc->services;
    uint32_t me = desc->world_rank[desc->rank];
    for (uint32_t i = 0; i < desc->nranks; i++) {
        if (desc->world_rank[i] >= WORLD_SIZE)
            return s->fail(s->ctx, COLLRUN_ERR_UNSUPPORTED,
                           "rank %u: this backend knows ranks up to %d", desc->world_rank[i],
                           WORLD_SIZE - 1);
    }
    if (library->running && library->rank != me)
        return s->fail(s->ctx, COLLRUN_ERR_UNSUPPORTED,
                       "ranks %u and %u are in one process, and MPI in a process is one rank",
                       library->rank, me);
    return COLLRUN_OK;
}

/* Who has MPI running says so by its card; who has not, by a word that is no card. */
static int ask_members(struct library *library, const struct collrun_group_desc *desc, bool *fresh)
{
    const struct collrun_rendezvous *rendezvous = desc->rendezvous;
    char key[32];
    size_t len = 1;
    const char *card = library->running ? pmi_card(&len) : "-";
    snprintf(key, sizeof key, "state.%u", desc->rank);
    int rc = rendezvous->put(rendezvous->ctx, key, card, len);
    for (uint32_t i = 0; i < desc->nranks && rc == COLLRUN_OK; i++)
        rc = pmi_learn(desc, "state", i, &fresh[i]);
    return rc;
}

/* Members that start MPI now do so together, and show their cards on the way. */
static int meet_members(struct library *library, const struct collrun_group_desc *desc, bool *fresh)
{
    int rc = ask_members(library, desc, fresh);
    if (rc == COLLRUN_OK && !library->running)
        return pmi_start(library, desc, fresh);
    for (uint32_t i = 0; i < desc->nranks && rc == COLLRUN_OK; i++)
        if (fresh[i])
            rc = pmi_learn(desc, "card", i, NULL);
    return rc;
}

int library_join(struct library *library, const struct collrun_group_desc *desc)
{
    const struct collrun_services *s = desc->services;
    bool *fresh = calloc(desc->nranks, sizeof *fresh);
    if (!fresh)
        return s->fail(s->ctx, COLLRUN_ERR_NO_MEMORY, "out of memory");
    pthread_mutex_lock(&library->opening);
    bool starts = !library->running;
    if (!starts)
        pthread_mutex_unlock(&library->opening);
    int rc =
        atomic_load(&library->lost) ? library_is_lost(library, desc) : check_members(library, desc);
    if (rc == COLLRUN_OK)
        rc = meet_members(library, desc, fresh);
    if (starts)
        pthread_mutex_unlock(&library->opening);
    free(fresh);
    return rc == COLLRUN_OK ? keep_if_needed(library, desc) : rc;
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

static int finalize(void *arg)
{
    (void)arg;
    return MPI_Finalize() == MPI_SUCCESS ? COLLRUN_OK : COLLRUN_ERR_BACKEND;
}

/* MPI that is lost, or has operations of failed groups, is left to the end of the process, and with
 * it this struct. */
void library_free(struct library *library)
{
    atomic_store(&library->closing, true);
    if (library->keeps)
        pthread_join(library->keeper, NULL);
    if (atomic_load(&library->lost) || atomic_load(&library->dirty))
        return;
    if (library->running && library_enter(library, finalize, NULL) != COLLRUN_OK)
        return;
    communicators_free(library);
    pthread_mutex_destroy(&library->lock);
    pthread_mutex_destroy(&library->opening);
    free(library);
}
