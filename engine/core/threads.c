/* SPDX-License-Identifier: Apache-2.0
 *
 * /proc/self/task. A thread's `syscall` is "NUMBER ARGUMENTS..." in hexadecimal while it sleeps in
 * one; its `schedstat` counts the time slices that it has had.
 */
#include "core/threads.h"

#include "base/thread.h"
#include "core/signals.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PREFIX "collrun/"

static void threads_make_name(char out[16], const char *name)
{
    snprintf(out, 16, PREFIX "%s", name);
}

void thread_name(const char *name)
{
    char text[16];
    threads_make_name(text, name);
    prctl(PR_SET_NAME, text);
}

/* Calls `each` for every thread until it returns false. False: it did, or /proc is unreadable. */
static bool threads_for_each(bool (*each)(void *ctx, int thread), void *ctx)
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

_Thread_local const struct collrun_ctx *thread_context;

static bool threads_read_line(int thread, const char *what, char *out, size_t size)
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

static bool threads_is_own(int thread)
{
    char name[32];
    return threads_read_line(thread, "comm", name, sizeof name) &&
           strncmp(name, PREFIX, strlen(PREFIX)) == 0;
}

static bool threads_main_calls;

/* True for a thread of the engine or of a backend, and for the main thread of collrun-engine. */
static bool threads_never_calls(int thread)
{
    return (thread == getpid() && !threads_main_calls) || threads_is_own(thread);
}

/* ---- tagging ---- */

struct thread_seen {
    int thread;
    uint64_t slices; /* how often it has got a core */
    bool sleeps;
};

void threads_main_is_caller(void)
{
    threads_main_calls = true;
}

static bool threads_is_main(void)
{
    return !threads_main_calls && (int)syscall(SYS_gettid) == getpid();
}

/* A sleeping thread that has got a core in between has one slice more; so its slices are read
 * before its system call, which is listed only while it has no core. */
static bool threads_see(int thread, struct thread_seen *out)
{
    char slices[128], call[256];
    *out = (struct thread_seen){.thread = thread};
    if (!threads_read_line(thread, "schedstat", slices, sizeof slices) ||
        sscanf(slices, "%*u %*u %" SCNu64, &out->slices) != 1)
        return false;
    out->sleeps = threads_read_line(thread, "syscall", call, sizeof call) &&
                  strncmp(call, "running", strlen("running")) != 0;
    return true;
}

static bool threads_add_existing(void *ctx, int thread)
{
    struct thread_tag *a = ctx;
    struct thread_seen seen, *grown = realloc(a->existing, (a->nexisting + 1) * sizeof *grown);
    if (!grown)
        return false;
    a->existing = grown;
    threads_see(thread, &seen);
    a->existing[a->nexisting++] = seen;
    return true;
}

/* True if the thread has slept since then, and is not the calling one. */
static bool threads_has_slept(const struct thread_seen *before)
{
    struct thread_seen now;
    return before->sleeps && threads_see(before->thread, &now) && now.slices == before->slices;
}

/* False if a thread but this one may have created threads: those of the engine do not, but a worker
 * may call an operator of the program. */
static bool threads_all_slept(const struct thread_tag *a, int self)
{
    char name[32];
    for (size_t i = 0; i < a->nexisting; i++) {
        const struct thread_seen *seen = &a->existing[i];
        const bool engine = threads_read_line(seen->thread, "comm", name, sizeof name) &&
                            strncmp(name, PREFIX, strlen(PREFIX)) == 0 &&
                            strncmp(name, PREFIX "worker", strlen(PREFIX "worker")) != 0;
        if (seen->thread != self && !engine && !threads_has_slept(seen))
            return false;
    }
    return true;
}

static bool threads_name_if_new(void *ctx, int thread)
{
    const struct thread_tag *a = ctx;
    char path[64];
    for (size_t i = 0; i < a->nexisting; i++) {
        if (a->existing[i].thread == thread)
            return true;
    }
    snprintf(path, sizeof path, "/proc/self/task/%d/comm", thread);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd >= 0) {
        ssize_t n = write(fd, a->name, strlen(a->name));
        (void)n; /* the thread has ended, or stays unknown */
        close(fd);
    }
    return true;
}

void thread_tag_begin(struct thread_tag *a, const char *name, bool renames)
{
    *a = (struct thread_tag){0};
    threads_make_name(a->name, name);
    if ((renames || threads_is_main()) && !threads_for_each(threads_add_existing, a))
        a->nexisting = 0;
    if (threads_is_main())
        return;
    prctl(PR_GET_NAME, a->own);
    prctl(PR_SET_NAME, a->name);
}

void thread_tag_end(struct thread_tag *a)
{
    const bool is_main = threads_is_main();
    if (a->nexisting && (is_main || threads_all_slept(a, (int)syscall(SYS_gettid))))
        threads_for_each(threads_name_if_new, a);
    if (!is_main)
        prctl(PR_SET_NAME, a->own);
    free(a->existing);
}

