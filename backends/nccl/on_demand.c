/* SPDX-License-Identifier: Apache-2.0
 *
 * Forming communicators on demand, and closing them when all ranks can.
 *
 * A rank that needs the communicators of a handle cannot wait for a call of each other rank: a
 * message concerns two ranks, and the others may never call. So each process has a thread per group
 * that forms them in the background, when the coordinator says so (coord/forming.c). Programs may
 * use their groups for the first time in any order: a thread never waits for a call of its rank.
 *
 * Happy path
 *   - FORM frames arrive, and are done in their order: rank 0 makes NCCL's id; all make their
 *     communicators; each locks its GPUs, in its turn; all connect; the handle is formed. So is
 *     the communicator of a direction of direct messages, by the two ranks that it concerns;
 *   - the program has closed the group, and its GPUs are idle: READY. When all ranks have their
 *     GPUs locked, and all of these are idle, the thread closes the group, unlocks them and ends:
 *     NCCL frees memory when communicators are closed, which waits for all kernels of the GPU, and
 *     no other thread may launch one meanwhile that another GPU waits for.
 * Failures
 *   - NCCL fails here, or the handle fails meanwhile: the GPUs are unlocked, and FAILED is sent;
 *   - another rank fails: PEER_FAILED, also in the middle of a step, which may wait for that rank;
 *   - it lasts too long: the operations that wait for it have deadlines, and fail the handle;
 *   - a rank has gone, or this process ends, and the others want nothing any more: the group is
 *     closed when the GPUs are idle here, whatever those of the others do.
 *
 * Locks: this is the one place that takes a group's lock while it holds GPUs. The holder of the
 * lock of a handle that is not formed never waits for a GPU.
 */
#include "on_demand.h"

#include "capture.h"
#include "direct.h"
#include "group.h"
#include "issue.h"
#include "memory.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { CHECK_MS = 20, RETRY_NS = 50000, MOST_RETRIES = 9 };
/* How long the GPUs stay locked, while they become idle, before a rank is BUSY. */
#define IDLE_WAIT_NS 1000000u
/* How long they stay locked while other ranks reply: one of those may be stopped, and this one's
 * other groups go on. */
#define LOCK_LIMIT_NS 100000000u
/* A process that ends waits so long for GPUs that do not become idle. */
#define IDLE_LIMIT_NS 3000000000u

struct on_demand {
    struct forming_watch watch;
    _Atomic(struct nccl_group *) handles[COORD_HANDLES];
    pthread_t thread;
    int fd, stop, wake; /* stop, wake: eventfds */
    atomic_bool closes; /* the program has closed the group */
    void (*close)(struct nccl_group *g);
    bool closed; /* by the thread */
    /* The thread alone uses these. */
    bool begun[COORD_HANDLES];
    struct nccl_group *forming; /* the handle or part that is being formed; NULL: none */
    struct coord_form current;  /* if so: the frame that came last */
    bool locked;                /* its GPUs are */
    ncclUniqueId id;
    struct {
        bool ready;       /* READY was sent */
        bool all_closed;  /* the program, in all ranks: they want nothing any more */
        bool alone;       /* a rank has gone: there will be no CLOSE */
        bool locked;      /* the GPUs of the group are, by the thread */
        unsigned retries; /* how often they were busy */
        uint64_t next_ns; /* the next look at them; when they are locked: their unlocking */
    } closing;
};

/* ---- frames ---- */

static bool on_demand_send(struct on_demand *d, const struct coord_form *form)
{
    const struct coord_frame frame = {.type = COORD_FORM, .form = *form};
    size_t sent = 0;
    while (sent < sizeof frame) {
        ssize_t n = send(d->fd, (const char *)&frame + sent, sizeof frame - sent, MSG_NOSIGNAL);
        if (n > 0)
            sent += (size_t)n;
        else if (errno == EAGAIN)
            poll(&(struct pollfd){.fd = d->fd, .events = POLLOUT}, 1, CHECK_MS);
        else if (errno != EINTR)
            return false;
    }
    return true;
}

static void on_demand_reply(struct on_demand *d, const struct coord_form *to,
                            enum coord_form_step step)
{
    on_demand_send(
        d, &(struct coord_form){
               .handle = to->handle, .step = (uint16_t)step, .from = to->from, .to = to->to});
}

