/* SPDX-License-Identifier: Apache-2.0
 *
 * A peer that is stopped, or busy, does not look like a cut: its kernel acknowledges. A connection
 * on which a rank only waits for data has nothing to be acknowledged, so the kernel sends a
 * keepalive probe first. All work is done on copies of descriptors: the process may close its own
 * at any time.
 */
#include "base/network.h"

#include "base/loop.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    NETWORK_MS = 1000000,     /* ns */
    NETWORK_SILENT_MS = 1000, /* an acknowledgement can be late because of the load */
    NETWORK_SOCKETS_MAX = 256
};

struct network_socket {
    int fd;
    bool probed;
    int keepalive, idle_s; /* its options before the probe */
    uint64_t sent_ns;      /* when the probe was first seen without an answer; 0: not yet */
};

struct network_address {
    char host[NI_MAXHOST], port[NI_MAXSERV];
};

/* ---- copies of the sockets ---- */

/* Shortening the idle time of a connection that has been idle for longer makes the kernel probe at
 * once. */
static void network_probe(struct network_socket *s, const struct tcp_info *info)
{
    socklen_t size = sizeof(int);
    s->probed = info->tcpi_state == TCP_ESTABLISHED &&
                info->tcpi_last_ack_recv >= NETWORK_SILENT_MS &&
                getsockopt(s->fd, SOL_SOCKET, SO_KEEPALIVE, &s->keepalive, &size) == 0 &&
                getsockopt(s->fd, IPPROTO_TCP, TCP_KEEPIDLE, &s->idle_s, &size) == 0 &&
                setsockopt(s->fd, SOL_SOCKET, SO_KEEPALIVE, &(int){1}, sizeof(int)) == 0 &&
                setsockopt(s->fd, IPPROTO_TCP, TCP_KEEPIDLE, &(int){1}, sizeof(int)) == 0;
}

/* Keeps a copy of the descriptor if it is a connection, or one that is being opened. */
static void network_add(struct network_survey *s, int pidfd, int number)
{
    struct tcp_info info;
    socklen_t len = sizeof info;
    const int fd = pidfd < 0 ? fcntl(number, F_DUPFD_CLOEXEC, 3)
                             : (int)syscall(SYS_pidfd_getfd, pidfd, number, 0);
    if (fd < 0)
        return;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) != 0 ||
        (info.tcpi_state != TCP_ESTABLISHED && info.tcpi_state != TCP_SYN_SENT)) {
        close(fd);
        return;
    }
    s->sockets[s->n] = (struct network_socket){.fd = fd};
    network_probe(&s->sockets[s->n++], &info);
}

static uint64_t network_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void network_begin(struct network_survey *s, pid_t pid)
{
    int numbers[NETWORK_SOCKETS_MAX], n = 0;
    char path[64], link[32];
    const struct dirent *entry;
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    *s = (struct network_survey){.sockets = calloc(NETWORK_SOCKETS_MAX, sizeof *s->sockets),
                                 .begin_ns = network_now_ns()};
    DIR *dir = s->sockets ? opendir(path) : NULL;
    while (dir && n < NETWORK_SOCKETS_MAX && (entry = readdir(dir))) {
        const ssize_t len = readlinkat(dirfd(dir), entry->d_name, link, sizeof link);
        if (len > 7 && memcmp(link, "socket:", 7) == 0)
            numbers[n++] = atoi(entry->d_name);
    }
    if (dir)
        closedir(dir);
    const bool own = pid == getpid();
    const int pidfd = own || !n ? -1 : (int)syscall(SYS_pidfd_open, pid, 0);
    for (int i = 0; i < n && (own || pidfd >= 0); i++)
        network_add(s, pidfd, numbers[i]);
    if (pidfd >= 0)
        close(pidfd);
}

static bool network_had_time(const struct network_socket *s, uint64_t now_ns)
{
    return s->sent_ns && now_ns - s->sent_ns >= (uint64_t)NETWORK_ANSWER_MS * NETWORK_MS;
}

