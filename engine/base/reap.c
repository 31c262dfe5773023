/* SPDX-License-Identifier: Apache-2.0
 *
 * Killing what is left. The caller is a child subreaper, so that every descendant whose parent died
 * is its child: killing children until there are none ends the whole tree, even where a process
 * double-forked into a session of its own.
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

/* The parent of a process, 0 if it is gone. The name in /proc/PID/stat may hold anything, so it is
 * skipped from its end. */
static pid_t parent_of(const char *pid)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%.20s/stat", pid);
    FILE *f = fopen(path, "re");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f)
        fclose(f);
    text[n] = '\0';
    const char *after = strrchr(text, ')');
    int parent = 0;
    if (!after || sscanf(after + 1, " %*c %d", &parent) != 1)
        return 0;
    return parent;
}

static void kill_children(void)
{
    DIR *proc = opendir("/proc");
    struct dirent *e;
    while (proc && (e = readdir(proc))) {
        if (e->d_name[0] >= '1' && e->d_name[0] <= '9' && parent_of(e->d_name) == getpid())
            kill((pid_t)atoi(e->d_name), SIGKILL);
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
        kill_children();
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
