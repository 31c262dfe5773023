/* SPDX-License-Identifier: Apache-2.0 */
#include "report/file_writer.h"

#include "base/loop.h"
#include "base/thread.h"
#include "xalloc.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { CHUNK = 65536, STACK = 64 << 10, LAST_MS = 1000 };

struct file_writer {
    int pipe[2], file, event;
    pthread_t thread;
    _Atomic uint64_t done;
    _Atomic int err; /* is set before the bytes count as done */
    unsigned char bytes[CHUNK];
};

static void file_writer_append(struct file_writer *w, size_t len)
{
    const unsigned char *from = w->bytes;
    while (len) {
        ssize_t n = write(w->file, from, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            atomic_store(&w->err, errno);
            return;
        }
        from += n;
        len -= (size_t)n;
    }
}

/* Returns when the writing end is closed. */
static void *file_writer_main(void *arg)
{
    struct file_writer *w = arg;
    ssize_t n;
    while ((n = read(w->pipe[0], w->bytes, sizeof w->bytes)) > 0 || (n < 0 && errno == EINTR)) {
        if (n < 0)
            continue;
        file_writer_append(w, (size_t)n);
        atomic_fetch_add(&w->done, (uint64_t)n);
        eventfd_write(w->event, 1);
    }
    return NULL;
}

static void file_writer_release(struct file_writer *w)
{
    for (int i = 0; i < 2; i++)
        if (w->pipe[i] >= 0)
            close(w->pipe[i]);
    if (w->event >= 0)
        close(w->event);
    free(w);
}

struct file_writer *file_writer_new(int file)
{
    struct file_writer *w = xcalloc(1, sizeof *w);
    w->file = file;
    w->pipe[0] = w->pipe[1] = -1;
    w->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (w->event >= 0 && pipe2(w->pipe, O_CLOEXEC) == 0 &&
        fcntl(w->pipe[1], F_SETFL, O_NONBLOCK) == 0 &&
        thread_start(&w->thread, STACK, file_writer_main, w) == 0)
        return w;
    file_writer_release(w);
    return NULL;
}

int file_writer_fd(const struct file_writer *w)
{
    return w->pipe[1];
}

uint64_t file_writer_done(const struct file_writer *w)
{
    return atomic_load(&w->done);
}

int file_writer_event(const struct file_writer *w)
{
    return w->event;
}

void file_writer_acknowledge(struct file_writer *w)
{
    eventfd_t count;
    eventfd_read(w->event, &count);
}

int file_writer_take_error(struct file_writer *w)
{
    return atomic_exchange(&w->err, 0);
}

void file_writer_free(struct file_writer *w, uint64_t given)
{
    if (!w)
        return;
    uint64_t until = now_ns() + LAST_MS * 1000000ull;
    close(w->pipe[1]);
    w->pipe[1] = -1;
    while (file_writer_done(w) < given && now_ns() < until) {
        poll(&(struct pollfd){.fd = w->event, .events = POLLIN}, 1, LAST_MS);
        file_writer_acknowledge(w);
    }
    if (file_writer_done(w) < given) {
        pthread_detach(w->thread);
        return;
    }
    pthread_join(w->thread, NULL);
    file_writer_release(w);
}