bool network_poll(struct network_survey *s)
{
    const uint64_t now_ns = network_now_ns();
    bool done = now_ns - s->begin_ns >= (uint64_t)NETWORK_ANSWER_MS * NETWORK_MS;
    for (uint32_t i = 0; i < s->n; i++) {
        struct network_socket *k = &s->sockets[i];
        struct tcp_info info;
        socklen_t len = sizeof info;
        if (!k->probed || getsockopt(k->fd, IPPROTO_TCP, TCP_INFO, &info, &len) != 0 ||
            info.tcpi_last_ack_recv < NETWORK_SILENT_MS || info.tcpi_retransmits)
            continue;
        if (info.tcpi_probes && !k->sent_ns)
            k->sent_ns = now_ns;
        done = done && network_had_time(k, now_ns);
    }
    return done || now_ns - s->begin_ns >= (uint64_t)NETWORK_LIMIT_MS * NETWORK_MS;
}

/* ---- what the kernel says about one ---- */

static bool network_address_read(const struct sockaddr_storage *address, socklen_t len,
                                 struct network_address *out)
{
    return getnameinfo((const struct sockaddr *)address, len, out->host, sizeof out->host,
                       out->port, sizeof out->port, NI_NUMERICHOST | NI_NUMERICSERV) == 0;
}

/* SO_PEERNAME works also while a connection is opened, unlike getpeername(), and wants the exact
 * length. */
static bool network_addresses(int fd, struct network_address *own, struct network_address *peer)
{
    struct sockaddr_storage address;
    socklen_t len = sizeof address;
    return getsockname(fd, (struct sockaddr *)&address, &len) == 0 &&
           network_address_read(&address, len, own) &&
           getsockopt(fd, SOL_SOCKET, SO_PEERNAME, &address, &len) == 0 &&
           network_address_read(&address, len, peer);
}

static bool network_look(const struct network_socket *s, const char *address,
                         struct network_fault *worst)
{
    const int fd = s->fd;
    struct tcp_info info;
    socklen_t len = sizeof info;
    struct network_address own, peer;
    struct network_fault f = {.found = true};
    int bytes = 0;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) != 0 ||
        !network_addresses(fd, &own, &peer) || strcmp(own.host, address) != 0)
        return false;
    f.opening = info.tcpi_state == TCP_SYN_SENT;
    f.probed = info.tcpi_retransmits == 0;
    f.attempts = f.probed ? info.tcpi_probes : info.tcpi_retransmits;
    f.silent_s = f.opening ? 0 : info.tcpi_last_ack_recv / 1e3;
    if (f.attempts == 0 || (f.probed && !network_had_time(s, network_now_ns())) ||
        (!f.opening && info.tcpi_last_ack_recv < NETWORK_SILENT_MS) ||
        (info.tcpi_state != TCP_ESTABLISHED && !f.opening) ||
        (worst->found && worst->silent_s >= f.silent_s))
        return false;
    f.bytes = ioctl(fd, TIOCOUTQ, &bytes) == 0 && bytes > 0 ? (uint32_t)bytes : 0;
    snprintf(f.address, sizeof f.address, "%.*s", (int)sizeof f.address - 1, peer.host);
    f.port = (uint16_t)atoi(peer.port);
    *worst = f;
    return true;
}

bool network_end(struct network_survey *s, const char *address, struct network_fault *worst)
{
    bool worse = false;
    for (uint32_t i = 0; i < s->n; i++) {
        const struct network_socket *k = &s->sockets[i];
        worse = network_look(k, address, worst) || worse;
        if (k->probed) {
            setsockopt(k->fd, IPPROTO_TCP, TCP_KEEPIDLE, &k->idle_s, sizeof(int));
            setsockopt(k->fd, SOL_SOCKET, SO_KEEPALIVE, &k->keepalive, sizeof(int));
        }
        close(k->fd);
    }
    free(s->sockets);
    *s = (struct network_survey){0};
    return worse;
}

/* ---- the text ---- */

#define NETWORK_SILENT "no answer from "
#define NETWORK_OPENING "the connection to "
#define NETWORK_REFUSED "cannot connect to "

/* The errors of connect() that come from the network, not from the host of the peer. */
static const int network_errors[] = {EHOSTUNREACH, ENETUNREACH, ETIMEDOUT, EHOSTDOWN, ENETDOWN};

