/* SPDX-License-Identifier: Apache-2.0
 *
 * Reaching the hosts: all of them at once, each through its transport, with what it lacks staged on
 * the way, until an agent is at the other end of the stream. Used by a run and by `collrun doctor`.
 * A host that cannot be reached is told of once, in a sentence with its place in job.yaml; what
 * carries the streams goes on being watched afterwards, so that a stream which ends later can be
 * explained too.
 */
#ifndef LAUNCH_REACH_H
#define LAUNCH_REACH_H

#include "base/desc.h"
#include "base/loop.h"
#include "launch/transport.h"

#include <stdio.h>

struct reach;

struct reach_hooks {
    /* An agent is there. The descriptors are handed over; `early` came from the agent already. */
    void (*ready)(void *ctx, uint32_t host, const struct transport_stream *stream,
                  const struct buf *early);
    /* It will not be. */
    void (*failed)(void *ctx, uint32_t host, const struct diag *d);
    void *ctx;
};

/* `desc` says what a host needs (stage: auto); it and `job` outlive the reach. What was sent is
 * said on `verbose`, unless that is NULL. */
struct reach *reach_new(struct loop *loop, const struct job *job, const struct desc *desc,
                        const struct reach_hooks *hooks, FILE *verbose, struct diag *d);
void reach_free(struct reach *r);
/* Begins with every host. Hooks may be called before it returns. */
void reach_start(struct reach *r);
/* No hook is called for this host any more. */
void reach_give_up(struct reach *r, uint32_t host);
/* A child of this process ended. */
void reach_child_ended(struct reach *r, pid_t pid, int status);

bool reach_is_remote(const struct reach *r, uint32_t host);
/* Where the host stands before it is ready: "connecting to 10.0.0.1". */
const char *reach_phase(const struct reach *r, uint32_t host);
/* Once a ready host's stream has ended: what is known of the reason; false: nothing. */
bool reach_why(struct reach *r, uint32_t host, char *out, size_t size);
/* Where a file of the description (a backend, a plugin) is on a ready host. Borrowed. */
const char *reach_path(struct reach *r, uint32_t host, const char *path);
/* Replaces network.interface for all hosts. */
void reach_set_interface(struct reach *r, const char *interface);
/* The description as this host needs it, encoded; borrowed until the next call. NULL: no memory. */
const struct buf *reach_desc(struct reach *r, uint32_t host);

#endif
