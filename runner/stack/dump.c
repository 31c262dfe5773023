/* SPDX-License-Identifier: Apache-2.0 */
#include "stack/dump.h"

#include "stack/unwind.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { DUMP_TRIES = 1000 /* milliseconds */, DUMP_MAX = 2 << 20 /* bytes */, DUMP_TCB = 2048 };

/* ---- the memfd and the thread that writes ---- */

/* Opens the memfd for reading; -1: there is none. */
static int dump_open(pid_t pid, int *signal)
{
    char path[64], target[64];
    struct dirent *e;
    int fd = -1;
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *fds = opendir(path);
    while (fds && fd < 0 && (e = readdir(fds))) {
        ssize_t n = readlinkat(dirfd(fds), e->d_name, target, sizeof target - 1);
        target[n > 0 ? n : 0] = '\0';
        if (sscanf(target, "/memfd:collrun-python-stack.%d", signal) == 1 && *signal > 0 &&
            *signal <= 64)
            fd = openat(dirfd(fds), e->d_name, O_RDWR | O_CLOEXEC);
    }
    if (fds)
        closedir(fds);
    return fd;
}

/* True if the thread handles the signal, and is not stopped. */
static bool dump_is_ready(pid_t pid, pid_t tid, int signal)
{
    char path[64], line[256], state = 'T';
    unsigned long long caught = 0;
    snprintf(path, sizeof path, "/proc/%d/task/%d/status", (int)pid, (int)tid);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f)) {
        sscanf(line, "State: %c", &state);
        sscanf(line, "SigCgt: %llx", &caught);
    }
    if (f)
        fclose(f);
    return (caught >> (signal - 1) & 1) && !strchr("TtXZ", state);
}

/* 0: there is none. */
static pid_t dump_find_writer(pid_t pid, const pid_t *tids, int n)
{
    char name[THREADS_NAME_LEN];
    for (int i = 0; i < n; i++) {
        threads_name(pid, tids[i], name);
        if (strcmp(name, "collrun/pystack") == 0)
            return tids[i];
    }
    return 0;
}

/* ---- the text ---- */

/* Its length when the last line is "end"; -1: not yet. */
static ssize_t dump_complete(int fd)
{
    struct stat st;
    char tail[4];
    if (fstat(fd, &st) < 0 || st.st_size < (off_t)sizeof tail || st.st_size > DUMP_MAX ||
        pread(fd, tail, sizeof tail, st.st_size - (off_t)sizeof tail) != (ssize_t)sizeof tail ||
        memcmp(tail, "end\n", sizeof tail) != 0)
        return -1;
    return (ssize_t)st.st_size;
}

/* Returns what the thread has written, which the caller frees; NULL: no answer. */
static char *dump_read(pid_t pid, pid_t writer, int fd, int signal)
{
    ssize_t len = -1;
    if (ftruncate(fd, 0) < 0 || syscall(SYS_tgkill, pid, writer, signal) < 0)
        return NULL;
    for (int i = 0; i < DUMP_TRIES && (len = dump_complete(fd)) < 0; i++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    char *text = len < 0 ? NULL : calloc(1, (size_t)len + 1);
    if (text && pread(fd, text, (size_t)len, 0) != len)
        text[0] = '\0';
    return text;
}

/* ---- the threads that run ---- */

struct dump_held {
    pid_t tids[THREADS_MAX];
    int signals[THREADS_MAX], n;
};

static void dump_hold(pid_t pid, const pid_t *tids, int n, struct dump_held *held)
{
    char name[THREADS_NAME_LEN];
    held->n = 0;
    for (int i = 0; i < n; i++) {
        threads_name(pid, tids[i], name);
        if (!threads_is_engine(name) && asleep_is_not(pid, tids[i]) &&
            unwind_stop(tids[i], &held->signals[held->n]) == 0)
            held->tids[held->n++] = tids[i];
    }
}

static void dump_release(const struct dump_held *held)
{
    for (int i = 0; i < held->n; i++)
        unwind_resume(held->tids[i], held->signals[i]);
}

/* ---- which thread is which ---- */

static bool dump_has(const pid_t *tids, int n, pid_t tid)
{
    for (int i = 0; i < n; i++) {
        if (tids[i] == tid)
            return true;
    }
    return false;
}

/* Sets the tid of each Python thread to the number at this offset in its control block, if that is
 * the tid of a thread. Returns for how many. */
static int dump_map_at(struct python_stacks *s, const int32_t *blocks, size_t at, const pid_t *tids,
                       int ntids)
{
    int mapped = 0;
    for (int i = 0; i < s->nthreads; i++) {
        pid_t tid = blocks[(size_t)i * (DUMP_TCB / sizeof *blocks) + at];
        s->threads[i].tid = 0;
        if (!dump_has(tids, ntids, tid) || python_find(s, tid))
            continue;
        s->threads[i].tid = tid;
        mapped++;
    }
    return mapped;
}

/* pthread_self() is the address of a control block of the C library, which has the tid at an offset
 * that depends on the library: the one with which most threads have a tid. */
static void dump_map(pid_t pid, struct python_stacks *s, const pid_t *tids, int ntids)
{
    const size_t words = DUMP_TCB / sizeof(int32_t);
    int32_t *blocks = calloc((size_t)s->nthreads + 1, DUMP_TCB);
    size_t best = 0;
    int most = 0;
    for (int i = 0; blocks && i < s->nthreads; i++) {
        struct iovec to = {blocks + (size_t)i * words, DUMP_TCB};
        struct iovec from = {(void *)(uintptr_t)s->threads[i].ident, DUMP_TCB};
        (void)!process_vm_readv(pid, &to, 1, &from, 1, 0);
    }
    for (size_t at = 0; blocks && at < words; at++) {
        int mapped = dump_map_at(s, blocks, at, tids, ntids);
        if (mapped > most) {
            most = mapped;
            best = at;
        }
    }
    if (blocks)
        dump_map_at(s, blocks, best, tids, ntids);
    free(blocks);
}

void dump_take(pid_t pid, struct python_stacks *s)
{
    pid_t tids[THREADS_MAX];
    struct dump_held held;
    int signal, fd = dump_open(pid, &signal), n = fd < 0 ? 0 : threads_list(pid, tids);
    pid_t writer = dump_find_writer(pid, tids, n);
    char *text = NULL;
    *s = (struct python_stacks){.nthreads = 0};
    if (writer && dump_is_ready(pid, writer, signal)) {
        dump_hold(pid, tids, n, &held);
        text = dump_read(pid, writer, fd, signal);
        dump_release(&held);
    }
    if (text) {
        python_parse(s, text);
        dump_map(pid, s, tids, n);
    }
    if (fd >= 0)
        close(fd);
}
