/* SPDX-License-Identifier: Apache-2.0
 *
 * Buffers in device memory: of GPUs, or of the pretend accelerator of tests/hpu, whose runtime has
 * functions of the same names with another prefix. Every trial is prepared and judged in host
 * memory, as the others; in between, its buffers and their guards are copied to a GPU and back.
 * Nothing here waits where the backend must:
 * - The copies to the GPU are queued on the caller's stream behind some long work, and the call
 *   follows immediately.
 * - The copies back start when the call has returned, on a stream that no event orders, or, after
 *   collrun_wait_stream, on the caller's stream.
 *
 * The suite "devices" is for groups with several GPUs per process: the same sweeps and messages
 * with one trial per GPU, where each GPU is a separate rank.
 */
#include "conform.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEVICES_MAX = 8, EDGE = 64, TO_DEVICE = 1, TO_HOST = 2, NONBLOCKING = 1, BUSY = 3 };

struct cuda {
    int (*set_device)(int device);
    int (*malloc)(void **ptr, size_t len);
    int (*copy)(void *to, const void *from, size_t len, int kind, void *stream);
    int (*fill)(void *ptr, int value, size_t len, void *stream);
    int (*stream_create)(void **stream, unsigned flags);
    int (*stream_wait)(void *stream);
    const char *(*words)(int code);
    void *callers[DEVICES_MAX], *readers[DEVICES_MAX]; /* streams */
    pthread_mutex_t lock;
    struct spare *spares; /* memory that is used again */
};

struct spare {
    struct spare *next;
    void *base;
    size_t capacity;
    int device;
};

static void must(const struct cuda *cuda, int code, const char *what)
{
    if (code == 0)
        return;
    fprintf(stderr, "conform: %s: %s\n", what, cuda->words(code));
    abort();
}

static void *open_runtime(bool hpu)
{
    const char *named = getenv(hpu ? "CONFORM_LIBHPU" : "COLLRUN_LIBCUDART");
    const char *files[] = {named ? named : "libcudart.so.13", "libcudart.so.12", "libcudart.so"};
    void *library = NULL;
    for (size_t i = 0; !library && i < (hpu ? 1 : ARRAY_LEN(files)); i++)
        library = dlopen(files[i], RTLD_NOW | RTLD_LOCAL);
    return library;
}

/* `prefix`: "cuda" or "hpu". */
static bool load(struct cuda *cuda, const char *prefix)
{
    void *library = open_runtime(strcmp(prefix, "hpu") == 0);
    const struct {
        void *at;
        const char *name;
    } functions[] = {{&cuda->set_device, "SetDevice"},
                     {&cuda->malloc, "Malloc"},
                     {&cuda->copy, "MemcpyAsync"},
                     {&cuda->fill, "MemsetAsync"},
                     {&cuda->stream_create, "StreamCreateWithFlags"},
                     {&cuda->stream_wait, "StreamSynchronize"},
                     {&cuda->words, "GetErrorString"}};
    for (size_t i = 0; library && i < ARRAY_LEN(functions); i++) {
        char name[64];
        snprintf(name, sizeof name, "%s%s", prefix, functions[i].name);
        void *address = dlsym(library, name);
        if (!address)
            return false;
        memcpy(functions[i].at, &address, sizeof address);
    }
    return library != NULL;
}

bool device_open(struct conform *run, const char *prefix)
{
    struct cuda *cuda = calloc(1, sizeof *cuda);
    if (!cuda || !load(cuda, prefix)) {
        free(cuda);
        return fail(run, "the runtime of the devices cannot be loaded");
    }
    for (int d = 0; d < collrun_device_count(run->ctx, NULL) && d < DEVICES_MAX; d++) {
        must(cuda, cuda->set_device(d), "cudaSetDevice");
        must(cuda, cuda->stream_create(&cuda->callers[d], NONBLOCKING), "cudaStreamCreate");
        must(cuda, cuda->stream_create(&cuda->readers[d], NONBLOCKING), "cudaStreamCreate");
    }
    pthread_mutex_init(&cuda->lock, NULL);
    run->cuda = cuda;
    return true;
}

