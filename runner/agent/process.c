/* SPDX-License-Identifier: Apache-2.0
 *
 * /proc/PID/task/TID/stat has name and state, schedstat the CPU time in nanoseconds (stat counts
 * ticks), syscall the number and arguments of the system call that the thread sleeps in.
 */
#include "agent/process.h"

#include "base/loop.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* System calls that block. `fd`: the first argument is a descriptor. */
static const struct process_call {
    long number;
    const char *name;
    bool fd;
} process_calls[] = {
    {SYS_read, "read", true},
    {SYS_write, "write", true},
    {SYS_readv, "readv", true},
    {SYS_writev, "writev", true},
    {SYS_pread64, "pread", true},
    {SYS_pwrite64, "pwrite", true},
    {SYS_recvfrom, "recv", true},
    {SYS_recvmsg, "recvmsg", true},
    {SYS_sendto, "send", true},
    {SYS_sendmsg, "sendmsg", true},
    {SYS_accept, "accept", true},
    {SYS_accept4, "accept", true},
    {SYS_connect, "connect", true},
    {SYS_fsync, "fsync", true},
    {SYS_fdatasync, "fdatasync", true},
    {SYS_flock, "flock", true},
    {SYS_fcntl, "fcntl", true},
    {SYS_ioctl, "ioctl", true},
    {SYS_sendfile, "sendfile", true},
    {SYS_splice, "splice", true},
    {SYS_getdents64, "getdents", true},
    {SYS_ftruncate, "ftruncate", true},
    {SYS_fallocate, "fallocate", true},
    {SYS_epoll_pwait, "epoll_wait", true},
    {SYS_openat, "open", false},
    {SYS_futex, "futex", false},
    {SYS_ppoll, "poll", false},
    {SYS_pselect6, "select", false},
    {SYS_nanosleep, "nanosleep", false},
    {SYS_clock_nanosleep, "nanosleep", false},
    {SYS_wait4, "wait", false},
    {SYS_waitid, "wait", false},
    {SYS_rt_sigtimedwait, "sigwait", false},
    {SYS_rt_sigsuspend, "sigsuspend", false},
    {SYS_restart_syscall, "a timed wait", false},
    {SYS_sched_yield, "sched_yield", false},
    {SYS_io_getevents, "io_getevents", false},
    {SYS_mmap, "mmap", false},
    {SYS_munmap, "munmap", false},
    {SYS_madvise, "madvise", false},
#ifdef SYS_poll
    {SYS_poll, "poll", false},
    {SYS_select, "select", false},
    {SYS_epoll_wait, "epoll_wait", true},
    {SYS_open, "open", false},
    {SYS_pause, "pause", false},
#endif
};

static size_t process_read(const char *path, char *text, size_t size)
{
    FILE *f = fopen(path, "re");
    size_t n = f ? fread(text, 1, size - 1, f) : 0;
    if (f)
        fclose(f);
    text[n] = '\0';
    return n;
}

/* "read(3) of /data/x". What a descriptor is: a file, "socket", "pipe", or nothing if not known. */
static void process_describe_call(const char *proc, const struct process_call *call,
                                  unsigned long fd, char *out, size_t size)
{
    char path[128], target[160];
    if (!call->fd) {
        bool plain = !strchr(call->name, ' ');
        snprintf(out, size, "%s%s", call->name, plain ? "()" : "");
        return;
    }
    int len = snprintf(out, size, "%s(%lu)", call->name, fd);
    snprintf(path, sizeof path, "%s/fd/%lu", proc, fd);
    ssize_t n = readlink(path, target, sizeof target - 1);
    if (n <= 0 || len < 0 || (size_t)len >= size)
        return;
    target[n] = '\0';
    if (target[0] != '/')
        target[strcspn(target, ":")] = '\0'; /* "socket:[1234]" */
    snprintf(out + len, size - (size_t)len, " of %s%s", target[0] == '/' ? "" : "a ", target);
}

static void process_read_call(const char *proc, int tid, char *out, size_t size)
{
    char path[160], text[256], *rest;
    out[0] = '\0';
    snprintf(path, sizeof path, "%s/task/%d/syscall", proc, tid);
    if (!process_read(path, text, sizeof text))
        return;
    long number = strtol(text, &rest, 10);
    if (rest == text || number < 0)
        return; /* "running", or "-1": blocked outside of a system call, as in a page fault */
    unsigned long argument = strtoul(rest, NULL, 16);
    for (size_t i = 0; i < sizeof process_calls / sizeof *process_calls; i++) {
        if (process_calls[i].number == number) {
            process_describe_call(proc, &process_calls[i], argument, out, size);
            return;
        }
    }
    snprintf(out, size, "system call %ld", number);
}

