/* SPDX-License-Identifier: Apache-2.0
 *
 * Communicators, one per open group.
 *
 * - MPI_Comm_create_group creates them; only the members call it.
 * - They are never freed, since MPI_Comm_free is collective and closing a group is not. A group
 *   that was closed without an error leaves its communicator to the next group of the same members,
 *   if all of them offer it. A group name that is used a thousand times thus costs one
 *   communicator.
 * - Creating one blocks in MPI. A thread does it, so that the death of a member costs the others a
 *   time-out, not a hang.
 */
#include "mpi_backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CREATE_SECONDS = 30, MAX_OFFERS = 32 };

/* ---- creation ---- */

struct creation {
    struct library *library;
    struct communicator *made;
    int *ranks;
    int status, error; /* error: MPI's */
};

static int creation_call_mpi(void *arg)
{
    struct creation *c = arg;
    struct communicator *it = c->made;
    MPI_Group world, members;
    /* Groups that a rank forms at the same time need different tags. */
    int tag = (int)(it->id >> 32 | (it->id & 0xffff) << 14);
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    c->error = MPI_Group_incl(world, (int)it->nranks, c->ranks, &members);
    if (c->error == MPI_SUCCESS) {
        c->error = MPI_Comm_create_group(MPI_COMM_WORLD, members, tag, &it->comm);
        MPI_Group_free(&members);
    }
    MPI_Group_free(&world);
    return c->error == MPI_SUCCESS ? COLLRUN_OK : COLLRUN_ERR_BACKEND;
}

static void *creation_main(void *arg)
{
    struct creation *c = arg;
    c->status = library_guard(c->library, creation_call_mpi, c);
    return NULL;
}

static void communicator_free(struct communicator *it)
{
    if (it)
        free(it->world_rank);
    free(it);
}

static void creation_free(struct creation *c)
{
    communicator_free(c->made);
    free(c->ranks);
    free(c);
}

static struct creation *creation_new(struct library *library, const struct collrun_group_desc *desc,
                                     uint64_t id)
{
    struct creation *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    c->library = library;
    c->made = calloc(1, sizeof *c->made);
    c->ranks = calloc(desc->nranks, sizeof *c->ranks);
    if (c->made)
        c->made->world_rank = calloc(desc->nranks, sizeof *c->made->world_rank);
    if (!c->made || !c->ranks || !c->made->world_rank) {
        creation_free(c);
        return NULL;
    }
    c->made->id = id;
    c->made->request = MPI_REQUEST_NULL;
    c->made->nranks = desc->nranks;
    for (uint32_t i = 0; i < desc->nranks; i++) {
        c->made->world_rank[i] = desc->world_rank[i];
        c->ranks[i] = (int)desc->world_rank[i];
    }
    return c;
}

/* Waits for the thread that runs creation_main(). After a failure `c` is not freed: MPI may still
 * use it. */
static int creation_wait(struct creation *c, pthread_t thread,
                         const struct collrun_group_desc *desc)
{
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += CREATE_SECONDS;
    if (pthread_timedjoin_np(thread, NULL, &end) != 0) {
        pthread_detach(thread);
        library_fail(c->library, "MPI_Comm_create_group did not return within %d s",
                     CREATE_SECONDS);
        return library_failure(c->library, desc);
    }
    if (c->status != COLLRUN_OK && c->error != MPI_SUCCESS) {
        char text[MPI_MAX_ERROR_STRING];
        int len;
        MPI_Error_string(c->error, text, &len);
        library_fail(c->library, "MPI_Comm_create_group: %s", text);
    }
    return c->status == COLLRUN_OK ? COLLRUN_OK : library_failure(c->library, desc);
}

static int communicator_new(struct library *library, const struct collrun_group_desc *desc,
                            uint64_t id, struct communicator **out)
{
    const struct collrun_services *s = desc->services;
    struct creation *c = creation_new(library, desc, id);
    if (!c)
        return s->fail(s->ctx, COLLRUN_ERR_NO_MEMORY, "out of memory");
    pthread_t thread;
    int rc = s->thread_start(s->ctx, creation_main, c, &thread);
    if (rc != COLLRUN_OK) {
        creation_free(c);
        return rc;
    }
    rc = creation_wait(c, thread, desc);
    if (rc != COLLRUN_OK)
        return rc;
    *out = c->made;
    c->made = NULL;
    creation_free(c);
    return COLLRUN_OK;
}

