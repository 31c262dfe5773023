/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests by their handles: open addressing with linear probing, and deletion that moves later
 * entries back. The table grows; a request that finds no memory is not known, which is as good as
 * one of a communicator that is not.
 */
#include "taps/mpi/tap.h"

#include "base/mpi_names.h"
#include "base/record_queue.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

static struct {
    struct tap_request *items;
    uint32_t size, used; /* size: a power of 2; 0: none yet */
    uint64_t uses;
    bool doubted; /* which ones are complete is not known */
    _Atomic uint32_t lock;
} requests;

static void request_lock(void)
{
    while (atomic_exchange_explicit(&requests.lock, 1, memory_order_acquire))
        sched_yield();
}

static void request_unlock(void)
{
    atomic_store_explicit(&requests.lock, 0, memory_order_release);
}

static uint32_t request_place(word handle, uint32_t size)
{
    return (uint32_t)(handle * UINT64_C(0x9e3779b97f4a7c15) >> 32) & (size - 1);
}

/* Its place, or the free one where it belongs. */
static struct tap_request *request_at(struct tap_request *items, uint32_t size, word handle)
{
    uint32_t i = request_place(handle, size);
    while (items[i].function && items[i].handle != handle)
        i = (i + 1) & (size - 1);
    return &items[i];
}

static bool request_grow(void)
{
    enum { FIRST = 256 };
    const uint32_t size = requests.size ? 2 * requests.size : FIRST;
    struct tap_request *items = calloc(size, sizeof *items);
    if (!items)
        return false;
    for (uint32_t i = 0; i < requests.size; i++)
        if (requests.items[i].function)
            *request_at(items, size, requests.items[i].handle) = requests.items[i];
    free(requests.items);
    requests.items = items;
    requests.size = size;
    return true;
}

void tap_request_add(struct tap_request *request, struct tap_request *old)
{
    *old = (struct tap_request){0};
    request_lock();
    request->use = ++requests.uses;
    if (2 * requests.used < requests.size || request_grow()) {
        struct tap_request *r = request_at(requests.items, requests.size, request->handle);
        requests.used += !r->function;
        *old = *r;
        *r = *request;
    }
    request_unlock();
}

bool tap_request_get(word handle, struct tap_request *out)
{
    request_lock();
    const struct tap_request *r =
        requests.size ? request_at(requests.items, requests.size, handle) : NULL;
    const bool known = r && r->function;
    if (known)
        *out = *r;
    request_unlock();
    return known;
}

void tap_request_set(const struct tap_request *request)
{
    request_lock();
    struct tap_request *r =
        requests.size ? request_at(requests.items, requests.size, request->handle) : NULL;
    if (r && r->function && r->use == request->use)
        *r = *request;
    request_unlock();
}

/* Another thread may have got the handle meanwhile, for a new request; or the program has listed
 * one twice. */
bool tap_request_remove(const struct tap_request *request)
{
    bool removed = false;
    request_lock();
    struct tap_request *r =
        requests.size ? request_at(requests.items, requests.size, request->handle) : NULL;
    if (r && r->function && r->use == request->use) {
        const uint32_t mask = requests.size - 1;
        uint32_t hole = (uint32_t)(r - requests.items);
        requests.used--;
        for (uint32_t i = (hole + 1) & mask; requests.items[i].function; i = (i + 1) & mask) {
            const uint32_t home = request_place(requests.items[i].handle, requests.size);
            if (((i - home) & mask) < ((i - hole) & mask))
                continue; /* it would move in front of its place */
            requests.items[hole] = requests.items[i];
            hole = i;
        }
        requests.items[hole].function = 0;
        removed = true;
    }
    request_unlock();
    return removed;
}

void tap_requests_doubt(void)
{
    request_lock();
    requests.doubted = true;
    request_unlock();
}

void tap_requests_report(struct record_head *head)
{
    request_lock();
    for (uint32_t i = 0; i < requests.size && !requests.doubted; i++) {
        const struct tap_request *r = &requests.items[i];
        const bool inactive = r->persistent && !r->active;
        char text[128];
        if (!r->function)
            continue;
        snprintf(text, sizeof text, "%s: the request was not %s before MPI_Finalize",
                 mpi_function_name(r->function),
                 inactive ? "freed (MPI_Request_free)" : "completed (MPI_Wait, MPI_Test)");
        record_queue_note_mistake(head, RECORD_MISTAKE_LEAK, r->site, text);
    }
    request_unlock();
}
