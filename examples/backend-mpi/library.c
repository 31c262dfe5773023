/* SPDX-License-Identifier: Apache-2.0
 *
 * Open MPI, of which a process has one. It is entered by one thread at a time: progress that one group makes is progress of
 * all, so nothing is gained by more. It starts with the first group and stays until close.
 *
 * Communicators come from MPI_Comm_create_group, which only the members call, and are kept for the next group of the same
 * members. Making one blocks in MPI; a thread does it, so that a member that dies meanwhile costs a time-out and no hang.
 *
 * Open MPI ends the process when it finds no way on, say when a peer's socket breaks in the middle of a message. It tells
 * the process manager first, which is pmi.c; from there, library_escape jumps back to where MPI was entered. MPI is lost
 * then: it is not entered again, every group fails with the reason, and the process lives.
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

enum { CREATE_SECONDS = 30 };

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

/* With all signals blocked: they are the engine's business. */
static int start_thread(pthread_t *thread, void *(*fn)(void *arg), void *arg)
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

/* Shared memory takes a small message at once. A socket may not, and Open MPI sends the rest when it is next entered, while
 * the rank may be off to compute. */
static int keep_if_needed(struct library *library, const struct collrun_group_desc *desc)
{
    const struct collrun_services *s = desc->services;
    bool far = false;
    for (uint32_t i = 0; i < desc->nranks; i++)
        far = far || !library->near[desc->world_rank[i]];
    pthread_mutex_lock(&library->lock);
    int error = far && !library->keeps ? start_thread(&library->keeper, keep, library) : 0;
    library->keeps = library->keeps || (far && !error);
    pthread_mutex_unlock(&library->lock);
    return error ? s->fail(s->ctx, COLLRUN_ERR_SYSTEM, "no thread: %s", strerror(error)) : COLLRUN_OK;
}

/* ---- members ---- */

static int lost(struct library *library, const struct collrun_group_desc *desc)
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
            return s->fail(s->ctx, COLLRUN_ERR_UNSUPPORTED, "rank %u: this backend knows ranks up to %d",
                           desc->world_rank[i], WORLD_SIZE - 1);
    }
    if (library->running && library->rank != me)
        return s->fail(s->ctx, COLLRUN_ERR_UNSUPPORTED, "ranks %u and %u are in one process, and MPI in a process is one rank",
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
    int rc = atomic_load(&library->lost) ? lost(library, desc) : check_members(library, desc);
    if (rc == COLLRUN_OK)
        rc = meet_members(library, desc, fresh);
    if (starts)
        pthread_mutex_unlock(&library->opening);
    free(fresh);
    return rc == COLLRUN_OK ? keep_if_needed(library, desc) : rc;
}

/* ---- communicators ---- */

struct creation {
    struct library *library;
    struct spare *spare;
    int *ranks;
    int status, error; /* error: MPI's */
};

static int create_inside(void *arg)
{
    struct creation *c = arg;
    struct spare *spare = c->spare;
    MPI_Group world, members;
    /* No two groups that a rank forms at the same time may have the same number. */
    int tag = (int)(spare->id >> 32 | (spare->id & 0xffff) << 14);
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    c->error = MPI_Group_incl(world, (int)spare->nranks, c->ranks, &members);
    if (c->error == MPI_SUCCESS)
        c->error = MPI_Comm_create_group(MPI_COMM_WORLD, members, tag, &spare->comm);
    return c->error == MPI_SUCCESS ? COLLRUN_OK : COLLRUN_ERR_BACKEND;
}

static void *create(void *arg)
{
    struct creation *c = arg;
    c->status = library_guard(c->library, create_inside, c);
    return NULL;
}

static void creation_free(struct creation *c)
{
    if (c && c->spare)
        free(c->spare->world_rank);
    if (c)
        free(c->spare);
    if (c)
        free(c->ranks);
    free(c);
}

static struct creation *creation_new(struct library *library, const struct collrun_group_desc *desc, uint64_t id)
{
    struct creation *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    c->library = library;
    c->spare = calloc(1, sizeof *c->spare);
    c->ranks = calloc(desc->nranks, sizeof *c->ranks);
    if (c->spare)
        c->spare->world_rank = calloc(desc->nranks, sizeof *c->spare->world_rank);
    if (!c->spare || !c->ranks || !c->spare->world_rank) {
        creation_free(c);
        return NULL;
    }
    c->spare->id = id;
    c->spare->nranks = desc->nranks;
    for (uint32_t i = 0; i < desc->nranks; i++) {
        c->spare->world_rank[i] = desc->world_rank[i];
        c->ranks[i] = (int)desc->world_rank[i];
    }
    return c;
}

/* What a thread that never comes back still uses is never freed. */
static int create_in_time(struct creation *c, const struct collrun_group_desc *desc)
{
    const struct collrun_services *s = desc->services;
    struct timespec end;
    pthread_t thread;
    int error = start_thread(&thread, create, c);
    if (error)
        return s->fail(s->ctx, COLLRUN_ERR_SYSTEM, "no thread: %s", strerror(error));
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += CREATE_SECONDS;
    if (pthread_timedjoin_np(thread, NULL, &end) != 0) {
        pthread_detach(thread);
        library_lose(c->library, "MPI_Comm_create_group did not return within %d s", CREATE_SECONDS);
        return lost(c->library, desc);
    }
    if (c->status != COLLRUN_OK && c->error != MPI_SUCCESS) {
        char text[MPI_MAX_ERROR_STRING];
        int len;
        MPI_Error_string(c->error, text, &len);
        library_lose(c->library, "MPI_Comm_create_group: %s", text);
    }
    return c->status == COLLRUN_OK ? COLLRUN_OK : lost(c->library, desc);
}

