/* SPDX-License-Identifier: Apache-2.0
 *
 * Communicators. Their members never exchange a message about it: the id of a communicator, which
 * is equal on all members and unique in the job, is a hash of its parent's id, of how many all
 * members have made from the parent before, and of its members as ranks of the world.
 *
 * - A handle may be used again once its communicator was freed; the table has only live ones.
 * - A communicator that was freed keeps its slots in the record until the last request on it is
 *   complete.
 * - Without room in the record, nothing of the rank may be proven any more: a peer could otherwise
 *   take what is not recorded for what was not called.
 */
#include "taps/mpi/tap.h"

#include "base/mpi_names.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COMM_PLACES = 4096, COMM_NAME = 64, COMM_OCCURRENCES = 64 };

static struct {
    struct record_writer *writer;
    _Atomic uint64_t lock; /* 1: a thread changes the table */
    struct {
        word _Atomic handle; /* of `comm`, which a reader of another place does not touch */
        struct tap_comm *_Atomic comm; /* &comm_removed: was one */
    } places[COMM_PLACES];             /* a hash of the handles */
    uint32_t used;
    word world_group;
    struct tap_comm *world;
    struct {
        uint64_t key;
        uint64_t times;
    } occurrences[COMM_OCCURRENCES]; /* of MPI_Comm_create_group */
} comms;

static struct tap_comm comm_removed;

/* ---- functions of MPI ---- */

static struct {
    int (*size)(word, int *), (*rank)(word, int *);
    int (*test_inter)(word, int *), (*group)(word, void *), (*group_free)(void *);
    int (*translate)(word, word, const int *, word, int *);
} mpi;

static bool comm_find_functions(void)
{
    const struct {
        const char *name;
        void *to;
    } rows[] = {{"PMPI_Comm_size", &mpi.size},
                {"PMPI_Comm_rank", &mpi.rank},
                {"PMPI_Comm_test_inter", &mpi.test_inter},
                {"PMPI_Comm_group", &mpi.group},
                {"PMPI_Group_free", &mpi.group_free},
                {"PMPI_Group_translate_ranks", &mpi.translate}};
    bool all = true;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        all = tap_library_get(rows[i].name, rows[i].to) && all;
    return all;
}

/* ---- the table ---- */

static uint32_t comm_place(word handle)
{
    return (uint32_t)(handle * UINT64_C(0x9e3779b97f4a7c15) >> 40) % COMM_PLACES;
}

struct tap_comm *tap_comm_find(word argument)
{
    const word handle = tap_handle(argument);
    for (uint32_t i = comm_place(handle);; i = (i + 1) % COMM_PLACES) {
        struct tap_comm *c = atomic_load_explicit(&comms.places[i].comm, memory_order_acquire);
        if (!c || (c != &comm_removed &&
                   atomic_load_explicit(&comms.places[i].handle, memory_order_relaxed) == handle))
            return c;
    }
}

static void comm_lock(void)
{
    while (atomic_exchange(&comms.lock, 1))
        sched_yield();
}

static void comm_unlock(void)
{
    atomic_store(&comms.lock, 0);
}

/* False: the table is full. Places of removed ones are used again. */
static bool comm_put(struct tap_comm *comm)
{
    bool put = false;
    comm_lock();
    for (uint32_t i = comm_place(comm->handle); !put; i = (i + 1) % COMM_PLACES) {
        struct tap_comm *c = atomic_load(&comms.places[i].comm);
        if (c && c != &comm_removed)
            continue;
        if (!c && comms.used == COMM_PLACES / 2)
            break;
        comms.used += !c;
        atomic_store_explicit(&comms.places[i].handle, comm->handle, memory_order_relaxed);
        atomic_store_explicit(&comms.places[i].comm, comm, memory_order_release);
        put = true;
    }
    comm_unlock();
    return put;
}

