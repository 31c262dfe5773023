/* SPDX-License-Identifier: Apache-2.0
 *
 * Connects to all hosts at once, each through its transport, and stages the files that a host
 * lacks, until an agent is at the other end of the stream. Used by a run and by survey.h.
 *
 *  - A host that cannot be reached is reported once, with its place in job.yaml.
 *  - The transport commands of the streams are watched until the end, so that a stream that ends
 *    later can be explained, too (connector_end_reason).
 */
#ifndef RUNNER_CONNECT_CONNECTOR_H
#define RUNNER_CONNECT_CONNECTOR_H

#include "base/desc.h"
#include "base/loop.h"
#include "connect/transport.h"

#include <stdio.h>

struct connector;

struct connector_hooks {
    /* The agent runs. The descriptors are handed over; `early` holds its first bytes. */
    void (*ready)(void *ctx, uint32_t host, const struct transport_stream *stream,
                  const struct buf *early);
    /* The host cannot be used. */
    void (*failed)(void *ctx, uint32_t host, const struct diag *d);
    void *ctx;
};

/* `desc` names the files that a host needs (stage: auto); it and `job` outlive the connector. What
 * was sent is logged to `verbose`, unless that is NULL. */
struct connector *connector_new(struct loop *loop, const struct job *job, const struct desc *desc,
                                const struct connector_hooks *hooks, FILE *verbose, struct diag *d);
void connector_free(struct connector *c);
/* Starts with all hosts. Hooks may be called before it returns. */
void connector_start(struct connector *c);
/* Drops a host that is not ready: no hook is called for it any more. */
void connector_cancel(struct connector *c, uint32_t host);
/* A child of this process was reaped. */
void connector_child_exited(struct connector *c, pid_t pid, int status);

bool connector_is_remote(const struct connector *c, uint32_t host);
/* What a host that is not ready is doing: "connecting". */
const char *connector_host_state(const struct connector *c, uint32_t host);
/* After the stream of a ready host has ended: waits until its transport command has exited, for
 * half a second at most. */
void connector_await_exit(struct connector *c, uint32_t host);
/* After the stream of a ready host has ended: the reason, as far as the transport knows it. False:
 * it does not. Does not wait. */
bool connector_end_reason(struct connector *c, uint32_t host, char *out, size_t size);
/* Waits until a thread of this process has sent what was written to the stream of a ready host, or
 * the deadline. */
void connector_drain(struct connector *c, uint32_t host, uint64_t deadline_ns);
/* The path of a backend or plugin on a ready host. Borrowed. */
const char *connector_remote_path(struct connector *c, uint32_t host, const char *path);
/* Replaces network.interface for all hosts. */
void connector_set_interface(struct connector *c, const char *interface);
/* Chooses the backends of groups with `auto` (plan_choose_rdma), once all hosts are known. */
bool connector_choose_rdma(struct connector *c, bool every_host_has_rdma);
/* The encoded description for this host; borrowed until the next call. */
const struct buf *connector_host_desc(struct connector *c, uint32_t host);

#endif
