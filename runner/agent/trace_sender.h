/* SPDX-License-Identifier: Apache-2.0
 *
 * Sends the operations of this host's ranks to the runner, which writes them to a trace. Frame:
 * WIRE_TRACE (base/trace_op.h). Only if the job is traced.
 *
 * - An operation is sent once, when it has ended. Those in flight are looked at again.
 * - The interval adapts to the rate: TRACE_SENDER_MS, down to TRACE_SENDER_SOON_MS while a rank
 *   fills a sixteenth of its record between two looks.
 * - A frame has at most TRACE_SENDER_MOST operations. While TRACE_SENDER_BACKLOG bytes wait to be
 *   sent to the runner, nothing is read, so no memory grows: the ranks overwrite what was not read.
 *   These operations are counted as dropped.
 * - The rank ends: what was in flight is sent as it is.
 */
#ifndef RUNNER_AGENT_TRACE_SENDER_H
#define RUNNER_AGENT_TRACE_SENDER_H

#include "base/loop.h"
#include "base/record_view.h"

struct agent;
struct rank_proc;

enum {
    TRACE_SENDER_MS = 80,
    TRACE_SENDER_SOON_MS = 10,
    TRACE_SENDER_MOST = 8192,
    TRACE_SENDER_BACKLOG = 4 << 20,
    TRACE_SENDER_FLIGHT = 1024, /* operations of a rank in flight that are remembered */
    TRACE_SENDER_PAIRS = 4096   /* of peer, tag and direction, whose messages are counted */
};

struct trace_sender_flight {
    uint64_t index;
    uint32_t order;
};

struct trace_sender_pair {
    uint64_t key;   /* hash; 0: free */
    uint32_t count; /* messages so far */
};

struct trace_sender_rank {
    uint64_t next; /* the first operation that was not looked at */
    struct trace_sender_flight flight[TRACE_SENDER_FLIGHT];
    uint32_t nflight;
    uint32_t generation[RECORD_GROUPS]; /* of the groups that were sent, by slot; 0: none */
    bool unordered[RECORD_GROUPS];      /* which message a receive gets is not known */
    bool gap;                           /* operations are missing */
    struct trace_sender_pair pairs[TRACE_SENDER_PAIRS];
};

struct trace_sender {
    struct agent *agent;
    struct loop_timer timer;
    struct trace_sender_rank *ranks; /* owned; of this host; NULL: nothing is traced */
    uint64_t ms;                     /* the present interval */
};

/* Once the ranks were spawned, if the job is traced. Without memory nothing is sent. */
void trace_sender_start(struct trace_sender *s, struct agent *a);
void trace_sender_stop(struct trace_sender *s); /* safe on a zeroed one */
/* The rank has ended. */
void trace_sender_end_rank(struct trace_sender *s, const struct rank_proc *p);

struct trace_sender_look {
    uint64_t now_ns;
    bool ended; /* the rank begins and ends nothing more */
};

/* Appends the payload of a frame with what is new; returns the number of operations that were read.
 * 0: nothing was appended. */
uint32_t trace_sender_pack(struct trace_sender_rank *r, const struct record_view *v,
                           const struct trace_sender_look *look, struct buf *out);

#endif
