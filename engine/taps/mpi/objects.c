/* SPDX-License-Identifier: Apache-2.0
 *
 * Communicators, types, operators, groups and windows that the program makes and frees, by their
 * handles. What is left after MPI_Finalize is a leak: a mistake in the record, at the call that
 * has made it.
 *
 * - A handle may stand for several references (MPI_Comm_group): each is freed.
 * - A handle that was freed is known as such until the library gives it to another object.
 * - Delete functions of attributes run in MPI_Finalize, and free objects there.
 * - Without memory for the table, no leak is reported.
 */
#include "taps/mpi/tap.h"

#include "base/record_queue.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

struct object {
    word handle;
    const char *function; /* that has made it; NULL: the place is free */
    uint64_t site;
    uint32_t references; /* 0: freed */
    uint8_t kind;        /* enum tap_object */
    bool kept, committed;
};

static struct {
    struct object *items;
    uint32_t size, used; /* size: a power of 2; 0: none yet */
    bool lost;
    _Atomic uint32_t lock;
} objects;

static void object_lock(void)
{
    while (atomic_exchange_explicit(&objects.lock, 1, memory_order_acquire))
        sched_yield();
}

static void object_unlock(void)
{
    atomic_store_explicit(&objects.lock, 0, memory_order_release);
}

/* Its place, or the free one where it belongs. */
static struct object *object_at(struct object *items, uint32_t size, enum tap_object kind,
                                word handle)
{
    uint32_t i = (uint32_t)((handle + kind) * UINT64_C(0x9e3779b97f4a7c15) >> 32) & (size - 1);
    while (items[i].function && (items[i].handle != handle || items[i].kind != kind))
        i = (i + 1) & (size - 1);
    return &items[i];
}

static struct object *object_find(enum tap_object kind, word handle)
{
    struct object *o = objects.size ? object_at(objects.items, objects.size, kind, handle) : NULL;
    return o && o->function ? o : NULL;
}

/* Objects that were freed are dropped. */
static bool object_grow(void)
{
    enum { FIRST = 256 };
    uint32_t live = 0, size = FIRST;
    for (uint32_t i = 0; i < objects.size; i++)
        live += objects.items[i].function && objects.items[i].references;
    while (size < 4 * live)
        size *= 2;
    struct object *items = calloc(size, sizeof *items);
    if (!items)
        return false;
    for (uint32_t i = 0; i < objects.size; i++) {
        const struct object *o = &objects.items[i];
        if (o->function && o->references)
            *object_at(items, size, (enum tap_object)o->kind, o->handle) = *o;
    }
    free(objects.items);
    objects.items = items;
    objects.size = size;
    objects.used = live;
    return true;
}

static bool object_is_predefined(enum tap_object kind, word handle)
{
    switch (kind) {
    case TAP_COMM:
        return handle == tap_library.comm_null;
    case TAP_GROUP:
        return handle == tap_library.group_null || handle == tap_library.group_empty;
    case TAP_WIN:
        return handle == tap_library.win_null;
    default:
        return false;
    }
}

void tap_object_add(enum tap_object kind, word handle, const char *function, uint64_t site,
                    bool kept)
{
    if (object_is_predefined(kind, handle))
        return;
    object_lock();
    if (2 * objects.used >= objects.size && !object_grow()) {
        objects.lost = true;
    } else {
        struct object *o = object_at(objects.items, objects.size, kind, handle);
        const uint32_t before = o->function ? o->references : 0;
        objects.used += !o->function;
        if (!before)
            *o = (struct object){.handle = handle,
                                 .function = function,
                                 .site = site,
                                 .kind = (uint8_t)kind,
                                 .kept = kept};
        o->references = before + 1;
    }
    object_unlock();
}

void tap_object_commit(word type)
{
    object_lock();
    struct object *o = object_find(TAP_TYPE, type);
    if (o)
        o->committed = true;
    object_unlock();
}

void tap_object_remove(enum tap_object kind, word handle)
{
    object_lock();
    struct object *o = object_find(kind, handle);
    if (o && o->references)
        o->references--;
    object_unlock();
}

enum tap_object_state tap_object_state(enum tap_object kind, word handle)
{
    object_lock();
    const struct object *o = object_find(kind, handle);
    const enum tap_object_state state = !o               ? TAP_OBJECT_UNKNOWN
                                        : !o->references ? TAP_OBJECT_FREED
                                        : o->committed   ? TAP_OBJECT_COMMITTED
                                                         : TAP_OBJECT_MADE;
    object_unlock();
    return state;
}

void tap_objects_report(struct record_head *head)
{
    static const char *const names[] = {[TAP_COMM] = "communicator",
                                        [TAP_TYPE] = "datatype",
                                        [TAP_OP] = "operator",
                                        [TAP_GROUP] = "group",
                                        [TAP_WIN] = "window"};
    object_lock();
    for (uint32_t i = 0; i < objects.size && !objects.lost; i++) {
        const struct object *o = &objects.items[i];
        char text[128];
        if (!o->function || !o->references || o->kept)
            continue;
        snprintf(text, sizeof text, "%s: the %s was not freed before MPI_Finalize", o->function,
                 names[o->kind]);
        record_queue_note_mistake(head, RECORD_MISTAKE_LEAK, o->site, text);
    }
    object_unlock();
}
