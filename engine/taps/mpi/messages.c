/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages, and the requests of all nonblocking calls.
 *
 * - A send is counted before the library is called, a receive after it has returned, by source and
 *   tag of its status: if the program ignores that, the library gets one of ours.
 * - A call that only looks (MPI_Test, MPI_Improbe) is not recorded unless it has found something:
 *   then what it has taken is.
 * - A request that is not known (of an intercommunicator, of MPI-IO, a generalized one) may be
 *   complete at any time.
 */
#include "taps/mpi/tap.h"

#include "base/mpi_names.h"

#include <stdlib.h>
#include <string.h>

/* ---- one message ---- */

static bool message_has_peer(const struct tap_call *c, int peer, int tag, bool receives)
{
    if (peer == tap_library.proc_null)
        return false; /* nothing is sent or received */
    if (receives && peer == tap_library.any_source)
        return tag >= 0 || tag == tap_library.any_tag;
    return peer >= 0 && (uint32_t)peer < c->comm->size &&
           (tag >= 0 || (receives && tag == tap_library.any_tag));
}

struct message_arguments {
    uint8_t count, type, peer, tag;
    bool receives;
};

/* Appends it to c->request. False: it is none, or not a good one. */
static bool message_add(struct tap_call *c, const struct message_arguments *at)
{
    const int peer = tap_int(c, at->peer), tag = tap_int(c, at->tag);
    if (!message_has_peer(c, peer, tag, at->receives))
        return false;
    const uint64_t n = at->count ? tap_count(c, at->count) : 0;
    const struct tap_type type = n ? tap_type_get(tap_argument(c, at->type)) : (struct tap_type){0};
    const bool any = peer < 0,
               sync = c->function->at.sync || n * type.bytes > tap_library.sync_bytes;
    const bool waits = !at->receives && sync && !c->function->at.buffered;
    c->request.parts[c->request.nparts++] = (struct record_part){
        .group = c->comm->collectives.group,
        .peer = any ? RECORD_ANY_RANK : (int32_t)c->comm->world[peer],
        .tag = tag < 0 ? RECORD_ANY_TAG : (uint32_t)tag,
        .count = n * type.units,
        .kind = (uint8_t)(c->function->kind == RECORD_PROBE ? RECORD_PROBE
                          : !at->receives                   ? COLLRUN_SEND
                          : any                             ? COLLRUN_RECV_ANY
                                                            : COLLRUN_RECV),
        .flags = (uint8_t)(c->function->number << MPI_FUNCTION_FLAG | (waits ? RECORD_SYNC : 0)),
        .dtype = type.number};
    return true;
}

/* The rank in the communicator, which is shown, of a rank of the world; one of any stays so. A rank
 * is nearly always at its own place. */
static int32_t message_rank(const struct tap_comm *comm, int32_t world)
{
    const uint32_t rank = (uint32_t)world;
    if (world < 0 || (rank < comm->size && comm->world[rank] == rank))
        return world;
    for (uint32_t i = 0; i < comm->size; i++)
        if (comm->world[i] == rank)
            return (int32_t)i;
    return world;
}

/* Part `i` of a request becomes an operation of the record. */
static void message_record(const struct tap_call *c, struct tap_request *r, int i, uint64_t bytes)
{
    const struct record_queue *q = &r->comm->messages;
    const struct record_part *p = &r->parts[i];
    const struct record_at *at = &c->at;
    const int32_t peer = message_rank(r->comm, p->peer);
    struct record_call call = {.count = p->count, .site = at->site, .tag = p->tag};
    call.what = 0;
    call.root_or_peer = peer;
    call.kind = r->function;
    call.dtype = p->dtype;
    call.op = p->kind == COLLRUN_SEND ? 0 : MPI_RECEIVES;
    r->number = atomic_fetch_add_explicit(&r->comm->last_message, 1, memory_order_relaxed) + 1;
    r->entries[i] = tap_reserve(c->writer, q);
    record_queue_write(q, r->entries[i], &call, r->number, RECORD_STARTED, at->since);
    record_queue_enter(q, &call, r->number, bytes, at->since);
}

static void message_enter(struct tap_call *c, struct tap_request *r)
{
    for (int i = 0; i < r->nparts; i++)
        message_record(c, r, i, 0);
}