void device_join(struct team *team)
{
    struct cuda *cuda = team->run->cuda;
    for (int d = 0; d < collrun_device_count(team->run->ctx, NULL) && d < DEVICES_MAX; d++)
        team_want(team, collrun_set_stream(team->group, d, cuda->callers[d]), COLLRUN_OK,
                  "collrun_set_stream");
}

/* ---- copies of the buffers on a GPU ---- */

/* cudaFree waits for all that runs on the GPU, other threads' operations included, and holds up
 * what they would launch meanwhile, on which other ranks may wait: memory is not freed, but used
 * again. */
static void spare_put(struct cuda *cuda, void *base, size_t capacity, int device)
{
    struct spare *s = malloc(sizeof *s);
    if (!s)
        abort();
    pthread_mutex_lock(&cuda->lock);
    *s = (struct spare){cuda->spares, base, capacity, device};
    cuda->spares = s;
    pthread_mutex_unlock(&cuda->lock);
}

static void *spare_take(struct cuda *cuda, size_t capacity, int device)
{
    pthread_mutex_lock(&cuda->lock);
    struct spare **link = &cuda->spares, *found;
    while ((found = *link) && (found->device != device || found->capacity < capacity))
        link = &found->next;
    if (found)
        *link = found->next;
    pthread_mutex_unlock(&cuda->lock);
    void *base = found ? found->base : NULL;
    free(found);
    return base;
}

static void device_copy_free(struct cuda *cuda, struct device_copy *on_device)
{
    if (on_device->owner)
        collrun_free(on_device->owner, on_device->base);
    else if (on_device->base)
        spare_put(cuda, on_device->base, on_device->capacity, on_device->device);
    *on_device = (struct device_copy){0};
}

static void device_copy_grow(struct trial *t, struct device_copy *on_device, size_t len)
{
    struct cuda *cuda = t->team->run->cuda;
    struct collrun_group *owner = t->team->run->alloc ? t->team->group : NULL;
    if (on_device->capacity >= len && on_device->owner == owner)
        return;
    device_copy_free(cuda, on_device);
    if (owner && collrun_alloc_device(owner, t->device, 2 * len, &on_device->base) != COLLRUN_OK) {
        fprintf(stderr, "conform: collrun_alloc_device: %s\n", collrun_error());
        abort();
    }
    if (!owner && !(on_device->base = spare_take(cuda, 2 * len, t->device)))
        must(cuda, cuda->malloc(&on_device->base, 2 * len), "cudaMalloc");
    on_device->device = t->device;
    on_device->owner = owner;
    on_device->capacity = 2 * len;
}

/* The copy of the buffer's first byte; it is aligned as that byte is. */
static unsigned char *device_copy_at(const struct guarded *b, const struct device_copy *on_device)
{
    return (unsigned char *)on_device->base + EDGE + (uintptr_t)b->at % EDGE;
}

static void upload(struct trial *t, const struct guarded *b, struct device_copy *on_device)
{
    struct cuda *cuda = t->team->run->cuda;
    void *stream = cuda->callers[t->device];
    size_t len = b->len + (size_t)2 * EDGE;
    device_copy_grow(t, on_device, len + EDGE);
    unsigned char *at = device_copy_at(b, on_device) - EDGE;
    for (int i = 0; i < BUSY; i++) /* what was there before, not done yet when the call comes */
        must(cuda, cuda->fill(at, 0xee, len, stream), "cudaMemsetAsync");
    must(cuda, cuda->copy(at, b->at - EDGE, len, TO_DEVICE, stream), "cudaMemcpyAsync");
}

/* An address in one of the trial's buffers, seen on the GPU. */
static void *translate(const struct trial *t, const void *host)
{
    const unsigned char *at = host;
    const struct guarded *buffers[] = {&t->recv, &t->send};
    for (int i = 0; i < 2; i++)
        if (at >= buffers[i]->at && at <= buffers[i]->at + buffers[i]->len)
            return device_copy_at(buffers[i], &t->device_copies[i]) + (at - buffers[i]->at);
    return NULL;
}

