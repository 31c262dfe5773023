/* SPDX-License-Identifier: Apache-2.0
 *
 * TCP_INFO of the sockets among the descriptors of this process. A peer that is stopped, or busy,
 * does not look like a cut: its kernel acknowledges. A connection on which this rank only waits for
 * data has nothing to be acknowledged, so the kernel sends a keepalive probe first.
 */
#include "core/network.h"

#include "base/desc.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

enum {
    NETWORK_SILENT_MS = 1000, /* an acknowledgement can be late because of the load */
    NETWORK_ANSWER_MS = 200,  /* until a probe is answered */
    NETWORK_PROBED_MAX = 256
};

struct network_end {
    char host[NI_MAXHOST], port[NI_MAXSERV];
};

/* A connection without an answer. */
struct network_fault {
    bool found, opening; /* opening: it has not come up */
    bool probed;         /* attempts: of keepalive, not of data */
    uint32_t silent_ms, attempts;
    int bytes; /* sent and not acknowledged */
    struct network_end peer;
};

static bool network_end(int (*get)(int, struct sockaddr *, socklen_t *), int fd,
                        struct network_end *out)
{
    struct sockaddr_storage address;
    socklen_t len = sizeof address;
    return get(fd, (struct sockaddr *)&address, &len) == 0 &&
           getnameinfo((struct sockaddr *)&address, len, out->host, sizeof out->host, out->port,
                       sizeof out->port, NI_NUMERICHOST | NI_NUMERICSERV) == 0;
}

/* getpeername() refuses a connection that is being opened. Of IPv4, the kernel lists its peer. */
static bool network_opening_peer(const char *own_port, struct network_end *out)
{
    char line[256];
    bool found = false;
    FILE *f = fopen("/proc/self/net/tcp", "re");
    while (f && !found && fgets(line, sizeof line, f)) {
        unsigned port, peer, peer_port, state;
        if (sscanf(line, "%*d: %*x:%x %x:%x %x", &port, &peer, &peer_port, &state) != 4 ||
            state != TCP_SYN_SENT || port != (unsigned)atoi(own_port))
            continue;
        const struct in_addr address = {.s_addr = peer};
        found = inet_ntop(AF_INET, &address, out->host, sizeof out->host) != NULL;
        snprintf(out->port, sizeof out->port, "%u", peer_port);
    }
    if (f)
        fclose(f);
    return found;
}

static void network_look(const struct network_wait *w, int fd, struct network_fault *worst)
{
    struct tcp_info info;
    socklen_t len = sizeof info;
    struct network_end own;
    struct network_fault f = {.found = true};
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) != 0 ||
        !network_end(getsockname, fd, &own) || strcmp(own.host, w->address) != 0)
        return;
    f.opening = info.tcpi_state == TCP_SYN_SENT;
    f.probed = info.tcpi_retransmits == 0;
    f.attempts = f.probed ? info.tcpi_probes : info.tcpi_retransmits;
    f.silent_ms = f.opening ? 0 : info.tcpi_last_ack_recv;
    if (f.attempts == 0 || (!f.opening && f.silent_ms < NETWORK_SILENT_MS) ||
        (info.tcpi_state != TCP_ESTABLISHED && !f.opening) ||
        !(f.opening ? network_opening_peer(own.port, &f.peer)
                    : network_end(getpeername, fd, &f.peer)))
        return;
    ioctl(fd, TIOCOUTQ, &f.bytes);
    if (!worst->found || worst->silent_ms < f.silent_ms)
        *worst = f;
}

/* The host behind the fault, if it is certain: the only other one of the missing ranks, or, if they
 * are here and wait themselves, of the job. Else NULL. */
static const char *network_other_host(const struct network_wait *w)
{
    const uint32_t own = w->host;
    uint32_t found = own;
    for (uint32_t i = 0; i < w->nmissing; i++) {
        const uint32_t rank = w->missing[i];
        const uint32_t host = rank < w->desc->nranks ? w->desc->ranks[rank].host : own;
        if (host != own && found != own && host != found)
            return NULL;
        found = host != own ? host : found;
    }
    if (found == own && w->desc->nhosts == 2)
        found = 1 - own;
    return found != own ? w->desc->hosts[found].name : NULL;
}

/* A connection that is probed, and its options before. */
struct network_probe {
    int fd, keepalive, idle_s;
};

/* Shortening the idle time of a connection that has been idle for longer makes the kernel probe at
 * once. */
static bool network_probe(int fd, struct network_probe *out)
{
    struct tcp_info info;
    socklen_t len = sizeof info, size = sizeof(int);
    *out = (struct network_probe){.fd = fd};
    return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0 &&
           info.tcpi_state == TCP_ESTABLISHED && info.tcpi_last_ack_recv >= NETWORK_SILENT_MS &&
           getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &out->keepalive, &size) == 0 &&
           getsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &out->idle_s, &size) == 0 &&
           setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &(int){1}, sizeof(int)) == 0 &&
           setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &(int){1}, sizeof(int)) == 0;
}

static struct network_fault network_survey(const struct network_wait *w)
{
    struct network_probe probes[NETWORK_PROBED_MAX];
    struct network_fault worst = {0};
    const struct dirent *entry;
    int n = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (dir && n < NETWORK_PROBED_MAX && (entry = readdir(dir)))
        n += network_probe(atoi(entry->d_name), &probes[n]);
    poll(NULL, 0, NETWORK_ANSWER_MS);
    if (dir)
        rewinddir(dir);
    while (dir && (entry = readdir(dir)))
        network_look(w, atoi(entry->d_name), &worst);
    while (n-- > 0) {
        setsockopt(probes[n].fd, IPPROTO_TCP, TCP_KEEPIDLE, &probes[n].idle_s, sizeof(int));
        setsockopt(probes[n].fd, SOL_SOCKET, SO_KEEPALIVE, &probes[n].keepalive, sizeof(int));
    }
    if (dir)
        closedir(dir);
    return worst;
}

static void network_fault_text(const struct network_fault *f, char *out, size_t len)
{
    const char *s = f->attempts == 1 ? "" : "s";
    if (f->opening)
        snprintf(out, len, "; the connection to %s port %s has not come up (%u attempts)",
                 f->peer.host, f->peer.port, f->attempts + 1);
    else if (f->probed)
        snprintf(out, len, "; no answer from %s port %s for %.1f s (%u keepalive probe%s)",
                 f->peer.host, f->peer.port, f->silent_ms / 1e3, f->attempts, s);
    else
        snprintf(out, len,
                 "; no answer from %s port %s for %.1f s (%u retransmission%s, %d bytes "
                 "unacknowledged)",
                 f->peer.host, f->peer.port, f->silent_ms / 1e3, f->attempts, s, f->bytes);
}

void network_explain(const struct network_wait *w, char *text, size_t len)
{
    size_t at = strlen(text);
    char what[NI_MAXHOST + 160], where[256] = "";
    if (w->desc->nhosts < 2 || !w->address)
        return;
    const char *other = network_other_host(w);
    const struct network_fault fault = network_survey(w);
    if (!fault.found)
        return;
    network_fault_text(&fault, what, sizeof what);
    if (other)
        snprintf(where, sizeof where, ": the network between hosts %s and %s may be cut",
                 w->desc->hosts[w->host].name, other);
    if (at + strlen(what) + strlen(where) < len)
        snprintf(text + at, len - at, "%s%s", what, where);
}
