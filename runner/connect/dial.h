/* SPDX-License-Identifier: Apache-2.0
 *
 * The connection to an SSH server: TCP under a deadline, or a proxy command. Each failure has its
 * own error message, and whether a retry may help.
 */
#ifndef RUNNER_CONNECT_DIAL_H
#define RUNNER_CONNECT_DIAL_H

#include "base/diag.h"

#include <stdint.h>

struct dial {
    int cancel_fd;       /* readable: cancelled */
    uint64_t timeout_ns; /* for all addresses together */
};

/* A connected, blocking socket in *fd, or a negative code; *again: another attempt may succeed. */
int dial_tcp(const struct dial *how, const char *host, const char *port, int *fd, bool *again,
             struct diag *d);
/* Runs a shell command on this machine; its standard input and output are the connection. */
int dial_command(const char *command, int *fd, struct diag *d);
/* Sleeps; false: cancelled. */
bool dial_sleep(const struct dial *how, uint64_t ns);

#endif