/* What is being formed will not be: FAILED comes next, or the thread is to end. */
static bool on_demand_is_over(const struct on_demand *d)
{
    struct pollfd p[] = {{.fd = d->fd, .events = POLLIN}, {.fd = d->stop, .events = POLLIN}};
    struct coord_frame next;
    if (poll(p, 2, 0) <= 0)
        return false;
    ssize_t n = recv(d->fd, &next, sizeof next, MSG_PEEK | MSG_DONTWAIT);
    bool lost = n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
    return p[1].revents || lost || (n == sizeof next && next.form.step == FORM_FAILED);
}

static bool on_demand_watch_is_over(const struct forming_watch *watch)
{
    return on_demand_is_over((const struct on_demand *)watch); /* its first member */
}

/* ---- the end of forming a handle ---- */

static void on_demand_unlock(struct on_demand *d)
{
    if (d->locked)
        issue_unlock(d->forming);
    d->locked = false;
}

static void on_demand_leave(struct on_demand *d)
{
    on_demand_unlock(d);
    if (d->forming)
        atomic_store(&d->forming->forming.watch, NULL);
    d->forming = NULL;
}

static bool on_demand_failed(struct on_demand *d, const struct coord_form *form)
{
    on_demand_leave(d);
    on_demand_reply(d, form, FORM_FAILED);
    return true;
}

/* Messages of any direction may be direct until all ranks have closed the group. */
static bool on_demand_has_parts(const struct on_demand *d)
{
    const struct nccl_group *messages = atomic_load(&d->handles[COORD_MESSAGES]);
    return messages && nccl_p2p_is_direct(messages);
}

/* What other ranks may still want needs this one. */
static bool on_demand_is_needed(const struct on_demand *d)
{
    bool left = on_demand_has_parts(d);
    for (int i = 0; i < COORD_HANDLES; i++) {
        const struct nccl_group *handle = atomic_load(&d->handles[i]);
        left = left || !handle || !atomic_load(&handle->forming.done);
    }
    return left;
}

/* The aborter revokes the communicators of a handle that is formed, and frees others. */
static void on_demand_end(struct on_demand *d)
{
    struct nccl_group *g = d->forming;
    pthread_mutex_lock(&g->lock);
    memory_register_all(g);
    atomic_store(&g->forming.done, true);
    pthread_mutex_unlock(&g->lock);
    on_demand_leave(d);
}

/* ---- steps ---- */

static int on_demand_make_id(struct on_demand *d, const struct coord_form *form)
{
    struct coord_form part = {
        .handle = form->handle, .step = FORM_ID, .from = form->from, .to = form->to};
    ncclUniqueId id;
    ncclResult_t result = d->forming->context->lib.nccl.ncclGetUniqueId(&id);
    if (result != ncclSuccess)
        return nccl_group_fail_nccl(d->forming, NULL, result, "ncclGetUniqueId");
    for (; part.number < COORD_ID_PARTS; part.number++) {
        memcpy(part.id, id.internal + part.number * COORD_ID_PART_LEN, COORD_ID_PART_LEN);
        on_demand_send(d, &part);
    }
    return COLLRUN_OK;
}

static int on_demand_take_id(struct on_demand *d, const struct coord_form *form)
{
    uint32_t at = form->number < COORD_ID_PARTS ? form->number : 0;
    memcpy(d->id.internal + at * COORD_ID_PART_LEN, form->id, COORD_ID_PART_LEN);
    if (at + 1 < COORD_ID_PARTS)
        return COLLRUN_OK;
    int status = comm_init(d->forming, &d->id, UINT64_MAX);
    if (status == COLLRUN_OK)
        on_demand_reply(d, form, FORM_MADE);
    return status;
}

static int on_demand_lock(struct on_demand *d, const struct coord_form *form)
{
    while (!issue_try_lock(d->forming)) {
        if (nccl_group_has_failed(d->forming))
            return nccl_group_failure(d->forming);
        if (on_demand_is_over(d))
            return COLLRUN_ERR_PEER_FAILED;
        context_sleep_ns(RETRY_NS);
    }
    d->locked = true;
    on_demand_reply(d, form, FORM_LOCKED);
    return COLLRUN_OK;
}

