/* SPDX-License-Identifier: Apache-2.0 */
#include "taps/torch/tap.h"

#include "base/c10d_functions.h"
#include "base/mpi_names.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TAP_GROUPS = 250, TAP_REQUESTS = 4096, TAP_FILE_LINES = 1 << 24 };

struct tap_group {
    bool used, closed; /* closed: its slots are free when its last request is complete */
    struct record_queue collectives, messages;
    uint32_t size, rank, requests;
    uint32_t *world;
    uint64_t number, last_message;
};

struct tap_request {
    struct tap_group *group; /* NULL: free */
    uint32_t use;            /* tells it from a later one in the same place */
    uint32_t handle;         /* of record_post */
    uint64_t number, entry;
    struct record_part part;
    bool dropped; /* while its thread was in another call */
};

/* The process has one record. */
static struct {
    struct record_head *head;
    struct record_writer *writer; /* NULL: nothing is recorded */
    struct tap_group groups[TAP_GROUPS];
    struct tap_request requests[TAP_REQUESTS];
    uint16_t free[TAP_REQUESTS];
    uint32_t nfree, nused;
    bool dropped; /* some requests have the flag */
} tap;

/* The call that this thread is in; NULL: none. */
static _Thread_local struct record_thread *tap_inside;

/* ---- the process ---- */

/* The memory that the agent has made for this process; NULL: this is not the rank. */
static struct record_head *tap_map(void)
{
    struct record_head *head = record_map(RECORD_FD);
    if (head && atomic_load(&head->pid) == (uint32_t)getpid())
        return head;
    if (head)
        record_unmap(head, record_len(head));
    return NULL;
}

/* Python's own handler stores a number, which no thread sees before its call has returned. That of
 * SIGINT is one. */
static uint64_t tap_harmless_signals(void)
{
    struct sigaction python, other;
    uint64_t harmless = 0;
    if (sigaction(SIGINT, NULL, &python) < 0 || python.sa_handler == SIG_DFL ||
        python.sa_handler == SIG_IGN)
        return 0;
    for (int sig = 1; sig <= 64; sig++)
        if (sigaction(sig, NULL, &other) == 0 && other.sa_handler == python.sa_handler)
            harmless |= UINT64_C(1) << (sig - 1);
    return harmless;
}

enum record_unobserved tap_open(const char *library, uint32_t rank, bool is_job)
{
    if (tap.writer)
        return tap.writer->head ? RECORD_UNOBSERVED_NONE : RECORD_UNOBSERVED_NO_TAP;
    struct record_head *head = tap_map();
    enum record_unobserved why = RECORD_UNOBSERVED_NONE;
    if (!head)
        return RECORD_UNOBSERVED_NO_TAP;
    if (atomic_load(&head->member))
        why = RECORD_UNOBSERVED_MEMBER;
    else if (!is_job || rank != head->rank)
        why = RECORD_UNOBSERVED_RANKS;
    struct record_writer *w =
        why ? NULL : record_writer_open(head, RECORD_TAP_C10D, RECORD_LEVEL_MULTIPLE);
    if (!w) {
        why = why ? why : RECORD_UNOBSERVED_MEMORY;
        atomic_store(&head->unobserved, (uint32_t)why);
        record_unmap(head, record_len(head));
        return why;
    }
    /* Until tap_share, only this thread calls. */
    atomic_store(&head->level, (uint32_t)RECORD_LEVEL_FUNNELED);
    atomic_fetch_or(&head->harmless, tap_harmless_signals());
    snprintf(head->library_name, sizeof head->library_name, "%s", library);
    atomic_store(&head->modules_used, 0);
    atomic_store(&head->unobserved, (uint32_t)RECORD_UNOBSERVED_NONE);
    tap.head = head;
    tap.writer = w;
    return why;
}

/* NULL: nothing is recorded in this process, or another library has taken the record over. */
static struct record_writer *tap_writer(void)
{
    struct record_writer *w = tap.writer;
    if (!w || !w->head ||
        atomic_load_explicit(&w->head->tap, memory_order_relaxed) != RECORD_TAP_C10D)
        return NULL;
    return w;
}

void tap_share(void)
{
    struct record_writer *w = tap_writer();
    if (w)
        atomic_store_explicit(&w->head->level, (uint32_t)RECORD_LEVEL_MULTIPLE,
                              memory_order_release);
}

