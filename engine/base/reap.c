/* SPDX-License-Identifier: Apache-2.0
 *
 * Kills the processes that are left. The caller is a child subreaper, so every descendant whose
 * parent died becomes its child. Killing children until there are none ends the whole tree, even if
 * a process double-forked into a new session.
 */
#include "base/reap.h"

#include "base/loop.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SPARED_MAX = 64 };

struct process {
    pid_t pid, parent;
    char state;
    unsigned long long
        start; /* clock ticks after boot: a later process with this pid has another */
};
static struct process spared[SPARED_MAX];
static unsigned nspared;

/* The name in /proc/PID/stat may hold anything, so it is skipped from its end. */
static bool reap_read(pid_t pid, struct process *p)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "re");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f)
        fclose(f);
    text[n] = '\0';
    const char *after = strrchr(text, ')');
    p->pid = pid;
    return after && sscanf(after + 1,
                           " %c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d "
                           "%*d %llu",
                           &p->state, &p->parent, &p->start) == 3;
}

char reap_state(pid_t pid, pid_t *parent)
{
    struct process p = {.pid = 0};
    bool known = reap_read(pid, &p);
    *parent = known ? p.parent : 0;
    return known ? p.state : '\0';
}

static bool reap_is_spared(const struct process *p)
{
    for (unsigned i = 0; i < nspared; i++)
        if (spared[i].pid == p->pid && spared[i].start == p->start)
            return true;
    return false;
}

/* Calls `each` for every child that is not spared. Returns their number. */
static unsigned reap_for_children(void (*each)(const struct process *child))
{
    DIR *proc = opendir("/proc");
    struct dirent *e;
    unsigned n = 0;
    while (proc && (e = readdir(proc))) {
        struct process p;
        pid_t pid = atoi(e->d_name);
        if (pid <= 0 || !reap_read(pid, &p) || p.parent != getpid() || reap_is_spared(&p))
            continue;
        each(&p);
        n++;
    }
    if (proc)
        closedir(proc);
    return n;
}

static void reap_spare(const struct process *child)
{
    if (nspared < SPARED_MAX)
        spared[nspared++] = *child;
}

void reap_spare_children(void)
{
    reap_for_children(reap_spare);
}

static void reap_kill(const struct process *child)
{
    kill(child->pid, SIGKILL);
}

bool reap_descendants(uint64_t deadline_ns)
{
    for (;;) {
        pid_t pid;
        while ((pid = waitpid(-1, NULL, WNOHANG)) > 0)
            ;
        if (pid < 0 && errno == ECHILD)
            return true;
        if (now_ns() >= deadline_ns)
            return false;
        if (reap_for_children(reap_kill) == 0 && nspared)
            return true;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

enum { END_MS = 500 }; /* a process with much memory, on a busy machine */

bool reap_closed(pid_t pid, int *status)
{
    struct pollfd p = {.fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN};
    if (p.fd >= 0) {
        poll(&p, 1, END_MS);
        close(p.fd);
    }
    return waitpid(pid, status, WNOHANG) == pid;
}
