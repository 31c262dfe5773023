/* SPDX-License-Identifier: Apache-2.0 */
#include "core/connect_all.h"

#include "base/debug.h"
#include "base/loop.h"
#include "base/network.h"
#include "base/standstill.h"
#include "core/error.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

/* How long a wait takes without a look at the job's state; slots for unauthenticated connections;
 * how long the kernel keeps a connection that has sent nothing; attempts, of a second each, to
 * reach a member, which listens by then.
 */
enum { ALIVE_MS = 100, UNAUTHENTICATED_MAX = 16, SILENT_S = 30, ATTEMPTS = 10 };

/* What a member publishes. */
struct connect_all_listener {
    struct sockaddr_storage address;
    uint64_t len;
    uint64_t secret[2];
};

struct connect_all_hello {
    uint64_t secret[2];
    uint64_t rank;
};

/* An accepted connection whose HELLO is not complete. */
struct connect_all_pending {
    int fd;
    size_t got; /* bytes of hello */
    struct connect_all_hello hello;
};

struct connect_all_acceptor {
    const struct connect_all *how;
    int *fds; /* by rank */
    int fd;   /* listens */
    uint64_t deadline_ns, stopped_ns;
    struct connect_all_listener self;
    uint32_t missing; /* higher ranks that have not connected */
    uint32_t npending, capacity;
    struct connect_all_pending *pending;
    struct pollfd *polled; /* the listener, then the pending connections */
};

static int connect_all_system(const char *what)
{
    return error_cause(COLLRUN_ERR_SYSTEM, "cannot %s: %s", what, strerror(errno));
}

static void connect_all_key(const struct connect_all *how, uint32_t rank, char out[48])
{
    snprintf(out, 48, "connect_all/%u/%u", how->number, rank);
}

/* ---- listening ---- */

/* The first free port of the range. False: errno. */
static bool connect_all_bind(struct connect_all_acceptor *a)
{
    const struct connect_all *how = a->how;
    errno = EADDRINUSE;
    for (uint32_t port = how->first_port; port <= how->last_port && errno == EADDRINUSE; port++) {
        const socklen_t len = tcp_address(how->address, (uint16_t)port, &a->self.address);
        if (bind(a->fd, (void *)&a->self.address, len) == 0)
            return true;
    }
    return false;
}

