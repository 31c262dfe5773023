/* SPDX-License-Identifier: Apache-2.0
 *
 * connect() on a non-blocking socket, then poll() until it is connected or the deadline has
 * passed.
 */
#include "base/tcp.h"

#include "base/loop.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

enum { LONGEST_POLL_MS = 3600000 };

socklen_t tcp_address(const char *address, uint16_t port, struct sockaddr_storage *out)
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

/* Waits until the socket is connected; 0 or an errno. */
static int tcp_await(int fd, uint64_t deadline_ns, int cancel_fd)
{
    struct pollfd p[2] = {{.fd = fd, .events = POLLOUT}, {.fd = cancel_fd, .events = POLLIN}};
    for (;;) {
        uint64_t now = now_ns();
        uint64_t left_ms = now >= deadline_ns ? 0 : (deadline_ns - now) / 1000000 + 1;
        int n = poll(p, 2, left_ms < LONGEST_POLL_MS ? (int)left_ms : LONGEST_POLL_MS);
        if (n < 0 && errno != EINTR)
            return errno;
        if (n > 0 && p[1].revents)
            return ECANCELED;
        if (n > 0) {
            int err = 0;
            socklen_t len = sizeof err;
            return getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len) == 0 ? err : errno;
        }
        if (now_ns() >= deadline_ns)
            return ETIMEDOUT;
    }
}

int tcp_connect(const struct sockaddr *address, socklen_t len, uint64_t deadline_ns, int cancel_fd,
                int *fd)
{
    int s = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s < 0)
        return errno;
    int err = connect(s, address, len) == 0 ? 0 : errno;
    if (err == EINPROGRESS)
        err = tcp_await(s, deadline_ns, cancel_fd);
    if (err) {
        close(s);
        return err;
    }
    setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    *fd = s;
    return 0;
}