static int make_communicator(struct library *library, const struct collrun_group_desc *desc, uint64_t id, struct spare **out)
{
    const struct collrun_services *s = desc->services;
    struct creation *c = creation_new(library, desc, id);
    if (!c)
        return s->fail(s->ctx, COLLRUN_ERR_NO_MEMORY, "out of memory");
    int rc = create_in_time(c, desc);
    if (rc != COLLRUN_OK)
        return rc; /* MPI is lost, and with it `c`, which it may still hold */
    *out = c->spare;
    c->spare = NULL;
    creation_free(c);
    return COLLRUN_OK;
}

/* What a member brings: the communicators it has left over from groups of the same members, and the number for a new one,
 * which the first member's offer decides. */
struct offer {
    uint64_t next_id;
    uint64_t ids[MAX_OFFERS]; /* 0 = no more */
};

static bool same_members(const struct spare *spare, const struct collrun_group_desc *desc)
{
    return spare->nranks == desc->nranks &&
           memcmp(spare->world_rank, desc->world_rank, desc->nranks * sizeof *spare->world_rank) == 0;
}

/* What is offered is nobody else's until it is given back. */
static void make_offer(struct library *library, const struct collrun_group_desc *desc, struct spare **offered,
                       struct offer *offer)
{
    uint32_t n = 0;
    pthread_mutex_lock(&library->lock);
    offer->next_id = (uint64_t)library->rank << 32 | ++library->communicators;
    for (struct spare **p = &library->spares; *p && n < MAX_OFFERS;) {
        struct spare *spare = *p;
        if (!same_members(spare, desc)) {
            p = &spare->next;
            continue;
        }
        *p = spare->next;
        offer->ids[n++] = spare->id;
        spare->next = *offered;
        *offered = spare;
    }
    pthread_mutex_unlock(&library->lock);
}

static bool offers(const struct offer *offer, uint64_t id)
{
    for (uint32_t i = 0; i < MAX_OFFERS; i++)
        if (offer->ids[i] == id)
            return true;
    return false;
}

/* All members come to the same result: the lowest number that everybody offers; 0 = none. */
static int choose(const struct collrun_group_desc *desc, const struct offer *mine, uint64_t *id, uint64_t *next_id)
{
    const struct collrun_rendezvous *rendezvous = desc->rendezvous;
    struct offer common = *mine, theirs;
    char key[32];
    size_t len;
    for (uint32_t i = 0; i < desc->nranks; i++) {
        snprintf(key, sizeof key, "offer.%u", i);
        int rc = rendezvous->get(rendezvous->ctx, key, &theirs, sizeof theirs, &len);
        if (rc != COLLRUN_OK)
            return rc;
        *next_id = i == 0 ? theirs.next_id : *next_id;
        for (uint32_t k = 0; k < MAX_OFFERS; k++)
            common.ids[k] = offers(&theirs, common.ids[k]) ? common.ids[k] : 0;
    }
    *id = 0;
    for (uint32_t k = 0; k < MAX_OFFERS; k++)
        if (common.ids[k] && (*id == 0 || common.ids[k] < *id))
            *id = common.ids[k];
    return COLLRUN_OK;
}

int library_take(struct library *library, const struct collrun_group_desc *desc, struct spare **out, uint64_t *id)
{
    const struct collrun_rendezvous *rendezvous = desc->rendezvous;
    struct offer offer = {0};
    struct spare *offered = NULL, *found = NULL;
    uint64_t common = 0;
    char key[32];
    make_offer(library, desc, &offered, &offer);
    snprintf(key, sizeof key, "offer.%u", desc->rank);
    int rc = rendezvous->put(rendezvous->ctx, key, &offer, sizeof offer);
    if (rc == COLLRUN_OK)
        rc = rendezvous->fence(rendezvous->ctx);
    if (rc == COLLRUN_OK)
        rc = choose(desc, &offer, &common, id);
    for (struct spare *spare = offered, *next; spare; spare = next) {
        next = spare->next;
        if (rc == COLLRUN_OK && spare->id == common)
            found = spare;
        else
            library_give(library, spare);
    }
    if (rc == COLLRUN_OK && !found)
        rc = make_communicator(library, desc, *id, &found);
    if (rc == COLLRUN_OK)
        *out = found;
    return rc;
}

void library_give(struct library *library, struct spare *spare)
{
    pthread_mutex_lock(&library->lock);
    spare->next = library->spares;
    library->spares = spare;
    pthread_mutex_unlock(&library->lock);
}

/* ---- life ---- */

struct library *library_new(const struct collrun_services *services)
{
    struct library *library = calloc(1, sizeof *library);
    if (!library)
        return NULL;
    library->services = services;
    pthread_mutex_init(&library->opening, NULL);
    pthread_mutex_init(&library->lock, NULL);
    return library;
}

static int finalize(void *arg)
{
    (void)arg;
    return MPI_Finalize() == MPI_SUCCESS ? COLLRUN_OK : COLLRUN_ERR_BACKEND;
}

/* MPI that is lost, or has operations of failed groups, is left to the end of the process, and with it this struct. */
void library_free(struct library *library)
{
    atomic_store(&library->closing, true);
    if (library->keeps)
        pthread_join(library->keeper, NULL);
    if (atomic_load(&library->lost) || library->dirty)
        return;
    if (library->running && library_enter(library, finalize, NULL) != COLLRUN_OK)
        return;
    for (struct spare *spare = library->spares, *next; spare; spare = next) {
        next = spare->next;
        free(spare->world_rank);
        free(spare);
    }
    pthread_mutex_destroy(&library->lock);
    pthread_mutex_destroy(&library->opening);
    free(library);
}
