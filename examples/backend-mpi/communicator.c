/* SPDX-License-Identifier: Apache-2.0
 *
 * Communicators, one per open group. They come from MPI_Comm_create_group, which only the members
 * call, and are never freed: MPI_Comm_free is collective, closing a group is not. A group that was
 * closed in good order leaves its communicator to the next one of the same members, if all of them
 * still offer it; so a name that is used a thousand times costs one.
 *
 * Making one blocks in MPI. A thread does it, so that a member that dies meanwhile costs the others
 * a time-out and no hang.
 */
#include "mpi_backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CREATE_SECONDS = 30, MAX_OFFERS = 32 };

/* ---- making one ---- */

struct creation {
    struct library *library;
    struct communicator *made;
    int *ranks;
    int status, error; /* error: MPI's */
};

static int create_inside(void *arg)
{
    struct creation *c = arg;
    struct communicator *it = c->made;
    MPI_Group world, members;
    /* No two groups that a rank forms at the same time may have the same number. */
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

static void *create(void *arg)
{
    struct creation *c = arg;
    c->status = library_guard(c->library, create_inside, c);
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
    c->made->nranks = desc->nranks;
    for (uint32_t i = 0; i < desc->nranks; i++) {
        c->made->world_rank[i] = desc->world_rank[i];
        c->ranks[i] = (int)desc->world_rank[i];
    }
    return c;
}

/* Waits for the thread that runs create(). A failure leaves `c` to MPI, which may hold it still. */
static int create_in_time(struct creation *c, pthread_t thread,
                          const struct collrun_group_desc *desc)
{
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += CREATE_SECONDS;
    if (pthread_timedjoin_np(thread, NULL, &end) != 0) {
        pthread_detach(thread);
        library_lose(c->library, "MPI_Comm_create_group did not return within %d s",
                     CREATE_SECONDS);
        return library_is_lost(c->library, desc);
    }
    if (c->status != COLLRUN_OK && c->error != MPI_SUCCESS) {
        char text[MPI_MAX_ERROR_STRING];
        int len;
        MPI_Error_string(c->error, text, &len);
        library_lose(c->library, "MPI_Comm_create_group: %s", text);
    }
    return c->status == COLLRUN_OK ? COLLRUN_OK : library_is_lost(c->library, desc);
}

static int make_communicator(struct library *library, const struct collrun_group_desc *desc,
                             uint64_t id, struct communicator **out)
{
    const struct collrun_services *s = desc->services;
    struct creation *c = creation_new(library, desc, id);
    if (!c)
        return s->fail(s->ctx, COLLRUN_ERR_NO_MEMORY, "out of memory");
    pthread_t thread;
    int error = library_thread(&thread, create, c);
    if (error) {
        creation_free(c);
        return s->fail(s->ctx, COLLRUN_ERR_SYSTEM, "no thread: %s", strerror(error));
    }
    int rc = create_in_time(c, thread, desc);
    if (rc != COLLRUN_OK)
        return rc;
    *out = c->made;
    c->made = NULL;
    creation_free(c);
    return COLLRUN_OK;
}

/* ---- from group to group ---- */

/* What a member brings: the communicators it has left over from groups of the same members, and the
 * number for a new one, which the first member's offer decides. */
struct offer {
    uint64_t next_id;
    uint64_t ids[MAX_OFFERS]; /* 0 = no more */
};

static bool same_members(const struct communicator *it, const struct collrun_group_desc *desc)
{
    return it->nranks == desc->nranks &&
           memcmp(it->world_rank, desc->world_rank, desc->nranks * sizeof *it->world_rank) == 0;
}

/* What is offered is nobody else's until it is given back. */
static void make_offer(struct library *library, const struct collrun_group_desc *desc,
                       struct communicator **offered, struct offer *offer)
{
    uint32_t n = 0;
    pthread_mutex_lock(&library->lock);
    offer->next_id = (uint64_t)library->rank << 32 | ++library->communicators;
    for (struct communicator **p = &library->spare; *p && n < MAX_OFFERS;) {
        struct communicator *it = *p;
        if (!same_members(it, desc)) {
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

static bool offers(const struct offer *offer, uint64_t id)
{
    for (uint32_t i = 0; i < MAX_OFFERS; i++)
        if (offer->ids[i] == id)
            return true;
    return false;
}

/* All members come to the same result: the lowest number that everybody offers; 0 = none. */
static int choose(const struct collrun_group_desc *desc, const struct offer *mine, uint64_t *id,
                  uint64_t *next_id)
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

int communicator_take(struct library *library, const struct collrun_group_desc *desc,
                      struct communicator **out, uint64_t *id)
{
    const struct collrun_rendezvous *rendezvous = desc->rendezvous;
    struct offer offer = {0};
    struct communicator *offered = NULL, *found = NULL;
    uint64_t common = 0;
    char key[32];
    make_offer(library, desc, &offered, &offer);
    snprintf(key, sizeof key, "offer.%u", desc->rank);
    int rc = rendezvous->put(rendezvous->ctx, key, &offer, sizeof offer);
    if (rc == COLLRUN_OK)
        rc = rendezvous->fence(rendezvous->ctx);
    if (rc == COLLRUN_OK)
        rc = choose(desc, &offer, &common, id);
    for (struct communicator *it = offered, *next; it; it = next) {
        next = it->next;
        if (rc == COLLRUN_OK && it->id == common)
            found = it;
        else
            communicator_give(library, it);
    }
    if (rc == COLLRUN_OK && !found)
        rc = make_communicator(library, desc, *id, &found);
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

void communicators_free(struct library *library)
{
    for (struct communicator *it = library->spare, *next; it; it = next) {
        next = it->next;
        communicator_free(it);
    }
}
