/* SPDX-License-Identifier: Apache-2.0
 *
 * Two buffers: one that the caller fills, and one that the thread empties. They change places when
 * the thread has nothing left to do. An item is a struct disk_item, a name and its bytes.
 */
#include "report/disk.h"

#include "base/buf.h"
#include "base/loop.h"
#include "base/thread.h"
#include "xalloc.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum disk_do { DISK_APPEND, DISK_END, DISK_REPLACE, DISK_CREATE, DISK_FOLDER, DISK_RENAME };
enum { DISK_ERRORS = 8 };

struct disk_item {
    enum disk_do what;
    uint32_t file, last;
    size_t len; /* of the bytes behind it, the name not included */
    char name[DISK_NAME];
};

struct disk_file {
    int fd; /* -1: not open */
    bool dead;
};

struct disk {
    int dir, event;
    pthread_t thread;
    struct disk_file *files; /* of the thread */
    uint32_t nfiles;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* Under the lock: */
    struct buf queue;
    size_t in_work; /* bytes that the thread has taken and not yet written */
    bool was_full, ended;
    struct disk_error errors[DISK_ERRORS];
    uint32_t nerrors;
};

/* ---- the thread ---- */

static void disk_signal_event(const struct disk *d)
{
    eventfd_write(d->event, 1);
}

static void disk_report(struct disk *d, const char *name, int err)
{
    pthread_mutex_lock(&d->lock);
    if (d->nerrors == DISK_ERRORS)
        d->nerrors--;
    struct disk_error *e = &d->errors[d->nerrors++];
    snprintf(e->name, sizeof e->name, "%s", name);
    e->err = err;
    pthread_mutex_unlock(&d->lock);
    disk_signal_event(d);
}

static void disk_close_descriptors(struct disk *d)
{
    for (uint32_t i = 0; i < d->nfiles; i++) {
        if (d->files[i].fd >= 0)
            close(d->files[i].fd);
        d->files[i].fd = -1;
    }
}

/* Without a descriptor for one more file, all others are closed: each is opened again at its next
 * byte. */
static int disk_open_file(struct disk *d, const char *name, int flags)
{
    flags |= O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW;
    int fd = openat(d->dir, name, flags, 0666);
    if (fd >= 0 || (errno != EMFILE && errno != ENFILE))
        return fd;
    disk_close_descriptors(d);
    return openat(d->dir, name, flags, 0666);
}

/* False: errno is set. */
static bool disk_write(int fd, const unsigned char *bytes, size_t len)
{
    while (len) {
        ssize_t n = write(fd, bytes, len);
        if (n < 0 && errno != EINTR)
            return false;
        bytes += n > 0 ? n : 0;
        len -= n > 0 ? (size_t)n : 0;
    }
    return true;
}

static void disk_do_append(struct disk *d, const struct disk_item *item, const void *bytes)
{
    struct disk_file *f = &d->files[item->file];
    if (f->dead)
        return;
    if (f->fd < 0)
        f->fd = disk_open_file(d, item->name, O_APPEND);
    if (f->fd >= 0 && disk_write(f->fd, bytes, item->len))
        return;
    f->dead = true;
    disk_report(d, item->name, errno);
}

static void disk_do_end(struct disk *d, const struct disk_item *item)
{
    for (uint32_t i = item->file; i <= item->last; i++) {
        if (d->files[i].fd >= 0)
            close(d->files[i].fd);
        d->files[i] = (struct disk_file){.fd = -1};
    }
}

static void disk_do_replace(struct disk *d, const struct disk_item *item, const void *bytes)
{
    char temporary[DISK_NAME + 8];
    const char *base = strrchr(item->name, '/');
    int folder = base ? (int)(base + 1 - item->name) : 0;
    snprintf(temporary, sizeof temporary, "%.*s.%s.new", folder, item->name, item->name + folder);
    unlinkat(d->dir, temporary, 0); /* of a run that was killed while it wrote */
    int fd = disk_open_file(d, temporary, O_EXCL);
    if (fd < 0 || !disk_write(fd, bytes, item->len) ||
        renameat(d->dir, temporary, d->dir, item->name) < 0) {
        disk_report(d, item->name, errno);
        unlinkat(d->dir, temporary, 0);
    }
    if (fd >= 0)
        close(fd);
}

static void disk_do_create(struct disk *d, const struct disk_item *item)
{
    int fd = disk_open_file(d, item->name, 0);
    if (fd < 0)
        disk_report(d, item->name, errno);
    else
        close(fd);
}

static void disk_do(struct disk *d, const struct disk_item *item, const void *bytes)
{
    switch (item->what) {
    case DISK_APPEND:
        disk_do_append(d, item, bytes);
        break;
    case DISK_END:
        disk_do_end(d, item);
        break;
    case DISK_REPLACE:
        disk_do_replace(d, item, bytes);
        break;
    case DISK_CREATE:
        disk_do_create(d, item);
        break;
    case DISK_FOLDER:
        if (mkdirat(d->dir, item->name, 0777) < 0 && errno != EEXIST)
            disk_report(d, item->name, errno);
        break;
    case DISK_RENAME:
        renameat(d->dir, item->name, d->dir, bytes);
        break;
    }
}

static void disk_do_all(struct disk *d, const struct buf *work)
{
    struct disk_item item;
    for (size_t at = 0; at < work->len; at += sizeof item + item.len) {
        memcpy(&item, work->data + at, sizeof item);
        disk_do(d, &item, work->data + at + sizeof item);
    }
}

