/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/engine_query.h"

#include "agent/agent.h"
#include "agent/engine_path.h"
#include "agent/uplink.h"
#include "base/exit_codes.h"
#include "base/loop.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { QUERY_MS = 20000, HEARTBEAT_MS = 1000, ANSWER_MAX = 4 << 20 };

static pid_t engine_query_start(const char *engine, const char *option, const char *argument,
                                int out)
{
    pid_t pid = fork();
    if (pid)
        return pid;
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    int null = open("/dev/null", O_RDWR);
    engine_path_set_libraries(engine);
    if (null >= 0 && dup2(null, 0) == 0 && dup2(out, 1) == 1 && dup2(null, 2) == 2)
        execl(engine, engine, option, argument, (char *)NULL);
    _exit(EXIT_EXEC);
}

/* True when the process has printed something or closed the pipe. False: its time is up, or the
 * runner has closed its stream. */
static bool engine_query_wait(struct agent *a, int fd, uint64_t until_ns)
{
    struct pollfd p[2] = {{.fd = fd, .events = POLLIN},
                          {.fd = a->runner.read_fd, .events = POLLRDHUP}};
    int ready = 0;
    while (ready == 0 && now_ns() < until_ns) {
        ready = poll(p, 2, HEARTBEAT_MS);
        if (ready == 0)
            uplink_send_heartbeat(a);
    }
    return ready > 0 && p[0].revents;
}

void engine_query(struct agent *a, const char *engine, const char *option, const char *argument,
                  struct buf *answer)
{
    int ends[2];
    uint64_t until = now_ns() + QUERY_MS * 1000000ull;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return;
    pid_t pid = engine_query_start(engine, option, argument, ends[1]);
    close(ends[1]);
    while (pid > 0 && engine_query_wait(a, ends[0], until)) {
        void *room = buf_reserve(answer, 65536);
        ssize_t n = room ? read(ends[0], room, 65536) : 0;
        if (n <= 0 || buf_pending(answer) > ANSWER_MAX)
            break;
        buf_commit(answer, (size_t)n);
    }
    close(ends[0]);
    if (pid > 0) {
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
}