static void comm_take_out(const struct tap_comm *comm)
{
    comm_lock();
    for (uint32_t i = comm_place(comm->handle); atomic_load(&comms.places[i].comm);
         i = (i + 1) % COMM_PLACES)
        if (atomic_load(&comms.places[i].comm) == comm)
            atomic_store(&comms.places[i].comm, &comm_removed);
    comm_unlock();
}

/* ---- a communicator ---- */

static void comm_lose(void)
{
    atomic_fetch_or(&comms.writer->head->lost, RECORD_LOST_THREADS);
}

static uint64_t comm_mix(uint64_t hash, uint64_t with)
{
    hash = (hash ^ with) * UINT64_C(0xff51afd7ed558ccd);
    return (hash ^ hash >> 32) * UINT64_C(0xc4ceb9fe1a85ec53);
}

static uint64_t comm_hash_members(uint64_t hash, const struct tap_comm *c)
{
    for (uint32_t i = 0; i < c->size; i++)
        hash = comm_mix(hash, c->world[i]);
    return hash ? hash : 1;
}

/* The members as ranks of the world. False: MPI does not say. */
static bool comm_list_members(struct tap_comm *c)
{
    int *own = calloc(c->size, sizeof *own), *world = calloc(c->size, sizeof *world);
    word group = 0;
    bool known = own && world && mpi.group(c->handle, &group) == 0;
    for (uint32_t i = 0; own && i < c->size; i++)
        own[i] = (int)i;
    if (known) {
        group = tap_handle(group);
        known = mpi.translate(group, c->size, own, comms.world_group, world) == 0;
        mpi.group_free(&group);
    }
    for (uint32_t i = 0; known && i < c->size; i++) {
        known = world[i] >= 0;
        c->world[i] = (uint32_t)world[i];
    }
    free(own);
    free(world);
    return known;
}

/* NULL: an intercommunicator, which no member records; or there is no memory. */
static struct tap_comm *comm_new(word handle)
{
    int size = 0, rank = 0, inter = 0;
    if (mpi.test_inter(handle, &inter) != 0 || inter)
        return NULL;
    const bool known = mpi.size(handle, &size) == 0 && mpi.rank(handle, &rank) == 0 && size > 0;
    struct tap_comm *c = calloc(1, sizeof *c);
    uint32_t *world = calloc(known ? (size_t)size : 1, sizeof *world);
    if (!known || !c || !world) {
        free(c);
        free(world);
        comm_lose();
        return NULL;
    }
    *c = (struct tap_comm){.handle = handle,
                           .size = (uint32_t)size,
                           .rank = (uint32_t)rank,
                           .world = world,
                           .users = 1};
    return c;
}

static void comm_free(struct tap_comm *c)
{
    if (!c)
        return;
    record_queue_close(&c->collectives);
    record_queue_close(&c->messages);
    free(c->world);
    free(c);
}

static void comm_open_slot(const struct tap_comm *c, const char *name, bool messages,
                           struct record_queue *q)
{
    char scope[32];
    snprintf(scope, sizeof scope, "mpi:%016llx", (unsigned long long)c->id);
    const struct record_queue_info info = {.name = name,
                                           .scope = scope,
                                           .members = c->size,
                                           .rank = c->rank,
                                           .messages = messages,
                                           .check = COLLRUN_CHECK_ASYNC,
                                           .id = messages ? 0 : c->id,
                                           .world = messages ? NULL : c->world};
    record_queue_open(q, comms.writer->head, &info);
}

/* Takes it. */
static void comm_open(struct tap_comm *c, const char *name)
{
    comm_open_slot(c, name, false, &c->collectives);
    comm_open_slot(c, name, true, &c->messages);
    if (c->collectives.group && c->messages.group && comm_put(c))
        return;
    comm_lose();
    comm_free(c);
}

void tap_comm_use(struct tap_comm *comm)
{
    atomic_fetch_add(&comm->users, 1);
}

void tap_comm_release(struct tap_comm *comm)
{
    if (comm && atomic_fetch_sub(&comm->users, 1) == 1)
        comm_free(comm);
}