/* Waits for what the stream of the GPU holds. */
static int on_demand_drain(const struct on_demand *d, struct nccl_group *g, struct dev_comm *dev)
{
    const struct cuda_api *cuda = &g->context->lib.cuda;
    int before = device_enter(g->context, dev->ordinal);
    struct event *event = event_new(g->context);
    cudaError_t error =
        event ? cuda->cudaEventRecord(event->handle, dev->stream) : cuda->cudaGetLastError();
    while (event && error == cudaSuccess && !nccl_group_has_failed(g) && !on_demand_is_over(d) &&
           (error = event_query(cuda, event)) == cudaErrorNotReady) {
        error = cudaSuccess;
        context_sleep_ns(RETRY_NS);
    }
    event_free_all(g->context, event);
    device_leave(g->context, before);
    if (nccl_group_has_failed(g))
        return nccl_group_failure(g);
    if (on_demand_is_over(d))
        return COLLRUN_ERR_PEER_FAILED;
    return event && error == cudaSuccess ? COLLRUN_OK
                                         : nccl_group_fail_cuda(g, dev, error, "connect");
}

/* The GPUs are unlocked when the messages that connect them are launched. They may be queued
 * behind a kernel that starts when this rank has launched another one. */
static int on_demand_connect(struct on_demand *d, const struct coord_form *form)
{
    struct nccl_group *g = d->forming;
    pthread_mutex_lock(&g->lock);
    int status = nccl_group_has_failed(g) ? nccl_group_failure(g) : issue_connect(g);
    pthread_mutex_unlock(&g->lock);
    if (status == COLLRUN_OK)
        status = comm_await_all(g, UINT64_MAX);
    on_demand_unlock(d);
    for (uint32_t i = 0; status == COLLRUN_OK && i < g->ndevs; i++)
        status = on_demand_drain(d, g, &g->devs[i]);
    if (status == COLLRUN_OK)
        on_demand_reply(d, form, FORM_CONNECTED);
    return status;
}

static int on_demand_step(struct on_demand *d, const struct coord_form *form)
{
    switch (form->step) {
    case FORM_MAKE_ID:
        return on_demand_make_id(d, form);
    case FORM_ID:
        return on_demand_take_id(d, form);
    case FORM_LOCK:
        return on_demand_lock(d, form);
    default:
        return on_demand_connect(d, form);
    }
}

/* ---- closing ---- */

/* All operations that were launched on them have been seen to end. */
static bool closing_are_idle(const struct nccl_group *g)
{
    bool idle = true;
    for (uint32_t i = 0; i < g->ndevs; i++)
        idle = idle && atomic_load(&g->devs[i].device->in_flight) == 0;
    return idle;
}

/* Locks the GPUs of the group, if they are idle, or soon. */
static bool closing_lock(struct nccl_group *g)
{
    const uint64_t until = context_now_ns(g->context) + IDLE_WAIT_NS;
    if (!issue_try_lock(g))
        return false;
    bool idle;
    while (!(idle = closing_are_idle(g)) && context_now_ns(g->context) < until)
        context_sleep_ns(RETRY_NS);
    if (!idle)
        issue_unlock(g);
    return idle;
}

/* The next look at the GPUs: after 2 ms, and later and later up to a second. */
static void closing_put_off(const struct nccl_group *g, struct on_demand *d)
{
    const unsigned n = d->closing.retries < MOST_RETRIES ? ++d->closing.retries : MOST_RETRIES;
    d->closing.ready = false;
    d->closing.next_ns = context_now_ns(g->context) + (1000000ull << n);
}

static void closing_unlock(struct on_demand *d, struct nccl_group *g)
{
    if (d->closing.locked)
        issue_unlock(g);
    d->closing.locked = false;
}

/* Without a frame: READY when the GPUs are idle. False: the group is closed without the others. */
static bool closing_look(struct on_demand *d)
{
    struct nccl_group *g = atomic_load(&d->handles[COORD_COLLECTIVES]);
    if (!atomic_load(&d->closes) || d->forming)
        return true;
    if (d->closing.locked) {
        if (context_now_ns(g->context) > d->closing.next_ns)
            closing_unlock(d, g);
        return true;
    }
    if ((d->closing.alone || context_is_ending(g->context)) &&
        (d->closing.all_closed || !on_demand_is_needed(d)))
        return false;
    if (d->closing.ready || context_now_ns(g->context) < d->closing.next_ns || !closing_are_idle(g))
        return true;
    d->closing.ready =
        on_demand_send(d, &(struct coord_form){.handle = COORD_CLOSING, .step = FORM_READY});
    return true;
}

static void closing_on_lock(struct on_demand *d, struct nccl_group *g)
{
    d->closing.locked = closing_lock(g);
    on_demand_send(d, &(struct coord_form){.handle = COORD_CLOSING,
                                           .step = d->closing.locked ? FORM_LOCKED : FORM_BUSY});
    if (d->closing.locked)
        d->closing.next_ns = context_now_ns(g->context) + LOCK_LIMIT_NS;
    else
        closing_put_off(g, d);
}

