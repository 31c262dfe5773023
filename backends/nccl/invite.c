/* SPDX-License-Identifier: Apache-2.0
 *
 * How the members of a group come to its desk: rank 0 listens and publishes where, with a secret;
 * the others connect there and say it.
 */
#include "group.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

static int broken(const struct nccl_group *g, const char *what, int error)
{
    return g->services->fail(g->services->ctx, COLLRUN_ERR_SYSTEM, "%s: %s", what, strerror(error));
}

/* At an address of this host; `fd` is the caller's, also after a failure, unless -1. */
static int listen_at(struct nccl_group *g, const char *address, struct invitation *out, int *fd)
{
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_PASSIVE, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    socklen_t len = sizeof(out->address);
    if (getaddrinfo(address, "0", &hints, &found) != 0)
        return g->services->fail(g->services->ctx, COLLRUN_ERR_INVALID, "%s is no address",
                                 address);
    *fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const bool good = *fd >= 0 && bind(*fd, found->ai_addr, found->ai_addrlen) == 0 &&
                      listen(*fd, SOMAXCONN) == 0 &&
                      getsockname(*fd, (struct sockaddr *)&out->address, &len) == 0 &&
                      getrandom(&out->secret, sizeof(out->secret), 0) == sizeof(out->secret);
    out->len = len;
    freeaddrinfo(found);
    return good ? COLLRUN_OK : broken(g, "listen for the group's ranks", errno);
}

int invite_all(struct nccl_group *g, const struct collrun_group_desc *desc)
{
    const struct collrun_rendezvous *r = desc->rendezvous;
    int fd = -1;
    int status = listen_at(g, desc->address, &g->desk_at, &fd);
    if (status == COLLRUN_OK && !(g->desk = desk_new(fd, g->desk_at.secret, g->nranks, g->nports)))
        status =
            g->services->fail(g->services->ctx, COLLRUN_ERR_NO_MEMORY, "out of memory or threads");
    if (status == COLLRUN_OK)
        return r->put(r->ctx, "desk", &g->desk_at, sizeof(g->desk_at));
    if (fd >= 0)
        close(fd);
    return status;
}

int invite_take(struct nccl_group *g, const struct collrun_rendezvous *r)
{
    size_t len = 0;
    return r->get(r->ctx, "desk", &g->desk_at, sizeof(g->desk_at), &len);
}

/* The connection is being made: until it is, or fails. */
static int await_connection(int fd, uint64_t deadline_ns)
{
    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLOUT};
        const uint64_t now = clock_ns();
        if (now >= deadline_ns)
            return ETIMEDOUT;
        const uint64_t left = (deadline_ns - now) / 1000000u + 1;
        const int n = poll(&p, 1, left < 1000 ? (int)left : 1000);
        int error = 0;
        socklen_t len = sizeof(error);
        if (n > 0)
            return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0 ? error : errno;
    }
}

int invite_connect(struct nccl_group *g, enum desk_sort sort, uint64_t deadline_ns, int *out)
{
    const struct invitation *to = &g->desk_at;
    const struct desk_hello hello = {.secret = to->secret, .rank = g->rank, .sort = sort};
    const int fd = socket(to->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    *out = fd;
    int error = fd < 0 ? errno : 0;
    if (!error && connect(fd, (const struct sockaddr *)&to->address, to->len) != 0)
        error = errno == EINPROGRESS ? await_connection(fd, deadline_ns) : errno;
    if (!error) {
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
        if (send(fd, &hello, sizeof(hello), MSG_NOSIGNAL) != sizeof(hello))
            error = errno;
    }
    return error ? broken(g, "connect to rank 0, which keeps the group's order", error)
                 : COLLRUN_OK;
}