void tap_signal_is_harmless(int signal)
{
    struct record_writer *w = tap_writer();
    if (w)
        atomic_fetch_or(&w->head->harmless, UINT64_C(1) << (signal - 1));
}

bool tap_is_inside(void)
{
    return tap_inside != NULL;
}

uint64_t tap_file(const char *path)
{
    struct record_writer *w = tap_writer();
    const uint32_t n = w ? atomic_load(&w->head->modules_used) : 0;
    if (!w || n == w->head->nmodules)
        return 0;
    const size_t len = strlen(path);
    struct record_module *m =
        (struct record_module *)((char *)w->head + record_layout(w->head).modules) + n;
    m->start = m->base = RECORD_PYTHON_SITE + (uint64_t)n * TAP_FILE_LINES;
    m->end = m->start + TAP_FILE_LINES;
    snprintf(m->path, sizeof m->path, "%s",
             len < sizeof m->path ? path : path + len + 1 - sizeof m->path);
    atomic_store_explicit(&w->head->modules_used, n + 1, memory_order_release);
    return m->start;
}

/* ---- groups ---- */

static uint64_t tap_mix(uint64_t a, uint64_t b)
{
    __extension__ const unsigned __int128 product =
        (unsigned __int128)(a ^ 0xd6e8feb86659fd93u) * (b ^ 0xa0761d6478bd642fu);
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* What is not recorded must not be taken for what was not called. */
static void tap_lose(const struct record_writer *w)
{
    atomic_fetch_or(&w->head->lost, RECORD_LOST_THREADS);
}

uint32_t tap_group_add(const char *name, const char *scope, const uint32_t *world, uint32_t size,
                       uint32_t rank)
{
    struct record_writer *w = tap_writer();
    uint32_t at = 0;
    uint64_t id = size;
    if (!w || rank >= size)
        return 0;
    while (at < TAP_GROUPS && tap.groups[at].used)
        at++;
    struct tap_group *g = &tap.groups[at < TAP_GROUPS ? at : 0];
    uint32_t *copy = at < TAP_GROUPS ? malloc(size * sizeof *copy) : NULL;
    if (!copy) {
        tap_lose(w);
        return 0;
    }
    memcpy(copy, world, size * sizeof *copy);
    for (const char *c = scope; *c; c++)
        id = tap_mix(id, (unsigned char)*c);
    for (uint32_t i = 0; i < size; i++)
        id = tap_mix(id, world[i]);
    *g = (struct tap_group){.used = true, .size = size, .rank = rank, .world = copy};
    struct record_queue_info info = {.name = name,
                                     .scope = scope,
                                     .members = size,
                                     .rank = rank,
                                     .check = COLLRUN_CHECK_ASYNC,
                                     .id = id ? id : 1,
                                     .world = copy};
    record_queue_open(&g->collectives, w->head, &info);
    info.messages = true;
    info.id = 0;
    info.world = NULL;
    record_queue_open(&g->messages, w->head, &info);
    if (!g->collectives.group || !g->messages.group)
        tap_lose(w);
    return at + 1;
}

static void tap_group_free(struct tap_group *g)
{
    record_queue_close(&g->collectives);
    record_queue_close(&g->messages);
    free(g->world);
    *g = (struct tap_group){0};
}

void tap_group_remove(uint32_t group)
{
    struct tap_group *g = &tap.groups[group - 1];
    if (!tap_writer() || !group || group > TAP_GROUPS || !g->used)
        return;
    g->closed = true;
    if (!g->requests)
        tap_group_free(g);
}

/* ---- requests ---- */

/* A number that is never 0; NULL: there is no room. */
static struct tap_request *tap_request_new(struct tap_group *g)
{
    if (!tap.nfree && tap.nused == TAP_REQUESTS)
        return NULL;
    struct tap_request *r = &tap.requests[tap.nfree ? tap.free[--tap.nfree] : tap.nused++];
    const uint32_t use = (r->use + 1) & (UINT32_MAX / TAP_REQUESTS);
    *r = (struct tap_request){.group = g, .use = use ? use : 1};
    g->requests++;
    return r;
}

static uint32_t tap_request_number(const struct tap_request *r)
{
    return (uint32_t)(r - tap.requests) + r->use * TAP_REQUESTS;
}

static struct tap_request *tap_request_find(uint32_t number)
{
    struct tap_request *r = &tap.requests[number % TAP_REQUESTS];
    return number && r->group && r->use == number / TAP_REQUESTS ? r : NULL;
}

static void tap_request_free(struct tap_request *r)
{
    struct tap_group *g = r->group;
    r->group = NULL;
    tap.free[tap.nfree++] = (uint16_t)(r - tap.requests);
    g->requests--;
    if (g->closed && !g->requests)
        tap_group_free(g);
}

/* ---- a call ---- */

static struct record_thread *tap_enter(struct record_writer *w)
{
    if (tap_inside)
        return NULL;
    struct record_thread *t = record_enter(w);
    if (t && atomic_load_explicit(&t->tid, memory_order_relaxed) !=
                 atomic_load_explicit(&w->head->init_thread, memory_order_relaxed))
        tap_share();
    return t;
}

/* The number of the operation, its mark, and its place in the list of operations. */
static void tap_describe(struct tap_request *r, const struct tap_operation *op, uint64_t now)
{
    struct tap_group *g = r->group;
    const unsigned kind = mpi_function_kind(op->function);
    const bool message = collrun_kind_is_message((enum collrun_kind)kind);
    struct record_queue *q = message ? &g->messages : &g->collectives;
    struct record_call call = {.count = op->count, .site = op->site, .tag = op->tag};
    call.what = 0;
    call.root_or_peer = op->peer;
    call.kind = (uint8_t)op->function;
    call.dtype = (uint8_t)op->type;
    call.op = (uint8_t)op->op;
    r->number = message ? ++g->last_message : ++g->number;
    if (!message)
        q->signature =
            tap_mix(tap_mix(q->signature + kind, (uint64_t)(uint32_t)op->peer << 32 | op->op),
                    tap_mix(op->count, mpi_type_class(op->type)));
    r->entry = record_queue_reserve(q, 1);
    record_queue_write(q, r->entry, &call, r->number, RECORD_STARTED, now);
    if (!message)
        record_queue_mark(q, r->number, now);
    record_queue_enter(q, &call, r->number, 0, now);
    r->part = (struct record_part){.group = g->collectives.group,
                                   .peer = op->peer >= 0 && (uint32_t)op->peer < g->size
                                               ? (int32_t)g->world[op->peer]
                                               : RECORD_ANY_RANK,
                                   .tag = op->tag,
                                   .count = op->shown ? op->shown : 1,
                                   .kind = (uint8_t)kind,
                                   .flags = (uint8_t)(op->function << MPI_FUNCTION_FLAG),
                                   .dtype = call.dtype,
                                   .op = call.op,
                                   .number = message ? 0 : r->number};
    if (kind == (unsigned)COLLRUN_RECV && op->peer < 0)
        r->part.kind = COLLRUN_RECV_ANY;
    if (op->sync)
        r->part.flags |= RECORD_SYNC;
}

static void tap_end(struct tap_request *r, enum record_state state)
{
    const struct record_queue *q = collrun_kind_is_message((enum collrun_kind)r->part.kind)
                                       ? &r->group->messages
                                       : &r->group->collectives;
    record_queue_leave(q, r->number);
    record_queue_end(q, r->entry, state, record_ticks_if_timed(q->head));
}

/* Nothing is known any more about when it completes. */
static void tap_forget(struct record_writer *w, struct tap_request *r)
{
    tap_end(r, RECORD_DONE);
    record_give_up(w, r->handle, RECORD_WITHDRAWN);
    tap_request_free(r);
}

static void tap_forget_dropped(struct record_writer *w)
{
    tap.dropped = false;
    for (uint32_t i = 0; i < tap.nused; i++)
        if (tap.requests[i].group && tap.requests[i].dropped)
            tap_forget(w, &tap.requests[i]);
}

uint32_t tap_begin(uint32_t group, const struct tap_operation *op)
{
    struct record_writer *w = tap_writer();
    struct tap_group *g = &tap.groups[group ? group - 1 : 0];
    if (!w || !group || group > TAP_GROUPS || !g->used)
        return 0;
    struct record_thread *t = tap_enter(w);
    if (!t)
        return 0;
    if (tap.dropped)
        tap_forget_dropped(w);
    struct tap_request *r = tap_request_new(g);
    if (!r) {
        tap_lose(w);
        record_inside(t, RECORD_NONE, &(struct record_at){0});
        record_return(t);
        return 0;
    }
    const struct record_at at = {.since = record_ticks(w->head), .site = op->site};
    tap_describe(r, op, at.since);
    r->handle = record_post(w, t, &r->part, &at);
    record_inside(t, RECORD_NONE, &at);
    tap_inside = t;
    return tap_request_number(r);
}

void tap_issued(uint32_t request, bool failed)
{
    struct record_writer *w = tap_writer();
    struct record_thread *t = tap_inside;
    struct tap_request *r = tap_request_find(request);
    tap_inside = NULL;
    if (!w || !t)
        return;
    record_leave(t);
    if (failed && r)
        tap_forget(w, r);
    record_outside(t);
}

bool tap_wait_begin(uint32_t request, uint64_t timeout_ns)
{
    struct record_writer *w = tap_writer();
    const struct tap_request *r = tap_request_find(request);
    struct record_thread *t = w && r ? tap_enter(w) : NULL;
    if (!t)
        return false;
    struct record_at at = {.since = record_ticks(w->head)};
    const uint64_t ns = timeout_ns > INT64_MAX / 4 ? 0 : timeout_ns;
    if (ns && w->head->ticks_mult)
        at.deadline =
            at.since + (uint64_t)((double)ns * 4294967296.0 / (double)w->head->ticks_mult);
    record_wait(w, t, r->handle);
    record_inside(t, RECORD_ALL, &at);
    tap_inside = t;
    return true;
}

static void tap_take(struct record_writer *w, struct record_thread *t, struct tap_request *r,
                     int source)
{
    if (r->part.kind == COLLRUN_RECV_ANY && (source < 0 || (uint32_t)source >= r->group->size)) {
        tap_lose(w);
        return;
    }
    if (r->part.kind == COLLRUN_RECV_ANY)
        r->part.peer = (int32_t)r->group->world[source];
    record_take(w, t, &r->part);
}

/* Another member has ended, or has closed the group: what becomes of this rank is a consequence. */
static void tap_note_failure(struct record_writer *w, const struct tap_request *r, const char *why)
{
    const struct record_group *g = r->part.group;
    struct record_failure f = {
        .status = COLLRUN_ERR_PEER_FAILED, .at = record_queue_now(w->head), .number = r->number};
    snprintf(f.group, sizeof f.group, "%s", g ? g->name : "");
    snprintf(f.text, sizeof f.text, "%s %s#%llu: %s",
             mpi_function_name(r->part.flags >> MPI_FUNCTION_FLAG), f.group,
             (unsigned long long)r->number, why);
    record_queue_note_failure(w->head, &f);
}

void tap_wait_end(uint32_t request, bool failed, const char *peer_failed, int source)
{
    struct record_writer *w = tap_writer();
    struct record_thread *t = tap_inside;
    struct tap_request *r = tap_request_find(request);
    tap_inside = NULL;
    if (!w || !t)
        return;
    record_leave(t);
    if (r && failed) {
        if (peer_failed[0])
            tap_note_failure(w, r, peer_failed);
        tap_end(r, RECORD_FAILED);
        record_give_up(w, r->handle, RECORD_WITHDRAWN);
        tap_request_free(r);
    } else if (r) {
        if (r->part.kind == COLLRUN_RECV || r->part.kind == COLLRUN_RECV_ANY)
            tap_take(w, t, r, source);
        tap_end(r, RECORD_DONE);
        record_close(w, r->handle);
        tap_request_free(r);
    }
    record_outside(t);
}

void tap_drop(uint32_t request)
{
    struct record_writer *w = tap_writer();
    struct tap_request *r = tap_request_find(request);
    if (!w || !r)
        return;
    struct record_thread *t = tap_enter(w);
    if (!t) {
        r->dropped = tap.dropped = true;
        return;
    }
    record_inside(t, RECORD_NONE, &(struct record_at){0});
    record_leave(t);
    tap_forget(w, r);
    record_outside(t);
}

void tap_exception(const struct record_exception *e)
{
    struct record_head *head = tap.head ? tap.head : tap_map();
    if (!head || atomic_load(&head->pid) != (uint32_t)getpid() || atomic_load(&head->member))
        return;
    struct record_exception *to = &head->exception;
    const uint32_t version = atomic_load(&to->version);
    /* One that ends the program replaces one of a thread. */
    if (version && (!to->thread[0] || e->thread[0]))
        return;
    memcpy(&to->line, &e->line, sizeof *e - offsetof(struct record_exception, line));
    atomic_store_explicit(&to->version, version + 1, memory_order_release);
}
