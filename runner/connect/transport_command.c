/* SPDX-License-Identifier: Apache-2.0
 *
 * The transports that are child processes: the agent on this machine, or a command that reaches a
 * host: `ip netns exec n1`, `kubectl exec -i pod --`, `srun -w n1`.
 *
 *  - A shell is appended to it, which becomes the agent by the script of staging.c. A command that
 *    ends with collrun-agent is run unchanged.
 *  - The stream is its standard input and output. They are pipes, since srun and some others shut
 *    down only one direction of a socket. `flux exec` writes to a pipe when it has 4096 bytes, and
 *    to a terminal at the end of each line, so that it gets a terminal, which changes no byte.
 *  - Its stderr is kept for the error message if it fails.
 *  - The command is executed directly, without a shell of this machine.
 */
#include "base/buf.h"
#include "connect/spawn.h"
#include "connect/transport.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <termios.h>
#include <unistd.h>

/* ---- the argument list ---- */

/* `text` with every {host} replaced. */
static char *command_fill_in(const char *text, const char *host, struct arena *arena)
{
    struct buf out;
    const char *brace;
    buf_init(&out);
    for (; (brace = strstr(text, "{host}")); text = brace + strlen("{host}")) {
        buf_put(&out, text, (size_t)(brace - text));
        buf_put(&out, host, strlen(host));
    }
    buf_put(&out, text, strlen(text) + 1);
    char *all = arena_strdup(arena, (const char *)out.data);
    buf_fini(&out);
    return all;
}

static bool command_is_agent(const char *program)
{
    const char *slash = strrchr(program, '/');
    return strcmp(slash ? slash + 1 : program, "collrun-agent") == 0;
}

static char *const *command_slurm_argv(const struct job_host *host, struct arena *arena)
{
    const char *list[] = {"srun",          "--overlap",       "--nodes=1", "--ntasks=1",
                          "--unbuffered",  "--cpu-bind=none", "--quiet",   "--kill-on-bad-exit=0",
                          "--nodelist={}", TRANSPORT_SHELL,   NULL};
    size_t n = sizeof list / sizeof *list;
    char **argv = arena_calloc(arena, n, sizeof *argv);
    for (size_t i = 0; list[i]; i++) {
        if (strcmp(list[i], "--nodelist={}") == 0)
            argv[i] = arena_printf(arena, "--nodelist=%s",
                                   host->address.v ? host->address.v : host->name.v);
        else
            argv[i] = arena_strdup(arena, list[i]);
    }
    return argv;
}

char *const *transport_command_argv(const struct job_host *host, struct arena *arena, bool *bare)
{
    *bare = false;
    if (host->transport.kind.v == JOB_TRANSPORT_SLURM)
        return command_slurm_argv(host, arena);
    const struct job_strs *command = &host->transport.command;
    char **argv = arena_calloc(arena, (size_t)command->n + 2, sizeof *argv);
    for (uint32_t i = 0; i < command->n; i++)
        argv[i] = command_fill_in(command->items[i].v, host->name.v, arena);
    *bare = command_is_agent(argv[command->n - 1]);
    if (!*bare)
        argv[command->n] = arena_strdup(arena, TRANSPORT_SHELL);
    return argv;
}

/* ---- the process ---- */

static void command_close_pipes(int pipes[3][2])
{
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < 2; k++) {
            if (pipes[i][k] >= 0)
                close(pipes[i][k]);
        }
    }
}

/* As pipe2: what is written to ends[1] is read from ends[0]. */
static int command_open_terminal(int ends[2])
{
    const int flags = O_RDWR | O_NOCTTY | O_CLOEXEC;
    struct termios raw;
    ends[0] = posix_openpt(flags);
    if (ends[0] < 0 || unlockpt(ends[0]) < 0)
        return -1;
    ends[1] = ioctl(ends[0], TIOCGPTPEER, flags);
    if (ends[1] < 0 || tcgetattr(ends[1], &raw) < 0)
        return -1;
    cfmakeraw(&raw);
    return tcsetattr(ends[1], TCSANOW, &raw);
}

int transport_command_open(char *const *argv, bool text, struct transport_stream *out,
                           struct diag *d)
{
    int pipes[3][2] = {{-1, -1}, {-1, -1}, {-1, -1}};
    pid_t pid;
    for (int i = 0; i < 3; i++) {
        const bool terminal = text && i == STDOUT_FILENO;
        if ((terminal ? command_open_terminal(pipes[i]) : pipe2(pipes[i], O_CLOEXEC)) < 0) {
            diag_sys(d, errno, "cannot create the %s of %s", terminal ? "terminal" : "pipes",
                     argv[0]);
            command_close_pipes(pipes);
            return d->code;
        }
    }
    int err =
        spawn_process(argv[0], argv, (const int[]){pipes[0][0], pipes[1][1], pipes[2][1]}, &pid);
    if (err) {
        command_close_pipes(pipes);
        diag_sys(d, err, "cannot start %s", argv[0]);
        if (err == ENOENT)
            diag_hint(d, strchr(argv[0], '/')
                             ? "the file or its interpreter does not exist on this machine"
                             : "the program must be in PATH on this machine");
        return diag_hint_processes(d);
    }
    close(pipes[0][0]);
    close(pipes[1][1]);
    close(pipes[2][1]);
    *out = (struct transport_stream){.read_fd = pipes[1][0],
                                     .write_fd = pipes[0][1],
                                     .err_fd = pipes[2][0],
                                     .text = text,
                                     .pid = pid};
    return COLLRUN_OK;
}

/* ---- this machine ---- */

/* Ctrl-C reaches only collrun, which then stops the job in order. */
int transport_local_open(const char *agent, struct transport_stream *out, struct diag *d)
{
    int pair[2];
    pid_t pid;
    char *argv[] = {(char[]){"collrun-agent"}, NULL};

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return diag_sys(d, errno, "cannot create the socket pair to collrun-agent");
    int err = spawn_process(agent, argv, (const int[]){pair[1], pair[1], -1}, &pid);
    close(pair[1]);
    if (err) {
        close(pair[0]);
        diag_sys(d, err, "cannot start %s", agent);
        return diag_hint_processes(d);
    }
    *out = (struct transport_stream){
        .read_fd = pair[0], .write_fd = pair[0], .err_fd = -1, .pid = pid};
    return COLLRUN_OK;
}