/* ---- the list of threads that do not call ---- */

struct threads_list {
    _Atomic uint32_t *tids;
    uint32_t n;
    bool *kept;
};

/* An entry that stays keeps its place: a reader finds it at any time. */
static bool threads_keep_listed(void *ctx, int thread)
{
    const struct threads_list *l = ctx;
    for (uint32_t i = 0; i < l->n; i++)
        l->kept[i] = l->kept[i] ||
                     (atomic_load(&l->tids[i]) == (uint32_t)thread && threads_never_calls(thread));
    return true;
}

static bool threads_add_listed(void *ctx, int thread)
{
    const struct threads_list *l = ctx;
    uint32_t free = l->n;
    for (uint32_t i = l->n; i-- > 0;) {
        const uint32_t tid = atomic_load(&l->tids[i]);
        if (tid == (uint32_t)thread)
            return true;
        free = tid ? free : i;
    }
    if (free < l->n && threads_never_calls(thread))
        atomic_store(&l->tids[free], (uint32_t)thread);
    return true;
}

void threads_list_own(_Atomic uint32_t *tids, uint32_t n)
{
    bool kept[64] = {false};
    struct threads_list l = {.tids = tids, .n = n < 64 ? n : 64, .kept = kept};
    threads_for_each(threads_keep_listed, &l);
    for (uint32_t i = 0; i < l.n; i++)
        if (!kept[i])
            atomic_store(&tids[i], 0);
    threads_for_each(threads_add_listed, &l);
}

/* ---- blocked threads ---- */

/* True if the thread is in futex(address, wait, value, time-out). */
static bool threads_read_futex(int thread, struct futex_wait *out)
{
    char line[256];
    return threads_read_line(thread, "syscall", line, sizeof line) && futex_wait_read(line, out);
}

/* It has no time-out, and no other process can wake it. */
static bool threads_waits_for_own(int thread)
{
    struct futex_wait f;
    return threads_read_futex(thread, &f) && !f.timed && futex_wait_is_own(&f, getpid());
}

/* What all threads of the process have shown. */
struct survey {
    bool (*known)(void *ctx, int thread);
    void *ctx;
    struct buf *evidence;
    uint64_t open; /* signals that some thread does not block */
    uint32_t idle; /* threads that sleep on a futex */
};

static bool threads_put_slices(int thread, struct buf *evidence)
{
    char slices[128];
    if (!threads_read_line(thread, "schedstat", slices, sizeof slices))
        return false;
    buf_put_u32(evidence, (uint32_t)thread);
    buf_put_str(evidence, slices);
    return true;
}

bool threads_sleeps(int thread, struct buf *evidence)
{
    struct futex_wait f;
    return threads_read_futex(thread, &f) && threads_put_slices(thread, evidence);
}

static bool threads_is_idle(int thread, struct survey *s)
{
    if (!threads_waits_for_own(thread) || !threads_put_slices(thread, s->evidence))
        return false;
    s->idle++;
    return true;
}

/* False: a debugger, which can do anything, traces the thread, or its state cannot be read. */
static bool threads_read_signals(int thread, struct survey *s)
{
    char status[4096];
    if (!threads_read_line(thread, "status", status, sizeof status))
        return false;
    const char *tracer = strstr(status, "\nTracerPid:"), *blocked = strstr(status, "\nSigBlk:");
    if (!tracer || !blocked || atoi(tracer + strlen("\nTracerPid:")) != 0)
        return false;
    s->open |= ~strtoull(blocked + strlen("\nSigBlk:"), NULL, 16);
    return true;
}

static bool threads_survey_one(void *ctx, int thread)
{
    struct survey *s = ctx;
    bool blocked =
        s->known(s->ctx, thread) || threads_never_calls(thread) || threads_is_idle(thread, s);
    return blocked && threads_read_signals(thread, s);
}

/* True if the kernel may complete something for this process that wakes a futex: an io_uring can,
 * after a time-out or a read. */
static bool threads_have_ring(void)
{
    const struct dirent *entry;
    bool found = false;
    DIR *dir = opendir("/proc/self/fd");
    while (dir && !found && (entry = readdir(dir))) {
        char target[64];
        ssize_t n = readlinkat(dirfd(dir), entry->d_name, target, sizeof target - 1);
        target[n > 0 ? n : 0] = '\0';
        found = strstr(target, "[io_uring]") != NULL;
    }
    if (dir)
        closedir(dir);
    return !dir || found;
}

bool threads_are_blocked(bool (*known)(void *ctx, int thread), void *ctx, bool callbacks,
                         struct buf *evidence)
{
    struct survey s = {.known = known, .ctx = ctx, .evidence = evidence};
    return threads_for_each(threads_survey_one, &s) && !signals_may_release(s.open) &&
           !(s.idle && (callbacks || threads_have_ring()));
}

bool threads_may_call(int thread)
{
    return tgkill(getpid(), thread, 0) == 0 && !threads_is_own(thread) &&
           !threads_waits_for_own(thread);
}
