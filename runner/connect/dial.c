/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs in the threads of the SSH pool. All addresses of a name are tried in the order of the
 * resolver, and share the time: one that does not answer, as IPv6 behind some firewalls, leaves the
 * others theirs. The error message is that of the last one.
 */
#include "connect/dial.h"

#include "base/loop.h"
#include "base/network.h"
#include "connect/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

bool dial_sleep(const struct dial *how, uint64_t ns)
{
    struct pollfd p = {.fd = how->cancel_fd, .events = POLLIN};
    return poll(&p, 1, (int)(ns / 1000000)) == 0;
}

/* A connected, blocking socket; 0 or an errno. */
static int dial_address(const struct dial *how, uint64_t until, const struct addrinfo *a, int *out)
{
    int err = tcp_connect(a->ai_addr, a->ai_addrlen, until, how->cancel_fd, out);
    if (!err)
        fcntl(*out, F_SETFL, fcntl(*out, F_GETFL) & ~O_NONBLOCK);
    return err;
}

static int dial_fail(const struct dial *how, int err, const char *host, const char *port,
                     const struct addrinfo *a, struct diag *d)
{
    char address[NI_MAXHOST] = "?", where[NI_MAXHOST + 80];
    if (a)
        getnameinfo(a->ai_addr, a->ai_addrlen, address, sizeof address, NULL, 0, NI_NUMERICHOST);
    bool named = strcmp(host, address) != 0;
    snprintf(where, sizeof where, "%s%s%s%s port %s", host, named ? " (" : "", named ? address : "",
             named ? ")" : "", port);
    switch (err) {
    case ECONNREFUSED:
        diag_set(d, COLLRUN_ERR_UNAVAILABLE, "connection refused by %s: no SSH server is listening",
                 where);
        return diag_hint(
            d, "is sshd running on this port? set the port of the host in job.yaml, or Port "
               "in the SSH configuration");
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
        return diag_set(d, COLLRUN_ERR_ABORTED, "cancelled");
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
        diag_set(d, COLLRUN_ERR_UNAVAILABLE, "cannot resolve the host name %s: %s", host,
                 gai_strerror(rc));
        return diag_hint(
            d,
            "check it with `getent hosts %s`; set the address of the host in job.yaml, or "
            "HostName in the SSH configuration",
            host);
    }
    int err = EADDRNOTAVAIL;
    const struct addrinfo *last = NULL;
    unsigned left = 0;
    for (const struct addrinfo *a = all; a; a = a->ai_next)
        left++;
    for (const struct addrinfo *a = all; a && err && err != ECANCELED; a = a->ai_next) {
        const uint64_t now = now_ns();
        err = dial_address(how, now + (until > now ? until - now : 0) / left--, a, fd);
        last = a;
    }
    *again = err && err != ECANCELED;
    rc = err ? dial_fail(how, err, host, port, last, d) : COLLRUN_OK;
    freeaddrinfo(all);
    return rc;
}

int dial_command(const char *command, int *fd, struct diag *d)
{
    int pair[2];
    pid_t pid;
    char *argv[] = {(char[]){"sh"}, (char[]){"-c"}, (char *)(uintptr_t)command, NULL};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return diag_sys(d, errno, "cannot create the socket pair to the proxy command");
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    int err = spawn_process("/bin/sh", argv, (const int[]){pair[1], pair[1], null}, &pid);
    if (null >= 0)
        close(null);
    close(pair[1]);
    if (err) {
        close(pair[0]);
        diag_sys(d, err, "cannot start the proxy command");
        return diag_hint_processes(d);
    }
    *fd = pair[0];
    return COLLRUN_OK;
}
