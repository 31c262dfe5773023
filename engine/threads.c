/* SPDX-License-Identifier: Apache-2.0
 *
 * /proc/self/task. A thread's `syscall` is "NUMBER ARGUMENTS..." in hexadecimal while it sleeps in
 * one; its `schedstat` counts the time slices that it has had.
 */
#include "threads.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PREFIX "collrun/"

void thread_name_set(const char *name, struct thread_name *before)
{
    char text[sizeof before->text];
    if (before && prctl(PR_GET_NAME, before->text) < 0)
        before->text[0] = '\0';
    snprintf(text, sizeof text, PREFIX "%s", name);
    prctl(PR_SET_NAME, text);
}

void thread_name_restore(const struct thread_name *before)
{
    prctl(PR_SET_NAME, before->text);
}

static bool read_line(int thread, const char *what, char *out, size_t size)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/%s", thread, what);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, out, size - 1) : -1;
    if (fd >= 0)
        close(fd);
    out[n > 0 ? n : 0] = '\0';
    return n > 0;
}

static bool is_own(int thread)
{
    char name[32];
    return read_line(thread, "comm", name, sizeof name) &&
           strncmp(name, PREFIX, strlen(PREFIX)) == 0;
}

/* Is this address mapped privately, so that no other process has the futex there? */
static bool is_private(unsigned long address)
{
    char line[512];
    bool private = false;
    FILE *f = fopen("/proc/self/maps", "re");
    while (f && fgets(line, sizeof line, f)) {
        unsigned long from, to;
        char rights[8];
        if (sscanf(line, "%lx-%lx %7s", &from, &to, rights) == 3 && address >= from &&
            address < to) {
            private = rights[3] == 'p';
            break;
        }
    }
    if (f)
        fclose(f);
    return private;
}

/* In futex(address, wait, value, no time-out). */
static bool waits_for_own(int thread)
{
    char line[256];
    long number;
    unsigned long address, op, value, timeout;
    if (!read_line(thread, "syscall", line, sizeof line) ||
        sscanf(line, "%ld %lx %lx %lx %lx", &number, &address, &op, &value, &timeout) != 5 ||
        number != SYS_futex || timeout)
        return false;
    unsigned long command = op & ~(unsigned long)(FUTEX_PRIVATE_FLAG | FUTEX_CLOCK_REALTIME);
    return (command == FUTEX_WAIT || command == FUTEX_WAIT_BITSET) &&
           ((op & FUTEX_PRIVATE_FLAG) || is_private(address));
}

static bool stands(int thread, struct buf *proof)
{
    char slices[128];
    if (!waits_for_own(thread) || !read_line(thread, "schedstat", slices, sizeof slices))
        return false;
    buf_put_u32(proof, (uint32_t)thread);
    buf_put_str(proof, slices);
    return true;
}

bool threads_stand(bool (*known)(void *ctx, int thread), void *ctx, struct buf *proof)
{
    const struct dirent *entry;
    bool all = true;
    DIR *dir = opendir("/proc/self/task");
    if (!dir)
        return false;
    while (all && (entry = readdir(dir))) {
        int thread = atoi(entry->d_name);
        all = thread <= 0 || thread == getpid() || known(ctx, thread) || is_own(thread) ||
              stands(thread, proof);
    }
    closedir(dir);
    return all;
}
