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

static void make_name(char out[16], const char *name)
{
    snprintf(out, 16, PREFIX "%s", name);
}

void thread_name(const char *name)
{
    char text[16];
    make_name(text, name);
    prctl(PR_SET_NAME, text);
}

/* Calls `each` for every thread until it says false. False: it did, or /proc does not tell. */
static bool all_threads(bool (*each)(void *ctx, int thread), void *ctx)
{
    const struct dirent *entry;
    bool all = true;
    DIR *dir = opendir("/proc/self/task");
    if (!dir)
        return false;
    while (all && (entry = readdir(dir))) {
        int thread = atoi(entry->d_name);
        all = thread <= 0 || each(ctx, thread);
    }
    closedir(dir);
    return all;
}

/* ---- adopting ---- */

static bool is_main(void)
{
    return (int)syscall(SYS_gettid) == getpid();
}

static bool note_thread(void *ctx, int thread)
{
    struct adoption *a = ctx;
    int *grown = realloc(a->there, (a->nthere + 1) * sizeof *grown);
    if (!grown)
        return false;
    a->there = grown;
    a->there[a->nthere++] = thread;
    return true;
}

static bool name_if_new(void *ctx, int thread)
{
    const struct adoption *a = ctx;
    char path[64];
    for (size_t i = 0; i < a->nthere; i++) {
        if (a->there[i] == thread)
            return true;
    }
    snprintf(path, sizeof path, "/proc/self/task/%d/comm", thread);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd >= 0) {
        ssize_t n = write(fd, a->name, strlen(a->name));
        (void)n; /* it has ended, or stays unknown */
        close(fd);
    }
    return true;
}

void adoption_begin(struct adoption *a, const char *name)
{
    *a = (struct adoption){0};
    make_name(a->name, name);
    if (is_main()) {
        if (!all_threads(note_thread, a))
            a->name[0] = '\0';
        return;
    }
    prctl(PR_GET_NAME, a->own);
    prctl(PR_SET_NAME, a->name);
}

void adoption_end(struct adoption *a)
{
    if (!is_main())
        prctl(PR_SET_NAME, a->own);
    else if (a->name[0])
        all_threads(name_if_new, a);
    free(a->there);
}

/* ---- standing ---- */

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

struct survey {
    bool (*known)(void *ctx, int thread);
    void *ctx;
    struct buf *proof;
};

static bool survey_one(void *ctx, int thread)
{
    const struct survey *s = ctx;
    return thread == getpid() || s->known(s->ctx, thread) || is_own(thread) ||
           stands(thread, s->proof);
}

bool threads_stand(bool (*known)(void *ctx, int thread), void *ctx, struct buf *proof)
{
    struct survey s = {known, ctx, proof};
    return all_threads(survey_one, &s);
}