/* Not if this rank has unlocked its GPUs meanwhile: then it closes alone, when the thread has
 * ended. */
static void closing_run(struct on_demand *d, struct nccl_group *g)
{
    if (!d->closing.locked)
        return;
    d->close(g);
    d->closed = true;
    closing_unlock(d, g);
}

/* False: all close now. */
static bool closing_on_step(struct on_demand *d, enum coord_form_step step)
{
    struct nccl_group *g = atomic_load(&d->handles[COORD_COLLECTIVES]);
    if (step == FORM_LOCK)
        closing_on_lock(d, g);
    else if (step == FORM_END)
        d->closing.all_closed = true;
    else if (step == FORM_CLOSE)
        closing_run(d, g);
    else
        closing_unlock(d, g);
    d->closing.alone = d->closing.alone || step == FORM_FAILED;
    return step != FORM_CLOSE;
}

/* Locks for a group whose other ranks do not take part, or that has none. */
static bool closing_lock_alone(struct nccl_group *g)
{
    const uint64_t begin = context_now_ns(g->context);
    unsigned n = 0;
    while (!closing_lock(g)) {
        if (context_is_ending(g->context) && context_now_ns(g->context) > begin + IDLE_LIMIT_NS)
            return false;
        n += n < MOST_RETRIES;
        context_sleep_ns(100000ull << n);
    }
    return true;
}

/* ---- frames ---- */

/* What the frame is about, the handle of a part that is not made yet. */
static struct nccl_group *on_demand_get(struct on_demand *d, const struct coord_form *form)
{
    if (form->handle < COORD_HANDLES)
        return atomic_load(&d->handles[form->handle]);
    struct nccl_group *messages = atomic_load(&d->handles[COORD_MESSAGES]);
    struct nccl_group *part = messages ? direct_comm_get(messages, form->from, form->to) : NULL;
    return part ? part : messages;
}

/* Another rank may have sent a message before this one has opened its handle for messages. NULL:
 * the group is closed before that. */
static struct nccl_group *on_demand_await(struct on_demand *d, const struct coord_form *form)
{
    struct pollfd stop = {.fd = d->stop, .events = POLLIN};
    struct nccl_group *g;
    while (!(g = on_demand_get(d, form)) && !atomic_load(&d->closes) && poll(&stop, 1, 0) == 0)
        context_sleep_ns(RETRY_NS);
    return g;
}

/* False: the thread ends. */
static bool on_demand_on_frame(struct on_demand *d, const struct coord_form *form)
{
    if (form->handle == COORD_CLOSING)
        return closing_on_step(d, (enum coord_form_step)form->step);
    struct nccl_group *g = on_demand_await(d, form);
    if (!g)
        return false;
    if (form->step == FORM_FAILED) {
        on_demand_leave(d);
        nccl_group_note_failed_peer(g, form->number);
        return true;
    }
    if (form->handle == COORD_DIRECT && !g->whole)
        g = direct_comm_new(g, form->from, form->to);
    if (!g)
        return on_demand_failed(d, form);
    d->forming = g;
    d->current = *form;
    if (form->handle < COORD_HANDLES)
        d->begun[form->handle] = true;
    atomic_store(&g->forming.watch, &d->watch);
    if (form->step != FORM_END)
        return on_demand_step(d, form) == COLLRUN_OK || on_demand_failed(d, form);
    on_demand_end(d);
    return true;
}

/* ---- the thread ---- */