void device_upload(struct trial *t)
{
    struct cuda *cuda = t->team->run->cuda;
    must(cuda, cuda->set_device(t->device), "cudaSetDevice");
    upload(t, &t->recv, &t->device_copies[0]);
    upload(t, &t->send, &t->device_copies[1]);
    t->call.send = translate(t, t->call.send);
    t->call.recv = translate(t, t->call.recv);
    t->call.device = t->device;
    t->call.stream = t->team->serial % 3 ? cuda->callers[t->device] : NULL; /* the group knows */
    t->uploaded = true;
}

/* Whether there may be no buffer that the operation would come after. */
static bool may_be_empty(const struct trial *t)
{
    enum collrun_kind kind = t->shape.kind;
    return kind == COLLRUN_BARRIER ||
           (kind == COLLRUN_SCATTERV ? !t->call.recvcount : !t->call.count);
}

static void download(struct trial *t, void *stream)
{
    struct cuda *cuda = t->team->run->cuda;
    const struct guarded *buffers[] = {&t->recv, &t->send};
    if (!t->uploaded)
        return;
    t->uploaded = false;
    must(cuda, cuda->set_device(t->device), "cudaSetDevice");
    if (may_be_empty(t))
        must(cuda, cuda->stream_wait(cuda->callers[t->device]), "cudaStreamSynchronize");
    for (int i = 0; i < 2; i++)
        must(cuda,
             cuda->copy(buffers[i]->at - EDGE,
                        device_copy_at(buffers[i], &t->device_copies[i]) - EDGE,
                        buffers[i]->len + (size_t)2 * EDGE, TO_HOST, stream),
             "cudaMemcpyAsync");
}

void device_download(struct trial *t)
{
    download(t, t->team->run->cuda->readers[t->device]);
}

void device_free(struct trial *t)
{
    for (int i = 0; t->team && i < 2; i++)
        device_copy_free(t->team->run->cuda, &t->device_copies[i]);
}

/* In every other case a stream waits for the request, and brings back what it has made. */
static void follow(struct trial *t, struct collrun_request *request)
{
    void *stream = t->team->run->cuda->callers[t->device];
    if (t->team->serial % 2 && collrun_wait_stream(request, t->device, stream) == COLLRUN_OK)
        download(t, stream);
}

/* Waits for a request: the host, or a stream before the host looks. */
int device_wait(struct trial *t, struct collrun_request *request)
{
    follow(t, request);
    return collrun_wait(request);
}

/* ---- several GPUs in each process ---- */

/* A group in which each GPU is a rank. */
struct device_set {
    struct team teams[DEVICES_MAX]; /* those of this process */
    struct trial trials[DEVICES_MAX];
    void *idle; /* if not NULL: what all GPUs but the root pass as the buffer that only the root
                   uses */
    int n;
};

static void device_set_open(struct device_set *c, struct team *team)
{
    *c = (struct device_set){.n = collrun_devices(team->group)};
    for (int d = 0; d < c->n && d < DEVICES_MAX; d++) {
        c->teams[d] = *team;
        c->teams[d].rank = team->rank * c->n + d;
        c->teams[d].size = team->size * c->n;
    }
}

/* What `place` means to the library: a rank and one of its GPUs. */
static void address(struct collrun_call *call, int n)
{
    bool message = call->kind == COLLRUN_SEND || call->kind == COLLRUN_RECV;
    int place = message ? call->peer : call->root;
    call->peer = call->root = place / n;
    call->peer_device = place % n;
}

