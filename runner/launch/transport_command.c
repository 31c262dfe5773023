/* SPDX-License-Identifier: Apache-2.0
 *
 * A command that reaches a host: `ip netns exec n1`, `kubectl exec -i pod --`, `srun -w n1`. What
 * runs there is put behind it: a shell, which stage.c turns into the agent. A command that already
 * ends with collrun-agent runs as it is. The stream is the command's standard input and output;
 * pipes, since srun and some others close a socket one way only. Its stderr is kept for the
 * sentence that says why it failed. No shell of this machine sees any of it.
 */
#include "launch/transport.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

/* ---- the argument list ---- */

/* `text` with every {host} replaced. */
static char *fill_in(const char *text, const char *host, struct arena *arena)
{
    const char *brace = strstr(text, "{host}");
    if (!brace)
        return arena_strdup(arena, text);
    char *rest = fill_in(brace + strlen("{host}"), host, arena);
    char *head = arena_strndup(arena, text, (size_t)(brace - text));
    return rest && head ? arena_printf(arena, "%s%s%s", head, host, rest) : NULL;
}

static bool is_agent(const char *program)
{
    const char *slash = strrchr(program, '/');
    return strcmp(slash ? slash + 1 : program, "collrun-agent") == 0;
}

static char *const *slurm_argv(const struct job_host *host, struct arena *arena)
{
    const char *list[] = {"srun",          "--overlap",       "--nodes=1", "--ntasks=1",
                          "--unbuffered",  "--cpu-bind=none", "--quiet",   "--kill-on-bad-exit=0",
                          "--nodelist={}", TRANSPORT_SHELL,   NULL};
    size_t n = sizeof list / sizeof *list;
    char **argv = arena_calloc(arena, n, sizeof *argv);
    for (size_t i = 0; argv && list[i]; i++) {
        if (strcmp(list[i], "--nodelist={}") == 0)
            argv[i] = arena_printf(arena, "--nodelist=%s",
                                   host->address.v ? host->address.v : host->name.v);
        else
            argv[i] = arena_strdup(arena, list[i]);
        if (!argv[i])
            return NULL;
    }
    return argv;
}

char *const *transport_command_argv(const struct job_host *host, struct arena *arena, bool *bare)
{
    *bare = false;
    if (host->transport.kind.v == JOB_TRANSPORT_SLURM)
        return slurm_argv(host, arena);
    const struct job_strs *command = &host->transport.command;
    char **argv = arena_calloc(arena, (size_t)command->n + 2, sizeof *argv);
    for (uint32_t i = 0; argv && i < command->n; i++) {
        argv[i] = fill_in(command->items[i].v, host->name.v, arena);
        if (!argv[i])
            return NULL;
    }
    *bare = argv && is_agent(argv[command->n - 1]);
    if (argv && !*bare)
        argv[command->n] = arena_strdup(arena, TRANSPORT_SHELL);
    return argv;
}

/* ---- the process ---- */

static void close_all(int pipes[3][2])
{
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < 2; k++) {
            if (pipes[i][k] >= 0)
                close(pipes[i][k]);
        }
    }
}

static int spawn(char *const *argv, int pipes[3][2], pid_t *pid)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, pipes[0][0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&files, pipes[1][1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&files, pipes[2][1], STDERR_FILENO);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setflags(&attr,
                             POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setsigdefault(&attr, &all);
    int err = posix_spawnp(pid, argv[0], &files, &attr, argv, environ);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attr);
    return err;
}

int transport_command_open(char *const *argv, struct transport_stream *out, struct diag *d)
{
    int pipes[3][2] = {{-1, -1}, {-1, -1}, {-1, -1}};
    pid_t pid;
    for (int i = 0; i < 3; i++) {
        if (pipe2(pipes[i], O_CLOEXEC) < 0) {
            diag_sys(d, errno, "make the pipes of %s", argv[0]);
            close_all(pipes);
            return d->code;
        }
    }
    int err = spawn(argv, pipes, &pid);
    if (err) {
        close_all(pipes);
        diag_sys(d, err, "cannot start %s", argv[0]);
        if (err == ENOENT)
            diag_hint(d, "the program is looked for in PATH, on this machine");
        return d->code;
    }
    close(pipes[0][0]);
    close(pipes[1][1]);
    close(pipes[2][1]);
    *out = (struct transport_stream){
        .read_fd = pipes[1][0], .write_fd = pipes[0][1], .err_fd = pipes[2][0], .pid = pid};
    return COLLRUN_OK;
}
