/* SPDX-License-Identifier: Apache-2.0
 *
 * One thread per stream, started with its first work; it runs work in order, each item after a
 * random delay. A stream counts the work that it got and that is done; an event is a stream and
 * such a number. A destroyed stream or event stays in its list, and is reused only after a number
 * of others were destroyed, so that a stale handle is detected.
 */
#include "stream.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

enum { DEAD_STREAMS = 16, DEAD_EVENTS = 256 };

struct work {
    struct work *next;
    void (*run)(void *arg);
    void *arg;
};

struct CUstream_st {
    struct CUstream_st *next; /* of all */
    int device, priority;
    unsigned flags;
    bool is_default, destroyed, running;
    uint64_t died; /* the number of destructions before it */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct work *first, **last;
    uint64_t given, done;
};

struct CUevent_st {
    struct CUevent_st *next;
    int device;
    unsigned flags;
    bool destroyed;
    uint64_t died;
    struct CUstream_st *stream; /* of the last record; NULL: none */
    uint64_t number;
    double reached;
};

_Thread_local bool stream_in_host_function;
static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static struct CUstream_st *all_streams, *defaults[FAKE_GPUS_MAX];
static struct CUevent_st *all_events;
static uint64_t streams_died, events_died;

/* ---- streams ---- */

/* An idle stream that was destroyed long ago, or a new one; in the list in both cases. */
static struct CUstream_st *find_room(void)
{
    struct CUstream_st *s = all_streams;
    while (s && !(s->destroyed && s->died + DEAD_STREAMS <= streams_died &&
                  stream_done(s, stream_last(s))))
        s = s->next;
    if (s || !(s = calloc(1, sizeof *s)))
        return s;
    s->last = &s->first;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    s->next = all_streams;
    all_streams = s;
    return s;
}

struct CUstream_st *stream_new(int device, unsigned flags, int priority)
{
    pthread_mutex_lock(&all_lock);
    struct CUstream_st *stream = find_room();
    if (stream) {
        pthread_mutex_lock(&stream->lock);
        stream->device = device;
        stream->flags = flags;
        stream->priority = priority;
        stream->destroyed = false;
        pthread_mutex_unlock(&stream->lock);
    }
    pthread_mutex_unlock(&all_lock);
    return stream;
}

static struct CUstream_st *default_stream(int device)
{
    pthread_mutex_lock(&all_lock);
    struct CUstream_st *stream = defaults[device];
    pthread_mutex_unlock(&all_lock);
    if (stream || !(stream = stream_new(device, 0, 0)))
        return stream;
    pthread_mutex_lock(&all_lock);
    if (!defaults[device]) {
        stream->is_default = true;
        defaults[device] = stream;
    }
    stream =
        defaults[device]; /* of another thread, if that was faster; then this one stays unused */
    pthread_mutex_unlock(&all_lock);
    return stream;
}

struct CUstream_st *stream_get(struct CUstream_st *stream)
{
    if (stream == NULL || (uintptr_t)stream == 1)
        return default_stream(fake_current());
    pthread_mutex_lock(&all_lock);
    struct CUstream_st *s = all_streams;
    while (s && s != stream)
        s = s->next;
    bool live = s && !s->destroyed;
    pthread_mutex_unlock(&all_lock);
    return live ? s : NULL;
}

void stream_destroy(struct CUstream_st *stream)
{
    pthread_mutex_lock(&all_lock);
    pthread_mutex_lock(&stream->lock);
    stream->destroyed = true;
    stream->died = ++streams_died;
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
    pthread_mutex_unlock(&all_lock);
}

int stream_device(const struct CUstream_st *stream)
{
    return stream->device;
}

unsigned stream_flags(const struct CUstream_st *stream)
{
    return stream->flags;
}

int stream_priority(const struct CUstream_st *stream)
{
    return stream->priority;
}

