/* SPDX-License-Identifier: Apache-2.0
 *
 * What the linker puts in the place of some functions of the C library (--wrap).
 */
#include "memory_model/model.h"

#include "memory_model/inside.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

enum { POLL_NS = 20000, YIELD_NS = 300000 };

void *__real_memcpy(void *to, const void *from, size_t len);
void *__real_memset(void *to, int byte, size_t len);
void *__real_mmap(void *at, size_t len, int prot, int flags, int fd, off_t offset);
int __real_munmap(void *at, size_t len);

void *__wrap_memcpy(void *to, const void *from, size_t len)
{
    if (!model_watching)
        return __real_memcpy(to, from, len);
    model_copy(to, from, len);
    return to;
}

void *__wrap_memset(void *to, int byte, size_t len)
{
    if (!model_watching)
        return __real_memset(to, byte, len);
    model_fill(to, byte, len);
    return to;
}

int __wrap_snprintf(char *out, size_t size, const char *format, ...)
{
    char text[1024];
    va_list ap;
    va_start(ap, format);
    const int n = vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    const size_t len = (size_t)n < sizeof text ? (size_t)n + 1 : sizeof text;
    if (size)
        __wrap_memcpy(out, text, len < size ? len : size);
    if (size && len > size)
        out[size - 1] = '\0';
    return n;
}

/* Looking at the clock takes time, and is what a thread does that waits. */
int __wrap_clock_gettime(clockid_t clock, struct timespec *t)
{
    (void)clock;
    if (model_watching) {
        model_pass(POLL_NS);
        model_yield();
    }
    t->tv_sec = (time_t)(model_now_ns() / 1000000000u);
    t->tv_nsec = (long)(model_now_ns() % 1000000000u);
    return 0;
}

int __wrap_sched_yield(void)
{
    model_pass(YIELD_NS);
    model_yield();
    return 0;
}

/* A mutex is a word: 1 while a thread holds it. */
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex)
{
    uint64_t free = 0;
    while (model_watching &&
           !model_compare_exchange(mutex, 4, &free, 1, MODEL_ACQUIRE, MODEL_RELAXED)) {
        free = 0;
        model_pass(POLL_NS);
        model_yield();
    }
    return 0;
}

int __wrap_pthread_mutex_trylock(pthread_mutex_t *mutex)
{
    uint64_t free = 0;
    return !model_watching ||
                   model_compare_exchange(mutex, 4, &free, 1, MODEL_ACQUIRE, MODEL_RELAXED)
               ? 0
               : EBUSY;
}

int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex)
{
    if (model_watching)
        model_store(mutex, 4, 0, MODEL_RELEASE);
    return 0;
}

int __wrap_sched_getcpu(void)
{
    return (int)model_self();
}

/* Futexes, and the tid of a thread, which all share. */
long __wrap_syscall(long number, ...)
{
    va_list ap;
    va_start(ap, number);
    const uint32_t *at = va_arg(ap, const uint32_t *);
    const int op = va_arg(ap, int);
    const uint32_t value = va_arg(ap, uint32_t);
    const struct timespec *t = va_arg(ap, const struct timespec *);
    va_end(ap);
    if (number == SYS_gettid)
        return 100;
    if (number != SYS_futex)
        abort();
    if ((op & 127) == FUTEX_WAKE)
        model_wake(at);
    else
        model_sleep(at, value,
                    t ? (uint64_t)t->tv_sec * 1000000000u + (uint64_t)t->tv_nsec : UINT64_MAX / 2);
    return 0;
}

/* ---- memory of a file: all threads see it at the same place ---- */

static struct mapping {
    int fd;
    off_t offset;
    size_t len;
    void *at;
    uint32_t users;
} mappings[32];

void *__wrap_mmap(void *at, size_t len, int prot, int flags, int fd, off_t offset)
{
    struct mapping *unused = NULL;
    if (fd < 0)
        return __real_mmap(at, len, prot, flags, fd, offset);
    for (size_t i = 0; i < sizeof mappings / sizeof mappings[0]; i++) {
        struct mapping *m = &mappings[i];
        if (!m->users) {
            unused = m;
        } else if (m->fd == fd && m->offset == offset && m->len == len) {
            m->users++;
            return m->at;
        }
    }
    if (!unused)
        abort();
    *unused = (struct mapping){fd, offset, len, __real_mmap(at, len, prot, flags, fd, offset), 1};
    return unused->at;
}

int __wrap_munmap(void *at, size_t len)
{
    for (size_t i = 0; i < sizeof mappings / sizeof mappings[0]; i++)
        if (mappings[i].users && mappings[i].at == at)
            return --mappings[i].users ? 0 : __real_munmap(at, len);
    return __real_munmap(at, len);
}

int __wrap_madvise(void *at, size_t len, int advice)
{
    (void)at, (void)len, (void)advice;
    return 0;
}
