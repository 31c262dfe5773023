/* SPDX-License-Identifier: Apache-2.0
 *
 * A transport is a bidirectional byte stream to one process on one host: to collrun-agent itself,
 * or to a POSIX shell that becomes the agent by the script of staging.c. The process that the
 * stream runs through (srun, or the command of the job file) is its transport command.
 */
#ifndef RUNNER_CONNECT_TRANSPORT_H
#define RUNNER_CONNECT_TRANSPORT_H

#include "base/diag.h"
#include "spec/job.h"

#include <sys/types.h>

/* The remote shell for staging.c. It is a single word, which no command can split or quote. */
#define TRANSPORT_SHELL "/bin/sh"

struct ssh_link;
struct transport_stream {
    int read_fd, write_fd; /* owned by the caller; may be the same number */
    bool text;             /* what is read are lines of base64, once the agent runs */
    int err_fd;            /* stderr of the transport command, owned by the caller; -1: none */
    pid_t pid; /* a child of this process that carries the stream: the agent itself, srun; reaped by
                  the caller; 0: none */
    struct ssh_link *ssh; /* borrowed from its pool; NULL: another transport */
};

/* local: the agent is a child of the runner, on a socketpair. `agent` is its absolute path. */
int transport_local_open(const char *agent, struct transport_stream *out, struct diag *d);

/* command, slurm: the argument list that reaches a host, NULL-terminated; `bare`: it ends with
 * collrun-agent itself, so no shell is started. */
char *const *transport_command_argv(const struct job_host *host, struct arena *arena, bool *bare);
/* The child has pipes, and is in a new session; if it carries text only, its standard output is a
 * terminal. A program that cannot be started is an error. */
int transport_command_open(char *const *argv, bool text, struct transport_stream *out,
                           struct diag *d);

/* ssh: one pool for all hosts of a run. transport_ssh_open returns a stream at once; a thread
 * connects, at most ssh.parallel of them at a time, and closes the stream if it fails. */
struct ssh_pool *ssh_pool_new(const struct job *job, struct diag *d);
/* Ends all links. Their threads have a second to return. */
void ssh_pool_free(struct ssh_pool *pool);
int transport_ssh_open(struct ssh_pool *pool, const struct job_host *host,
                       struct transport_stream *out, struct diag *d);
/* Once the stream has ended: true and the error, or false if the remote side closed it normally. */
bool transport_ssh_why(struct ssh_link *link, struct diag *d);
/* Waits until what was written to the stream is sent, or the deadline. */
void transport_ssh_drain(struct ssh_link *link, uint64_t deadline_ns);
/* "connecting", "logging in", ...; NULL: connected. */
const char *transport_ssh_state(struct ssh_link *link);

#endif