/* The library has completed the operation; `status` is that of a receive, NULL: it has none that
 * says more than the call did. */
static void message_complete(struct tap_call *c, struct tap_request *r, const unsigned char *status,
                             enum record_state state)
{
    const struct record_queue *q = &r->comm->messages;
    const uint64_t now = record_ticks_if_timed(q->head);
    for (int i = 0; i < r->nparts; i++) {
        struct record_part part = r->parts[i];
        const bool receives = part.kind != COLLRUN_SEND && part.kind != RECORD_PROBE;
        if (receives && state == RECORD_DONE) {
            const int source = status ? tap_status(status, tap_library.status_source) : -1;
            const int tag = status ? tap_status(status, tap_library.status_tag) : -1;
            if (source >= 0 && (uint32_t)source < r->comm->size)
                part.peer = (int32_t)r->comm->world[source];
            if (tag >= 0)
                part.tag = (uint32_t)tag;
            if (part.peer >= 0 && part.tag != RECORD_ANY_TAG)
                record_take(c->writer, c->thread, &part);
        }
        if (r->entries[i] != RECORD_QUEUE_NONE)
            record_queue_end(q, r->entries[i], state, now);
    }
    record_queue_leave(q, r->number);
}

/* True if only the status says which message a receive has got. */
static bool message_needs_status(const struct tap_request *r)
{
    for (int i = 0; i < r->nparts; i++)
        if (r->parts[i].kind != COLLRUN_SEND &&
            (r->parts[i].peer < 0 || r->parts[i].tag == RECORD_ANY_TAG))
            return true;
    return false;
}

/* Enters a call that is recorded after the library has returned, as it had nothing to wait for. */
static bool message_enter_late(struct tap_call *c)
{
    c->thread = record_enter(c->writer);
    if (!c->thread)
        return false;
    c->at.since = record_ticks(c->writer->head);
    record_inside(c->thread, RECORD_NONE, &c->at);
    return true;
}

/* ---- blocking and nonblocking messages, probes ---- */

/* The status of the caller, or one of ours if it wants none. */
static void message_set_status(struct tap_call *c)
{
    const uint8_t at = c->function->at.status;
    c->statuses = NULL;
    if (!at)
        return;
    if (tap_argument(c, at) == tap_library.status_ignore)
        c->args[at - 1] = (uintptr_t)c->status;
    c->statuses = (unsigned char *)(uintptr_t)tap_argument(c, at);
}

/* Fills c->request with what the call sends and receives. */
static void message_describe(struct tap_call *c)
{
    const struct tap_arguments *at = &c->function->at;
    const unsigned shape = c->function->shape, kind = c->function->kind;
    const struct message_arguments first = {at->count, at->type, at->peer, at->tag,
                                            kind != COLLRUN_SEND};
    const struct message_arguments second = {at->recvcount, at->recvtype, at->source, at->recvtag,
                                             true};
    c->request = (struct tap_request){.comm = c->comm,
                                      .function = c->function->number,
                                      .entries = {RECORD_QUEUE_NONE, RECORD_QUEUE_NONE}};
    message_add(c, &first);
    if (shape == TAP_SENDRECV)
        message_add(c, &second);
}

bool tap_message_begin(struct tap_call *c)
{
    const struct tap_function *f = c->function;
    message_describe(c);
    if (!c->request.nparts)
        return false;
    message_set_status(c);
    if (f->shape == TAP_INIT_MESSAGE)
        return true;
    if (f->shape == TAP_IMPROBE)
        return true;
    c->thread = record_enter(c->writer);
    if (!c->thread)
        return false;
    c->at.since = record_ticks(c->writer->head);
    for (int i = 0; i < c->request.nparts; i++) {
        if (f->at.request)
            c->request.posted[i] = record_post(c->writer, c->thread, &c->request.parts[i], &c->at);
        else
            record_begin(c->writer, c->thread, &c->request.parts[i]);
    }
    if (f->shape != TAP_PROBE)
        message_enter(c, &c->request);
    record_inside(c->thread, f->at.request || f->at.buffered ? RECORD_NONE : RECORD_ALL, &c->at);
    return true;
}