/* False: the coordinator has hung up, or the thread is to stop. */
static bool on_demand_receive(struct on_demand *d, struct coord_frame *frame)
{
    size_t got = 0;
    while (got < sizeof *frame) {
        struct pollfd p[] = {{.fd = d->fd, .events = POLLIN},
                             {.fd = d->stop, .events = POLLIN},
                             {.fd = d->wake, .events = POLLIN}};
        const bool closes = atomic_load(&d->closes);
        const int nfds = closes ? 2 : 3;
        const int ms = d->forming ? CHECK_MS : !closes ? -1 : d->closing.ready ? CHECK_MS : 1;
        if (poll(p, (nfds_t)nfds, ms) < 0 && errno != EINTR)
            return false;
        if (p[1].revents || !closing_look(d))
            return false;
        if (d->forming && nccl_group_has_failed(d->forming))
            on_demand_failed(d, &d->current);
        ssize_t n = recv(d->fd, (char *)frame + got, sizeof *frame - got, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
            return false;
        got += n > 0 ? (size_t)n : 0;
    }
    return true;
}

/* The coordinator is gone, and with it rank 0: what has been begun is never formed. */
static void on_demand_fail_unformed(struct on_demand *d)
{
    for (int i = 0; i < COORD_HANDLES; i++) {
        struct nccl_group *g = atomic_load(&d->handles[i]);
        if (d->begun[i] && !nccl_group_is_formed(g))
            nccl_group_note_failed_peer(g, 0);
    }
    const struct nccl_group *messages = atomic_load(&d->handles[COORD_MESSAGES]);
    struct nccl_group *part = messages ? atomic_load(&messages->parts) : NULL;
    for (; part; part = part->next_part)
        if (!nccl_group_is_formed(part))
            nccl_group_note_failed_peer(part, 0);
}

static void *on_demand_thread(void *arg)
{
    struct on_demand *d = arg;
    struct coord_frame frame;
    capture_relax(&atomic_load(&d->handles[COORD_COLLECTIVES])->context->lib.cuda);
    while (on_demand_receive(d, &frame))
        if (!on_demand_on_frame(d, &frame.form))
            break;
    on_demand_leave(d);
    closing_unlock(d, atomic_load(&d->handles[COORD_COLLECTIVES]));
    on_demand_fail_unformed(d);
    close(d->fd); /* other ranks cannot form what is not formed */
    return NULL;
}

/* ---- life ---- */

static void on_demand_free(struct on_demand *d)
{
    if (d->stop >= 0)
        close(d->stop);
    if (d->wake >= 0)
        close(d->wake);
    free(d);
}

int on_demand_new(struct nccl_group *g, const struct coord_addr *addr, uint32_t world_rank,
                  uint64_t deadline_ns, struct on_demand **out)
{
    const struct collrun_services *s = g->services;
    const struct coord_frame hello = {
        .type = COORD_HELLO,
        .hello = {.secret = addr->secret, .rank = g->rank, .world_rank = world_rank, .forms = 1}};
    struct on_demand *d = calloc(1, sizeof *d);
    if (!d)
        return nccl_group_out_of_memory(g);
    d->watch.is_over = on_demand_watch_is_over;
    d->stop = eventfd(0, EFD_CLOEXEC);
    d->wake = eventfd(0, EFD_CLOEXEC);
    int status = d->stop < 0 || d->wake < 0
                     ? s->fail(s->ctx, COLLRUN_ERR_SYSTEM, "eventfd: %s", strerror(errno))
                     : s->connect(s->ctx, (const struct sockaddr *)&addr->address, addr->len,
                                  deadline_ns, &d->fd);
    if (status != COLLRUN_OK)
        d->fd = -1;
    else if (send(d->fd, &hello, sizeof hello, MSG_NOSIGNAL) != sizeof hello)
        status = s->fail(s->ctx, COLLRUN_ERR_SYSTEM, "lost the connection to rank 0");
    atomic_store(&d->handles[COORD_COLLECTIVES], g);
    if (status == COLLRUN_OK)
        status = s->thread_start(s->ctx, on_demand_thread, d, &d->thread);
    if (status == COLLRUN_OK) {
        *out = d;
        return COLLRUN_OK;
    }
    if (d->fd >= 0)
        close(d->fd);
    on_demand_free(d);
    return status;
}

void on_demand_add(struct on_demand *d, struct nccl_group *messages)
{
    atomic_store(&d->handles[COORD_MESSAGES], messages);
}

int on_demand_want(struct nccl_group *g)
{
    if (!g->forming.wanted)
        g->forming.wanted = coord_want(g->coord, &(struct coord_want){.handle = COORD_COLLECTIVES});
    return coord_poll(g->coord);
}

void on_demand_close(struct nccl_group *g, struct on_demand *d, bool alone,
                     void (*close)(struct nccl_group *g))
{
    bool closed = false;
    if (d) {
        d->close = close;
        atomic_store(&d->closes, true);
        eventfd_write(alone ? d->stop : d->wake, 1);
        pthread_join(d->thread, NULL);
        closed = d->closed;
        on_demand_free(d);
    }
    if (closed)
        return;
    const bool locked = closing_lock_alone(g);
    close(g);
    if (locked)
        issue_unlock(g);
}
