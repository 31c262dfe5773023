/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/engine_query.h"

#include "agent/agent.h"
#include "agent/uplink.h"
#include "base/exit_codes.h"
#include "base/loop.h"
#include "base/standstill.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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
static bool engine_query_wait(struct agent *a, int fd, struct child_time *t, uint64_t limit_ns)
{
    struct pollfd p[2] = {{.fd = fd, .events = POLLIN},
                          {.fd = a->runner.read_fd, .events = POLLRDHUP}};
    uint64_t heartbeat_ns = now_ns() + HEARTBEAT_NS;
    int ready = 0;
    while (ready == 0 && !child_time_is_over(t, limit_ns)) {
        ready = poll(p, 2, CHILD_TIME_PERIOD_MS);
        child_time_update(t);
        if (ready == 0 && now_ns() >= heartbeat_ns) {
            uplink_send_heartbeat(a);
            heartbeat_ns = now_ns() + HEARTBEAT_NS;
        }
    }
    return ready > 0 && p[0].revents;
}

bool engine_query_read(struct agent *a, pid_t pid, int fd, uint64_t limit_ns, struct buf *answer)
{
    struct child_time t;
    child_time_start(&t, pid);
    while (engine_query_wait(a, fd, &t, limit_ns)) {
        void *room = buf_reserve(answer, 65536);
        ssize_t n = room ? read(fd, room, 65536) : 0;
        if (n <= 0 || buf_pending(answer) > ANSWER_MAX)
            return true;
        buf_commit(answer, (size_t)n);
    }
    return false;
}

void engine_query(struct agent *a, const char *engine, const char *option, const char *argument,
                  struct buf *answer)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return;
    pid_t pid = engine_query_start(engine, option, argument, ends[1]);
    close(ends[1]);
    if (pid > 0)
        engine_query_read(a, pid, ends[0], QUERY_NS, answer);
    close(ends[0]);
    if (pid > 0) {
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
}

/* ---- where collrun-engine is ---- */

int engine_path(const char *given, char *path, size_t size, struct diag *d)
{
    if (given[0]) {
        snprintf(path, size, "%s", given);
        return COLLRUN_OK;
    }
    ssize_t n = readlink("/proc/self/exe", path, size - 1);
    if (n < 0)
        return diag_sys(d, errno, "cannot read the path of collrun-agent");
    path[n] = '\0';
    char *slash = strrchr(path, '/');
    size_t dir = slash ? (size_t)(slash - path) + 1 : 0;
    if (size - dir < sizeof "collrun-engine")
        return diag_set(d, COLLRUN_ERR_SYSTEM, "the path of collrun-agent is too long");
    memcpy(path + dir, "collrun-engine", sizeof "collrun-engine");
    return COLLRUN_OK;
}

bool engine_path_beside(const char *engine, const char *name, char *path, size_t size)
{
    const char *slash = strrchr(engine, '/');
    int n = snprintf(path, size, "%.*s%s", slash ? (int)(slash - engine) + 1 : 0, engine, name);
    return n > 0 && (size_t)n < size && access(path, X_OK) == 0;
}

void engine_path_set_libraries(const char *engine)
{
    const char *slash = strrchr(engine, '/'), *old = getenv("LD_LIBRARY_PATH");
    char *folder = NULL, *path = NULL;
    if (asprintf(&folder, "%.*s/../../lib/collrun/private", slash ? (int)(slash - engine) : 0,
                 engine) < 0)
        return;
    if (access(folder, X_OK) == 0 &&
        asprintf(&path, "%s%s%s", folder, old && *old ? ":" : "", old ? old : "") >= 0) {
        setenv("LD_LIBRARY_PATH", path, 1);
        free(path);
    }
    free(folder);
}