static void *serve(void *arg)
{
    struct CUstream_st *stream = arg;
    pthread_mutex_lock(&stream->lock);
    while (stream->first || !stream->destroyed) {
        if (!stream->first) {
            pthread_cond_wait(&stream->changed, &stream->lock);
            continue;
        }
        struct work *work = stream->first;
        pthread_mutex_unlock(&stream->lock);
        fake_delay();
        work->run(work->arg);
        pthread_mutex_lock(&stream->lock);
        stream->first = work->next;
        if (!stream->first)
            stream->last = &stream->first;
        stream->done++;
        free(work);
        pthread_cond_broadcast(&stream->changed);
    }
    stream->running = false;
    pthread_mutex_unlock(&stream->lock);
    return NULL;
}

static bool start_thread(struct CUstream_st *stream)
{
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool failed = pthread_create(&thread, NULL, serve, stream) != 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!failed)
        pthread_detach(thread);
    return !failed;
}

static uint64_t append(struct CUstream_st *stream, void (*run)(void *arg), void *arg)
{
    struct work *work = calloc(1, sizeof *work);
    if (!work)
        return 0;
    work->run = run;
    work->arg = arg;
    pthread_mutex_lock(&stream->lock);
    if (!stream->running)
        stream->running = start_thread(stream);
    uint64_t number = stream->running ? ++stream->given : 0;
    if (number) {
        *stream->last = work;
        stream->last = &work->next;
        pthread_cond_broadcast(&stream->changed);
    } else {
        free(work);
    }
    pthread_mutex_unlock(&stream->lock);
    return number;
}

uint64_t stream_last(struct CUstream_st *stream)
{
    pthread_mutex_lock(&stream->lock);
    uint64_t last = stream->given;
    pthread_mutex_unlock(&stream->lock);
    return last;
}

bool stream_done(struct CUstream_st *stream, uint64_t n)
{
    pthread_mutex_lock(&stream->lock);
    bool done = stream->done >= n;
    pthread_mutex_unlock(&stream->lock);
    return done;
}

void stream_wait(struct CUstream_st *stream, uint64_t n)
{
    pthread_mutex_lock(&stream->lock);
    while (stream->done < n)
        pthread_cond_wait(&stream->changed, &stream->lock);
    pthread_mutex_unlock(&stream->lock);
}

/* ---- order between streams ---- */

struct wait {
    struct CUstream_st *stream;
    uint64_t number;
};

static void run_wait(void *arg)
{
    struct wait *wait = arg;
    stream_wait(wait->stream, wait->number);
    free(wait);
}

static bool order(struct CUstream_st *stream, struct CUstream_st *other, uint64_t number)
{
    if (stream == other || stream_done(other, number))
        return true;
    struct wait *wait = malloc(sizeof *wait);
    if (!wait)
        return false;
    *wait = (struct wait){other, number};
    return append(stream, run_wait, wait) != 0;
}

static bool blocking(const struct CUstream_st *stream)
{
    return !(stream->flags & cudaStreamNonBlocking);
}

uint64_t stream_push(struct CUstream_st *stream, void (*run)(void *arg), void *arg)
{
    bool ok = true;
    if (blocking(stream)) {
        pthread_mutex_lock(&all_lock);
        for (struct CUstream_st *s = all_streams; ok && s; s = s->next)
            if (s->device == stream->device && blocking(s) && s->is_default != stream->is_default)
                ok = order(stream, s, stream_last(s));
        pthread_mutex_unlock(&all_lock);
    }
    return ok ? append(stream, run, arg) : 0;
}

int fake_stream_device(struct CUstream_st *stream)
{
    struct CUstream_st *s = stream_get(stream);
    return s ? s->device : -1;
}

int fake_launch(struct CUstream_st *stream, int device, void (*run)(void *arg), void *arg)
{
    struct CUstream_st *s = stream_get(stream);
    if (!s || s->device != device)
        return cudaErrorInvalidResourceHandle;
    if (fake_broken(device))
        return fake_broken(device);
    return stream_push(s, run, arg) ? cudaSuccess : cudaErrorMemoryAllocation;
}

