/* SPDX-License-Identifier: Apache-2.0
 *
 * A transport is a bidirectional byte stream to a collrun-agent on one host, and nothing else. The
 * agent reads its standard input and writes its standard output; what carries them is the
 * transport's business.
 */
#ifndef LAUNCH_TRANSPORT_H
#define LAUNCH_TRANSPORT_H

#include "base/diag.h"

#include <sys/types.h>

struct transport_stream {
    int read_fd, write_fd; /* owned by the caller; may be the same number */
    pid_t pid; /* a child of this process that carries the stream: the agent itself, ssh, srun;
                  reaped by the caller */
};

/* local: the agent is a child of the runner, on a socketpair. `agent` is its absolute path. */
int transport_local_open(const char *agent, struct transport_stream *out, struct diag *d);

#endif
