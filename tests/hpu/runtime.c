/* SPDX-License-Identifier: Apache-2.0
 *
 * Two reservations of the same size: `alias`, without any access, whose addresses are the pointers,
 * and `memory`, which holds the bytes. Each device has an equal part of both.
 */
#include "hpu.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <unistd.h>

#define DEVICE_LEN ((size_t)1 << 30)
enum { PAGE = 4096, BLOCKS_MAX = 4096 };

struct op {
    void *to;
    const void *from; /* NULL: fill */
    size_t len;
    int value;
    struct op *next;
};

struct stream {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct op *first, **end;
    bool busy;
    int device;
    struct stream *next;
};

struct block {
    size_t from, len; /* bytes, in the part of the device */
};

struct device {
    struct block blocks[BLOCKS_MAX]; /* in use, ascending */
    size_t nblocks;
    struct stream *none; /* the default stream */
};

static struct {
    pthread_once_t once;
    pthread_mutex_t lock; /* of devices and of the list of streams */
    int host, seen;
    unsigned lag_us;
    char *alias, *memory;
    struct device devices[HPU_MAX];
    struct stream *streams;
} hpu = {.once = PTHREAD_ONCE_INIT, .lock = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local int current;

/* ---- devices ---- */

static int env_number(const char *name)
{
    const char *text = getenv(name);
    return text ? atoi(text) : 0;
}

/* How many devices of this host the list names; the first that it does not know ends it. */
static int count_visible(const char *list, int host)
{
    int n = 0;
    while (*list) {
        char *end;
        const char *number = strncasecmp(list, "hpu-", 4) == 0 ? list + 4 : list;
        long device = strtol(number, &end, 10);
        if (end == number || device < 0 || device >= host)
            break;
        n++;
        list = end + strspn(end, ", ");
    }
    return n;
}

static void start(void)
{
    const char *list = getenv("HPU_VISIBLE_DEVICES");
    hpu.host = env_number("HPU_COUNT");
    hpu.host = hpu.host < 0 ? 0 : hpu.host < HPU_MAX ? hpu.host : HPU_MAX;
    hpu.seen = list ? count_visible(list, hpu.host) : hpu.host;
    hpu.lag_us = (unsigned)env_number("HPU_LAG");
    hpu.alias = mmap(NULL, HPU_MAX * DEVICE_LEN, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    hpu.memory = mmap(NULL, HPU_MAX * DEVICE_LEN, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (hpu.alias == MAP_FAILED || hpu.memory == MAP_FAILED)
        hpu.seen = 0;
}

int hpuHostCount(void)
{
    pthread_once(&hpu.once, start);
    return hpu.host;
}

int hpuGetDeviceCount(int *count)
{
    pthread_once(&hpu.once, start);
    *count = hpu.seen;
    return 0;
}

int hpuSetDevice(int device)
{
    pthread_once(&hpu.once, start);
    if (device < 0 || device >= hpu.seen)
        return HPU_INVALID;
    current = device;
    return 0;
}

const char *hpuGetErrorString(int code)
{
    static const char *const texts[] = {"success", "out of memory", "invalid argument",
                                        "cannot start a thread"};
    return code >= 0 && code < 4 ? texts[code] : "unknown error";
}

/* ---- memory ---- */

int hpuPointerDevice(const void *ptr)
{
    uintptr_t from = (uintptr_t)hpu.alias, at = (uintptr_t)ptr;
    if (!hpu.alias || at < from || at >= from + HPU_MAX * DEVICE_LEN)
        return -1;
    return (int)((at - from) / DEVICE_LEN);
}

void *hpuView(const void *ptr)
{
    if (hpuPointerDevice(ptr) < 0)
        return (void *)(uintptr_t)ptr;
    return hpu.memory + ((const char *)ptr - hpu.alias);
}

/* The first gap. */
static int take_block(struct device *d, size_t len, size_t *from)
{
    size_t at = 0, i = 0;
    while (i < d->nblocks && d->blocks[i].from - at < len)
        at = d->blocks[i].from + d->blocks[i].len, i++;
    if (d->nblocks == BLOCKS_MAX || len > DEVICE_LEN - at)
        return HPU_OUT_OF_MEMORY;
    memmove(&d->blocks[i + 1], &d->blocks[i], (d->nblocks - i) * sizeof *d->blocks);
    d->blocks[i] = (struct block){at, len};
    d->nblocks++;
    *from = at;
    return 0;
}

int hpuMalloc(void **ptr, size_t len)
{
    size_t from, rounded = (len + PAGE) / PAGE * PAGE;
    pthread_once(&hpu.once, start);
    if (current >= hpu.seen)
        return HPU_INVALID;
    pthread_mutex_lock(&hpu.lock);
    int rc = rounded < len ? HPU_OUT_OF_MEMORY : take_block(&hpu.devices[current], rounded, &from);
    pthread_mutex_unlock(&hpu.lock);
    if (rc == 0)
        *ptr = hpu.alias + (size_t)current * DEVICE_LEN + from;
    return rc;
}

static int await_device(int device);

int hpuFree(void *ptr)
{
    int device = hpuPointerDevice(ptr);
    if (!ptr)
        return 0;
    if (device < 0)
        return HPU_INVALID;
    await_device(device);
    size_t from = (size_t)((char *)ptr - hpu.alias) % DEVICE_LEN, i = 0;
    struct device *d = &hpu.devices[device];
    pthread_mutex_lock(&hpu.lock);
    while (i < d->nblocks && d->blocks[i].from != from)
        i++;
    bool found = i < d->nblocks;
    if (found) {
        madvise(hpuView(ptr), d->blocks[i].len, MADV_DONTNEED);
        d->nblocks--;
        memmove(&d->blocks[i], &d->blocks[i + 1], (d->nblocks - i) * sizeof *d->blocks);
    }
    pthread_mutex_unlock(&hpu.lock);
    return found ? 0 : HPU_INVALID;
}

/* ---- streams ---- */

static void execute(const struct op *op)
{
    if (hpu.lag_us)
        usleep(hpu.lag_us);
    if (op->from)
        memmove(hpuView(op->to), hpuView(op->from), op->len);
    else
        memset(hpuView(op->to), op->value, op->len);
}

static void *stream_run(void *arg)
{
    struct stream *s = arg;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        struct op *op = s->first;
        if (!op) {
            pthread_cond_wait(&s->changed, &s->lock);
            continue;
        }
        s->first = op->next;
        s->end = s->first ? s->end : &s->first;
        s->busy = true;
        pthread_mutex_unlock(&s->lock);
        execute(op);
        free(op);
        pthread_mutex_lock(&s->lock);
        s->busy = false;
        pthread_cond_broadcast(&s->changed);
    }
    return NULL;
}

/* With hpu.lock held. The thread lives as long as the process. */
static struct stream *stream_new(int device)
{
    struct stream *s = calloc(1, sizeof *s);
    sigset_t all, before;
    pthread_t thread;
    if (!s)
        return NULL;
    s->device = device;
    s->end = &s->first;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&thread, NULL, stream_run, s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc) {
        free(s);
        return NULL;
    }
    pthread_detach(thread);
    s->next = hpu.streams;
    hpu.streams = s;
    return s;
}

int hpuStreamCreateWithFlags(void **stream, unsigned flags)
{
    (void)flags;
    pthread_once(&hpu.once, start);
    pthread_mutex_lock(&hpu.lock);
    struct stream *s = stream_new(current);
    pthread_mutex_unlock(&hpu.lock);
    if (s)
        *stream = s;
    return s ? 0 : HPU_NO_THREAD;
}

static struct stream *stream_of(void *stream)
{
    pthread_once(&hpu.once, start);
    if (stream)
        return stream;
    struct device *d = &hpu.devices[current];
    pthread_mutex_lock(&hpu.lock);
    d->none = d->none ? d->none : stream_new(current);
    pthread_mutex_unlock(&hpu.lock);
    return d->none;
}

static int stream_add(void *stream, const struct op *op)
{
    struct stream *s = stream_of(stream);
    size_t staged = op->from && hpuPointerDevice(op->from) < 0 ? op->len : 0;
    struct op *copy = malloc(sizeof *copy + staged);
    if (!s || !copy) {
        free(copy);
        return s ? HPU_OUT_OF_MEMORY : HPU_NO_THREAD;
    }
    *copy = *op;
    if (staged)
        copy->from = memcpy(copy + 1, op->from, staged);
    copy->next = NULL;
    pthread_mutex_lock(&s->lock);
    *s->end = copy;
    s->end = &copy->next;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    return 0;
}

int hpuMemcpyAsync(void *to, const void *from, size_t len, int kind, void *stream)
{
    (void)kind;
    int rc = len ? stream_add(stream, &(struct op){.to = to, .from = from, .len = len}) : 0;
    return rc || hpuPointerDevice(to) >= 0 ? rc : hpuStreamSynchronize(stream);
}

int hpuMemsetAsync(void *ptr, int value, size_t len, void *stream)
{
    return stream_add(stream, &(struct op){.to = ptr, .value = value, .len = len});
}

static void stream_await(struct stream *s)
{
    pthread_mutex_lock(&s->lock);
    while (s->first || s->busy)
        pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

int hpuStreamSynchronize(void *stream)
{
    struct stream *s = stream_of(stream);
    if (s)
        stream_await(s);
    return s ? 0 : HPU_NO_THREAD;
}

static int await_device(int device)
{
    pthread_mutex_lock(&hpu.lock);
    struct stream *s = hpu.streams; /* streams are never freed, and new ones are put in front */
    pthread_mutex_unlock(&hpu.lock);
    for (; s; s = s->next)
        if (s->device == device)
            stream_await(s);
    return 0;
}

int hpuDeviceSynchronize(void)
{
    pthread_once(&hpu.once, start);
    return await_device(current);
}