/* One collective: a call per GPU, as one request, or in every fourth case by collrun_run. */
static void device_set_run(struct device_set *c, const struct shape *shape)
{
    struct collrun_call calls[DEVICES_MAX];
    struct collrun_request *request;
    if (c->teams[0].dead)
        return;
    for (int d = 0; d < c->n; d++) {
        c->trials[d].device = d;
        trial_prepare(&c->trials[d], &c->teams[d], shape);
        calls[d] = c->trials[d].call;
        if (c->idle && c->teams[d].rank != shape->root)
            calls[d].recv = c->idle;
        address(&calls[d], c->n);
    }
    bool blocks = c->teams[0].serial % 4 == 3;
    int status = blocks ? collrun_run(c->teams[0].group, calls, c->n)
                        : collrun_start_many(c->teams[0].group, calls, c->n, &request);
    /* Each GPU is the first one in turn: later ones may be done by then. */
    for (int k = 0; !blocks && status == COLLRUN_OK && k < c->n; k++)
        follow(&c->trials[(c->teams[0].serial / 2 + (uint64_t)k) % (uint64_t)c->n], request);
    if (!blocks && status == COLLRUN_OK)
        status = collrun_wait(request);
    for (int d = 0; d < c->n; d++)
        trial_verify(&c->trials[d], status);
}

/* A message between any two GPUs, of one process or of two. */
static void device_set_send(struct device_set *c, struct shape s)
{
    struct collrun_call calls[2];
    struct collrun_request *request;
    struct trial *mine[2];
    int n = 0;
    if (c->teams[0].dead)
        return;
    for (int d = 0; d < c->n; d++) {
        struct team *place = &c->teams[d];
        if (place->rank != s.from && place->rank != s.to) {
            place->serial++; /* as those two do */
            continue;
        }
        s.kind = place->rank == s.from ? COLLRUN_SEND : COLLRUN_RECV;
        c->trials[d].device = d;
        mine[n] = &c->trials[d];
        trial_prepare(mine[n], place, &s);
        calls[n] = mine[n]->call;
        address(&calls[n++], c->n);
    }
    if (!n)
        return;
    int status = collrun_start_many(c->teams[0].group, calls, n, &request);
    if (status == COLLRUN_OK)
        status = collrun_wait(request);
    for (int i = 0; i < n; i++)
        trial_verify(mine[i], status);
}

static void device_set_counts(struct device_set *c, struct shape s)
{
    static const size_t counts[] = {0, 1, 17, 1000, 70001};
    for (size_t i = 0; i < ARRAY_LEN(counts); i++) {
        s.count = counts[i];
        s.misalign = i == 2 ? 1 : 0;
        device_set_run(c, &s);
    }
}

/* Roots, layouts and types take turns: the sweeps have been through all of them. */
static void device_set_sweep(struct device_set *c, enum collrun_kind kind)
{
    struct conform *run = c->teams[0].run;
    for (int dtype = 0; dtype < COLLRUN_DTYPE_COUNT; dtype++)
        for (int op = 0; op < COLLRUN_OP_COUNT; op++) {
            struct shape s = {.kind = kind,
                              .dtype = (enum collrun_dtype)dtype,
                              .op = (enum collrun_op)op,
                              .root = (dtype * 5 + op) % c->teams[0].size,
                              .layout = is_v(kind) ? (enum layout)(dtype % 3) : LAYOUT_PACKED};
            bool wanted = dtype_in_scope(run, s.dtype) && op_in_scope(run, s.op);
            if (!wanted || (has_op(kind) ? !op_applies(s.dtype, s.op) : op > 0))
                continue;
            device_set_counts(c, s);
            s.in_place = has_in_place(kind);
            if (s.in_place)
                device_set_counts(c, s);
        }
}

static void device_set_messages(struct device_set *c)
{
    int size = c->teams[0].size;
    for (int from = 0; from < size; from++)
        for (int to = 0; to < size; to++) {
            struct shape s = {.dtype = (from + to) % 2 ? COLLRUN_INT32 : COLLRUN_FLOAT64,
                              .from = from,
                              .to = to,
                              .count = from == to ? 0 : (size_t)(from * 1000 + to * 10)};
            if (from != to)
                device_set_send(c, s);
        }
}

/* Longer than what a backend may work on at a time when it does not leave it to the library. */
static void device_set_long(struct device_set *c)
{
    size_t count = ((size_t)4 << 20) / ((size_t)c->teams[0].size * 4) + 4321;
    struct shape s = {
        .kind = COLLRUN_ALLREDUCE, .dtype = COLLRUN_INT32, .op = COLLRUN_BXOR, .count = count};
    device_set_run(c, &s);
    s = (struct shape){
        .kind = COLLRUN_ALLTOALL, .dtype = COLLRUN_INT32, .count = count, .in_place = true};
    device_set_run(c, &s);
}

