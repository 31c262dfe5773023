/* SPDX-License-Identifier: Apache-2.0
 *
 * The fields of frames, each once. For every frame of WIRE_FIELDS there are, for WIRE_ABORT:
 *
 *   struct wire_abort     its fields
 *   wire_put_abort        appends the payload
 *   wire_read_abort       false: the bytes are no such payload, or something follows it. Texts are
 *                         copied into the arena.
 *   wire_print            prints each field, for a log
 *
 * A field is F(type, name); the types are u8, u16, u32, u64, i32, f64, str, and failure, a
 * struct record_view_failure.
 */
#ifndef ENGINE_BASE_WIRE_FIELDS_H
#define ENGINE_BASE_WIRE_FIELDS_H

#include "base/wire.h"

/* ---- agent -> runner ---- */

/* The wait status and resources of a rank that has exited. All OUTPUT of the rank precedes it.
 *   memory     the memory limit if the kernel killed it for lack of memory, else ""
 *   disturbed  a call had returned that another rank failed or that the job stops, or the agent had
 *              sent SIGTERM to a command as the job failed
 *   why        its last failed call */
#define WIRE_FIELDS_EXITED(F)                                                                      \
    F(i32, status)                                                                                 \
    F(u64, user_us)                                                                                \
    F(u64, system_us) F(u64, max_rss) F(str, memory) F(u8, disturbed) F(failure, why)
/* Once a second, in ns of the agent's CLOCK_MONOTONIC but for the first: the time in the last
 * KEEPALIVE that had one, or 0; when it arrived; and now. */
#define WIRE_FIELDS_HEARTBEAT(F) F(u64, sent_ns) F(u64, arrived_ns) F(u64, now_ns)
/* The bytes of STDIN that the rank's pipe has taken; closed: the rank reads no more. */
#define WIRE_FIELDS_STDIN_TAKEN(F) F(u32, bytes) F(u8, closed)
/* What (enum wire_mpi) the agent has seen of MPI in a rank that runs a command. */
#define WIRE_FIELDS_MPI(F) F(u8, what) F(str, text)
/* What a member has done that ends its part in the job before it has exited, for a message: "has
 * closed its connection to collrun" */
#define WIRE_FIELDS_DETACHED(F) F(str, text)
/* Precedes the STACKS that answer READ_STACKS, from every agent of a job on several hosts; of the
 * rank of this host with the connection that has had no answer for longest, or of its first one:
 * address of the host, what the kernel says about the connection (base/network.h), or "" */
#define WIRE_FIELDS_NETWORK(F) F(str, address) F(str, text)

/* Lines of the log of the agent (base/debug.h), each with its newline. */
#define WIRE_FIELDS_DEBUG_LINES(F) F(str, lines)

/* ---- runner -> agent ---- */

/* What to log (base/debug.h), when the runner started (CLOCK_REALTIME, ns), and the name of the
 * host in the job. It answers HELLO, if anything is logged. */
#define WIRE_FIELDS_DEBUG(F) F(u64, areas) F(u64, start_ns) F(str, host)
/* warning 0: for every process of the addressed rank, or of all ranks (WIRE_HOST); 1: for one
 * process of each rank */
#define WIRE_FIELDS_SIGNAL(F) F(u32, signal) F(u8, warning)
/* The agent treats the runner as lost after limit_ms without a frame; 0: never. now_ns, of the
 * runner, comes back in HEARTBEAT. */
#define WIRE_FIELDS_KEEPALIVE(F) F(u32, limit_ms) F(u64, now_ns)
/* For the rank with the terminal, whenever its size changes. */
#define WIRE_FIELDS_WINDOW(F) F(u16, rows) F(u16, columns)
/* Send a SNAPSHOT at once that has this number, with the ranks that have gone on since their last
 * cut; without one, if none has. */
#define WIRE_FIELDS_LOOK(F) F(u64, number)

/* ---- rank -> runner, relayed ---- */

#define WIRE_FIELDS_PROGRESS(F) F(u32, workload) F(u64, done) F(u64, total) F(str, what)
#define WIRE_FIELDS_METRIC(F) F(u32, workload) F(str, name) F(f64, value)

/* ---- runner -> rank, relayed ---- */

/* This rank has failed, and the job continues (on_failure: continue). */
#define WIRE_FIELDS_RANK_LOST(F) F(u32, rank) F(str, text)
/* status: PEER_FAILED or ABORTED; culprit: a rank, or WIRE_HOST */
#define WIRE_FIELDS_ABORT(F) F(i32, status) F(u32, culprit) F(str, text)

#define WIRE_FIELDS(X)                                                                             \
    X(EXITED, exited)                                                                              \
    X(HEARTBEAT, heartbeat)                                                                        \
    X(STDIN_TAKEN, stdin_taken)                                                                    \
    X(MPI, mpi_report)                                                                             \
    X(DETACHED, detached)                                                                          \
    X(NETWORK, network)                                                                            \
    X(DEBUG_LINES, debug_lines)                                                                    \
    X(DEBUG, debug)                                                                                \
    X(SIGNAL, signal)                                                                              \
    X(KEEPALIVE, keepalive)                                                                        \
    X(LOOK, look)                                                                                  \
    X(WINDOW, window)                                                                              \
    X(PROGRESS, progress)                                                                          \
    X(METRIC, metric)                                                                              \
    X(RANK_LOST, rank_lost)                                                                        \
    X(ABORT, abort)

#define WIRE_C_u8 uint8_t
#define WIRE_C_u16 uint16_t
#define WIRE_C_u32 uint32_t
#define WIRE_C_u64 uint64_t
#define WIRE_C_i32 int32_t
#define WIRE_C_f64 double
#define WIRE_C_str const char *
#define WIRE_C_failure struct record_view_failure
#define WIRE_MEMBER(type, name) WIRE_C_##type name;
#define WIRE_DECLARE(TYPE, name)                                                                   \
    struct wire_##name {                                                                           \
        WIRE_FIELDS_##TYPE(WIRE_MEMBER)                                                            \
    };                                                                                             \
    void wire_put_##name(struct buf *out, const struct wire_##name *fields);                       \
    bool wire_read_##name(const struct wire_frame *f, struct arena *arena,                         \
                          struct wire_##name *fields);
WIRE_FIELDS(WIRE_DECLARE)

#endif