/* MPICH has one handle for all requests that are complete when they are made: of such a one, only
 * the last is known, and those before it are complete. */
void tap_request_keep(struct tap_call *c, word handle)
{
    struct tap_request old;
    c->request.handle = handle;
    c->request.site = c->at.site;
    tap_comm_use(c->request.comm);
    tap_request_add(&c->request, &old);
    if (!old.function)
        return;
    const bool message = collrun_kind_is_message((enum collrun_kind)old.parts[0].kind);
    const struct record_queue *q = message ? &old.comm->messages : &old.comm->collectives;
    for (int i = 0; i < old.nparts; i++) {
        record_close(c->writer, old.posted[i]);
        if (old.entries[i] != RECORD_QUEUE_NONE)
            record_queue_end(q, old.entries[i], RECORD_DONE, record_ticks_if_timed(q->head));
    }
    tap_comm_release(old.comm);
}

/* A nonblocking form has returned: its request is known by the handle from now on. */
static void message_started(struct tap_call *c, int rc)
{
    struct tap_request *r = &c->request;
    const word handle = rc == 0 ? tap_handle_at(tap_argument(c, c->function->at.request), 0)
                                : tap_library.request_null;
    record_leave(c->thread);
    if (handle == tap_library.request_null) {
        message_complete(c, r, NULL, rc == 0 ? RECORD_DONE : RECORD_FAILED);
        for (int i = 0; i < r->nparts; i++)
            record_close(c->writer, r->posted[i]);
    } else {
        r->active = true;
        tap_request_keep(c, handle);
    }
    record_outside(c->thread);
}

/* A probe has found a message: MPI_Mprobe and MPI_Improbe take it out of the queues. */
static void message_probed(struct tap_call *c, int rc)
{
    struct tap_request *r = &c->request;
    const bool takes = rc == 0 && c->function->at.message;
    const uint8_t flag = c->function->at.flag;
    if (!c->thread && (!takes || !*(const int *)(uintptr_t)tap_argument(c, flag)))
        return;
    if (!c->thread && !message_enter_late(c))
        return;
    record_leave(c->thread);
    const int source = takes ? tap_status(c->statuses, tap_library.status_source) : -1;
    const int tag = takes ? tap_status(c->statuses, tap_library.status_tag) : -1;
    if (source >= 0 && (uint32_t)source < r->comm->size && tag >= 0) {
        r->parts[0].peer = (int32_t)r->comm->world[source];
        r->parts[0].tag = (uint32_t)tag;
        record_take(c->writer, c->thread, &r->parts[0]);
        /* What matches sends with receives must know that a message is gone. */
        message_record(c, r, 0, 0);
        record_queue_end(&r->comm->messages, r->entries[0], RECORD_DONE, 0);
        record_queue_leave(&r->comm->messages, r->number);
    }
    record_outside(c->thread);
}

void tap_message_end(struct tap_call *c, int rc)
{
    struct tap_request *r = &c->request;
    switch (c->function->shape) {
    case TAP_INIT_MESSAGE:
        if (rc != 0)
            return;
        r->persistent = true;
        tap_request_keep(c, tap_handle_at(tap_argument(c, c->function->at.request), 0));
        return;
    case TAP_PROBE:
    case TAP_IMPROBE:
        message_probed(c, rc);
        return;
    default:
        break;
    }
    if (c->function->at.request) {
        message_started(c, rc);
        return;
    }
    record_leave(c->thread);
    message_complete(c, r, c->statuses, rc == 0 ? RECORD_DONE : RECORD_FAILED);
    record_outside(c->thread);
}

/* ---- completion of requests ---- */

static word *wait_handles(const struct tap_call *c)
{
    return (word *)(uintptr_t)tap_argument(c, c->function->at.requests);
}

/* Copies what is known of the requests. False: no memory. */
static bool wait_read(struct tap_call *c)
{
    const struct tap_arguments *at = &c->function->at;
    const int n = at->n ? tap_int(c, at->n) : 1;
    c->n = n > 0 ? (uint32_t)n : 0;
    c->requests = c->n <= TAP_FEW ? c->few : calloc(c->n, sizeof *c->requests);
    if (!c->requests)
        return false;
    for (uint32_t i = 0; i < c->n; i++) {
        const word handle = tap_handle_at((uintptr_t)wait_handles(c), i);
        struct tap_request *r = &c->requests[i];
        if (handle == tap_library.request_null || !tap_request_get(handle, r))
            *r = (struct tap_request){.handle = handle};
    }
    return true;
}

