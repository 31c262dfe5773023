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

/* The name in /proc/PID/stat may hold anything, so it is skipped from its end. */
char reap_state(pid_t pid, pid_t *parent)
{
    char path[64], text[512], state = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "re");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f)
        fclose(f);
    text[n] = '\0';
    const char *after = strrchr(text, ')');
    int of = 0;
    if (!after || sscanf(after + 1, " %c %d", &state, &of) != 2)
        state = 0;
    *parent = state ? of : 0;
    return state;
}

static void reap_kill_children(void)
{
    DIR *proc = opendir("/proc");
    struct dirent *e;
    while (proc && (e = readdir(proc))) {
        pid_t pid = atoi(e->d_name), parent;
        if (pid > 0 && reap_state(pid, &parent) && parent == getpid())
            kill(pid, SIGKILL);
    }
    if (proc)
        closedir(proc);
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
        reap_kill_children();
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

enum { END_MS = 100 };

bool reap_closed(pid_t pid, int *status)
{
    struct pollfd p = {.fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN};
    if (p.fd >= 0) {
        poll(&p, 1, END_MS);
        close(p.fd);
    }
    return waitpid(pid, status, WNOHANG) == pid;
}
