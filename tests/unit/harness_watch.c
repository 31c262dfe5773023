/* SPDX-License-Identifier: Apache-2.0
 *
 * One pidfd per process, in one poll loop.
 */
#include "harness_watch.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void report(struct harness_watch *w, uint32_t rank, const char *what, int number)
{
    w->failed = 1;
    fprintf(stderr, "# harness: %s %u of %u: %s %d\n", w->options->threads ? "process" : "rank",
            rank, w->options->nranks, what, number);
}

void harness_watch_add(struct harness_watch *w, pid_t pid)
{
    const uint32_t i = w->nprocs++;
    w->pids[i] = pid;
    w->fds[i] = (struct pollfd){.fd = -1, .events = POLLIN};
    if (pid < 0) {
        report(w, i, "fork failed, errno", errno);
        return;
    }
    w->fds[i].fd = (int)syscall(SYS_pidfd_open, pid, 0);
    w->running++;
}

static void reap(struct harness_watch *w, uint32_t i)
{
    int status = 0;
    waitpid(w->pids[i], &status, 0);
    close(w->fds[i].fd);
    w->fds[i].fd = -1;
    w->running--;
    if (WIFSIGNALED(status)) {
        if (!w->options->may_die || !w->options->may_die[i])
            report(w, i, "ended by signal", WTERMSIG(status));
        if (w->options->abort_on_death)
            w->died(w->ctx);
    } else if (WEXITSTATUS(status) != 0) {
        report(w, i, "exit code", WEXITSTATUS(status));
    }
}

static void kill_all(struct harness_watch *w)
{
    for (uint32_t i = 0; i < w->nprocs; i++)
        if (w->fds[i].fd >= 0)
            kill(w->pids[i], SIGKILL);
}

void harness_watch_until_end(struct harness_watch *w)
{
    const double limit_s = w->options->limit_s > 0 ? w->options->limit_s : 120;
    const uint64_t deadline = harness_now_ns() + (uint64_t)(limit_s * 1e9);
    bool killed = false;
    while (w->running > 0) {
        const uint64_t now = harness_now_ns();
        const int ms = now >= deadline ? 0 : (int)((deadline - now) / 1000000 + 1);
        const int n = poll(w->fds, w->nprocs, killed ? -1 : ms);
        if (n == 0) {
            fprintf(stderr, "# harness: the time limit of %g s passed; killed\n", limit_s);
            w->failed = 1;
            killed = true;
            kill_all(w);
        }
        for (uint32_t i = 0; n > 0 && i < w->nprocs; i++)
            if (w->fds[i].revents)
                reap(w, i);
    }
}