static int connect_all_listen(struct connect_all_acceptor *a)
{
    struct connect_all_listener *self = &a->self;
    socklen_t len = tcp_address(a->how->address, 0, &self->address);
    if (len == 0)
        return error_cause(COLLRUN_ERR_INVALID, "\"%s\" is not a numeric address", a->how->address);
    a->fd = socket(self->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (a->fd < 0 || !connect_all_bind(a) || listen(a->fd, SOMAXCONN) != 0 ||
        getsockname(a->fd, (void *)&self->address, &len) != 0)
        return errno == EADDRNOTAVAIL
                   ? error_cause(COLLRUN_ERR_SYSTEM, "cannot listen on %s: its interface is down",
                                 a->how->address)
                   : connect_all_system("listen for the members of the group");
    /* A connection comes with its first bytes. So a member, whose HELLO is one segment, never waits
     * in a slot, where many unauthenticated ones could push it out. */
    setsockopt(a->fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, &(int){SILENT_S}, sizeof(int));
    self->len = len;
    if (getrandom(self->secret, sizeof self->secret, 0) != sizeof self->secret)
        return connect_all_system("create a secret");
    return COLLRUN_OK;
}

/* After it, the listeners of all members are known here. */
static int connect_all_publish(const struct connect_all_acceptor *a)
{
    const struct collrun_rendezvous *r = a->how->rendezvous;
    char key[48];
    connect_all_key(a->how, a->how->rank, key);
    int rc = r->put(r->ctx, key, &a->self, sizeof a->self);
    return rc == COLLRUN_OK ? r->fence(r->ctx) : rc;
}

/* Time in which the job is suspended is none of the rendezvous'. */
static bool connect_all_has_expired(struct connect_all_acceptor *a)
{
    return standstill_expired(now_ns(), &a->stopped_ns, &a->deadline_ns);
}

/* ---- connecting ---- */

static int connect_all_unreachable(const struct connect_all_listener *to, uint32_t rank, int error,
                                   int status)
{
    char host[NI_MAXHOST] = "?", port[NI_MAXSERV] = "?";
    getnameinfo((const void *)&to->address, (socklen_t)to->len, host, sizeof host, port,
                sizeof port, NI_NUMERICHOST | NI_NUMERICSERV);
    return error_cause(status, "cannot connect to rank %u at %s port %s: %s", rank, host, port,
                       strerror(error));
}

/* Connects in short attempts, between which the job may turn out to have failed. They are counted:
 * time in which the job is suspended is none of theirs. */
static int connect_all_dial(struct connect_all_acceptor *a, const struct connect_all_listener *to,
                            uint32_t rank, int *fd)
{
    const struct collrun_rendezvous *r = a->how->rendezvous;
    for (int attempt = 1;; attempt++) {
        uint64_t until = now_ns() + 1000000000u;
        if (until > a->deadline_ns)
            until = a->deadline_ns;
        int error = tcp_connect((const void *)&to->address, (socklen_t)to->len, until, -1, fd);
        debug_log(DEBUG_LINK, "connect_all: member %u to member %u, attempt %d: %s", a->how->rank,
                  rank, attempt, error ? strerror(error) : "connected");
        if (error == 0)
            return COLLRUN_OK;
        int rc = r->alive(r->ctx);
        if (rc != COLLRUN_OK)
            return rc;
        if (error == ETIMEDOUT && connect_all_has_expired(a))
            return connect_all_unreachable(to, rank, error, COLLRUN_ERR_TIMEOUT);
        if (error != ETIMEDOUT || attempt == ATTEMPTS)
            return connect_all_unreachable(to, rank, error,
                                           network_is_cut(error) ? COLLRUN_ERR_PEER_FAILED
                                                                 : COLLRUN_ERR_SYSTEM);
    }
}

static int connect_all_connect(struct connect_all_acceptor *a, uint32_t rank, int *fd)
{
    const struct connect_all *how = a->how;
    const struct collrun_rendezvous *r = how->rendezvous;
    struct connect_all_listener to;
    struct connect_all_hello hello = {.rank = how->rank};
    char key[48];
    size_t len;
    connect_all_key(how, rank, key);
    int rc = r->get(r->ctx, key, &to, sizeof to, &len);
    if (rc == COLLRUN_OK)
        rc = connect_all_dial(a, &to, rank, fd);
    if (rc != COLLRUN_OK)
        return rc;
    memcpy(hello.secret, to.secret, sizeof hello.secret);
    /* It fits into the buffer of a new socket. */
    if (send(*fd, &hello, sizeof hello, MSG_NOSIGNAL) != sizeof hello)
        return connect_all_system("send to a member of the group");
    return COLLRUN_OK;
}

/* ---- accepting ---- */

static void connect_all_remove(struct connect_all_acceptor *a, uint32_t i)
{
    a->npending--;
    memmove(&a->pending[i], &a->pending[i + 1], (a->npending - i) * sizeof *a->pending);
}

/* The connection becomes a member's, or is closed. */
static void connect_all_admit(struct connect_all_acceptor *a, const struct connect_all_pending *p)
{
    uint64_t rank = p->hello.rank;
    bool is_member = memcmp(p->hello.secret, a->self.secret, sizeof a->self.secret) == 0 &&
                     rank > a->how->rank && rank < a->how->nranks && a->fds[rank] < 0;
    debug_log(DEBUG_LINK, "connect_all: member %u %s as %llu; %u are missing", a->how->rank,
              is_member ? "accepts a connection" : "closes one that is not from a member",
              (unsigned long long)rank, a->missing);
    if (!is_member) {
        close(p->fd);
        return;
    }
    setsockopt(p->fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    a->fds[rank] = p->fd;
    a->missing--;
}

/* Reads HELLO. True: the connection is not pending any more. */
static bool connect_all_read(struct connect_all_acceptor *a, struct connect_all_pending *p)
{
    ssize_t n = recv(p->fd, (char *)&p->hello + p->got, sizeof p->hello - p->got, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (n <= 0) {
        close(p->fd);
        return true;
    }
    p->got += (size_t)n;
    if (p->got < sizeof p->hello)
        return false;
    connect_all_admit(a, p);
    return true;
}

static void connect_all_accept(struct connect_all_acceptor *a)
{
    int fd = accept4(a->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    if (a->npending == a->capacity) { /* there are more slots than members */
        debug_log(DEBUG_LINK, "connect_all: no slot is free: the oldest connection is closed");
        close(a->pending[0].fd);
        connect_all_remove(a, 0);
    }
    a->pending[a->npending++] = (struct connect_all_pending){.fd = fd};
}

static int connect_all_poll(struct connect_all_acceptor *a)
{
    a->polled[0] = (struct pollfd){.fd = a->fd, .events = POLLIN};
    for (uint32_t i = 0; i < a->npending; i++)
        a->polled[i + 1] = (struct pollfd){.fd = a->pending[i].fd, .events = POLLIN};
    int n = poll(a->polled, a->npending + 1, ALIVE_MS);
    if (n < 0 && errno != EINTR)
        return connect_all_system("wait for the members of the group");
    for (uint32_t i = a->npending; n > 0 && i-- > 0;) {
        if (a->polled[i + 1].revents && connect_all_read(a, &a->pending[i]))
            connect_all_remove(a, i);
    }
    if (n > 0 && a->polled[0].revents)
        connect_all_accept(a);
    return COLLRUN_OK;
}

static int connect_all_check(struct connect_all_acceptor *a)
{
    const struct collrun_rendezvous *r = a->how->rendezvous;
    uint32_t first = a->how->rank + 1;
    int rc = r->alive(r->ctx);
    if (rc != COLLRUN_OK || !connect_all_has_expired(a))
        return rc;
    while (a->fds[first] >= 0)
        first++;
    return error_cause(COLLRUN_ERR_TIMEOUT, "rank %u has not connected%s", first,
                       a->missing > 1 ? ", and others" : "");
}

static int connect_all_accept_members(struct connect_all_acceptor *a)
{
    int rc = COLLRUN_OK;
    a->missing = a->how->nranks - a->how->rank - 1;
    while (rc == COLLRUN_OK && a->missing > 0) {
        rc = connect_all_poll(a);
        if (rc == COLLRUN_OK && a->missing > 0)
            rc = connect_all_check(a);
    }
    return rc;
}

/* ---- all of it ---- */

static int connect_all_run(struct connect_all_acceptor *a)
{
    if (!a->pending || !a->polled)
        return error_cause(COLLRUN_ERR_NO_MEMORY, "out of memory");
    int rc = connect_all_listen(a);
    if (rc == COLLRUN_OK)
        rc = connect_all_publish(a);
    for (uint32_t i = 0; rc == COLLRUN_OK && i < a->how->rank; i++)
        rc = connect_all_connect(a, i, &a->fds[i]);
    return rc == COLLRUN_OK ? connect_all_accept_members(a) : rc;
}

int connect_all(const struct connect_all *how, int *fds)
{
    uint32_t capacity = how->nranks + UNAUTHENTICATED_MAX;
    struct connect_all_acceptor a = {
        .how = how,
        .fds = fds,
        .fd = -1,
        .deadline_ns = how->deadline_ns,
        .stopped_ns = how->stopped_ns,
        .capacity = capacity,
        .pending = calloc(capacity, sizeof *a.pending),
        .polled = calloc(capacity + 1, sizeof *a.polled),
    };
    for (uint32_t i = 0; i < how->nranks; i++)
        fds[i] = -1;
    int rc = connect_all_run(&a);
    for (uint32_t i = 0; i < a.npending; i++)
        close(a.pending[i].fd);
    for (uint32_t i = 0; rc != COLLRUN_OK && i < how->nranks; i++) {
        if (fds[i] >= 0)
            close(fds[i]);
        fds[i] = -1;
    }
    if (a.fd >= 0)
        close(a.fd);
    free(a.pending);
    free(a.polled);
    return rc;
}