/* ---- reuse ---- */

/* What a member offers: the ids of its spare communicators of the same members, and the id of a new
 * one, for which the first member's offer is taken. */
struct offer {
    uint64_t next_id;
    uint64_t ids[MAX_OFFERS]; /* 0 = no more */
};

static bool communicator_fits(const struct communicator *it, const struct collrun_group_desc *desc)
{
    return it->nranks == desc->nranks &&
           memcmp(it->world_rank, desc->world_rank, desc->nranks * sizeof *it->world_rank) == 0;
}

/* Moves the offered communicators out of library->spare: no other group can take them. */
static void offer_make(struct library *library, const struct collrun_group_desc *desc,
                       struct communicator **offered, struct offer *offer)
{
    uint32_t n = 0;
    pthread_mutex_lock(&library->lock);
    offer->next_id = (uint64_t)library->rank << 32 | ++library->communicators;
    for (struct communicator **p = &library->spare; *p && n < MAX_OFFERS;) {
        struct communicator *it = *p;
        if (!communicator_fits(it, desc)) {
            p = &it->next;
            continue;
        }
        *p = it->next;
        offer->ids[n++] = it->id;
        it->next = *offered;
        *offered = it;
    }
    pthread_mutex_unlock(&library->lock);
}

static bool offer_has(const struct offer *offer, uint64_t id)
{
    for (uint32_t i = 0; i < MAX_OFFERS; i++)
        if (offer->ids[i] == id)
            return true;
    return false;
}

/* Finds the lowest id that all members offer; 0 = none. The result is the same on all members. */
static int offer_choose(const struct collrun_group_desc *desc, const struct offer *mine,
                        uint64_t *id, uint64_t *next_id)
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
            common.ids[k] = offer_has(&theirs, common.ids[k]) ? common.ids[k] : 0;
    }
    *id = 0;
    for (uint32_t k = 0; k < MAX_OFFERS; k++)
        if (common.ids[k] && (*id == 0 || common.ids[k] < *id))
            *id = common.ids[k];
    return COLLRUN_OK;
}

int communicator_take(struct library *library, const struct collrun_group_desc *desc,
                      struct communicator **out, uint64_t *id)
{
    const struct collrun_rendezvous *rendezvous = desc->rendezvous;
    struct offer offer = {0};
    struct communicator *offered = NULL, *found = NULL;
    uint64_t common = 0;
    char key[32];
    offer_make(library, desc, &offered, &offer);
    snprintf(key, sizeof key, "offer.%u", desc->rank);
    int rc = rendezvous->put(rendezvous->ctx, key, &offer, sizeof offer);
    if (rc == COLLRUN_OK)
        rc = rendezvous->fence(rendezvous->ctx);
    if (rc == COLLRUN_OK)
        rc = offer_choose(desc, &offer, &common, id);
    for (struct communicator *it = offered, *next; it; it = next) {
        next = it->next;
        if (rc == COLLRUN_OK && it->id == common)
            found = it;
        else
            communicator_give(library, it);
    }
    if (rc == COLLRUN_OK && !found)
        rc = communicator_new(library, desc, *id, &found);
    if (rc == COLLRUN_OK)
        *out = found;
    return rc;
}

void communicator_give(struct library *library, struct communicator *it)
{
    pthread_mutex_lock(&library->lock);
    it->next = library->spare;
    library->spare = it;
    pthread_mutex_unlock(&library->lock);
}

void communicators_cancel(struct library *library)
{
    for (struct communicator *it = library->spare; it; it = it->next) {
        if (it->request == MPI_REQUEST_NULL)
            continue;
        MPI_Cancel(&it->request);
        MPI_Request_free(&it->request);
    }
}

void communicators_free(struct library *library)
{
    for (struct communicator *it = library->spare, *next; it; it = next) {
        next = it->next;
        communicator_free(it);
    }
}
