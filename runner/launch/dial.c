/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs in the threads of the SSH pool. All addresses of a name are tried, in the order that the
 * resolver gives; the words are those of the last one.
 */
#include "launch/dial.h"

#include "base/loop.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

extern char **environ;

static int wait_ms(uint64_t until)
{
    uint64_t now = now_ns();
    return now >= until ? 0 : (int)((until - now) / 1000000 + 1);
}

bool dial_sleep(const struct dial *how, uint64_t ns)
{
    struct pollfd p = {.fd = how->cancel_fd, .events = POLLIN};
    return poll(&p, 1, (int)(ns / 1000000)) == 0;
}

/* 0, or an errno: ECANCELED when told to give up. */
static int connect_one(const struct dial *how, uint64_t until, const struct addrinfo *a, int *out)
{
    int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, a->ai_protocol);
    int err = fd < 0 ? errno : 0;
    socklen_t len = sizeof err;
    if (!err && connect(fd, a->ai_addr, a->ai_addrlen) < 0)
        err = errno;
    if (err == EINPROGRESS) {
        struct pollfd p[2] = {{.fd = fd, .events = POLLOUT},
                              {.fd = how->cancel_fd, .events = POLLIN}};
        int n = poll(p, 2, wait_ms(until));
        if (n <= 0)
            err = n < 0 ? errno : ETIMEDOUT;
        else if (p[1].revents)
            err = ECANCELED;
        else if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len) < 0)
            err = errno;
    }
    if (err) {
        if (fd >= 0)
            close(fd);
        return err;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
    *out = fd;
    return 0;
}

static int explain(const struct dial *how, int err, const char *host, const char *port,
                   const struct addrinfo *a, struct diag *d)
{
    char address[NI_MAXHOST] = "?", where[NI_MAXHOST + 80];
    if (a)
        getnameinfo(a->ai_addr, a->ai_addrlen, address, sizeof address, NULL, 0, NI_NUMERICHOST);
    snprintf(where, sizeof where, "%s%s%s%s port %s", host, strcmp(host, address) ? " (" : "",
             strcmp(host, address) ? address : "", strcmp(host, address) ? ")" : "", port);
    switch (err) {
    case ECONNREFUSED:
        diag_set(d, COLLRUN_ERR_UNAVAILABLE,
                 "connection refused by %s: no SSH server listens there", where);
        return diag_hint(d, "is sshd running, and on this port? hosts: port, or Port in the SSH "
                            "configuration, names another");
    case ETIMEDOUT:
        diag_set(d, COLLRUN_ERR_UNAVAILABLE, "no answer from %s within %.3g s", where,
                 (double)how->timeout_ns / 1e9);
        return diag_hint(d,
                         "the host is down, or a firewall drops the packets; ssh.connect_timeout "
                         "sets the limit");
    case EHOSTUNREACH:
    case ENETUNREACH:
        diag_set(d, COLLRUN_ERR_UNAVAILABLE, "no route to %s (%s)", where, strerror(err));
        return diag_hint(d, "see: ip route get %s", address);
    case ECANCELED:
        return diag_set(d, COLLRUN_ERR_ABORTED, "given up");
    default:
        return diag_sys(d, err, "cannot connect to %s", where);
    }
}

int dial_tcp(const struct dial *how, const char *host, const char *port, int *fd, bool *again,
             struct diag *d)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *all = NULL;
    uint64_t until = now_ns() + how->timeout_ns;
    int rc = getaddrinfo(host, port, &hints, &all);
    if (rc != 0) {
        *again = rc == EAI_AGAIN;
        diag_set(d, COLLRUN_ERR_UNAVAILABLE, "the name %s cannot be looked up: %s", host,
                 gai_strerror(rc));
        return diag_hint(d,
                         "check it with `getent hosts %s`; hosts: address, or HostName in the SSH "
                         "configuration, gives an address for a name",
                         host);
    }
    int err = EADDRNOTAVAIL;
    const struct addrinfo *last = NULL;
    for (const struct addrinfo *a = all; a && err && err != ECANCELED; a = a->ai_next) {
        err = connect_one(how, until, a, fd);
        last = a;
    }
    *again = err != ECANCELED;
    rc = err ? explain(how, err, host, port, last, d) : COLLRUN_OK;
    freeaddrinfo(all);
    return rc;
}

int dial_command(const char *command, int *fd, struct diag *d)
{
    int pair[2];
    pid_t pid;
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    sigset_t none;
    char *argv[] = {(char[]){"sh"}, (char[]){"-c"}, (char *)(uintptr_t)command, NULL};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return diag_sys(d, errno, "make the stream to the proxy command");
    sigemptyset(&none);
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, pair[1], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&files, pair[1], STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK);
    posix_spawnattr_setsigmask(&attr, &none);
    int err = posix_spawn(&pid, "/bin/sh", &files, &attr, argv, environ);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attr);
    close(pair[1]);
    if (err) {
        close(pair[0]);
        return diag_sys(d, err, "start the proxy command");
    }
    *fd = pair[0];
    return COLLRUN_OK;
}
