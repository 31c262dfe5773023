/* SPDX-License-Identifier: Apache-2.0
 *
 * The measuring loop's pingpong by send and recv on one TCP socket: what the kernel itself takes.
 * usage: loop_socket PLAN LIBRARY RANK ADDRESS FILE      rank 0 listens at ADDRESS and writes the
 * port to FILE; rank 1 connects.
 */
#include "loop.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static bool supports(enum loop_op op, bool started)
{
    return op == LOOP_PINGPONG && !started;
}

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static void send_all(int fd, const void *data, size_t len)
{
    for (const char *at = data; len > 0;) {
        const ssize_t n = send(fd, at, len, MSG_NOSIGNAL);
        if (n <= 0)
            fail("send");
        at += n, len -= (size_t)n;
    }
}

static void recv_all(int fd, void *data, size_t len)
{
    for (char *at = data; len > 0;) {
        const ssize_t n = recv(fd, at, len, 0);
        if (n <= 0)
            fail("recv");
        at += n, len -= (size_t)n;
    }
}

static void run_call(struct loop_port *p, const struct loop_call *c)
{
    const int fd = *(int *)p->state;
    const size_t len = c->count * sizeof(float);
    if (p->rank == 0)
        send_all(fd, c->send, len);
    recv_all(fd, c->recv, len);
    if (p->rank == 1)
        send_all(fd, c->send, len);
}

static double slowest(struct loop_port *p, double us)
{
    double theirs;
    send_all(*(int *)p->state, &us, sizeof us);
    recv_all(*(int *)p->state, &theirs, sizeof theirs);
    return us > theirs ? us : theirs;
}

static int accept_one(struct sockaddr_in *at, const char *path)
{
    char temporary[512];
    socklen_t len = sizeof *at;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(fd, (void *)at, len) != 0 || listen(fd, 1) != 0 || getsockname(fd, (void *)at, &len))
        fail("listen");
    snprintf(temporary, sizeof temporary, "%s.new", path);
    FILE *file = fopen(temporary, "we");
    if (!file || fprintf(file, "%d\n", ntohs(at->sin_port)) < 0 || fclose(file) != 0 ||
        rename(temporary, path) != 0)
        fail(path);
    return accept(fd, NULL, NULL);
}

static int connect_one(struct sockaddr_in *at, const char *path)
{
    int port = 0;
    for (int tries = 0; tries < 1000 && port == 0; tries++) {
        FILE *file = fopen(path, "re");
        if (file && fscanf(file, "%d", &port) != 1)
            port = 0;
        if (file)
            fclose(file);
        else
            nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    at->sin_port = htons((uint16_t)port);
    if (connect(fd, (void *)at, sizeof *at) != 0)
        fail("connect");
    return fd;
}

int main(int argc, char **argv)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    if (argc != 6 || inet_pton(AF_INET, argv[4], &at.sin_addr) != 1)
        return fprintf(stderr, "usage: %s PLAN LIBRARY RANK ADDRESS FILE\n", argv[0]) > 0;
    const int rank = atoi(argv[3]);
    int fd = rank == 0 ? accept_one(&at, argv[5]) : connect_one(&at, argv[5]);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    struct loop_port port = {.rank = rank,
                             .nranks = 2,
                             .state = &fd,
                             .supports = supports,
                             .run = run_call,
                             .slowest = slowest};
    return loop_main(&port, argv[1], (unsigned)atoi(argv[2]));
}