static bool wait_is_open(const struct tap_request *r)
{
    return r->function && (r->active || !r->persistent);
}

/* Statuses of ours, if the caller wants none and a receive needs one. */
static bool wait_set_statuses(struct tap_call *c)
{
    const uint8_t at = c->function->at.status;
    bool needed = false;
    c->statuses = NULL;
    c->own_statuses = false;
    if (tap_argument(c, at) != tap_library.status_ignore) {
        c->statuses = (unsigned char *)(uintptr_t)tap_argument(c, at);
        return true;
    }
    for (uint32_t i = 0; i < c->n; i++)
        needed = needed || (wait_is_open(&c->requests[i]) &&
                            (c->requests[i].canceled || message_needs_status(&c->requests[i])));
    if (!needed)
        return true;
    c->own_statuses = c->n > TAP_FEW;
    c->statuses = c->own_statuses ? calloc(c->n, TAP_STATUS) : c->status;
    if (!c->statuses)
        return false;
    c->args[at - 1] = (uintptr_t)c->statuses;
    return true;
}

static void wait_free(struct tap_call *c)
{
    if (c->requests != c->few)
        free(c->requests);
    if (c->own_statuses)
        free(c->statuses);
}

static void wait_list(struct tap_call *c, bool any)
{
    for (uint32_t i = 0; i < c->n; i++) {
        const struct tap_request *r = &c->requests[i];
        if (!r->function && r->handle != tap_library.request_null)
            record_wait(c->writer, c->thread, 0);
        if (!wait_is_open(r))
            continue;
        /* One of several is a list of single operations: both of an MPI_Isendrecv are not one. */
        if (any && r->nparts > 1)
            record_wait(c->writer, c->thread, 0);
        for (int k = 0; k < r->nparts && !(any && r->nparts > 1); k++)
            record_wait(c->writer, c->thread, r->posted[k]);
    }
}

bool tap_wait_begin(struct tap_call *c)
{
    if (!wait_read(c))
        return false;
    if (!wait_set_statuses(c)) {
        wait_free(c);
        return false;
    }
    if (c->function->shape == TAP_TEST)
        return true;
    c->thread = record_enter(c->writer);
    if (!c->thread) {
        wait_free(c);
        return false;
    }
    const bool any = c->function->at.index != 0;
    wait_list(c, any);
    c->at.since = record_ticks(c->writer->head);
    record_inside(c->thread, any ? RECORD_ANY : RECORD_ALL, &c->at);
    return true;
}

static bool wait_was_canceled(const struct tap_request *r, const unsigned char *status)
{
    static int (*_Atomic test)(const void *, int *);
    int flag = 0;
    if (!r->canceled || !status)
        return false;
    if (!atomic_load(&test)) {
        int (*function)(const void *, int *);
        tap_library_get("PMPI_Test_cancelled", &function);
        atomic_store(&test, function);
    }
    return atomic_load(&test) && atomic_load(&test)(status, &flag) == 0 && flag;
}

/* Request `i` of the call is complete; its status is the `at`-th. */
static void wait_complete(struct tap_call *c, uint32_t i, uint32_t at)
{
    struct tap_request *r = &c->requests[i];
    if (i >= c->n || !wait_is_open(r))
        return;
    const unsigned char *status = c->statuses ? c->statuses + at * tap_library.status_size : NULL;
    const enum record_state state = wait_was_canceled(r, status) ? RECORD_CANCELED : RECORD_DONE;
    if (!collrun_kind_is_message((enum collrun_kind)r->parts[0].kind))
        tap_collective_end(r, state);
    else
        message_complete(c, r, status, state);
    for (int k = 0; k < r->nparts; k++)
        record_close(c->writer, r->posted[k]);
    if (r->made) {
        tap_comm_add(r->comm, r->made, tap_handle_at(r->newcomm, 0));
        tap_object_add(TAP_COMM, tap_handle_at(r->newcomm, 0), mpi_function_name(r->function),
                       r->site, false);
    }
    r->active = r->canceled = false;
    if (r->persistent) {
        tap_request_set(r);
        return;
    }
    if (tap_request_remove(r))
        tap_comm_release(r->comm);
}

