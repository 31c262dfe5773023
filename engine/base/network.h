/* SPDX-License-Identifier: Apache-2.0
 *
 * What the kernel knows about the TCP connections of a process (TCP_INFO), to explain a wait: data
 * that was sent and not acknowledged, keepalive probes without an answer, connections that have not
 * come up. It serves every backend, also those whose library owns the sockets.
 *
 * - A rank asks about its own process before it reports a time-out; its agent asks about the
 *   processes of all ranks for a stall report, through descriptors that pidfd_getfd(2) copies.
 * - A process that may not be examined, and a connection that is well, add nothing.
 */
#ifndef ENGINE_BASE_NETWORK_H
#define ENGINE_BASE_NETWORK_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

enum {
    NETWORK_TICK_MS = 20,    /* between two calls of network_poll */
    NETWORK_ANSWER_MS = 200, /* for the answer to a probe */
    NETWORK_LIMIT_MS = 1000  /* for all: a busy kernel sends probes late */
};
/* Shorter waits are not explained: a connection is silent only after a second. */
#define NETWORK_LEAST_NS 1000000000ull

/* A connection without an answer. */
struct network_fault {
    bool found, opening; /* opening: it has not come up */
    bool probed;         /* attempts: of keepalive, not of data */
    int error;           /* of connect(), which has failed; 0: it has not */
    double silent_s;
    uint32_t attempts;
    uint32_t bytes;                      /* sent and not acknowledged */
    char address[INET6_ADDRSTRLEN + 20]; /* of the peer */
    uint16_t port;                       /* 0: not known */
};

struct network_survey {
    struct network_socket *sockets;
    uint32_t n;
    uint64_t begin_ns;
};

/* Copies the TCP sockets of a process, and probes the idle ones. */
void network_begin(struct network_survey *s, pid_t pid);
/* True: all probes have been answered, or had the time for it; or the limit has passed. */
bool network_poll(struct network_survey *s);
/* Then: adds the connection from this address that has been silent for longest,
 * if it is worse than the one in `worst`. Closes the copies. True: it is worse. */
bool network_end(struct network_survey *s, const char *address, struct network_fault *worst);

/* True if this error of connect() comes from the network, not from the host of the peer. */
bool network_is_cut(int error);

enum { NETWORK_TEXT = 224 };
/* "no answer from 10.2.0.7 port 4711 for 5.9 s (3 retransmissions, 65536 bytes unacknowledged)" */
void network_fault_text(const struct network_fault *f, char out[NETWORK_TEXT]);
/* Finds such a text in an error message. *end: what follows it. False: there is none. */
bool network_fault_read(const char *text, struct network_fault *f, const char **end);

/* TCP connections under a deadline, and numeric addresses. */

/* Fills in *out from a numeric IPv4 or IPv6 address. Returns its length, or 0 if the text is no
 * such address. */
socklen_t tcp_address(const char *address, uint16_t port, struct sockaddr_storage *out);

/* Connects. On success *fd is a non-blocking socket with TCP_NODELAY and close-on-exec, which the
 * caller closes. Returns 0 or an errno: ETIMEDOUT once CLOCK_MONOTONIC has passed deadline_ns,
 * ECANCELED once cancel_fd (-1: none) is readable. */
int tcp_connect(const struct sockaddr *address, socklen_t len, uint64_t deadline_ns, int cancel_fd,
                int *fd);

#endif
