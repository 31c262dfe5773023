/* SPDX-License-Identifier: Apache-2.0
 *
 * TCP connections under a deadline, and numeric addresses.
 */
#ifndef ENGINE_BASE_TCP_H
#define ENGINE_BASE_TCP_H

#include <stdint.h>
#include <sys/socket.h>

/* Fills in *out from a numeric IPv4 or IPv6 address. Returns its length, or 0 if the text is no
 * such address. */
socklen_t tcp_address(const char *address, uint16_t port, struct sockaddr_storage *out);

/* Connects. On success *fd is a non-blocking socket with TCP_NODELAY and close-on-exec, which the
 * caller closes. Returns 0 or an errno: ETIMEDOUT once CLOCK_MONOTONIC has passed deadline_ns,
 * ECANCELED once cancel_fd (-1: none) is readable. */
int tcp_connect(const struct sockaddr *address, socklen_t len, uint64_t deadline_ns, int cancel_fd,
                int *fd);

#endif
