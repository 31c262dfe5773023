/* SPDX-License-Identifier: Apache-2.0
 *
 * For `collrun doctor`: what this host offers a job, found out without starting a rank. Foreign
 * code is loaded by `collrun-engine --describe` alone, one process for each plugin, under a
 * deadline. Whether others reach this host's address is tried for real: it listens there on a port
 * of the kernel's choice, and the others connect.
 */
#include "agent/agent.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { DESCRIBE_MS = 20000, PROBE_MS = 2000, ANSWER_MAX = 1 << 20 };

/* ---- plugins ---- */

static pid_t start_describe(const char *engine, const char *what, int out)
{
    pid_t pid = fork();
    if (pid)
        return pid;
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    int null = open("/dev/null", O_RDWR);
    rank_private_libraries(engine);
    if (null >= 0 && dup2(null, 0) == 0 && dup2(out, 1) == 1 && dup2(null, 2) == 2)
        execl(engine, engine, "--describe", what, (char *)NULL);
    _exit(127);
}

/* What it prints, or as far as it comes before the deadline. */
static void describe(const char *engine, const char *what, struct buf *answer)
{
    int ends[2];
    uint64_t until = now_ns() + DESCRIBE_MS * 1000000ull;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return;
    pid_t pid = start_describe(engine, what, ends[1]);
    close(ends[1]);
    for (uint64_t now = now_ns(); pid > 0 && now < until; now = now_ns()) {
        struct pollfd p = {.fd = ends[0], .events = POLLIN};
        void *room = buf_reserve(answer, 65536);
        if (!room || poll(&p, 1, (int)((until - now) / 1000000 + 1)) <= 0)
            break;
        ssize_t n = read(ends[0], room, 65536);
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

/* ---- network ---- */

static socklen_t to_socket_address(const char *address, uint16_t port, struct sockaddr_storage *out)
{
    struct sockaddr_in *four = (void *)out;
    struct sockaddr_in6 *six = (void *)out;
    memset(out, 0, sizeof *out);
    if (inet_pton(AF_INET, address, &four->sin_addr) == 1) {
        four->sin_family = AF_INET;
        four->sin_port = htons(port);
        return sizeof *four;
    }
    if (inet_pton(AF_INET6, address, &six->sin6_addr) == 1) {
        six->sin6_family = AF_INET6;
        six->sin6_port = htons(port);
        return sizeof *six;
    }
    return 0;
}

/* Listens until the agent ends; nobody accepts, the kernel answers. */
static uint16_t listen_at(const char *address, struct diag *d)
{
    struct sockaddr_storage where;
    socklen_t len = to_socket_address(address, 0, &where);
    int fd = socket(where.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (void *)&where, len) < 0 || listen(fd, 1024) < 0 ||
        getsockname(fd, (void *)&where, &len) < 0) {
        diag_sys(d, errno, "listen at %s", address);
        if (fd >= 0)
            close(fd);
        return 0;
    }
    return ntohs(where.ss_family == AF_INET ? ((struct sockaddr_in *)(void *)&where)->sin_port
                                            : ((struct sockaddr_in6 *)(void *)&where)->sin6_port);
}

static int probe(const char *address, uint16_t port)
{
    struct sockaddr_storage where;
    socklen_t len = to_socket_address(address, port, &where), size = sizeof(int);
    int fd = socket(where.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int err = fd < 0 || connect(fd, (void *)&where, len) < 0 ? errno : 0;
    if (err == EINPROGRESS) {
        struct pollfd p = {.fd = fd, .events = POLLOUT};
        err = poll(&p, 1, PROBE_MS) == 1 ? 0 : ETIMEDOUT;
        if (!err)
            getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &size);
    }
    if (fd >= 0)
        close(fd);
    return err;
}

/* ---- the two questions ---- */

static void put_gpus(struct buf *out, struct arena *arena)
{
    struct gpus pool = {.reason = ""};
    struct diag d;
    placement_pool(&pool, arena, &d);
    const char *text = gpus_text(&pool, arena);
    buf_put_u32(out, pool.n);
    buf_put_str(out, text ? text : "");
}

void examine_host(struct agent *a, const struct wire_frame *f)
{
    struct arena arena;
    struct reader r;
    struct diag d;
    struct buf b, answer;
    char address[64] = "", interface[64] = "", engine[4096];
    uint16_t port = 0;
    diag_init(&d);
    arena_init(&arena);
    buf_init(&b);
    buf_init(&answer);
    reader_init(&r, f->payload, f->len);
    const char *wanted = read_str(&r, &arena);
    bool together = read_u8(&r);
    uint32_t n = read_count(&r, 4);
    if (address_resolve(wanted, address, sizeof address, interface, sizeof interface, &d) ==
            COLLRUN_OK &&
        address_check(address, interface, together, &d) == COLLRUN_OK)
        port = listen_at(address, &d);
    buf_put_str(&b, address);
    buf_put_str(&b, interface);
    buf_put_u16(&b, port);
    wire_put_diag(&b, &d);
    put_gpus(&b, &arena);
    buf_put_u32(&b, n);
    bool found = agent_engine_path("", engine, sizeof engine, &d) == COLLRUN_OK;
    for (uint32_t i = 0; i < n; i++) {
        buf_clear(&answer);
        const char *what = read_str(&r, &arena);
        if (found)
            describe(engine, what, &answer);
        buf_put_blob(&b, answer.data, answer.len);
    }
    conn_send(&a->runner, WIRE_EXAMINED, WIRE_HOST, 0, b.data, b.len);
    buf_fini(&b);
    buf_fini(&answer);
    arena_fini(&arena);
}

void examine_paths(struct agent *a, const struct wire_frame *f)
{
    struct arena arena;
    struct reader r;
    struct buf b;
    arena_init(&arena);
    buf_init(&b);
    reader_init(&r, f->payload, f->len);
    uint32_t n = read_count(&r, 6);
    buf_put_u32(&b, n);
    for (uint32_t i = 0; i < n; i++) {
        const char *address = read_str(&r, &arena);
        uint16_t port = read_u16(&r);
        int err = port ? probe(address, port) : 0;
        buf_put_str(&b, err ? strerror(err) : "");
    }
    conn_send(&a->runner, WIRE_PROBED, WIRE_HOST, 0, b.data, b.len);
    buf_fini(&b);
    arena_fini(&arena);
}