void tap_comm_remove(word argument)
{
    struct tap_comm *c = tap_comm_find(argument);
    if (!c)
        return;
    comm_take_out(c);
    tap_comm_release(c);
}

/* Only what is shown: the scope stays. */
void tap_comm_rename(struct tap_comm *comm, const char *name)
{
    struct record_group *const slots[] = {comm->collectives.group, comm->messages.group};
    for (int i = 0; i < 2; i++) {
        const uint32_t version = atomic_load(&slots[i]->version) | 1;
        atomic_store(&slots[i]->version, version);
        atomic_thread_fence(memory_order_release);
        snprintf(slots[i]->name, sizeof slots[i]->name, "%s", name);
        atomic_store_explicit(&slots[i]->version, version + 1, memory_order_release);
    }
}

/* ---- how they are made ---- */

/* Its name is that of its parent, and how it was made. */
static void comm_open_child(struct tap_comm *parent, struct tap_comm *c, const char *how)
{
    char name[COMM_NAME + 32];
    const char *of = parent->collectives.group ? parent->collectives.group->name : "";
    snprintf(name, sizeof name, "%.63s%s", of, how);
    comm_open(c, name);
}

/* NULL: there is none, as for ranks that a split leaves out; or its members are not known, as those
 * of processes that were spawned. */
static struct tap_comm *comm_new_child(word handle)
{
    struct tap_comm *c = handle == tap_library.comm_null ? NULL : comm_new(handle);
    if (!c || comm_list_members(c))
        return c;
    comm_free(c);
    return NULL;
}

void tap_comm_add(struct tap_comm *parent, uint64_t number, word handle)
{
    char how[32];
    struct tap_comm *c = comm_new_child(handle);
    if (!c)
        return;
    c->id = comm_hash_members(comm_mix(parent->id, number), c);
    snprintf(how, sizeof how, ".%llu", (unsigned long long)number);
    comm_open_child(parent, c, how);
}

/* How often this rank has made one of these members with this tag. 0: too many others. */
static uint64_t comm_occurrence(uint64_t key)
{
    for (int i = 0; i < COMM_OCCURRENCES; i++) {
        if (comms.occurrences[i].times && comms.occurrences[i].key != key)
            continue;
        comms.occurrences[i].key = key;
        return ++comms.occurrences[i].times;
    }
    return 0;
}

void tap_comm_add_group(struct tap_comm *parent, int tag, word handle)
{
    char how[32];
    struct tap_comm *c = comm_new_child(handle);
    if (!c)
        return;
    const uint64_t key = comm_hash_members(comm_mix(~parent->id, (uint64_t)(uint32_t)tag), c);
    comm_lock();
    const uint64_t times = comm_occurrence(key);
    comm_unlock();
    if (!times) {
        comm_lose();
        comm_free(c);
        return;
    }
    c->id = comm_mix(key, times) | 1;
    snprintf(how, sizeof how, ".group(%d)", tag);
    comm_open_child(parent, c, how);
}

/* The ids of COMM_SELF differ, as its members do. */
static void comm_start_one(word handle, const char *name, uint64_t seed)
{
    struct tap_comm *c = comm_new(handle);
    if (!c)
        return;
    for (uint32_t i = 0; i < c->size; i++)
        c->world[i] = c->size == 1 ? comms.writer->head->rank : i;
    c->id = comm_hash_members(seed, c);
    comm_open(c, name);
}

void tap_comm_start(struct record_writer *w)
{
    word group = 0;
    comms.writer = w;
    if (!comm_find_functions() || mpi.group(tap_library.comm_world, &group) != 0) {
        comm_lose();
        return;
    }
    comms.world_group = tap_handle(group);
    comm_start_one(tap_library.comm_world, "MPI_COMM_WORLD", 1);
    comm_start_one(tap_library.comm_self, "MPI_COMM_SELF", 2);
}