/* Which requests the call has completed, by its results. */
static void wait_complete_all(struct tap_call *c)
{
    const struct tap_arguments *at = &c->function->at;
    const int *index = at->index ? (const int *)(uintptr_t)tap_argument(c, at->index) : NULL;
    if (at->outcount) {
        const int n = *(const int *)(uintptr_t)tap_argument(c, at->outcount);
        for (int i = 0; i < n; i++)
            if (index[i] >= 0)
                wait_complete(c, (uint32_t)index[i], (uint32_t)i);
    } else if (index) {
        if (*index >= 0)
            wait_complete(c, (uint32_t)*index, 0);
    } else {
        for (uint32_t i = 0; i < c->n; i++)
            wait_complete(c, i, i);
    }
}

static bool wait_has_result(const struct tap_call *c)
{
    const struct tap_arguments *at = &c->function->at;
    if (at->flag)
        return *(const int *)(uintptr_t)tap_argument(c, at->flag) != 0;
    return !at->outcount || *(const int *)(uintptr_t)tap_argument(c, at->outcount) > 0;
}

static bool wait_is_any_open(const struct tap_call *c)
{
    for (uint32_t i = 0; i < c->n; i++)
        if (wait_is_open(&c->requests[i]))
            return true;
    return false;
}

void tap_wait_end(struct tap_call *c, int rc)
{
    const bool result = rc == 0 && wait_has_result(c) && wait_is_any_open(c);
    if (rc != 0)
        tap_requests_doubt();
    if (c->thread || (result && message_enter_late(c))) {
        record_leave(c->thread);
        if (result)
            wait_complete_all(c);
        record_outside(c->thread);
    }
    wait_free(c);
}

/* ---- start, cancel, free ---- */

bool tap_request_begin(struct tap_call *c)
{
    bool any = false;
    c->own_statuses = false;
    if (!wait_read(c))
        return false;
    for (uint32_t i = 0; i < c->n; i++)
        any = any || (c->requests[i].function &&
                      (c->function->shape != TAP_START || c->requests[i].persistent));
    c->thread = any ? record_enter(c->writer) : NULL;
    if (!c->thread) {
        wait_free(c);
        return false;
    }
    c->at.since = record_ticks(c->writer->head);
    for (uint32_t i = 0; c->function->shape == TAP_START && i < c->n; i++) {
        struct tap_request *r = &c->requests[i];
        for (int k = 0; r->function && r->persistent && k < r->nparts; k++)
            r->posted[k] = record_post(c->writer, c->thread, &r->parts[k], &c->at);
        if (r->function && r->persistent)
            message_enter(c, r);
        r->active = r->persistent;
    }
    record_inside(c->thread, RECORD_NONE, &c->at);
    return true;
}

static void request_changed(struct tap_call *c, struct tap_request *r)
{
    const bool sends = r->parts[0].kind == COLLRUN_SEND;
    switch (c->function->shape) {
    case TAP_START:
        tap_request_set(r);
        return;
    case TAP_CANCEL:
        for (int k = 0; k < r->nparts && wait_is_open(r); k++) {
            if (sends)
                record_cancel_send(c->writer, &r->parts[k]);
            record_give_up(c->writer, r->posted[k], RECORD_WITHDRAWN);
        }
        r->canceled = wait_is_open(r);
        tap_request_set(r);
        return;
    default: /* MPI_Request_free: a receive may yet take a message */
        for (int k = 0; k < r->nparts && wait_is_open(r); k++) {
            if (sends)
                record_close(c->writer, r->posted[k]);
            else
                record_give_up(c->writer, r->posted[k], RECORD_ABANDONED);
        }
        if (tap_request_remove(r))
            tap_comm_release(r->comm);
    }
}

void tap_request_end(struct tap_call *c, int rc)
{
    record_leave(c->thread);
    for (uint32_t i = 0; rc == 0 && i < c->n; i++)
        if (c->requests[i].function)
            request_changed(c, &c->requests[i]);
    record_outside(c->thread);
    wait_free(c);
}