/* The name in stat may hold anything, so the state is searched from its end. */
static bool process_read_thread(const char *proc, int tid, struct process_thread *t)
{
    char path[160], text[1024];
    unsigned long user = 0, system = 0;
    *t = (struct process_thread){.tid = tid};
    snprintf(path, sizeof path, "%s/task/%d/stat", proc, tid);
    if (!process_read(path, text, sizeof text))
        return false;
    char *open = strchr(text, '('), *close = strrchr(text, ')');
    if (!open || !close || close < open)
        return false;
    snprintf(t->name, sizeof t->name, "%.*s", (int)(close - open - 1), open + 1);
    if (sscanf(close + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &t->state, &user,
               &system) == 3)
        t->run_ns = (user + system) * (1000000000u / (unsigned long)sysconf(_SC_CLK_TCK));
    snprintf(path, sizeof path, "%s/task/%d/schedstat", proc, tid);
    if (process_read(path, text, sizeof text))
        t->run_ns = strtoull(text, NULL, 10);
    process_read_call(proc, tid, t->call, sizeof t->call);
    return true;
}

static int process_compare(const void *a, const void *b)
{
    const struct process_thread *x = a, *y = b;
    return (x->tid > y->tid) - (x->tid < y->tid);
}

bool process_sample_take(struct process_sample *s, const char *proc)
{
    char path[128];
    struct dirent *e;
    snprintf(path, sizeof path, "%s/task", proc);
    DIR *tasks = opendir(path);
    *s = (struct process_sample){.threads = calloc(PROCESS_THREADS_MAX, sizeof *s->threads),
                                 .at_ns = now_ns()};
    while (tasks && s->threads && s->n < PROCESS_THREADS_MAX && (e = readdir(tasks))) {
        int tid = atoi(e->d_name);
        if (tid > 0 && process_read_thread(proc, tid, &s->threads[s->n]))
            s->n++;
    }
    if (tasks)
        closedir(tasks);
    if (s->n)
        qsort(s->threads, s->n, sizeof *s->threads, process_compare);
    return s->n != 0;
}

void process_sample_fini(struct process_sample *s)
{
    free(s->threads);
    *s = (struct process_sample){0};
}

uint32_t process_sample_use(const struct process_sample *before, const struct process_sample *after,
                            uint32_t thread)
{
    const struct process_thread *now = &after->threads[thread];
    uint64_t time = after->at_ns - before->at_ns, then = 0;
    for (uint32_t i = 0; i < before->n; i++) {
        if (before->threads[i].tid == now->tid)
            then = before->threads[i].run_ns;
    }
    uint64_t use = time && now->run_ns > then ? (now->run_ns - then) * 1000 / time : 0;
    return use < 1000 ? (uint32_t)use : 1000;
}

/* ---- core file ---- */

/* Appends what `specifier` stands for in a pattern. True: the pid. */
static bool core_file_expand(char specifier, pid_t pid, FILE *out)
{
    bool is_pid = strchr("pPiI", specifier) != NULL;
    if (is_pid)
        fprintf(out, "%d", (int)pid);
    else
        fputc(specifier == '%' ? '%' : '*', out);
    return is_pid;
}

void core_file_describe(const char *pattern, bool with_pid, pid_t pid, const char *folder,
                        char *out, size_t size)
{
    bool has_pid = false;
    if (pattern[0] == '|') {
        snprintf(out, size, "its core was given to %.*s", (int)strcspn(pattern + 1, " "),
                 pattern + 1);
        return;
    }
    FILE *f = fmemopen(out, size, "w");
    if (!f)
        return;
    fprintf(f, "core file: %s%s", pattern[0] == '/' ? "" : folder, pattern[0] == '/' ? "" : "/");
    for (const char *c = pattern; *c; c++) {
        if (*c == '%' && c[1])
            has_pid = core_file_expand(*++c, pid, f) || has_pid;
        else
            fputc(*c, f);
    }
    if (with_pid && !has_pid)
        fprintf(f, ".%d", (int)pid);
    fclose(f);
    out[size - 1] = '\0';
}

static void core_file_read(const char *path, char *line, size_t size)
{
    FILE *f = fopen(path, "re");
    if (!f || !fgets(line, (int)size, f))
        line[0] = '\0';
    line[strcspn(line, "\n")] = '\0';
    if (f)
        fclose(f);
}

void core_file_describe_here(pid_t pid, const char *folder, char *out, size_t size)
{
    char pattern[256], with_pid[8];
    core_file_read("/proc/sys/kernel/core_pattern", pattern, sizeof pattern);
    core_file_read("/proc/sys/kernel/core_uses_pid", with_pid, sizeof with_pid);
    core_file_describe(pattern[0] ? pattern : "core", with_pid[0] == '1', pid, folder, out, size);
}
