/* SPDX-License-Identifier: Apache-2.0
 *
 * What the kernel knows about the TCP connections of this process, for the text of a time-out: data
 * that was sent and not acknowledged, keepalive probes without an answer, connections that have not
 * come up. It takes 200 ms, and serves every backend, also those whose library owns the sockets.
 */
#ifndef ENGINE_CORE_NETWORK_H
#define ENGINE_CORE_NETWORK_H

#include <stddef.h>
#include <stdint.h>

struct desc;

/* Shorter waits are not explained: a connection is silent only after a second. */
#define NETWORK_LEAST_NS 1000000000ull

/* Adds "; no answer from 10.2.0.7 port 4711 for 5.9 s (3 retransmissions, 65536 bytes
 * unacknowledged): the network between hosts a and b may be cut" to a text, of the connection that
 * has been silent for longest. Without one other host that is certain, it names the connection
 * alone. Adds nothing if all connections are well, if the job has one host, or if there is no room.
 * `address` is that of this host: only connections from there count. */
struct network_wait {
    const struct desc *desc;
    uint32_t host; /* of this process */
    const char *address;
    const uint32_t *missing; /* world ranks */
    uint32_t nmissing;
};
void network_explain(const struct network_wait *w, char *text, size_t len);

#endif