/* Calls that are wrong on one GPU are refused, and the group remains usable. */
static void device_set_refused(struct device_set *c, struct team *team, bool elsewhere)
{
    struct collrun_call calls[DEVICES_MAX];
    struct collrun_request *request;
    struct shape s = {.kind = COLLRUN_ALLREDUCE, .dtype = COLLRUN_FLOAT32, .count = 2};
    if (c->teams[0].dead) /* a copy that timed out may still write to a buffer */
        return;
    for (int d = 0; d < c->n; d++) {
        c->trials[d].device = d;
        trial_prepare(&c->trials[d], &c->teams[d], &s);
        calls[d] = c->trials[d].call;
        if (!elsewhere) /* a float that starts at an odd address would stop the GPU */
            calls[d].recv = (char *)calls[d].recv + 1;
    }
    if (elsewhere) /* and so would one that another GPU has */
        calls[0].recv = calls[1].recv;
    team_case(team);
    team_want(team, collrun_start_many(team->group, calls, c->n, &request), COLLRUN_ERR_INVALID,
              elsewhere ? "a buffer on another GPU" : "a buffer at an odd address");
    device_set_run(c, &s);
}

/* Only the root's GPU needs the receive buffer of a gather; the pointers of the other GPUs are
 * ignored. */
static void device_set_unused_buffers(struct device_set *c)
{
    struct shape s = {.kind = COLLRUN_GATHER, .dtype = COLLRUN_FLOAT32, .count = 100};
    c->idle = c;
    device_set_run(c, &s);
    c->idle = NULL;
}

void suite_devices(struct team *team)
{
    struct device_set *c = malloc(sizeof *c);
    if (!c)
        abort();
    device_set_open(c, team);
    team_case(team);
    for (int d = 0; d < collrun_device_count(team->run->ctx, NULL); d++)
        team_want(team, collrun_device_synchronize(team->run->ctx, d), COLLRUN_OK,
                  "device_synchronize");
    if (c->n < 1 || c->n > DEVICES_MAX)
        team_fail(team, "the group drives %d GPUs", c->n);
    for (int kind = COLLRUN_ALLREDUCE; c->n && kind < COLLRUN_KIND_COUNT; kind++)
        if (!collrun_kind_is_message((enum collrun_kind)kind) &&
            kind_in_scope(team->run, (enum collrun_kind)kind))
            device_set_sweep(c, (enum collrun_kind)kind);
    if (c->n) {
        device_set_long(c);
        device_set_refused(c, team, false);
        if (c->n > 1)
            device_set_refused(c, team, true);
        device_set_unused_buffers(c);
        device_set_messages(c);
    }
    team_want(team, collrun_barrier(team->group), COLLRUN_OK, "barrier");
    for (int d = 0; d < c->n; d++)
        trial_free(&c->trials[d]);
    free(c);
}

/* ---- memory that is not a trial's ---- */

void *lend(struct team *team, int device, void *host, size_t len)
{
    void *there = NULL;
    if (!team->run->cuda || !len)
        return team->run->cuda ? NULL : host;
    team_want(team, collrun_alloc_device(team->group, device, len, &there), COLLRUN_OK,
              "alloc_device");
    int index = -1;
    if (strcmp(collrun_memory_of(team->group, host, NULL), "host") != 0 ||
        strcmp(collrun_memory_of(team->group, there, &index), "host") == 0 || index != device)
        team_fail(team, "collrun_memory_of: %s, device %d",
                  collrun_memory_of(team->group, there, NULL), index);
    team_want(team, collrun_copy(team->group, there, host, len), COLLRUN_OK, "copy");
    return there;
}

void take_back(struct team *team, void *host, void *lent, size_t len)
{
    if (lent == host || !lent)
        return;
    team_want(team, collrun_copy(team->group, host, lent, len), COLLRUN_OK, "copy");
    team_want(team, collrun_free(team->group, lent), COLLRUN_OK, "free");
}
