/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/engine_query.h"

#include "agent/agent.h"
#include "agent/engine_path.h"
#include "agent/uplink.h"
#include "base/child_time.h"
#include "base/exit_codes.h"
#include "base/loop.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define QUERY_NS 20000000000ull
#define HEARTBEAT_NS 1000000000ull
enum { ANSWER_MAX = 4 << 20 };

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
static bool engine_query_wait(struct agent *a, int fd, struct child_time *t)
{
    struct pollfd p[2] = {{.fd = fd, .events = POLLIN},
                          {.fd = a->runner.read_fd, .events = POLLRDHUP}};
    uint64_t heartbeat_ns = now_ns() + HEARTBEAT_NS;
    int ready = 0;
    while (ready == 0 && !child_time_is_over(t, QUERY_NS)) {
        ready = poll(p, 2, CHILD_TIME_PERIOD_MS);
        child_time_update(t);
        if (ready == 0 && now_ns() >= heartbeat_ns) {
            uplink_send_heartbeat(a);
            heartbeat_ns = now_ns() + HEARTBEAT_NS;
        }
    }
    return ready > 0 && p[0].revents;
}

void engine_query(struct agent *a, const char *engine, const char *option, const char *argument,
                  struct buf *answer)
{
    int ends[2];
    struct child_time t;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return;
    pid_t pid = engine_query_start(engine, option, argument, ends[1]);
    close(ends[1]);
    child_time_start(&t, pid);
    while (pid > 0 && engine_query_wait(a, ends[0], &t)) {
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
