/* SPDX-License-Identifier: Apache-2.0 */
#include "spec/command_output.h"

#include "base/buf.h"
#include "base/loop.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

enum { OUTPUT_MAX = 1 << 20, CHUNK = 4096 };
static const uint64_t limit_ns = 10000000000;

extern char **environ;

/* Starts it with the pipe's end as its stdout. Returns an errno. */
static int command_output_start(char *const *argv, int out, pid_t *pid)
{
    posix_spawn_file_actions_t actions;
    int err = posix_spawn_file_actions_init(&actions);
    if (err)
        return err;
    err = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    if (!err)
        err = posix_spawn_file_actions_adddup2(&actions, out, 1);
    if (!err)
        err = posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    if (!err)
        err = posix_spawnp(pid, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    return err;
}

/* Reads until the end of the stream. False: too much, or too late. */
static bool command_output_read(int fd, struct buf *text)
{
    const uint64_t deadline = deadline_after(now_ns(), limit_ns);
    for (ssize_t n = 1; n != 0;) {
        uint64_t now = now_ns();
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int ready = poll(&p, 1, now < deadline ? (int)((deadline - now) / 1000000) + 1 : 0);
        if (ready < 0 && errno == EINTR)
            continue;
        void *room = buf_reserve(text, CHUNK);
        if (ready <= 0 || buf_pending(text) > OUTPUT_MAX)
            return false;
        n = read(fd, room, CHUNK);
        if (n < 0 && errno != EINTR)
            return false;
        buf_commit(text, n > 0 ? (size_t)n : 0);
    }
    return true;
}

int command_output(char *const *argv, struct arena *arena, char **out, struct diag *d)
{
    int ends[2], status = 0;
    pid_t pid;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return diag_sys(d, errno, "cannot make a pipe");
    int err = command_output_start(argv, ends[1], &pid);
    close(ends[1]);
    if (err) {
        close(ends[0]);
        diag_sys(d, err, "cannot start %s", argv[0]);
        return diag_hint_processes(d);
    }
    struct buf text = {0};
    bool whole = command_output_read(ends[0], &text);
    close(ends[0]);
    if (!whole)
        kill(pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    *out = arena_strndup(arena, text.data ? (const char *)text.data : "", buf_pending(&text));
    buf_fini(&text);
    if (!whole)
        return diag_set(d, COLLRUN_ERR_TIMEOUT, "%s does not answer within 10 s", argv[0]);
    if (status != 0)
        return diag_set(d, COLLRUN_ERR_NOT_FOUND, "%s %s fails", argv[0], argv[1]);
    return 0;
}
