/* SPDX-License-Identifier: Apache-2.0
 *
 * Two buffers: one that this thread fills, and one that the writer thread empties. They change
 * places when the writer has nothing left to do. An item is a struct trace_item and its bytes.
 */
#include "trace/trace.h"

#include "base/loop.h"
#include "base/wire.h"
#include "xalloc.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MS_NS 1000000ull

enum trace_item_type { TRACE_ITEM_FRAME, TRACE_ITEM_INSTANT, TRACE_ITEM_DROPPED };
enum {
    TRACE_WRITE = 1 << 20,  /* so many bytes are written at once */
    TRACE_LONG = 4 << 20,   /* a file of this length */
    TRACE_AHEAD = 32 << 20, /* gets its place on the disk in parts of this length */
};

struct trace_item {
    enum trace_item_type type;
    uint32_t rank, attempt;
    int64_t ahead_ns;
    uint64_t ns, dropped;
    size_t len;
};

struct trace {
    int fd;
    pthread_t thread;
    struct trace_writer *writer; /* of the thread, and before and after it, as the next two */
    uint64_t written, reserved;  /* bytes of the file */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct buf queue; /* under the lock, as are the next two */
    bool ended;       /* nothing more is put into it */
    bool finished;    /* the thread has written everything */
    int err;
    /* For each rank, the number of operations whose frames found no room since the last one
     * that did. The thread does not use it. */
    uint64_t *dropped;
    uint32_t nranks;
};

/* ---- the writer thread ---- */

/* Blocks behind the end of a file cost half the time of those that are found one by one. A file
 * system that cannot do it, or has no room, is not asked again. */
static void trace_reserve(struct trace *t)
{
    if (t->written + TRACE_WRITE < t->reserved || t->written < TRACE_LONG)
        return;
    if (fallocate(t->fd, FALLOC_FL_KEEP_SIZE, (off_t)t->written, TRACE_AHEAD) == 0)
        t->reserved = t->written + TRACE_AHEAD;
    else
        t->reserved = UINT64_MAX;
}

/* Gives back what was reserved and not written. */
static void trace_release(const struct trace *t)
{
    if (t->reserved > t->written && ftruncate(t->fd, (off_t)t->written) != 0)
        return; /* the blocks stay with the file */
}

static void trace_write(struct trace *t)
{
    struct buf *out = trace_writer_out(t->writer);
    trace_reserve(t);
    while (buf_pending(out) && !t->err) {
        ssize_t n = write(t->fd, out->data + out->start, buf_pending(out));
        if (n < 0 && errno != EINTR)
            t->err = errno;
        else if (n > 0) {
            buf_consume(out, (size_t)n);
            t->written += (uint64_t)n;
        }
    }
    buf_clear(out);
}

static void trace_put_instant(struct trace_writer *w, const struct trace_item *item,
                              const char *texts)
{
    const char *parts[4];
    for (int i = 0; i < 4; i++) {
        parts[i] = texts;
        texts += strlen(texts) + 1;
    }
    trace_writer_instant(w, &(struct trace_instant){.ns = item->ns,
                                                    .rank = item->rank,
                                                    .name = parts[0],
                                                    .key = *parts[1] ? parts[1] : NULL,
                                                    .value = parts[2],
                                                    .text = *parts[3] ? parts[3] : NULL});
}

static void trace_do(struct trace *t, const struct trace_item *item, const unsigned char *bytes)
{
    if (item->type == TRACE_ITEM_INSTANT)
        trace_put_instant(t->writer, item, (const char *)bytes);
    else if (item->type == TRACE_ITEM_DROPPED)
        trace_writer_drop(t->writer, item->rank, item->ns, item->dropped);
    else
        trace_writer_frame(t->writer, &(struct trace_frame){.payload = bytes,
                                                            .len = item->len,
                                                            .rank = item->rank,
                                                            .attempt = item->attempt,
                                                            .ahead_ns = item->ahead_ns});
    if (buf_pending(trace_writer_out(t->writer)) >= TRACE_WRITE)
        trace_write(t);
}

static void trace_do_all(struct trace *t, const struct buf *work)
{
    struct trace_item item;
    for (size_t at = 0; at < work->len; at += sizeof item + item.len) {
        memcpy(&item, work->data + at, sizeof item);
        trace_do(t, &item, work->data + at + sizeof item);
    }
    trace_write(t);
}

