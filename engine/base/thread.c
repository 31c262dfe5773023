/* SPDX-License-Identifier: Apache-2.0
 *
 * The new thread inherits the signal mask of its creator, which therefore blocks all signals during
 * the creation.
 */
#include "base/thread.h"

#include <linux/futex.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

int thread_start(pthread_t *thread, size_t stack_len, void *(*run)(void *), void *arg)
{
    pthread_attr_t attr;
    pthread_t made;
    sigset_t all, before;
    int err = pthread_attr_init(&attr);
    if (err)
        return err;
    if (stack_len)
        err = pthread_attr_setstacksize(&attr, stack_len);
    if (!err) {
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        err = pthread_create(&made, &attr, run, arg);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    pthread_attr_destroy(&attr);
    if (!err)
        *thread = made;
    return err;
}

/* The C library has neither a wrapper nor the structure. */

enum {
    SLICE_NS = 100000, /* the kernel's minimum */
    RESET_ON_FORK = 1  /* the ranks get ordinary slices */
};

void sched_slice_shorten(void)
{
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
    } attr = {.size = sizeof attr};
    if (syscall(SYS_sched_getattr, 0, &attr, sizeof attr, 0) != 0 || attr.policy != 0)
        return; /* this thread has another policy */
    attr.flags = RESET_ON_FORK;
    attr.runtime = SLICE_NS;
    syscall(SYS_sched_setattr, 0, &attr, 0);
}

/* ---- futex wait ---- */

bool futex_wait_read(const char *text, struct futex_wait *out)
{
    long number;
    unsigned long op, value, timeout;
    if (sscanf(text, "%ld %lx %lx %lx %lx", &number, &out->address, &op, &value, &timeout) != 5 ||
        number != SYS_futex)
        return false;
    const unsigned long command = op & ~(unsigned long)(FUTEX_PRIVATE_FLAG | FUTEX_CLOCK_REALTIME);
    out->shared = !(op & FUTEX_PRIVATE_FLAG);
    out->timed = timeout != 0;
    return command == FUTEX_WAIT || command == FUTEX_WAIT_BITSET;
}

bool futex_wait_is_own(const struct futex_wait *f, pid_t pid)
{
    char path[32], line[512];
    bool private = false;
    if (!f->shared)
        return true;
    snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
    FILE *maps = fopen(path, "re");
    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long from, to;
        char rights[8];
        if (sscanf(line, "%lx-%lx %7s", &from, &to, rights) == 3 && f->address >= from &&
            f->address < to) {
            private = rights[3] == 'p';
            break;
        }
    }
    if (maps)
        fclose(maps);
    return private;
}