bool network_is_cut(int error)
{
    size_t i = 0;
    while (i < sizeof network_errors / sizeof *network_errors && network_errors[i] != error)
        i++;
    return i < sizeof network_errors / sizeof *network_errors;
}

void network_fault_text(const struct network_fault *f, char out[NETWORK_TEXT])
{
    const char *s = f->attempts == 1 ? "" : "s";
    char port[16] = "";
    if (f->port)
        snprintf(port, sizeof port, " port %u", f->port);
    if (f->error)
        snprintf(out, NETWORK_TEXT, NETWORK_REFUSED "%s%s: %s", f->address, port,
                 strerror(f->error));
    else if (f->opening)
        snprintf(out, NETWORK_TEXT, NETWORK_OPENING "%s port %u has not come up (%u attempts)",
                 f->address, f->port, f->attempts + 1);
    else if (f->probed)
        snprintf(out, NETWORK_TEXT, NETWORK_SILENT "%s port %u for %.1f s (%u keepalive probe%s)",
                 f->address, f->port, f->silent_s, f->attempts, s);
    else
        snprintf(out, NETWORK_TEXT,
                 NETWORK_SILENT
                 "%s port %u for %.1f s (%u retransmission%s, %u bytes unacknowledged)",
                 f->address, f->port, f->silent_s, f->attempts, s, f->bytes);
}

/* "cannot connect to rank 2 at 10.2.0.7 port 4711: No route to host"; rank and port may be missing.
 * NULL: it is not this, or cut short; else what follows. */
static const char *network_read_refused(const char *text, struct network_fault *f)
{
    int at = 0, len = 0;
    sscanf(text, NETWORK_REFUSED "rank %*u at %n", &at);
    text += at ? at : (int)strlen(NETWORK_REFUSED);
    const size_t host = strspn(text, "0123456789abcdefABCDEF.:");
    const bool alone = host && text[host - 1] == ':';
    if (!host || host >= sizeof f->address ||
        (!alone && (sscanf(text + host, " port %hu:%n", &f->port, &len) != 1 || !len)))
        return NULL;
    snprintf(f->address, sizeof f->address, "%.*s", (int)host - alone, text);
    text += host + (size_t)len;
    for (size_t i = 0; i < sizeof network_errors / sizeof *network_errors; i++) {
        const char *why = strerror(network_errors[i]);
        if (text[0] != ' ' || strncmp(text + 1, why, strlen(why)) != 0)
            continue;
        f->found = f->opening = true;
        f->error = network_errors[i];
        return text + 1 + strlen(why);
    }
    return NULL;
}

bool network_fault_read(const char *text, struct network_fault *f, const char **end)
{
    const char *silent = strstr(text, NETWORK_SILENT), *opening = strstr(text, NETWORK_OPENING);
    const char *refused = strstr(text, NETWORK_REFUSED);
    int len = 0;
    *f = (struct network_fault){.found = false};
    *end = NULL;
    if (silent && sscanf(silent, NETWORK_SILENT "%65[0-9a-fA-F.:] port %hu for %lf s (%u %n",
                         f->address, &f->port, &f->silent_s, &f->attempts, &len) == 4) {
        f->probed = strncmp(silent + len, "keepalive", 9) == 0;
        f->found = f->probed || sscanf(silent + len, "%*[a-z], %u bytes", &f->bytes) == 1;
        *end = strchr(silent + len, ')');
    } else if (opening &&
               sscanf(opening, NETWORK_OPENING "%65[0-9a-fA-F.:] port %hu has not come up (%u %n",
                      f->address, &f->port, &f->attempts, &len) == 3) {
        f->found = f->opening = f->attempts > 0;
        f->attempts -= f->opening;
        *end = strchr(opening + len, ')');
    } else if (refused) {
        *end = network_read_refused(refused, f);
        if (f->found)
            return true;
    }
    f->found = f->found && len > 0 && *end;
    *end = f->found ? *end + 1 : text;
    return f->found;
}

/* connect() on a non-blocking socket, then poll() until it is connected or the deadline has
 * passed. */

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