static void *trace_main(void *arg)
{
    struct trace *t = arg;
    struct buf work;
    bool more = true;
    buf_init(&work);
    while (more) {
        pthread_mutex_lock(&t->lock);
        while (!t->queue.len && !t->ended)
            pthread_cond_wait(&t->changed, &t->lock);
        struct buf full = t->queue;
        t->queue = work;
        work = full;
        more = work.len || !t->ended;
        pthread_mutex_unlock(&t->lock);
        trace_do_all(t, &work);
        buf_clear(&work);
    }
    buf_fini(&work);
    pthread_mutex_lock(&t->lock);
    t->finished = true;
    pthread_cond_signal(&t->changed);
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

/* ---- open ---- */

static void trace_free(struct trace *t)
{
    if (t->fd >= 0)
        close(t->fd);
    trace_writer_free(t->writer);
    buf_fini(&t->queue);
    pthread_mutex_destroy(&t->lock);
    pthread_cond_destroy(&t->changed);
    free(t->dropped);
    free(t);
}

static int trace_start(struct trace *t, const char *path, bool follow, struct diag *d)
{
    t->fd =
        open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY | (follow ? 0 : O_NOFOLLOW),
             0666);
    if (t->fd < 0)
        return diag_sys(d, errno, "trace: %s", path);
    trace_writer_begin(t->writer);
    trace_write(t);
    if (t->err)
        return diag_sys(d, t->err, "trace: %s", path);
    int err = pthread_create(&t->thread, NULL, trace_main, t);
    if (!err)
        return COLLRUN_OK;
    diag_sys(d, err, "cannot start the thread that writes the trace");
    return diag_hint_processes(d);
}

struct trace *trace_open(const char *path, bool follow, const struct desc *desc, uint64_t begin_ns,
                         struct diag *d)
{
    struct trace *t = xcalloc(1, sizeof *t);
    pthread_condattr_t monotonic;
    t->fd = -1;
    t->nranks = desc->nranks;
    buf_init(&t->queue);
    pthread_mutex_init(&t->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&t->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    t->writer = trace_writer_new(desc, begin_ns);
    t->dropped = xcalloc(desc->nranks, sizeof *t->dropped);
    if (trace_start(t, path, follow, d) == COLLRUN_OK)
        return t;
    trace_free(t);
    return NULL;
}

/* ---- the queue ---- */

/* False: there is no room. */
static bool trace_put(struct trace *t, const struct trace_item *item, const void *bytes)
{
    pthread_mutex_lock(&t->lock);
    bool room = t->queue.len + sizeof *item + item->len <= TRACE_QUEUE &&
                buf_reserve(&t->queue, sizeof *item + item->len);
    bool idle = !t->queue.len;
    if (room) {
        buf_put(&t->queue, item, sizeof *item);
        buf_put(&t->queue, bytes, item->len);
    }
    pthread_mutex_unlock(&t->lock);
    if (room && idle)
        pthread_cond_signal(&t->changed);
    return room;
}

static void trace_put_dropped(struct trace *t, uint32_t rank)
{
    const struct trace_item item = {
        .type = TRACE_ITEM_DROPPED, .rank = rank, .ns = now_ns(), .dropped = t->dropped[rank]};
    if (t->dropped[rank] && trace_put(t, &item, ""))
        t->dropped[rank] = 0;
}

void trace_frame(struct trace *t, const struct trace_frame *f)
{
    if (!t)
        return;
    const struct trace_item item = {.type = TRACE_ITEM_FRAME,
                                    .rank = f->rank,
                                    .attempt = f->attempt,
                                    .ahead_ns = f->ahead_ns,
                                    .len = f->len};
    trace_put_dropped(t, f->rank);
    if (!trace_put(t, &item, f->payload))
        t->dropped[f->rank] += trace_writer_count(f);
}

void trace_instant(struct trace *t, const struct trace_instant *i)
{
    const char *parts[] = {i->name, i->key, i->value, i->text};
    struct buf b;
    if (!t)
        return;
    buf_init(&b);
    for (int k = 0; k < 4; k++)
        buf_put(&b, parts[k] ? parts[k] : "", parts[k] ? strlen(parts[k]) + 1 : 1);
    const struct trace_item item = {
        .type = TRACE_ITEM_INSTANT, .rank = i->rank, .ns = i->ns ? i->ns : now_ns(), .len = b.len};
    trace_put(t, &item, b.data);
    buf_fini(&b);
}

/* ---- close ---- */

/* False: the disk has not taken everything in time. */
static bool trace_await(struct trace *t)
{
    uint64_t until = now_ns() + TRACE_CLOSE_MS * MS_NS;
    const struct timespec at = {(time_t)(until / 1000000000u), (long)(until % 1000000000u)};
    int rc = 0;
    pthread_mutex_lock(&t->lock);
    t->ended = true;
    pthread_cond_signal(&t->changed);
    while (!t->finished && rc == 0)
        rc = pthread_cond_timedwait(&t->changed, &t->lock, &at);
    bool finished = t->finished;
    pthread_mutex_unlock(&t->lock);
    return finished;
}

struct trace_result trace_close(struct trace *t, int exit_code)
{
    struct trace_result result = {0};
    if (!t)
        return result;
    for (uint32_t i = 0; i < t->nranks; i++)
        trace_put_dropped(t, i);
    if (!trace_await(t)) { /* the thread keeps `t` */
        pthread_detach(t->thread);
        result.stuck = true;
        return result;
    }
    pthread_join(t->thread, NULL);
    trace_writer_end(t->writer, exit_code);
    trace_write(t);
    trace_release(t);
    struct trace_totals totals = trace_writer_totals(t->writer);
    result = (struct trace_result){
        .operations = totals.operations, .dropped = totals.dropped, .err = t->err};
    trace_free(t);
    return result;
}
