/* SPDX-License-Identifier: Apache-2.0
 *
 * The first step to an SSH server: a TCP connection under a deadline, or a proxy command. Each way
 * to fail has its own sentence, and tells whether trying again may help.
 */
#ifndef LAUNCH_DIAL_H
#define LAUNCH_DIAL_H

#include "base/diag.h"

#include <stdint.h>

struct dial {
    int cancel_fd;       /* readable: give up */
    uint64_t timeout_ns; /* for the whole */
};

/* A connected, blocking socket in *fd, or a negative code. */
int dial_tcp(const struct dial *how, const char *host, const char *port, int *fd, bool *again,
             struct diag *d);
/* A shell command of this machine whose standard input and output are the connection. */
int dial_command(const char *command, int *fd, struct diag *d);
/* Sleeps; false: cancelled. */
bool dial_sleep(const struct dial *how, uint64_t ns);

#endif
