/* SPDX-License-Identifier: Apache-2.0
 *
 * This machine: fork and exec of collrun-agent. It gets a session of its own, so that a Ctrl-C
 * typed at collrun reaches collrun alone, which then ends the job in order. posix_spawn reports a
 * failed exec as its own error.
 */
#include "launch/transport.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <unistd.h>

extern char **environ;

int transport_local_open(const char *agent, struct transport_stream *out, struct diag *d)
{
    int pair[2];
    pid_t pid;
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    sigset_t none, all;
    char *argv[] = {(char[]){"collrun-agent"}, NULL};

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return diag_sys(d, errno, "make the stream to collrun-agent");
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, pair[1], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&files, pair[1], STDOUT_FILENO);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setflags(&attr,
                             POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setsigdefault(&attr, &all);
    int err = posix_spawn(&pid, agent, &files, &attr, argv, environ);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attr);
    close(pair[1]);
    if (err) {
        close(pair[0]);
        return diag_sys(d, err, "start %s", agent);
    }
    *out = (struct transport_stream){
        .read_fd = pair[0], .write_fd = pair[0], .err_fd = -1, .pid = pid};
    return COLLRUN_OK;
}