/* The thread has written what it took. */
static void disk_finish_work(struct disk *d)
{
    pthread_mutex_lock(&d->lock);
    d->in_work = 0;
    bool room = d->was_full && d->queue.len < DISK_QUEUE;
    d->was_full = d->was_full && !room;
    pthread_cond_broadcast(&d->changed);
    pthread_mutex_unlock(&d->lock);
    if (room)
        disk_signal_event(d);
}

static void *disk_main(void *arg)
{
    struct disk *d = arg;
    struct buf work;
    buf_init(&work);
    for (;;) {
        pthread_mutex_lock(&d->lock);
        while (!d->queue.len && !d->ended)
            pthread_cond_wait(&d->changed, &d->lock);
        struct buf full = d->queue;
        d->queue = work;
        work = full;
        d->in_work = work.len;
        pthread_mutex_unlock(&d->lock);
        if (!work.len)
            break;
        disk_do_all(d, &work);
        buf_clear(&work);
        disk_finish_work(d);
    }
    buf_fini(&work);
    return NULL;
}

/* ---- open and close ---- */

static void disk_free(struct disk *d)
{
    disk_close_descriptors(d);
    if (d->event >= 0)
        close(d->event);
    buf_fini(&d->queue);
    pthread_mutex_destroy(&d->lock);
    pthread_cond_destroy(&d->changed);
    free(d->files);
    free(d);
}

struct disk *disk_open(int dir, uint32_t nfiles)
{
    struct disk *d = xcalloc(1, sizeof *d);
    pthread_condattr_t monotonic;
    d->dir = dir;
    d->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    buf_init(&d->queue);
    pthread_mutex_init(&d->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&d->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    d->files = xcalloc(nfiles, sizeof *d->files);
    d->nfiles = nfiles;
    for (uint32_t i = 0; i < d->nfiles; i++)
        d->files[i].fd = -1;
    int err = d->event >= 0 ? thread_start(&d->thread, 0, disk_main, d) : errno;
    if (!err)
        return d;
    disk_free(d);
    errno = err;
    return NULL;
}

bool disk_wait(struct disk *d, unsigned limit_ms)
{
    uint64_t until = now_ns() + limit_ms * 1000000ull;
    const struct timespec at = {(time_t)(until / 1000000000u), (long)(until % 1000000000u)};
    int rc = 0;
    pthread_mutex_lock(&d->lock);
    while ((d->queue.len || d->in_work) && rc == 0)
        rc = pthread_cond_timedwait(&d->changed, &d->lock, &at);
    bool idle = !d->queue.len && !d->in_work;
    pthread_mutex_unlock(&d->lock);
    return idle;
}

bool disk_close(struct disk *d, unsigned limit_ms)
{
    bool idle = disk_wait(d, limit_ms);
    pthread_mutex_lock(&d->lock);
    d->ended = true;
    pthread_cond_broadcast(&d->changed);
    pthread_mutex_unlock(&d->lock);
    if (!idle) { /* the thread keeps `d` */
        pthread_detach(d->thread);
        return false;
    }
    pthread_join(d->thread, NULL);
    close(d->dir);
    disk_free(d);
    return true;
}

/* ---- the queue ---- */

static void disk_put(struct disk *d, struct disk_item *item, const char *name, const void *bytes)
{
    snprintf(item->name, sizeof item->name, "%s", name);
    pthread_mutex_lock(&d->lock);
    const bool full = item->what == DISK_APPEND && d->queue.len + item->len > DISK_QUEUE_MAX;
    if (!full) {
        buf_put(&d->queue, item, sizeof *item);
        buf_put(&d->queue, bytes, item->len);
        pthread_cond_broadcast(&d->changed);
    }
    pthread_mutex_unlock(&d->lock);
    if (full)
        disk_report(d, name, ENOBUFS);
}

void disk_append(struct disk *d, uint32_t file, const char *name, const void *bytes, size_t len)
{
    disk_put(d, &(struct disk_item){.what = DISK_APPEND, .file = file, .len = len}, name, bytes);
}

void disk_end_files(struct disk *d, uint32_t first, uint32_t last)
{
    disk_put(d, &(struct disk_item){.what = DISK_END, .file = first, .last = last}, "", "");
}

void disk_replace(struct disk *d, const char *name, const void *bytes, size_t len)
{
    disk_put(d, &(struct disk_item){.what = DISK_REPLACE, .len = len}, name, bytes);
}

void disk_create(struct disk *d, const char *name)
{
    disk_put(d, &(struct disk_item){.what = DISK_CREATE}, name, "");
}

void disk_make_folder(struct disk *d, const char *name)
{
    disk_put(d, &(struct disk_item){.what = DISK_FOLDER}, name, "");
}

void disk_rename(struct disk *d, const char *from, const char *to)
{
    disk_put(d, &(struct disk_item){.what = DISK_RENAME, .len = strlen(to) + 1}, from, to);
}

bool disk_full(struct disk *d)
{
    pthread_mutex_lock(&d->lock);
    d->was_full = d->queue.len + d->in_work > DISK_QUEUE;
    bool full = d->was_full;
    pthread_mutex_unlock(&d->lock);
    return full;
}

bool disk_is_idle(struct disk *d)
{
    return disk_wait(d, 0);
}

int disk_event(const struct disk *d)
{
    return d->event;
}

void disk_acknowledge(struct disk *d)
{
    eventfd_t count;
    eventfd_read(d->event, &count);
}

bool disk_take_error(struct disk *d, struct disk_error *error)
{
    pthread_mutex_lock(&d->lock);
    bool is = d->nerrors > 0;
    if (is) {
        *error = d->errors[0];
        memmove(d->errors, d->errors + 1, --d->nerrors * sizeof *d->errors);
    }
    pthread_mutex_unlock(&d->lock);
    return is;
}
