/* SPDX-License-Identifier: Apache-2.0
 *
 * A pipe that exec closes reports to this process why exec failed.
 */
#include "connect/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static struct rlimit spawn_files; /* of the children; rlim_max 0: that of this process */

void spawn_raise_file_limit(void)
{
    if (getrlimit(RLIMIT_NOFILE, &spawn_files) == 0)
        setrlimit(RLIMIT_NOFILE, &(struct rlimit){spawn_files.rlim_max, spawn_files.rlim_max});
}

_Noreturn static void spawn_child_main(const char *file, char *const *argv, const int fds[3],
                                       int report)
{
    sigset_t none;
    sigemptyset(&none);
    setsid();
    for (int sig = 1; sig < NSIG; sig++)
        signal(sig, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (spawn_files.rlim_max)
        setrlimit(RLIMIT_NOFILE, &spawn_files);
    int err = 0;
    for (int i = 0; i < 3 && !err; i++)
        err = fds[i] >= 0 && dup2(fds[i], i) < 0 ? errno : 0;
    if (!err) {
        execvp(file, argv);
        err = errno;
    }
    _exit(write(report, &err, sizeof err) == (ssize_t)sizeof err ? 127 : 126);
}

int spawn_process(const char *file, char *const *argv, const int fds[3], pid_t *pid)
{
    int report[2], err = 0;
    ssize_t n = 0;
    if (pipe2(report, O_CLOEXEC) < 0)
        return errno;
    *pid = fork();
    if (*pid == 0)
        spawn_child_main(file, argv, fds, report[1]);
    if (*pid < 0)
        err = errno;
    close(report[1]);
    while (*pid > 0 && (n = read(report[0], &err, sizeof err)) < 0 && errno == EINTR)
        continue;
    close(report[0]);
    if (*pid > 0 && n > 0)
        waitpid(*pid, NULL, 0);
    return err;
}
