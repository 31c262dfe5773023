/* SPDX-License-Identifier: Apache-2.0
 *
 * A transport is a bidirectional byte stream to one process on one host, and nothing else: to
 * collrun-agent itself, or to a POSIX shell that becomes the agent once stage.c has talked to it.
 * What carries the stream is the transport's business.
 */
#ifndef LAUNCH_TRANSPORT_H
#define LAUNCH_TRANSPORT_H

#include "base/diag.h"
#include "spec/job.h"

#include <sys/types.h>

/* The shell that stage.c talks to. One word, so that nothing on the way can quote it wrong. */
#define TRANSPORT_SHELL "/bin/sh"

struct ssh_link;
struct transport_stream {
    int read_fd, write_fd; /* owned by the caller; may be the same number */
    int err_fd;            /* what the carrier says on stderr, owned by the caller; -1: nothing */
    pid_t pid; /* a child of this process that carries the stream: the agent itself, srun; reaped by
                  the caller; 0: none */
    struct ssh_link *ssh; /* borrowed from its pool; NULL: another transport */
};

/* local: the agent is a child of the runner, on a socketpair. `agent` is its absolute path. */
int transport_local_open(const char *agent, struct transport_stream *out, struct diag *d);

/* command, slurm: the argument list that reaches a host, NULL-terminated; `bare`: it ends with
 * collrun-agent itself, so there is no shell. */
char *const *transport_command_argv(const struct job_host *host, struct arena *arena, bool *bare);
/* The child has pipes and a session of its own. A program that cannot be started is an error here.
 */
int transport_command_open(char *const *argv, struct transport_stream *out, struct diag *d);

/* ssh: one pool for all hosts of a run. The stream is there at once; connecting goes on in a thread
 * of its own, at most ssh.parallel at a time, and a failure ends the stream. */
struct ssh_pool *ssh_pool_new(const struct job *job, struct diag *d);
/* Ends all links. Their threads get a second to be gone. */
void ssh_pool_free(struct ssh_pool *pool);
int transport_ssh_open(struct ssh_pool *pool, const struct job_host *host,
                       struct transport_stream *out, struct diag *d);
/* Why the stream ended, once it has: true and the sentence, or false when the far side closed it in
 * peace. */
bool transport_ssh_why(struct ssh_link *link, struct diag *d);
/* "connecting", "logging in", ...: what the link is at. */
const char *transport_ssh_phase(struct ssh_link *link);

#endif