int fake_order(struct CUstream_st *stream, struct CUstream_st *other)
{
    struct CUstream_st *s = stream_get(stream), *o = stream_get(other);
    if (!s || !o)
        return cudaErrorInvalidResourceHandle;
    return order(s, o, stream_last(o)) ? cudaSuccess : cudaErrorMemoryAllocation;
}

void fake_drain(int device)
{
    pthread_mutex_lock(&all_lock);
    struct CUstream_st *first = all_streams; /* later ones are in front of it */
    pthread_mutex_unlock(&all_lock);
    for (struct CUstream_st *s = first; s; s = s->next)
        if (s->device == device)
            stream_wait(s, stream_last(s));
}

static pthread_rwlock_t freeing = PTHREAD_RWLOCK_INITIALIZER;

void fake_drain_alone(int device)
{
    pthread_rwlock_wrlock(&freeing);
    fake_drain(device);
    pthread_rwlock_unlock(&freeing);
}

void fake_await_frees(void)
{
    pthread_rwlock_rdlock(&freeing);
    pthread_rwlock_unlock(&freeing);
}

/* ---- events ---- */

struct CUevent_st *event_new(int device, unsigned flags)
{
    pthread_mutex_lock(&all_lock);
    struct CUevent_st *event = all_events;
    while (event && !(event->destroyed && event->died + DEAD_EVENTS <= events_died))
        event = event->next;
    struct CUevent_st *next = event ? event->next : all_events;
    bool fresh = !event;
    if (event || (event = malloc(sizeof *event)))
        *event = (struct CUevent_st){.next = next, .device = device, .flags = flags};
    if (fresh && event)
        all_events = event;
    pthread_mutex_unlock(&all_lock);
    return event;
}

bool event_valid(const struct CUevent_st *event)
{
    pthread_mutex_lock(&all_lock);
    const struct CUevent_st *e = all_events;
    while (e && e != event)
        e = e->next;
    bool valid = e && !e->destroyed;
    pthread_mutex_unlock(&all_lock);
    return valid;
}

void event_destroy(struct CUevent_st *event)
{
    pthread_mutex_lock(&all_lock);
    event->destroyed = true;
    event->died = ++events_died;
    pthread_mutex_unlock(&all_lock);
}

int event_device(const struct CUevent_st *event)
{
    return event->device;
}

bool event_timed(const struct CUevent_st *event)
{
    return !(event->flags & cudaEventDisableTiming);
}

static void reach(void *arg)
{
    struct CUevent_st *event = arg;
    double now = fake_seconds();
    pthread_mutex_lock(&all_lock);
    event->reached = now;
    pthread_mutex_unlock(&all_lock);
}

bool event_record(struct CUevent_st *event, struct CUstream_st *stream)
{
    uint64_t number = stream_push(stream, reach, event);
    pthread_mutex_lock(&all_lock);
    if (number) {
        event->stream = stream;
        event->number = number;
    }
    pthread_mutex_unlock(&all_lock);
    return number != 0;
}

static struct wait recorded(struct CUevent_st *event)
{
    pthread_mutex_lock(&all_lock);
    struct wait at = {event->stream, event->number};
    pthread_mutex_unlock(&all_lock);
    return at;
}

bool event_done(struct CUevent_st *event)
{
    struct wait at = recorded(event);
    return !at.stream || stream_done(at.stream, at.number);
}

void event_wait(struct CUevent_st *event)
{
    struct wait at = recorded(event);
    if (at.stream)
        stream_wait(at.stream, at.number);
}

bool event_order(struct CUstream_st *stream, struct CUevent_st *event)
{
    struct wait at = recorded(event);
    return !at.stream || order(stream, at.stream, at.number);
}

double event_time(struct CUevent_st *event)
{
    pthread_mutex_lock(&all_lock);
    double at = event->reached;
    pthread_mutex_unlock(&all_lock);
    return at;
}
